//! The recorded system at the time of the record that is being read: its tasks, and the memory of each process and of the
//! kernel.
//!
//! [`System::apply`] follows the records that are no samples. [`System::locate`] finds the module of an address.

use crate::hash::FxBuildHasher;
use crate::loading::plan::LoadPlan;
use crate::processes::address_space::{CopyBudget, Mapping, Space};
use crate::processes::jit::Jit;
use crate::processes::mappings::{MappedSpan, MappingLog};
use crate::processes::modules::{self, JIT_LABEL, ModuleId, Modules};
use crate::processes::tasks::{ProcessId, Tasks, ThreadId};
use crate::stacks::frames::Frame;
use crate::stacks::unwinding::MemoryState;
use dioptra_perfdata::{BuildId, FileRecord, PerfData};
use dioptra_perfrecords::AttrFlags;
use dioptra_perfrecords::record::{
    CpuMode, Ksymbol, MappedFile, Mmap, RawRecord, Record, RecordLayout, RecordType, Task,
};
use dioptra_symbols::{MemoryAddress, ModuleKind, RecordedKernel, is_jit_dump};
use hashbrown::HashMap;
use std::borrow::Cow;
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

/// The tasks and memory of the recorded system.
pub(crate) struct System<'a> {
    pub(crate) tasks: Tasks,
    pub(crate) modules: Modules,
    /// By process.
    pub(crate) spaces: Vec<Space>,
    /// By process: the value of `changes` when its space last changed.
    pub(crate) versions: Vec<u64>,
    changes: u64,
    pub(crate) kernel: Space,
    pub(crate) kernel_version: u64,
    pub(crate) kernel_image: ModuleId,
    reference_symbol: Option<(String, MemoryAddress)>,
    /// Build ids of the file's table, by path.
    build_ids: HashMap<Cow<'a, [u8]>, Cow<'a, [u8]>, FxBuildHasher>,
    pub(crate) budget: CopyBudget,
    pub(crate) jit: Jit,
    /// The log of mappings; `None` unless it was asked for.
    mapping_log: Option<Box<MappingLog>>,
}

/// The part of a record's effect that later stages have to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing but the system has changed.
    Inside,
    /// A thread has ended, and with its main thread the whole process.
    ThreadEnded {
        thread: ThreadId,
        process: Option<ProcessId>,
    },
    /// The record could not be parsed.
    Malformed,
}

impl<'a> System<'a> {
    pub(crate) fn new(data: &'a PerfData, plan: &LoadPlan) -> Self {
        let mut build_ids = HashMap::default();
        for entry in &data.features().build_ids {
            build_ids.insert(
                Cow::Borrowed(entry.path.as_slice()),
                Cow::Borrowed(entry.build_id.as_slice()),
            );
        }
        let mut modules = Modules::default();
        let kernel_image = modules.intern(modules::kernel_module(
            modules::KERNEL.as_bytes(),
            build_ids.get(modules::KERNEL.as_bytes()).map(|id| &**id),
        ));
        let mut attrs = data.events().iter().map(|event| &event.attr);
        System {
            tasks: Tasks::new(attrs.any(|attr| attr.flags.contains(AttrFlags::COMM_EXEC))),
            modules,
            spaces: Vec::new(),
            versions: Vec::new(),
            changes: 0,
            kernel: Space::default(),
            kernel_version: 0,
            kernel_image,
            reference_symbol: None,
            build_ids,
            budget: CopyBudget::default(),
            jit: Jit::new(data, plan.symbols.clone()),
            mapping_log: plan.mappings.then(Box::default),
        }
    }

    /// Returns the kernel's identity, as far as the recording states it.
    pub(crate) fn recorded_kernel(&self, release: Option<String>) -> RecordedKernel {
        let build_id = self.build_ids.get(modules::KERNEL.as_bytes());
        RecordedKernel {
            release,
            build_id: build_id.map(|id| without_padding(id).to_vec()),
            reference_symbol: self.reference_symbol.clone(),
        }
    }

    /// Returns the log of mappings, empty unless it was asked for.
    pub(crate) fn take_mapping_log(&mut self) -> MappingLog {
        self.mapping_log.take().map(|log| *log).unwrap_or_default()
    }

    /// Takes in the build id of a module that a pipe states behind its head, for mappings to come and for those that have
    /// none yet.
    pub(crate) fn learn_build_id(&mut self, learned: BuildId) {
        let id = without_padding(&learned.build_id);
        if id.is_empty() {
            return;
        }
        let of_kernel = modules::kernel_module(&learned.path, Some(id));
        // Memory without a file has no build id, whichever process it belongs to.
        let of_user = modules::user_module(&learned.path, Some(id), 0);
        self.modules.identify(of_kernel);
        self.modules.identify(of_user);
        self.build_ids
            .insert(learned.path.into(), learned.build_id.into());
    }

    /// Makes room for a process's space.
    pub(crate) fn grow(&mut self, process: ProcessId) {
        let length = process as usize + 1;
        if self.spaces.len() < length {
            self.spaces.resize_with(length, Space::default);
            self.versions.resize(length, 0);
        }
    }

    /// Gives a process's space a new version, after it has changed.
    pub(crate) fn change(&mut self, process: ProcessId) {
        self.changes += 1;
        self.versions[process as usize] = self.changes;
    }

    /// Returns the frame of an address in a process. `then` is the memory of the process at a sample's time, where that
    /// differs from the current memory.
    #[inline]
    pub(crate) fn locate(
        &mut self,
        process: ProcessId,
        then: Option<&MemoryState>,
        mode: CpuMode,
        address: u64,
    ) -> Frame {
        let space = &mut self.spaces[process as usize];
        locate(
            &mut self.kernel,
            self.kernel_image,
            (space, then),
            mode,
            address,
        )
    }

    /// Follows a record that is no sample.
    pub(crate) fn apply(&mut self, record: &FileRecord<'_>, layout: &RecordLayout) -> Effect {
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
                    self.exec(thread, record.time);
                }
            }
            Ok(Record::Fork(task, _)) => self.fork(&task, record.raw.misc.has(FORK_EXEC)),
            Ok(Record::Exit(task, _)) => {
                let thread = self.tasks.thread(task.pid, task.tid);
                self.tasks.end(task.pid, task.tid, task.time);
                let process = self.tasks.threads()[thread as usize].process;
                return Effect::ThreadEnded {
                    thread,
                    process: (task.pid == task.tid).then_some(process),
                };
            }
            Ok(Record::Namespaces(namespaces, _)) => {
                let thread = self.tasks.thread(namespaces.pid, namespaces.tid);
                let words: Vec<u64> = namespaces.links.iter().collect();
                let links = words.chunks_exact(2).map(|link| (link[0], link[1]));
                self.tasks.set_namespaces(thread, links.collect());
            }
            Ok(Record::Ksymbol(symbol, _)) => self.kernel_symbol(&symbol),
            Ok(_) => {}
            Err(_) => return Effect::Malformed,
        }
        Effect::Inside
    }

    /// Empties the space of a thread's process, which has executed another program.
    fn exec(&mut self, thread: ThreadId, time: Option<u64>) {
        let process = self.tasks.threads()[thread as usize].process;
        self.grow(process);
        self.spaces[process as usize].exec(&self.budget);
        self.jit.forget(process);
        self.change(process);
        if let Some(log) = &mut self.mapping_log {
            log.exec(process, time);
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
            .or_else(|| self.build_ids.get(mmap.name).map(|id| &**id))
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
            self.map_kernel(mmap.start, end, module);
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
            let address = MemoryAddress(mmap.page_offset);
            self.reference_symbol = Some((symbol.into_owned(), address));
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
        let end = symbol.address.saturating_add(u64::from(symbol.length));
        self.map_kernel(symbol.address, end, module);
    }

    /// Maps a module into the kernel's memory, where addresses are absolute.
    fn map_kernel(&mut self, start: u64, end: u64, module: ModuleId) {
        let mapping = Mapping {
            start,
            end,
            bias: 0,
            module,
            image: 0,
        };
        self.kernel.insert(mapping, &self.budget);
        self.changes += 1;
        self.kernel_version = self.changes;
    }
}

/// Returns the frame of an address. Addresses in no mapping belong to the unknown module.
#[inline]
pub(crate) fn locate(
    kernel: &mut Space,
    kernel_image: ModuleId,
    (now, then): (&mut Space, Option<&MemoryState>),
    mode: CpuMode,
    address: u64,
) -> Frame {
    let frame = match mode {
        CpuMode::User => match then {
            Some(memory) => memory.frame(address),
            None => now.frame(address),
        },
        CpuMode::Kernel => kernel.frame(address).or_else(|| {
            // The image's recorded end leaves out its sections for starting up. A recording without kernel mappings was
            // made by a user who cannot see them.
            let in_image = kernel.start().is_none_or(|start| start <= address);
            in_image.then_some(Frame {
                address,
                module: kernel_image,
            })
        }),
        _ => None,
    };
    frame.unwrap_or(Frame {
        address,
        module: Modules::UNKNOWN,
    })
}

/// Returns whether a record that is no sample may change the kernel's mappings.
pub(crate) fn may_map_kernel(raw: &RawRecord<'_>) -> bool {
    match raw.kind {
        RecordType::KSYMBOL => true,
        RecordType::MMAP | RecordType::MMAP2 => {
            // The kernel's pid is all ones in either byte order.
            raw.misc.cpu_mode() == CpuMode::Kernel || raw.body.starts_with(&[u8::MAX; 4])
        }
        _ => false,
    }
}

/// Removes the zeros that pad build ids to 20 bytes in recordings.
fn without_padding(id: &[u8]) -> &[u8] {
    let end = id
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    // Ids of 16 bytes may end with a zero byte of their own.
    &id[..end.next_multiple_of(4).min(id.len())]
}
