//! Calls of library functions that bypass the procedure linkage table: the tracer finds them at their callers.

use super::plain::{by_callgrind, callgrind, calls};
use super::{dioptra, text};
use dioptra_testprograms::{self as programs, Language, Program, Skip, or_skip};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

const ROUNDS: u64 = 9;

/// The functions that `trace-imports` calls, each with its number of calls.
const CALLS: &[(&str, u64)] = &[
    ("rand_r", ROUNDS),
    ("strtoul", ROUNDS),
    ("getppid", ROUNDS + 1),
    ("qsort", 3 * ROUNDS),
    ("longjmp", ROUNDS),
    ("__cxa_allocate_exception", 2 * ROUNDS),
    ("__cxa_throw", 2 * ROUNDS),
    ("__cxa_begin_catch", 2 * ROUNDS),
    ("__cxa_end_catch", 2 * ROUNDS),
    ("getpgrp", 2 * ROUNDS),
    ("printf", 1),
    // The program's own functions, beside the imported ones.
    ("early", ROUNDS + 1),
    ("throws", 2 * ROUNDS),
    ("is_same", ROUNDS),
];

fn imports(compiler: &str, flags: &[&str]) -> Result<PathBuf, Skip> {
    programs::need_tool(compiler)?;
    Program::new(Language::Cpp, "trace-imports")
        .no_flags()
        .compiler(compiler)
        .flags(["-fno-plt"])
        .flags(flags.iter().copied())
        .build()
}

/// Returns the functions some of whose calls the tracer cannot see, from its message.
fn through_registers(told: &str) -> Vec<String> {
    let Some((before, _)) = told.split_once(") go through registers") else {
        return Vec::new();
    };
    let names = before.rsplit_once(": ").map_or("", |(_, names)| names);
    names.split(", ").map(str::to_owned).collect()
}

/// Calls functions that return twice or look at their caller.
const SPECIAL: &str = r#"#define _GNU_SOURCE
#include <dlfcn.h>
#include <setjmp.h>
#include <stdio.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
static jmp_buf env;
static ucontext_t ctx;
__attribute__((noinline)) int twice(void) {
  volatile int n = 0;
  if (_setjmp(env) == 0) { n++; longjmp(env, 1); }
  return n + 1;
}
__attribute__((noinline)) int context(void) {
  volatile int n = 0;
  getcontext(&ctx);
  if (n++ == 0) setcontext(&ctx);
  return n;
}
__attribute__((noinline)) int child(void) {
  int status;
  pid_t pid = vfork();
  if (pid == 0) _exit(3);
  waitpid(pid, &status, 0);
  return WEXITSTATUS(status);
}
__attribute__((noinline)) int linked(void) {
  void *self = dlopen(0, RTLD_NOW);
  void *found = dlsym(self, "getppid");
  return found && dlsym(RTLD_NEXT, "getppid") == found;
}
int main(void) {
  int a = twice(), b = context(), c = child(), d = linked();
  printf("%d %d %d %d\n", a, b, c, d);
  return 0;
}
"#;

const SPECIAL_CALLS: &str = "main() {
  twice() {
    _setjmp();
    longjmp(); /* jumped out of */
  } /* twice */
  context() {
    getcontext();
  } /* context */
  child() {
    vfork();
    _exit(); /* jumped out of */
    waitpid();
  } /* child */
  linked() {
    dlopen();
    dlsym();
    dlsym();
  } /* linked */
  printf();
} /* main */
";

#[test]
fn calls_that_return_twice_or_look_at_their_caller_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("special.c");
    std::fs::write(&source, SPECIAL).unwrap();
    for flags in [
        &["-O1", "-pg", "-mfentry"][..],
        &["-O0"],
        &["-O1", "-fno-plt", "-fpatchable-function-entry=5"],
        &["-O1", "-finstrument-functions"],
    ] {
        let program = Program::from_source(Language::C, &source).no_flags();
        let program = or_skip!(program.flags(flags.iter().copied()).flags(["-ldl"]).build());
        let program = program.to_str().unwrap();
        let live = |options: &[&str]| {
            let all = [
                options,
                &["--no-sched", "--no-event", "-f", "none", program],
            ]
            .concat();
            let live = dioptra(&all, folder.path());
            assert!(live.status.success(), "{flags:?}: {}", text(&live.stderr));
            let (said, shown) = (text(&live.stdout), String::new());
            said.lines().fold(shown, |shown, line| match line {
                "2 2 3 1" => shown,
                line => shown + line + "\n",
            })
        };
        // Also nothing that ends the program is shown (`__cxa_finalize`).
        let shown = live(&[]);
        let begin = shown.find("main() {").unwrap_or_default();
        assert_eq!(&shown[begin..], SPECIAL_CALLS, "{flags:?}");
        assert_eq!(live(&["-F", "dlsym"]), "dlsym();\ndlsym();\n", "{flags:?}");
        let without = live(&["-F", "main", "-N", "dlsym", "-N", "child"]);
        assert!(
            !without.contains("dlsym") && !without.contains("vfork"),
            "{without}"
        );
        assert!(without.contains("    dlopen();\n"), "{without}");
        let levels = live(&["-F", "main", "-D", "2"]);
        assert!(
            !levels.contains("vfork") && levels.contains("child();"),
            "{levels}"
        );
        // Library functions are as large as an entry of the linkage table: 16 bytes.
        assert!(live(&["-Z", "16"]).contains("dlopen"), "{flags:?}");
        let large = live(&["-Z", "17"]);
        assert!(
            !large.contains("dlopen") && !large.contains("printf"),
            "{large}"
        );
        assert!(large.contains("linked();"), "{large}");
        assert_eq!(live(&["--max-stack", "2"]), live(&["-D", "2"]));
    }
}

#[test]
fn calls_through_the_linkers_pointers_are_counted() {
    for compiler in ["g++", "clang++"] {
        for flags in [
            &["-O0"][..],
            &["-O1"],
            &["-O2"],
            &["-O3"],
            &["-O2", "-no-pie"],
            &["-O2", "-Wl,-z,lazy"],
            &["-O2", "-fcf-protection=full"],
            &["-O2", "-pg", "-mfentry"],
            &["-O1", "-pg"],
            &["-O2", "-fpatchable-function-entry=5"],
        ] {
            let program = or_skip!(imports(compiler, flags));
            let program = program.to_str().unwrap();
            let rounds = ROUNDS.to_string();
            let plain = Command::new(program).arg(&rounds).output().unwrap();
            let folder = tempfile::tempdir().unwrap();
            let recorded = dioptra(&["record", "--no-sched", program, &rounds], folder.path());
            let told = text(&recorded.stderr);
            assert!(recorded.status.success(), "{compiler} {flags:?}: {told}");
            assert_eq!(
                text(&recorded.stdout),
                text(&plain.stdout),
                "{compiler} {flags:?}: {told}"
            );
            assert!(told.contains(" got"), "{compiler} {flags:?}: {told}");
            let found = calls(folder.path());
            assert_eq!(through_registers(&told), [""; 0], "{compiler} {flags:?}");
            for (function, count) in CALLS {
                assert_eq!(
                    found.get(*function),
                    Some(count),
                    "{compiler} {flags:?} {function}: {found:?} {told}"
                );
            }
        }
    }
}

#[test]
fn they_are_chosen_as_other_library_calls() {
    let program = or_skip!(imports("g++", &["-O2"]));
    let program = program.to_str().unwrap();
    let rounds = ROUNDS.to_string();
    let record = |options: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let record = [&["record", "--no-sched"], options, &[program, &rounds]].concat();
        let recorded = dioptra(&record, folder.path());
        assert!(recorded.status.success(), "{}", text(&recorded.stderr));
        folder
    };
    let found = |options: &[&str]| calls(record(options).path());
    let without = found(&["--no-libcall"]);
    assert_eq!(without.get("early"), Some(&(ROUNDS + 1)), "{without:?}");
    assert!(!without.contains_key("rand_r"), "{without:?}");
    let only = found(&["-F", "rand_r"]);
    let expected = BTreeMap::from([("rand_r".to_owned(), ROUNDS)]);
    assert_eq!(only, expected);
    let but = found(&["-N", "rand_r"]);
    assert!(!but.contains_key("rand_r"), "{but:?}");
    assert_eq!(but.get("strtoul"), Some(&ROUNDS), "{but:?}");
    let sampled = record(&["-F", "rand_r@sample=3"]);
    let shown = dioptra(&["replay", "-f", "none"], sampled.path());
    assert_eq!(text(&shown.stdout), "rand_r();\n".repeat(3));
}

#[test]
fn a_rust_program_calls_the_c_library_as_often_as_callgrind_says() {
    or_skip!(programs::need_tool("valgrind"));
    let parser = or_skip!(programs::rust("trace-parser", &["-Copt-level=3"]));
    let command = [parser.to_str().unwrap(), "40"];
    let folder = tempfile::tempdir().unwrap();
    let counted = folder.path().join("counted");
    let ran = callgrind(&command, &counted);
    let expected = by_callgrind(&counted, "libc.so", Some("trace-parser"));
    let recorded = dioptra(
        &[&["record", "--no-sched"][..], &command].concat(),
        folder.path(),
    );
    let told = text(&recorded.stderr);
    assert_eq!(text(&recorded.stdout), text(&ran.stdout), "{told}");
    let found = calls(folder.path());
    let unseen = through_registers(&told);
    let mut same = Vec::new();
    for (name, count) in expected {
        if unseen.contains(&name) {
            continue;
        }
        if let Some(found) = found.get(&name) {
            assert_eq!(*found, count, "{name}: {told}");
            same.push(name);
        }
    }
    for function in ["malloc", "free", "realloc", "write"] {
        assert!(
            same.iter().any(|name| name == function),
            "{function}: {same:?} {told}"
        );
    }
}
