//! The section of windows: what is written is read, whole or in pieces, in files and pipes; perf skips it; damage costs
//! only what lies behind it.

#[path = "../../perf/data/tests/support/mod.rs"]
mod support;
#[path = "../../perf/data/tests/support/synthetic.rs"]
mod synthetic;

use dioptra_perfdata::{EventToWrite, Feature, FeaturesToWrite, PerfData, WriteOptions, Writer};
use dioptra_perfevents::windows::{Length, Schedule};
use dioptra_perfrecords::{Attr, AttrFlags, ByteOrder, SampleType, event_type};
use dioptra_windows::section::{
    Burst, BurstOutcome, EventTotal, SectionEncoder, WindowGroup, WindowLoss, WindowsSection,
};
use proptest::prelude::*;
use std::io::Cursor;
use std::path::Path;
use support::{has_perf, perf, text};

/// Bursts of two threads in turn, every millisecond, of four windows each.
fn windows(bursts: u64) -> WindowsSection {
    let mut windows = WindowsSection::default();
    windows.source = "refresh".into();
    windows.findings = vec!["REFRESH gives as many samples as asked".into()];
    windows.schedule = Some(Schedule {
        long: Length::Time(1_000_000),
        short: Length::Count(300),
        jitter: Length::Count(100),
        batch: 4,
    });
    windows.warm_up = 1;
    windows.groups = vec![WindowGroup {
        leader: 0,
        members: vec![1],
        drop_last: true,
    }];
    windows.bursts = (0..bursts)
        .map(|index| Burst {
            tid: Some(100 + (index % 2) as u32),
            armed: 1_000_000_000_000 + 1_000_000 * index + 7919 * index % 90_000,
            ended: 1_000_000_000_000 + 1_060_000 * index,
            period: 200 + 31 * index % 200,
            expected: 4,
            seen: if index % 10 == 9 { 2 } else { 4 },
            outcome: if index % 10 == 9 {
                BurstOutcome::CUT | BurstOutcome::LATE
            } else {
                BurstOutcome::COMPLETE
            },
            ..Burst::default()
        })
        .collect();
    windows.totals = vec![EventTotal {
        event: "page-faults".into(),
        value: 12_345,
        enabled: 2_000_000_000,
        running: 1_900_000_000,
    }];
    windows.span = Some((1_000_000_000_000, 1_002_000_000_000));
    windows.losses = vec![WindowLoss {
        what: "threads beyond the limit of open files".into(),
        count: 3,
    }];
    windows
}

fn decoded(bytes: &[u8]) -> WindowsSection {
    let mut windows = WindowsSection::default();
    windows.decode(bytes).expect("a section");
    windows
}

fn event() -> EventToWrite {
    EventToWrite {
        attr: Attr {
            kind: event_type::SOFTWARE,
            sample_period: 1000,
            sample_type: SampleType::IP | SampleType::TID | SampleType::TIME,
            flags: AttrFlags::SAMPLE_ID_ALL,
            ..Attr::default()
        },
        name: "cpu-clock".into(),
        ids: vec![7],
    }
}

/// A sample of [`event`].
fn sample(time: u64) -> Vec<u8> {
    let mut record = 9_u32.to_ne_bytes().to_vec();
    record.extend(2_u16.to_ne_bytes());
    record.extend(32_u16.to_ne_bytes());
    for word in [0x1000, 100 | 100 << 32, time] {
        record.extend(u64::to_ne_bytes(word));
    }
    record
}

fn features(windows: &WindowsSection) -> FeaturesToWrite {
    FeaturesToWrite {
        hostname: Some("the-machine".into()),
        sections: vec![(Feature::WINDOWS, windows.encode())],
        ..FeaturesToWrite::default()
    }
}

/// A file with ten samples and the section.
fn file(windows: &WindowsSection) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    let options = WriteOptions::default();
    let mut writer = Writer::create(&mut file, &[event()], options).expect("a writer");
    for time in 1..=10 {
        writer.write(&sample(1_000_000 * time)).expect("a sample");
    }
    writer.finish(&features(windows)).expect("an end");
    file.into_inner()
}

#[test]
fn a_file_keeps_windows() {
    let windows = windows(1000);
    let mut recording = PerfData::from_bytes(file(&windows)).expect("a recording");
    assert_eq!(recording.features().unknown(), 0);
    let found = WindowsSection::of(&mut recording, None);
    assert_eq!(found.as_ref(), Some(&windows));
    assert_eq!(windows.bursts_with(BurstOutcome::COMPLETE), 900);
    assert_eq!(windows.bursts_with(BurstOutcome::CUT), 100);
    assert_eq!(windows.windows_seen(), 900 * 4 + 100 * 2);
}

/// More than fits one record of a pipe.
#[test]
fn a_pipe_keeps_windows() {
    let windows = windows(50_000);
    assert!(windows.encode().len() > 3 << 16);
    let mut pipe = Vec::new();
    let options = WriteOptions::default();
    let start = FeaturesToWrite::default();
    let mut writer = Writer::create_pipe(&mut pipe, &[event()], &start, options).expect("a writer");
    writer.write(&sample(5)).expect("a sample");
    writer.finish(&features(&windows)).expect("an end");
    let mut recording = PerfData::from_bytes(pipe).expect("a recording");
    let found = WindowsSection::of(&mut recording, None);
    assert_eq!(found.as_ref(), Some(&windows));
    assert!(
        recording
            .read(|_| std::ops::ControlFlow::Continue(()))
            .damages
            == 0
    );
}

#[test]
fn bursts_are_small() {
    let few = windows(1).encode().len();
    let count = 10_000;
    let each = (windows(count).encode().len() - few) as f64 / count as f64;
    assert!(each <= 13.0, "{each} bytes a burst");
    // All bursts are bound to one thread.
    let mut one = windows(count);
    one.bursts.iter_mut().for_each(|burst| burst.tid = Some(7));
    let each = (one.encode().len() - few) as f64 / count as f64;
    assert!(each <= 11.5, "{each} bytes a burst of one thread");
}

/// A section that ends early is read up to there, and the offset of its end is reported.
#[test]
fn a_section_that_was_cut_is_read_up_to_there() {
    let windows = windows(30);
    let bytes = windows.encode();
    let mut whole = 0;
    for end in 0..bytes.len() {
        let mut found = WindowsSection::default();
        match found.decode(&bytes[..end]) {
            // Between two parts.
            Ok(()) => whole += 1,
            Err(error) => assert!(error.offset <= end, "{error}"),
        }
        assert_eq!(found.bursts[..], windows.bursts[..found.bursts.len()]);
    }
    assert_eq!(whole, 8);
    for (at, what) in [(0, "does not begin"), (8, "newer version")] {
        let mut wrong = bytes.clone();
        wrong[at] ^= 0x40;
        let error = WindowsSection::default().decode(&wrong).unwrap_err();
        assert_eq!(error.offset, at);
        assert!(error.to_string().contains(what), "{error}");
    }
}

#[test]
fn damage_is_told_with_its_place_in_the_file() {
    let windows = windows(30);
    let mut bytes = file(&windows);
    let magic = b"dioptraW";
    let start = bytes
        .windows(8)
        .position(|at| at == magic)
        .expect("the section");
    let version = start + magic.len();
    bytes[version] = 99;
    let mut recording = PerfData::from_bytes(bytes).expect("a recording");
    assert!(WindowsSection::of(&mut recording, None).is_some());
    let summary = recording.read(|_| std::ops::ControlFlow::Continue(()));
    assert_eq!(summary.samples, [10]);
    let [damage] = &summary.damaged[..] else {
        panic!("{:?}", summary.damaged);
    };
    assert_eq!(damage.offset, version as u64);
    assert!(damage.why.contains("newer version"), "{}", damage.why);
}

/// A recorder that was killed leaves its bursts in a file beside the recording.
#[test]
fn bursts_beside_an_unfinished_recording_are_found() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("killed.data");
    let windows = windows(30);
    let mut reading = event();
    reading.attr.sample_type |= SampleType::READ;
    for (event, finds) in [(reading, true), (event(), false)] {
        let file = std::fs::File::create(&path).expect("a file");
        let writer = Writer::create(file, &[event], WriteOptions::default());
        drop(writer.expect("a writer"));
        let side = folder.path().join("killed.data.windows");
        let section = windows.encode();
        // The last part is that of the bursts.
        std::fs::write(side, &section[..section.len() - 3]).expect("a file");
        let mut recording = PerfData::open(&path).expect("a recording");
        let found = WindowsSection::of(&mut recording, Some(&path));
        assert!(recording.salvaged());
        let bursts = found.as_ref().map(|found| &found.bursts[..]);
        assert_eq!(bursts, finds.then_some(&windows.bursts[..29]));
    }
}

#[test]
fn unknown_parts_and_padding_are_skipped() {
    let windows = windows(3);
    let mut bytes = windows.encode();
    bytes.extend([0, 0, 99, 3, 1, 2, 3, 0]);
    assert_eq!(decoded(&bytes), windows);
}

/// Older recorders wrote a whole section into each record of a pipe.
#[test]
fn sections_that_follow_each_other_are_one() {
    let windows = windows(30);
    let mut first = windows.clone();
    let mut second = SectionEncoder::new();
    for burst in first.bursts.split_off(10) {
        second.burst(&burst);
    }
    let mut bytes = first.encode();
    bytes.extend([0; 5]);
    bytes.extend(second.take());
    assert_eq!(decoded(&bytes), windows);
}

#[test]
fn either_byte_order_is_read() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let pipe = synthetic::piped_section(order, &windows(20).encode());
        let mut recording = PerfData::from_bytes(pipe).expect("a recording");
        let found = WindowsSection::of(&mut recording, None);
        assert_eq!(found, Some(windows(20)));
    }
}

#[test]
fn serial_perf_skips_the_section() {
    if !has_perf() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("windows.data");
    let run = |arguments: &[&str], path: &Path| {
        let output = perf(&[arguments, &["-i", text(path)]].concat());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "perf {arguments:?}: {error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let mut texts = Vec::new();
    for bursts in [1000, 0] {
        let mut windows = windows(bursts);
        if bursts == 0 {
            windows = WindowsSection::default();
        }
        std::fs::write(&path, file(&windows)).expect("a file");
        let recording = PerfData::open(&path).expect("a recording");
        assert!(
            recording
                .features()
                .sections
                .contains_key(&Feature::WINDOWS)
        );
        let header = run(&["report", "--header-only"], &path);
        assert!(header.contains("the-machine"), "{header}");
        let report = run(&["report", "--stdio"], &path);
        assert!(report.contains("Samples: 10"), "{report}");
        let script = run(&["script"], &path);
        assert_eq!(script.lines().count(), 10, "{script}");
        texts.push(script);
    }
    assert_eq!(texts[0], texts[1]);
}

fn bursts() -> impl Strategy<Value = Vec<Burst>> {
    let burst = (
        (
            0_u16..4,
            prop::option::of(0_u32..9),
            prop::option::of(any::<u32>()),
        ),
        (any::<u64>(), any::<u64>(), any::<u64>()),
        (any::<u16>(), any::<u16>(), any::<u8>()),
    );
    let burst = burst.prop_map(
        |((group, cpu, tid), (armed, ended, period), (expected, seen, outcome))| Burst {
            group,
            cpu,
            tid,
            armed,
            ended,
            period,
            expected,
            seen,
            outcome: BurstOutcome::from_bits_retain(outcome),
        },
    );
    prop::collection::vec(burst, 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Taken in pieces of any size, the section is the same.
    #[test]
    fn what_is_written_is_read(
        bursts in bursts(),
        every in 1_usize..50,
        text in ".{0,20}",
        numbers in prop::array::uniform8(any::<u64>()),
        members in prop::collection::vec(any::<u32>(), 0..5),
    ) {
        let mut windows = WindowsSection::default();
        windows.source = text.clone();
        windows.findings = vec![text.clone(), String::new()];
        windows.instead = Some(text.clone());
        windows.schedule = Some(Schedule {
            long: Length::Time(numbers[0]),
            short: Length::Count(numbers[1]),
            jitter: Length::Time(numbers[2]),
            batch: numbers[3] as u32,
        });
        windows.warm_up = numbers[4] as u32;
        windows.groups = vec![WindowGroup { leader: numbers[5] as u32, members, drop_last: every % 2 == 0 }; 2];
        windows.bursts = bursts;
        windows.totals = vec![EventTotal { event: text.clone(), value: numbers[5], enabled: numbers[6], running: numbers[7] }];
        windows.span = Some((numbers[6], numbers[7]));
        windows.losses = vec![WindowLoss { what: text, count: numbers[0] }];
        prop_assert_eq!(&decoded(&windows.encode()), &windows);

        let mut encoder = SectionEncoder::new();
        let mut pieces = Vec::new();
        for (index, burst) in windows.bursts.iter().enumerate() {
            encoder.burst(burst);
            if index % every == 0 {
                pieces.extend(encoder.take());
                prop_assert_eq!(encoder.waiting(), 0);
                prop_assert_eq!(&decoded(&pieces).bursts[..], &windows.bursts[..=index]);
            }
        }
        pieces.extend(encoder.take());
        prop_assert_eq!(decoded(&pieces).bursts, windows.bursts);
    }

    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..300), flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..10)) {
        let mut section = b"dioptraW\x01".to_vec();
        section.extend(&bytes);
        let _ = WindowsSection::default().decode(&bytes);
        let _ = WindowsSection::default().decode(&section);
        let mut section = windows(20).encode();
        for (at, value) in flips {
            let at = at.index(section.len());
            section[at] = value;
        }
        let mut found = WindowsSection::default();
        let _ = found.decode(&section);
        prop_assert_eq!(&decoded(&found.encode()), &found);
    }
}
