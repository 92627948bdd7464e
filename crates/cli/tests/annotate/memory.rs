//! Memory samples at known instructions: the views of instructions and of their functions equal the written samples.

use super::support::{ID, Records, attr, event};
use super::trace::listing;
use super::{annotated, functions, list, number, shown};
use dioptra_perfevents::SampleType;
use dioptra_testprograms::{self as programs, or_skip};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// `PERF_MEM_OP_LOAD`, `PERF_MEM_LVL_HIT`, and L1 or L3.
const L1: u64 = 2 | (2 | 8) << 5;
const L3: u64 = 2 | (2 | 64) << 5;
const LINE: u64 = 64;
const PAGE: u64 = 4096;

/// The memory samples that were written for some instructions.
#[derive(Clone, Debug, Default, PartialEq)]
struct Expected {
    latencies: Vec<u64>,
    sources: BTreeMap<u64, u64>,
    lines: BTreeSet<u64>,
    pages: BTreeSet<u64>,
}

impl Expected {
    fn add(&mut self, latency: u64, source: u64, address: u64) {
        self.latencies.push(latency);
        *self.sources.entry(source).or_default() += 1;
        self.lines.insert(address / LINE);
        self.pages.insert(address / PAGE);
    }

    fn merge(&mut self, other: &Expected) {
        self.latencies.extend(&other.latencies);
        for (source, samples) in &other.sources {
            *self.sources.entry(*source).or_default() += samples;
        }
        self.lines.extend(&other.lines);
        self.pages.extend(&other.pages);
    }

    fn check(&self, found: &Value, what: &str) {
        assert_eq!(
            number(&found["samples"]),
            self.latencies.len() as u64,
            "{what}"
        );
        let latency = &found["latency"];
        let told: Vec<u64> = self
            .latencies
            .iter()
            .copied()
            .filter(|one| *one > 0)
            .collect();
        assert_eq!(number(&latency["samples"]), told.len() as u64, "{what}");
        assert_eq!(number(&latency["sum"]), told.iter().sum::<u64>(), "{what}");
        assert_eq!(
            latency["min"].as_u64(),
            told.iter().min().copied(),
            "{what}"
        );
        assert_eq!(
            latency["max"].as_u64(),
            told.iter().max().copied(),
            "{what}"
        );
        let mean = told.iter().sum::<u64>() as f64 / told.len() as f64;
        let found_mean = latency["mean"].as_f64().expect("a mean");
        assert!((found_mean - mean).abs() < 1e-9, "{what}");
        let sources: BTreeMap<u64, u64> = list(found, "sources")
            .iter()
            .map(|source| (number(&source["word"]), number(&source["samples"])))
            .collect();
        assert_eq!(sources, self.sources, "{what}");
        assert_eq!(found["cache_lines"], self.lines.len() as f64, "{what}");
        assert_eq!(found["pages"], self.pages.len() as f64, "{what}");
    }
}

#[test]
fn memory_samples_are_those_of_each_instruction_and_function() {
    or_skip!(programs::need_tool("objdump"));
    let program = or_skip!(programs::c("shares", &[]));
    let code = listing(&program);
    const START: u64 = 0x5555_0000_0000;
    let mut records = Records::default();
    records.comm(5, 5, true, "shares");
    records.map(5, START, 0x10_0000, 0, program.to_str().expect("UTF-8"));
    let mut by_function: BTreeMap<&str, BTreeMap<u64, Expected>> = BTreeMap::new();
    let sampled = ["sixty", "thirty", "ten"];
    let places = code
        .iter()
        .filter(|(_, listed)| sampled.contains(&listed.function.as_str()));
    for (number, (address, listed)) in (0_u64..).zip(places) {
        // One in three has no samples; the others have up to six, some of them without a latency.
        for sample in 0..number % 3 * 3 {
            let latency = match sample {
                2 => 0,
                _ => 4 + 7 * number + 100 * sample,
            };
            let source = if (number + sample) % 4 == 0 { L3 } else { L1 };
            // Functions share lines, samples of an instruction now and then.
            let data = 0x7f00_0000_0000 + (number % 8) * PAGE + (sample / 2) * LINE + sample;
            let ip = START + address;
            records.sample(ID, (5, 5), ip, 1, &[latency, source]);
            // The address stands before the id of the stream and the period.
            let record = records.list.last_mut().expect("a record");
            let at = 8 + 8 + 8 + 8 + 8;
            record.splice(at..at, data.to_ne_bytes());
            let size = u16::try_from(record.len()).expect("short");
            record[6..8].copy_from_slice(&size.to_ne_bytes());
            let places = by_function.entry(&listed.function).or_default();
            places
                .entry(*address)
                .or_default()
                .add(latency, source, data);
        }
    }
    let fields = SampleType::ADDR | SampleType::WEIGHT | SampleType::DATA_SRC;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("perf.data");
    std::fs::write(
        &file,
        records.file(&[event("mem-loads", attr(fields), &[ID])]),
    )
    .expect("written");

    assert_eq!(by_function.len(), 3);
    for (function, places) in &by_function {
        let json = annotated(function, &file);
        let instructions = list(&json, "instructions");
        let memory = &json["memory"];
        let mut whole = Expected::default();
        let mut seen = BTreeSet::new();
        for place in list(memory, "places") {
            let at = &instructions[number(&place["place"]) as usize];
            let address = number(&at["address"]);
            places[&address].check(place, &format!("{function} {address:#x}"));
            assert_eq!(place["samples"], at["counts"][0]["samples"]);
            whole.merge(&places[&address]);
            seen.insert(address);
        }
        assert_eq!(seen, places.keys().copied().collect());
        whole.check(&memory["function"], function);
        let samples = whole.latencies.len() as u64;
        assert_eq!(samples, number(&json["events"][0]["function"]["samples"]));
        // The same as text.
        let text = shown("annotate", &[function], &file);
        assert!(
            text.contains(&format!("{samples} memory samples of mem-loads")),
            "{text}"
        );
        let l1 = whole.sources[&L1];
        assert!(text.contains(&format!(", {l1} L1 hit")), "{text}");
    }
    let recorded = super::Recorded { folder, file };
    let reported: BTreeMap<String, u64> = functions(&recorded, "shares").into_iter().collect();
    for (function, places) in &by_function {
        let samples: usize = places.values().map(|place| place.latencies.len()).sum();
        assert_eq!(reported[*function], samples as u64, "{function}");
    }
}
