//! Recordings with known contents, of both byte orders and all sizes of attrs: they read as they were built, and as
//! perf reads them.

mod support;
#[path = "support/synthetic.rs"]
mod synthetic;

use dioptra_perfdata::{Feature, PerfData, file_type};
use dioptra_perfrecords::ByteOrder;
use dioptra_perfrecords::record::RecordType;
use std::io::Write;
use std::ops::ControlFlow;
use support::{has_perf, our_samples, perf_samples};
use synthetic::IDS;

#[test]
fn they_read_as_they_were_built() {
    for (name, bytes) in synthetic::all() {
        let recording = PerfData::from_bytes(bytes).expect(&name);
        let order = if name.contains("big") {
            ByteOrder::Big
        } else {
            ByteOrder::Little
        };
        assert_eq!(recording.byte_order(), order, "{name}");
        let names: Vec<_> = recording
            .events()
            .iter()
            .map(|event| &event.name[..])
            .collect();
        assert_eq!(names, ["cpu-clock", "page-faults"], "{name}");
        for (event, id) in recording.events().iter().zip(IDS) {
            assert_eq!(event.ids, [id], "{name}");
        }
        let hostname = recording.features().hostname.as_deref();
        assert_eq!(hostname, Some("the-machine"), "{name}");
        let mut times = Vec::new();
        let summary = recording.read(|record| {
            if record.raw.kind == RecordType::SAMPLE {
                times.push(record.time.expect("a time"));
            }
            ControlFlow::Continue(())
        });
        assert_eq!(times.len(), 30, "{name}");
        assert!(times.is_sorted(), "{name}");
        assert_eq!(summary.samples, [18, 12], "{name}");
        assert_eq!(summary.lost, 17, "{name}");
        assert_eq!(summary.records.get(file_type::FINISHED_ROUND), 3, "{name}");
        assert_eq!(summary.damaged, [], "{name}");
        assert!(!summary.salvaged, "{name}");
        assert_eq!(
            (summary.unknown_ids, summary.out_of_order),
            (0, 0),
            "{name}"
        );
    }
}

/// perf ends the features of a pipe with an empty record of the first number that its version does not know: to a
/// later reader it may look like a feature without its content.
#[test]
fn the_end_of_a_pipes_features_is_none_of_them() {
    for mark in [22, 30, 32] {
        let mut pipe = synthetic::pipe(ByteOrder::Little);
        pipe.extend(80_u32.to_le_bytes());
        pipe.extend([0, 0, 16, 0]);
        pipe.extend(u64::to_le_bytes(mark));
        let recording = PerfData::from_bytes(pipe).expect("a pipe");
        let summary = recording.read(|_| ControlFlow::Continue(()));
        assert_eq!(summary.damaged, [], "{mark}");
        assert_eq!(recording.features().sections.len(), 1, "{mark}");
        assert_eq!(recording.features().unknown(), 0, "{mark}");
    }
}

#[test]
fn perf_reads_the_same() {
    if !has_perf() {
        return;
    }
    for (name, bytes) in synthetic::all() {
        // perf 6.1 knows no larger attrs, reads no compressed pipe from a file, and in pipes of the other byte order
        // takes a feature's number as it stands ("wrong feature ID: 216172782113783808").
        let pipe_of_other_order = name == "pipe-big" || name == "section-big";
        if name.contains("136") || name.contains("packed") || pipe_of_other_order {
            continue;
        }
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(&bytes).expect("the recording");
        let recording = PerfData::from_bytes(bytes).expect(&name);
        assert_eq!(
            our_samples(&recording),
            perf_samples(file.path(), &recording),
            "{name}"
        );
    }
}

/// Sections of other crates are kept as bytes, in pipes of either byte order.
#[test]
fn unknown_sections_are_kept_as_bytes() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let pipe = synthetic::piped_section(order, &synthetic::OWN_SECTION);
        let recording = PerfData::from_bytes(pipe).expect("a recording");
        let bytes = &recording.features().unparsed[&Feature::WINDOWS];
        // Records end at multiples of 8 bytes.
        assert_eq!(
            bytes[..synthetic::OWN_SECTION.len()],
            synthetic::OWN_SECTION
        );
        assert!(
            bytes[synthetic::OWN_SECTION.len()..]
                .iter()
                .all(|byte| *byte == 0)
        );
    }
}

#[test]
fn reading_can_be_broken_off() {
    let recording = PerfData::from_bytes(synthetic::file(ByteOrder::Little, 128));
    let recording = recording.expect("a recording");
    let mut count = 0;
    let summary = recording.read(|_| {
        count += 1;
        if count == 4 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    assert_eq!(count, 4);
    assert!(!summary.salvaged);
}

/// A sample whose id belongs to no event is passed on and counted, as the kernel does give wrong ids at times.
#[test]
fn unknown_ids_are_counted() {
    let mut bytes = synthetic::file(ByteOrder::Little, 128);
    // The first event loses its id.
    bytes[104..112].copy_from_slice(&9999_u64.to_le_bytes());
    let recording = PerfData::from_bytes(bytes).expect("a recording");
    let mut without = 0;
    let summary = recording.read(|record| {
        if record.raw.kind == RecordType::SAMPLE && record.event.is_none() {
            assert!(record.time.is_some());
            without += 1;
        }
        ControlFlow::Continue(())
    });
    assert_eq!(summary.unknown_ids, 18);
    assert_eq!(without, 18);
    assert_eq!(summary.samples, [0, 12]);
}

/// A small file may not make the decoder reserve 128 MiB, unless it was compressed at a level that needs it.
#[test]
fn windows_are_limited() {
    let read = |window, level| {
        let bytes = synthetic::wide_window_pipe(window, level);
        let recording = PerfData::from_bytes(bytes).expect("a recording");
        let summary = recording.read(|_| ControlFlow::Continue(()));
        (
            summary.records.get(RecordType::SAMPLE),
            summary.damaged.first().map(|damage| damage.why.clone()),
        )
    };
    assert_eq!(read(25, None), (30, None));
    assert_eq!(read(27, Some(22)), (30, None));
    let (samples, why) = read(27, None);
    assert_eq!(samples, 0);
    let why = why.expect("damage");
    assert!(why.contains("cannot be unpacked"), "{why}");
}
