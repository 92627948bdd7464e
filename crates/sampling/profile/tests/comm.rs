//! Names that threads had when they were sampled, and modules below them, against perf.

use dioptra_perfdata::PerfData;
use dioptra_profile::{
    Dimension, HierarchyOptions, LoadOptions, LoadPlan, Names, Profile, SampleKey, hierarchy,
};
use dioptra_testprograms::{self as programs, need_shared_data, or_skip};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// By name and module: samples.
type Table = BTreeMap<(String, String), u64>;

/// One table for each event with samples.
fn perfs(path: &Path) -> Option<Vec<Table>> {
    let output = Command::new("perf")
        .args(["report", "--no-children", "--no-branch-stack", "--stdio"])
        .args(["--sort", "comm,dso"])
        .args(["-F", "sample,comm,dso", "-t", "|", "-f", "-i"])
        .arg(path)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let mut tables: Vec<Table> = Vec::new();
    for line in text.lines() {
        if line.starts_with("# Samples: ") {
            tables.push(Table::new());
        }
        if line.starts_with('#') {
            continue;
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if let [samples, comm, module] = cells[..]
            && let Ok(samples) = samples.parse::<u64>()
        {
            // Its table cuts this one name, which `perf script` shows whole.
            let comm = if comm == "perf-ex" { "perf-exec" } else { comm };
            let key = (comm.to_owned(), module.to_owned());
            *tables.last_mut()?.entry(key).or_default() += samples;
        }
    }
    tables.retain(|table| !table.is_empty());
    output.status.success().then_some(tables)
}

fn ours(path: &Path) -> Option<Vec<Table>> {
    let plan = LoadPlan {
        options: LoadOptions {
            threads: true,
            ..LoadOptions::default()
        },
        ..LoadPlan::default()
    };
    let profile = Profile::load_with(&PerfData::open(path).ok()?, &plan);
    let names = Names::default();
    let tables = profile.sampled_events().into_iter().map(|event| {
        // Threads without a name are called by their numbers.
        let levels = [Dimension::Comm, Dimension::Thread, Dimension::Module];
        let found = hierarchy(
            &profile,
            &names,
            &levels,
            &[event],
            &HierarchyOptions::default(),
        );
        let found = found.unwrap();
        let mut table = Table::new();
        for (index, row) in found.rows().enumerate() {
            if row.level < 2 {
                continue;
            }
            let thread = found.row(row.parent.unwrap());
            let comm = found.row(thread.parent.unwrap());
            let sample_key = SampleKey {
                thread: Some(thread.key),
                image: None,
                comm: (comm.key != u32::MAX).then_some(comm.key),
                cpu: None,
            };
            let key = (
                profile.tasks().comm_of(sample_key),
                profile.modules().get(row.key).label.clone(),
            );
            *table.entry(key).or_default() += found.count(index, 0).own.samples;
        }
        table
    });
    Some(tables.filter(|table| !table.is_empty()).collect())
}

#[test]
fn names_at_the_time_of_the_sample_are_perfs() {
    or_skip!(programs::need_tool("perf"));
    let folder = or_skip!(need_shared_data("perfdata"));
    // Files in which we mean to differ: a sample of a thread that has given back its number (0) is its process's, not
    // the idle thread's; kernel addresses of a recording that hides its kernel's place are the kernel's.
    let others = [
        "perf.data.throttle-3.8",
        "perf.data.piped.header_features_aligned-6.12",
    ];
    let mut compared = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if others.iter().any(|name| path.ends_with(name)) {
            continue;
        }
        let (Some(ours), Some(perfs)) = (ours(&path), perfs(&path)) else {
            continue;
        };
        // Where perf shows no event there is nothing to compare.
        for (ours, perfs) in ours.iter().zip(&perfs) {
            assert_eq!(ours, perfs, "{}", path.display());
            compared += 1;
        }
    }
    assert!(compared > 40, "{compared}");
}
