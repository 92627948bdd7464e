//! Memory samples, checked against perf.

use dioptra_perfdata::PerfData;
use dioptra_profile::memory::{DataSource, Latency};
use dioptra_profile::{LoadPlan, Profile};
use dioptra_testprograms::{self as programs, or_skip, shared_data, skip};
use std::collections::BTreeMap;
use std::process::Command;

/// Samples of loads with their latency and data source, by instruction and by source.
#[test]
fn latencies_and_sources_are_perfs() {
    or_skip!(programs::need_tool("perf"));
    let Some(path) = shared_data("perfdata/perf.data.weight_struct") else {
        skip("../shared/data/perfdata is not there");
        return;
    };
    let plan = LoadPlan {
        memory: true,
        ..LoadPlan::default()
    };
    let profile = Profile::load_with(&PerfData::open(&path).unwrap(), &plan);
    let memory = profile.memory(0).unwrap();
    let output = Command::new("perf")
        .args(["script", "-F", "ip,addr,weight,data_src", "-i"])
        .arg(&path)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    // perf's text of a source has spaces: address, source, its text, weight, instruction.
    let mut perfs: Vec<(u64, u64, u64, u64)> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let weight = words[words.len() - 2].parse().unwrap();
        perfs.push((
            hex(words[words.len() - 1]),
            hex(words[0]),
            hex(words[1]),
            weight,
        ));
        let (said, ours) = (line, DataSource(hex(words[1])));
        assert_eq!(said.contains("|OP LOAD|"), ours.is_load());
        assert_eq!(said.contains("|LCK Yes|"), ours.is_locked());
        for level in ["L1", "L2", "L3"] {
            let theirs = said.contains(&format!("|LVL {level} or {level} hit|"));
            assert_eq!(theirs, ours.level() == format!("{level} hit"), "{said}");
        }
        let fill_buffer = said.contains("|LVL LFB/MAB");
        assert_eq!(fill_buffer, ours.level() == "line fill buffer hit");
        assert_eq!(said.contains("|TLB L2 miss|"), ours.tlb() == "L2 miss");
    }
    assert!(!perfs.is_empty());
    let facts = memory.facts();
    assert_eq!(facts.samples, perfs.len() as u64);
    assert_eq!(
        (facts.addresses, facts.weights),
        (facts.samples, facts.samples)
    );
    assert_eq!(facts.sources, facts.samples);

    let mut all = Latency::default();
    let mut by_source: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for (_, place) in memory.places() {
        all.merge(&place.latency());
        for (source, latency) in place.sources() {
            let sums = by_source.entry(source.0).or_default();
            sums.0 += latency.samples;
            sums.1 += latency.sum;
        }
    }
    let mut expected: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for (_, _, source, weight) in &perfs {
        let sums = expected.entry(*source).or_default();
        sums.0 += 1;
        sums.1 += weight;
    }
    assert_eq!(by_source, expected);
    let weights = perfs.iter().map(|sample| sample.3);
    assert_eq!(all.sum, weights.clone().sum::<u64>());
    assert_eq!(
        (all.min, all.max),
        (weights.clone().min().unwrap(), weights.max().unwrap())
    );
    assert_eq!(all.log2.iter().sum::<u64>(), facts.samples);

    // By instruction, where the module is the kernel and addresses are absolute.
    let mut by_ip: BTreeMap<u64, u64> = BTreeMap::new();
    for (ip, ..) in perfs.iter().filter(|sample| sample.0 >> 63 == 1) {
        *by_ip.entry(*ip).or_default() += 1;
    }
    for (ip, count) in by_ip {
        let frame = profile
            .frames()
            .iter()
            .position(|frame| frame.address == ip);
        let place = memory.at(u32::try_from(frame.unwrap()).unwrap()).unwrap();
        assert_eq!(place.samples(), count);
        assert!(place.lines().count >= 1.0 && place.lines().count <= count as f64);
    }
    // The event that only carries mappings has no samples.
    assert_eq!(
        profile.memory(1).map_or(0, |memory| memory.facts().samples),
        0
    );
}
