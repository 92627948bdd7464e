//! The record parser against recorded files and against `perf`'s own reading of them, and on arbitrary bytes.

use dioptra_perfrecords::record::{MappedFile, RawRecord, Record, RecordLayout, RecordType};
use dioptra_perfrecords::{Attr, AttrFlags, ByteOrder, Cursor, ReadFormat, SampleType};
use dioptra_testprograms::{need_shared_data, need_tool, or_skip};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The attrs of a perf.data file with their ids, and where its records lie: just enough of the format for this test.
struct Recording {
    bytes: Vec<u8>,
    order: ByteOrder,
    events: Vec<(Attr, Vec<u64>)>,
    data: std::ops::Range<usize>,
}

impl Recording {
    fn open(path: &Path) -> Option<Recording> {
        let bytes = std::fs::read(path).ok()?;
        let order = match bytes.get(..8)? {
            b"PERFILE2" => ByteOrder::Little,
            b"2ELIFREP" => ByteOrder::Big,
            _ => return None,
        };
        let mut at = Cursor::new(bytes.get(8..)?, order);
        let words: Vec<usize> = at.u64s(6)?.iter().map(|word| word as usize).collect();
        let [header, attr_size, attrs, attrs_size, data, data_size] = words[..] else {
            return None;
        };
        if header < 104 {
            return None;
        }
        let mut events = Vec::new();
        for entry in bytes
            .get(attrs..attrs + attrs_size)?
            .chunks_exact(attr_size)
        {
            let (attr, ids) = entry.split_at(attr_size - 16);
            let mut at = Cursor::new(ids, order);
            let (offset, size) = (at.u64()? as usize, at.u64()? as usize);
            let ids = bytes.get(offset..offset + size)?;
            let ids = Cursor::new(ids, order)
                .u64s(size as u64 / 8)?
                .iter()
                .collect();
            events.push((Attr::from_bytes(attr, order)?, ids));
        }
        Some(Recording {
            bytes,
            order,
            events,
            data: data..data + data_size,
        })
    }

    /// Lists every record of the kernel with its offset in the file, in words that `perf script -D` uses as well.
    fn lines(&self) -> BTreeMap<usize, String> {
        let layouts: Vec<RecordLayout> = self
            .events
            .iter()
            .map(|(attr, _)| RecordLayout::new(attr, self.order))
            .collect();
        let by_id: BTreeMap<u64, &RecordLayout> = self
            .events
            .iter()
            .zip(&layouts)
            .flat_map(|((_, ids), layout)| ids.iter().map(move |id| (*id, layout)))
            .collect();
        let mut lines = BTreeMap::new();
        let mut rest = self.bytes.get(self.data.clone()).unwrap_or_default();
        while !rest.is_empty() {
            let offset = self.data.end - rest.len();
            let (record, after) = RawRecord::split(rest, self.order).expect("a whole file");
            rest = after;
            // AUXTRACE is followed by as many bytes of hardware trace as its first word says.
            if record.kind.0 == 71 {
                let mut body = Cursor::new(record.body, self.order);
                let skip = body.u64().expect("a size") as usize;
                rest = rest.get(skip..).expect("the trace's bytes");
            }
            if record.kind.0 >= 64 {
                continue;
            }
            let layout = layouts[0]
                .event_id(&record)
                .and_then(|id| by_id.get(&id).copied())
                .unwrap_or(&layouts[0]);
            let parsed = layout
                .parse(&record)
                .unwrap_or_else(|error| panic!("{offset:#x}: {error}"));
            if let Some(line) = describe(&parsed) {
                lines.insert(offset, line);
            }
        }
        lines
    }
}

/// Formats a number as `perf` writes addresses: zero without a prefix.
fn hex(number: u64) -> String {
    if number == 0 {
        "0".to_owned()
    } else {
        format!("{number:#x}")
    }
}

/// Describes a record in `perf`'s words, as far as those are the same for all versions.
fn describe(record: &Record<'_>) -> Option<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut line = String::new();
    match record {
        Record::Sample(sample) => {
            let (pid, tid) = (
                sample.pid.map_or(-1, u32::cast_signed),
                sample.tid.map_or(-1, u32::cast_signed),
            );
            write!(line, "SAMPLE {pid}/{tid}: {}", hex(sample.ip.unwrap_or(0))).ok()?;
            if let Some(chain) = sample.callchain {
                write!(line, " chain {}", chain.len()).ok()?;
                for address in chain.iter() {
                    write!(line, " {address:x}").ok()?;
                }
            }
            if let Some(branches) = sample.branches {
                write!(line, " branches {}", branches.len()).ok()?;
                for branch in branches.iter() {
                    write!(line, " {:x}>{:x}", branch.from, branch.to).ok()?;
                }
            }
        }
        Record::Comm(comm, _) => {
            write!(line, "COMM {}:{}/{}", text(comm.name), comm.pid, comm.tid).ok()?
        }
        Record::Fork(task, _) => write!(
            line,
            "FORK({}:{}):({}:{})",
            task.pid, task.tid, task.parent_pid, task.parent_tid
        )
        .ok()?,
        Record::Exit(task, _) => write!(
            line,
            "EXIT({}:{}):({}:{})",
            task.pid, task.tid, task.parent_pid, task.parent_tid
        )
        .ok()?,
        Record::Mmap(map, _) => {
            // perf shows these two as signed.
            let (pid, tid) = (map.pid.cast_signed(), map.tid.cast_signed());
            let (start, length) = (hex(map.start), hex(map.length));
            let page_offset = hex(map.page_offset);
            write!(line, "MMAP {pid}/{tid}: [{start}({length}) @ {page_offset}").ok()?;
            if let MappedFile::Inode {
                major,
                minor,
                inode,
                generation,
            } = map.file
            {
                write!(line, " {major:02x}:{minor:02x} {inode} {generation}").ok()?;
            }
            write!(line, "] {}", text(map.name)).ok()?;
        }
        _ => return None,
    }
    Some(line)
}

/// Extracts the same lines from the output of `perf script -D`.
fn perf_lines(dump: &str) -> BTreeMap<usize, String> {
    let mut lines: BTreeMap<usize, String> = BTreeMap::new();
    let mut current = None;
    for line in dump.lines() {
        if let Some((before, after)) = line.split_once(": PERF_RECORD_") {
            current = offset_of(before).and_then(|offset| Some((offset, perf_record(after)?)));
            if let Some((offset, text)) = &current {
                lines.insert(*offset, text.clone());
            }
            continue;
        }
        let Some((offset, _)) = &current else {
            continue;
        };
        let Some(text) = lines.get_mut(offset) else {
            continue;
        };
        if let Some((_, count)) = line.split_once(" chain: nr:") {
            write!(text, " chain {count}").expect("text");
        } else if let Some(count) = line.strip_prefix("... branch stack: nr:") {
            write!(text, " branches {count}").expect("text");
        } else if let Some(entry) = line.strip_prefix(".....") {
            let entry = entry.trim();
            let Some((_, entry)) = entry.split_once(':') else {
                continue;
            };
            let mut words = entry.split_whitespace();
            let number =
                |word: Option<&str>| word.and_then(|word| u64::from_str_radix(word, 16).ok());
            let Some(first) = number(words.next()) else {
                continue;
            };
            write!(text, " {first:x}").expect("text");
            if words.next() == Some("->")
                && let Some(second) = number(words.next())
            {
                write!(text, ">{second:x}").expect("text");
            }
        }
    }
    lines
}

fn offset_of(before: &str) -> Option<usize> {
    let word = before.split_whitespace().rev().nth(1)?;
    usize::from_str_radix(word.strip_prefix("0x")?, 16).ok()
}

fn perf_record(after: &str) -> Option<String> {
    let (kind, rest) = after.split_at(after.find([':', '(', ' '])?);
    match kind {
        "SAMPLE" => {
            // (IP, 0x1): 0/0: 0xffffffff8137be88 period: 1 addr: 0
            let rest = rest.split_once("): ")?.1;
            Some(format!("SAMPLE {}", rest.split_once(" period:")?.0))
        }
        "COMM" => {
            let rest = rest.strip_prefix(" exec").unwrap_or(rest);
            Some(format!("COMM {}", rest.strip_prefix(": ")?))
        }
        "FORK" | "EXIT" => Some(format!("{kind}{rest}")),
        "MMAP" | "MMAP2" => {
            let (before, name) = rest.split_once("]: ")?;
            // Some kernels put a build id in place of the inode, which perf shows between angle brackets.
            if before.contains('<') {
                return None;
            }
            let name = name.split_once(' ')?.1;
            let before = before.trim();
            Some(format!("MMAP {before}] {name}"))
        }
        _ => None,
    }
}

/// Compares what both know; returns how many records.
fn compare(name: &str, ours: &BTreeMap<usize, String>, theirs: &BTreeMap<usize, String>) -> usize {
    let mut compared = 0;
    for (offset, line) in theirs {
        let Some(own) = ours.get(offset) else {
            continue;
        };
        assert_eq!(own.trim(), line.trim(), "{name} at {offset:#x}");
        compared += 1;
    }
    compared
}

#[test]
fn a_recorded_file_reads_as_perf_read_it() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let recording = Recording::open(&fixtures.join("clock.perf.data")).expect("the fixture");
    let dump =
        std::fs::read_to_string(fixtures.join("clock.perf.dump.txt")).expect("perf's reading");
    let (ours, theirs) = (recording.lines(), perf_lines(&dump));
    assert_eq!(compare("clock", &ours, &theirs), ours.len());
    assert_eq!(ours.len(), 9, "{ours:#?}");
    let registers = recording
        .events
        .iter()
        .any(|(attr, _)| attr.sample_regs_user == 0x1c0);
    assert!(registers);
}

#[test]
fn files_of_other_machines_read_as_perf_reads_them() {
    let directory = or_skip!(need_shared_data("perfdata"));
    or_skip!(need_tool("perf"));
    let entries = std::fs::read_dir(directory).expect("the folder");
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    let mut total = 0;
    for path in files {
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        // Files in the form for pipes, and compressed ones, are for the crate that reads files.
        let Some(recording) = Recording::open(&path).filter(|_| !name.contains("compressed"))
        else {
            continue;
        };
        // Large files prove no more than small ones, and take perf seconds.
        if recording.bytes.len() > 1_200_000 {
            continue;
        }
        let ours = recording.lines();
        let output = Command::new("perf")
            .args(["script", "-D", "-i"])
            .arg(&path)
            .output()
            .expect("perf");
        let theirs = perf_lines(&String::from_utf8_lossy(&output.stdout));
        let compared = compare(&name, &ours, &theirs);
        println!("{name}: {compared} of {} records compared", ours.len());
        total += compared;
    }
    assert!(total > 1000, "{total}");
}

fn any_layout() -> impl Strategy<Value = RecordLayout> {
    (
        any::<u64>(),
        0_u64..32,
        any::<u64>(),
        any::<u64>(),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(sample, read, registers, branches, all, little)| {
            let attr = Attr {
                sample_type: SampleType::from_bits_truncate(sample),
                read_format: ReadFormat::from_bits_truncate(read),
                flags: if all {
                    AttrFlags::SAMPLE_ID_ALL
                } else {
                    AttrFlags::empty()
                },
                sample_regs_user: registers,
                sample_regs_intr: registers.rotate_left(17),
                branch_sample_type: branches,
                ..Attr::default()
            };
            let order = if little {
                ByteOrder::Little
            } else {
                ByteOrder::Big
            };
            RecordLayout::new(&attr, order)
        })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_bytes_parse_or_fail_without_panic(
        layout in any_layout(),
        kind in 0_u32..24,
        misc in any::<u16>(),
        body in prop::collection::vec(prop_oneof![3 => Just(0_u8), 1 => 0_u8..9, 2 => any::<u8>()], 0..400),
    ) {
        let record = RawRecord {
            kind: RecordType(kind),
            misc: dioptra_perfrecords::record::Misc(misc),
            body: &body,
        };
        let _ = layout.event_id(&record);
        let _ = layout.time(&record);
        if let Ok(Record::Sample(sample)) = layout.parse(&record) {
            if let Some(read) = sample.read {
                prop_assert_eq!(read.iter().count(), read.len());
            }
            if let Some(branches) = sample.branches {
                prop_assert_eq!(branches.iter().count(), branches.len());
            }
            if let Some(registers) = sample.regs_user {
                let present = (0..70).filter(|bit| registers.get(*bit).is_some()).count();
                prop_assert_eq!(present, registers.values.len());
            }
        }
    }

    #[test]
    fn any_bytes_split_into_records_that_end(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let mut rest = &bytes[..];
        while let Ok((record, after)) = RawRecord::split(rest, ByteOrder::NATIVE) {
            prop_assert_eq!(record.body.len() + 8 + after.len(), rest.len());
            rest = after;
        }
    }

    #[test]
    fn any_bytes_are_an_attr_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            if let Some(attr) = Attr::from_bytes(&bytes, order) {
                let again = Attr::from_bytes(&attr.to_bytes(136), ByteOrder::NATIVE).expect("an attr");
                prop_assert_eq!(again.flags, attr.flags);
                prop_assert_eq!(again.config, attr.config);
            }
        }
    }
}
