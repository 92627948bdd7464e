//! The saved inputs of the fuzz target again, with its assertions.

use dioptra_perfrecords::record::{RawRecord, Record, RecordLayout};
use dioptra_perfrecords::{Attr, ByteOrder};
use std::path::Path;

/// Reads the inputs of a target.
fn inputs(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    let inputs: Vec<Vec<u8>> = std::fs::read_dir(&folder)
        .expect("a corpus")
        .map(|entry| std::fs::read(entry.expect("an entry").path()).expect("an input"))
        .collect();
    assert!(!inputs.is_empty(), "{}", folder.display());
    inputs
}

#[test]
fn saved_records_end_within_their_bytes() {
    for input in inputs("records") {
        let Some((attr, mut rest)) = input.split_at_checked(Attr::MAX_SIZE) else {
            continue;
        };
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let Some(attr) = Attr::from_bytes(attr, order) else {
                continue;
            };
            let layout = RecordLayout::new(&attr, order);
            while let Ok((record, after)) = RawRecord::split(rest, order) {
                assert_eq!(record.body.len() + 8 + after.len(), rest.len());
                let _ = (
                    layout.event_id(&record),
                    layout.time(&record),
                    layout.thread(&record),
                );
                if let Ok(Record::Sample(sample)) = layout.parse(&record) {
                    let _ = sample.read.map(|read| read.iter().count());
                    let _ = sample.branches.map(|branches| branches.iter().count());
                }
                rest = after;
            }
        }
    }
}
