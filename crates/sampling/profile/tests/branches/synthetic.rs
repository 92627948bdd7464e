//! Branch stacks that no program left behind: what is damaged, missing or impossible.

use crate::support::{ID, Records, event, two, word};
use dioptra_perfrecords::{Attr, AttrFlags, SampleType, event_type};
use dioptra_profile::branches::{BranchFacts, BranchKind, BranchProfile};
use dioptra_profile::{LoadPlan, Profile};
use proptest::prelude::*;
use std::collections::BTreeMap;

const ANY: u64 = 1 << 3;
const HW_INDEX: u64 = 1 << 17;
const WRONG_PATH: u64 = 1 << 24;

fn attr(branch_sample_type: u64, name: &str) -> (Attr, String) {
    let attr = Attr {
        kind: event_type::RAW,
        config: 0x20c4,
        sample_period: 4,
        sample_type: SampleType::IDENTIFIER
            | SampleType::IP
            | SampleType::TID
            | SampleType::TIME
            | SampleType::PERIOD
            | SampleType::BRANCH_STACK,
        branch_sample_type,
        flags: AttrFlags::SAMPLE_ID_ALL,
        ..Attr::default()
    };
    (attr, name.to_owned())
}

/// Adds a sample of a thread. Branches are given from the newest to the oldest: source, target, flags.
fn stack(records: &mut Records, tid: u32, period: u64, index: Option<u64>, list: &[[u64; 3]]) {
    records.time += 1;
    let time = records.time;
    let mut body = vec![
        word(ID),
        word(0x1000),
        two(5, tid),
        word(time),
        word(period),
        word(list.len() as u64),
    ];
    body.extend(index.map(word));
    body.extend(list.iter().flatten().map(|value| word(*value)));
    records.push(9, 2, &[&body.concat()]);
}

fn load(records: &Records, (attr, name): (Attr, String)) -> Profile {
    let plan = LoadPlan {
        branches: true,
        ..LoadPlan::default()
    };
    records.load_with(&[event(&name, attr, &[ID])], &plan)
}

fn mapped() -> Records {
    let mut records = Records::default();
    records.map(5, 0x1000, 0x1000, 0, "/nonexistent/one");
    records.map(5, 0x8000, 0x1000, 0, "/nonexistent/two");
    records
}

/// Returns the sightings of each run, by its first and last address.
fn runs(profile: &Profile, branches: &BranchProfile) -> BTreeMap<(u64, u64), u64> {
    let address = |frame| profile.frames().get(frame).address;
    let runs = branches.runs();
    runs.map(|run| ((address(run.start), address(run.end)), run.executions.seen))
        .collect()
}

#[test]
fn what_did_not_happen_or_is_missing_joins_nothing() {
    let mut records = mapped();
    let list = [
        [0x1080, 0x1010, 2],
        // Never happened: the branches around it follow on each other.
        [0x1070, 0x1000, 1 | WRONG_PATH],
        [0x1060, 0x1040, 2],
        // Hidden: what ran between its neighbours is not known.
        [0x1050, 0, 0],
        [0x1030, 0x1020, 1],
        // Back in the code, elsewhere, and outside of all mappings.
        [0x1008, 0x1030, 2],
        [0x8010, 0x1018, 2],
        [0x1010, 0x8008, 2],
        [0x5010, 0x5000, 2],
        [0, 0, 0],
    ];
    stack(&mut records, 5, 70, None, &list);
    let profile = load(&records, attr(ANY, "some-event"));
    let branches = profile.branches(0).unwrap();
    let facts: BranchFacts = *branches.facts();
    assert_eq!((facts.stacks, facts.records, facts.branches), (1, 10, 7));
    assert_eq!((facts.empty, facts.incomplete, facts.wrong_path), (1, 1, 1));
    assert_eq!(
        (facts.runs, facts.broken_runs, facts.unmapped_runs),
        (3, 2, 0)
    );
    assert_eq!(
        runs(&profile, branches),
        BTreeMap::from([((0x8, 0x10), 1), ((0x30, 0x30), 1), ((0x40, 0x80), 1)])
    );
    let mispredicted = branches.edges().filter_map(|edge| edge.mispredicted);
    assert_eq!(mispredicted.map(|share| share.part).sum::<u64>(), 1);
    assert!(branches.edges().all(|edge| edge.taken.estimated.is_none()));
    assert!(!branches.is_exact());
}

#[test]
fn call_stacks_and_filtered_branches_give_no_runs() {
    let mut records = mapped();
    let list = [[0x1080, 0x1010, 6 << 20], [0x1060, 0x1040, 4 << 20]];
    stack(&mut records, 5, 70, None, &list);
    // Open calls only.
    assert!(
        load(&records, attr(ANY | 1 << 11, "cycles"))
            .branches(0)
            .is_none()
    );
    // Returns only.
    let profile = load(&records, attr(1 << 5, "cycles"));
    let branches = profile.branches(0).unwrap();
    assert_eq!(branches.runs().len(), 0);
    assert_eq!(branches.facts().broken_runs, 0);
    let kinds: Vec<BranchKind> = branches.edges().map(|edge| edge.kind).collect();
    assert_eq!(kinds, [BranchKind::Call, BranchKind::Return]);
}

/// Returns six branches of code that only goes forward, starting at `first`.
fn following(first: u64) -> Vec<[u64; 3]> {
    let branch = |number: u64| [0x1010 + 0x20 * number, 0x1020 + 0x20 * number, 2];
    (first..first + 6).rev().map(branch).collect()
}

#[test]
fn stacks_follow_on_each_other_unless_something_is_missing() {
    let taken = "br_inst_retired.near_taken:u";
    let user = |types| {
        let (mut attr, name) = attr(types, taken);
        attr.flags |= AttrFlags::EXCLUDE_KERNEL;
        (attr, name)
    };
    let gaps = |records: &Records, types| {
        let profile = load(records, user(types));
        let branches = profile.branches(0).unwrap();
        let facts = *branches.facts();
        (facts.gaps, facts.runs, branches.is_exact())
    };
    // Six branches in each, a sample at every fourth: two overlap.
    let mut records = mapped();
    for first in [0, 4, 8, 12] {
        stack(&mut records, 5, 4, None, &following(first));
    }
    assert_eq!(gaps(&records, ANY), (0, 15, true));
    // Four branches are not there.
    stack(&mut records, 5, 4, None, &following(17));
    assert_eq!(gaps(&records, ANY), (1, 20, false));
    // Another thread starts anew.
    let mut records = mapped();
    stack(&mut records, 5, 4, None, &following(0));
    stack(&mut records, 6, 4, None, &following(4));
    assert_eq!(gaps(&records, ANY), (0, 6, true));
    // Records were lost in between.
    let mut records = mapped();
    stack(&mut records, 5, 4, None, &following(0));
    let trailer = records.trailer(5);
    records.push(2, 0, &[&word(ID), &word(3), &trailer]);
    stack(&mut records, 5, 4, None, &following(4));
    assert_eq!(gaps(&records, ANY), (1, 6, false));
    // A stack without branches tells that some were dropped.
    let mut records = mapped();
    stack(&mut records, 5, 4, None, &following(0));
    stack(&mut records, 5, 4, None, &[]);
    stack(&mut records, 5, 4, None, &following(8));
    assert_eq!(gaps(&records, ANY), (1, 6, false));
    // The hardware's index has moved by two, where the stacks say four.
    let mut records = mapped();
    for (first, index) in [(0, 3), (4, 1), (8, 5), (12, 1)] {
        stack(&mut records, 5, 4, Some(index), &following(first));
    }
    assert_eq!(gaps(&records, ANY | HW_INDEX), (1, 16, false));
}

proptest! {
    /// Any branches at all: every record is counted once, whatever it holds.
    #[test]
    fn all_records_are_accounted_for(
        stacks in prop::collection::vec(
            (
                5_u32..8,
                prop_oneof![1_u64..12, any::<u64>()],
                prop::collection::vec(
                    (
                        prop_oneof![0_u64..2, 0x1000_u64..0x1020, 0x8000_u64..0x9100, any::<u64>()],
                        prop_oneof![0_u64..2, 0x1000_u64..0x1020, 0x8000_u64..0x9100, any::<u64>()],
                        any::<u64>(),
                    ),
                    0..12,
                ),
            ),
            0..20,
        ),
        taken in any::<bool>(),
    ) {
        let mut records = mapped();
        for (tid, period, list) in &stacks {
            let list: Vec<[u64; 3]> = list.iter().map(|(from, to, flags)| [*from, *to, *flags]).collect();
            stack(&mut records, *tid, *period, None, &list);
        }
        let name = if taken { "br_inst_retired.near_taken" } else { "cycles" };
        let profile = load(&records, attr(ANY, name));
        let branches = profile.branches(0).unwrap();
        let facts = branches.facts();
        prop_assert_eq!(facts.stacks, stacks.len() as u64);
        let sum = facts.branches + facts.empty + facts.incomplete + facts.wrong_path;
        prop_assert_eq!(facts.records, sum);
        let seen: u64 = branches.edges().map(|edge| edge.taken.seen).sum();
        prop_assert!(seen <= facts.branches);
        let runs: u64 = branches.runs().map(|run| run.executions.seen).sum();
        prop_assert_eq!(runs, facts.runs);
        prop_assert!(facts.runs + facts.broken_runs + facts.unmapped_runs <= seen);
        for edge in branches.edges() {
            prop_assert!(edge.mispredicted.is_none_or(|share| share.part <= share.whole));
            prop_assert!(edge.taken.error.is_finite());
            prop_assert!(edge.cycles.samples <= edge.taken.seen);
        }
    }
}
