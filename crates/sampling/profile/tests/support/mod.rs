//! Recordings made of single records, for tests.

#![allow(dead_code, missing_docs, reason = "each test uses some of it")]

use dioptra_perfdata::{EventToWrite, FeaturesToWrite, PerfData, WriteOptions, Writer};
use dioptra_perfrecords::{Attr, AttrFlags, ReadFormat, SampleType, event_type};
use dioptra_profile::{LoadOptions, LoadPlan, Profile};
use std::io::Cursor;

pub const KERNEL: u64 = -128_i64 as u64;
pub const USER: u64 = -512_i64 as u64;
pub const ID: u64 = 77;

pub fn attr(more: SampleType) -> Attr {
    Attr {
        kind: event_type::SOFTWARE,
        sample_period: 10,
        sample_type: SampleType::IDENTIFIER
            | SampleType::IP
            | SampleType::TID
            | SampleType::TIME
            | SampleType::PERIOD
            | more,
        flags: AttrFlags::SAMPLE_ID_ALL | AttrFlags::COMM_EXEC | AttrFlags::MMAP2,
        ..Attr::default()
    }
}

/// The id of a second event.
pub const SECOND: u64 = 78;

/// Returns an attr whose samples state how long their counter was enabled, and how long it ran.
pub fn reading(more: ReadFormat) -> Attr {
    Attr {
        read_format: ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING | more,
        ..attr(SampleType::READ)
    }
}

/// Returns a plan that keeps threads, times and errors.
pub fn full() -> LoadPlan {
    LoadPlan {
        options: LoadOptions {
            threads: true,
            ..LoadOptions::default()
        },
        log: true,
        errors: true,
        ..LoadPlan::default()
    }
}

/// Records in the order of their times, which are counted up.
#[derive(Default)]
pub struct Records {
    pub list: Vec<Vec<u8>>,
    pub time: u64,
}

impl Records {
    pub fn push(&mut self, kind: u32, misc: u16, words: &[&[u8]]) {
        let body: Vec<u8> = words.concat();
        let size = u16::try_from(body.len() + 8).unwrap();
        let mut record = kind.to_ne_bytes().to_vec();
        record.extend(misc.to_ne_bytes());
        record.extend(size.to_ne_bytes());
        record.extend(body);
        self.list.push(record);
    }

    /// Returns the ids at the end of a record that is no sample.
    pub fn trailer(&mut self, pid: u32) -> Vec<u8> {
        self.time += 1;
        [two(pid, pid), word(self.time), word(ID)].concat()
    }

    pub fn map(&mut self, pid: u32, start: u64, length: u64, offset: u64, name: &str) {
        let trailer = self.trailer(pid);
        let words = [word(start), word(length), word(offset)].concat();
        let misc = if pid == u32::MAX { 1 } else { 2 };
        self.push(1, misc, &[&two(pid, pid), &words, &text(name), &trailer]);
    }

    /// Adds an MMAP2 record of code, with a build id, or with zeros as the file's identity.
    pub fn map_build_id(
        &mut self,
        pid: u32,
        start: u64,
        length: u64,
        offset: u64,
        name: &str,
        build_id: Option<&[u8]>,
    ) {
        let trailer = self.trailer(pid);
        let words = [word(start), word(length), word(offset)].concat();
        let mut identity = vec![0; 24];
        if let Some(id) = build_id {
            identity[0] = u8::try_from(id.len()).unwrap();
            identity[4..4 + id.len()].copy_from_slice(id);
        }
        let misc = 2 | u16::from(build_id.is_some()) << 14;
        let parts: [&[u8]; 6] = [
            &two(pid, pid),
            &words,
            &identity,
            &two(5, 2),
            &text(name),
            &trailer,
        ];
        self.push(10, misc, &parts);
    }

    pub fn namespaces(&mut self, pid: u32, links: &[(u64, u64)]) {
        let trailer = self.trailer(pid);
        let words: Vec<u8> = links
            .iter()
            .flat_map(|(device, inode)| [word(*device), word(*inode)].concat())
            .collect();
        let count = word(links.len() as u64);
        self.push(16, 0, &[&two(pid, pid), &count, &words, &trailer]);
    }

    pub fn comm(&mut self, pid: u32, tid: u32, exec: bool, name: &str) {
        let trailer = self.trailer(pid);
        let misc = u16::from(exec) << 13;
        self.push(3, misc, &[&two(pid, tid), &text(name), &trailer]);
    }

    pub fn fork(&mut self, child: (u32, u32), parent: (u32, u32)) {
        let trailer = self.trailer(parent.0);
        let pids = two(child.0, parent.0);
        let tids = two(child.1, parent.1);
        let time = word(self.time);
        self.push(7, 0, &[&pids, &tids, &time, &trailer]);
    }

    pub fn exit(&mut self, pid: u32) {
        let trailer = self.trailer(pid);
        let time = word(self.time);
        self.push(4, 0, &[&two(pid, 1), &two(pid, 1), &time, &trailer]);
    }

    pub fn sample(&mut self, id: u64, task: (u32, u32), ip: u64, period: u64, rest: &[u64]) {
        self.time += 1;
        let misc = if ip >> 63 == 1 { 1 } else { 2 };
        let head = [
            word(id),
            word(ip),
            two(task.0, task.1),
            word(self.time),
            word(period),
        ];
        let rest: Vec<u8> = rest.iter().flat_map(|value| word(*value)).collect();
        self.push(9, misc, &[&head.concat(), &rest]);
    }

    /// Adds a sample of an attr with `CPU`.
    pub fn sample_on(
        &mut self,
        id: u64,
        task: (u32, u32),
        ip: u64,
        period: u64,
        cpu: u32,
        rest: &[u64],
    ) {
        self.time += 1;
        let head = [
            word(id),
            word(ip),
            two(task.0, task.1),
            word(self.time),
            two(cpu, 0),
            word(period),
        ];
        let rest: Vec<u8> = rest.iter().flat_map(|value| word(*value)).collect();
        self.push(9, 2, &[&head.concat(), &rest]);
    }

    pub fn load(&self, events: &[EventToWrite], options: LoadOptions) -> Profile {
        self.load_with(events, &options.into())
    }

    pub fn load_with(&self, events: &[EventToWrite], plan: &LoadPlan) -> Profile {
        let file = self.file(events);
        Profile::load_with(&PerfData::from_bytes(file).unwrap(), plan)
    }

    pub fn file(&self, events: &[EventToWrite]) -> Vec<u8> {
        let mut file = Cursor::new(Vec::new());
        let mut writer = Writer::create(&mut file, events, WriteOptions::default()).unwrap();
        for record in &self.list {
            writer.write(record).unwrap();
        }
        writer.finish(&FeaturesToWrite::default()).unwrap();
        file.into_inner()
    }
}

pub fn word(value: u64) -> Vec<u8> {
    value.to_ne_bytes().to_vec()
}

pub fn two(one: u32, other: u32) -> Vec<u8> {
    [one.to_ne_bytes(), other.to_ne_bytes()].concat()
}

pub fn text(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize((bytes.len() + 1).next_multiple_of(8), 0);
    bytes
}

pub fn event(name: &str, attr: Attr, ids: &[u64]) -> EventToWrite {
    EventToWrite {
        attr,
        name: name.into(),
        ids: ids.to_vec(),
    }
}

pub fn flat() -> Vec<EventToWrite> {
    vec![event("cpu-clock", attr(SampleType::empty()), &[ID])]
}
