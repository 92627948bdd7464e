//! A program's branches as recorded, and its trace.

use crate::recording::{Sampling, Taken, samples, taken, write};
use crate::trace::{Listed, Trace, listing, step_through};
use dioptra_perfdata::PerfData;
use dioptra_profile::branches::{
    BranchAnalysis, BranchProfile, CallKind, Calls, CodeOutline, Executions, FunctionBranches,
    LoopAt, SymbolCode, TripCounts,
};
use dioptra_profile::{FrameId, LoadPlan, ModuleId, Profile};
use dioptra_symbols::{SymbolOptions, Symbolizer};
use dioptra_testprograms::{self as programs, Skip, or_skip};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, OnceLock};

const ROUNDS: usize = 168;

/// A program that was stepped through.
struct Stepped {
    trace: Trace,
    listing: BTreeMap<u64, Listed>,
    branches: Vec<Taken>,
}

fn stepped() -> Result<&'static Stepped, Skip> {
    static STEPPED: OnceLock<Result<Stepped, Skip>> = OnceLock::new();
    let stepped = STEPPED.get_or_init(|| {
        let program = programs::c("branches", &[])?;
        programs::need_tool("objdump")?;
        let trace = step_through(&program)?;
        let listing = listing(&program);
        let branches = taken(&trace, &listing);
        Ok(Stepped {
            trace,
            listing,
            branches,
        })
    });
    stepped.as_ref().map_err(Skip::clone)
}

const BACK_TO_BACK: Sampling = Sampling {
    depth: 32,
    period: 32,
    jitter: false,
    cycles: false,
    types: false,
};

impl Stepped {
    fn load(&self, sampling: Sampling) -> Profile {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("perf.data");
        write(&self.trace, &self.branches, sampling, &path);
        let plan = LoadPlan {
            branches: true,
            ..LoadPlan::default()
        };
        Profile::load_with(&PerfData::open(&path).unwrap(), &plan)
    }

    /// Returns the steps and branches of the time that the samples cover.
    fn covered(&self, sampling: Sampling) -> (&[u64], &[Taken]) {
        let samples = samples(&self.branches, sampling);
        let first = samples[0].0 - usize::try_from(samples[0].1).unwrap();
        let last = samples.last().unwrap().0;
        let branches = &self.branches[first..last];
        let steps = branches[0].step + 1..branches.last().unwrap().step + 1;
        (&self.trace.steps[steps], branches)
    }

    /// Returns the first address of each function that ran.
    fn functions(&self) -> BTreeMap<&str, u64> {
        let mut functions = BTreeMap::new();
        for step in &self.trace.steps {
            let name = self.listing[step].function.as_str();
            let start: &mut u64 = functions.entry(name).or_insert(*step);
            *start = (*start).min(*step);
        }
        functions
    }
}

fn count<K: Ord>(keys: impl Iterator<Item = K>) -> BTreeMap<K, u64> {
    let mut counts = BTreeMap::new();
    for key in keys {
        *counts.entry(key).or_default() += 1;
    }
    counts
}

/// The results of an analysis that the tests check.
struct Analysed {
    module: ModuleId,
    functions: BTreeMap<String, (Arc<CodeOutline>, FunctionBranches)>,
    calls: Calls,
    trips: BTreeMap<LoopAt, TripCounts>,
}

fn analysed(stepped: &Stepped, profile: &Profile) -> Analysed {
    let symbolizer = Symbolizer::new(SymbolOptions::default());
    let code = SymbolCode::new(profile.modules(), &symbolizer);
    let analysis = BranchAnalysis::new(profile, 0, &code).unwrap();
    let module = profile
        .modules()
        .iter()
        .position(|module| module.label == "branches");
    let module = ModuleId::try_from(module.unwrap()).unwrap();
    let functions = stepped.functions();
    Analysed {
        module,
        functions: functions
            .iter()
            .map(|(name, start)| {
                let found = analysis.function(module, *start).unwrap();
                ((*name).to_owned(), found)
            })
            .collect(),
        calls: analysis.calls(),
        trips: analysis.trips(),
    }
}

fn branches_of(profile: &Profile) -> &BranchProfile {
    profile.branches(0).unwrap()
}

fn address(profile: &Profile, frame: FrameId) -> u64 {
    profile.frames().get(frame).address
}

/// With a sample at every 32nd branch and 32 branches in each, nothing is left to chance.
#[test]
fn back_to_back_stacks_tell_what_ran() {
    let stepped = or_skip!(stepped());
    // The older half of these stacks was in the stack before.
    let overlapping = Sampling {
        period: 16,
        ..BACK_TO_BACK
    };
    let typed = Sampling {
        types: true,
        depth: 16,
        period: 16,
        ..BACK_TO_BACK
    };
    for sampling in [BACK_TO_BACK, overlapping, typed] {
        let profile = stepped.load(sampling);
        let (steps, taken) = stepped.covered(sampling);
        let branches = branches_of(&profile);
        assert!(branches.is_exact());
        let facts = branches.facts();
        assert_eq!((facts.gaps, facts.broken_runs, facts.sampled), (0, 0, 0));
        let analysed = analysed(stepped, &profile);

        // Instructions and blocks.
        let ran = count(steps.iter().copied());
        assert!(ran.len() > 150, "{}", ran.len());
        let mut compared = 0;
        for (name, (outline, counts)) in &analysed.functions {
            assert_eq!(counts.impossible, 0, "{name}");
            for (instruction, executions) in outline.instructions().iter().zip(&counts.instructions)
            {
                let expected = ran.get(&instruction.address).copied().unwrap_or(0);
                assert_eq!(exact(executions), expected, "{name} {instruction:x?}");
                compared += usize::from(expected > 0);
            }
            for (block, counts) in outline.blocks().iter().zip(&counts.blocks) {
                for instruction in &outline.instructions()[block.clone()] {
                    let expected = ran.get(&instruction.address).copied().unwrap_or(0);
                    // All of the block ran as often, but for the calls that were open at the start and the end.
                    assert!(expected.abs_diff(exact(&counts.executions)) <= 8);
                }
            }
        }
        assert_eq!(compared, ran.len());

        edges_match(&profile, taken);
        calls_match(stepped, &profile, &analysed, taken);
        trips_match(stepped, &analysed, taken);
        cycles_match(stepped, &analysed, taken);
    }
}

/// Returns a count, and checks that it has no error.
fn exact(executions: &Executions) -> u64 {
    assert_eq!(executions.error, 0.0);
    assert_eq!(executions.estimated, Some(executions.seen as f64));
    executions.seen
}

fn edges_match(profile: &Profile, taken: &[Taken]) {
    let expected = count(taken.iter().map(|branch| (branch.from, branch.to)));
    let missed = taken.iter().filter(|branch| branch.mispredicted);
    let missed = count(missed.map(|branch| (branch.from, branch.to)));
    let mut found = BTreeMap::new();
    for edge in branches_of(profile).edges() {
        let key = (address(profile, edge.from), address(profile, edge.to));
        found.insert(key, exact(&edge.taken));
        let share = edge.mispredicted.unwrap();
        assert_eq!(share.whole, edge.taken.seen);
        assert_eq!(share.part, missed.get(&key).copied().unwrap_or(0));
    }
    assert_eq!(found, expected);
}

fn calls_match(stepped: &Stepped, profile: &Profile, analysed: &Analysed, taken: &[Taken]) {
    let of = |kinds: &[u64]| {
        let calls = taken.iter().filter(|branch| kinds.contains(&branch.kind));
        count(calls.map(|branch| (branch.from, branch.to)))
    };
    let found = |list: &mut dyn Iterator<Item = (FrameId, FrameId, Executions)>| {
        list.map(|(from, to, executions)| {
            let key = (address(profile, from), address(profile, to));
            (key, exact(&executions))
        })
        .collect::<BTreeMap<_, _>>()
    };
    let calls = &analysed.calls;
    assert_eq!(calls.unknown, 0);
    let kind = |kind: CallKind| {
        let calls = calls.calls.iter().filter(move |call| call.kind == kind);
        found(&mut calls.map(|call| (call.site, call.target, call.count)))
    };
    assert_eq!(kind(CallKind::Direct), of(&[4]));
    assert_eq!(kind(CallKind::Indirect), of(&[5]));
    let returns = calls.returns.iter();
    assert_eq!(
        found(&mut returns.map(|one| (one.from, one.to, one.count))),
        of(&[6])
    );
    // Three functions are called through the pointer, each in a third of the rounds.
    let functions = stepped.functions();
    for name in ["add", "multiply", "negate"] {
        let indirect = kind(CallKind::Indirect);
        let of_name: u64 = indirect
            .iter()
            .filter(|((_, to), _)| *to == functions[name])
            .map(|(_, count)| count)
            .sum();
        assert!(of_name.abs_diff(ROUNDS as u64 / 3) <= 1, "{name} {of_name}");
    }
}

/// By construction: `trips` goes round 1, 2, … 7, 1, … times.
fn trips_match(stepped: &Stepped, analysed: &Analysed, taken: &[Taken]) {
    let functions = stepped.functions();
    // The rounds of those calls that began and ended in the recorded time.
    let first = taken[0].step;
    let finished = |name: &str| {
        let is_call = |branch: &&Taken| branch.to == functions[name] && branch.kind == 4;
        let before = stepped.branches.iter().filter(|branch| branch.step < first);
        let mut round = before.filter(is_call).count();
        let mut open = None;
        let mut rounds = Vec::new();
        for branch in taken {
            if is_call(&branch) {
                open = Some(round);
                round += 1;
            } else if branch.kind == 6 && stepped.listing[&branch.from].function == name {
                rounds.extend(open.take());
            }
        }
        rounds
    };
    let of = |name: &str| {
        let loops = analysed.trips.iter();
        loops
            .filter(|(at, _)| {
                (at.function.module, at.function.start) == (analysed.module, functions[name])
            })
            .map(|(at, trips)| (at.number, trips))
            .collect::<Vec<_>>()
    };
    let seen = |trips: &TripCounts| -> BTreeMap<u64, u64> {
        trips
            .trips
            .iter()
            .map(|one| (one.trips, one.seen))
            .collect()
    };
    let [(_, trips)] = of("trips")[..] else {
        panic!("one loop");
    };
    let rounds = finished("trips");
    assert!(rounds.len() > ROUNDS - 4);
    let expected = count(rounds.iter().map(|round| 1 + *round as u64 % 7));
    assert_eq!(seen(trips), expected);
    assert_eq!(trips.complete, rounds.len() as u64);
    for one in &trips.trips {
        assert!((one.share - one.seen as f64 / rounds.len() as f64).abs() < 1e-9);
    }
    let [(_, trips)] = of("odd_even")[..] else {
        panic!("one loop");
    };
    assert_eq!(
        seen(trips),
        BTreeMap::from([(10, finished("odd_even").len() as u64)])
    );
    // The outer loop three times a round; the inner one twice or three times for each of these.
    let mut nested = of("nested");
    nested.sort_by_key(|(number, _)| analysed.functions["nested"].0.loops()[*number].parent);
    let [(_, outer), (_, inner)] = nested[..] else {
        panic!("two loops");
    };
    assert_eq!(
        seen(outer),
        BTreeMap::from([(3, finished("nested").len() as u64)])
    );
    let inner = seen(inner);
    assert_eq!(inner.keys().copied().collect::<Vec<_>>(), [2, 3]);
    assert!(
        inner
            .values()
            .all(|count| count.abs_diff(3 * ROUNDS as u64 / 2) <= 3)
    );

    // The same from sums.
    for (name, mean) in [("odd_even", 10.0), ("trips", 4.0)] {
        let (_, counts) = &analysed.functions[name];
        let (found, error) = counts.loops[0].mean_trips().unwrap();
        assert!((found - mean).abs() < 0.1, "{name} {found}");
        assert_eq!(error, 0.0);
        assert!(exact(&counts.loops[0].entries).abs_diff(ROUNDS as u64) <= 1);
    }
    let (outline, counts) = &analysed.functions["nested"];
    for (natural, counts) in outline.loops().iter().zip(&counts.loops) {
        let mean = if natural.parent.is_none() { 3.0 } else { 2.5 };
        let (found, _) = counts.mean_trips().unwrap();
        assert!((found - mean).abs() < 0.02, "{found} of {mean}");
    }
}

/// Cycles of blocks that branches enter and leave: two, and one for each instruction.
fn cycles_match(stepped: &Stepped, analysed: &Analysed, taken: &[Taken]) {
    let mut blocks = 0;
    for (outline, counts) in analysed.functions.values() {
        for (block, counts) in outline.blocks().iter().zip(&counts.blocks) {
            let Some((mean, error)) = counts.cycles.mean() else {
                continue;
            };
            let instructions = &outline.instructions()[block.clone()];
            assert_eq!(mean, 2.0 + instructions.len() as f64);
            assert_eq!(error, 0.0);
            let bounds = (
                instructions[0].address,
                instructions[instructions.len() - 1].address,
            );
            let runs = taken
                .windows(2)
                .filter(|pair| (pair[0].to, pair[1].from) == bounds);
            assert_eq!(counts.cycles.samples, runs.count() as u64);
            blocks += 1;
        }
    }
    assert!(blocks >= 10, "{blocks} of {}", stepped.listing.len());
}

/// Sparse samples: what is estimated lies where its error says.
#[test]
fn samples_tell_within_their_errors() {
    let stepped = or_skip!(stepped());
    for (depth, cycles, period) in [(32, false, 211), (16, false, 101), (32, true, 1009)] {
        let sampling = Sampling {
            depth,
            period,
            jitter: true,
            cycles,
            types: false,
        };
        let profile = stepped.load(sampling);
        let facts = branches_of(&profile).facts();
        assert!(!branches_of(&profile).is_exact());
        assert_eq!(facts.branches, facts.stacks * depth as u64);
        assert_eq!(facts.unscaled, 0);
        let analysed = analysed(stepped, &profile);
        let ran = count(stepped.trace.steps.iter().copied());
        let (mut deviations, mut compared) = (0.0, 0);
        let mut check = |what: &str, found: Executions, expected: u64| {
            let (estimated, error) = (found.estimated.unwrap(), found.estimated_error().unwrap());
            if found.seen == 0 {
                // Seldom enough to have been missed.
                assert!(expected < 200, "{what}: {expected}");
                return;
            }
            let deviation = (estimated - expected as f64) / error;
            assert!(
                deviation.abs() < 4.5,
                "{what} ({depth}, {cycles}): {estimated} ± {error}, in truth {expected}"
            );
            deviations += deviation * deviation;
            compared += 1;
        };
        for (name, (outline, counts)) in &analysed.functions {
            assert_eq!(counts.impossible, 0, "{name} ({depth}, {cycles})");
            for (block, counts) in outline.blocks().iter().zip(&counts.blocks) {
                let address = outline.instructions()[block.start].address;
                let expected = ran.get(&address).copied().unwrap_or(0);
                check(name, counts.executions, expected);
            }
        }
        let expected = count(
            stepped
                .branches
                .iter()
                .map(|branch| (branch.from, branch.to)),
        );
        for call in &analysed.calls.calls {
            let key = (address(&profile, call.site), address(&profile, call.target));
            check("a call", call.count, expected[&key]);
        }
        assert!(compared > 35, "{compared}");
        // Errors are neither too small nor ten times too large.
        let spread: f64 = deviations / f64::from(compared);
        assert!((0.01..2.0).contains(&spread), "{spread}");

        let trips = analysed.functions["trips"].1.loops[0].mean_trips().unwrap();
        assert!((trips.0 - 4.0).abs() < 4.0 * trips.1, "{trips:?}");
        let at = LoopAt {
            function: dioptra_profile::branches::FunctionAt {
                module: analysed.module,
                start: stepped.functions()["trips"],
            },
            number: 0,
        };
        // Long stays are seen whole less often; their shares make up for it.
        let counts = &analysed.trips[&at];
        let mean = counts.mean().unwrap();
        let spread = 2.0 / (counts.complete as f64).sqrt();
        assert!((mean - 4.0).abs() < 5.0 * spread, "{mean} ± {spread}");
    }
}

fn perf(arguments: &[&str], path: &Path) -> String {
    let output = Command::new("perf")
        .args(arguments)
        .arg("-i")
        .arg(path)
        .output();
    let output = output.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// perf reads the recording, and the branches that it prints are those that we add up.
#[test]
fn perf_reads_the_same_branches() {
    let stepped = or_skip!(stepped());
    or_skip!(programs::need_tool("perf"));
    let sampling = Sampling {
        period: 500,
        ..BACK_TO_BACK
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    write(&stepped.trace, &stepped.branches, sampling, &path);
    let (start, _, offset) = stepped.trace.mapping;
    let text = perf(&["script", "-F", "brstack"], &path);
    let entries = text.split_whitespace().map(|entry| {
        let fields: Vec<&str> = entry.split('/').collect();
        let address = |text: &str| {
            let digits = text.trim_start_matches("0x");
            u64::from_str_radix(digits, 16).unwrap() - start + offset
        };
        (
            address(fields[0]),
            address(fields[1]),
            fields[2] == "M",
            fields[5].to_owned(),
        )
    });
    let perfs: Vec<_> = entries.collect();
    let expected = samples(&stepped.branches, sampling)
        .into_iter()
        .flat_map(|(count, _)| {
            let stack = &stepped.branches[count - sampling.depth..count];
            stack.iter().rev().map(|branch| {
                let cycles = branch.cycles.to_string();
                (branch.from, branch.to, branch.mispredicted, cycles)
            })
        });
    assert_eq!(perfs, expected.collect::<Vec<_>>());
    let profile = {
        let plan = LoadPlan {
            branches: true,
            ..LoadPlan::default()
        };
        Profile::load_with(&PerfData::open(&path).unwrap(), &plan)
    };
    let ours: BTreeMap<_, _> = branches_of(&profile)
        .edges()
        .map(|edge| {
            let key = (address(&profile, edge.from), address(&profile, edge.to));
            (key, (edge.taken.seen, edge.mispredicted.unwrap().part))
        })
        .collect();
    let mut theirs: BTreeMap<(u64, u64), (u64, u64)> = BTreeMap::new();
    for (from, to, mispredicted, _) in perfs {
        let counts = theirs.entry((from, to)).or_default();
        counts.0 += 1;
        counts.1 += u64::from(mispredicted);
    }
    assert_eq!(ours, theirs);
    let history = perf(&["report", "--branch-history", "--stdio"], &path);
    for function in ["rounds", "fibonacci", "nested"] {
        assert!(history.contains(function), "no {function} in {history}");
    }
}
