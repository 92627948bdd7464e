//! Calls of branch records: trees of callers and callees equal an exact trace of the program.

use super::recording::{Sampling, Taken, samples, taken, write};
use super::support::{ID, Records, USER, event, two, word};
use super::trace::{Listed, Trace, listing, step_through};
use super::{list, number, shown};
use dioptra_perfrecords::{Attr, AttrFlags, SampleType, event_type};
use dioptra_testprograms::{self as programs, Skip, or_skip};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

struct Traced {
    trace: Trace,
    listing: BTreeMap<u64, Listed>,
    branches: Vec<Taken>,
}

fn traced() -> Result<Traced, Skip> {
    programs::need_tool("objdump")?;
    let program = programs::c("branches", &[])?;
    let trace = step_through(&program)?;
    let listing = listing(&program);
    let branches = taken(&trace, &listing);
    Ok(Traced {
        trace,
        listing,
        branches,
    })
}

impl Traced {
    fn function(&self, address: u64) -> &str {
        &self.listing[&address].function
    }
}

/// `PERF_BR_CALL`, `PERF_BR_IND_CALL` and `PERF_BR_RET`.
const CALLS: [u64; 2] = [4, 5];
const RETURN: u64 = 6;

/// Returns the number in the column `column` of rows, by the function of the row above and the row's own.
fn by_pair(json: &Value, column: &str) -> BTreeMap<(String, String), u64> {
    let columns = list(json, "columns");
    let at = |id: &str| {
        let found = columns.iter().position(|column| column["id"] == id);
        found.unwrap_or_else(|| panic!("no {id} in {columns:?}"))
    };
    let (count, function) = (at(column), at("function"));
    let name = |row: &Value| row["cells"][function].as_str().expect("a name").to_owned();
    let rows = list(json, "rows");
    let top: BTreeMap<u64, String> = rows
        .iter()
        .filter(|row| row["parent"].is_null())
        .map(|row| (number(&row["id"]), name(row)))
        .collect();
    rows.iter()
        .filter_map(|row| {
            let parent = top.get(&row["parent"].as_u64()?)?;
            Some(((parent.clone(), name(row)), number(&row["cells"][count])))
        })
        .collect()
}

fn tree(direction: &str, more: &[&str], file: &Path) -> Value {
    let arguments = [
        "--tree",
        direction,
        "--percent-limit",
        "0",
        "--format",
        "json",
    ];
    let text = shown("report", &[&arguments, more].concat(), file);
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn callers_and_callees_are_those_of_the_trace() {
    let traced = or_skip!(traced());
    // Every branch is in one stack.
    let sampling = Sampling {
        depth: 32,
        period: 32,
        jitter: false,
        cycles: false,
        types: false,
    };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("perf.data");
    write(&traced.trace, &traced.branches, sampling, &file);
    let stacks = samples(&traced.branches, sampling);
    let first = stacks[0].0 - stacks[0].1 as usize;
    let covered = &traced.branches[first..stacks[stacks.len() - 1].0];
    // Calls by callee and caller; a jump to the start of another function counts as a call of that function.
    let mut expected: BTreeMap<(String, String), u64> = BTreeMap::new();
    for branch in covered {
        let (from, to) = (traced.function(branch.from), traced.function(branch.to));
        if CALLS.contains(&branch.kind) || (branch.kind != RETURN && from != to) {
            *expected
                .entry((to.to_owned(), from.to_owned()))
                .or_default() += 1;
        }
    }
    assert!(expected.len() > 5, "{expected:?}");
    // The profile has no call chains, so the tree is made of branch records.
    let callers = tree("callers", &[], &file);
    assert_eq!(by_pair(&callers, "calls"), expected);
    let callees = tree("callees", &["--calls"], &file);
    let turned: BTreeMap<_, _> = expected
        .into_iter()
        .map(|((callee, caller), count)| ((caller, callee), count))
        .collect();
    assert_eq!(by_pair(&callees, "calls"), turned);
    let facts = &callees["facts"];
    assert_eq!(
        number(&facts["calls_of_branches"]["value"]["calls"]),
        turned.values().sum::<u64>()
    );
    assert!(facts["no_call_chains"].is_null());
    // Text names the caller below the callee.
    let text = shown("report", &["--tree", "callers"], &file);
    assert!(text.contains("from branch records (LBR)"), "{text}");
}

/// Branch records hold all code that ran, so the lower bound equals that code.
#[test]
fn working_sets_of_branches_are_those_of_the_trace() {
    let traced = or_skip!(traced());
    let sampling = Sampling {
        depth: 32,
        period: 32,
        jitter: false,
        cycles: false,
        types: false,
    };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("perf.data");
    write(&traced.trace, &traced.branches, sampling, &file);
    let stacks = samples(&traced.branches, sampling);
    let first = stacks[0].0 - stacks[0].1 as usize;
    let covered = &traced.branches[first..stacks[stacks.len() - 1].0];
    let (start, end) = (covered[0].step + 1, covered[covered.len() - 1].step + 1);
    // The last sample lies at the last branch's target.
    let mut expected: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    for address in &traced.trace.steps[start..=end] {
        let lines = expected.entry(traced.function(*address)).or_default();
        lines.insert(address >> 6);
    }
    let text = shown("report", &["--working-set", "--format", "json"], &file);
    let json: Value = serde_json::from_str(&text).expect("JSON");
    let columns = list(&json, "columns");
    let at = |id: &str| columns.iter().position(|column| column["id"] == id);
    let (function, lines) = (
        at("function").expect("names"),
        at("code_lines").expect("lines"),
    );
    let rows = list(&json, "rows");
    assert!(rows.len() > 3, "{json}");
    for row in rows {
        let name = row["cells"][function].as_str().expect("a name");
        let ran = &expected[name];
        assert_eq!(
            number(&row["cells"][lines]),
            ran.len() as u64,
            "{name} {ran:x?}"
        );
    }
    assert_eq!(
        json["facts"]["working_set"]["value"]["from"],
        "samples and branch records"
    );
}

/// `PERF_SAMPLE_BRANCH_USER | CALL_STACK`.
const CALL_STACK: u64 = 1 | 1 << 11;

/// Returns the stack of open calls of each sample, as a CPU would have kept it: (call, target), newest first.
fn open_calls(traced: &Traced, every: usize) -> Vec<(u64, Vec<(u64, u64)>)> {
    let mut open: Vec<(u64, u64)> = Vec::new();
    let mut found = Vec::new();
    let mut branches = traced.branches.iter().peekable();
    for (step, address) in traced.trace.steps.iter().enumerate() {
        if step % every == every - 1 {
            found.push((*address, open.iter().rev().copied().take(32).collect()));
        }
        if let Some(branch) = branches.next_if(|branch| branch.step == step) {
            match branch.kind {
                kind if CALLS.contains(&kind) => open.push((branch.from, branch.to)),
                RETURN => drop(open.pop()),
                _ => {}
            }
        }
    }
    found
}

#[test]
fn the_cpu_s_stack_of_open_calls_is_a_call_chain() {
    let traced = or_skip!(traced());
    let attr = Attr {
        kind: event_type::HARDWARE,
        sample_period: 97,
        sample_type: SampleType::IDENTIFIER
            | SampleType::IP
            | SampleType::TID
            | SampleType::TIME
            | SampleType::PERIOD
            | SampleType::CALLCHAIN
            | SampleType::BRANCH_STACK,
        branch_sample_type: CALL_STACK,
        flags: AttrFlags::SAMPLE_ID_ALL | AttrFlags::EXCLUDE_KERNEL | AttrFlags::MMAP,
        ..Attr::default()
    };
    let (start, length, offset) = traced.trace.mapping;
    let pid = traced.trace.pid;
    let mut records = Records::default();
    let path = traced.trace.path.to_str().expect("a path");
    records.map(pid, start, length, offset, path);
    let absolute = |address: u64| word(address - offset + start);
    let expected = open_calls(&traced, 97);
    for (address, calls) in &expected {
        records.time += 1;
        let mut body = vec![
            word(ID),
            absolute(*address),
            two(pid, pid),
            word(records.time),
            word(97),
            // Without frame pointers the kernel's own chain ends at once.
            word(2),
            word(USER),
            absolute(*address),
            word(calls.len() as u64),
        ];
        for (from, to) in calls {
            body.extend([absolute(*from), absolute(*to), word(0)]);
        }
        records.push(9, 2, &[&body.concat()]);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("perf.data");
    std::fs::write(&file, records.file(&[event("cycles", attr, &[ID])])).expect("written");
    // Each function once in a sample, however often it is on the stack.
    let mut totals: BTreeMap<String, u64> = BTreeMap::new();
    for (address, calls) in &expected {
        let callers = calls.iter().map(|(from, _)| traced.function(*from));
        let functions: BTreeSet<&str> = callers.chain([traced.function(*address)]).collect();
        for function in functions {
            *totals.entry(function.to_owned()).or_default() += 1;
        }
    }
    let text = shown("report", &["--children", "--format", "json"], &file);
    let json: Value = serde_json::from_str(&text).expect("JSON");
    let columns = list(&json, "columns");
    let at = |id: &str| columns.iter().position(|column| column["id"] == id);
    let function = at("function").expect("functions");
    let found: BTreeMap<String, u64> = list(&json, "rows")
        .iter()
        .map(|row| {
            let name = row["cells"][function].as_str().expect("a name");
            // Samples of one period: the ratio's numerator is a number of samples.
            let weight = number(&row["ratios"]["total_percent"][0]);
            (name.to_owned(), weight / 97)
        })
        .collect();
    assert_eq!(found, totals);
    assert!(json["facts"]["no_call_chains"].is_null());
    assert_eq!(json["facts"]["call_chains_of_lbr"]["severity"], "info");
    let callers = by_pair(&tree("callers", &[], &file), "samples");
    assert!(!callers.is_empty(), "functions have callers");

    // perf makes the same totals of it.
    if programs::need_tool("perf").is_err() {
        return;
    }
    let output = Command::new("perf")
        .args(["report", "--stdio", "--children", "-F"])
        .args(["overhead_children,sample,sym", "-i"])
        .arg(&file)
        .output()
        .expect("perf runs");
    let perfs = String::from_utf8_lossy(&output.stdout).into_owned();
    let all = expected.len() as f64;
    let mut compared = 0;
    for line in perfs.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [percent, _, "[.]", name] = words[..] else {
            continue;
        };
        let Some(total) = totals.get(name) else {
            continue;
        };
        let ours = format!("{:.2}%", 100.0 * *total as f64 / all);
        assert_eq!(ours, percent, "{name}: {perfs}");
        compared += 1;
    }
    assert!(compared > 3, "{perfs}");
}
