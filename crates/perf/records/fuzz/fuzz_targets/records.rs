//! Any bytes, as an attr and the records of its event: no panic, and every record within the bytes.
#![no_main]

use dioptra_perfrecords::record::{RawRecord, Record, RecordLayout};
use dioptra_perfrecords::{Attr, ByteOrder};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((attr, mut rest)) = bytes.split_at_checked(Attr::MAX_SIZE) else {
        return;
    };
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let Some(attr) = Attr::from_bytes(attr, order) else {
            continue;
        };
        let layout = RecordLayout::new(&attr, order);
        while let Ok((record, after)) = RawRecord::split(rest, order) {
            assert_eq!(record.body.len() + 8 + after.len(), rest.len());
            let _ = (layout.event_id(&record), layout.time(&record), layout.thread(&record));
            if let Ok(Record::Sample(sample)) = layout.parse(&record) {
                let _ = sample.read.map(|read| read.iter().count());
                let _ = sample.branches.map(|branches| branches.iter().count());
            }
            rest = after;
        }
    }
});
