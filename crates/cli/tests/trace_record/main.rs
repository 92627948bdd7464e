//! `dioptra trace record` and `dioptra trace COMMAND`, from compiled programs to the commands' output.

#![cfg(all(target_arch = "x86_64", target_env = "gnu"))]

mod attach;
mod chains;
mod debuggers;
mod guests;
mod imports;
mod names;
mod orphans;
mod places;
mod plain;
mod real;
mod sampling;
mod scheduling;
mod starts;
mod stopped;
mod together;
mod untraced;
mod values;
mod written;

use dioptra_testprograms::{self as programs, Language, Program, Skip, or_skip};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const DIOPTRA: &str = env!("CARGO_BIN_EXE_dioptra");

/// Ways to make functions traceable.
const METHODS: [&[&str]; 4] = [
    &["-pg", "-mfentry"],
    &["-fpatchable-function-entry=5"],
    &[],
    &["-finstrument-functions"],
];

fn five(flags: &[&str]) -> Result<PathBuf, Skip> {
    Program::new(Language::C, "trace-five")
        .no_flags()
        .flags(["-O1", "-g"])
        .flags(flags.iter().copied())
        .build()
}

fn dioptra(arguments: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dioptra"))
        .arg("trace")
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const WHOLE: &str =
    "a() {\n  b() {\n    c() {\n      getpid();\n    } /* c */\n  } /* b */\n} /* a */\n";
const BELOW: &str = "b() {\n  c() {\n    getpid();\n  } /* c */\n} /* b */\n";

/// Returns a text with the indentation of calls in `main`.
fn in_main(text: &str) -> String {
    let lines: String = text.lines().map(|line| format!("  {line}\n")).collect();
    format!("main() {{\n{lines}}} /* main */\n")
}

#[test]
fn sampled_executions_are_those_that_their_inventor_described() {
    let examples = [
        ("-F a@sample=2", WHOLE.repeat(2)),
        ("-F main -F a@sample=2", in_main(&WHOLE.repeat(2))),
        (
            "-F main -T a@sample=2",
            in_main(&[BELOW, WHOLE, BELOW, WHOLE, BELOW].concat()),
        ),
        (
            "-F a@sample=2 -F c@sample=2",
            format!("a() {{\n  b();\n}} /* a */\n{WHOLE}"),
        ),
        ("-F main -F a@sample=1", in_main(&WHOLE.repeat(5))),
    ];
    for flags in METHODS {
        let program = or_skip!(five(flags));
        let program = program.to_str().unwrap();
        for (rules, expected) in &examples {
            let rules: Vec<&str> = rules.split(' ').collect();
            let folder = tempfile::tempdir().unwrap();
            let record = [&["record", "--no-sched"], &rules[..], &[program]].concat();
            let recorded = dioptra(&record, folder.path());
            assert!(recorded.status.success(), "{}", text(&recorded.stderr));
            let shown = dioptra(&["replay", "-f", "none"], folder.path());
            assert_eq!(&text(&shown.stdout), expected, "{flags:?} {rules:?}");
            let live = [&rules[..], &["--no-sched", "-f", "none", program]].concat();
            let live = dioptra(&live, folder.path());
            assert_eq!(&text(&live.stdout), expected, "{flags:?} {rules:?}, live");
        }
    }
}

#[test]
fn a_level_of_rules_hides_what_it_hides() {
    let program = or_skip!(five(METHODS[0]));
    let program = program.to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    for (rules, expected) in [
        ("-F a -D 2", "a() {\n  b();\n} /* a */\n".repeat(5)),
        ("-F main -N a", "main();\n".to_owned()),
        ("-F b -N c", "b();\n".repeat(5)),
        (
            "-F a -U b",
            "a() {\n  c() {\n    getpid();\n  } /* c */\n} /* a */\n".repeat(5),
        ),
        (
            "-P ^[bc]$ --no-libcall",
            "b() {\n  c();\n} /* b */\n".repeat(5),
        ),
        ("-F main -t 1h", String::new()),
        ("--trace=off", String::new()),
        (
            "--disable -F main -T a@trace_on -T c@trace_off",
            "a() {\n  b();\n} /* a */\n".repeat(5),
        ),
    ] {
        let rules: Vec<&str> = rules.split(' ').collect();
        let live = dioptra(
            &[&rules[..], &["--no-sched", "-f", "none", program]].concat(),
            folder.path(),
        );
        assert_eq!(text(&live.stdout), expected, "{rules:?}");
    }
}

#[test]
fn live_shows_as_replay_does() {
    let program = or_skip!(five(METHODS[0]));
    let program = program.to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let live = |options: &str| {
        let options: Vec<&str> = options.split(' ').collect();
        dioptra(&[&options[..], &[program]].concat(), folder.path())
    };
    let shown = live("-F b --no-sched -f none --no-merge --no-comment -D 2");
    assert_eq!(text(&shown.stdout), "b() {\n  c() {\n  }\n}\n".repeat(5));
    let flat = live("-F c --no-sched --flat -D 1");
    assert!(
        text(&flat.stdout).starts_with("\n[0] ==> "),
        "{}",
        text(&flat.stdout)
    );
    // A wrong argument is refused before the program runs.
    let wrong = live("-f speed");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(wrong.stdout.is_empty(), "{}", text(&wrong.stdout));
    assert!(text(&wrong.stderr).contains("there is no field `speed`"));
}

#[test]
fn what_matches_nothing_is_told_with_the_nearest_names() {
    let program = or_skip!(
        Program::new(Language::C, "trace-trees")
            .no_flags()
            .flags(["-O1", "-g", "-pthread"])
            .build()
    );
    let folder = tempfile::tempdir().unwrap();
    let program = program.to_str().unwrap();
    let recorded = dioptra(
        &[
            "record",
            "-q",
            "-N",
            "round_off",
            "-P",
            "rooot",
            "-P",
            "f1",
            program,
            "1",
            "1",
        ],
        folder.path(),
    );
    let told = text(&recorded.stderr);
    assert!(
        told.contains("-N round_off matches no function; the nearest names are round_of"),
        "{told}"
    );
    assert!(
        told.contains("-P rooot matches no function; the nearest names are root"),
        "{told}"
    );
    let wrong = dioptra(&["record", "-P", "f1@sample=2", program], folder.path());
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("takes FUNCTION or FUNCTION@MODULE"));
}

#[test]
fn programs_as_they_are_are_traced_and_that_is_said() {
    let program = or_skip!(five(METHODS[2]));
    let folder = tempfile::tempdir().unwrap();
    let recorded = dioptra(&["record", program.to_str().unwrap()], folder.path());
    let told = text(&recorded.stderr);
    assert!(
        told.contains("is not instrumented: its functions are patched in memory, as with -P .")
    );
    assert!(told.contains(" calls of "), "{told}");
    assert!(told.contains("functions patched: "), "{told}");
}

#[test]
fn the_exit_status_is_the_commands() {
    let program = or_skip!(five(METHODS[1]));
    let program = program.to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let status = |arguments: &[&str]| dioptra(arguments, folder.path()).status.code();
    assert_eq!(status(&["record", program]), Some(0));
    assert_eq!(status(&["record", program, "x", "y", "z"]), Some(3));
    assert_eq!(status(&[program, "--option"]), Some(1));
    assert_eq!(
        status(&["record", "-q", "sh", "-c", "kill -TERM $$"]),
        Some(128 + 15)
    );
    assert_eq!(status(&["live", "./is-not-there"]), Some(127));
    assert_eq!(status(&["record", "/etc/passwd"]), Some(126));
    assert_eq!(status(&["record", "-D", "0", program]), Some(2));
    assert_eq!(
        status(&["record", "-d", "/dev/null/trace", program]),
        Some(125)
    );
}

#[test]
fn options_before_the_command_are_ours_and_those_behind_it_are_not() {
    let program = or_skip!(five(METHODS[1]));
    let program = program.to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str]| {
        let output = dioptra(arguments, folder.path());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        text(&output.stderr)
    };
    assert!(refused(&["record", "-o", "t.trace", program]).contains("record -d DIR"));
    assert!(refused(&["record", "--wrong", program]).contains("--wrong"));
    assert!(refused(&["-x", program]).contains("-x"));
    for (arguments, said) in [
        (
            &["record", "-k"][..],
            "functions of the kernel are not traced",
        ),
        (&["record", "-W", "cpu"], "are not watched yet"),
        (&["record", "-S", "a.py"], "trace script -S"),
    ] {
        let told = refused(&[arguments, &[program]].concat());
        assert!(told.contains(said), "{arguments:?}: {told}");
        assert!(!told.contains("-- -"), "{arguments:?}: {told}");
    }
    let recorded = dioptra(
        &["record", "-d", "t.trace", program, "-o", "1", "2"],
        folder.path(),
    );
    assert_eq!(recorded.status.code(), Some(3), "{recorded:?}");
    for input in ["-d", "-i", "--input"] {
        let shown = dioptra(&["report", input, "t.trace"], folder.path());
        assert!(text(&shown.stdout).contains("main"), "{shown:?}");
    }
}

#[test]
fn functions_are_called_as_often_as_gcov_says() {
    or_skip!(programs::need_tool("gcov"));
    or_skip!(programs::need_tool("gcc"));
    let build = |name: &str, flags: &[&str]| {
        Program::new(Language::C, name)
            .no_flags()
            .flags(["-O1", "-g", "-pthread"])
            .flags(flags.iter().copied())
            .build()
    };
    let arguments = ["7", "300", "3"];
    let folder = tempfile::tempdir().unwrap();
    let source = programs::repository_root().join("tests/programs/trace-trees.c");
    let built = Command::new("gcc")
        .args(["--coverage", "-O1", "-pthread", "-o", "counted"])
        .arg(source)
        .current_dir(folder.path())
        .status();
    assert!(built.unwrap().success());
    let ran = Command::new(folder.path().join("counted"))
        .args(arguments)
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(ran.status.success());
    let expected = by_gcov(folder.path());
    assert!(expected.values().sum::<u64>() > 10_000, "{expected:?}");
    for flags in METHODS {
        let program = or_skip!(build("trace-trees", flags));
        let command = [&["record", "-q", program.to_str().unwrap()], &arguments[..]].concat();
        let recorded = dioptra(&command, folder.path());
        assert_eq!(recorded.stdout, ran.stdout);
        let shown = dioptra(&["report", "--format", "csv"], folder.path());
        let found = calls(&text(&shown.stdout));
        for (function, count) in &expected {
            assert_eq!(
                found.get(function),
                Some(count),
                "{flags:?} {function}: {found:?}"
            );
        }
    }
}

/// Returns the numbers of executions of functions, by name.
fn by_gcov(folder: &Path) -> BTreeMap<String, u64> {
    let is_data = |path: &PathBuf| path.extension().is_some_and(|word| word == "gcda");
    let mut files = std::fs::read_dir(folder).unwrap().flatten();
    let data = files.find_map(|file| Some(file.path()).filter(is_data));
    let output = Command::new("gcov")
        .args(["--json-format", "--stdout"])
        .arg(data.unwrap())
        .current_dir(folder)
        .output()
        .unwrap();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let functions = json["files"][0]["functions"].as_array().unwrap();
    functions
        .iter()
        .map(|function| {
            let name = function["name"].as_str().unwrap().to_owned();
            (name, function["execution_count"].as_u64().unwrap())
        })
        .collect()
}

/// Returns calls by function, from a report.
fn calls(csv: &str) -> BTreeMap<String, u64> {
    let mut lines = csv.lines();
    let columns: Vec<&str> = lines.next().unwrap().split(',').collect();
    let place = |name: &str| columns.iter().position(|column| *column == name).unwrap();
    let (calls, function) = (place("calls"), place("function"));
    lines
        .map(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            (cells[function].to_owned(), cells[calls].parse().unwrap())
        })
        .collect()
}
