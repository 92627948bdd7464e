//! Followers of frame pointers see through the tracer: the program itself, kernels for call chains, and reports of
//! those.

use super::debuggers::attach;
use super::{calls, dioptra, text};
use dioptra_testprograms::{self as programs, Language, Program, Skip, or_skip};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Ways to make functions traceable, and the options that tracing them takes.
const METHODS: [(&[&str], &[&str]); 4] = [
    (&[], &["-P", "."]),
    (&["-fpatchable-function-entry=5"], &[]),
    (&["-pg", "-mfentry"], &[]),
    (&["-pg"], &[]),
];

fn chains(compiler: &str, level: &str, flags: &[&str]) -> Result<PathBuf, Skip> {
    Program::new(Language::Cpp, "trace-chains")
        .no_flags()
        .compiler(compiler)
        .flags([
            level,
            "-g",
            "-pthread",
            "-fno-omit-frame-pointer",
            "-mno-omit-leaf-frame-pointer",
        ])
        .flags(flags.iter().copied())
        .build()
}

#[test]
fn frame_pointers_lead_through_thunks() {
    for compiler in ["g++", "clang++"] {
        for level in ["-O0", "-O2"] {
            for (flags, options) in METHODS {
                let program = or_skip!(chains(compiler, level, flags));
                let program = program.to_str().unwrap();
                let what = format!("{compiler} {level} {flags:?}");
                let folder = tempfile::tempdir().unwrap();
                let plain = Command::new(program).output().unwrap();
                let record = [&["record", "--no-sched"], options, &[program]].concat();
                let traced = dioptra(&record, folder.path());
                assert_eq!(text(&traced.stdout), text(&plain.stdout), "{what}");
                let shown = dioptra(&["report", "--format", "csv"], folder.path());
                let counted = calls(&text(&shown.stdout));
                let shows = text(&plain.stdout).lines().count() as u64;
                assert!(shows > 50, "{what}");
                assert_eq!(counted.get("show"), Some(&shows), "{what}: {counted:?}");
            }
        }
    }
}

const OWN: [&str; 5] = ["work", "one", "other", "work_rounds", "main"];

/// Weights of stacks, the innermost function first.
type Stacks = BTreeMap<Vec<String>, u64>;

/// Returns the stacks of samples in `work`, as perf shows them: functions of the program only.
fn by_perf(file: &Path) -> Result<Stacks, Skip> {
    let perf = programs::need_tool("perf")?;
    let shown = Command::new(perf)
        .args(["script", "-F", "ip,sym", "-i"])
        .arg(file)
        .output()
        .unwrap();
    let mut stacks = Stacks::new();
    for sample in text(&shown.stdout).split("\n\n") {
        let names = sample
            .lines()
            .filter_map(|line| line.split_whitespace().nth(1));
        let own = names.filter(|name| OWN.contains(name));
        let stack: Vec<String> = own.map(str::to_owned).collect();
        if stack.first().is_some_and(|leaf| leaf == "work") {
            *stacks.entry(stack).or_default() += 1;
        }
    }
    Ok(stacks)
}

/// Returns the stacks of samples in `work`, as our report shows them, with all functions; and whether the report has a
/// fact.
fn by_us(file: &Path, fact: &str) -> (Stacks, bool) {
    let shown = Command::new(env!("CARGO_BIN_EXE_dioptra"))
        .args(["report", "--tree", "callees", "--percent-limit", "0"])
        .args(["--no-inline", "--format", "json", "-i"])
        .arg(file)
        .output()
        .unwrap();
    let json: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let columns = json["columns"].as_array().unwrap();
    let place = |id: &str| {
        columns
            .iter()
            .position(|column| column["id"] == id)
            .unwrap()
    };
    let (function, weight) = (place("function"), place("weight"));
    let mut paths: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut stacks = Stacks::new();
    for row in json["rows"].as_array().unwrap() {
        let name = row["cells"][function].as_str().unwrap().to_owned();
        let callers = row["parent"].as_u64().map(|parent| paths[&parent].clone());
        let path = [vec![name], callers.unwrap_or_default()].concat();
        let own = row["cells"][weight].as_u64().unwrap();
        if path[0] == "work" && own > 0 {
            *stacks.entry(path.clone()).or_default() += own;
        }
        paths.insert(row["id"].as_u64().unwrap(), path);
    }
    (stacks, !json["facts"][fact].is_null())
}

/// Returns the stacks without the rare ones: a sample or two may be taken where a frame begins or ends.
fn ordinary(stacks: &Stacks) -> BTreeSet<Vec<String>> {
    let all: u64 = stacks.values().sum();
    let ordinary = stacks.iter().filter(|(_, weight)| **weight * 20 > all);
    ordinary.map(|(stack, _)| stack.clone()).collect()
}

#[test]
fn call_chains_of_traced_programs_are_those_of_others() {
    or_skip!(programs::need_sampling());
    let us = env!("CARGO_BIN_EXE_dioptra");
    let expected: BTreeSet<Vec<String>> = ["one", "other other other"]
        .iter()
        .flat_map(|callers| {
            [
                format!("work {callers} work_rounds"),
                format!("work {callers} work_rounds main"),
            ]
        })
        .map(|stack| stack.split(' ').map(str::to_owned).collect())
        .collect();
    for (flags, options) in METHODS {
        let program = or_skip!(chains("g++", "-O1", flags));
        let program = program.to_str().unwrap();
        let tracing = [us, "trace", "record", "--no-sched", "--no-libcall"];
        let traced = [&tracing, options, &[program, "3000"]].concat();
        let alone = vec![program, "3000"];
        let recording = |command: &[&str]| {
            let options = ["-F", "499", "-e", "cpu-clock:u", "-g"];
            programs::perf_record(&options, command)
        };
        let (perfs, perfs_traced) = (or_skip!(recording(&alone)), or_skip!(recording(&traced)));
        for recorded in [&perfs, &perfs_traced] {
            let stacks = or_skip!(by_perf(&recorded.file));
            assert_eq!(ordinary(&stacks), expected, "{flags:?}: {stacks:?}");
        }
        let ours = |command: &[&str]| {
            let folder = tempfile::tempdir().unwrap();
            let recorded = Command::new(us)
                .args(["record", "-q", "-F", "499", "-e", "cpu-clock:u", "-g", "--"])
                .args(command)
                .current_dir(folder.path())
                .output()
                .unwrap();
            assert!(recorded.status.success(), "{}", text(&recorded.stderr));
            folder
        };
        let (ours, ours_traced) = (ours(&alone), ours(&traced));
        for (alone, traced) in [
            (perfs.file.clone(), perfs_traced.file.clone()),
            (
                ours.path().join("perf.data"),
                ours_traced.path().join("perf.data"),
            ),
        ] {
            let (alone, is_told) = by_us(&alone, "through_tracer");
            assert!(!is_told);
            let (traced, is_told) = by_us(&traced, "through_tracer");
            assert!(is_told);
            assert_eq!(ordinary(&traced), ordinary(&alone), "{flags:?}: {traced:?}");
            assert_eq!(ordinary(&alone).len(), expected.len(), "{alone:?}");
        }
    }
}

/// A script of gdb that steps through a call of `caller` and looks at all frames after each step. The script prints the
/// number of steps in frames below `caller`, and the mistakes.
const STEPS: &str = r#"
import gdb
gdb.execute("set var go = 1")
gdb.execute("break caller")
gdb.execute("continue")
gdb.execute("delete")
pointer, steps, wrong = None, 0, set()
while True:
    frame, names, found = gdb.newest_frame(), [], None
    while frame is not None and len(names) < 20:
        names.append(frame.name())
        if frame.name() == "caller" and found is None:
            found = frame
        frame = frame.older()
    if found is not None and found.level() > 0:
        value = int(found.read_register("rbp"))
        pointer = value if pointer is None else pointer
        steps += 1
        if value != pointer:
            wrong.add("the frame pointer below " + str(names))
    elif names[0] == "main":
        break
    if "main" not in names:
        wrong.add("no main in " + str(names))
    gdb.execute("stepi", to_string=True)
print("steps", steps, "wrong", len(wrong), wrong)
gdb.execute("kill")
"#;

#[test]
fn every_instruction_of_a_traced_call_has_its_callers() {
    or_skip!(programs::need_tool("gdb"));
    // With the system's clock the hooks leave all to the runtime.
    let by_runtime: (&[&str], &[&str]) = (&[], &["-P", ".", "--clock", "mono"]);
    // The rules count calls, and leave some out.
    let sampled: [(&[&str], &[&str]); 2] = [
        (&[], &["-P", ".", "-T", ".@sample=3"]),
        (
            &["-fpatchable-function-entry=5"],
            &["-F", "caller", "-F", "called@sample=2"],
        ),
    ];
    for (flags, options) in METHODS.iter().copied().chain([by_runtime]).chain(sampled) {
        for frame in ["-fomit-frame-pointer", "-fno-omit-frame-pointer"] {
            if flags.contains(&"-pg") && frame == "-fomit-frame-pointer" {
                // The compiler does not have this combination of flags.
                continue;
            }
            let program = or_skip!(
                Program::new(Language::C, "trace-steps")
                    .no_flags()
                    .flags(["-O2", "-g", frame])
                    .flags(flags.iter().copied())
                    .build()
            );
            let folder = tempfile::tempdir().unwrap();
            let script = folder.path().join("steps.py");
            std::fs::write(&script, STEPS).unwrap();
            let script = ["-x", script.to_str().unwrap()];
            let seen = attach(options, &program, &script, folder.path(), libc::SIGKILL);
            let Some(seen) = seen else {
                return;
            };
            let told = seen.lines().find_map(|line| line.strip_prefix("steps "));
            let told = told.unwrap_or_else(|| panic!("{flags:?} {frame}: {seen}"));
            let (steps, wrong) = told.split_once(" wrong ").unwrap();
            assert!(
                steps.parse::<u32>().unwrap() > 200,
                "{flags:?} {frame}: {told}"
            );
            assert!(wrong.starts_with("0 "), "{flags:?} {frame}: {told}");
        }
    }
}
