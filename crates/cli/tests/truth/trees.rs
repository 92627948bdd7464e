//! Call trees and stacks: the same stacks as perf's, from frame pointers and from copies of the stack.

use crate::compare::assert_equal_with;
use crate::table::{Recording, Row, Table, UNKNOWN, array, string, with_unknown};
use crate::{BOTH, Recorder, record};
use dioptra_testprograms::{self as programs, or_skip};
use std::collections::BTreeMap;

/// Returns the weights of our tree's stacks, innermost first: the weight of each path less the weights of longer paths.
fn folded(recording: &Recording, direction: &str) -> BTreeMap<Vec<String>, u64> {
    let json = recording.ours_json(&["--tree", direction, "--percent-limit", "0", "--no-inline"]);
    let ids: Vec<String> = array(&json["columns"])
        .iter()
        .map(|column| string(&column["id"]))
        .collect();
    let index = |id: &str| ids.iter().position(|known| known == id).expect("a column");
    let (function, weight) = (index("function"), index("weight"));
    let total = index("total_percent");
    let whole = json["facts"]["event"]["value"]["weight"]
        .as_u64()
        .expect("a weight");
    let mut paths: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut ends: BTreeMap<u64, u64> = BTreeMap::new();
    for row in array(&json["rows"]) {
        let id = row["id"].as_u64().expect("an id");
        let cells = array(&row["cells"]);
        // Addresses without a name that follow each other may be one row.
        let name = with_unknown(string(&cells[function]));
        // The exact total stands beside the percentage.
        let ratio = &row["ratios"]["total_percent"];
        assert_eq!(ratio[1].as_u64(), Some(whole), "{row} {total}");
        let total = ratio[0].as_u64().expect("a total");
        let parent = row["parent"].as_u64();
        let mut path = parent.map_or_else(Vec::new, |parent| paths[&parent].clone());
        path.push(name);
        paths.insert(id, path);
        if direction == "callees" {
            ends.insert(id, cells[weight].as_u64().expect("a weight"));
        } else {
            ends.insert(id, total);
            if let Some(parent) = parent {
                *ends.get_mut(&parent).expect("an earlier row") -= total;
            }
        }
    }
    let mut folded = BTreeMap::new();
    for (id, weight) in ends.into_iter().filter(|(_, weight)| *weight > 0) {
        let mut path = paths.remove(&id).expect("a path");
        if direction == "callees" {
            path.reverse();
        }
        *folded.entry(path).or_default() += weight;
    }
    folded
}

/// Returns the stacks with consecutive addresses without a name joined into one.
fn joined(stacks: BTreeMap<Vec<String>, u64>) -> BTreeMap<Vec<String>, u64> {
    let mut joined = BTreeMap::new();
    for (mut path, weight) in stacks {
        path.dedup_by(|one, other| *one == UNKNOWN && *other == UNKNOWN);
        *joined.entry(path).or_default() += weight;
    }
    joined
}

#[test]
fn both_trees_hold_perfs_stacks() {
    for program in ["recursion", "shares"] {
        let path = or_skip!(programs::c(program, &[]));
        for recorder in BOTH {
            let recorded = or_skip!(record(recorder, &["-F", "2000", "-g"], &[path.as_os_str()]));
            let recording = &recorded.recording;
            let callers = folded(recording, "callers");
            assert_eq!(callers, folded(recording, "callees"), "{program}");
            // The tools may take different names where one address has several; the program's own functions have one
            // name. Versions of perf name the stubs of the PLT in different ways.
            let table = recording.ours(false, &[]);
            let own: Vec<&str> = table
                .values()
                .flatten()
                .filter(|row| row.module == program && row.name != UNKNOWN)
                .map(|row| row.name.as_str())
                .filter(|name| !name.ends_with("@plt"))
                .collect();
            let of_program = |stacks: BTreeMap<Vec<String>, u64>| -> BTreeMap<Vec<String>, u64> {
                stacks
                    .into_iter()
                    .filter(|(path, _)| own.contains(&path[0].as_str()))
                    .collect()
            };
            let ours = of_program(callers);
            assert!(!ours.is_empty());
            assert_eq!(
                of_program(joined(recording.perfs_folded())),
                ours,
                "{program}"
            );
        }
    }
}

#[test]
fn limits_leave_out_and_say_so() {
    let path = or_skip!(programs::c("recursion", &[]));
    let recorded = or_skip!(record(
        Recorder::Perf,
        &["-F", "2000", "-g"],
        &[path.as_os_str()]
    ));
    let recording = &recorded.recording;
    let all = recording.ours_json(&["--tree", "callers", "--percent-limit", "0"]);
    let some = recording.ours_json(&["--tree", "callers", "--percent-limit", "20", "--limit", "1"]);
    let (all, rows) = (array(&all["rows"]).len(), array(&some["rows"]));
    assert!(rows.len() < all);
    let left_out = some["facts"]["tree_rows_left_out"]["value"].as_u64();
    assert!(left_out.is_some_and(|count| count > 0), "{some}");
    for row in rows {
        let share = array(&row["cells"])[0].as_f64().expect("a percentage");
        assert!(share >= 20.0, "{row}");
    }
}

/// Stacks unwound from copies are perf's. Both follow the same tables, but perf 6.1 ends a stack earlier now and then,
/// so that totals may differ by some percent; self counts may not.
#[test]
fn copies_of_stacks_are_unwound() {
    for (program, language) in [("recursion", "c"), ("shares", "c"), ("threaded", "rust")] {
        let path = or_skip!(match language {
            "c" => programs::c(program, &["-O2", "-fomit-frame-pointer"]),
            _ => programs::rust(program, &[]),
        });
        let recorded = or_skip!(record(
            Recorder::Perf,
            &["-F", "500", "--call-graph", "dwarf,8192"],
            &[path.as_os_str()]
        ));
        let recording = &recorded.recording;
        assert_equal_with(recording, &[false], None, &[], &[]);
        let totals = |table: Table| -> BTreeMap<String, f64> {
            let mut totals = BTreeMap::new();
            let own = |row: &&Row| row.module == program && row.name != UNKNOWN;
            for row in table.values().flatten().filter(own) {
                let total: f64 = row.total.parse().expect("a percentage");
                *totals.entry(row.name.clone()).or_default() += total;
            }
            totals
        };
        let perfs = totals(recording.perfs(true, None, &[]));
        let ours = totals(recording.ours(true, &[]));
        assert!(!ours.is_empty(), "{program}");
        for name in perfs.keys().chain(ours.keys()) {
            let of = |totals: &BTreeMap<String, f64>| totals.get(name).copied().unwrap_or(0.0);
            let difference = (of(&perfs) - of(&ours)).abs();
            assert!(
                difference <= 5.0,
                "{program}: {name}: perf {}, ours {}",
                of(&perfs),
                of(&ours)
            );
        }
        if program == "shares" {
            // Callers are found: `main` itself does next to nothing.
            let main = ours.get("main").copied().unwrap_or_default();
            assert!(main > 20.0, "{main}");
        }
    }
}
