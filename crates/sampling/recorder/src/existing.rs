//! Records of what existed before the recording: tasks, their mappings, the kernel.
//!
//! The kernel reports only changes. So for targets that run already, COMM, FORK and MMAP2 records are made up from
//! `/proc`, with time 0: they sort before all records of the kernel. They are made after the events are open, so that
//! the kernel or `/proc` reports each change. A change that both report does no harm.

use crate::kernel::{self, KernelText};
use dioptra_perfevents::record::{Misc, RecordType};
use dioptra_perfevents::{Attr, AttrFlags, SampleType};
use dioptra_processes::procfs::{self, MapsLine};
use std::collections::BTreeSet;
use std::io;
use std::os::unix::ffi::OsStrExt;

/// The process id of the kernel's own mappings.
const KERNEL_PID: u32 = u32::MAX;
/// `PERF_RECORD_MISC_KERNEL`, `PERF_RECORD_MISC_USER`.
const MISC_KERNEL: u16 = 1;
const MISC_USER: u16 = 2;
/// `PERF_RECORD_MISC_FORK_EXEC`: the child does not start with its parent's mappings; its own follow.
const MISC_FORK_EXEC: u16 = 1 << 13;

/// Makes records in the layout of an event, and hands each to `write`.
pub struct Synthesizer<'a, W> {
    attr: &'a Attr,
    id: u64,
    write: W,
    record: Vec<u8>,
    /// The time of the records, in nanoseconds of the events' clock; 0 is before everything.
    time: u64,
    data_mappings: bool,
}

impl<'a, W, E> Synthesizer<'a, W>
where
    W: FnMut(&[u8]) -> Result<(), E>,
{
    /// Makes records look as if the event of `attr` with this `id` had reported them.
    pub fn new(attr: &'a Attr, id: u64, write: W) -> Self {
        Synthesizer {
            attr,
            id,
            write,
            record: Vec::with_capacity(256),
            time: 0,
            data_mappings: false,
        }
    }

    /// Sets whether mappings that are not executable are described too. Default: no.
    #[must_use]
    pub fn data_mappings(mut self, wanted: bool) -> Self {
        self.data_mappings = wanted;
        self
    }

    /// Gives records the `time`, in nanoseconds of the events' clock, for a description in the middle of a recording.
    /// Such a description has no FORK records, since most tasks are known already.
    #[must_use]
    pub fn at(mut self, time: u64) -> Self {
        self.time = time;
        self
    }

    /// Describes the kernel and its modules.
    ///
    /// Returns whether their addresses are known. `release` is the running kernel's (`uname -r`).
    ///
    /// # Errors
    /// The errors of `write`.
    pub fn kernel(&mut self, release: &str) -> Result<bool, E> {
        let Some(KernelText {
            reference,
            start,
            end,
        }) = kernel::text()
        else {
            return Ok(false);
        };
        let name = format!("[kernel.kallsyms]{reference}");
        self.kernel_mapping(start, end - start, start, name.as_bytes())?;
        let modules = kernel::modules();
        if modules.is_empty() {
            return Ok(true);
        }
        let files = kernel::module_files(release);
        for module in modules {
            let bracketed = format!("[{}]", module.name);
            let name = match files.get(&module.name) {
                Some(path) => path.as_os_str().as_bytes(),
                None => bracketed.as_bytes(),
            };
            self.kernel_mapping(module.start, module.length, 0, name)?;
        }
        Ok(true)
    }

    /// Describes all processes of the machine, and the idle task.
    ///
    /// # Errors
    /// The errors of `write`, or of listing `/proc`.
    pub fn machine(&mut self) -> Result<(), E>
    where
        E: From<io::Error>,
    {
        self.comm(0, 0, b"swapper")?;
        for pid in procfs::processes()? {
            self.process(pid)?;
        }
        Ok(())
    }

    /// Describes the processes of these tasks (processes or threads), each once.
    ///
    /// # Errors
    /// The errors of `write`.
    pub fn tasks(&mut self, tids: &[u32]) -> Result<(), E> {
        let pids: BTreeSet<u32> = tids
            .iter()
            .filter_map(|tid| Some(procfs::parents(*tid)?.pid))
            .collect();
        pids.into_iter().try_for_each(|pid| self.process(pid))
    }

    /// Describes a process and all processes that descend from it now.
    ///
    /// # Errors
    /// The errors of `write`, or of listing `/proc`.
    pub fn family(&mut self, pid: u32) -> Result<(), E>
    where
        E: From<io::Error>,
    {
        let parents: Vec<(u32, u32)> = procfs::processes()?
            .into_iter()
            .filter_map(|pid| Some((pid, procfs::parents(pid)?.parent)))
            .collect();
        let mut family = BTreeSet::from([pid]);
        loop {
            let before = family.len();
            for (child, parent) in &parents {
                if family.contains(parent) {
                    family.insert(*child);
                }
            }
            if family.len() == before {
                break;
            }
        }
        family.into_iter().try_for_each(|pid| self.process(pid))
    }

    /// Describes a process: its threads, and its executable mappings or all of them. Writes nothing if it is gone.
    ///
    /// # Errors
    /// The errors of `write`.
    pub fn process(&mut self, pid: u32) -> Result<(), E> {
        let Some(parents) = procfs::parents(pid) else {
            return Ok(());
        };
        let mut threads = procfs::threads(pid);
        // The main thread comes first, since its siblings descend from it.
        threads.sort_by_key(|tid| (*tid != pid, *tid));
        for tid in threads {
            let Some(name) = procfs::comm(pid, tid) else {
                continue;
            };
            let parent = if tid == pid { parents.parent } else { pid };
            if self.time == 0 {
                self.fork(pid, tid, parent)?;
            }
            self.comm(pid, tid, &name)?;
            if tid == pid {
                for line in procfs::maps(pid, self.data_mappings) {
                    self.mapping(pid, &line)?;
                }
            }
        }
        Ok(())
    }

    fn comm(&mut self, pid: u32, tid: u32, name: &[u8]) -> Result<(), E> {
        self.start(RecordType::COMM, 0);
        self.put(&pid.to_ne_bytes());
        self.put(&tid.to_ne_bytes());
        self.name(name);
        self.finish(pid, tid)
    }

    fn fork(&mut self, pid: u32, tid: u32, parent: u32) -> Result<(), E> {
        self.start(RecordType::FORK, MISC_FORK_EXEC);
        for number in [pid, parent, tid, parent] {
            self.put(&number.to_ne_bytes());
        }
        self.put(&0_u64.to_ne_bytes());
        self.finish(pid, tid)
    }

    fn mapping(&mut self, pid: u32, line: &MapsLine) -> Result<(), E> {
        let data = if line.is_executable() {
            0
        } else {
            Misc::MMAP_DATA
        };
        self.start(RecordType::MMAP2, MISC_USER | data);
        self.put(&pid.to_ne_bytes());
        self.put(&pid.to_ne_bytes());
        self.put(&line.start.to_ne_bytes());
        self.put(&line.end.saturating_sub(line.start).to_ne_bytes());
        self.put(&line.offset.to_ne_bytes());
        self.put(&line.device.0.to_ne_bytes());
        self.put(&line.device.1.to_ne_bytes());
        self.put(&line.inode.to_ne_bytes());
        self.put(&0_u64.to_ne_bytes());
        self.put(&line.protection.to_ne_bytes());
        self.put(&line.flags.to_ne_bytes());
        self.name(&line.name);
        self.finish(pid, pid)
    }

    fn kernel_mapping(
        &mut self,
        start: u64,
        length: u64,
        offset: u64,
        name: &[u8],
    ) -> Result<(), E> {
        self.start(RecordType::MMAP, MISC_KERNEL);
        self.put(&KERNEL_PID.to_ne_bytes());
        self.put(&0_u32.to_ne_bytes());
        for number in [start, length, offset] {
            self.put(&number.to_ne_bytes());
        }
        self.name(name);
        self.finish(KERNEL_PID, 0)
    }

    /// Writes a LOST record of `count` records, a loss that the kernel counted but reported in no record.
    ///
    /// # Errors
    /// The errors of `write`.
    pub fn lost(&mut self, count: u64) -> Result<(), E> {
        self.start(RecordType::LOST, 0);
        self.put(&self.id.to_ne_bytes());
        self.put(&count.to_ne_bytes());
        self.finish(0, 0)
    }

    fn start(&mut self, kind: RecordType, misc: u16) {
        self.record.clear();
        self.put(&kind.0.to_ne_bytes());
        self.put(&Misc(misc).0.to_ne_bytes());
        // `finish` sets the size.
        self.put(&[0; 2]);
    }

    fn put(&mut self, bytes: &[u8]) {
        self.record.extend_from_slice(bytes);
    }

    /// Appends a name with a NUL, filled up to eight bytes. No path is longer than a page, so no record outgrows its
    /// size field.
    fn name(&mut self, name: &[u8]) {
        const LONGEST: usize = 4096;
        self.put(&name[..name.len().min(LONGEST)]);
        let length = (self.record.len() + 1).next_multiple_of(8);
        self.record.resize(length, 0);
    }

    fn finish(&mut self, pid: u32, tid: u32) -> Result<(), E> {
        let sample_type = self.attr.sample_type;
        if self.attr.flags.contains(AttrFlags::SAMPLE_ID_ALL) {
            let task = u64::from(pid) | u64::from(tid) << 32;
            let task = if cfg!(target_endian = "little") {
                task
            } else {
                task.rotate_left(32)
            };
            // The fields have the order of `struct sample_id`; CPU and stream are 0.
            for (field, value) in [
                (SampleType::TID, task),
                (SampleType::TIME, self.time),
                (SampleType::ID, self.id),
                (SampleType::STREAM_ID, 0),
                (SampleType::CPU, 0),
                (SampleType::IDENTIFIER, self.id),
            ] {
                if sample_type.contains(field) {
                    self.put(&value.to_ne_bytes());
                }
            }
        }
        // The record holds at most a name and a few numbers, so its size fits.
        let size = u16::try_from(self.record.len()).unwrap_or(u16::MAX);
        self.record[6..8].copy_from_slice(&size.to_ne_bytes());
        (self.write)(&self.record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dioptra_perfevents::ByteOrder;
    use dioptra_perfevents::record::{CpuMode, RawRecord, Record, RecordLayout};

    fn attr() -> Attr {
        Attr {
            sample_type: SampleType::TID
                | SampleType::TIME
                | SampleType::CPU
                | SampleType::IDENTIFIER
                | SampleType::IP,
            flags: AttrFlags::SAMPLE_ID_ALL,
            ..Attr::default()
        }
    }

    /// Lets `make` write records, and passes each to `see`.
    fn check(
        make: impl FnOnce(&mut Synthesizer<'_, &mut dyn FnMut(&[u8]) -> io::Result<()>>),
        mut see: impl FnMut(Record<'_>),
    ) {
        let attr = attr();
        let mut bytes = Vec::new();
        let mut write = |record: &[u8]| {
            bytes.extend_from_slice(record);
            Ok(())
        };
        let mut synthesizer = Synthesizer::new(
            &attr,
            77,
            &mut write as &mut dyn FnMut(&[u8]) -> io::Result<()>,
        );
        make(&mut synthesizer);
        let layout = RecordLayout::new(&attr, ByteOrder::NATIVE);
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let (raw, after) = RawRecord::split(rest, ByteOrder::NATIVE).unwrap();
            assert_eq!(
                (raw.body.len() % 8, layout.event_id(&raw), layout.time(&raw)),
                (0, Some(77), Some(0))
            );
            see(layout.parse(&raw).unwrap());
            rest = after;
        }
    }

    #[test]
    fn our_own_process_is_described() {
        let pid = std::process::id();
        let (mut forks, mut names, mut mapped) = (0, 0, false);
        let exe = std::env::current_exe().unwrap();
        check(
            |synthesizer| synthesizer.tasks(&[pid, pid]).unwrap(),
            |record| match record {
                Record::Fork(task, ids) => {
                    forks += 1;
                    assert_eq!((task.pid, ids.pid), (pid, Some(pid)));
                }
                Record::Comm(comm, ids) => {
                    names += 1;
                    assert_eq!((comm.pid, ids.tid, comm.exec), (pid, Some(comm.tid), false));
                }
                Record::Mmap(mmap, _) => {
                    mapped |= mmap.name == exe.as_os_str().as_bytes();
                    assert_eq!((mmap.misc.cpu_mode(), mmap.pid), (CpuMode::User, pid));
                }
                other => panic!("{other:?}"),
            },
        );
        assert!(mapped && forks == names && forks >= 1);
    }

    #[test]
    fn the_kernel_is_described() {
        let mut seen = 0;
        let mut known = false;
        check(
            |synthesizer| known = synthesizer.kernel("no-such-release").unwrap(),
            |record| {
                let Record::Mmap(mmap, _) = record else {
                    panic!("{record:?}")
                };
                assert_eq!(
                    (mmap.misc.cpu_mode(), mmap.pid),
                    (CpuMode::Kernel, u32::MAX)
                );
                assert!(mmap.name.starts_with(b"["));
                seen += 1;
            },
        );
        assert_eq!(known, seen > 0);
    }

    #[test]
    fn children_belong_to_the_family() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let mut pids = BTreeSet::new();
        check(
            |synthesizer| synthesizer.family(std::process::id()).unwrap(),
            |record| {
                if let Record::Comm(comm, _) = record {
                    pids.insert(comm.pid);
                }
            },
        );
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(pids.contains(&child.id()) && pids.contains(&std::process::id()));
        assert!(!pids.contains(&1));
    }

    #[test]
    fn a_description_in_the_middle_has_its_time_and_no_forks() {
        let attr = attr();
        let layout = RecordLayout::new(&attr, ByteOrder::NATIVE);
        let mut seen = 0;
        let mut synthesizer = Synthesizer::new(&attr, 77, |bytes: &[u8]| {
            let (raw, _) = RawRecord::split(bytes, ByteOrder::NATIVE).unwrap();
            assert_ne!(raw.kind, RecordType::FORK);
            assert_eq!(layout.time(&raw), Some(5));
            seen += 1;
            Ok::<(), io::Error>(())
        })
        .at(5);
        synthesizer.process(std::process::id()).unwrap();
        assert!(seen > 1);
    }

    #[test]
    fn a_long_name_is_cut() {
        check(
            |synthesizer| synthesizer.comm(1, 1, &[b'x'; 70_000]).unwrap(),
            |record| assert!(matches!(record, Record::Comm(comm, _) if comm.name.len() == 4096)),
        );
    }
}
