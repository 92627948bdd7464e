//! Recordings with bytes in the middle that are no records: everything before and behind them is read.

use dioptra_perfdata::{
    EventToWrite, FeaturesToWrite, PerfData, ReadSummary, WriteOptions, Writer, file_type,
};
use dioptra_perfrecords::record::RecordType;
use dioptra_perfrecords::{Attr, AttrFlags, SampleType};
use std::collections::BTreeSet;
use std::io::Cursor;
use std::ops::{ControlFlow, Range};

const SAMPLES: u64 = 5000;

/// A record of `kind`, 8 bytes of header and `words`.
fn record(kind: u32, words: &[u64]) -> Vec<u8> {
    let mut bytes = kind.to_ne_bytes().to_vec();
    bytes.extend(2_u16.to_ne_bytes());
    let size = u16::try_from(8 + 8 * words.len()).expect("a record's size");
    bytes.extend(size.to_ne_bytes());
    bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    bytes
}

fn event() -> EventToWrite {
    let fields = SampleType::IP | SampleType::TID | SampleType::TIME | SampleType::CALLCHAIN;
    EventToWrite {
        attr: Attr {
            kind: 1,
            sample_period: 1000,
            sample_type: fields,
            flags: AttrFlags::SAMPLE_ID_ALL,
            ..Attr::default()
        },
        name: "cpu-clock".into(),
        ids: vec![7],
    }
}

/// Samples of different lengths, a round after every hundred; as a file or as a pipe has them.
fn recording(pipe: bool) -> Vec<u8> {
    let (events, features) = ([event()], FeaturesToWrite::default());
    let mut bytes = Vec::new();
    if pipe {
        let writer = Writer::create_pipe(&mut bytes, &events, &features, WriteOptions::default());
        fill(writer.expect("a writer"));
    } else {
        let mut file = Cursor::new(&mut bytes);
        let writer = Writer::create(&mut file, &events, WriteOptions::default());
        fill(writer.expect("a writer"));
    }
    bytes
}

fn fill<W: std::io::Write>(mut writer: Writer<W>) {
    for index in 0..SAMPLES {
        let chain = index % 11;
        let mut words = vec![0x40_0000 + index, 5 << 32 | 5, 1_000_000 + index, chain];
        words.extend((0..chain).map(|depth| 0x7f00_0000_0000 + index * 16 + depth));
        writer.write(&record(9, &words)).expect("a sample");
        if index % 100 == 99 {
            writer.finished_round().expect("a round");
        }
    }
    writer.finish(&FeaturesToWrite::default()).expect("an end");
}

#[test]
fn a_file_that_is_truncated_while_it_is_read_is_read_so_far() {
    const LEFT: usize = 100_000;
    let bytes = recording(false);
    let whole = samples(&bytes).0;
    assert!(bytes.len() > 3 * LEFT, "{}", bytes.len());
    // Before the first record is read, and in the middle.
    for after in [0, 200, 900] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("perf.data");
        std::fs::write(&path, &bytes).expect("a file");
        let recording = PerfData::open(&path).expect("a recording");
        let truncate = || {
            let file = std::fs::OpenOptions::new().write(true).open(&path);
            file.and_then(|file| file.set_len(LEFT as u64))
                .expect("a cut");
        };
        if after == 0 {
            truncate();
        }
        let mut found = Vec::new();
        let summary = recording.read(|record| {
            if record.raw.kind == RecordType::SAMPLE {
                let start = record.offset as usize;
                found.push(start..start + 8 + record.raw.body.len());
                if found.len() == after {
                    truncate();
                }
            }
            ControlFlow::Continue(())
        });
        let rest = whole.iter().filter(|sample| sample.end <= LEFT);
        let rest: Vec<Range<usize>> = rest.cloned().collect();
        assert!(rest.len() > 900, "{}", rest.len());
        assert!(found.starts_with(&rest), "{after}");
        assert!(found.len() < whole.len(), "{after}");
        assert_eq!(summary.stopped_at, Some(LEFT as u64), "{after}");
        let mut damaged = summary.damaged.iter();
        let why = "the file was truncated while it was read";
        assert!(damaged.any(|damage| damage.why == why), "{summary:?}");
        assert!(summary.salvaged);
    }
}

/// Offsets and lengths of all samples, in the order in which they are passed on.
fn samples(bytes: &[u8]) -> (Vec<Range<usize>>, ReadSummary) {
    let recording = PerfData::from_bytes(bytes.to_vec()).expect("a recording");
    let mut found = Vec::new();
    let summary = recording.read(|record| {
        if record.raw.kind == RecordType::SAMPLE {
            let start = record.offset as usize;
            found.push(start..start + 8 + record.raw.body.len());
        }
        ControlFlow::Continue(())
    });
    (found, summary)
}

/// A name, and what gives one byte after the other.
type Filling = (&'static str, Box<dyn FnMut() -> u8>);

/// Returns bytes that a disk may leave in place of data.
fn fillings() -> [Filling; 4] {
    let mut state = 1_u64;
    let mut text = "the quick brown fox jumps over the lazy dog "
        .bytes()
        .cycle();
    [
        ("zeros", Box::new(|| 0)),
        ("ones", Box::new(|| 0xff)),
        (
            "noise",
            Box::new(move || {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 56) as u8
            }),
        ),
        ("text", Box::new(move || text.next().unwrap_or(0))),
    ]
}

#[test]
fn what_lies_around_damage_is_read() {
    for pipe in [false, true] {
        let whole = recording(pipe);
        let (before, summary) = samples(&whole);
        assert_eq!(before.len() as u64, SAMPLES);
        assert_eq!((summary.damages, summary.skipped_bytes), (0, 0));
        for (what, mut filling) in fillings() {
            for (start, length) in [
                (30_000, 8),
                (50_003, 1000),
                (100_000, 70_001),
                (200_004, 16),
            ] {
                let what = format!("{length} bytes of {what} at {start}, pipe: {pipe}");
                let damaged = start..start + length;
                let mut bytes = whole.clone();
                bytes[damaged.clone()].fill_with(&mut filling);
                let (after, summary) = samples(&bytes);
                let after: BTreeSet<_> = after.iter().map(|place| place.start).collect();
                let intact = before
                    .iter()
                    .filter(|place| place.end <= damaged.start || place.start >= damaged.end);
                for place in intact {
                    assert!(after.contains(&place.start), "{what}: none at {place:?}");
                }
                assert!(summary.skipped_bytes as usize <= length + 2 * 120, "{what}");
                assert_eq!(summary.stopped_at, None, "{what}");
                // A few bytes may hit a sample's fields only, of which nothing tells.
                if length > 200 {
                    assert!(summary.out_of_order <= 1, "{what}: {summary:?}");
                    assert!(summary.damages > 0, "{what}");
                    let first = &summary.damaged[0];
                    assert!(first.offset as usize >= start - 120, "{what}: {first:?}");
                    assert!(first.why.contains("no records"), "{what}: {first:?}");
                }
            }
        }
    }
}

/// A record of a type that nobody knows yet is no damage.
#[test]
fn records_of_a_perf_to_come_are_passed_on() {
    let mut bytes = Vec::new();
    let (events, features) = ([event()], FeaturesToWrite::default());
    let mut writer = Writer::create_pipe(&mut bytes, &events, &features, WriteOptions::default())
        .expect("a writer");
    for index in 0..20 {
        let kind = if index % 5 == 4 { 1000 + index } else { 9 };
        let words = [0x1000, 5 << 32 | 5, 1_000_000 + u64::from(index), 0];
        writer.write(&record(kind, &words)).expect("a record");
    }
    writer.finished_round().expect("a round");
    writer.finish(&features).expect("an end");
    let recording = PerfData::from_bytes(bytes).expect("a recording");
    let mut unknown = 0;
    let summary = recording.read(|record| {
        unknown += u64::from(record.raw.kind.0 >= 1000);
        ControlFlow::Continue(())
    });
    assert_eq!((unknown, summary.skipped), (4, 4));
    assert_eq!(summary.records.get(RecordType::SAMPLE), 16);
    assert_eq!(summary.records.get(file_type::FINISHED_ROUND), 1);
    assert_eq!((summary.damages, summary.skipped_bytes), (0, 0));
}

/// Nothing but headers of types that nobody writes: one search finds that there is nothing, the walk goes on.
#[test]
fn a_search_for_records_is_made_once() {
    let mut bytes = Vec::new();
    let (events, features) = ([event()], FeaturesToWrite::default());
    let writer = Writer::create_pipe(&mut bytes, &events, &features, WriteOptions::default());
    drop(writer.expect("a writer"));
    let count = 400_000;
    for _ in 0..count {
        bytes.extend(record(0xdead_beef, &[]));
    }
    let (found, summary) = samples(&bytes);
    assert_eq!(found, []);
    assert_eq!(summary.skipped, count);
}
