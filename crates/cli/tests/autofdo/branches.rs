//! Profiles of branch records: counts are the executions of an exact trace.

use crate::recording::{Sampling, samples, taken, write};
use crate::trace::{listing, step_through};
use crate::{dioptra, read};
use dioptra_testprograms::{self as programs, or_skip};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

const FUNCTIONS: [&str; 6] = ["trips", "nested", "leaf", "fibonacci", "pick", "odd_even"];

/// Returns the function and line of each address, as binutils have them.
fn lines_of(program: &Path, addresses: &[u64]) -> BTreeMap<u64, (String, u64)> {
    let output = Command::new("addr2line")
        .arg("-f")
        .arg("-e")
        .arg(program)
        .args(addresses.iter().map(|address| format!("{address:#x}")))
        .output()
        .expect("addr2line runs");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let mut words = text.lines();
    let mut found = BTreeMap::new();
    for address in addresses {
        let (function, place) = (words.next().expect("a function"), words.next());
        let (_, line) = place
            .and_then(|place| place.rsplit_once(':'))
            .expect("a line");
        // "12 (discriminator 3)"
        let line = line.split(' ').next().and_then(|line| line.parse().ok());
        if let Some(line) = line {
            found.insert(*address, (function.to_owned(), line));
        }
    }
    found
}

#[test]
fn lines_heads_and_calls_are_those_of_the_trace() {
    or_skip!(programs::need_tool("objdump"));
    or_skip!(programs::need_tool("llvm-profdata"));
    let program = or_skip!(programs::c("branches", &[]));
    let trace = or_skip!(step_through(&program));
    let listing = listing(&program);
    let branches = taken(&trace, &listing);
    // Every branch is in one stack, so that nothing is left to chance.
    let sampling = Sampling {
        depth: 32,
        period: 32,
        jitter: false,
        cycles: false,
        types: true,
    };
    let folder = tempfile::tempdir().expect("a folder");
    write(
        &trace,
        &branches,
        sampling,
        &folder.path().join("perf.data"),
    );
    let stacks = samples(&branches, sampling);
    let first = stacks[0].0 - stacks[0].1 as usize;
    let covered = &branches[first..stacks[stacks.len() - 1].0];
    let steps = &trace.steps[covered[0].step + 1..covered[covered.len() - 1].step + 1];
    let mut ran: BTreeMap<u64, u64> = BTreeMap::new();
    for step in steps {
        *ran.entry(*step).or_default() += 1;
    }

    let (_, said) = dioptra(folder.path(), &["export", "--to", "autofdo"]);
    let functions = read(&folder.path().join("profile.afdo"));
    assert!(said.contains("the weights of"), "{said}");

    let addresses: Vec<u64> = ran.keys().copied().collect();
    let places = lines_of(&program, &addresses);
    let source = programs::repository_root().join("tests/programs/branches.c");
    let source = std::fs::read_to_string(source).expect("the source");
    let declared = |function: &str| -> u64 {
        let head = format!("FUNCTION {function}(");
        let line = source.lines().position(|line| line.starts_with(&head));
        line.unwrap_or_else(|| panic!("no {function}")) as u64 + 1
    };
    for name in FUNCTIONS {
        let mut expected: BTreeMap<u64, u64> = BTreeMap::new();
        for (address, (function, line)) in &places {
            if function == name {
                let most = expected.entry(*line).or_default();
                *most = ran[address].max(*most);
            }
        }
        let mut found: BTreeMap<u64, u64> = BTreeMap::new();
        for (offset, line) in &functions[name].lines {
            let offset = offset.split('.').next().expect("an offset");
            let line_number = declared(name) + offset.parse::<u64>().expect("a number");
            let most = found.entry(line_number).or_default();
            *most = line.count.max(*most);
        }
        assert_eq!(found, expected, "{name}");
        // Each entry is a call, except for one that was before the first stack.
        let entry = listing.iter().find(|(_, listed)| listed.function == name);
        let (entry, _) = entry.expect("the function's first instruction");
        let head = functions[name].head;
        assert!(head.abs_diff(ran[entry]) <= 1, "{name}: {head}");
        assert!(head > 10, "{name}: {head}");
    }
    // Callers have the calls in their lines; those of a function's callers are all that entered it.
    let mut calls: BTreeMap<&str, u64> = BTreeMap::new();
    for line in functions
        .values()
        .flat_map(|function| function.lines.values())
    {
        for (callee, count) in &line.calls {
            *calls.entry(callee).or_default() += count;
        }
    }
    for name in FUNCTIONS {
        assert_eq!(calls[name], functions[name].head, "{name}");
    }
}
