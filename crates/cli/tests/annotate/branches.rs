//! Branch records: the view of a function equals an exact trace of it.

use super::recording::{Sampling, samples, taken, write};
use super::trace::{listing, step_through};
use super::{annotated, list, number, shown};
use dioptra_testprograms::{self as programs, or_skip};
use std::collections::BTreeMap;

#[test]
fn executions_branches_and_trips_are_those_of_the_trace() {
    or_skip!(programs::need_tool("objdump"));
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
        types: false,
    };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("perf.data");
    write(&trace, &branches, sampling, &file);
    let stacks = samples(&branches, sampling);
    let first = stacks[0].0 - stacks[0].1 as usize;
    let covered = &branches[first..stacks[stacks.len() - 1].0];
    let steps = &trace.steps[covered[0].step + 1..covered[covered.len() - 1].step + 1];
    let mut ran: BTreeMap<u64, u64> = BTreeMap::new();
    for step in steps {
        *ran.entry(*step).or_default() += 1;
    }
    for function in ["trips", "nested", "leaf", "fibonacci", "pick", "odd_even"] {
        let json = annotated(function, &file);
        assert_eq!(json["branches"]["exact"], true, "{function}");
        let instructions = list(&json, "instructions");
        let address = |index: usize| number(&instructions[index]["address"]);
        let times = |index: usize| ran.get(&address(index)).copied().unwrap_or(0);
        for block in list(&json, "blocks") {
            let first = number(&block["first_instruction"]) as usize;
            let seen = number(&block["executions"]["seen"]);
            assert_eq!(
                seen,
                times(first),
                "{function}: block at {:#x}",
                address(first)
            );
        }
        for site in list(&json["branches"], "sites") {
            let index = number(&site["instruction"]) as usize;
            let went = covered
                .iter()
                .filter(|branch| branch.from == address(index));
            let (mut count, mut missed) = (0, 0);
            for branch in went {
                count += 1;
                missed += u64::from(branch.mispredicted);
            }
            assert_eq!(number(&site["taken"]["seen"]), count, "{function} {site}");
            if let Some(share) = site["mispredicted"].as_object() {
                assert_eq!(number(&share["part"]), missed, "{function} {site}");
            }
            if let Some(not_taken) = site["not_taken"].as_object() {
                // The branch before the first stack ran, but is in none.
                let whole = number(&not_taken["seen"]) + count;
                assert!(whole.abs_diff(times(index)) <= 1, "{function} {site}");
            }
        }
        // Edges have executions, which add up to those of a block over the edges into it and over those out of it.
        for edge in list(&json, "edges") {
            assert!(edge["executions"].is_object(), "{function}: {edge}");
        }
    }
    // The inner loop of `nested` goes round 2 or 3 times, the outer one 3 times.
    let json = annotated("nested", &file);
    let trips: Vec<Vec<u64>> = list(&json, "loops")
        .iter()
        .map(|natural| {
            let trips = list(&natural["trips"], "distribution").iter();
            trips.map(|one| number(&one["trips"])).collect()
        })
        .collect();
    assert_eq!(trips, [vec![3], vec![2, 3]], "{:?}", json["loops"]);
    let text = shown("annotate", &["trips"], &file);
    assert!(
        text.contains("runs") && text.contains("trips") && text.contains("mispredicted"),
        "{text}"
    );
    let graph = shown("annotate", &["nested", "--format", "dot"], &file);
    assert!(
        graph.contains("trips") && graph.contains("runs "),
        "{graph}"
    );
}
