//! Records of the kernel's rings and of perf.data files: bytes become borrowed values, nothing is copied.
//!
//! Parsing is total: any bytes give a record or a [`RecordError`], never a panic. A record's layout depends on the
//! attr of its event: [`RecordLayout`] is that attr, prepared.
//!
//! Source: `perf_event_open(2)`, section "MMAP layout", and the kernel's user-space header `linux/perf_event.h`.

mod head;
mod layout;
mod sample;
mod sideband;

pub use head::SampleHead;
pub use layout::{RecordLayout, SampleId};
pub use sample::{Branch, BranchStack, ReadValue, ReadValues, Registers, Sample, UserStack};
pub use sideband::{
    Aux, BpfEvent, Cgroup, Comm, Ksymbol, Lost, MappedFile, Mmap, Namespaces, ReadRecord, Record,
    Switch, Task, TextPoke, Throttle,
};

use crate::bytes::ByteOrder;
use std::fmt;
use thiserror::Error;

/// Bytes of a record's header: type `u32`, misc `u16`, size `u16`.
pub const HEADER_SIZE: usize = 8;

/// `PERF_RECORD_*` of the kernel. Types of 64 and above are perf's own, in files only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordType(pub u32);

macro_rules! record_types {
    ($($(#[$doc:meta])* $name:ident = $value:literal,)*) => {
        impl RecordType {
            $($(#[$doc])* pub const $name: RecordType = RecordType($value);)*

            /// perf's name of the type without `PERF_RECORD_`, or `None` for one that is not known.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }

            /// All known types.
            pub const ALL: &'static [RecordType] = &[$(RecordType($value),)*];
        }
    };
}

record_types! {
    /// An executable mapping (a data mapping with [`Misc::MMAP_DATA`]).
    MMAP = 1,
    /// Records were lost.
    LOST = 2,
    /// A thread has a new name.
    COMM = 3,
    /// A thread ended.
    EXIT = 4,
    /// An event's samples are throttled.
    THROTTLE = 5,
    /// They no longer are.
    UNTHROTTLE = 6,
    /// A thread or process was created.
    FORK = 7,
    /// Counter values of a thread that ended.
    READ = 8,
    /// A sample.
    SAMPLE = 9,
    /// An executable mapping with device, inode and protection or build id.
    MMAP2 = 10,
    /// New data in the AUX area.
    AUX = 11,
    /// Instruction tracing started.
    ITRACE_START = 12,
    /// Samples (not other records) were lost.
    LOST_SAMPLES = 13,
    /// This thread was switched in or out.
    SWITCH = 14,
    /// A CPU switched threads.
    SWITCH_CPU_WIDE = 15,
    /// A thread's namespaces.
    NAMESPACES = 16,
    /// A kernel symbol came or went.
    KSYMBOL = 17,
    /// A BPF program came or went.
    BPF_EVENT = 18,
    /// A cgroup's path.
    CGROUP = 19,
    /// Kernel code was changed.
    TEXT_POKE = 20,
    /// The hardware's id of an AUX output.
    AUX_OUTPUT_HW_ID = 21,
}

impl fmt::Debug for RecordType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for RecordType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "type {}", self.0),
        }
    }
}

/// The `misc` field of a record's header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Misc(pub u16);

impl Misc {
    /// MMAP: a data mapping.
    pub const MMAP_DATA: u16 = 1 << 13;
    /// COMM: because of an exec.
    pub const COMM_EXEC: u16 = 1 << 13;
    /// SWITCH: out of the CPU.
    pub const SWITCH_OUT: u16 = 1 << 13;
    /// SAMPLE: the instruction pointer is exact.
    pub const EXACT_IP: u16 = 1 << 14;
    /// SWITCH: preempted while runnable.
    pub const SWITCH_OUT_PREEMPT: u16 = 1 << 14;
    /// MMAP2: a build id stands in place of device and inode.
    pub const MMAP_BUILD_ID: u16 = 1 << 14;
    /// MMAP: perf could not read all of `/proc/PID/maps` in time.
    pub const PROC_MAP_PARSE_TIMEOUT: u16 = 1 << 12;

    /// Returns the kind of code that the CPU ran.
    pub fn cpu_mode(self) -> CpuMode {
        match self.0 & 7 {
            1 => CpuMode::Kernel,
            2 => CpuMode::User,
            3 => CpuMode::Hypervisor,
            4 => CpuMode::GuestKernel,
            5 => CpuMode::GuestUser,
            _ => CpuMode::Unknown,
        }
    }

    /// Returns true if all bits of `bit` are set.
    pub fn has(self, bit: u16) -> bool {
        self.0 & bit == bit
    }
}

/// The kind of code that ran when a record was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CpuMode {
    /// The record does not say.
    Unknown,
    /// The kernel.
    Kernel,
    /// A program.
    User,
    /// The hypervisor.
    Hypervisor,
    /// The kernel of a virtual machine.
    GuestKernel,
    /// A program in a virtual machine.
    GuestUser,
}

/// A record as its header and the bytes after it.
#[derive(Clone, Copy, Debug)]
pub struct RawRecord<'a> {
    /// The kind of record.
    pub kind: RecordType,
    /// Flags of the header.
    pub misc: Misc,
    /// Everything after the header.
    pub body: &'a [u8],
}

impl<'a> RawRecord<'a> {
    /// Splits the first record off `bytes`.
    ///
    /// # Errors
    /// [`RecordError::Truncated`] where `bytes` end within the record, [`RecordError::Size`] where the header states
    /// less than itself.
    #[inline]
    pub fn split(
        bytes: &'a [u8],
        order: ByteOrder,
    ) -> Result<(RawRecord<'a>, &'a [u8]), RecordError> {
        let header: &[u8; HEADER_SIZE] = bytes.first_chunk().ok_or(RecordError::Truncated {
            needed: HEADER_SIZE,
            have: bytes.len(),
        })?;
        let [a, b, c, d, e, f, g, h] = *header;
        let kind = RecordType(order.u32([a, b, c, d]));
        let size = usize::from(order.u16([g, h]));
        if size < HEADER_SIZE {
            return Err(RecordError::Size { kind, size });
        }
        let (record, rest) = bytes.split_at_checked(size).ok_or(RecordError::Truncated {
            needed: size,
            have: bytes.len(),
        })?;
        let raw = RawRecord {
            kind,
            misc: Misc(order.u16([e, f])),
            body: &record[HEADER_SIZE..],
        };
        Ok((raw, rest))
    }
}

/// Why bytes are no record.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The bytes end within a record.
    #[error("the bytes end within a record: {needed} bytes needed, {have} left")]
    Truncated {
        /// Bytes of the whole record.
        needed: usize,
        /// Bytes that there are.
        have: usize,
    },
    /// A header states a size smaller than itself.
    #[error("a record of {kind} states a size of {size} bytes, less than its header")]
    Size {
        /// Its type.
        kind: RecordType,
        /// The stated size in bytes.
        size: usize,
    },
    /// A record is too short for what its type and its event's attr say that it holds.
    #[error("a {kind} record of {length} bytes ends within its field {field}")]
    Field {
        /// Its type.
        kind: RecordType,
        /// The field that is cut.
        field: &'static str,
        /// Bytes after the header.
        length: usize,
    },
}
