//! Profiles of samples.

use crate::{Function, dioptra, read};
use dioptra_testprograms::{self as programs, Language, Program, Recorded, Skip, or_skip};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

const FLAGS: [&str; 3] = ["-O2", "-g", "-fdebug-info-for-profiling"];

/// The path of a program's source.
fn source(name: &str) -> std::path::PathBuf {
    programs::repository_root()
        .join("tests/programs")
        .join(format!("{name}.c"))
}

/// Records a program that clang built.
fn recorded(name: &str) -> Result<Recorded, Skip> {
    programs::need_tool("llvm-profdata")?;
    programs::need_tool("clang")?;
    let program = Program::new(Language::C, name)
        .compiler("clang")
        .no_flags()
        .flags(FLAGS)
        .build()?;
    let options = ["-e", "cpu-clock", "-F", "1999"];
    programs::perf_record(&options, &[program.as_os_str(), "200".as_ref()])
}

/// Exports the samples of the program's own file.
fn exported(recorded: &Recorded, name: &str) -> (BTreeMap<String, Function>, String) {
    let folder = recorded.folder.path();
    let arguments = ["export", "--to", "autofdo", "--value", "samples", "--dso"];
    let (_, said) = dioptra(folder, &[&arguments[..], &[name]].concat());
    assert!(said.contains("wrote profile.afdo"), "{said}");
    (read(&folder.join("profile.afdo")), said)
}

/// The samples by line of the source as `dioptra report` counts them, and those without a line.
fn by_line(folder: &Path, arguments: &[&str]) -> (BTreeMap<u64, u64>, u64) {
    let arguments = [&["report", "--by", "line", "--format", "json"], arguments].concat();
    let (json, _) = dioptra(folder, &arguments);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let columns = json["columns"].as_array().expect("columns");
    let column = |id: &str| columns.iter().position(|column| column["id"] == id);
    let (samples, line) = (
        column("samples").expect("samples"),
        column("line").expect("line"),
    );
    let (mut lines, mut unknown) = (BTreeMap::new(), 0);
    for row in json["rows"].as_array().expect("rows") {
        let count = row["cells"][samples].as_u64().expect("a count");
        match row["cells"][line].as_u64() {
            Some(line) => *lines.entry(line).or_default() += count,
            None => unknown += count,
        }
    }
    (lines, unknown)
}

/// The number of the source's first line with this text.
fn line_with(name: &str, text: &str) -> u64 {
    let source = std::fs::read_to_string(source(name)).expect("the source");
    let line = source.lines().position(|line| line.contains(text));
    line.unwrap_or_else(|| panic!("no {text}")) as u64 + 1
}

#[test]
fn inlined_functions_lie_in_the_lines_of_their_calls() {
    let recorded = or_skip!(recorded("inline"));
    let (functions, _) = exported(&recorded, "inline");
    let mut counts = BTreeMap::new();
    for (name, function) in &functions {
        function.collect(&[name.as_str()], &mut counts);
    }
    // Lines count from the line of the declaration.
    let declared: BTreeMap<&str, u64> = [
        ("outer", "uint64_t outer("),
        ("mixer", "INLINED uint64_t mixer("),
        ("shaker", "INLINED uint64_t shaker("),
        ("step", "INLINED uint64_t step("),
        ("main", "int main("),
    ]
    .map(|(name, text)| (name, line_with("inline", text)))
    .into();
    let mut lines: BTreeMap<u64, u64> = BTreeMap::new();
    for ((path, offset), count) in &counts {
        let innermost = path.last().expect("a function").as_str();
        let offset = offset.split('.').next().expect("an offset");
        let line = declared[innermost] + offset.parse::<u64>().expect("a number");
        *lines.entry(line).or_default() += count;
    }
    let (expected, _) = by_line(recorded.folder.path(), &["--dso", "inline"]);
    assert_eq!(lines, expected);
    // The calls lie where the source has them.
    let outer = &functions["outer"];
    let call = |function: &Function, caller: &str, mark: &str, callee: &str| -> u64 {
        let offset = line_with("inline", mark) - declared[caller];
        function.inlined[&(offset.to_string(), callee.to_owned())].total
    };
    let mixer = call(outer, "outer", "/* MIXER */", "mixer");
    let shaker = call(outer, "outer", "/* SHAKER */", "shaker");
    let share = mixer as f64 / (mixer + shaker) as f64;
    assert!((0.68..0.82).contains(&share), "{mixer} and {shaker}");
    for ((_, name), function) in &outer.inlined {
        let steps = call(function, name, &format!("/* STEP in {name} */"), "step");
        assert!(steps * 10 > function.total * 8, "{function:?}");
    }
}

#[test]
fn clang_applies_every_count_to_its_line() {
    for name in ["inline", "shares"] {
        let recorded = or_skip!(recorded(name));
        let folder = recorded.folder.path();
        let (functions, _) = exported(&recorded, name);
        let output = Command::new("clang")
            .args(FLAGS)
            .args(["-fprofile-sample-use=profile.afdo", "-c", "-o", "again.o"])
            .arg("-Rpass-analysis=sample-profile-impl")
            .arg(source(name))
            .current_dir(folder)
            .output()
            .expect("clang runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        // "remark: Applied 12 samples from profile (offset: 2.1)"
        let mut applied: Vec<(String, u64)> = said
            .lines()
            .filter_map(|line| {
                let (_, rest) = line.split_once("remark: Applied ")?;
                let (count, rest) = rest.split_once(" samples from profile (offset: ")?;
                let (offset, _) = rest.split_once(')')?;
                Some((offset.to_owned(), count.parse().expect("a count")))
            })
            .collect();
        applied.sort();
        applied.dedup();
        let hot = match name {
            "inline" => &["outer"][..],
            _ => &["sixty", "thirty", "ten"][..],
        };
        let mut written = BTreeMap::new();
        for function in hot {
            functions[*function].collect(&[function], &mut written);
        }
        for ((path, offset), count) in written {
            // An instruction that few samples hit may not exist any more once the profile is used.
            if count > 50 {
                let found = applied.contains(&(offset.clone(), count));
                assert!(found, "{path:?} {offset}: {count}, but clang: {said}");
            }
        }
    }
}

#[test]
fn shares_are_those_of_the_program() {
    let recorded = or_skip!(recorded("shares"));
    let (functions, _) = exported(&recorded, "shares");
    let total: u64 = functions.values().map(|function| function.total).sum();
    for (name, share) in [("sixty", 0.6), ("thirty", 0.3), ("ten", 0.1)] {
        let function = &functions[name];
        let found = function.total as f64 / total as f64;
        assert!((found - share).abs() < 0.06, "{name}: {found}");
        // The loop's body is the third line after the declaration.
        let body = &function.lines["3"];
        assert!(body.count * 10 > function.total * 8, "{function:?}");
    }
}

#[test]
fn samples_without_a_line_are_counted() {
    let recorded = or_skip!(recorded("shares"));
    let folder = recorded.folder.path();
    // The program's lines are there; those of the kernel are not.
    let (_, said) = dioptra(folder, &["export", "--to", "autofdo", "--value", "samples"]);
    let functions = read(&folder.join("profile.afdo"));
    let written: u64 = functions.values().map(|function| function.total).sum();
    let (lines, unknown) = by_line(folder, &[]);
    let lost = said.split("; ").find_map(|part| {
        let part = part
            .trim()
            .strip_suffix(" without a function and a line in debug information")?;
        // One sample is none of several samples.
        let count = part
            .strip_suffix(" samples")
            .or(part.strip_suffix(" sample"))?;
        count.rsplit(' ').next()?.parse::<u64>().ok()
    });
    let lost = lost.unwrap_or(0);
    assert_eq!(written + lost, lines.values().sum::<u64>() + unknown);
    assert!(lost >= unknown, "{said}");
    let output = Command::new(env!("CARGO_BIN_EXE_dioptra"))
        .args(["export", "--to", "autofdo", "--no-inline"])
        .current_dir(folder)
        .output()
        .expect("dioptra runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--no-inline"));
}
