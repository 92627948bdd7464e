//! Everything that can be done with a recording, for hostile bytes.

use dioptra_perfdata::{PerfData, file_type};
use std::ops::ControlFlow;

/// Opens the bytes and parses every record of theirs. What is read must agree with the summary.
pub fn exercise(bytes: &[u8]) {
    let recording = match PerfData::from_bytes(bytes.to_vec()) {
        Ok(recording) => recording,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let mut visited = 0;
    let summary = recording.read(|record| {
        visited += 1;
        assert!(record.offset <= bytes.len() as u64);
        if let Some(event) = record.event {
            assert!(event < recording.events().len());
        }
        if let Some(layout) = recording.layout(record.event) {
            // Damaged records are errors, never panics.
            let _ = layout.parse(&record.raw);
        }
        ControlFlow::Continue(())
    });
    let packed =
        summary.records.get(file_type::COMPRESSED) + summary.records.get(file_type::COMPRESSED2);
    // Compressed records inside compressed ones are passed on as they are.
    assert!(visited <= summary.records.total());
    assert!(visited >= summary.records.total() - packed);
    assert_eq!(summary.damages == 0, summary.damaged.is_empty());
}
