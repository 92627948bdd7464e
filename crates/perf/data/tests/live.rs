//! A pipe that is read while it is written gives the records of the same pipe when it is complete, in the same order.

use dioptra_perfdata::{
    EventToWrite, Features, FeaturesToWrite, FileRecord, LiveRecords, OpenError, PerfData,
    ReadSummary, Streamed, WriteOptions, Writer, is_file_type,
};
use dioptra_perfrecords::record::RawRecord;
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
    pipe_with(seed, WriteOptions::default())
}

fn pipe_with(seed: u64, options: WriteOptions) -> Vec<u8> {
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

/// The records of the kernel, and the summary and description of the whole.
type Outcome = (Vec<Seen>, ReadSummary, Features);

/// Reads a complete pipe, as a file is read.
fn read_whole(bytes: &[u8]) -> Outcome {
    let whole = PerfData::from_bytes(bytes.to_vec()).unwrap();
    let mut seen = Vec::new();
    let summary = whole.read(|record| {
        keep(&mut seen, &record);
        ControlFlow::Continue(())
    });
    (seen, summary, whole.features().clone())
}

fn keep(seen: &mut Vec<Seen>, record: &FileRecord<'_>) {
    if !is_file_type(record.raw.kind) {
        let body = record.raw.body.to_vec();
        seen.push((record.offset, record.time, record.event, body));
    }
}

/// Reads a pipe that comes in pieces, and waits for its end at the record with this number.
fn read_pieces(bytes: &[u8], seed: u64, wait_at: u64) -> Outcome {
    let mut numbers = Numbers(seed);
    let most = match bytes.len() {
        0..1_000_000 => [1, 7, 300, 5_000, 1 << 20][numbers.below(5) as usize],
        _ => 1 << 20,
    };
    let mut pipe = Pieces {
        rest: bytes,
        numbers,
        most,
    };
    let opened = Streamed::open(&mut pipe).unwrap();
    let Streamed::Pipe(recording, records) = opened else {
        panic!("not a pipe");
    };
    let mut seen = Vec::new();
    let mut count = 0;
    let needs_rest = |_: &RawRecord<'_>| {
        count += 1;
        count == wait_at
    };
    let read = records.read_to_end(&mut pipe, &recording, needs_rest, |record| {
        keep(&mut seen, &record);
    });
    let (summary, features) = read.unwrap();
    (seen, summary, features)
}

fn assert_equal(pieces: &Outcome, whole: &Outcome, what: &str) {
    assert_eq!(pieces.1, whole.1, "{what}");
    assert!(pieces.0 == whole.0, "{what}: other records");
    assert!(pieces.2 == whole.2, "{what}: another description");
}

#[test]
fn a_pipe_that_is_read_to_its_end_gives_what_the_complete_pipe_gives() {
    for seed in 0..40 {
        let compression = (seed % 2 == 1).then_some(3);
        let bytes = pipe_with(seed, WriteOptions { compression });
        let whole = read_whole(&bytes);
        assert!(whole.0.len() > 100, "{} records", whole.0.len());
        for wait_at in [0, 1, 2, 77, 500] {
            let pieces = read_pieces(&bytes, seed + wait_at, wait_at);
            assert_equal(&pieces, &whole, &format!("seed {seed}, waits at {wait_at}"));
        }
    }
}

#[test]
fn a_damaged_pipe_gives_what_the_complete_damaged_pipe_gives() {
    let mut numbers = Numbers(1);
    let mut damaged = 0;
    for seed in 0..300 {
        let compression = (seed % 3 == 2).then_some(3);
        let mut bytes = pipe_with(seed % 7, WriteOptions { compression });
        let length = bytes.len() as u64;
        match seed % 4 {
            // Cut off anywhere behind the header.
            0 => bytes.truncate(16 + numbers.below(length - 16) as usize),
            // Bytes that are no records.
            1 => {
                let at = 16 + numbers.below(length - 16) as usize;
                let end = (at + 1 + numbers.below(200) as usize).min(bytes.len());
                bytes[at..end].fill_with(|| numbers.below(256) as u8);
            }
            // The messages of perf at its end.
            2 => bytes.extend_from_slice(b"[ perf record: Woken up 1 times to write data ]\n"),
            _ => {
                let at = 16 + numbers.below(length - 16) as usize;
                bytes[at] ^= 1 << numbers.below(8);
            }
        }
        // The descriptions of events tell where the data begins: others change what is read as damage.
        let Ok(whole) = PerfData::from_bytes(bytes.clone()) else {
            continue;
        };
        if whole.events().len() != 2 || whole.events().iter().any(|event| event.ids.len() != 1) {
            continue;
        }
        let whole = read_whole(&bytes);
        damaged += usize::from(whole.1.damages > 0 || whole.1.message_bytes > 0);
        let pieces = read_pieces(&bytes, seed, 0);
        assert_equal(&pieces, &whole, &format!("seed {seed}"));
    }
    assert!(damaged > 100, "{damaged} were damaged");
}

/// A pipe without ends of rounds is read in order, too.
#[test]
fn a_long_pipe_without_rounds_is_put_in_order() {
    let bytes = pipe(3);
    let mut joined = Vec::new();
    let recording = PerfData::from_bytes(bytes.clone()).unwrap();
    let mut start = None;
    recording.read(|record| {
        if !is_file_type(record.raw.kind) {
            let offset = record.offset as usize;
            let first = *start.get_or_insert(offset);
            start = Some(first.min(offset));
        }
        ControlFlow::Continue(())
    });
    let head = &bytes[..start.unwrap()];
    joined.extend_from_slice(head);
    // More than may be held: each block is older than the one before.
    let mut time = 1_u64 << 40;
    while joined.len() < 68 << 20 {
        time -= 100_000;
        for index in 0..100 {
            let mut words = vec![21, index, time + index];
            words.resize(1000, 0);
            joined.extend(record(9, &words));
        }
    }
    let whole = read_whole(&joined);
    assert_eq!(whole.1.out_of_order, 0);
    assert_equal(&read_pieces(&joined, 4, 0), &whole, "without rounds");
}

#[test]
fn a_file_that_comes_as_a_stream_is_read_whole() {
    let mut file = std::io::Cursor::new(Vec::new());
    let event = EventToWrite {
        attr: Attr::default(),
        name: "event".to_owned(),
        ids: vec![1],
    };
    let features = FeaturesToWrite::default();
    let writer = Writer::create(&mut file, &[event], WriteOptions::default()).unwrap();
    writer.finish(&features).unwrap();
    let mut bytes: &[u8] = file.get_ref();
    let opened = Streamed::open(&mut bytes).unwrap();
    assert!(matches!(opened, Streamed::Whole(recording) if recording.events().len() == 1));
    for text in [&b""[..], b"PERFILE2", b"samples, but of text"] {
        let mut bytes = text;
        assert!(Streamed::open(&mut bytes).is_err());
    }
}
