//! A pipe that is read while it is written gives the records of the same pipe when it is complete, in the same order.

use dioptra_perfdata::{
    EventToWrite, FeaturesToWrite, LiveRecords, OpenError, PerfData, WriteOptions, Writer,
    is_file_type,
};
use dioptra_perfrecords::{Attr, AttrFlags, SampleType};
use std::io::Read;
use std::ops::ControlFlow;

/// A generator of numbers that are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// A pipe that gives its bytes in pieces of any size.
struct Pieces<'a> {
    rest: &'a [u8],
    numbers: Numbers,
    most: u64,
}

impl Read for Pieces<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let length = 1 + self.numbers.below(self.most) as usize;
        let length = length.min(self.rest.len()).min(into.len());
        let (now, rest) = self.rest.split_at(length);
        into[..length].copy_from_slice(now);
        self.rest = rest;
        Ok(length)
    }
}

fn record(kind: u32, words: &[u64]) -> Vec<u8> {
    let mut bytes = kind.to_ne_bytes().to_vec();
    bytes.extend(0_u16.to_ne_bytes());
    bytes.extend((8 + 8 * words.len() as u16).to_ne_bytes());
    bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    bytes
}

/// Writes a recording of two events on three CPUs. Each round continues each CPU's times where the last one ended, and the
/// CPUs are read one after the other, so that a later CPU's records are younger than those that an earlier one still has.
fn pipe(seed: u64) -> Vec<u8> {
    const IDS: [u64; 2] = [21, 22];
    let mut attr = Attr {
        sample_type: SampleType::IDENTIFIER | SampleType::IP | SampleType::TIME,
        flags: AttrFlags::SAMPLE_ID_ALL,
        ..Attr::default()
    };
    attr.sample_period = 1;
    let events = IDS.map(|id| EventToWrite {
        attr: attr.clone(),
        name: format!("event-{id}"),
        ids: vec![id],
    });
    let features = FeaturesToWrite {
        os_release: Some("6.1.0".to_owned()),
        ..FeaturesToWrite::default()
    };
    let mut bytes = Vec::new();
    let options = WriteOptions::default();
    let mut writer = Writer::create_pipe(&mut bytes, &events, &features, options).unwrap();
    let mut numbers = Numbers(seed);
    let mut clock = 1_000;
    let mut times = [0_u64; 3];
    for round in 0..40 {
        for time in &mut times {
            // The ring is read while time passes.
            clock += 1 + numbers.below(300);
            *time = (*time).max(clock.saturating_sub(400));
            while numbers.below(20) != 0 && *time < clock {
                let id = IDS[numbers.below(2) as usize];
                // SAMPLE: id, address, time. LOST: id, number, then time and id. A record without a time is made up.
                let bytes = match numbers.below(12) {
                    0 => record(2, &[id, 3, *time, id]),
                    1 if round == 0 => record(2, &[id, 1, 0, id]),
                    _ => record(9, &[id, numbers.below(1 << 40), *time]),
                };
                writer.write(&bytes).unwrap();
                *time += 1 + numbers.below(40);
            }
        }
        writer.finished_round().unwrap();
    }
    writer.finish(&features).unwrap();
    bytes
}

/// Offset, time, event and body of each record of the kernel.
type Seen = (u64, Option<u64>, Option<usize>, Vec<u8>);

#[test]
fn records_come_as_from_the_complete_pipe() {
    for seed in 0..12 {
        let bytes = pipe(seed);
        let whole = PerfData::from_bytes(bytes.clone()).unwrap();
        let mut expected: Vec<Seen> = Vec::new();
        let summary = whole.read(|record| {
            if !is_file_type(record.raw.kind) {
                let body = record.raw.body.to_vec();
                expected.push((record.offset, record.time, record.event, body));
            }
            ControlFlow::Continue(())
        });
        assert!(expected.len() > 100, "{} records", expected.len());
        for most in [1, 7, 100, 5_000, 1 << 20] {
            let mut pipe = Pieces {
                rest: &bytes,
                numbers: Numbers(seed + most),
                most,
            };
            let (recording, mut records) = LiveRecords::open(&mut pipe).unwrap();
            assert_eq!(recording.events(), whole.events());
            assert_eq!(recording.features().os_release, whole.features().os_release);
            let mut seen: Vec<Seen> = Vec::new();
            let mut take = |record: dioptra_perfdata::FileRecord<'_>| {
                if !is_file_type(record.raw.kind) {
                    let body = record.raw.body.to_vec();
                    seen.push((record.offset, record.time, record.event, body));
                }
            };
            while records.read_from(&mut pipe, &recording, &mut take).unwrap() {}
            assert!(seen == expected, "seed {seed}, pieces of {most}");
            let live = records.summary();
            assert_eq!(live.samples, summary.samples);
            assert_eq!(
                (live.lost, live.out_of_order),
                (summary.lost, summary.out_of_order)
            );
            assert!(live.damaged.is_empty() && live.stopped_at.is_none());
        }
    }
}

#[test]
fn a_pipe_that_ends_early_is_damage_and_no_error() {
    let bytes = pipe(7);
    let mut short = &bytes[..bytes.len() - 60];
    let (recording, mut records) = LiveRecords::open(&mut short).unwrap();
    let mut count = 0;
    while records
        .read_from(&mut short, &recording, |_| count += 1)
        .unwrap()
    {}
    assert!(count > 100 && records.summary().salvaged, "{count} records");
}

#[test]
fn what_is_no_recording_is_refused() {
    let error = |mut bytes: &[u8]| LiveRecords::open(&mut bytes).unwrap_err();
    assert!(matches!(error(b""), OpenError::Empty { .. }));
    assert!(matches!(
        error(b"samples, but of text"),
        OpenError::NotPerfData { .. }
    ));
}
