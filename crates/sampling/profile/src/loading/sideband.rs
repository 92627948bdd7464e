//! Reads the records that are no samples: threads, names, mappings.

use crate::loading::load::Loader;
use crate::processes::address_space::{Mapping, Space};
use crate::processes::mappings::MappedSpan;
use crate::processes::modules::{self, JIT_LABEL};
use crate::processes::tasks::ProcessId;
use dioptra_perfdata::FileRecord;
use dioptra_perfrecords::record::{CpuMode, Ksymbol, MappedFile, Mmap, Record, Task};
use dioptra_symbols::{ModuleKind, is_jit_dump};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// FORK: perf wrote the record for a process that ran before the recording. Its mappings follow and are not its
/// parent's.
const FORK_EXEC: u16 = 1 << 13;

/// MMAP: a mapping of data, not of code.
const MMAP_DATA: u16 = 1 << 13;

/// The pid of the kernel's mappings.
const KERNEL_PID: u32 = u32::MAX;

impl Loader<'_> {
    /// Makes room for a process's space.
    pub(crate) fn grow(&mut self, process: ProcessId) {
        let length = process as usize + 1;
        if self.spaces.len() < length {
            self.spaces.resize_with(length, Space::default);
            self.versions.resize(length, 0);
        }
    }

    pub(crate) fn change(&mut self, process: ProcessId) {
        self.changes += 1;
        self.versions[process as usize] = self.changes;
    }

    pub(crate) fn sideband(&mut self, record: &FileRecord<'_>) {
        let layout = match self.events.get(record.event.unwrap_or(0)) {
            Some(state) => &state.layout,
            None => return,
        };
        match layout.parse(&record.raw) {
            Ok(Record::Mmap(mmap, _)) => self.mapping(&mmap, record.time),
            Ok(Record::Comm(comm, _)) => {
                self.tasks.reuse((comm.pid, comm.tid), record.time);
                let is_new = !self.tasks.knows(comm.pid);
                let thread = self.tasks.thread(comm.pid, comm.tid);
                if comm.exec {
                    self.tasks.exec(thread, record.time, is_new);
                } else {
                    self.tasks.perhaps_exec(thread, record.time);
                }
                self.tasks.rename(thread, comm.name);
                if comm.exec {
                    let process = self.tasks.threads()[thread as usize].process;
                    self.grow(process);
                    self.spaces[process as usize].exec(&self.budget);
                    self.jit.forget(process);
                    self.change(process);
                    if let Some(log) = &mut self.mapping_log {
                        log.exec(process, record.time);
                    }
                }
            }
            Ok(Record::Fork(task, _)) => self.fork(&task, record.raw.misc.has(FORK_EXEC)),
            Ok(Record::Exit(task, _)) => {
                let thread = self.tasks.thread(task.pid, task.tid);
                self.tasks.end(task.pid, task.tid, task.time);
                if let Some(memo) = self.memos.get_mut(thread as usize) {
                    memo.forget();
                }
                if task.pid == task.tid
                    && let Some(unwinding) = &mut self.unwinding
                {
                    let process = self.tasks.threads()[thread as usize].process;
                    unwinding.forget(process as usize);
                }
            }
            Ok(Record::Namespaces(namespaces, _)) => {
                let thread = self.tasks.thread(namespaces.pid, namespaces.tid);
                let words: Vec<u64> = namespaces.links.iter().collect();
                let links = words.chunks_exact(2).map(|link| (link[0], link[1]));
                self.tasks.set_namespaces(thread, links.collect());
            }
            Ok(Record::Ksymbol(symbol, _)) => self.kernel_symbol(&symbol),
            Ok(_) => {}
            Err(_) => self.losses.malformed += 1,
        }
    }

    fn fork(&mut self, task: &Task, existed_before: bool) {
        let start = (!existed_before && task.time != 0).then_some(task.time);
        if task.pid == task.parent_pid && task.tid != task.pid {
            let process = self.tasks.process(task.pid);
            self.tasks.start_thread(process, task.tid, start);
            return;
        }
        let parent = self.tasks.thread(task.parent_pid, task.parent_tid);
        let parent_process = self.tasks.threads()[parent as usize].process;
        self.grow(parent_process);
        let space = if existed_before || task.pid == task.parent_pid {
            Space::default()
        } else {
            self.spaces[parent_process as usize].clone()
        };
        let process = self.tasks.start_process(task.pid, start);
        self.tasks.inherit_name(process, parent);
        if !existed_before {
            self.tasks.inherit_image(process, parent_process);
        }
        self.tasks.start_thread(process, task.tid, start);
        self.grow(process);
        self.spaces[process as usize] = space;
        self.change(process);
        if let Some(log) = &mut self.mapping_log
            && !existed_before
        {
            log.fork(process, parent_process, start);
        }
    }

    fn mapping(&mut self, mmap: &Mmap<'_>, time: Option<u64>) {
        let end = mmap.start.saturating_add(mmap.length);
        let recorded = match mmap.file {
            MappedFile::BuildId(id) => Some(id),
            _ => None,
        };
        let build_id = recorded
            .or_else(|| self.build_ids.get(mmap.name).copied())
            .map(without_padding)
            .filter(|id| !id.is_empty());
        if mmap.pid == KERNEL_PID || mmap.misc.cpu_mode() == CpuMode::Kernel {
            let module = if modules::is_kernel_image(mmap.name) {
                self.reference(mmap);
                self.kernel_image
            } else {
                self.modules
                    .intern(modules::kernel_module(mmap.name, build_id))
            };
            let mapping = Mapping {
                start: mmap.start,
                end,
                bias: 0,
                module,
                image: 0,
            };
            self.kernel.insert(mapping, &self.budget);
            self.changes += 1;
            self.kernel_version = self.changes;
            return;
        }
        if matches!(
            mmap.misc.cpu_mode(),
            CpuMode::GuestKernel | CpuMode::GuestUser
        ) {
            return;
        }
        let module = modules::user_module(mmap.name, build_id, mmap.pid);
        let is_jit = module.kind == ModuleKind::NotAFile && module.label.starts_with(JIT_LABEL);
        let bias = if is_jit {
            0
        } else {
            mmap.start.wrapping_sub(mmap.page_offset)
        };
        let module = self.modules.intern(module);
        self.tasks.reuse((mmap.pid, mmap.tid), time);
        let process = self.tasks.process(mmap.pid);
        self.grow(process);
        let mapping = Mapping {
            start: mmap.start,
            end,
            bias,
            module,
            image: 0,
        };
        self.spaces[process as usize].insert(mapping, &self.budget);
        if is_jit {
            self.show_jit_code(process, mmap.start, end);
        }
        self.change(process);
        if let Some(log) = &mut self.mapping_log {
            let span = MappedSpan {
                start: mmap.start,
                end,
                offset: mmap.start.wrapping_sub(bias),
                module,
                // Mappings from before the recording are written without a time, or with a time of 0.
                from: time.filter(|time| *time != 0),
                until: None,
            };
            log.map(process, span);
        }
        const EXECUTE: u32 = 4;
        let runs = mmap.protection.is_none_or(|(bits, _)| bits & EXECUTE != 0);
        if runs && !mmap.misc.has(MMAP_DATA) {
            self.tasks.mapped(process, module, &self.modules);
        }
        if is_jit_dump(Path::new(OsStr::from_bytes(mmap.name))) {
            self.jit_dump(process, mmap.name);
        }
    }

    /// Learns the address of the kernel's reference symbol. A mapping named `[kernel.kallsyms]_text` states it as its
    /// page offset.
    fn reference(&mut self, mmap: &Mmap<'_>) {
        let Some(end) = mmap.name.iter().position(|byte| *byte == b']') else {
            return;
        };
        let symbol = String::from_utf8_lossy(&mmap.name[end + 1..]);
        if !symbol.is_empty() && mmap.page_offset != 0 {
            self.reference_symbol = Some((symbol.into_owned(), mmap.page_offset));
        }
    }

    /// Adds code that the kernel made at run time, such as a BPF program, as a module of its own name.
    fn kernel_symbol(&mut self, symbol: &Ksymbol<'_>) {
        const GONE: u16 = 1;
        if symbol.flags & GONE != 0 || symbol.length == 0 {
            return;
        }
        let module = self
            .modules
            .intern(modules::kernel_module(symbol.name, None));
        let mapping = Mapping {
            start: symbol.address,
            end: symbol.address.saturating_add(u64::from(symbol.length)),
            bias: 0,
            module,
            image: 0,
        };
        self.kernel.insert(mapping, &self.budget);
        self.changes += 1;
        self.kernel_version = self.changes;
    }
}

/// Removes the zeros that pad build ids to 20 bytes in recordings.
pub(crate) fn without_padding(id: &[u8]) -> &[u8] {
    let end = id
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    // Ids of 16 bytes may end with a zero byte of their own.
    &id[..end.next_multiple_of(4).min(id.len())]
}
