//! Inlined functions, checked with llvm-symbolizer: addr2line of binutils gives inlined functions that have no name for
//! linkers, such as lambdas, the name of the function that contains them.

use crate::table::{array, string};
use crate::{Recorded, Recorder, record};
use dioptra_testprograms::{self as programs, Language, Program, or_skip};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Returns the rows of a table by column.
fn rows(recorded: &Recorded, arguments: &[&str]) -> Vec<BTreeMap<String, String>> {
    let json = recorded.recording.ours_json(arguments);
    let ids: Vec<String> = array(&json["columns"])
        .iter()
        .map(|column| string(&column["id"]))
        .collect();
    array(&json["rows"])
        .iter()
        .map(|row| {
            let cells = array(&row["cells"]).iter().map(|cell| match cell {
                serde_json::Value::String(text) => text.clone(),
                serde_json::Value::Null => String::new(),
                other => other.to_string(),
            });
            let mut cells: BTreeMap<String, String> = ids.iter().cloned().zip(cells).collect();
            cells.insert("id".to_owned(), row["id"].to_string());
            cells.insert("parent".to_owned(), row["parent"].to_string());
            // The exact sums stand beside the percentage.
            let total = &row["ratios"]["total_percent"][0];
            cells.insert("total".to_owned(), total.to_string());
            cells
        })
        .collect()
}

fn weight(row: &BTreeMap<String, String>) -> u64 {
    row["weight"].parse().expect("a weight")
}

/// Returns a function that turns offsets in a file into the addresses that binutils want.
fn addresses(path: &Path) -> impl Fn(u64) -> u64 {
    let output = Command::new("readelf").arg("-lW").arg(path).output();
    let text = String::from_utf8(output.expect("readelf runs").stdout).expect("text");
    let hex = |field: &str| u64::from_str_radix(field.trim_start_matches("0x"), 16).expect("hex");
    let segments: Vec<[u64; 3]> = text
        .lines()
        .filter(|line| line.contains("LOAD") && line.contains(" R E "))
        .map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            [hex(fields[1]), hex(fields[2]), hex(fields[4])]
        })
        .collect();
    move |offset| {
        let mut segments = segments.iter();
        let found = segments.find(|[start, _, size]| (*start..start + size).contains(&offset));
        let [start, address, _] = found.expect("a segment");
        offset - start + address
    }
}

/// Returns the functions at an address of a file, innermost first.
fn llvms(path: &Path, address: u64) -> Vec<String> {
    let output = Command::new("llvm-symbolizer")
        .args(["--inlines", "--functions=linkage", "--no-demangle"])
        .args(["--output-style=GNU", "--obj"])
        .arg(path)
        .arg(format!("{address:#x}"))
        .output()
        .expect("addr2line runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let lines = text.lines().filter(|line| !line.is_empty());
    lines.step_by(2).map(str::to_owned).collect()
}

#[test]
fn self_counts_go_to_llvms_innermost_function() {
    or_skip!(programs::need_tool("llvm-symbolizer"));
    or_skip!(programs::need_tool("readelf"));
    let rust = Program::new(Language::Rust, "inlines").flags(["-Copt-level=3"]);
    let builds = [
        ("gcc", Program::new(Language::C, "inline")),
        (
            "clang",
            Program::new(Language::C, "inline").compiler("clang"),
        ),
        ("g++", Program::new(Language::Cpp, "inlines").flags(["-O2"])),
        (
            "clang++",
            Program::new(Language::Cpp, "inlines")
                .compiler("clang++")
                .flags(["-O2"]),
        ),
        ("rustc", rust),
    ];
    for (compiler, program) in builds {
        let path = match program.build() {
            Ok(path) => path,
            Err(skip) => {
                skip.print();
                continue;
            }
        };
        let recorded = or_skip!(record(Recorder::Perf, &["-F", "2000"], &[path.as_os_str()]));
        let module = path.file_name().expect("a name").to_string_lossy();
        let of_program = |row: &BTreeMap<String, String>| row["module"] == module;
        let address_of = addresses(&path);
        let mut expected: BTreeMap<(bool, String), u64> = BTreeMap::new();
        for row in rows(&recorded, &["--by", "address"])
            .iter()
            .filter(|row| of_program(row))
        {
            let offset = u64::from_str_radix(row["address"].trim_start_matches("0x"), 16);
            let chain = llvms(&path, address_of(offset.expect("an address")));
            let is_inlined = chain.len() > 1;
            let name = if is_inlined {
                &chain[0]
            } else {
                &row["function"]
            };
            *expected.entry((is_inlined, name.clone())).or_default() += weight(row);
        }
        let mut found: BTreeMap<(bool, String), u64> = BTreeMap::new();
        for row in rows(&recorded, &["--inline"])
            .iter()
            .filter(|row| of_program(row) && weight(row) > 0)
        {
            let key = (row["inlined"] == "inlined", row["function"].clone());
            *found.entry(key).or_default() += weight(row);
        }
        let inlined: u64 = found
            .iter()
            .filter(|((is_inlined, _), _)| *is_inlined)
            .map(|(_, weight)| weight)
            .sum();
        assert!(inlined > 0, "{compiler}: {found:?}");
        assert_eq!(found, expected, "{compiler}");
    }
}

/// A function that contains inlined code has the same total as without inlining. The containers of inlined callers are
/// found at the call, not behind it.
#[test]
fn totals_of_other_functions_stay() {
    for (name, language) in [("inline", Language::C), ("inlines", Language::Cpp)] {
        let program = Program::new(language, name).flags(["-O2"]);
        let path = or_skip!(program.build());
        for options in [
            &["-F", "2000", "-g"][..],
            &["-F", "500", "--call-graph", "dwarf,4096"],
        ] {
            let recorded = or_skip!(record(Recorder::Perf, options, &[path.as_os_str()]));
            let totals = |arguments: &[&str]| -> BTreeMap<(String, String), u64> {
                let mut totals = BTreeMap::new();
                for row in rows(&recorded, arguments) {
                    if row.get("inlined").is_none_or(String::is_empty) {
                        let key = (row["module"].clone(), row["function"].clone());
                        *totals.entry(key).or_default() +=
                            row["total"].parse::<u64>().expect("a total");
                    }
                }
                totals
            };
            assert_eq!(totals(&["--children"]), totals(&["--children", "--inline"]));
        }
    }
}

#[test]
fn inlined_callers_stand_in_the_tree() {
    let path = or_skip!(
        Program::new(Language::Cpp, "inlines")
            .flags(["-O2"])
            .build()
    );
    // Not by frame pointers: leaf() needs no frame.
    let options = ["-F", "500", "--call-graph", "dwarf,4096"];
    let recorded = or_skip!(record(Recorder::Perf, &options, &[path.as_os_str()]));
    let rows = rows(&recorded, &["--tree", "callers"]);
    let leaf = rows
        .iter()
        .find(|row| row["function"].contains("leaf"))
        .expect("leaf is sampled");
    // The callers are followed from the inside out. At each step the heaviest caller, which stands first, is taken.
    let mut callers = Vec::new();
    let mut at = leaf;
    while let Some(caller) = rows.iter().find(|row| row["parent"] == at["id"]) {
        callers.push((caller["inlined"].as_str(), caller["function"].as_str()));
        at = caller;
    }
    let expected = [
        ("inlined", "Caller3sum"),
        // The lambda has no name for linkers.
        ("inlined", "operator()"),
        ("inlined", "accumulate"),
        ("", "busy"),
        ("", "main"),
    ];
    for (index, (inlined, part)) in expected.into_iter().enumerate() {
        let (found, name) = callers[index];
        assert!(
            found == inlined && name.contains(part),
            "{index}: {callers:?}"
        );
    }
    let json = recorded
        .recording
        .ours_json(&["--tree", "callers", "--no-inline"]);
    let mut columns = array(&json["columns"]).iter();
    assert!(!columns.any(|column| column["id"] == "inlined"));
}
