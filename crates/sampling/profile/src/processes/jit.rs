//! Code that was compiled while the program ran: its places over time, and its names.
//!
//! Memory without a file is a module of its process, named by the process's map file (`/tmp/perf-PID.map`). Where a
//! jitdump file describes the code, the file is the module, and the code's offset in the file is its relative address.
//! Code that later replaced other code at the same address therefore stays separate, as does the code of two processes.

use crate::hash::FxBuildHasher;
use crate::loading::system::System;
use crate::processes::address_space::{Mapping, Space};
use crate::processes::modules::{JIT_LABEL, Module};
use crate::processes::tasks::ProcessId;
use dioptra_perfdata::PerfData;
use dioptra_perfrecords::AttrFlags;
use dioptra_symbols::{
    FileOffset, JitPlacement, JitSymbols, MemoryAddress, ModuleKind, Note, SymbolOptions,
    Symbolizer, is_jit_dump,
};
use hashbrown::HashMap;
use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

/// The largest number of jitdump files, more than a recording of real programs has.
const MOST_DUMPS: usize = 4096;

/// The largest number of pieces of code in all processes together. A hostile recording could name one large file for
/// each of very many processes.
const MOST_CODE: usize = 1 << 23;

/// The names of one module of code that was compiled at run time.
pub(crate) enum JitNames {
    /// Names by offset in the jitdump file.
    Dump(JitSymbols),
    /// Names by absolute address.
    Map(JitSymbols),
}

/// Returns the names of a module of code compiled at run time; `None` for other modules.
pub(crate) fn symbols_of(module: &Module, symbolizer: &Symbolizer) -> Option<JitNames> {
    if module.kind != ModuleKind::NotAFile {
        return None;
    }
    if is_jit_dump(module.path()) {
        return Some(JitNames::Dump(symbolizer.jit_dump(module.path())));
    }
    let pid = module.label.strip_prefix(JIT_LABEL)?.parse().ok()?;
    Some(JitNames::Map(symbolizer.jit(pid, &[])))
}

impl JitNames {
    /// Returns the name of the function at a relative address of the module.
    pub(crate) fn name(&self, address: u64) -> Option<Cow<'_, str>> {
        match self {
            JitNames::Dump(symbols) => {
                let function = symbols.function_in_file(FileOffset(address))?;
                Some(function.name)
            }
            JitNames::Map(symbols) => {
                let function = symbols.function(MemoryAddress(address), None)?;
                Some(function.name)
            }
        }
    }

    pub(crate) fn notes(&self) -> &[Note] {
        match self {
            JitNames::Dump(symbols) | JitNames::Map(symbols) => symbols.notes(),
        }
    }
}

/// A process's jitdump file.
struct Dump {
    process: ProcessId,
    mapping: Mapping,
    placements: Rc<Vec<JitPlacement>>,
    /// The index of the first placement that is still to come.
    next: usize,
}

/// The code of jitdump files that waits to be placed into the processes' spaces.
pub(crate) struct Jit {
    /// The time at which the next code appears; `u64::MAX` where there is none.
    pub next: u64,
    symbolizer: Symbolizer,
    /// Whether the recording uses the clock of jitdump files.
    timed: bool,
    dumps: Vec<Dump>,
    /// The number of pieces of code in all accepted dumps.
    code: usize,
    /// The placements of each file that was read, by path.
    read: HashMap<Vec<u8>, Rc<Vec<JitPlacement>>, FxBuildHasher>,
    /// By process: its code that is in place now. New mappings of memory must not hide it.
    spaces: HashMap<ProcessId, Space, FxBuildHasher>,
    /// The number of jitdump files whose times could not be compared.
    pub untimed: u64,
    /// The number of jitdump files beyond the limits.
    pub refused: u64,
}

impl Jit {
    pub(crate) fn new(data: &PerfData, symbols: SymbolOptions) -> Jit {
        /// `CLOCK_MONOTONIC`, whose times jitdump files hold.
        const MONOTONIC: i32 = 1;
        let mut clocks = data.events().iter().map(|event| &event.attr);
        Jit {
            next: u64::MAX,
            symbolizer: Symbolizer::new(symbols),
            timed: clocks.all(|attr| {
                attr.flags.contains(AttrFlags::USE_CLOCKID) && attr.clockid == MONOTONIC
            }),
            dumps: Vec::new(),
            code: 0,
            read: HashMap::default(),
            spaces: HashMap::default(),
            untimed: 0,
            refused: 0,
        }
    }

    fn update_next(&mut self) {
        let coming = self
            .dumps
            .iter()
            .filter_map(|dump| dump.placements.get(dump.next));
        self.next = coming.map(|code| code.time).min().unwrap_or(u64::MAX);
    }

    /// Forgets a process's code, since the process runs another program now.
    pub(crate) fn forget(&mut self, process: ProcessId) {
        if self.spaces.remove(&process).is_some() {
            self.dumps.retain(|dump| dump.process != process);
            self.update_next();
        }
    }
}

impl System<'_> {
    /// Reads a jitdump file that a process has mapped.
    pub(crate) fn jit_dump(&mut self, process: ProcessId, path: &[u8]) {
        let mapping = Mapping {
            start: 0,
            end: 0,
            bias: 0,
            module: self.modules.intern(Module {
                kind: ModuleKind::NotAFile,
                path: path.to_vec(),
                build_id: None,
                label: base_name(path),
            }),
            image: 0,
        };
        let jit = &mut self.jit;
        if jit.dumps.len() >= MOST_DUMPS || jit.read.len() >= MOST_DUMPS {
            jit.refused += 1;
            return;
        }
        let known = |dump: &Dump| (dump.process, dump.mapping.module) == (process, mapping.module);
        if jit.dumps.iter().any(known) {
            return;
        }
        let placements = match jit.read.get(path) {
            Some(placements) => placements.clone(),
            None => {
                let symbols = jit.symbolizer.jit_dump(Path::new(OsStr::from_bytes(path)));
                let placements = Rc::new(symbols.placements());
                jit.read.insert(path.to_vec(), placements.clone());
                placements
            }
        };
        if jit.code + placements.len() > MOST_CODE {
            jit.refused += 1;
            return;
        }
        jit.code += placements.len();
        jit.spaces.entry(process).or_default();
        jit.dumps.push(Dump {
            process,
            mapping,
            placements,
            next: 0,
        });
        if jit.timed {
            jit.update_next();
        } else {
            // Without times, the last code at an address stands for all code that was there.
            jit.untimed += 1;
            self.place_jit_code(u64::MAX);
        }
    }

    /// Puts the code that appeared until `now` into the processes' spaces.
    #[cold]
    pub(crate) fn place_jit_code(&mut self, now: u64) {
        let mut dumps = std::mem::take(&mut self.jit.dumps);
        for dump in &mut dumps {
            let mut placed = false;
            while let Some(code) = dump.placements.get(dump.next)
                && code.time <= now
            {
                dump.next += 1;
                placed = true;
                let start = code.start.0;
                let mapping = Mapping {
                    start,
                    end: start.saturating_add(code.size),
                    bias: start.wrapping_sub(code.offset.0),
                    ..dump.mapping
                };
                self.grow(dump.process);
                self.spaces[dump.process as usize].insert(mapping, &self.budget);
                if let Some(space) = self.jit.spaces.get_mut(&dump.process) {
                    space.insert(mapping, &self.budget);
                }
            }
            if placed {
                self.change(dump.process);
            }
        }
        self.jit.dumps = dumps;
        self.jit.update_next();
    }

    /// Shows a process's code again after a mapping of memory from `start` until `end` has hidden it. Compilers map
    /// memory that they have filled a second time, to change its protection.
    pub(crate) fn show_jit_code(&mut self, process: ProcessId, start: u64, end: u64) {
        let Some(space) = self.jit.spaces.get(&process) else {
            return;
        };
        for mapping in space.mappings() {
            let shown = Mapping {
                start: mapping.start.max(start),
                end: mapping.end.min(end),
                ..*mapping
            };
            if shown.start < shown.end {
                self.spaces[process as usize].insert(shown, &self.budget);
            }
        }
    }
}

fn base_name(path: &[u8]) -> String {
    let base = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    String::from_utf8_lossy(base).into_owned()
}
