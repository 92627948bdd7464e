//! Records that are no samples: mappings, threads, losses, and the kernel's other reports.

use super::layout::{RecordLayout, SampleId};
use super::sample::{ReadValues, Sample};
use super::{Misc, RawRecord, RecordError, RecordType};
use crate::bytes::{Cursor, U64s};

/// A record of any type, as large as a sample: it lives on the stack and is never stored. Those that are no samples come with the ids at their end.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[expect(
    clippy::large_enum_variant,
    reason = "a box per sample would allocate per record"
)]
pub enum Record<'a> {
    /// A sample.
    Sample(Sample<'a>),
    /// MMAP or MMAP2: a mapping.
    Mmap(Mmap<'a>, SampleId),
    /// A thread's name.
    Comm(Comm<'a>, SampleId),
    /// A thread or process was created.
    Fork(Task, SampleId),
    /// A thread ended.
    Exit(Task, SampleId),
    /// Records were lost.
    Lost(Lost, SampleId),
    /// Samples were lost: how many.
    LostSamples(u64, SampleId),
    /// Samples are throttled.
    Throttle(Throttle, SampleId),
    /// They no longer are.
    Unthrottle(Throttle, SampleId),
    /// Counter values of a thread that ended.
    Read(ReadRecord<'a>, SampleId),
    /// A context switch.
    Switch(Switch, SampleId),
    /// A thread's namespaces.
    Namespaces(Namespaces<'a>, SampleId),
    /// A cgroup's path.
    Cgroup(Cgroup<'a>, SampleId),
    /// A kernel symbol.
    Ksymbol(Ksymbol<'a>, SampleId),
    /// A BPF program.
    BpfEvent(BpfEvent<'a>, SampleId),
    /// Changed kernel code.
    TextPoke(TextPoke<'a>, SampleId),
    /// AUX data.
    Aux(Aux, SampleId),
    /// Instruction tracing started in `pid`, `tid`.
    ItraceStart(u32, u32, SampleId),
    /// Hardware id of an AUX output.
    AuxOutputHwId(u64, SampleId),
    /// A type that this crate does not know.
    Unknown(RawRecord<'a>),
}

impl PartialEq for RawRecord<'_> {
    fn eq(&self, other: &Self) -> bool {
        (self.kind, self.misc, self.body) == (other.kind, other.misc, other.body)
    }
}

/// A mapping of a module into a process, or of the kernel (`pid` of `u32::MAX`, in files).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Mmap<'a> {
    /// Header flags: CPU mode, data mapping.
    pub misc: Misc,
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// First address.
    pub start: u64,
    /// Bytes.
    pub length: u64,
    /// Offset in the file, in bytes.
    pub page_offset: u64,
    /// Protection (`PROT_*`) and flags (`MAP_*`), of MMAP2 only.
    pub protection: Option<(u32, u32)>,
    /// The file's identity, of MMAP2 only.
    pub file: MappedFile<'a>,
    /// Path, or a name such as `[vdso]` or `//anon`.
    pub name: &'a [u8],
}

/// The identity of a mapping's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappedFile<'a> {
    /// Nothing: an MMAP record.
    Unknown,
    /// Device and inode.
    Inode {
        /// Device major number.
        major: u32,
        /// Device minor number.
        minor: u32,
        /// Inode number.
        inode: u64,
        /// Inode generation.
        generation: u64,
    },
    /// Build id, up to 20 bytes.
    BuildId(&'a [u8]),
}

/// A thread's new name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Comm<'a> {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Whether an exec gave the name (known where the attr has `comm_exec`).
    pub exec: bool,
    /// The name.
    pub name: &'a [u8],
}

/// FORK and EXIT: a task and its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// Process id.
    pub pid: u32,
    /// Parent's process id.
    pub parent_pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Parent's thread id.
    pub parent_tid: u32,
    /// Nanoseconds of the event's clock.
    pub time: u64,
}

/// Lost records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lost {
    /// Id of the event whose write found the loss; in a shared ring, any event's records may be among the lost.
    pub id: u64,
    /// The number of records that were lost.
    pub count: u64,
}

/// THROTTLE and UNTHROTTLE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Throttle {
    /// Nanoseconds of the event's clock.
    pub time: u64,
    /// Event id.
    pub id: u64,
    /// Id of the event's clone.
    pub stream_id: u64,
}

/// Counter values of a thread that ended.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ReadRecord<'a> {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// The values.
    pub values: ReadValues<'a>,
}

/// A context switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Switch {
    /// Whether the thread left the CPU.
    pub out: bool,
    /// Whether the thread was preempted while runnable.
    pub preempted: bool,
    /// The other thread's process and thread id, of SWITCH_CPU_WIDE only.
    pub other: Option<(u32, u32)>,
}

/// A thread's namespaces.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Namespaces<'a> {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Device and inode of each namespace, two words each.
    pub links: U64s<'a>,
}

/// A cgroup's path.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cgroup<'a> {
    /// Id.
    pub id: u64,
    /// Path.
    pub path: &'a [u8],
}

/// A kernel symbol came or went.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ksymbol<'a> {
    /// Address.
    pub address: u64,
    /// Bytes.
    pub length: u32,
    /// `PERF_RECORD_KSYMBOL_TYPE_*`.
    pub kind: u16,
    /// Bit 0: the symbol went.
    pub flags: u16,
    /// Name.
    pub name: &'a [u8],
}

/// A BPF program came or went.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BpfEvent<'a> {
    /// 1 loaded, 2 unloaded.
    pub kind: u16,
    /// Flags.
    pub flags: u16,
    /// Program id.
    pub id: u32,
    /// Tag, eight bytes.
    pub tag: &'a [u8],
}

/// Changed kernel code.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TextPoke<'a> {
    /// Address.
    pub address: u64,
    /// Bytes before.
    pub old: &'a [u8],
    /// Bytes after.
    pub new: &'a [u8],
}

/// New AUX data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Aux {
    /// Where in the AUX area.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    /// `PERF_AUX_FLAG_*`.
    pub flags: u64,
}

impl RecordLayout {
    /// Parses a record of any type.
    ///
    /// # Errors
    /// [`RecordError::Field`] where the record is shorter than its type and attr say.
    pub fn parse<'a>(&self, record: &RawRecord<'a>) -> Result<Record<'a>, RecordError> {
        if record.kind == RecordType::SAMPLE {
            return self.sample(record).map(Record::Sample);
        }
        let (body, ids) = self.split_trailer(record.body);
        let mut at = Cursor::new(body, self.order);
        self.sideband(record, &mut at, ids)
            .map_err(|field| RecordError::Field {
                kind: record.kind,
                field,
                length: record.body.len(),
            })
    }

    fn sideband<'a>(
        &self,
        record: &RawRecord<'a>,
        at: &mut Cursor<'a>,
        ids: SampleId,
    ) -> Result<Record<'a>, &'static str> {
        Ok(match record.kind {
            RecordType::MMAP => Record::Mmap(mmap(record, at).ok_or("mapping")?, ids),
            RecordType::MMAP2 => Record::Mmap(mmap(record, at).ok_or("mapping")?, ids),
            RecordType::COMM => {
                let (pid, tid) = pair(at)?;
                let exec = record.misc.has(Misc::COMM_EXEC);
                let name = at.c_string();
                Record::Comm(
                    Comm {
                        pid,
                        tid,
                        exec,
                        name,
                    },
                    ids,
                )
            }
            RecordType::FORK => Record::Fork(task(at).ok_or("task")?, ids),
            RecordType::EXIT => Record::Exit(task(at).ok_or("task")?, ids),
            RecordType::LOST => {
                let id = at.u64().ok_or("id")?;
                let count = at.u64().ok_or("lost")?;
                Record::Lost(Lost { id, count }, ids)
            }
            RecordType::LOST_SAMPLES => Record::LostSamples(at.u64().ok_or("lost")?, ids),
            RecordType::THROTTLE => Record::Throttle(throttle(at).ok_or("throttle")?, ids),
            RecordType::UNTHROTTLE => Record::Unthrottle(throttle(at).ok_or("throttle")?, ids),
            RecordType::READ => {
                let (pid, tid) = pair(at)?;
                let values = ReadValues::parse(at, self.read_format).ok_or("values")?;
                Record::Read(ReadRecord { pid, tid, values }, ids)
            }
            RecordType::SWITCH | RecordType::SWITCH_CPU_WIDE => {
                let other = if record.kind == RecordType::SWITCH_CPU_WIDE {
                    Some(pair(at)?)
                } else {
                    None
                };
                let switch = Switch {
                    out: record.misc.has(Misc::SWITCH_OUT),
                    preempted: record.misc.has(Misc::SWITCH_OUT_PREEMPT),
                    other,
                };
                Record::Switch(switch, ids)
            }
            RecordType::NAMESPACES => {
                let (pid, tid) = pair(at)?;
                let count = at.u64().ok_or("count")?;
                let links = count
                    .checked_mul(2)
                    .and_then(|words| at.u64s(words))
                    .ok_or("links")?;
                Record::Namespaces(Namespaces { pid, tid, links }, ids)
            }
            RecordType::CGROUP => {
                let id = at.u64().ok_or("id")?;
                let path = at.c_string();
                Record::Cgroup(Cgroup { id, path }, ids)
            }
            RecordType::KSYMBOL => Record::Ksymbol(ksymbol(at).ok_or("symbol")?, ids),
            RecordType::BPF_EVENT => Record::BpfEvent(bpf_event(at).ok_or("program")?, ids),
            RecordType::TEXT_POKE => Record::TextPoke(text_poke(at).ok_or("code")?, ids),
            RecordType::AUX => {
                let offset = at.u64().ok_or("offset")?;
                let size = at.u64().ok_or("size")?;
                let flags = at.u64().ok_or("flags")?;
                Record::Aux(
                    Aux {
                        offset,
                        size,
                        flags,
                    },
                    ids,
                )
            }
            RecordType::ITRACE_START => {
                let (pid, tid) = pair(at)?;
                Record::ItraceStart(pid, tid, ids)
            }
            RecordType::AUX_OUTPUT_HW_ID => Record::AuxOutputHwId(at.u64().ok_or("id")?, ids),
            _ => Record::Unknown(*record),
        })
    }
}

fn pair(at: &mut Cursor<'_>) -> Result<(u32, u32), &'static str> {
    let pid = at.u32().ok_or("pid")?;
    let tid = at.u32().ok_or("tid")?;
    Ok((pid, tid))
}

fn mmap<'a>(record: &RawRecord<'a>, at: &mut Cursor<'a>) -> Option<Mmap<'a>> {
    let (pid, tid) = (at.u32()?, at.u32()?);
    let (start, length, page_offset) = (at.u64()?, at.u64()?, at.u64()?);
    let mut file = MappedFile::Unknown;
    let mut protection = None;
    if record.kind == RecordType::MMAP2 {
        if record.misc.has(Misc::MMAP_BUILD_ID) {
            let size = at.take(4)?[0];
            let bytes = at.take(20)?;
            file = MappedFile::BuildId(&bytes[..usize::from(size).min(bytes.len())]);
        } else {
            file = MappedFile::Inode {
                major: at.u32()?,
                minor: at.u32()?,
                inode: at.u64()?,
                generation: at.u64()?,
            };
        }
        protection = Some((at.u32()?, at.u32()?));
    }
    Some(Mmap {
        misc: record.misc,
        pid,
        tid,
        start,
        length,
        page_offset,
        protection,
        file,
        name: at.c_string(),
    })
}

fn task(at: &mut Cursor<'_>) -> Option<Task> {
    Some(Task {
        pid: at.u32()?,
        parent_pid: at.u32()?,
        tid: at.u32()?,
        parent_tid: at.u32()?,
        time: at.u64()?,
    })
}

fn throttle(at: &mut Cursor<'_>) -> Option<Throttle> {
    Some(Throttle {
        time: at.u64()?,
        id: at.u64()?,
        stream_id: at.u64()?,
    })
}

fn ksymbol<'a>(at: &mut Cursor<'a>) -> Option<Ksymbol<'a>> {
    Some(Ksymbol {
        address: at.u64()?,
        length: at.u32()?,
        kind: at.u16()?,
        flags: at.u16()?,
        name: at.c_string(),
    })
}

fn bpf_event<'a>(at: &mut Cursor<'a>) -> Option<BpfEvent<'a>> {
    Some(BpfEvent {
        kind: at.u16()?,
        flags: at.u16()?,
        id: at.u32()?,
        tag: at.take(8)?,
    })
}

fn text_poke<'a>(at: &mut Cursor<'a>) -> Option<TextPoke<'a>> {
    let address = at.u64()?;
    let (old, new) = (at.u16()?, at.u16()?);
    Some(TextPoke {
        address,
        old: at.take(usize::from(old))?,
        new: at.take(usize::from(new))?,
    })
}
