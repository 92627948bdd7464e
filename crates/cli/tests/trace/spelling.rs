//! Command lines as uftrace's users write them.

use crate::made::{Made, dioptra, script, scripted, trace};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn made() -> Made {
    scripted("main( a( b ) a )")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn options_have_all_their_spellings() {
    let made = made();
    let expected = made.calls("-D 2");
    assert!(
        expected.contains("main() {\n  a();\n  a();\n}"),
        "{expected}"
    );
    for arguments in [
        "-D2",
        "-D=2",
        "--depth 2",
        "--depth=2",
        "--dep 2",
        "--dept=2",
        // The later of two values holds.
        "-D 1 -D 2",
        "--no-comment --no-comment --task-newl --color yes --color=no -D 2 --no-pager",
    ] {
        let shown = made.calls(arguments);
        assert_eq!(
            shown.replace("} /* main */", "}"),
            expected.replace("} /* main */", "}"),
            "{arguments}"
        );
    }
    // The abbreviation is ambiguous.
    let ambiguous = made.run("replay", "--no");
    assert_eq!(ambiguous.status.code(), Some(2));
    assert!(errors(&ambiguous).contains("--no"));
    // All patterns count, unlike single values.
    assert_eq!(made.calls("-N b -N a"), made.calls("-N b;a"));
}

#[test]
fn recording_takes_all_options_or_says_why_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().join("trace");
    let options = "-b 1m --max-stack=4096 --num-thread 2 -e --no-pltbind --srcline --time --column-view --color=no --no-args";
    let output = dioptra(
        "record",
        &folder,
        &format!("{options} --no-event /bin/true"),
    );
    let told = errors(&output);
    assert!(output.status.success(), "{told}");
    for option in [
        "--buffer",
        "--max-stack",
        "--num-thread",
        "--estimate-return",
        "--no-pltbind",
        "--srcline",
        "--time",
        "--column-view",
    ] {
        assert!(
            told.contains(&format!("dioptra: {option} does nothing")),
            "{option}: {told}"
        );
    }
    assert!(
        !told.contains("--color") && !told.contains("--no-args"),
        "{told}"
    );
    for (options, part) in [
        ("--host h --port 1", "local directory"),
        ("-K 2", "kernel"),
        ("--signal SIGUSR1@trace_on", "triggers"),
        ("-p 1", "cannot be used with '[COMMAND]"),
        ("-g", "-p PID"),
        ("--nop", "without dioptra"),
        ("--record", "dioptra trace record"),
        ("--list-event", "linux:task-new"),
        ("-E list", "linux:schedule"),
        ("--trace=off -F a@sample=2", "sample="),
    ] {
        for command in ["record", "live"] {
            let output = dioptra(command, &folder, &format!("{options} /bin/true"));
            assert_eq!(output.status.code(), Some(2), "{command} {options}");
            assert!(
                errors(&output).contains(part),
                "{options}: {}",
                errors(&output)
            );
        }
    }
}

#[test]
fn options_of_other_commands_are_taken_and_told() {
    let made = made();
    let report = made.shown("report", "");
    let output = made.run(
        "report",
        "--column-view --libname -A a@arg1 --kernel -v --color=no --no-pager",
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), report);
    let told = errors(&output);
    for option in [
        "--column-view",
        "--libname",
        "--argument",
        "--kernel",
        "--verbose",
    ] {
        assert!(
            told.contains(&format!("dioptra: {option} does nothing")),
            "{option}: {told}"
        );
    }
    for silent in ["--color", "--no-pager"] {
        assert!(!told.contains(silent), "{told}");
    }
    // The command's own options cause no message.
    assert_eq!(errors(&made.run("report", "--sort self --task")), "");
    let unknown = made.run("report", "--bogus");
    assert_eq!(unknown.status.code(), Some(2));
}

#[test]
fn messages_go_to_a_file_on_request() {
    let made = made();
    let log = made.folder().join("log");
    let output = made.run("replay", &format!("-F nothing --logfile={}", log.display()));
    assert_eq!(errors(&output), "");
    let logged = std::fs::read_to_string(log).expect("a log");
    assert!(
        logged.contains("-F nothing matches no function"),
        "{logged}"
    );
}

fn trace_command(words: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dioptra"))
        .arg("trace")
        .args(words)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("dioptra runs")
}

#[test]
fn options_come_from_a_file() {
    let made = made();
    let folder = made.folder();
    let file = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("a file");
    file("options", "-f none -D 1 # no more\n --no-merge");
    let shown = |words: &[&str]| {
        let output = trace_command(words, folder);
        assert!(output.status.success(), "{words:?}: {}", errors(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let expected = made.calls("-D 1 --no-merge");
    assert_eq!(
        shown(&["replay", "--opt-file", "options", "-d", "."]),
        expected
    );
    assert_eq!(
        shown(&["replay", "-d", ".", "--opt-file=options"]),
        expected
    );
    // The command line's own option holds.
    assert_eq!(
        shown(&["replay", "--opt-file=options", "-D2", "-d", "."]),
        made.calls("-D 2 --no-merge")
    );
    file("whole", "replay\n-d . -f 'none'");
    assert_eq!(shown(&["--opt-file=whole", "-D", "1"]), made.calls("-D 1"));
    let missing = trace_command(&["replay", "--opt-file=nothing"], folder);
    assert_eq!(missing.status.code(), Some(2));
    assert!(errors(&missing).contains("--opt-file nothing: "));
}

#[test]
fn the_traced_command_comes_from_a_file_or_the_command_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("options");
    std::fs::write(&file, "record -q --no-sched sh -c 'exit 3'").expect("a file");
    let file = file.to_str().expect("a path");
    let status = |words: &[&str]| trace_command(words, folder.path()).status.code();
    assert_eq!(status(&["--opt-file", file]), Some(3));
    assert_eq!(
        status(&["record", "--opt-file", file, "sh", "-c", "exit 4"]),
        Some(4)
    );
    // Words behind the command belong to the command.
    assert_eq!(
        status(&["record", "-q", "sh", "-c", "exit 5", "--opt-file=nothing"]),
        Some(5)
    );
}

#[test]
fn commands_that_there_are_not_say_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = dioptra("recv", folder.path(), "-S x.py");
    assert_eq!(output.status.code(), Some(2));
    let expected = "there is no `dioptra trace recv`";
    assert!(errors(&output).contains(expected), "{}", errors(&output));
}

#[test]
fn tasks_are_drawn_as_a_tree() {
    let made = trace(&[
        (7, script("main( a )", 1_000, 1_000)),
        (8, script("t", 2_000, 1_000)),
        (9, script("c", 3_000, 1_000)),
        (10, script("c", 4_000, 1_000)),
        (11, script("c", 5_000, 1_000)),
    ]);
    // Processes 9 and 11 are forked by 7, and 10 is by 9.
    let path = made.folder().join("journal.jsonl");
    let mut journal = std::fs::read_to_string(&path).expect("the journal");
    for (stream, pid, parent) in [(3, 9, 1), (4, 10, 3), (5, 11, 1)] {
        let before = format!(
            "\"stream\":{stream},\"pid\":7,\"tid\":{pid},\"name\":\"program\",\"parent\":0"
        );
        assert!(journal.contains(&before));
        let after = format!(
            "\"stream\":{stream},\"pid\":{pid},\"tid\":{pid},\"name\":\"\",\"parent\":{parent}"
        );
        journal = journal.replace(&before, &after);
    }
    std::fs::write(path, journal).expect("the journal");
    let expected = "\
========== TASK GRAPH ==========
program
 +-program
 |    
 +----program
 |     |    
 |     +----program
 |    
 +----program

";
    assert_eq!(made.shown("graph", "--task -f none"), expected);
}
