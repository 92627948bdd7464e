//! Traces whole, cut off, damaged and hostile.

use super::*;
use crate::TraceWriter;
use crate::fixture::info;
use dioptra_tracelayout::ChunkHeader;
use dioptra_tracelayout::{Encoder, Record, chunk};
use std::fs::OpenOptions;

/// Writes a trace of two streams of three chunks each, with a call of function `stream` in each chunk.
fn write(folder: &Path) {
    let mut writer = TraceWriter::create(folder, &info()).unwrap();
    let entry = |place| FunctionEntry {
        module: 1,
        kind: FunctionKind::LibraryCall,
        method: 7,
        place,
        size: 3,
    };
    writer.names(b"onetwo").unwrap();
    writer.functions(&[entry(0), entry(3)]).unwrap();
    let clock = ClockPair {
        ticks: 3000,
        monotonic: 3000,
    };
    writer.journal(&JournalEntry::Clock(clock)).unwrap();
    for sequence in 0..3 {
        for stream in 1..3 {
            if sequence == 0 {
                let thread = JournalEntry::Thread {
                    stream,
                    pid: 7,
                    tid: 7 + stream,
                    name: format!("t{stream}"),
                    parent: 0,
                };
                writer.journal(&thread).unwrap();
            }
            let header = ChunkHeader {
                magic: chunk::MAGIC,
                version: VERSION,
                stream,
                sequence,
                base: 500,
                lost: 1,
                ..ChunkHeader::default()
            };
            let mut body = [0; 6];
            let mut encoder = Encoder::new(&mut body, 0, 500);
            encoder.entry(501, stream).unwrap();
            encoder.exit(502).unwrap();
            writer.chunk(header, &body).unwrap();
        }
    }
}

fn records(trace: &Trace, stream: usize) -> usize {
    let chunks = trace.chunks(&trace.streams()[stream]);
    chunks
        .map(|chunk| {
            dioptra_tracelayout::Decoder::new(chunk.records, chunk.header.base)
                .filter(|record| matches!(record, Ok(Record::Entry { .. } | Record::Exit { .. })))
                .count()
        })
        .sum()
}

#[test]
fn a_trace_is_read_as_it_was_written() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("t");
    write(&folder);
    let trace = Trace::open(&folder).unwrap();
    assert_eq!(trace.damage(), []);
    assert_eq!(trace.streams().len(), 2);
    let stream = &trace.streams()[1];
    assert_eq!((stream.stream, stream.tid, stream.lost), (2, 9, 3));
    assert_eq!(stream.name, "t2");
    assert_eq!(records(&trace, 1), 6);
    let name = |id| trace.library_call_name(&trace.function(id));
    assert_eq!(name(1), Some(&b"one"[..]));
    assert_eq!(name(2), Some(&b"two"[..]));
    assert_eq!(name(3), None);
    assert_eq!(trace.clock().cursor().monotonic(2000), 2500);
}

#[test]
fn what_is_cut_off_is_told_and_the_rest_read() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("t");
    write(&folder);
    let cut = |name: &str, by: u64| {
        let path = folder.join(name);
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        let size = file.metadata().unwrap().len();
        file.set_len(size - by).unwrap();
    };
    cut(JOURNAL, 2);
    cut(FUNCTIONS, 1);
    cut(RECORDS, 4);
    let trace = Trace::open(&folder).unwrap();
    let files: Vec<&str> = trace.damage().iter().map(|damage| damage.file).collect();
    assert_eq!(files, [JOURNAL, FUNCTIONS, RECORDS]);
    assert_eq!(trace.function(2), FunctionEntry::NONE);
    // The thread's line was cut off. Its chunks are there, and the entry of the last one.
    assert_eq!(trace.streams()[1].name, "");
    assert_eq!((records(&trace, 0), records(&trace, 1)), (6, 5));
}

#[test]
fn damaged_chunks_are_passed_over() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("t");
    write(&folder);
    let path = folder.join(RECORDS);
    let mut bytes = fs::read(&path).unwrap();
    bytes[2 * 72] ^= 0xff;
    fs::write(&path, bytes).unwrap();
    let trace = Trace::open(&folder).unwrap();
    assert_eq!((records(&trace, 0), records(&trace, 1)), (4, 6));
    let told: Vec<String> = trace.damage().iter().map(TraceDamage::to_string).collect();
    assert_eq!(
        told,
        [
            "records at byte 144: bytes that are no chunk; 72 bytes were passed over",
            "records at byte 288: chunk 2 of stream 1 follows chunk 0 of it"
        ]
    );
}

#[test]
fn what_is_no_trace_is_refused_with_the_reason() {
    let parent = tempfile::tempdir().unwrap();
    let error = Trace::open(parent.path()).unwrap_err().to_string();
    assert!(error.contains("there is no trace"), "{error}");
    fs::write(parent.path().join("info"), "Ftrace!").unwrap();
    fs::write(parent.path().join("task.txt"), "").unwrap();
    let error = Trace::open(parent.path()).unwrap_err().to_string();
    assert!(error.contains("uftrace"), "{error}");
    let newer = TraceInfo {
        layout: VERSION + 1,
        ..info()
    };
    fs::write(
        parent.path().join(INFO),
        serde_json::to_vec(&newer).unwrap(),
    )
    .unwrap();
    let error = Trace::open(parent.path()).unwrap_err().to_string();
    assert!(error.contains("layout 2"), "{error}");
}

#[test]
fn a_trace_that_is_truncated_while_it_is_read_says_so() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("t");
    write(&folder);
    let trace = Trace::open(&folder).unwrap();
    assert!(trace.truncated().is_empty());
    let file = OpenOptions::new().write(true).open(folder.join(RECORDS));
    file.unwrap().set_len(100).unwrap();
    for stream in trace.streams() {
        assert!(trace.chunks(stream).count() <= 3);
    }
    let truncated = trace.truncated();
    assert_eq!(truncated.len(), 1);
    assert_eq!((truncated[0].file, truncated[0].offset), (RECORDS, 100));
}

proptest::proptest! {
    #[test]
    fn any_records_are_indexed(
        bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400),
        flips in proptest::collection::vec((0..432_usize, proptest::prelude::any::<u8>()), 0..10),
    ) {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("t");
        write(&folder);
        let path = folder.join(RECORDS);
        let mut records = fs::read(&path).unwrap();
        for (at, byte) in flips {
            if let Some(place) = records.get_mut(at) {
                *place = byte;
            }
        }
        records.extend(bytes);
        fs::write(&path, &records).unwrap();
        let trace = Trace::open(&folder).unwrap();
        for stream in trace.streams() {
            for chunk in trace.chunks(stream) {
                let decoder = dioptra_tracelayout::Decoder::new(chunk.records, chunk.header.base);
                proptest::prop_assert!(decoder.count() <= records.len());
            }
        }
    }
}
