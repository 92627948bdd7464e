//! Memory samples, checked against perf.

mod support;

use dioptra_perfdata::PerfData;
use dioptra_perfrecords::{Attr, SampleType};
use dioptra_profile::memory::{DataSource, Latency};
use dioptra_profile::{LoadOptions, LoadPlan, Profile, Selection};
use dioptra_testprograms::{self as programs, need_shared_data, or_skip};
use std::collections::BTreeMap;
use std::process::Command;
use support::{ID, text, two, word};

/// Samples of loads with their latency and data source, by instruction and by source.
#[test]
fn latencies_and_sources_are_perfs() {
    or_skip!(programs::need_tool("perf"));
    let path = or_skip!(need_shared_data("perfdata/perf.data.weight_struct"));
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

/// Every field of a memory sample, of values that are known.
#[test]
fn fields_add_up_by_instruction() {
    let fields = SampleType::ADDR
        | SampleType::WEIGHT_STRUCT
        | SampleType::DATA_SRC
        | SampleType::PHYS_ADDR
        | SampleType::DATA_PAGE_SIZE
        | SampleType::CODE_PAGE_SIZE;
    let attr = Attr {
        sample_type: SampleType::IDENTIFIER | SampleType::IP | SampleType::TID | fields,
        ..support::attr(SampleType::empty())
    };
    let mut records = support::Records::default();
    let map = [
        word(0x1000),
        word(0x1000),
        word(0),
        text("/nonexistent/it"),
        // The ids at the end.
        two(5, 5),
        word(ID),
    ];
    records.push(1, 2, &[&two(5, 5), &map.concat()]);
    let load = 2 | 2 << 5 | 1 << 33;
    let store = 4;
    // Instruction, data, weight, source, physical address, page sizes.
    for (ip, data, weight, source, physical, page) in [
        (0x1010, 0x7000, 40 | 300 << 32 | 7 << 48, load, 0x9000, 4096),
        (0x1010, 0x7020, 10 | 200 << 32, load, 0x9020, 4096),
        // Another mapping of the same line.
        (0x1010, 0xf_7020, 1024 | 100 << 32, store, 0x9020, 1 << 21),
        (0x1010, 0, 0, 0, 0, 0),
        (0x1020, 0x7040, 5, load, 0, 4096),
        (0x1020, 0x7080, 6, load, 0, 4096),
    ] {
        let words = [
            word(ID),
            word(ip),
            two(5, 5),
            word(data),
            word(weight),
            word(source),
        ];
        let rest = [word(physical), word(page), word(4096)];
        records.push(9, 2, &[&words.concat(), &rest.concat()]);
    }
    let plan = LoadPlan {
        memory: true,
        options: LoadOptions {
            threads: true,
            ..LoadOptions::default()
        },
        ..LoadPlan::default()
    };
    let profile = records.load_with(&[support::event("loads", attr, &[ID])], &plan);
    let memory = profile.memory(0).unwrap();
    let facts = memory.facts();
    assert_eq!((facts.samples, facts.addresses, facts.physical), (6, 5, 3));
    assert_eq!((facts.weights, facts.sources, facts.page_sizes), (5, 5, 5));
    let places = memory.places();
    let [(_, first), (_, second)] = places[..] else {
        panic!("two instructions");
    };
    assert_eq!((first.samples(), second.samples()), (4, 2));
    let latency = first.latency();
    assert_eq!((latency.samples, latency.count), (4, 3));
    assert_eq!((latency.sum, latency.min, latency.max), (1074, 10, 1024));
    // 10 lies in 8..16, 40 in 32..64, 1024 in 1024..2048.
    let mut log2 = vec![0; 11];
    (log2[3], log2[5], log2[10]) = (1, 1, 1);
    assert_eq!(latency.log2, log2);
    let whole = first.instruction_latency();
    assert_eq!((whole.count, whole.sum), (3, 600));
    assert_eq!(first.stage_latency().sum, 7);
    let sources = first.sources();
    assert_eq!((sources[0].0.0, sources[0].1.sum), (load, 50));
    assert_eq!(sources.len(), 3);
    // By physical address it has one line and, with two page sizes, two pages. Without physical addresses the virtual
    // ones count.
    assert_eq!((first.lines().count, first.pages().count), (1.0, 2.0));
    assert_eq!((second.lines().count, second.pages().count), (2.0, 1.0));
    assert_eq!(first.data_page_sizes(), [(4096, 2), (1 << 21, 1)]);
    assert_eq!(first.code_page_sizes(), [(4096, 4)]);

    // A selection of places keeps their memory samples; a selection of threads drops all of them.
    assert_eq!(profile.dropped(), Default::default());
    let second_frame = places[1].0;
    let leaves = (0..profile.frames().len() as u32).map(|frame| frame == second_frame);
    let of_place = Selection {
        leaves: Some(leaves.collect()),
        ..Selection::default()
    };
    let selected = profile.select(&of_place).unwrap();
    let mut retained = profile.clone();
    retained.retain_samples(|frame| frame == second_frame);
    for narrowed in [selected, retained] {
        assert!(!narrowed.dropped().memory);
        let memory = narrowed.memory(0).unwrap();
        assert_eq!(memory.places().len(), 1);
        assert_eq!(memory.at(second_frame).unwrap().latency().sum, 11);
        let facts = memory.facts();
        assert_eq!(facts.samples, narrowed.events()[0].total().samples);
        assert_eq!((facts.samples, facts.addresses, facts.physical), (2, 2, 0));
        assert_eq!((facts.weights, facts.sources, facts.page_sizes), (2, 2, 2));
    }
    let everything = profile.select(&Selection::default()).unwrap();
    assert_eq!(everything.memory(0).unwrap().facts(), memory.facts());
    let of_thread = Selection {
        tids: vec![5],
        ..Selection::default()
    };
    let narrowed = profile.select(&of_thread).unwrap();
    assert!(narrowed.memory(0).is_none() && narrowed.dropped().memory);
    assert!(!narrowed.dropped().branches, "there were none");
}
