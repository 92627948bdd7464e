//! `struct perf_event_attr` as a plain value: what an event counts, when it samples, what its records hold.
//!
//! Source: `perf_event_open(2)` and the kernel's user-space header `linux/perf_event.h`.

use crate::bytes::{ByteOrder, Cursor};
use bitflags::bitflags;

bitflags! {
    /// The fields of a sample record (`PERF_SAMPLE_*`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct SampleType: u64 {
        /// Instruction pointer.
        const IP = 1 << 0;
        /// Process and thread id.
        const TID = 1 << 1;
        /// Time in nanoseconds of the event's clock.
        const TIME = 1 << 2;
        /// The address that the event is about, such as that of a fault.
        const ADDR = 1 << 3;
        /// Counter values in the layout of [`ReadFormat`].
        const READ = 1 << 4;
        /// Call chain.
        const CALLCHAIN = 1 << 5;
        /// Id of the event, of its group leader where it has one.
        const ID = 1 << 6;
        /// CPU number.
        const CPU = 1 << 7;
        /// Events since the previous sample.
        const PERIOD = 1 << 8;
        /// Id of the event, of the clone where the event was inherited.
        const STREAM_ID = 1 << 9;
        /// Opaque data, such as a tracepoint's fields.
        const RAW = 1 << 10;
        /// Branch records (LBR).
        const BRANCH_STACK = 1 << 11;
        /// User registers.
        const REGS_USER = 1 << 12;
        /// A copy of the top of the user stack.
        const STACK_USER = 1 << 13;
        /// Weight: a latency in hardware-specific units.
        const WEIGHT = 1 << 14;
        /// Data source of a memory access.
        const DATA_SRC = 1 << 15;
        /// The event's id as the record's first field.
        const IDENTIFIER = 1 << 16;
        /// Transaction abort flags.
        const TRANSACTION = 1 << 17;
        /// Registers at the interrupt.
        const REGS_INTR = 1 << 18;
        /// Physical address.
        const PHYS_ADDR = 1 << 19;
        /// Data of an AUX area.
        const AUX = 1 << 20;
        /// Cgroup id.
        const CGROUP = 1 << 21;
        /// Page size of the data address.
        const DATA_PAGE_SIZE = 1 << 22;
        /// Page size of the instruction pointer.
        const CODE_PAGE_SIZE = 1 << 23;
        /// Three weights in one word.
        const WEIGHT_STRUCT = 1 << 24;
    }

    /// The fields that reading a counter returns (`PERF_FORMAT_*`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct ReadFormat: u64 {
        /// Nanoseconds for which the event was enabled.
        const TOTAL_TIME_ENABLED = 1 << 0;
        /// Nanoseconds for which it counted.
        const TOTAL_TIME_RUNNING = 1 << 1;
        /// The event's id.
        const ID = 1 << 2;
        /// The whole group's values at once.
        const GROUP = 1 << 3;
        /// The number of the event's samples that were lost.
        const LOST = 1 << 4;
    }

    /// The one-bit fields of the attr, in the order of the kernel's header. `precise_ip` takes two of them.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct AttrFlags: u64 {
        /// Starts disabled.
        const DISABLED = 1 << 0;
        /// Threads and processes created later inherit the event.
        const INHERIT = 1 << 1;
        /// Must always be on the PMU.
        const PINNED = 1 << 2;
        /// Must be the only group on the PMU.
        const EXCLUSIVE = 1 << 3;
        /// Does not count user space.
        const EXCLUDE_USER = 1 << 4;
        /// Does not count the kernel.
        const EXCLUDE_KERNEL = 1 << 5;
        /// Does not count the hypervisor.
        const EXCLUDE_HV = 1 << 6;
        /// Does not count while idle.
        const EXCLUDE_IDLE = 1 << 7;
        /// Writes MMAP records of executable mappings.
        const MMAP = 1 << 8;
        /// Writes COMM records.
        const COMM = 1 << 9;
        /// The sample period is a frequency in Hz.
        const FREQ = 1 << 10;
        /// Per-thread counts of inherited events.
        const INHERIT_STAT = 1 << 11;
        /// Is enabled by the next exec.
        const ENABLE_ON_EXEC = 1 << 12;
        /// Writes FORK and EXIT records.
        const TASK = 1 << 13;
        /// `wakeup` counts bytes, not events.
        const WATERMARK = 1 << 14;
        /// Low bit of `precise_ip`.
        const PRECISE_LOW = 1 << 15;
        /// High bit of `precise_ip`.
        const PRECISE_HIGH = 1 << 16;
        /// Writes MMAP records of data mappings as well.
        const MMAP_DATA = 1 << 17;
        /// Every record ends with the sample's ids.
        const SAMPLE_ID_ALL = 1 << 18;
        /// Does not count the host.
        const EXCLUDE_HOST = 1 << 19;
        /// Does not count guests.
        const EXCLUDE_GUEST = 1 << 20;
        /// Call chains without the kernel's part.
        const EXCLUDE_CALLCHAIN_KERNEL = 1 << 21;
        /// Call chains without the user's part.
        const EXCLUDE_CALLCHAIN_USER = 1 << 22;
        /// Writes MMAP2 records in place of MMAP.
        const MMAP2 = 1 << 23;
        /// COMM records tell an exec apart.
        const COMM_EXEC = 1 << 24;
        /// Times are of the clock in `clockid`.
        const USE_CLOCKID = 1 << 25;
        /// Writes SWITCH records.
        const CONTEXT_SWITCH = 1 << 26;
        /// Writes the ring from its end to its start.
        const WRITE_BACKWARD = 1 << 27;
        /// Writes NAMESPACES records.
        const NAMESPACES = 1 << 28;
        /// Writes KSYMBOL records.
        const KSYMBOL = 1 << 29;
        /// Writes BPF_EVENT records.
        const BPF_EVENT = 1 << 30;
        /// Sends its data to the AUX area.
        const AUX_OUTPUT = 1 << 31;
        /// Writes CGROUP records.
        const CGROUP = 1 << 32;
        /// Writes TEXT_POKE records.
        const TEXT_POKE = 1 << 33;
        /// MMAP2 records carry build ids.
        const BUILD_ID = 1 << 34;
        /// Only threads inherit, not forked processes.
        const INHERIT_THREAD = 1 << 35;
        /// Is closed by exec.
        const REMOVE_ON_EXEC = 1 << 36;
        /// Sends SIGTRAP to the thread instead of writing a record.
        const SIGTRAP = 1 << 37;
        /// Bits of newer kernels are kept.
        const _ = !0;
    }
}

/// `PERF_TYPE_*`: the kind of event that `config` names. Values of 6 and above are dynamic PMUs.
pub mod event_type {
    #![allow(missing_docs)]
    pub const HARDWARE: u32 = 0;
    pub const SOFTWARE: u32 = 1;
    pub const TRACEPOINT: u32 = 2;
    pub const HW_CACHE: u32 = 3;
    pub const RAW: u32 = 4;
    pub const BREAKPOINT: u32 = 5;
}

/// Sizes of the attr that kernels have known, oldest first (`PERF_ATTR_SIZE_VER0` to `VER8`).
pub const ATTR_SIZES: [u32; 9] = [64, 72, 80, 96, 104, 112, 120, 128, 136];

/// The largest attr that perf 6.1 reads in a file (VER7).
pub const ATTR_SIZE_IN_FILES: u32 = 128;

/// One event's attr. A field that an older, shorter attr lacks is zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    /// [`event_type`], or the number of a dynamic PMU.
    pub kind: u32,
    /// The attr's size in bytes as it was read; [`Attr::to_bytes`] ignores it.
    pub size: u32,
    /// The event among those of its kind.
    pub config: u64,
    /// Period, or a frequency in Hz with [`AttrFlags::FREQ`].
    pub sample_period: u64,
    /// The fields of samples.
    pub sample_type: SampleType,
    /// The fields that reads return.
    pub read_format: ReadFormat,
    /// The one-bit fields.
    pub flags: AttrFlags,
    /// Events, or bytes with [`AttrFlags::WATERMARK`], before a wakeup.
    pub wakeup: u32,
    /// Breakpoint type.
    pub bp_type: u32,
    /// Breakpoint address, or a PMU's second word of configuration.
    pub config1: u64,
    /// Breakpoint length, or a PMU's third word of configuration.
    pub config2: u64,
    /// The branches that a branch stack holds (`PERF_SAMPLE_BRANCH_*`).
    pub branch_sample_type: u64,
    /// User registers in a sample, a bit each.
    pub sample_regs_user: u64,
    /// Bytes of user stack in a sample.
    pub sample_stack_user: u32,
    /// Clock of the times, with [`AttrFlags::USE_CLOCKID`].
    pub clockid: i32,
    /// Registers at the interrupt, a bit each.
    pub sample_regs_intr: u64,
    /// Bytes of AUX data before a wakeup.
    pub aux_watermark: u32,
    /// Frames in a call chain at most.
    pub sample_max_stack: u16,
    /// Bytes of AUX data in a sample.
    pub aux_sample_size: u32,
    /// The word that a SIGTRAP carries.
    pub sig_data: u64,
    /// A PMU's fourth word of configuration.
    pub config3: u64,
}

impl Attr {
    /// The size of the largest attr that this crate knows, in bytes.
    pub const MAX_SIZE: usize = 136;

    /// Returns the bytes of the attr in native order, cut or zero-filled to `size`, which they state in their size field.
    pub fn to_bytes(&self, size: u32) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::MAX_SIZE.max(size as usize));
        let mut put = |field: &[u8]| bytes.extend_from_slice(field);
        put(&self.kind.to_ne_bytes());
        put(&size.to_ne_bytes());
        put(&self.config.to_ne_bytes());
        put(&self.sample_period.to_ne_bytes());
        put(&self.sample_type.bits().to_ne_bytes());
        put(&self.read_format.bits().to_ne_bytes());
        put(&flags_to_word(self.flags.bits(), ByteOrder::NATIVE).to_ne_bytes());
        put(&self.wakeup.to_ne_bytes());
        put(&self.bp_type.to_ne_bytes());
        put(&self.config1.to_ne_bytes());
        put(&self.config2.to_ne_bytes());
        put(&self.branch_sample_type.to_ne_bytes());
        put(&self.sample_regs_user.to_ne_bytes());
        put(&self.sample_stack_user.to_ne_bytes());
        put(&self.clockid.to_ne_bytes());
        put(&self.sample_regs_intr.to_ne_bytes());
        put(&self.aux_watermark.to_ne_bytes());
        put(&self.sample_max_stack.to_ne_bytes());
        put(&[0; 2]);
        put(&self.aux_sample_size.to_ne_bytes());
        put(&[0; 4]);
        put(&self.sig_data.to_ne_bytes());
        put(&self.config3.to_ne_bytes());
        bytes.resize(size as usize, 0);
        bytes
    }

    /// Reads an attr of any size from its bytes; fields past their end are zero, bytes past [`Attr::MAX_SIZE`] ignored.
    ///
    /// Returns `None` for fewer than 16 bytes. An attr whose own size field is smaller than `bytes` ends there; a
    /// size of zero means 64, as in files of the first perf.
    pub fn from_bytes(bytes: &[u8], order: ByteOrder) -> Option<Attr> {
        let stated = order.u32(*bytes.get(4..)?.first_chunk()?);
        let size = if stated == 0 { 64 } else { stated };
        bytes.get(..16)?;
        let mut padded = [0; Self::MAX_SIZE];
        let known = bytes.len().min(size as usize).min(padded.len());
        padded[..known].copy_from_slice(&bytes[..known]);
        let mut at = Cursor::new(&padded, order);
        let kind = at.u32()?;
        let _size = at.u32()?;
        Some(Attr {
            kind,
            size,
            config: at.u64()?,
            sample_period: at.u64()?,
            sample_type: SampleType::from_bits_retain(at.u64()?),
            read_format: ReadFormat::from_bits_retain(at.u64()?),
            flags: AttrFlags::from_bits_retain(flags_from_word(at.u64()?, order)),
            wakeup: at.u32()?,
            bp_type: at.u32()?,
            config1: at.u64()?,
            config2: at.u64()?,
            branch_sample_type: at.u64()?,
            sample_regs_user: at.u64()?,
            sample_stack_user: at.u32()?,
            clockid: at.u32()?.cast_signed(),
            sample_regs_intr: at.u64()?,
            aux_watermark: at.u32()?,
            sample_max_stack: at.u16()?,
            aux_sample_size: {
                at.u16()?;
                at.u32()?
            },
            sig_data: {
                at.u32()?;
                at.u64()?
            },
            config3: at.u64()?,
        })
    }

    /// Returns the precision that the instruction pointer must have: 0 (any skid) to 3 (none).
    pub fn precise_ip(&self) -> u8 {
        u8::from(self.flags.contains(AttrFlags::PRECISE_LOW))
            + 2 * u8::from(self.flags.contains(AttrFlags::PRECISE_HIGH))
    }

    /// Sets [`Attr::precise_ip`]; only its two low bits count.
    pub fn set_precise_ip(&mut self, precise: u8) {
        self.flags.set(AttrFlags::PRECISE_LOW, precise & 1 != 0);
        self.flags.set(AttrFlags::PRECISE_HIGH, precise & 2 != 0);
    }

    /// Returns true if the event writes samples: it has a period or a frequency.
    pub fn samples(&self) -> bool {
        self.sample_period != 0
    }
}

/// Returns the word of bit-fields as read in `order`, with its bits where [`AttrFlags`] has them: bit-fields start at
/// the most significant bit on big-endian systems.
fn flags_from_word(word: u64, order: ByteOrder) -> u64 {
    match order {
        ByteOrder::Little => word,
        ByteOrder::Big => swap_precise(word.reverse_bits()),
    }
}

/// Reverses [`flags_from_word`].
fn flags_to_word(bits: u64, order: ByteOrder) -> u64 {
    match order {
        ByteOrder::Little => bits,
        ByteOrder::Big => swap_precise(bits).reverse_bits(),
    }
}

/// `precise_ip` is the one field of two bits: in a mirrored word they have changed places.
fn swap_precise(bits: u64) -> u64 {
    let low = AttrFlags::PRECISE_LOW.bits();
    let high = AttrFlags::PRECISE_HIGH.bits();
    (bits & !(low | high)) | ((bits & high) >> 1) | ((bits & low) << 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Attr {
        let mut attr = Attr {
            kind: 4,
            size: 136,
            config: 1,
            sample_period: 2,
            sample_type: SampleType::IP | SampleType::CALLCHAIN,
            read_format: ReadFormat::LOST,
            flags: AttrFlags::INHERIT | AttrFlags::SIGTRAP,
            wakeup: 3,
            bp_type: 4,
            config1: 5,
            config2: 6,
            branch_sample_type: 7,
            sample_regs_user: 8,
            sample_stack_user: 9,
            clockid: -10,
            sample_regs_intr: 11,
            aux_watermark: 12,
            sample_max_stack: 13,
            aux_sample_size: 14,
            sig_data: 15,
            config3: 16,
        };
        attr.set_precise_ip(1);
        attr
    }

    #[test]
    fn bytes_and_back() {
        let attr = full();
        let bytes = attr.to_bytes(136);
        assert_eq!(bytes.len(), 136);
        assert_eq!(Attr::from_bytes(&bytes, ByteOrder::NATIVE), Some(attr));
    }

    #[test]
    fn a_short_attr_lacks_only_its_last_fields() {
        let attr = full();
        let short = Attr::from_bytes(&attr.to_bytes(72), ByteOrder::NATIVE);
        let short = short.expect("72 bytes are an attr");
        assert_eq!((short.size, short.config2), (72, 6));
        assert_eq!((short.branch_sample_type, short.config3), (0, 0));
    }

    #[test]
    fn big_endian_bit_fields_start_at_the_top() {
        let mut bytes = vec![0; 64];
        bytes[7] = 64;
        // disabled is the first bit, precise_ip the 16th and 17th with the higher value first.
        bytes[40] = 0x80;
        bytes[41] = 0x01;
        let attr = Attr::from_bytes(&bytes, ByteOrder::Big).expect("an attr");
        assert!(attr.flags.contains(AttrFlags::DISABLED));
        assert_eq!(attr.precise_ip(), 2);
    }
}
