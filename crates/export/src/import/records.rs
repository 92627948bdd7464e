//! The bytes of the records that an imported profile needs.

use super::names::Mapped;
use dioptra_perfrecords::SampleType;
use dioptra_perfrecords::record::RecordType;

/// The misc bits of records about the kernel and about user code.
const KERNEL: u16 = 1;
const USER: u16 = 2;
/// MMAP2: the record states a build id.
const HAS_BUILD_ID: u16 = 1 << 14;
/// The marks in call chains before addresses of the kernel and of user code.
const KERNEL_MARK: u64 = -128_i64 as u64;
const USER_MARK: u64 = -512_i64 as u64;
/// The process number of the kernel's mappings.
const KERNEL_PID: u32 = u32::MAX;

/// The deepest stack for which a record has room, with its marks.
pub(super) const MOST_FRAMES: usize = 8000;

/// The process and thread of a record, its time and its CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Task {
    pub pid: u32,
    pub tid: u32,
    /// Nanoseconds; written if the recording has times.
    pub time: u64,
    /// Written if the recording has CPUs.
    pub cpu: u32,
}

/// A buffer for one record.
#[derive(Debug, Default)]
pub(super) struct RecordBuffer {
    bytes: Vec<u8>,
}

impl RecordBuffer {
    fn begin(&mut self, kind: RecordType, misc: u16) {
        self.bytes.clear();
        self.bytes.extend_from_slice(&kind.0.to_ne_bytes());
        self.bytes.extend_from_slice(&misc.to_ne_bytes());
        // The size, which is written at the end.
        self.bytes.extend_from_slice(&[0; 2]);
    }

    fn half(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_ne_bytes());
    }

    fn word(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_ne_bytes());
    }

    /// Adds a text, a zero, and further zeros up to a whole word.
    fn text(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
        let end = (self.bytes.len() + 1).next_multiple_of(8);
        self.bytes.resize(end, 0);
    }

    fn end(&mut self) -> &[u8] {
        // Callers bound names and stacks, so that the size fits.
        let size = u16::try_from(self.bytes.len()).unwrap_or(u16::MAX);
        self.bytes[6..8].copy_from_slice(&size.to_ne_bytes());
        &self.bytes
    }

    /// Adds the fields at the end of a record that is no sample.
    fn trailer(&mut self, fields: SampleType, task: Task, id: u64) {
        self.half(task.pid);
        self.half(task.tid);
        if fields.contains(SampleType::TIME) {
            self.word(task.time);
        }
        if fields.contains(SampleType::CPU) {
            self.half(task.cpu);
            self.half(0);
        }
        self.word(id);
    }

    /// Makes a COMM record: the name of a thread.
    pub(super) fn comm(&mut self, fields: SampleType, task: Task, id: u64, name: &str) -> &[u8] {
        self.begin(RecordType::COMM, 0);
        self.half(task.pid);
        self.half(task.tid);
        self.text(name);
        self.trailer(fields, task, id);
        self.end()
    }

    /// Makes an MMAP2 record: a module's place in a process, or in the kernel. `is_main` says that the process runs the
    /// module's program.
    pub(super) fn mapping(
        &mut self,
        fields: SampleType,
        (task, id): (Task, u64),
        (path, build_id): (&str, Option<&[u8]>),
        mapped: Mapped,
        (is_kernel, is_main): (bool, bool),
    ) -> &[u8] {
        let mode = if is_kernel { KERNEL } else { USER };
        let has_build_id = if build_id.is_some() { HAS_BUILD_ID } else { 0 };
        self.begin(RecordType::MMAP2, mode | has_build_id);
        let (pid, tid) = match is_kernel {
            true => (KERNEL_PID, 0),
            false => (task.pid, task.tid),
        };
        self.half(pid);
        self.half(tid);
        self.word(mapped.start);
        self.word(mapped.end - mapped.start);
        self.word(mapped.offset);
        let mut identity = [0; 24];
        if let Some(id) = build_id {
            // At most 20 bytes: a longer one was refused.
            identity[0] = id.len() as u8;
            identity[4..4 + id.len()].copy_from_slice(id);
        }
        self.bytes.extend_from_slice(&identity);
        const READ: u32 = 1;
        const EXECUTE: u32 = 4;
        const PRIVATE: u32 = 2;
        // Readers take the first executable mapping for the program.
        self.half(if is_main { READ | EXECUTE } else { READ });
        self.half(PRIVATE);
        self.text(path);
        self.trailer(fields, task, id);
        self.end()
    }

    /// Makes a SAMPLE record. The stack's addresses come innermost first, each with whether it lies in the kernel.
    pub(super) fn sample(
        &mut self,
        fields: SampleType,
        (task, id): (Task, u64),
        weight: u64,
        stack: impl Iterator<Item = (u64, bool)>,
    ) -> &[u8] {
        self.begin(RecordType::SAMPLE, USER);
        self.word(id);
        let ip = self.bytes.len();
        self.word(0);
        self.half(task.pid);
        self.half(task.tid);
        if fields.contains(SampleType::TIME) {
            self.word(task.time);
        }
        if fields.contains(SampleType::CPU) {
            self.half(task.cpu);
            self.half(0);
        }
        if fields.contains(SampleType::PERIOD) {
            self.word(weight);
        }
        let count = self.bytes.len();
        self.word(0);
        let mut mode = None;
        for (address, in_kernel) in stack {
            if mode.is_none() {
                self.bytes[ip..ip + 8].copy_from_slice(&address.to_ne_bytes());
                let misc = if in_kernel { KERNEL } else { USER };
                self.bytes[4..6].copy_from_slice(&misc.to_ne_bytes());
            }
            if mode != Some(in_kernel) {
                self.word(if in_kernel { KERNEL_MARK } else { USER_MARK });
                mode = Some(in_kernel);
            }
            self.word(address);
        }
        let entries = (self.bytes.len() - count) as u64 / 8 - 1;
        self.bytes[count..count + 8].copy_from_slice(&entries.to_ne_bytes());
        self.end()
    }
}
