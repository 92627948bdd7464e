//! Recordings that are truncated while a command shows them: the command says so, and no signal ends it.

use dioptra_perfdata::{EventToWrite, FeaturesToWrite, WriteOptions, Writer};
use dioptra_perfevents::{Attr, AttrFlags, SampleType};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Writes a recording with samples of one event; nothing is known of their addresses.
fn write(path: &Path, samples: u64) {
    let event = EventToWrite {
        attr: Attr {
            kind: 1,
            sample_period: 1000,
            sample_type: SampleType::IP | SampleType::TID | SampleType::TIME,
            flags: AttrFlags::SAMPLE_ID_ALL,
            ..Attr::default()
        },
        name: "cpu-clock".into(),
        ids: vec![7],
    };
    let file = File::create(path).expect("a file");
    let mut writer = Writer::create(file, &[event], WriteOptions::default()).expect("a writer");
    for index in 0..samples {
        let mut record = 9_u32.to_ne_bytes().to_vec();
        record.extend([2, 0, 32, 0]);
        for word in [0x40_0000 + index, 5 << 32 | 5, 1_000_000 + index] {
            record.extend(word.to_ne_bytes());
        }
        writer.write(&record).expect("a sample");
        if index % 1000 == 999 {
            writer.finished_round().expect("a round");
        }
    }
    writer.finish(&FeaturesToWrite::default()).expect("an end");
}

#[test]
fn a_profile_that_is_truncated_while_it_is_dumped_is_told() {
    const LEFT: u64 = 200_000;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("perf.data");
    write(&path, 200_000);
    let mut dump = Command::new(env!("CARGO_BIN_EXE_dioptra"))
        .args(["dump", "-i"])
        .arg(&path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("dioptra runs");
    // Its first line is there: it is within the file, and goes on when the pipe is read.
    let mut output = dump.stdout.take().expect("a pipe");
    let mut first = [0; 4096];
    output.read_exact(&mut first).expect("a start");
    std::thread::sleep(Duration::from_millis(200));
    let file = OpenOptions::new().write(true).open(&path);
    file.and_then(|file| file.set_len(LEFT)).expect("a cut");
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("text");
    let mut told = String::new();
    let errors = dump.stderr.as_mut().expect("a pipe");
    errors.read_to_string(&mut told).expect("text");
    let status = dump.wait().expect("an end");
    assert_eq!(status.code(), Some(1), "{status}: {told}");
    let expected = format!(
        "perf.data was truncated while it was read: from byte {LEFT} on its content is missing"
    );
    assert!(told.contains(&expected), "{told}");
}
