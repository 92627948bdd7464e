//! Records written and read again, for hostile bytes.

use dioptra_perfdata::{
    EventToWrite, FeaturesToWrite, PerfData, WriteOptions, Writer, is_file_type,
};
use dioptra_perfrecords::record::RawRecord;
use dioptra_perfrecords::{Attr, ByteOrder};
use std::io::Cursor;
use std::ops::ControlFlow;

/// Writes the records that `bytes` hold behind an attr: what is read again are the same records.
///
/// The first byte chooses compression, the next 128 are the attr.
pub fn rewrite(bytes: &[u8]) {
    let Some((choice, bytes)) = bytes.split_first() else {
        return;
    };
    let Some((attr, mut records)) = bytes.split_at_checked(128) else {
        return;
    };
    let Some(attr) = Attr::from_bytes(attr, ByteOrder::NATIVE) else {
        return;
    };
    let events = [EventToWrite {
        attr,
        name: "event".into(),
        ids: vec![1, 2],
    }];
    let options = WriteOptions {
        compression: (choice & 1 != 0).then_some(1),
    };
    let mut file = Cursor::new(Vec::new());
    let mut writer = Writer::create(&mut file, &events, options).expect("a writer in memory");
    let mut written = Vec::new();
    while let Ok((raw, rest)) = RawRecord::split(records, ByteOrder::NATIVE) {
        let record = &records[..records.len() - rest.len()];
        records = rest;
        // perf's own types have data behind them, or are read as compressed: the recorder writes none of those. The
        // kernel's have a type and fill whole words; what does not may be taken for damage.
        if is_file_type(raw.kind) || raw.kind.0 == 0 || record.len() % 8 != 0 {
            continue;
        }
        writer.write(record).expect("a record");
        written.push(record);
        if choice & 2 != 0 && written.len() % 5 == 0 {
            writer.finished_round().expect("a round");
        }
    }
    writer.add_ids(0, &[2, 3]).expect("an event");
    writer.finish(&FeaturesToWrite::default()).expect("an end");

    let recording = PerfData::from_bytes(file.into_inner()).expect("what was written");
    assert_eq!(recording.events()[0].ids, [1, 2, 3]);
    let mut read = Vec::new();
    let summary = recording.read(|record| {
        if !is_file_type(record.raw.kind) {
            let mut bytes = record.raw.kind.0.to_ne_bytes().to_vec();
            bytes.extend(record.raw.misc.0.to_ne_bytes());
            bytes.extend((8 + record.raw.body.len() as u16).to_ne_bytes());
            bytes.extend(record.raw.body);
            read.push(bytes);
        }
        ControlFlow::Continue(())
    });
    assert!(!summary.salvaged, "{summary:?}");
    // In the order of time they may stand elsewhere.
    read.sort();
    written.sort();
    assert!(
        read.iter().eq(written.iter()),
        "{} of {}",
        read.len(),
        written.len()
    );
}
