//! Files that [`Writer`] makes, from the records of perf's own recordings: perf reads them as it reads its own.

mod support;

use dioptra_perfdata::{
    BuildId, EventToWrite, FeaturesToWrite, Format, PerfData, WriteError, WriteOptions, Writer,
    file_type, is_file_type,
};
use dioptra_perfrecords::Attr;
use dioptra_perfrecords::record::RawRecord;
use std::fs::File;
use std::io::{Cursor, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use support::{
    BUSY, has_perf, our_counts, our_samples, perf, perf_counts, perf_samples, record, text,
};

/// Header and body of a record, as the kernel writes it.
fn bytes_of(raw: &RawRecord<'_>) -> Vec<u8> {
    let mut bytes = raw.kind.0.to_ne_bytes().to_vec();
    bytes.extend(raw.misc.0.to_ne_bytes());
    let size = u16::try_from(8 + raw.body.len()).expect("a record's size");
    bytes.extend(size.to_ne_bytes());
    bytes.extend(raw.body);
    bytes
}

/// The events of a recording, as they are written; the ids come with `ids` only.
fn events_of(recording: &PerfData, ids: bool) -> Vec<EventToWrite> {
    let events = recording.events().iter();
    events
        .map(|event| EventToWrite {
            attr: event.attr.clone(),
            name: event.name.clone(),
            ids: if ids { event.ids.clone() } else { Vec::new() },
        })
        .collect()
}

fn features(recording: &PerfData) -> FeaturesToWrite {
    let from = recording.features();
    FeaturesToWrite {
        hostname: Some("the-machine".into()),
        os_release: from.os_release.clone(),
        version: Some("0.1.0".into()),
        arch: from.arch.clone(),
        cpus_online: from.cpus_online,
        cpus_available: from.cpus_available,
        cpu_description: from.cpu_description.clone(),
        cpuid: from.cpuid.clone(),
        total_memory: from.total_memory,
        command_line: vec!["dioptra".into(), "record".into(), "a b".into()],
        build_ids: from.build_ids.clone(),
        pmu_mappings: from.pmu_mappings.clone(),
        numa_topology: from.numa_topology.clone(),
        caches: from.caches.clone(),
        ..FeaturesToWrite::default()
    }
}

/// Copies all records of the kernel, a round after every hundred of them. Returns how many they were.
fn copy_records<W: Write>(from: &PerfData, writer: &mut Writer<W>) -> u64 {
    let mut count = 0;
    from.read(|record| {
        if !is_file_type(record.raw.kind) {
            writer
                .write(&bytes_of(&record.raw))
                .expect("a record written");
            count += 1;
            if count % 100 == 0 {
                writer.finished_round().expect("a round");
            }
        }
        ControlFlow::Continue(())
    });
    count
}

/// Writes the records of `from` into `to`, a round after every hundred of them.
fn copy(from: &PerfData, to: &Path, options: WriteOptions, late_ids: bool) -> u64 {
    let file = File::create(to).expect("a file");
    let events = events_of(from, !late_ids);
    let mut writer = Writer::create(file, &events, options).expect("a writer");
    let count = copy_records(from, &mut writer);
    if late_ids {
        for (index, event) in from.events().iter().enumerate() {
            writer.add_ids(index, &event.ids).expect("an event");
        }
    }
    let size = writer.finish(&features(from)).expect("an end");
    assert_eq!(size, std::fs::metadata(to).expect("the file").len());
    count
}

#[test]
fn serial_perf_reads_what_is_written() {
    if !has_perf() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary directory");
    let original = folder.path().join("perf.data");
    let options = ["-e", "cpu-clock,page-faults", "-g"];
    if record(&original, &options, BUSY).is_none() {
        return;
    }
    let from = PerfData::open(&original).expect("a recording");
    let samples = our_samples(&from);
    let names: Vec<_> = from.events().iter().map(|event| &event.name).collect();
    for (compression, late_ids) in [
        (None, false),
        (None, true),
        (Some(1), false),
        (Some(22), true),
    ] {
        let what = format!("compression {compression:?}, late ids {late_ids}");
        let path = folder.path().join("written.data");
        let count = copy(&from, &path, WriteOptions { compression }, late_ids);

        let written = PerfData::open(&path).expect(&what);
        assert!(!written.salvaged());
        assert_eq!(our_samples(&written), samples, "{what}");
        let again: Vec<_> = written.events().iter().map(|event| &event.name).collect();
        assert_eq!(again, names);
        let summary = written.read(|_| ControlFlow::Continue(()));
        assert_eq!((summary.damages, summary.out_of_order), (0, 0), "{what}");
        let compressed = summary.records.get(file_type::COMPRESSED);
        let rounds = summary.records.get(file_type::FINISHED_ROUND);
        assert_eq!(compressed > 0, compression.is_some());
        assert_eq!(
            summary.records.total(),
            count + rounds + compressed,
            "{what}"
        );

        assert_eq!(perf_samples(&path, &written), samples, "{what}");
        let mut perfs = perf_counts(&path);
        let mut ours = our_counts(&written);
        perfs.remove("COMPRESSED");
        ours.remove("COMPRESSED");
        assert_eq!(ours, perfs, "{what}");
        accepted(&path, &from, &what);
    }
}

/// perf's commands take the file without complaint and show what its features say.
fn accepted(path: &Path, from: &PerfData, what: &str) {
    for arguments in [
        &["report", "--stdio"][..],
        &["report", "-D"],
        &["script"],
        &["evlist", "-v"],
        &["buildid-list"],
    ] {
        let output = perf(&[arguments, &["-i", text(path)]].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{what}: {arguments:?}: {errors}");
        assert!(!errors.contains("rror"), "{what}: {arguments:?}: {errors}");
    }
    let output = perf(&["report", "--header-only", "-i", text(path)]);
    let header = String::from_utf8_lossy(&output.stdout);
    for line in [
        "# hostname : the-machine",
        "# perf version : 0.1.0",
        "# cmdline : dioptra record a b",
        "# sample duration",
        "# time of first sample",
    ] {
        assert!(header.contains(line), "{what}: no {line:?} in {header}");
    }
    let output = perf(&["buildid-list", "-i", text(path)]);
    let list = String::from_utf8_lossy(&output.stdout);
    for id in &from.features().build_ids {
        let hex: String = id
            .build_id
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert!(list.contains(&hex), "{what}: no {hex} in {list}");
    }
}

/// Returns perf's output for a recording that comes through a pipe.
fn perf_of_stream(path: &Path, arguments: &str) -> String {
    let command = format!("cat \"$0\" | perf {arguments} -i -");
    let output = Command::new("sh").args(["-c", &command]).arg(path).output();
    let output = output.expect("a shell runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn serial_perf_reads_pipes_that_are_written() {
    if !has_perf() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary directory");
    let original = folder.path().join("perf.data");
    let options = ["-e", "cpu-clock,page-faults", "-g"];
    if record(&original, &options, BUSY).is_none() {
        return;
    }
    let from = PerfData::open(&original).expect("a recording");
    let script = "script --ns -G -F event,pid,tid,time,period,ip,sym";
    let samples = perf(
        &[
            &script.split(' ').collect::<Vec<_>>()[..],
            &["-i", text(&original)],
        ]
        .concat(),
    );
    let samples = String::from_utf8_lossy(&samples.stdout).into_owned();
    assert!(samples.contains("page-faults"), "{samples}");
    for compression in [None, Some(3)] {
        let what = format!("compression {compression:?}");
        let path = folder.path().join("written.pipe");
        let file = File::create(&path).expect("a file");
        // Only `Write` is asked for: no seeking.
        let out: Box<dyn Write> = Box::new(file);
        let mut features = features(&from);
        let build_ids = std::mem::take(&mut features.build_ids);
        let options = WriteOptions { compression };
        let events = events_of(&from, true);
        let mut writer = Writer::create_pipe(out, &events, &features, options).expect("a writer");
        copy_records(&from, &mut writer);
        features.build_ids = build_ids;
        let size = writer.finish(&features).expect("an end");
        assert_eq!(size, std::fs::metadata(&path).expect("the file").len());

        let written = PerfData::open(&path).expect(&what);
        assert_eq!(written.format(), Format::Pipe);
        assert!(!written.salvaged());
        assert_eq!(our_samples(&written), our_samples(&from), "{what}");
        for (written, from) in written.events().iter().zip(from.events()) {
            assert_eq!((&written.name, &written.ids), (&from.name, &from.ids));
        }
        assert_eq!(written.features().hostname, features.hostname);
        assert_eq!(written.features().build_ids, features.build_ids);

        assert_eq!(perf_of_stream(&path, script), samples, "{what}");
        let report = perf_of_stream(&path, "report --stdio --header");
        for line in [
            "# hostname : the-machine",
            "# cmdline : dioptra record a b",
            "of event 'page-faults'",
        ] {
            assert!(report.contains(line), "{what}: no {line:?} in {report}");
        }
    }
}

#[test]
fn pipes_take_no_late_ids() {
    let attr = Attr::default();
    let (name, ids) = (String::from("event"), vec![3, 4]);
    let events = [EventToWrite { attr, name, ids }];
    let features = FeaturesToWrite::default();
    let options = WriteOptions::default();
    let mut writer =
        Writer::create_pipe(Vec::new(), &events, &features, options).expect("a writer");
    writer.add_ids(0, &[4, 3]).expect("known ids");
    let refused = writer.add_ids(0, &[4, 5]);
    assert!(
        matches!(refused, Err(WriteError::LateIds { index: 0, late: 1 })),
        "{refused:?}"
    );
}

/// Returns the descriptions of tracepoints in a file that perf wrote: its first section, by the header's table.
fn tracing_data_of(path: &Path) -> Vec<u8> {
    let bytes = std::fs::read(path).expect("a recording");
    let word = |at: usize| {
        let word = bytes[at..at + 8].try_into().expect("eight bytes");
        usize::try_from(u64::from_le_bytes(word)).expect("an offset")
    };
    // Bytes 40 to 55 are the offset and size of the records. The table of sections follows the records.
    let table = word(40) + word(48);
    let (start, size) = (word(table), word(table + 8));
    bytes[start..start + size].to_vec()
}

#[test]
fn serial_tracepoints_are_described() {
    if !has_perf() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary directory");
    let original = folder.path().join("perf.data");
    let events = [
        "-e",
        "sched:sched_switch,sched:sched_process_exit,cpu-clock",
    ];
    if record(&original, &events, BUSY).is_none() {
        return;
    }
    let from = PerfData::open(&original).expect("a recording");
    let data = tracing_data_of(&original);
    let path = folder.path().join("written.data");
    let file = File::create(&path).expect("a file");
    let options = WriteOptions::default();
    let mut writer = Writer::create(file, &events_of(&from, true), options).expect("a writer");
    from.read(|record| {
        if !is_file_type(record.raw.kind) {
            let written = writer.write(&bytes_of(&record.raw));
            written.expect("a record written");
        }
        ControlFlow::Continue(())
    });
    let mut features = features(&from);
    features.tracing_data = Some(data);
    writer.finish(&features).expect("an end");
    // perf prints the fields of each tracepoint from the descriptions.
    let script = |path: &Path| perf(&["script", "-i", text(path)]).stdout;
    let (written, original) = (script(&path), script(&original));
    assert_eq!(
        String::from_utf8_lossy(&written),
        String::from_utf8_lossy(&original)
    );
    assert!(String::from_utf8_lossy(&written).contains("next_pid="));

    // A pipe has the descriptions too.
    let file = File::create(&path).expect("a file");
    let events = events_of(&from, true);
    let mut writer = Writer::create_pipe(file, &events, &features, options).expect("a writer");
    copy_records(&from, &mut writer);
    writer.finish(&features).expect("an end");
    assert_eq!(
        perf_of_stream(&path, "script"),
        String::from_utf8_lossy(&original)
    );
}

#[test]
fn features_come_back() {
    let written = FeaturesToWrite {
        hostname: Some("h".repeat(64)),
        arch: Some("x86_64".into()),
        cpus_online: Some(2),
        cpus_available: Some(4),
        total_memory: Some(1 << 40),
        command_line: vec![String::new(), "ä b".into()],
        build_ids: vec![BuildId {
            misc: 2,
            pid: -1,
            build_id: vec![1; 16],
            path: b"/usr/bin/\xff".to_vec(),
        }],
        branch_stack: true,
        ..FeaturesToWrite::default()
    };
    let mut file = Cursor::new(Vec::new());
    let writer = Writer::create(&mut file, &[], WriteOptions::default()).expect("a writer");
    writer.finish(&written).expect("an end");
    let read = PerfData::from_bytes(file.into_inner()).expect("a recording");
    let features = read.features();
    assert!(!read.salvaged());
    assert_eq!(features.hostname, written.hostname);
    assert_eq!(features.arch, written.arch);
    assert_eq!(features.cpus_online, Some(2));
    assert_eq!(features.cpus_available, Some(4));
    assert_eq!(features.total_memory, written.total_memory);
    assert_eq!(features.command_line, written.command_line);
    let id = &features.build_ids[0];
    assert_eq!(id.build_id, written.build_ids[0].build_id);
    assert_eq!(id.path, written.build_ids[0].path);
    assert!(features.branch_stack);
}

#[test]
fn what_is_no_record_is_refused() {
    let file = Cursor::new(Vec::new());
    let mut writer = Writer::create(file, &[], WriteOptions::default()).expect("a writer");
    let refused = writer.write(&[9, 0, 0, 0, 0, 0, 16, 0]);
    let expected = (
        8,
        if cfg!(target_endian = "little") {
            16
        } else {
            4096
        },
    );
    match refused {
        Err(WriteError::NotARecord { length, stated }) => assert_eq!((length, stated), expected),
        other => panic!("{other:?}"),
    }
    assert!(matches!(
        writer.add_ids(0, &[1]),
        Err(WriteError::NoSuchEvent { index: 0, count: 0 })
    ));
}
