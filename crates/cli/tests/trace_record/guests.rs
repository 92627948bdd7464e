//! Programs that bring something of their own along that a tracer can be in the way of: sanitizers, system call filters, tasks
//! that share memory, unwinders. They do what they do without it, and are traced, or it is said why not.

use super::plain::calls;
use super::text;
use dioptra_testprograms::{Language, Program, Skip, or_skip};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs a command that is ended if it hangs.
fn run(words: &[&str], folder: &Path) -> Output {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "100"]).args(words);
    let output = command.current_dir(folder).output().unwrap();
    assert_ne!(
        output.status.code(),
        Some(124),
        "{words:?} hangs: {}",
        text(&output.stderr)
    );
    output
}

/// Records a command with these options.
fn record(options: &[&str], words: &[&str], folder: &Path) -> Output {
    let dioptra = [
        env!("CARGO_BIN_EXE_dioptra"),
        "trace",
        "record",
        "--no-sched",
    ];
    run(&[&dioptra, options, words].concat(), folder)
}

fn built(language: Language, name: &str, compiler: &str, flags: &[&str]) -> Result<PathBuf, Skip> {
    Program::new(language, name)
        .no_flags()
        .compiler(compiler)
        .flags(flags.iter().copied())
        .build()
}

#[test]
fn sanitizers_work_in_traced_programs() {
    for (compiler, flags) in [
        ("gcc", &["-fsanitize=address"][..]),
        ("gcc", &["-fsanitize=address", "-static-libasan"]),
        ("gcc", &["-fsanitize=thread"]),
        ("gcc", &["-fsanitize=undefined", "-static-libubsan"]),
        ("gcc", &["-fsanitize=leak"]),
        ("clang", &["-fsanitize=address"]),
        (
            "clang",
            &[
                "-fsanitize=address",
                "-fsanitize-address-use-after-return=always",
            ],
        ),
        ("clang", &["-fsanitize=thread"]),
        ("clang", &["-fsanitize=undefined"]),
        ("clang", &["-fsanitize=memory"]),
        ("clang", &["-fsanitize=leak"]),
    ] {
        let all = [&["-O1", "-g"], flags].concat();
        let program = or_skip!(built(Language::C, "trace-sanitized", compiler, &all));
        let program = program.to_str().unwrap();
        let finds_leaks = flags
            .iter()
            .any(|flag| flag.ends_with("address") || flag.ends_with("leak"));
        let libraries = compiler == "gcc" && flags.len() == 1;
        for (argument, patterns) in [
            ("", &["-P", "."][..]),
            ("", &["-P", ".", "-P", ".@lib"]),
            ("leak", &["-P", "."]),
        ] {
            if patterns.len() > 2 && !libraries || !argument.is_empty() && !finds_leaks {
                continue;
            }
            let words = [program, argument];
            let words = &words[..1 + usize::from(!argument.is_empty())];
            let folder = tempfile::tempdir().unwrap();
            let plain = run(words, folder.path());
            let recorded = record(patterns, words, folder.path());
            let told = text(&recorded.stderr);
            assert_eq!(
                recorded.status.code(),
                plain.status.code(),
                "{compiler} {flags:?} {argument}: {told}"
            );
            assert_eq!(text(&recorded.stdout), text(&plain.stdout), "{told}");
            let found = calls(folder.path());
            // ThreadSanitizer makes functions look at their return addresses.
            if plain.status.code() == Some(0) && !flags.contains(&"-fsanitize=thread") {
                let counts = ["work", "leaf"].map(|name| found.get(name).copied());
                assert_eq!(counts, [Some(1), Some(100)], "{compiler} {flags:?}: {told}");
            }
            let own = found.keys().find(|name| name.starts_with("__asan"));
            assert_eq!(own, None, "{compiler} {flags:?}");
        }
    }
}

#[test]
fn a_sanitizer_that_insists_on_being_first_is_told_not_to() {
    let program = or_skip!(built(
        Language::C,
        "trace-sanitized",
        "gcc",
        &["-O1", "-g", "-fsanitize=address"]
    ));
    let program = program.to_str().unwrap();
    // Whatever options the program that executes it gives it, or none.
    for (script, output) in [
        ("\"$0\"; true", "684\n"),
        // The sanitizer ends the program before its output is written.
        ("ASAN_OPTIONS=exitcode=7 \"$0\" leak; test $? = 7", ""),
        ("env -i \"$0\"; true", "684\n"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let words = ["sh", "-c", script, program];
        let recorded = record(&["-P", "."], &words, folder.path());
        let told = text(&recorded.stderr);
        assert!(recorded.status.success(), "{script}: {told}");
        assert_eq!(text(&recorded.stdout), output, "{script}: {told}");
        assert_eq!(
            calls(folder.path()).get("leaf"),
            Some(&100),
            "{script}: {told}"
        );
    }
}

#[test]
fn a_sanitizer_without_symbols_is_left_alone() {
    let flags = ["-O1", "-s", "-fsanitize=address"];
    let program = or_skip!(built(Language::C, "trace-sanitized", "clang", &flags));
    let folder = tempfile::tempdir().unwrap();
    let recorded = record(&["-P", "."], &[program.to_str().unwrap()], folder.path());
    let told = text(&recorded.stderr);
    assert_eq!(text(&recorded.stdout), "684\n", "{told}");
    assert!(
        told.contains("without symbols its functions look like others"),
        "{told}"
    );
}
