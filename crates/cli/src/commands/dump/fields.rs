//! The fields of each type of record.

use super::registers::Machine;
use super::{Link, Sink, Value};
use dioptra_perfdata::{FileRecord, PerfData, file_type};
use dioptra_perfevents::record::{
    BranchStack, CpuMode, MappedFile, Mmap, ReadValues, Record, Registers, Sample, SampleId, Task,
    Throttle,
};
use dioptra_perfevents::{ByteOrder, Cursor, U64s};
use std::io;

/// The smallest context mark: chain entries from here on are marks, not addresses (`PERF_CONTEXT_MAX`).
const FIRST_MARK: u64 = -4095_i64 as u64;

/// Splits the records of one recording into fields.
pub struct Fields<'a> {
    data: &'a PerfData,
    machine: Machine,
}

type List<'a> = Vec<Vec<(&'static str, Value<'a>)>>;

impl<'a> Fields<'a> {
    pub fn new(data: &'a PerfData) -> Self {
        let machine = data.features().arch.as_deref();
        Fields {
            data,
            machine: machine.map_or(Machine::Other, Machine::of_name),
        }
    }

    /// Hands all fields of a record to `sink`.
    pub fn push(&self, record: &FileRecord<'_>, sink: &mut impl Sink) -> io::Result<()> {
        let events = self.data.events();
        if let Some(event) = record.event.and_then(|index| events.get(index)) {
            sink.field("event", Value::Word(&event.name))?;
        }
        sink.field("mode", Value::Word(mode(record.raw.misc.cpu_mode())))?;
        sink.field("misc", Value::Address(record.raw.misc.0.into()))?;
        let layout = if dioptra_perfdata::is_file_type(record.raw.kind) {
            None
        } else {
            self.data.layout(record.event)
        };
        match layout.map(|layout| layout.parse(&record.raw)) {
            Some(Ok(Record::Sample(sample))) => self.sample(&sample, sink)?,
            Some(Ok(Record::Unknown(_))) | None => self.file_record(record, sink)?,
            Some(Ok(parsed)) => self.sideband(&parsed, sink)?,
            Some(Err(error)) => {
                sink.field("error", Value::Word(&error.to_string()))?;
                sink.field("bytes", Value::Bytes(record.raw.body))?;
            }
        }
        if !record.trailing.is_empty() {
            sink.field("trailing_bytes", number(record.trailing.len()))?;
        }
        Ok(())
    }

    fn sample(&self, sample: &Sample<'_>, sink: &mut impl Sink) -> io::Result<()> {
        for (name, task) in [("pid", sample.pid), ("tid", sample.tid)] {
            optional(sink, name, task.map(Value::Task))?;
        }
        let addresses = [("ip", sample.ip), ("addr", sample.addr)];
        for (name, value) in addresses {
            optional(sink, name, value.map(Value::Address))?;
        }
        for (name, value) in [
            ("cpu", sample.cpu.map(u64::from)),
            ("id", sample.id),
            ("stream_id", sample.stream_id),
            ("period", sample.period),
            ("weight", sample.weight),
            ("cgroup", sample.cgroup),
            ("data_page_size", sample.data_page_size),
            ("code_page_size", sample.code_page_size),
        ] {
            optional(sink, name, value.map(Value::Number))?;
        }
        for (name, value) in [
            ("data_src", sample.data_src),
            ("transaction", sample.transaction),
            ("phys_addr", sample.phys_addr),
        ] {
            optional(sink, name, value.map(Value::Address))?;
        }
        if let Some(values) = &sample.read {
            readings(values, sink)?;
        }
        if let Some(chain) = &sample.callchain {
            sink.field("callchain", Value::Chain(&links(chain)))?;
        }
        if let Some(raw) = sample.raw {
            sink.field("raw", Value::Bytes(raw))?;
        }
        if let Some(branches) = &sample.branches {
            self.branches(branches, sink)?;
        }
        if let Some(registers) = &sample.regs_user {
            self.registers("user_abi", "user_registers", registers, sink)?;
        }
        if let Some(stack) = &sample.stack_user {
            sink.field("user_stack_bytes", number(stack.bytes.len()))?;
            sink.field("user_stack_reserved", number(stack.reserved))?;
        }
        if let Some(registers) = &sample.regs_intr {
            self.registers("interrupt_abi", "interrupt_registers", registers, sink)?;
        }
        if let Some(aux) = sample.aux {
            sink.field("aux_bytes", number(aux.len()))?;
        }
        Ok(())
    }

    fn registers(
        &self,
        abi: &'static str,
        name: &'static str,
        registers: &Registers<'_>,
        sink: &mut impl Sink,
    ) -> io::Result<()> {
        sink.field(abi, Value::Number(registers.abi))?;
        sink.field(name, Value::Registers(&self.machine.named(registers)))
    }

    fn branches(&self, branches: &BranchStack<'_>, sink: &mut impl Sink) -> io::Result<()> {
        optional(sink, "branch_index", branches.hw_index.map(Value::Number))?;
        let order = self.data.byte_order();
        let list: List<'_> = branches
            .iter()
            .enumerate()
            .map(|(index, branch)| {
                let flags = |at, width| bits(order, branch.flags, at, width);
                let mut fields = vec![
                    ("from", Value::Address(branch.from)),
                    ("to", Value::Address(branch.to)),
                    ("mispredicted", Value::Flag(flags(0, 1) != 0)),
                    ("predicted", Value::Flag(flags(1, 1) != 0)),
                    ("in_transaction", Value::Flag(flags(2, 1) != 0)),
                    ("abort", Value::Flag(flags(3, 1) != 0)),
                    ("cycles", Value::Number(flags(4, 16))),
                    ("branch_type", Value::Number(flags(20, 4))),
                    ("speculation", Value::Number(flags(24, 2))),
                ];
                if let Some(counters) = branches.counters.and_then(|words| words.get(index)) {
                    fields.push(("counters", Value::Address(counters)));
                }
                fields
            })
            .collect();
        sink.field("branches", Value::List(&list))
    }

    fn sideband(&self, record: &Record<'_>, sink: &mut impl Sink) -> io::Result<()> {
        let ids = match record {
            Record::Mmap(mmap, ids) => mapping(mmap, sink).map(|()| ids)?,
            Record::Comm(comm, ids) => {
                task_ids(sink, comm.pid, comm.tid)?;
                sink.field("comm", Value::Text(comm.name))?;
                sink.field("exec", Value::Flag(comm.exec))?;
                ids
            }
            Record::Fork(task, ids) | Record::Exit(task, ids) => {
                pushed_task(task, sink).map(|()| ids)?
            }
            Record::Lost(lost, ids) => {
                sink.field("id", Value::Number(lost.id))?;
                sink.field("lost", Value::Number(lost.count))?;
                ids
            }
            Record::LostSamples(count, ids) => {
                sink.field("lost", Value::Number(*count))?;
                ids
            }
            Record::Throttle(throttle, ids) | Record::Unthrottle(throttle, ids) => {
                pushed_throttle(throttle, sink).map(|()| ids)?
            }
            Record::Read(read, ids) => {
                task_ids(sink, read.pid, read.tid)?;
                readings(&read.values, sink)?;
                ids
            }
            Record::Switch(switch, ids) => {
                sink.field("out", Value::Flag(switch.out))?;
                sink.field("preempted", Value::Flag(switch.preempted))?;
                if let Some((pid, tid)) = switch.other {
                    sink.field("other_pid", Value::Task(pid))?;
                    sink.field("other_tid", Value::Task(tid))?;
                }
                ids
            }
            Record::Namespaces(namespaces, ids) => {
                task_ids(sink, namespaces.pid, namespaces.tid)?;
                // The order of the kernel's `*_NS_INDEX`.
                const NAMES: [&str; 7] = ["net", "uts", "ipc", "pid", "user", "mnt", "cgroup"];
                let list: List<'_> = (0..namespaces.links.len() / 2)
                    .filter_map(|index| {
                        let name = NAMES.get(index).copied().unwrap_or("unknown");
                        Some(vec![
                            ("namespace", Value::Word(name)),
                            ("dev", Value::Address(namespaces.links.get(2 * index)?)),
                            ("inode", Value::Number(namespaces.links.get(2 * index + 1)?)),
                        ])
                    })
                    .collect();
                sink.field("namespaces", Value::List(&list))?;
                ids
            }
            Record::Cgroup(cgroup, ids) => {
                sink.field("id", Value::Number(cgroup.id))?;
                sink.field("path", Value::Text(cgroup.path))?;
                ids
            }
            Record::Ksymbol(symbol, ids) => {
                sink.field("address", Value::Address(symbol.address))?;
                sink.field("length", Value::Number(symbol.length.into()))?;
                sink.field("kind", Value::Number(symbol.kind.into()))?;
                sink.field("flags", Value::Address(symbol.flags.into()))?;
                sink.field("name", Value::Text(symbol.name))?;
                ids
            }
            Record::BpfEvent(bpf, ids) => {
                sink.field("kind", Value::Number(bpf.kind.into()))?;
                sink.field("flags", Value::Address(bpf.flags.into()))?;
                sink.field("id", Value::Number(bpf.id.into()))?;
                sink.field("tag", Value::Bytes(bpf.tag))?;
                ids
            }
            Record::TextPoke(poke, ids) => {
                sink.field("address", Value::Address(poke.address))?;
                sink.field("old", Value::Bytes(poke.old))?;
                sink.field("new", Value::Bytes(poke.new))?;
                ids
            }
            Record::Aux(aux, ids) => {
                sink.field("aux_offset", Value::Number(aux.offset))?;
                sink.field("aux_size", Value::Number(aux.size))?;
                sink.field("flags", Value::Address(aux.flags))?;
                ids
            }
            Record::ItraceStart(pid, tid, ids) => {
                task_ids(sink, *pid, *tid)?;
                ids
            }
            Record::AuxOutputHwId(id, ids) => {
                sink.field("hardware_id", Value::Number(*id))?;
                ids
            }
            // Samples are no sideband records, and `file_record` shows unknown ones.
            _ => return Ok(()),
        };
        sample_ids(ids, sink)
    }

    /// Hands over the fields of perf's own record types. Unknown types are shown as bytes.
    fn file_record(&self, record: &FileRecord<'_>, sink: &mut impl Sink) -> io::Result<()> {
        let mut at = Cursor::new(record.raw.body, self.data.byte_order());
        let names: &[&'static str] = match record.raw.kind {
            file_type::TIME_CONV => &["shift", "multiplier", "zero"],
            file_type::AUXTRACE => &["size", "aux_offset", "reference"],
            file_type::STAT_ROUND => &["kind", "round_time"],
            _ => &[],
        };
        for name in names {
            optional(sink, name, at.u64().map(Value::Number))?;
        }
        if record.raw.kind == file_type::STAT {
            optional(sink, "id", at.u64().map(Value::Number))?;
            for name in ["cpu", "tid"] {
                optional(sink, name, at.u32().map(Value::Task))?;
            }
            for name in ["value", "enabled", "running"] {
                optional(sink, name, at.u64().map(Value::Number))?;
            }
        }
        if at.rest().is_empty() {
            return Ok(());
        }
        sink.field("bytes", Value::Bytes(at.rest()))
    }
}

fn number(count: usize) -> Value<'static> {
    Value::Number(count as u64)
}

fn optional(sink: &mut impl Sink, name: &'static str, value: Option<Value<'_>>) -> io::Result<()> {
    value.map_or(Ok(()), |value| sink.field(name, value))
}

fn task_ids(sink: &mut impl Sink, pid: u32, tid: u32) -> io::Result<()> {
    sink.field("pid", Value::Task(pid))?;
    sink.field("tid", Value::Task(tid))
}

/// Adds the thread, time and CPU that wrote a record; the record's time is already its first field.
fn sample_ids(ids: &SampleId, sink: &mut impl Sink) -> io::Result<()> {
    for (name, task) in [("by_pid", ids.pid), ("by_tid", ids.tid)] {
        optional(sink, name, task.map(Value::Task))?;
    }
    for (name, value) in [
        ("by_cpu", ids.cpu.map(u64::from)),
        ("by_id", ids.id),
        ("by_stream_id", ids.stream_id),
    ] {
        optional(sink, name, value.map(Value::Number))?;
    }
    Ok(())
}

fn mapping(mmap: &Mmap<'_>, sink: &mut impl Sink) -> io::Result<()> {
    task_ids(sink, mmap.pid, mmap.tid)?;
    sink.field("start", Value::Address(mmap.start))?;
    sink.field("length", Value::Address(mmap.length))?;
    sink.field("page_offset", Value::Address(mmap.page_offset))?;
    match mmap.file {
        MappedFile::Inode {
            major,
            minor,
            inode,
            generation,
        } => {
            sink.field("major", Value::Number(major.into()))?;
            sink.field("minor", Value::Number(minor.into()))?;
            sink.field("inode", Value::Number(inode))?;
            sink.field("generation", Value::Number(generation))?;
        }
        MappedFile::BuildId(id) => sink.field("build_id", Value::Bytes(id))?,
        MappedFile::Unknown => {}
    }
    if let Some((protection, flags)) = mmap.protection {
        sink.field("protection", Value::Address(protection.into()))?;
        sink.field("flags", Value::Address(flags.into()))?;
    }
    sink.field("name", Value::Text(mmap.name))
}

fn pushed_task(task: &Task, sink: &mut impl Sink) -> io::Result<()> {
    task_ids(sink, task.pid, task.tid)?;
    sink.field("parent_pid", Value::Task(task.parent_pid))?;
    sink.field("parent_tid", Value::Task(task.parent_tid))?;
    sink.field("task_time", Value::Number(task.time))
}

fn pushed_throttle(throttle: &Throttle, sink: &mut impl Sink) -> io::Result<()> {
    sink.field("throttle_time", Value::Number(throttle.time))?;
    sink.field("id", Value::Number(throttle.id))?;
    sink.field("stream_id", Value::Number(throttle.stream_id))
}

fn readings(values: &ReadValues<'_>, sink: &mut impl Sink) -> io::Result<()> {
    for (name, value) in [
        ("time_enabled", values.time_enabled),
        ("time_running", values.time_running),
    ] {
        optional(sink, name, value.map(Value::Number))?;
    }
    let list: List<'_> = values
        .iter()
        .map(|value| {
            let mut fields = vec![("value", Value::Number(value.value))];
            fields.extend(value.id.map(|id| ("id", Value::Number(id))));
            fields.extend(value.lost.map(|lost| ("lost", Value::Number(lost))));
            fields
        })
        .collect();
    sink.field("counters", Value::List(&list))
}

fn links(chain: &U64s<'_>) -> Vec<Link> {
    chain
        .iter()
        .map(|address| {
            if address < FIRST_MARK {
                return Link::Address(address);
            }
            Link::Mark(match address.cast_signed() {
                -32 => "hypervisor".to_owned(),
                -128 => "kernel".to_owned(),
                -512 => "user".to_owned(),
                -2048 => "guest".to_owned(),
                -2176 => "guest kernel".to_owned(),
                -2560 => "guest user".to_owned(),
                mark => format!("mark {mark}"),
            })
        })
        .collect()
}

/// Returns `width` bits of a word of bit fields, from the field that a compiler places at `at`. Compilers start at the
/// lowest bit on little-endian machines and at the highest bit on big-endian ones.
fn bits(order: ByteOrder, word: u64, at: u32, width: u32) -> u64 {
    let shift = match order {
        ByteOrder::Little => at,
        ByteOrder::Big => 64 - at - width,
    };
    word >> shift & ((1 << width) - 1)
}

fn mode(mode: CpuMode) -> &'static str {
    match mode {
        CpuMode::Unknown => "unknown",
        CpuMode::Kernel => "kernel",
        CpuMode::User => "user",
        CpuMode::Hypervisor => "hypervisor",
        CpuMode::GuestKernel => "guest kernel",
        CpuMode::GuestUser => "guest user",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bit_fields_follow_the_byte_order() {
        assert_eq!(bits(ByteOrder::Little, 0x2_0031, 4, 16), 0x2003);
        assert_eq!(bits(ByteOrder::Little, 0b10, 1, 1), 1);
        assert_eq!(bits(ByteOrder::Big, 1 << 63, 0, 1), 1);
        assert_eq!(bits(ByteOrder::Big, 7 << 44, 4, 16), 7);
    }
}
