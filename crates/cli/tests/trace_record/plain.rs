//! Programs and libraries that no compiler has prepared are patched as a whole: they behave as before, and calls are
//! counted as other tools count them.

use super::debuggers::attach;
use super::{dioptra, text};
use dioptra_testprograms::{self as programs, Language, Program, or_skip};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

/// All functions of the program and of all libraries but the C library, where the tracer leaves the functions alone.
const EVERYTHING: &[&str] = &["-P", ".", "-P", ".@lib", "-P", ".@_"];

const PYTHON: &str = "import json,re,threading,hashlib,decimal
print(json.dumps({str(i): i * i for i in range(50)}), hashlib.sha256(b'x').hexdigest(), decimal.Decimal(2).sqrt())
print(len(re.findall('a+b', 'aab' * 500)))
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
threads = [threading.Thread(target=fib, args=(12,)) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
try:
    1 / 0
except ZeroDivisionError as error:
    print(error)";

const SQL: &str = "create table t(a integer primary key, b text); create index i on t(b);
    with recursive c(x) as (select 1 union all select x + 1 from c where x < 1000) insert into t select x, hex(x * x) from c;
    select count(*), sum(length(b)), group_concat(distinct substr(b, 1, 2)) from t where b like '3%';
    select * from t a join t b on a.a = b.a + 1 where a.a < 10 order by b.b desc;";

#[test]
fn with_all_libraries_programs_do_what_they_did() {
    let program = |language, name, flags: &[&str]| {
        Program::new(language, name)
            .no_flags()
            .flags(flags.iter().copied())
            .build()
    };
    let hard = or_skip!(program(Language::Cpp, "trace-hard", &["-O2", "-pthread"]));
    let own_unwinder = ["-O2", "-pthread", "-static-libgcc", "-static-libstdc++"];
    let own_unwinder = or_skip!(program(Language::Cpp, "trace-hard", &own_unwinder));
    let parser = or_skip!(programs::rust("trace-parser", &["-Copt-level=3"]));
    let (hard, own_unwinder) = (hard.to_str().unwrap(), own_unwinder.to_str().unwrap());
    let mut commands: Vec<Vec<&str>> = vec![
        vec![hard, "exceptions", "20"],
        vec![hard, "threads", "10"],
        vec![hard, "coroutines", "10"],
        vec![own_unwinder, "exceptions", "20"],
        vec![parser.to_str().unwrap(), "50"],
    ];
    for command in [["python3", "-c", PYTHON], ["sqlite3", ":memory:", SQL]] {
        match programs::need_tool(command[0]) {
            Ok(_) => commands.push(command.to_vec()),
            Err(skip) => skip.print(),
        }
    }
    for command in commands {
        let plain = Command::new(command[0]).args(&command[1..]).output();
        let plain = plain.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let arguments = [&["record", "--no-sched"], EVERYTHING, &command].concat();
        let traced = dioptra(&arguments, folder.path());
        let told = text(&traced.stderr);
        assert_eq!(
            traced.status.code(),
            plain.status.code(),
            "{command:?}: {told}"
        );
        // Threads write their lines in any order.
        let is_any_order = command[1] == "threads";
        let lines = |output: &[u8]| {
            let mut lines: Vec<String> = text(output).lines().map(str::to_owned).collect();
            if is_any_order {
                lines.sort();
            }
            lines
        };
        assert_eq!(
            lines(&traced.stdout),
            lines(&plain.stdout),
            "{command:?}: {told}"
        );
        let counted: u64 = calls(folder.path()).values().sum();
        assert!(counted > 100, "{command:?}: {told}");
    }
}

#[test]
fn what_cannot_be_patched_is_refused_for_its_reason() {
    let program = or_skip!(
        Program::new(Language::C, "trace-odd")
            .no_flags()
            .flags(["-O2"])
            .build()
    );
    let folder = tempfile::tempdir().unwrap();
    let record = [
        "record",
        "--no-sched",
        "-P",
        ".",
        program.to_str().unwrap(),
        "7",
    ];
    let recorded = dioptra(&record, folder.path());
    let plain = Command::new(&program).arg("7").output().unwrap();
    assert_eq!(
        text(&plain.stdout).split(' ').take(2).collect::<Vec<_>>(),
        ["7", "7"]
    );
    let told = text(&recorded.stderr);
    assert_eq!(text(&recorded.stdout), text(&plain.stdout), "{told}");
    for reason in [
        "1 looks at its return address",
        "2 it loops to its first instruction",
        "1 something jumps into its first instructions",
        "4 uses the frame pointer in a way of its own",
        "no unwind table describes it",
    ] {
        assert!(told.contains(reason), "{reason}: {told}");
    }
    let found = calls(folder.path());
    let traced = [
        "asks",
        "asks_up",
        "names_itself",
        "ordinary",
        "enters",
        "gives",
        "keeps",
    ];
    for function in traced {
        assert_eq!(found.get(function), Some(&7), "{function}: {found:?}");
    }
    let refused = [
        "looks",
        "loops",
        "entered",
        "switches",
        "undescribed",
        "takes",
        "passes",
        "passes_on",
        "looks_up",
    ];
    for function in refused {
        assert_eq!(found.get(function), None, "{function}");
    }
}

#[test]
fn what_is_asked_for_and_left_alone_is_told() {
    let odd = or_skip!(
        Program::new(Language::C, "trace-odd")
            .no_flags()
            .flags(["-O2"])
            .build()
    );
    let odd = odd.to_str().unwrap();
    let left_alone = "libc.so.6 are not traced: the tracer itself uses them";
    for (pattern, said, not_said) in [
        (
            "loop.",
            "-P loop. matches only functions that cannot be patched: loops (it loops to its first instruction)",
            "matches no",
        ),
        (".@libc.", left_alone, "matches no"),
        ("malloc@libc.", left_alone, "matches no"),
        ("nowhere", "-P nowhere matches no function", left_alone),
        (
            ".@libnowhere",
            "-P .@libnowhere matches nothing: no module's name begins with `libnowhere`",
            left_alone,
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let recorded = dioptra(&["record", "-P", pattern, odd], folder.path());
        let told = text(&recorded.stderr);
        assert!(told.contains(said), "{pattern}: {told}");
        assert!(!told.contains(not_said), "{pattern}: {told}");
    }
}

#[test]
fn functions_are_called_as_often_as_callgrind_says() {
    or_skip!(programs::need_tool("valgrind"));
    let parser = or_skip!(programs::rust("trace-parser", &["-Copt-level=3"]));
    let parser = parser.to_str().unwrap();
    let same = same_as_callgrind(&["-P", "."], &[parser, "60"], "trace-parser");
    for function in [
        "peek",
        "number",
        "factor",
        "product",
        "sum",
        "wrong",
        "write_text",
        "one_round",
    ] {
        assert!(same.contains_key(function), "{function}: {same:?}");
    }
    or_skip!(programs::need_tool("sqlite3"));
    let sqlite = ["sqlite3", ":memory:", SQL];
    let same = same_as_callgrind(&["-P", ".@libsqlite3"], &sqlite, "libsqlite3");
    assert!(same.len() > 20, "{same:?}");
}

#[test]
fn programs_that_the_tracer_does_not_get_into_say_why() {
    for flag in ["-static", "-static-pie"] {
        let program = or_skip!(
            Program::new(Language::C, "trace-odd")
                .no_flags()
                .flags(["-O2", flag])
                .build()
        );
        let folder = tempfile::tempdir().unwrap();
        let recorded = Command::new(env!("CARGO_BIN_EXE_dioptra"))
            .args(["trace", "record", "--no-sched", "-P", "."])
            .arg(program)
            .current_dir(folder.path())
            .output()
            .unwrap();
        let told = text(&recorded.stderr);
        assert!(told.contains("it is linked statically"), "{flag}: {told}");
    }
}

#[test]
fn debuggers_see_through_thunks() {
    or_skip!(programs::need_tool("gdb"));
    let waits = or_skip!(
        Program::new(Language::C, "trace-waits")
            .no_flags()
            .flags(["-O2", "-g"])
            .build()
    );
    let folder = tempfile::tempdir().unwrap();
    let backtrace = ["-ex", "backtrace"];
    let seen = attach(
        &["-P", "."],
        &waits,
        &backtrace,
        folder.path(),
        libc::SIGTERM,
    );
    let Some(seen) = seen else {
        return;
    };
    let is_own = |word: &&str| matches!(*word, "inner" | "middle" | "outer" | "main");
    let frames: Vec<&str> = seen
        .lines()
        .filter(|line| line.starts_with('#'))
        .flat_map(|line| line.split(' ').find(is_own))
        .collect();
    assert_eq!(frames, ["inner", "middle", "outer", "main"], "{seen}");
    assert_eq!(calls(folder.path()).get("inner"), Some(&1));
}

#[test]
fn profiles_of_traced_programs_say_where_callers_are_hidden() {
    or_skip!(programs::need_sampling());
    let program = or_skip!(Program::new(Language::C, "trace-parents").build());
    let program = program.to_str().unwrap();
    let run = |folder: &Path, arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_dioptra"))
            .args(arguments)
            .current_dir(folder)
            .output()
            .unwrap()
    };
    let tracing = [
        env!("CARGO_BIN_EXE_dioptra"),
        "trace",
        "record",
        "--no-sched",
        "-P",
        ".",
    ];
    for graph in ["fp", "dwarf"] {
        for traced in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let record = ["record", "-q", "-e", "cpu-clock:u", "--call-graph", graph];
            let tracing = if traced { &tracing[..] } else { &[] };
            let recorded = run(
                folder.path(),
                &[&record[..], &["--"], tracing, &[program]].concat(),
            );
            assert!(recorded.status.success(), "{}", text(&recorded.stderr));
            let json = ["report", "--children", "--format", "json"];
            let shown = run(folder.path(), &json).stdout;
            let report: serde_json::Value = serde_json::from_slice(&shown).unwrap();
            let told = run(folder.path(), &["report", "--children"]);
            let told = text(&told.stdout) + &text(&told.stderr);
            // Frame pointers lead to the callers; copies of the stack do not.
            for (fact, words, is_so) in [
                (
                    "traced_chains",
                    "end at the tracer's thunks",
                    traced && graph == "dwarf",
                ),
                (
                    "through_tracer",
                    "left out of their call chains",
                    traced && graph == "fp",
                ),
            ] {
                let count = &report["facts"][fact]["value"];
                let through = &report["facts"]["through_tracer"]["value"];
                // Samples taken in the tracer before there were callers have no callers.
                let few = through.as_u64().unwrap_or(0) / 20;
                let is_told = count.as_u64().is_some_and(|count| count > few);
                assert_eq!(is_told, is_so, "{graph} {fact} {count}: {told}");
                assert!(told.contains(words) || !is_so, "{told}");
            }
            // Whoever computes is known in any case.
            for function in ["inner", "middle"] {
                let is_known = told.lines().any(|line| line.ends_with(function));
                let is_hidden = traced && graph == "dwarf" && function == "middle";
                assert!(is_known || is_hidden, "{told}");
            }
        }
    }
}

/// Compares a recording's counts with callgrind's, in modules whose paths contain a word, for functions that both know.
/// Returns these functions.
fn same_as_callgrind(options: &[&str], command: &[&str], module: &str) -> BTreeMap<String, u64> {
    let folder = tempfile::tempdir().unwrap();
    let counted = folder.path().join("counted");
    let ran = callgrind(command, &counted);
    let expected = by_callgrind(&counted, module, None);
    let record = [&["record", "--no-sched", "--no-libcall"], options, command].concat();
    let recorded = dioptra(&record, folder.path());
    assert_eq!(text(&recorded.stdout), text(&ran.stdout));
    let found = calls(folder.path());
    let both = expected
        .into_iter()
        .filter(|(name, _)| found.contains_key(name));
    both.inspect(|(name, count)| assert_eq!(found.get(name), Some(count), "{name}"))
        .collect()
}

/// Runs a command under callgrind, which writes a file.
pub fn callgrind(command: &[&str], file: &Path) -> Output {
    Command::new("valgrind")
        .args([
            "--tool=callgrind",
            "--compress-strings=no",
            "--compress-pos=no",
        ])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .args(command)
        .output()
        .unwrap()
}

/// Returns the number of calls of each function of a module, by one module or by any, from callgrind's file (its
/// format: valgrind's manual).
pub fn by_callgrind(file: &Path, module: &str, by: Option<&str>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    let (mut here, mut called_module, mut called) = ("", None, "");
    let content = std::fs::read(file).unwrap();
    for line in text(&content).lines() {
        match line.split_once('=') {
            Some(("ob", object)) => here = object,
            Some(("cob", object)) => called_module = Some(object),
            Some(("cfn", function)) => called = function,
            Some(("calls", numbers)) => {
                let count = numbers
                    .split(' ')
                    .next()
                    .and_then(|word| word.parse::<u64>().ok());
                let is_by = by.is_none_or(|by| here.contains(by));
                if called_module.take().unwrap_or(here).contains(module) && is_by {
                    // Recursive calls may have numbers.
                    let name = called.split('\'').next().unwrap_or(called);
                    *counts.entry(name.to_owned()).or_default() += count.unwrap_or(0);
                }
            }
            _ => {}
        }
    }
    counts
}

/// Calls by function. Functions of one name are taken together.
pub fn calls(folder: &Path) -> BTreeMap<String, u64> {
    let shown = dioptra(&["report", "--format", "json"], folder);
    let report: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    let columns = report["columns"].as_array().unwrap();
    let place = |id: &str| {
        columns
            .iter()
            .position(|column| column["id"] == id)
            .unwrap()
    };
    let (function, calls) = (place("function"), place("calls"));
    let mut counts = BTreeMap::new();
    for row in report["rows"].as_array().unwrap() {
        let name = row["cells"][function].as_str().unwrap().to_owned();
        *counts.entry(name).or_default() += row["cells"][calls].as_u64().unwrap();
    }
    counts
}
