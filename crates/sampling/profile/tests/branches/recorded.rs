//! Real recordings: the branches that perf prints are those that are added up.

use dioptra_perfdata::PerfData;
use dioptra_profile::branches::{BranchFacts, Counted};
use dioptra_profile::{FrameId, LoadPlan, Profile};
use dioptra_testprograms::{self as programs, Skip, need_shared_data, or_skip};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

fn recording(name: &str) -> Result<PathBuf, Skip> {
    programs::need_tool("perf")?;
    need_shared_data(&format!("perfdata/{name}"))
}

fn load(path: &Path) -> Profile {
    let plan = LoadPlan {
        branches: true,
        ..LoadPlan::default()
    };
    Profile::load_with(&PerfData::open(path).unwrap(), &plan)
}

/// By source and target: the number of branches, and of mispredicted ones.
type Branches = BTreeMap<(u64, u64), (u64, u64)>;

/// Returns the branches that perf prints, and the number of empty ones.
fn perf_branches(path: &Path) -> (Branches, u64) {
    let output = Command::new("perf")
        .args(["script", "-F", "brstack", "-i"])
        .arg(path)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut branches = Branches::new();
    let mut empty = 0;
    for entry in text.split_whitespace() {
        let fields: Vec<&str> = entry.split('/').collect();
        let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
        let key = (hex(fields[0]), hex(fields[1]));
        if key == (0, 0) {
            empty += 1;
            continue;
        }
        let counts = branches.entry(key).or_default();
        counts.0 += 1;
        counts.1 += u64::from(fields[2] == "M");
    }
    (branches, empty)
}

fn facts(profile: &Profile) -> BranchFacts {
    *profile.branches(0).unwrap().facts()
}

fn sums(counts: &Branches) -> (u64, u64) {
    let counts = counts.values();
    counts.fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1))
}

#[test]
fn amd_s_stacks() {
    let path = or_skip!(recording("perf.data.branch_stack_spec"));
    let profile = load(&path);
    let branches = profile.branches(0).unwrap();
    let (perfs, empty) = perf_branches(&path);
    let facts = facts(&profile);
    assert_eq!(facts.stacks, 8);
    assert_eq!((facts.records, facts.empty), (128, empty));
    assert_eq!(
        (facts.branches + facts.wrong_path, facts.branches),
        (128, sums(&perfs).0)
    );
    // `ex_ret_brn_tkn` by its number.
    assert_eq!(branches.counted(), Counted::TakenBranches);
    // The kernel's relative addresses are absolute.
    let address = |frame: FrameId| profile.frames().get(frame).address;
    let ours: BTreeMap<_, _> = branches
        .edges()
        .map(|edge| {
            let counts = (edge.taken.seen, edge.mispredicted.unwrap().part);
            ((address(edge.from), address(edge.to)), counts)
        })
        .collect();
    assert_eq!(ours, perfs);
    // All stand for 8 × 50 taken branches.
    let estimated: f64 = branches
        .edges()
        .filter_map(|edge| edge.taken.estimated)
        .sum();
    assert!((estimated - 400.0).abs() < 1e-6, "{estimated}");
}

#[test]
fn intel_s_stacks_beside_call_chains() {
    let path = or_skip!(recording("perf.data.callgraph_and_branch-3.8"));
    let profile = load(&path);
    let branches = profile.branches(0).unwrap();
    let (perfs, empty) = perf_branches(&path);
    let facts = facts(&profile);
    let (all, mispredicted) = sums(&perfs);
    assert_eq!((facts.empty, facts.branches), (empty, all));
    assert_eq!(facts.records, all + empty);
    let edges: Vec<_> = branches.edges().collect();
    assert_eq!(edges.iter().map(|edge| edge.taken.seen).sum::<u64>(), all);
    let missed = edges.iter().filter_map(|edge| edge.mispredicted);
    assert_eq!(missed.map(|share| share.part).sum::<u64>(), mispredicted);
    // This CPU's records do not tell cycles: nothing is scaled.
    assert_eq!(branches.counted(), Counted::Cycles);
    assert_eq!(facts.unscaled, facts.stacks - facts.empty_stacks);
    assert!(edges.iter().all(|edge| edge.taken.estimated.is_none()));
    assert!(facts.runs > 9 * facts.broken_runs, "{facts:?}");

    // Without being asked for, there are none.
    let plain = Profile::load_with(&PerfData::open(&path).unwrap(), &LoadPlan::default());
    assert!(plain.branches(0).is_none());
    assert_eq!(plain.events()[0].total(), profile.events()[0].total());
}
