//! Sample records.

use super::head::cut;
use super::layout::RecordLayout;
use super::{Misc, RawRecord, RecordError};
use crate::attr::{ReadFormat, SampleType};
use crate::bytes::{Cursor, U64s};

/// `PERF_SAMPLE_BRANCH_HW_INDEX`: a branch stack starts with the hardware's index.
const BRANCH_HW_INDEX: u64 = 1 << 17;
/// `PERF_SAMPLE_BRANCH_COUNTERS`: a branch stack is followed by a word of counters for each branch.
const BRANCH_COUNTERS: u64 = 1 << 19;

/// The fields that [`RecordLayout::head_and_rest`] reads.
const HEAD: SampleType = SampleType::IDENTIFIER
    .union(SampleType::IP)
    .union(SampleType::TID)
    .union(SampleType::TIME)
    .union(SampleType::ADDR)
    .union(SampleType::ID)
    .union(SampleType::STREAM_ID)
    .union(SampleType::CPU)
    .union(SampleType::PERIOD)
    .union(SampleType::READ)
    .union(SampleType::CALLCHAIN);

/// A sample. A field that the attr did not ask for is `None`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Sample<'a> {
    /// Header flags: where the CPU was, whether the instruction pointer is exact.
    pub misc: Misc,
    /// Event id, from `IDENTIFIER` or else `ID`.
    pub id: Option<u64>,
    /// Instruction pointer.
    pub ip: Option<u64>,
    /// Process id.
    pub pid: Option<u32>,
    /// Thread id.
    pub tid: Option<u32>,
    /// Nanoseconds of the event's clock.
    pub time: Option<u64>,
    /// The address that the event is about.
    pub addr: Option<u64>,
    /// Id of the event's clone.
    pub stream_id: Option<u64>,
    /// CPU number.
    pub cpu: Option<u32>,
    /// Events since the previous sample.
    pub period: Option<u64>,
    /// Counter values.
    pub read: Option<ReadValues<'a>>,
    /// Call chain, innermost first, with context marks (`PERF_CONTEXT_*`) among the addresses.
    pub callchain: Option<U64s<'a>>,
    /// Opaque data.
    pub raw: Option<&'a [u8]>,
    /// Branch records, newest first.
    pub branches: Option<BranchStack<'a>>,
    /// User registers.
    pub regs_user: Option<Registers<'a>>,
    /// Copy of the user stack's top.
    pub stack_user: Option<UserStack<'a>>,
    /// Weight, or three in one word.
    pub weight: Option<u64>,
    /// Data source.
    pub data_src: Option<u64>,
    /// Transaction flags.
    pub transaction: Option<u64>,
    /// Registers at the interrupt.
    pub regs_intr: Option<Registers<'a>>,
    /// Physical address.
    pub phys_addr: Option<u64>,
    /// Cgroup id.
    pub cgroup: Option<u64>,
    /// Bytes of the data address's page.
    pub data_page_size: Option<u64>,
    /// Bytes of the instruction pointer's page.
    pub code_page_size: Option<u64>,
    /// AUX data.
    pub aux: Option<&'a [u8]>,
}

/// Counter values as `read` returns them and as samples hold them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadValues<'a> {
    format: ReadFormat,
    /// Nanoseconds enabled.
    pub time_enabled: Option<u64>,
    /// Nanoseconds running.
    pub time_running: Option<u64>,
    words: U64s<'a>,
}

/// One counter of [`ReadValues`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadValue {
    /// The count.
    pub value: u64,
    /// The event's id.
    pub id: Option<u64>,
    /// Samples that the event lost.
    pub lost: Option<u64>,
}

impl<'a> ReadValues<'a> {
    /// Reads values in the layout of `format`; `None` where too few bytes are left.
    pub fn parse(at: &mut Cursor<'a>, format: ReadFormat) -> Option<Self> {
        let mut time_enabled = None;
        let mut time_running = None;
        let group = format.contains(ReadFormat::GROUP);
        let extras = (format & (ReadFormat::ID | ReadFormat::LOST))
            .bits()
            .count_ones();
        let words = if group {
            let count = at.u64()?;
            if format.contains(ReadFormat::TOTAL_TIME_ENABLED) {
                time_enabled = Some(at.u64()?);
            }
            if format.contains(ReadFormat::TOTAL_TIME_RUNNING) {
                time_running = Some(at.u64()?);
            }
            at.u64s(count.checked_mul(1 + u64::from(extras))?)?
        } else {
            // The value stands before the times, id and lost count after them: view it all, skip the times.
            let times = (format
                & (ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING))
                .bits()
                .count_ones();
            let words = at.u64s(u64::from(1 + times + extras))?;
            let mut next = 1;
            if format.contains(ReadFormat::TOTAL_TIME_ENABLED) {
                time_enabled = words.get(next);
                next += 1;
            }
            if format.contains(ReadFormat::TOTAL_TIME_RUNNING) {
                time_running = words.get(next);
            }
            words
        };
        Some(ReadValues {
            format,
            time_enabled,
            time_running,
            words,
        })
    }

    /// Returns the number of counters.
    pub fn len(&self) -> usize {
        if self.format.contains(ReadFormat::GROUP) {
            self.words.len() / self.stride()
        } else {
            1
        }
    }

    /// Returns true if there are no counters (an empty group).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn stride(&self) -> usize {
        1 + (self.format & (ReadFormat::ID | ReadFormat::LOST))
            .bits()
            .count_ones() as usize
    }

    /// Returns the counters, the group's leader first.
    pub fn iter(&self) -> impl Iterator<Item = ReadValue> + use<'a> {
        let values = *self;
        (0..values.len()).filter_map(move |index| values.get(index))
    }

    /// Returns the counter at `index`.
    pub fn get(&self, index: usize) -> Option<ReadValue> {
        let (first, mut next) = if self.format.contains(ReadFormat::GROUP) {
            let first = index.checked_mul(self.stride())?;
            (first, first.checked_add(1)?)
        } else if index == 0 {
            let times =
                usize::from(self.time_enabled.is_some()) + usize::from(self.time_running.is_some());
            (0, 1 + times)
        } else {
            return None;
        };
        let value = self.words.get(first)?;
        let mut id = None;
        if self.format.contains(ReadFormat::ID) {
            id = Some(self.words.get(next)?);
            next += 1;
        }
        let mut lost = None;
        if self.format.contains(ReadFormat::LOST) {
            lost = Some(self.words.get(next)?);
        }
        Some(ReadValue { value, id, lost })
    }
}

/// Branch records, newest first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BranchStack<'a> {
    /// The hardware's index of the newest branch.
    pub hw_index: Option<u64>,
    /// A word of counters for each branch.
    pub counters: Option<U64s<'a>>,
    words: U64s<'a>,
}

/// One branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Address of the branch instruction.
    pub from: u64,
    /// Where it went.
    pub to: u64,
    /// Flags word: mispredicted, predicted, in transaction, abort, cycles, type.
    pub flags: u64,
}

impl<'a> BranchStack<'a> {
    /// Returns the number of branches.
    pub fn len(&self) -> usize {
        self.words.len() / 3
    }

    /// Returns true if there are no branches.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Returns the branches, newest first.
    pub fn iter(&self) -> impl Iterator<Item = Branch> + use<'a> {
        let words = self.words;
        (0..words.len() / 3).filter_map(move |index| {
            Some(Branch {
                from: words.get(3 * index)?,
                to: words.get(3 * index + 1)?,
                flags: words.get(3 * index + 2)?,
            })
        })
    }
}

/// Registers of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Registers<'a> {
    /// `PERF_SAMPLE_REGS_ABI_*`: 0 none, 1 of a 32-bit, 2 of a 64-bit program.
    pub abi: u64,
    /// The registers that the sample holds, a bit each, as in the attr.
    pub mask: u64,
    /// The registers of `mask`, lowest bit first; empty with an `abi` of 0.
    pub values: U64s<'a>,
}

impl Registers<'_> {
    /// Returns the register of bit `number`, where it was recorded.
    pub fn get(&self, number: u32) -> Option<u64> {
        let bit = 1_u64.checked_shl(number)?;
        if self.mask & bit == 0 {
            return None;
        }
        self.values
            .get((self.mask & (bit - 1)).count_ones() as usize)
    }
}

/// A copy of the top of the user stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserStack<'a> {
    /// The bytes that were really copied, from the stack pointer upwards.
    pub bytes: &'a [u8],
    /// The number of bytes that the record reserves for the copy.
    pub reserved: usize,
}

impl RecordLayout {
    /// Parses a sample.
    ///
    /// # Errors
    /// [`RecordError::Field`] where the record is shorter than its attr says.
    // Inlined, a caller pays for the fields that it uses, not for moving the whole struct.
    #[inline]
    pub fn sample<'a>(&self, record: &RawRecord<'a>) -> Result<Sample<'a>, RecordError> {
        let (head, at) = match self.head_and_rest(record.body) {
            Ok(parts) => parts,
            Err(field) => return Err(cut(field, record)),
        };
        let sample = Sample {
            misc: record.misc,
            id: head.id,
            ip: head.ip,
            pid: head.pid,
            tid: head.tid,
            time: head.time,
            addr: head.addr,
            stream_id: head.stream_id,
            cpu: head.cpu,
            period: head.period,
            read: head.read,
            callchain: head.callchain,
            raw: None,
            branches: None,
            regs_user: None,
            stack_user: None,
            weight: None,
            data_src: None,
            transaction: None,
            regs_intr: None,
            phys_addr: None,
            cgroup: None,
            data_page_size: None,
            code_page_size: None,
            aux: None,
        };
        if (self.sample_type - HEAD).is_empty() {
            return Ok(sample);
        }
        match self.with_rest(sample, at) {
            Ok(sample) => Ok(sample),
            Err(field) => Err(cut(field, record)),
        }
    }

    /// Adds the fields from RAW on, which most recordings lack; the error is the name of the field that is cut.
    fn with_rest<'a>(
        &self,
        mut sample: Sample<'a>,
        mut at: Cursor<'a>,
    ) -> Result<Sample<'a>, &'static str> {
        let at = &mut at;
        let has = |field| self.sample_type.contains(field);
        let length = |length: u64| usize::try_from(length).ok();
        if has(SampleType::RAW) {
            let size = at.u32().ok_or("RAW")? as usize;
            sample.raw = Some(at.take(size).ok_or("RAW")?);
            // Size and data together fill whole words.
            at.take((4 + size).next_multiple_of(8) - (4 + size))
                .ok_or("RAW")?;
        }
        if has(SampleType::BRANCH_STACK) {
            sample.branches = Some(self.branch_stack(at).ok_or("BRANCH_STACK")?);
        }
        if has(SampleType::REGS_USER) {
            sample.regs_user = Some(registers(at, self.regs_user).ok_or("REGS_USER")?);
        }
        if has(SampleType::STACK_USER) {
            sample.stack_user = Some(user_stack(at).ok_or("STACK_USER")?);
        }
        if has(SampleType::WEIGHT) || has(SampleType::WEIGHT_STRUCT) {
            sample.weight = Some(at.u64().ok_or("WEIGHT")?);
        }
        if has(SampleType::DATA_SRC) {
            sample.data_src = Some(at.u64().ok_or("DATA_SRC")?);
        }
        if has(SampleType::TRANSACTION) {
            sample.transaction = Some(at.u64().ok_or("TRANSACTION")?);
        }
        if has(SampleType::REGS_INTR) {
            sample.regs_intr = Some(registers(at, self.regs_intr).ok_or("REGS_INTR")?);
        }
        if has(SampleType::PHYS_ADDR) {
            sample.phys_addr = Some(at.u64().ok_or("PHYS_ADDR")?);
        }
        if has(SampleType::CGROUP) {
            sample.cgroup = Some(at.u64().ok_or("CGROUP")?);
        }
        if has(SampleType::DATA_PAGE_SIZE) {
            sample.data_page_size = Some(at.u64().ok_or("DATA_PAGE_SIZE")?);
        }
        if has(SampleType::CODE_PAGE_SIZE) {
            sample.code_page_size = Some(at.u64().ok_or("CODE_PAGE_SIZE")?);
        }
        if has(SampleType::AUX) {
            let size = at.u64().and_then(length).ok_or("AUX")?;
            sample.aux = Some(at.take(size).ok_or("AUX")?);
        }
        Ok(sample)
    }

    fn branch_stack<'a>(&self, at: &mut Cursor<'a>) -> Option<BranchStack<'a>> {
        let count = at.u64()?;
        let hw_index = if self.branch_sample_type & BRANCH_HW_INDEX != 0 {
            Some(at.u64()?)
        } else {
            None
        };
        let words = at.u64s(count.checked_mul(3)?)?;
        let counters = if self.branch_sample_type & BRANCH_COUNTERS != 0 {
            Some(at.u64s(count)?)
        } else {
            None
        };
        Some(BranchStack {
            hw_index,
            counters,
            words,
        })
    }
}

fn registers<'a>(at: &mut Cursor<'a>, mask: u64) -> Option<Registers<'a>> {
    let abi = at.u64()?;
    let count = if abi == 0 {
        0
    } else {
        u64::from(mask.count_ones())
    };
    let values = at.u64s(count)?;
    Some(Registers { abi, mask, values })
}

fn user_stack<'a>(at: &mut Cursor<'a>) -> Option<UserStack<'a>> {
    let reserved = usize::try_from(at.u64()?).ok()?;
    if reserved == 0 {
        return Some(UserStack {
            bytes: &[],
            reserved,
        });
    }
    let bytes = at.take(reserved)?;
    let copied = usize::try_from(at.u64()?).ok()?;
    let bytes = bytes.get(..copied)?;
    Some(UserStack { bytes, reserved })
}
