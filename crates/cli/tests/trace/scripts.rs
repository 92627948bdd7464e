//! `dioptra trace script`: Python scripts of uftrace's see the calls as uftrace shows them to scripts.

use crate::made::{Made, PROGRAM, Step, script, scripted, trace};
use dioptra_testprograms::{Skip, need_tool, or_skip};
use dioptra_tracedata::TaskChange;
use dioptra_tracelayout::SwitchKind;
use dioptra_tracelayout::record::UnwindCause;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A script that prints all that it sees.
const ALL: &str = "\
def show(what, ctx):
    print(what, sorted(ctx.items()))

def uftrace_entry(ctx):
    show('entry', ctx)

def uftrace_exit(ctx):
    show('exit', ctx)

def uftrace_event(ctx):
    show('event', ctx)

def uftrace_begin(ctx):
    print('begin', sorted(ctx), ctx['record'], ctx['cmds'])

def uftrace_end():
    print('end')
";

/// Runs a script on a trace.
fn run(made: &Made, text: &str, arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("hooks.py");
    fs::write(&path, text).expect("a script");
    Command::new(PROGRAM.expect("the program"))
        .args(["trace", "script", "-d"])
        .arg(made.folder())
        .arg("-S")
        .arg(&path)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("dioptra runs")
}

fn printed(made: &Made, text: &str, arguments: &[&str]) -> String {
    let output = run(made, text, arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).expect("text")
}

/// A trace with two threads, events, an exception, missing records and a call without an end.
fn many_things() -> Made {
    let mut first = script("main( a( b( c c ) b ) a( b ) ", 1_000_000, 1_000);
    first.extend(script("throws( throws( __cxa_throw(", 2_000_000, 500));
    first.push(Step::Unwound(2_100_000, UnwindCause::Exception, 3));
    first.push(Step::Lost(17));
    first.extend(script("c( c ) last(", 2_200_000, 100));
    let second = script("worker( wait fib( fib( fib ) fib ) )", 1_500_300, 10_000);
    trace(&[(7, first), (8, second)])
        .with_switches(&[
            (8, 1_512_000, SwitchKind::Wait),
            (8, 1_518_000, SwitchKind::In),
            (7, 1_002_100, SwitchKind::Preempted),
            (7, 1_002_900, SwitchKind::In),
        ])
        .with_tasks(&[(8, 1_533_000, TaskChange::Name("w \"ö\"".to_owned()))])
}

/// Runs a script on the exported directory of a trace under uftrace.
fn under_uftrace(made: &Made, text: &str, arguments: &[&str]) -> Result<String, Skip> {
    let folder = tempfile::tempdir().expect("a folder");
    let exported = Command::new(PROGRAM.expect("the program"))
        .args(["export", "--to", "uftrace", "-o", "data", "-d"])
        .arg(made.folder())
        .current_dir(folder.path())
        .output()
        .expect("dioptra runs");
    assert!(exported.status.success(), "{exported:?}");
    fs::write(folder.path().join("hooks.py"), text).expect("a script");
    let output = Command::new("uftrace")
        .args(["script", "-d", "data", "-S", "hooks.py"])
        .args(arguments)
        .current_dir(folder.path())
        .output()
        .expect("uftrace runs");
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("failed to init python scripting") {
        return Err(Skip::new(
            "uftrace finds no Python to load (apt-get install libpython3-dev)",
        ));
    }
    assert!(output.status.success(), "{output:?}");
    Ok(String::from_utf8(output.stdout).expect("text"))
}

#[test]
fn a_script_sees_what_it_sees_under_uftrace() {
    or_skip!(need_tool("uftrace"));
    let made = many_things();
    let only = |names: &str| format!("UFTRACE_FUNCS = {names}\n{ALL}");
    for (text, arguments) in [
        (ALL.to_owned(), &[][..]),
        (only("['a', '^fi', 'nothing']"), &[]),
        // uftrace shows events within calls that filters hide; dioptra hides them, as its replay does.
        (only("[]"), &["-N", "b", "--no-event"]),
        (ALL.to_owned(), &["-F", "a", "-D", "2", "--no-event"]),
        (ALL.to_owned(), &["--tid", "8", "--no-event"]),
    ] {
        let (ours, theirs) = (
            printed(&made, &text, arguments),
            or_skip!(under_uftrace(&made, &text, arguments)),
        );
        assert!(ours.lines().count() > 6, "{arguments:?}: {ours}");
        for (ours, theirs) in ours.lines().zip(theirs.lines()) {
            assert_eq!(ours, theirs, "{arguments:?}");
        }
        assert_eq!(
            ours.lines().count(),
            theirs.lines().count(),
            "{arguments:?}"
        );
    }
}

#[test]
fn words_are_the_scripts() {
    let made = scripted("main( a )");
    let text = "def uftrace_begin(ctx): print(ctx['cmds'], ctx['version'].split()[0])\n";
    let shown = printed(&made, text, &["--", "one", "-t", "two words"]);
    assert_eq!(shown, "('one', '-t', 'two words') dioptra\n");
    // A script without functions is a script.
    assert_eq!(printed(&made, "print('hello')\n", &[]), "hello\n");
}

#[test]
fn an_error_in_a_script_is_shown_as_python_shows_it() {
    let made = scripted("main( a )");
    for (text, error, line) in [
        (
            "def uftrace_entry(ctx):\n    return 1 // 0\n",
            "ZeroDivisionError",
            "line 2, in uftrace_entry",
        ),
        (
            "def uftrace_begin(ctx):\n    raise ValueError('x')\n",
            "ValueError: x",
            "line 2, in uftrace_begin",
        ),
        (
            "def uftrace_end():\n    ctx\n",
            "NameError",
            "line 2, in uftrace_end",
        ),
        (
            "import nothing_of_this_name\n",
            "ModuleNotFoundError",
            "line 1, in <module>",
        ),
        ("def broken(:\n", "SyntaxError", "line 1"),
    ] {
        let output = run(&made, text, &[]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(error) && said.contains(line), "{said}");
        assert!(
            said.contains("hooks.py") && !said.contains("<string>"),
            "{said}"
        );
    }
}

/// A trace whose calls do not fit into a pipe.
fn long() -> Made {
    let mut steps = Vec::new();
    for call in 0..30_000_u64 {
        steps.push(Step::Enter(1_000 + 10 * call, format!("f{}", call % 5)));
        steps.push(Step::Leave(1_005 + 10 * call));
    }
    trace(&[(7, steps)])
}

#[test]
fn a_script_may_end_at_any_time() {
    let made = long();
    for (text, status) in [
        ("import sys\ndef uftrace_entry(ctx): sys.exit(3)\n", 3),
        ("import sys\nsys.exit()\n", 0),
        ("import os\ndef uftrace_exit(ctx): os._exit(4)\n", 4),
        ("import os\nos._exit(5)\n", 5),
        (
            "import os, signal\ndef uftrace_entry(ctx): os.kill(os.getpid(), signal.SIGKILL)\n",
            1,
        ),
        // A process of the script's keeps the pipe, and reads nothing.
        (
            "import os, time\ndef uftrace_entry(ctx):\n    os.fork() or (os.close(1), os.close(2), time.sleep(3))\n    os._exit(6)\n",
            6,
        ),
    ] {
        let output = run(&made, text, &[]);
        assert_eq!(output.status.code(), Some(status), "{text}: {output:?}");
    }
}

#[test]
fn a_slow_script_sees_everything() {
    let made = long();
    let text = "\
import time
calls = {}
def uftrace_entry(ctx):
    calls[ctx['name']] = calls.get(ctx['name'], 0) + 1
    if sum(calls.values()) % 10000 == 0: time.sleep(0.2)
def uftrace_end():
    print(sorted(calls.items()))
";
    let each = ["f0", "f1", "f2", "f3", "f4"].map(|name| format!("('{name}', 6000)"));
    assert_eq!(
        printed(&made, text, &[]),
        format!("[{}]\n", each.join(", "))
    );
}

#[test]
fn output_that_nobody_reads_is_no_error() {
    let made = long();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("hooks.py");
    fs::write(&path, "def uftrace_entry(ctx): print(ctx['name'])\n").expect("a script");
    let command = format!(
        "'{}' trace script -d '{}' -S '{}' | head -n 1",
        PROGRAM.expect("the program"),
        made.folder().display(),
        path.display()
    );
    let output = Command::new("bash")
        .args(["-c", &command])
        .output()
        .expect("a shell");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "f0\n");
    assert!(
        !String::from_utf8_lossy(&output.stderr).contains("Traceback"),
        "{output:?}"
    );
}

#[test]
fn no_folder_of_compiled_scripts_is_left() {
    let made = scripted("main( a )");
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("other.py"), "word = 'imported'\n").expect("a module");
    let path = folder.path().join("hooks.py");
    fs::write(
        &path,
        "import other\ndef uftrace_end(): print(other.word)\n",
    )
    .expect("a script");
    let output = Command::new(PROGRAM.expect("the program"))
        .args(["trace", "script", "-S", "hooks.py", "-d"])
        .arg(made.folder())
        .current_dir(folder.path())
        .output()
        .expect("dioptra runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "imported\n");
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2);
}

#[test]
fn what_cannot_run_is_said() {
    let made = scripted("main( a )");
    let run = |script: &Path, arguments: &[&str]| {
        Command::new(PROGRAM.expect("the program"))
            .args(["trace", "script", "-d"])
            .arg(made.folder())
            .arg("-S")
            .arg(script)
            .args(arguments)
            .output()
            .expect("dioptra runs")
    };
    let folder = tempfile::tempdir().expect("a folder");
    let lua = folder.path().join("hooks.lua");
    fs::write(&lua, "-- nothing").expect("a script");
    let python = folder.path().join("hooks.py");
    fs::write(&python, "").expect("a script");
    for (script, arguments, status, word) in [
        (&lua, &[][..], 2, "Lua"),
        (&folder.path().join("missing.py"), &[], 1, "missing.py"),
        (&python, &["--python", "no-such-python"], 1, "--python"),
        (&python, &["--record"], 2, "--record"),
        (&python, &["-F", "a@sampel=1"], 2, "sampel"),
    ] {
        let output = run(script, arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{said}");
        assert!(said.contains(word), "{said}");
    }
}
