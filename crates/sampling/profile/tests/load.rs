//! Recordings made of single records: who owns an address at which time.

mod support;

use dioptra_perfrecords::{Attr, ReadFormat, SampleType};
use dioptra_profile::{
    CallTree, ChangedTreeOptions, Dimension, LoadOptions, LoadPlan, Names, Profile, Recursion,
    SampleFilter, SelfAndTotal, StackChanges, TreeDirection, TreeLimits, UNKNOWN, aggregate,
    call_tree, changed_call_tree, trees_around,
};
use std::collections::BTreeMap;
use support::{ID, KERNEL, Records, USER, attr, event, flat};

/// Weights by module.
fn modules(profile: &Profile) -> BTreeMap<String, SelfAndTotal> {
    aggregate(profile, &Names::default(), Dimension::Module, &[0])
        .into_iter()
        .map(|row| (profile.modules().get(row.key).label.clone(), row.counts[0]))
        .collect()
}

fn own_weights(profile: &Profile) -> Vec<(String, u64)> {
    modules(profile)
        .into_iter()
        .map(|(module, count)| (module, count.own.weight))
        .collect()
}

fn named(list: &[(&str, u64)]) -> Vec<(String, u64)> {
    list.iter()
        .map(|(name, weight)| ((*name).to_owned(), *weight))
        .collect()
}

#[test]
fn time_decides_which_module_an_address_belongs_to() {
    let mut records = Records::default();
    records.map(5, 0x1000, 0x1000, 0, "/lib/first.so");
    records.sample(ID, (5, 5), 0x1800, 1, &[]);
    records.map(5, 0x1800, 0x1000, 0x7000, "/lib/second.so");
    records.sample(ID, (5, 5), 0x1800, 10, &[]);
    records.sample(ID, (5, 5), 0x17ff, 100, &[]);
    records.sample(ID, (5, 5), 0x2800, 1000, &[]);
    let profile = records.load(&flat(), LoadOptions::default());
    assert_eq!(
        own_weights(&profile),
        named(&[(UNKNOWN, 1000), ("first.so", 101), ("second.so", 10)])
    );
    assert_eq!(profile.losses().unmapped, 1);
    // Relative addresses are offsets in the file.
    let addresses: Vec<u64> = profile.frames().iter().map(|frame| frame.address).collect();
    assert_eq!(addresses, [0x800, 0x7000, 0x7ff, 0x2800]);
}

#[test]
fn forks_copy_execs_clear_and_numbers_are_reused() {
    let mut records = Records::default();
    records.comm(5, 5, false, "parent");
    records.map(5, 0x1000, 0x1000, 0, "/bin/parent");
    records.fork((6, 6), (5, 5));
    records.sample(ID, (6, 6), 0x1800, 1, &[]);
    records.comm(6, 6, true, "child");
    records.map(6, 0x1000, 0x1000, 0, "/bin/child");
    records.sample(ID, (6, 6), 0x1800, 10, &[]);
    records.sample(ID, (5, 5), 0x1800, 100, &[]);
    records.exit(6);
    // Still running until it is switched out for the last time.
    records.sample(ID, (6, 6), 0x1800, 1000, &[]);
    records.fork((6, 6), (5, 5));
    records.sample(ID, (6, 6), 0x1800, 10_000, &[]);
    let options = LoadOptions {
        threads: true,
        ..LoadOptions::default()
    };
    let profile = records.load(&flat(), options);
    assert_eq!(
        own_weights(&profile),
        named(&[("child", 1010), ("parent", 10_101)])
    );
    let rows: Vec<(u32, String, u64)> =
        aggregate(&profile, &Names::default(), Dimension::Process, &[0])
            .into_iter()
            .map(|row| {
                let process = &profile.tasks().processes()[row.key as usize];
                let name = profile.tasks().process_name(row.key);
                (process.pid, name, row.counts[0].own.weight)
            })
            .collect();
    assert_eq!(
        rows,
        [
            (5, "parent".to_owned(), 100),
            (6, "child".to_owned(), 1011),
            (6, "parent".to_owned(), 10_000)
        ]
    );
}

#[test]
fn threads_share_their_process_and_have_their_own_names() {
    let mut records = Records::default();
    records.comm(5, 5, false, "main");
    records.fork((5, 7), (5, 5));
    records.comm(5, 7, false, "worker");
    records.map(5, 0x1000, 0x1000, 0, "/bin/it");
    records.sample(ID, (5, 7), 0x1800, 1, &[]);
    records.sample(ID, (5, 5), 0x1800, 10, &[]);
    let options = LoadOptions {
        threads: true,
        ..LoadOptions::default()
    };
    let profile = records.load(&flat(), options);
    assert_eq!(own_weights(&profile), named(&[("it", 11)]));
    let threads: Vec<(String, u64)> =
        aggregate(&profile, &Names::default(), Dimension::Thread, &[0])
            .into_iter()
            .map(|row| {
                (
                    profile.tasks().thread_name(row.key),
                    row.counts[0].own.weight,
                )
            })
            .collect();
    assert_eq!(threads, named(&[("main", 10), ("worker", 1)]));
    let processes = aggregate(&profile, &Names::default(), Dimension::Process, &[0]);
    assert_eq!(processes.len(), 1);
}

#[test]
fn callers_count_once_in_a_stack() {
    let mut records = Records::default();
    records.map(
        u32::MAX,
        0xffff_ffff_8100_0000,
        0x1000,
        0xffff_ffff_8100_0000,
        "[kernel.kallsyms]_text",
    );
    records.map(5, 0x1000, 0x1000, 0, "/bin/main");
    records.map(5, 0x5000, 0x1000, 0, "/lib/lib.so");
    let kernel = 0xffff_ffff_8100_0010;
    // main -> lib -> main -> kernel; then main alone; then a chain without the sampled address.
    records.sample(
        ID,
        (5, 5),
        kernel,
        1,
        &[7, KERNEL, kernel, USER, 0x1010, 0x5010, 0x1020, 0x1030],
    );
    records.sample(ID, (5, 5), 0x1030, 10, &[2, USER, 0x1030]);
    records.sample(ID, (5, 5), 0x5030, 100, &[2, USER, 0x1030]);
    records.sample(ID, (5, 5), 0x5030, 1000, &[0]);
    // A mark that does not exist spoils the chain only.
    records.sample(ID, (5, 5), 0x5030, 10_000, &[2, -7_i64 as u64, 0x1030]);
    let events = [event("cpu-clock", attr(SampleType::CALLCHAIN), &[ID])];
    let options = LoadOptions {
        call_chains: true,
        ..LoadOptions::default()
    };
    let profile = records.load(&events, options);
    let weights: BTreeMap<String, (u64, u64)> = modules(&profile)
        .into_iter()
        .map(|(module, count)| (module, (count.own.weight, count.total.weight)))
        .collect();
    let expected = [
        ("[kernel.kallsyms]", (1, 1)),
        ("lib.so", (11_100, 11_101)),
        ("main", (10, 111)),
    ];
    assert_eq!(
        weights,
        expected.map(|(name, sums)| (name.to_owned(), sums)).into()
    );
    assert_eq!(profile.losses().bad_chains, 1);
    // Without call chains, the same self counts.
    let flat = records.load(&events, LoadOptions::default());
    let own = |profile: &Profile| -> Vec<_> {
        modules(profile)
            .into_iter()
            .map(|(name, count)| (name, count.own))
            .collect()
    };
    assert_eq!(own(&flat), own(&profile));
}

#[test]
fn samples_of_unknown_ids_belong_to_the_only_event_that_samples() {
    let mut records = Records::default();
    records.map(5, 0x1000, 0x1000, 0, "/bin/it");
    records.sample(ID, (5, 5), 0x1800, 1, &[]);
    records.sample(ID + 1, (5, 5), 0x1800, 10, &[]);
    let dummy = Attr {
        config: 9,
        ..attr(SampleType::empty())
    };
    let mut events = flat();
    events.push(event("dummy", dummy, &[99]));
    let profile = records.load(&events, LoadOptions::default());
    assert_eq!(own_weights(&profile), named(&[("it", 11)]));
    assert_eq!(
        (profile.losses().adopted, profile.losses().unknown_event),
        (1, 0)
    );
    assert_eq!(profile.sampled_events(), [0]);

    events.push(event("page-faults", attr(SampleType::empty()), &[98]));
    let profile = records.load(&events, LoadOptions::default());
    assert_eq!(own_weights(&profile), named(&[("it", 1)]));
    assert_eq!(
        (profile.losses().adopted, profile.losses().unknown_event),
        (0, 1)
    );
    assert_eq!(profile.sampled_events(), [0, 2]);

    // Another recorder's id can stand in samples of software events that are no clocks: those of one event only here.
    events.pop();
    let faults = Attr {
        config: 2,
        ..attr(SampleType::empty())
    };
    events.push(event("page-faults", faults.clone(), &[98]));
    let profile = records.load(&events, LoadOptions::default());
    assert_eq!(
        (profile.losses().adopted, profile.losses().unknown_event),
        (1, 0)
    );
    let weights: Vec<u64> = [0, 2]
        .map(|index: usize| profile.events()[index].total().weight)
        .to_vec();
    assert_eq!(weights, [1, 10]);
    let switches = Attr {
        config: 3,
        ..faults
    };
    events.push(event("context-switches", switches, &[97]));
    let profile = records.load(&events, LoadOptions::default());
    assert_eq!(
        (profile.losses().adopted, profile.losses().unknown_event),
        (0, 1)
    );
}

#[test]
fn a_group_s_sample_counts_for_each_member_that_has_grown() {
    let read = |sample_period| Attr {
        sample_period,
        read_format: ReadFormat::GROUP | ReadFormat::ID,
        ..attr(SampleType::READ)
    };
    let events = [
        event("leader", read(10), &[ID]),
        event("member", read(0), &[78]),
    ];
    let mut records = Records::default();
    records.map(5, 0x1000, 0x1000, 0, "/bin/it");
    for (leader, member) in [(12, 0), (25, 3), (37, 3)] {
        records.sample(ID, (5, 5), 0x1800, 10, &[2, leader, ID, member, 78]);
    }
    let profile = records.load(&events, LoadOptions::default());
    let totals: Vec<(u64, u64)> = profile
        .events()
        .iter()
        .map(|event| (event.total().samples, event.total().weight))
        .collect();
    assert_eq!(totals, [(3, 37), (1, 3)]);
    assert_eq!(profile.sampled_events(), [0, 1]);
}

#[test]
fn filters_leave_samples_out_and_tell_of_all() {
    let mut records = Records::default();
    records.comm(5, 5, false, "before");
    records.map(5, 0x1000, 0x1000, 0, "/bin/it");
    records.sample(ID, (5, 5), 0x1800, 1, &[]);
    records.comm(5, 5, false, "after");
    records.sample(ID, (5, 5), 0x1800, 10, &[]);
    records.sample(ID, (5, 6), 0x9000, 100, &[]);
    let left = |filter: SampleFilter| {
        let plan = LoadPlan {
            filter,
            ..LoadPlan::default()
        };
        let profile = records.load_with(&flat(), &plan);
        let event = &profile.events()[0];
        assert_eq!(event.unfiltered().weight, 111);
        event.total().weight
    };
    assert_eq!(left(SampleFilter::default()), 111);
    let comm = |name: &str| SampleFilter {
        comms: vec![name.to_owned()],
        ..SampleFilter::default()
    };
    // The name is that at the sample's time.
    assert_eq!(left(comm("before")), 1);
    assert_eq!(left(comm("after")), 110);
    assert_eq!(left(comm("it")), 0);
    let of_thread = SampleFilter {
        tids: vec![6],
        ..SampleFilter::default()
    };
    assert_eq!(left(of_thread), 100);
    let since = |from, to| SampleFilter {
        time: (from, to),
        ..SampleFilter::default()
    };
    assert_eq!(left(since(Some(0), None)), 111);
    assert_eq!(left(since(Some(1), None)), 110);
    assert_eq!(left(since(None, Some(1))), 1);

    let mut profile = records.load(&flat(), LoadOptions::default());
    let known: Vec<bool> = profile
        .frames()
        .iter()
        .map(|frame| !profile.modules().get(frame.module).is_unknown())
        .collect();
    profile.retain_samples(|frame| known[frame as usize]);
    assert_eq!(profile.events()[0].total().weight, 11);
    assert_eq!(profile.events()[0].unfiltered().weight, 111);
    assert_eq!(own_weights(&profile), named(&[("it", 11)]));
}

/// Each row's path of modules (functions have no names here) with its own and total weight.
fn paths(profile: &Profile, tree: &CallTree, names: &Names) -> Vec<(String, u64, u64)> {
    let mut paths: Vec<(String, u64, u64)> = Vec::new();
    for row in &tree.rows {
        let module = names.functions()[row.function as usize].module;
        let label = &profile.modules().get(module).label;
        let path = match row.parent {
            Some(parent) => format!("{} {label}", paths[parent].0),
            None => label.clone(),
        };
        let count = row.counts[0];
        paths.push((path, count.own.weight, count.total.weight));
    }
    paths
}

#[test]
fn trees_keep_recursion_apart() {
    let mut records = Records::default();
    records.map(5, 0x1000, 0x1000, 0, "/nonexistent/a");
    records.map(5, 0x5000, 0x1000, 0, "/nonexistent/b");
    let (a, b) = (0x1010, 0x5010);
    // Innermost first: a called by b called by a; a alone; b called by a.
    records.sample(ID, (5, 5), a, 1, &[4, USER, a, b, a]);
    records.sample(ID, (5, 5), a, 10, &[2, USER, a]);
    records.sample(ID, (5, 5), b, 100, &[3, USER, b, a + 4]);
    let options = LoadOptions {
        call_chains: true,
        ..LoadOptions::default()
    };
    let events = [event("cpu-clock", attr(SampleType::CALLCHAIN), &[ID])];
    let profile = records.load(&events, options);
    let names = Names::find(&profile, dioptra_symbols::SymbolOptions::default());
    let tree = |direction, least, width| {
        let limits = TreeLimits { least, width };
        let tree = call_tree(&profile, &names, &[0], direction, limits);
        (paths(&profile, &tree, &names), tree.left_out)
    };
    let rows = |rows: &[(&str, u64, u64)]| -> Vec<(String, u64, u64)> {
        rows.iter()
            .map(|(path, own, total)| ((*path).to_owned(), *own, *total))
            .collect()
    };
    let all = usize::MAX;
    assert_eq!(
        tree(TreeDirection::Callees, 0, all),
        (
            rows(&[("a", 10, 111), ("a b", 100, 101), ("a b a", 1, 1)]),
            0
        )
    );
    assert_eq!(
        tree(TreeDirection::Callers, 0, all),
        (
            rows(&[
                ("b", 100, 100),
                ("b a", 0, 100),
                ("a", 11, 11),
                ("a b", 0, 1),
                ("a b a", 0, 1)
            ]),
            0
        )
    );
    // Five hundredths of the weight, and one row below each.
    assert_eq!(
        tree(TreeDirection::Callees, 500, all),
        (rows(&[("a", 10, 111), ("a b", 100, 101)]), 1)
    );
    assert_eq!(
        tree(TreeDirection::Callers, 0, 1),
        (rows(&[("b", 100, 100), ("b a", 0, 100)]), 3)
    );
}

#[test]
fn changed_trees_merge_drop_and_fold() {
    let mut records = Records::default();
    for (at, name) in [(0x1000, "a"), (0x5000, "b"), (0x9000, "c")] {
        records.map(5, at, 0x1000, 0, &format!("/nonexistent/{name}"));
    }
    let (a, b, c) = (0x1010, 0x5010, 0x9010);
    // Innermost first.
    records.sample(ID, (5, 5), c, 1, &[5, USER, c, a, b, a]);
    records.sample(ID, (5, 5), a, 10, &[3, USER, a, a]);
    records.sample(ID, (5, 5), b, 100, &[3, USER, b, a]);
    records.sample(ID, (5, 5), c, 1000, &[2, USER, c]);
    let options = LoadOptions {
        call_chains: true,
        ..LoadOptions::default()
    };
    let events = [event("cpu-clock", attr(SampleType::CALLCHAIN), &[ID])];
    let profile = records.load(&events, options);
    let names = Names::find(&profile, dioptra_symbols::SymbolOptions::default());
    let functions = names.functions();
    let is = |wanted: &str| -> Vec<bool> {
        let label = |module| &profile.modules().get(module).label;
        let functions = functions.iter();
        functions
            .map(|function| label(function.module) == wanted)
            .collect()
    };
    let id = |wanted: &str| is(wanted).iter().position(|is| *is).unwrap() as u32;
    let whole = ChangedTreeOptions {
        direction: TreeDirection::Callees,
        limits: TreeLimits {
            least: 0,
            width: usize::MAX,
        },
        focus: None,
        leaf: None,
        depth: u32::MAX,
    };
    let tree = |changes: &StackChanges, options: &ChangedTreeOptions| {
        let changed = changed_call_tree(&profile, &names, &[0], changes, options);
        let rows = paths(&profile, &changed.tree, &names);
        let shown = rows
            .iter()
            .map(|(path, own, total)| format!("{path} {own} {total}"));
        let (dropped, bare) = (changed.dropped[0].weight, changed.bare[0].weight);
        (shown.collect::<Vec<_>>(), dropped, bare)
    };
    let none = StackChanges::default();
    // Functions have no names here, so that consecutive ones of a module are one row in any case.
    for direction in [TreeDirection::Callees, TreeDirection::Callers] {
        let plain = call_tree(&profile, &names, &[0], direction, whole.limits);
        let options = ChangedTreeOptions { direction, ..whole };
        let changed = changed_call_tree(&profile, &names, &[0], &none, &options);
        let rows = |tree: &CallTree| paths(&profile, tree, &names);
        assert_eq!(rows(&changed.tree), rows(&plain));
        for function in ["a", "b", "c"].map(&id) {
            let around = trees_around(&profile, &names, &[0], function, whole.limits);
            let options = ChangedTreeOptions {
                focus: Some(function),
                ..options
            };
            let changed = changed_call_tree(&profile, &names, &[0], &none, &options);
            let expected = match direction {
                TreeDirection::Callees => around.callees,
                TreeDirection::Callers => around.callers,
            };
            assert_eq!(rows(&changed.tree), rows(&expected));
        }
    }
    let folded = StackChanges {
        recursion: Recursion::Folded,
        ..StackChanges::default()
    };
    let expected = ["c 1000 1000", "a 10 111", "a b 100 100", "a c 1 1"];
    let (rows, dropped, bare) = tree(&folded, &whole);
    assert_eq!(
        (&rows[..], dropped, bare),
        (&expected.map(String::from)[..], 0, 0)
    );
    let merged = StackChanges {
        merged: is("b"),
        ..StackChanges::default()
    };
    let expected = ["c 1000 1000", "a 110 111", "a c 1 1"];
    assert_eq!(tree(&merged, &whole).0, expected);
    let merged = StackChanges {
        merged: is("c"),
        ..StackChanges::default()
    };
    let expected = ["a 10 111", "a b 100 101", "a b a 1 1"];
    let (rows, dropped, bare) = tree(&merged, &whole);
    assert_eq!(
        (&rows[..], dropped, bare),
        (&expected.map(String::from)[..], 0, 1000)
    );
    let without = StackChanges {
        dropped: is("b"),
        ..StackChanges::default()
    };
    let (rows, dropped, bare) = tree(&without, &whole);
    let expected = ["c 1000 1000", "a 10 10"];
    assert_eq!(
        (&rows[..], dropped, bare),
        (&expected.map(String::from)[..], 101, 0)
    );
    let leaf = ChangedTreeOptions {
        direction: TreeDirection::Callers,
        leaf: Some(id("c")),
        depth: 2,
        ..whole
    };
    assert_eq!(tree(&none, &leaf).0, ["c 1001 1001", "c a 0 1"]);
    assert_eq!(
        tree(&folded, &ChangedTreeOptions { depth: 9, ..leaf }).0,
        ["c 1001 1001", "c a 0 1"]
    );
}
