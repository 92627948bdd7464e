//! Every test program builds, and prints what its header comment says is known by construction.

use std::path::Path;
use std::process::{Command, Output};

use dioptra_testprograms::{Language, Program, c, cpp, need_tool, or_skip, rust, shared_library};

fn run(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}

/// The words of the program's output.
fn words(program: &Path, arguments: &[&str]) -> Vec<String> {
    let output = run(program, arguments);
    assert!(
        output.status.success(),
        "{program:?} {arguments:?}: {output:?}"
    );
    String::from_utf8(output.stdout)
        .unwrap()
        .split_whitespace()
        .map(String::from)
        .collect()
}

#[test]
fn checksums_depend_on_the_arguments_only() {
    for (program, arguments) in [
        (or_skip!(c("shares", &[])), &["2"][..]),
        (or_skip!(c("inline", &[])), &["2"]),
        (or_skip!(c("threads", &[])), &["3", "1"]),
        (or_skip!(rust("threaded", &[])), &["3", "1"]),
    ] {
        let first = words(&program, arguments);
        assert_eq!(words(&program, arguments), first, "{program:?}");
    }
}

#[test]
fn shares_runs_the_same_iterations_however_it_is_compiled() {
    let plain = or_skip!(c("shares", &[]));
    let fast = or_skip!(c("shares", &["-O2", "-fomit-frame-pointer"]));
    assert_ne!(plain, fast);
    assert_eq!(words(&plain, &["1"]), words(&fast, &["1"]));
}

#[test]
fn shares_keeps_three_functions_with_clang() {
    let plain = or_skip!(c("shares", &[]));
    let clang = or_skip!(
        Program::new(Language::C, "shares")
            .compiler("clang")
            .flags(["-O2"])
            .build()
    );
    assert_eq!(words(&plain, &["1"]), words(&clang, &["1"]));
    let nm = or_skip!(need_tool("nm"));
    let output = Command::new(nm).arg(&clang).output().unwrap();
    let listing = String::from_utf8(output.stdout).unwrap();
    let mut addresses: Vec<_> = ["sixty", "thirty", "ten"]
        .iter()
        .map(|name| {
            listing
                .lines()
                .find(|l| l.ends_with(&format!(" T {name}")))
                .unwrap()
                .split(' ')
                .next()
        })
        .collect();
    addresses.dedup();
    assert_eq!(addresses.len(), 3, "folded into one: {listing}");
}

#[test]
fn forks_counts_its_children() {
    let forks = or_skip!(c("forks", &[]));
    let sum: u32 = (0..50).map(|i| i % 7).sum();
    assert_eq!(
        words(&forks, &["50", "1", "8"]),
        ["50".to_string(), sum.to_string()]
    );
}

#[test]
fn execs_goes_through_its_stages() {
    let execs = or_skip!(c("execs", &[]));
    assert_eq!(words(&execs, &["4", "1"]), ["1", "2", "3", "4", "done"]);
}

#[test]
fn dlopen_works_in_both_libraries() {
    let dlopen = or_skip!(c("dlopen", &[]));
    let first = or_skip!(shared_library(
        "plugin",
        "first",
        &["-DPLUGIN_WORK=first_work"]
    ));
    let second = or_skip!(shared_library(
        "plugin",
        "second",
        &["-DPLUGIN_WORK=second_work"]
    ));
    assert_eq!(first.file_name().unwrap(), "libfirst.so");
    let arguments = [
        first.to_str().unwrap(),
        "first_work",
        second.to_str().unwrap(),
        "second_work",
        "1",
    ];
    let printed = words(&dlopen, &arguments);
    assert_eq!(printed.len(), 2, "{printed:?}");
}

#[test]
fn recursion_counts_its_calls() {
    let recursion = or_skip!(c("recursion", &[]));
    // Twice the 21st Fibonacci number 10946, less one; even(7), odd(6), even(5) … odd(0).
    assert_eq!(
        words(&recursion, &["7", "30", "20"]),
        ["210", "30", "21891", "4", "4"]
    );
    assert_eq!(
        words(&recursion, &["8", "1", "1"]),
        ["8", "1", "1", "5", "4"]
    );
}

#[test]
fn exceptions_are_counted() {
    let exceptions = or_skip!(cpp("exceptions", &[]));
    assert_eq!(
        words(&exceptions, &["2", "101", "5"]),
        ["100", "102", "1010"]
    );
}

#[test]
fn faults_are_exact() {
    let faults = or_skip!(c("faults", &[]));
    assert_eq!(words(&faults, &["500", "3"]), ["1500", "0"]);
}

#[test]
fn windows_faults_and_calls_as_often_as_it_says() {
    let windows = or_skip!(c("windows", &[]));
    assert_eq!(words(&windows, &["3", "2", "100"]), ["600", "0", "1200"]);
}

#[test]
fn manythreads_starts_them_all() {
    let many = or_skip!(c("manythreads", &[]));
    let printed = words(&many, &["100", "4", "1"]);
    assert_eq!(printed[0], "100");
    assert_eq!(words(&many, &["100", "100", "1"])[..2], printed[..2]);
    assert_eq!(words(&many, &["3", "8", "1"])[0], "3");
}

#[test]
fn livethreads_obeys() {
    use std::io::{BufRead, BufReader, Write};
    use std::process::Stdio;

    let live = or_skip!(c("livethreads", &[]));
    let mut child = Command::new(live)
        .args(["20", "sleep"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut requests = child.stdin.take().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(answers.next().unwrap().unwrap(), "ready");
    let threads = std::fs::read_dir(format!("/proc/{}/task", child.id()))
        .unwrap()
        .count();
    assert_eq!(threads, 21);
    writeln!(requests, "create 5").unwrap();
    assert!(answers.next().unwrap().unwrap().starts_with("created 5 "));
    drop(requests);
    assert!(child.wait().unwrap().success());
}

#[test]
fn spin_leaves_with_its_status() {
    let spin = or_skip!(c("spin", &[]));
    assert_eq!(run(&spin, &["0.01", "7"]).status.code(), Some(7));
}

#[test]
fn functions_keep_their_symbols() {
    let nm = or_skip!(need_tool("nm"));
    for (program, symbols) in [
        (
            or_skip!(c("shares", &[])),
            &["sixty", "thirty", "ten", "rounds", "main"][..],
        ),
        (or_skip!(c("inline", &[])), &["outer"]),
        (
            or_skip!(c("recursion", &[])),
            &["descend", "bottom", "fib", "even", "odd"],
        ),
        (
            or_skip!(cpp("exceptions", &[])),
            &["_ZN7ThrowerIiE7descendEil", "_ZN5guard5GuardD1Ev"],
        ),
    ] {
        let output = Command::new(&nm).arg(&program).output().unwrap();
        let listing = String::from_utf8(output.stdout).unwrap();
        for symbol in symbols {
            assert!(
                listing
                    .lines()
                    .any(|l| l.split(' ').next_back() == Some(symbol)),
                "{symbol} in {program:?}"
            );
        }
        for inlined in ["mixer", "shaker", "step"] {
            assert!(
                !listing
                    .lines()
                    .any(|l| l.split(' ').next_back() == Some(inlined)),
                "{inlined}"
            );
        }
    }
}

#[test]
fn one_build_serves_all_who_ask_at_once() {
    // A flag of this process alone, so that the build is a new one.
    let flag = format!("-DUNIQUE={}", std::process::id());
    let paths = std::thread::scope(|scope| {
        let builds: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| c("spin", &[&flag])))
            .collect();
        builds
            .into_iter()
            .map(|b| b.join().unwrap())
            .collect::<Vec<_>>()
    });
    let mut built = Vec::new();
    for path in paths {
        built.push(or_skip!(path));
    }
    assert!(built.iter().all(|p| *p == built[0]));
    let folder = built[0].parent().unwrap();
    assert_eq!(
        std::fs::read_dir(folder).unwrap().count(),
        1,
        "leftovers in {folder:?}"
    );
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_missing_compiler_is_a_skip() {
    let skip = Program::new(Language::C, "spin")
        .compiler("no-such-compiler")
        .build()
        .unwrap_err();
    assert_eq!(
        skip.to_string(),
        "the compiler no-such-compiler is not installed"
    );
}

#[test]
fn a_source_that_does_not_compile_is_a_failure() {
    or_skip!(need_tool("gcc"));
    let program = Program::new(Language::C, "spin").flags(["-include", "/no/such/file"]);
    let message = std::panic::catch_unwind(|| program.build()).unwrap_err();
    assert!(
        message
            .downcast_ref::<String>()
            .unwrap()
            .contains("/no/such/file")
    );
}
