//! Programs with parts that a tracer can disturb: sanitizers, system call filters, tasks that share memory, unwinders.
//! They run as they do without the tracer. They are traced, or a note gives the reason why not.

use super::debuggers::attach;
use super::plain::calls;
use super::text;
use dioptra_testprograms::{self as programs, Language, Program, Skip, or_skip};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs a command, and ends it if it hangs.
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

/// Returns a skip unless a compiler has a library of its own.
fn need_library(compiler: &str, file: &str) -> Result<(), Skip> {
    programs::need_tool(compiler)?;
    let asked = Command::new(compiler)
        .arg(format!("-print-file-name={file}"))
        .output();
    let found = asked.map(|asked| text(&asked.stdout)).unwrap_or_default();
    match Path::new(found.trim()).is_absolute() {
        true => Ok(()),
        false => Err(Skip::new(format!("{compiler} has no {file}"))),
    }
}

/// Returns a skip unless a compiler has its sanitizers.
fn need_sanitizers(compiler: &str) -> Result<(), Skip> {
    need_library(
        compiler,
        match compiler {
            "clang" => "libclang_rt.asan-x86_64.a",
            _ => "libasan.so",
        },
    )
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
        or_skip!(need_sanitizers(compiler));
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
    or_skip!(need_sanitizers("gcc"));
    let program = or_skip!(built(
        Language::C,
        "trace-sanitized",
        "gcc",
        &["-O1", "-g", "-fsanitize=address"]
    ));
    let program = program.to_str().unwrap();
    // The program that executes this one may set the sanitizer's options, or clear the environment.
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
    or_skip!(need_sanitizers("clang"));
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

/// The compilers' flags with which the tracer finds a program's calls in different ways.
const WAYS: [&[&str]; 4] = [
    &["-O1", "-g", "-pthread"],
    &["-O1", "-g", "-pthread", "-pg", "-mfentry"],
    &["-O1", "-g", "-pthread", "-pg"],
    &["-O1", "-g", "-pthread", "-finstrument-functions"],
];

#[test]
fn programs_forbid_themselves_system_calls() {
    for flags in WAYS {
        let program = or_skip!(built(Language::C, "trace-confined", "gcc", flags));
        let program = program.to_str().unwrap();
        for how in [
            "none", "deny", "probe", "strict", "prctl", "seccomp", "tsync",
        ] {
            let folder = tempfile::tempdir().unwrap();
            let recorded = record(&["--no-libcall", "-P", "."], &[program, how], folder.path());
            let told = text(&recorded.stderr);
            assert!(recorded.status.success(), "{flags:?} {how}: {told}");
            let output = text(&recorded.stdout);
            assert_eq!(output, format!("{how} 620\n"), "{flags:?} {how}: {told}");
            let leaves = calls(folder.path())["leaf"];
            let is_confined = ["strict", "prctl", "seccomp", "tsync"].contains(&how);
            let is_told = told.contains(
                "recorded up to where it forbade itself system calls (seccomp) that the tracer needs",
            );
            assert_eq!(is_told, is_confined, "{flags:?} {how}: {told}");
            let before = match how {
                // The other thread's calls are recorded until its memory for records is full.
                "tsync" => leaves >= 1000,
                _ if is_confined => leaves == 1000,
                _ => leaves == 203_000,
            };
            assert!(before, "{flags:?} {how}: {leaves}, {told}");
        }
    }
}

#[test]
fn programs_that_begin_under_a_filter_are_traced_if_it_is_known_to_be_harmless() {
    let program = or_skip!(built(Language::C, "trace-confined", "gcc", WAYS[0]));
    let program = program.to_str().unwrap();
    for (how, leaves) in [("deny", 406_000), ("unseen", 203_000)] {
        let folder = tempfile::tempdir().unwrap();
        let words = [program, how, program];
        let recorded = record(&["--no-libcall", "-P", "."], &words, folder.path());
        let told = text(&recorded.stderr);
        assert!(recorded.status.success(), "{how}: {told}");
        let output = text(&recorded.stdout);
        assert_eq!(output, format!("{how} 620\nnone 620\n"), "{how}: {told}");
        let is_told = told.contains("it began under a system call filter (seccomp)");
        assert_eq!(is_told, how == "unseen", "{told}");
        assert_eq!(calls(folder.path())["leaf"], leaves, "{how}: {told}");
    }
}

#[test]
fn tasks_that_share_their_creators_memory_are_not_recorded() {
    for flags in WAYS {
        let program = or_skip!(built(Language::C, "trace-sharing", "gcc", flags));
        let program = program.to_str().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let words = [program, "20"];
        let recorded = record(&["--no-libcall", "-P", "."], &words, folder.path());
        let told = text(&recorded.stderr);
        assert!(recorded.status.success(), "{flags:?}: {told}");
        assert_eq!(text(&recorded.stdout), "20\n", "{flags:?}: {told}");
        let said = "recorded without a thread, from where that made a task that shares its thread-local memory";
        assert!(told.contains(said), "{flags:?}: {told}");
        // Other threads are recorded.
        let found = calls(folder.path());
        assert_eq!(found["leaf"], 2000, "{flags:?}: {told}");
        assert_eq!(
            [found["apart"], found["round_of"]],
            [2, 1],
            "{flags:?}: {told}"
        );
        assert_eq!(found.get("branch"), None, "{flags:?}: {told}");
    }
}

#[test]
fn errors_pass_through_traced_functions_of_luajit() {
    or_skip!(programs::need_tool("luajit"));
    let script = programs::repository_root().join("tests/programs/trace-errors.lua");
    let script = script.to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    for interpreted in [false, true] {
        let words = ["luajit", if interpreted { "-joff" } else { "-jon" }, script];
        let plain = run(&words, folder.path());
        assert!(plain.status.success(), "{}", text(&plain.stderr));
        for options in [
            &["-P", ".", "-P", ".@lib"][..],
            &["-l"],
            &["--no-libcall", "-P", ".", "-P", ".@libluajit"],
        ] {
            let folder = tempfile::tempdir().unwrap();
            let recorded = record(options, &words, folder.path());
            let told = text(&recorded.stderr);
            assert!(recorded.status.success(), "{options:?}: {told}");
            assert_eq!(
                text(&recorded.stdout),
                text(&plain.stdout),
                "{options:?}: {told}"
            );
            // The counts are calls of errors in loops, of comparisons, of functions that call back, and of look-ups.
            let counted: u64 = calls(folder.path()).values().sum();
            assert!(counted > 10_000, "{options:?}: {told}");
        }
    }
}

#[test]
fn programs_of_other_kinds_run_untraced_and_that_is_said() {
    for (compiler, flags, said) in [
        ("gcc", &["-O1", "-static"][..], "it is linked statically"),
        ("gcc", &["-O1", "-static-pie"], "it is linked statically"),
        ("musl-gcc", &["-O1"], "it is for another C library (musl)"),
    ] {
        let program = or_skip!(built(Language::C, "trace-sanitized", compiler, flags));
        let program = program.to_str().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let recorded = record(&[], &[program], folder.path());
        let told = text(&recorded.stderr);
        assert!(recorded.status.success(), "{compiler} {flags:?}: {told}");
        assert_eq!(text(&recorded.stdout), "684\n", "{told}");
        assert!(told.contains(said), "{compiler} {flags:?}: {told}");
        // The same holds for a program that a traced one executes; the traced one has been recorded.
        let words = ["sh", "-c", "\"$0\"; true", program];
        let recorded = record(&[], &words, folder.path());
        let told = text(&recorded.stderr);
        assert!(recorded.status.success(), "{compiler} {flags:?}: {told}");
        assert_eq!(text(&recorded.stdout), "684\n", "{told}");
        let said = format!("ran untraced: {said}");
        assert!(told.contains(&said), "{compiler} {flags:?}: {told}");
    }
}

#[test]
fn profilers_and_system_call_tracers_may_be_inside_and_outside() {
    let program = or_skip!(super::five(&["-pg", "-mfentry"]));
    let program = program.to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let dioptra = env!("CARGO_BIN_EXE_dioptra");
    let trace = [dioptra, "trace", "record", "--no-sched", "--no-libcall"];
    let trace = [&trace[..], &["-P", "^[abc]$"]].concat();
    let perf = [
        "perf",
        "record",
        "-q",
        "-g",
        "-e",
        "cpu-clock",
        "-o",
        "perf.data",
    ];
    let own = [dioptra, "record", "-g", "-e", "cpu-clock", "-o", "own.data"];
    let strace = ["strace", "-f", "-o", "/dev/null"];
    let has_sampling = programs::need_sampling();
    for (tool, other, samples) in [
        ("perf", &perf[..], true),
        ("strace", &strace, false),
        ("true", &own, true),
    ] {
        if samples && let Err(skip) = &has_sampling {
            skip.print();
            continue;
        }
        if let Err(skip) = programs::need_tool(tool) {
            skip.print();
            continue;
        }
        for words in [
            [other, &trace, &[program]].concat(),
            [&trace, other, &[program]].concat(),
        ] {
            let ran = run(&words, folder.path());
            let told = text(&ran.stderr);
            if told.contains("Operation not permitted") {
                programs::skip("a process may not be traced here");
                continue;
            }
            assert!(ran.status.success(), "{words:?}: {told}");
            let found = calls(folder.path());
            let counts = ["a", "b", "c"].map(|name| found.get(name).copied());
            assert_eq!(counts, [Some(5); 3], "{words:?}: {told}");
        }
    }
}

#[test]
fn exceptions_of_llvms_unwinder_pass_through_traced_functions() {
    or_skip!(need_library("clang", "libunwind.so"));
    let unwinders: [&[&str]; 2] = [
        &["-unwindlib=libunwind", "-rtlib=compiler-rt"],
        &[
            "-nostdlib++",
            "-unwindlib=none",
            "-rtlib=compiler-rt",
            "-Wl,--push-state,-Bstatic,-lstdc++,-lunwind,--pop-state",
            "-lm",
            "-ldl",
        ],
    ];
    for unwinder in unwinders {
        for flags in [
            &["-O2", "-g", "-pthread"][..],
            &["-O2", "-g", "-pthread", "-fpatchable-function-entry=5"],
            &["-O2", "-g", "-pthread", "-pg", "-mfentry"],
            &["-O2", "-g", "-pthread", "-pg"],
            &["-O2", "-g", "-pthread", "-finstrument-functions"],
        ] {
            let all = [flags, unwinder].concat();
            let program = or_skip!(built(Language::Cpp, "trace-hard", "clang++", &all));
            let folder = tempfile::tempdir().unwrap();
            let words = [program.to_str().unwrap(), "exceptions", "20"];
            let recorded = record(&["-P", "."], &words, folder.path());
            let told = text(&recorded.stderr);
            assert!(recorded.status.success(), "{unwinder:?} {flags:?}: {told}");
            // The program's own count of its calls is expected.
            let log = text(&recorded.stdout);
            let mut expected: BTreeMap<&str, u64> = BTreeMap::new();
            for name in log.lines().filter_map(|line| line.strip_prefix('+')) {
                *expected.entry(name).or_default() += 1;
            }
            assert!(expected.values().sum::<u64>() > 100, "{log}");
            let counted = calls(folder.path());
            for (name, count) in expected {
                let is_it = |full: &&String| full.split(['(', '<']).next() == Some(name);
                let found: u64 = counted.keys().filter(is_it).map(|name| counted[name]).sum();
                assert_eq!(found, count, "{name}, {unwinder:?} {flags:?}: {told}");
            }
        }
    }
}

#[test]
fn landing_pads_of_guarded_branches_stay_where_they_are() {
    // gdb reads the code of the running program.
    or_skip!(programs::need_tool("gdb"));
    for flags in [
        &["-O1", "-g"][..],
        &["-O1", "-g", "-pg", "-mfentry"],
        &["-O1", "-g", "-pg"],
        &["-O1", "-g", "-fpatchable-function-entry=5"],
    ] {
        let all = [flags, &["-fcf-protection=full"]].concat();
        let program = or_skip!(built(Language::C, "trace-waits", "gcc", &all));
        let functions = ["inner", "middle", "outer", "main"];
        let folder = tempfile::tempdir().unwrap();
        let shown: Vec<String> = functions
            .iter()
            .map(|name| format!("-ex=x/2i {name}"))
            .collect();
        let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
        let Some(seen) = attach(&["-P", "."], &program, &shown, folder.path(), libc::SIGKILL)
        else {
            return;
        };
        let starts = seen.lines().filter(|line| line.contains(">:\tendbr64"));
        assert_eq!(starts.count(), functions.len(), "{flags:?}: {seen}");
        // The jump behind the landing pad leads to the tracer.
        let jumps = seen.lines().filter(|line| line.contains(">:\tjmp "));
        assert!(jumps.count() > 1, "{flags:?}: {seen}");
    }
}
