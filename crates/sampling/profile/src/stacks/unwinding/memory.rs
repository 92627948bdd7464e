//! Unchanging states of processes' mappings, for samples that wait to be unwound.

use crate::processes::address_space::{Mapping, Space};
use crate::processes::modules::{ModuleId, Modules};
use crate::stacks::frames::Frame;
use dioptra_symbols::{
    AddressSpace, FileMapping, FileOffset, MemoryAddress, ModuleRequest, Note, StackUnwinder,
    SymbolOptions, UnwindMachine, UnwindModule,
};
use std::sync::Arc;

/// One state of a process's mappings. Making a state costs a few words for each mapping. Unwind tables belong to
/// modules, so what was read of them stays valid for all states.
#[derive(Debug)]
pub(crate) struct MemoryState {
    /// The number of the state among the states of its process.
    pub version: u64,
    /// The mappings, sorted and without overlaps.
    mappings: Vec<Mapping>,
    /// The address space for unwinding; `None` where the machine is not known.
    pub space: Option<AddressSpace>,
}

impl MemoryState {
    /// Returns the frame of an address in one of the mappings.
    pub(crate) fn frame(&self, address: u64) -> Option<Frame> {
        let index = self
            .mappings
            .partition_point(|mapping| mapping.end <= address);
        let mapping = self.mappings.get(index)?;
        (mapping.start <= address).then(|| Frame {
            module: mapping.module,
            address: address.wrapping_sub(mapping.bias),
        })
    }

    /// Returns the number of mappings.
    pub(super) fn len(&self) -> usize {
        self.mappings.len()
    }
}

/// The newest state of each process.
pub(super) struct Memories {
    machine: Option<UnwindMachine>,
    unwinder: StackUnwinder,
    /// By module.
    modules: Vec<Option<UnwindModule>>,
    /// By process.
    states: Vec<Option<Arc<MemoryState>>>,
}

impl Memories {
    pub(super) fn new(machine: Option<UnwindMachine>, symbols: SymbolOptions) -> Self {
        Memories {
            machine,
            unwinder: StackUnwinder::new(symbols),
            modules: Vec::new(),
            states: Vec::new(),
        }
    }

    /// Returns the state of a process that `version` names, with the mappings of `space`.
    pub(super) fn state(
        &mut self,
        process: usize,
        version: u64,
        space: &Space,
        modules: &Modules,
    ) -> Arc<MemoryState> {
        if let Some(Some(state)) = self.states.get(process)
            && state.version == version
        {
            return state.clone();
        }
        let mappings = space.mappings().to_vec();
        let space = self.machine.map(|machine| {
            let mut space = AddressSpace::new(machine);
            for mapping in &mappings {
                let module = self.module(mapping.module, modules);
                let mapping = FileMapping {
                    start: MemoryAddress(mapping.start),
                    end: MemoryAddress(mapping.end),
                    file_offset: FileOffset(mapping.start.wrapping_sub(mapping.bias)),
                };
                space.map_module(mapping, module);
            }
            space
        });
        let state = Arc::new(MemoryState {
            version,
            mappings,
            space,
        });
        if self.states.len() <= process {
            self.states.resize_with(process + 1, || None);
        }
        self.states[process] = Some(state.clone());
        state
    }

    fn module(&mut self, id: ModuleId, modules: &Modules) -> &UnwindModule {
        let index = id as usize;
        if self.modules.len() <= index {
            self.modules.resize_with(index + 1, || None);
        }
        let unwinder = &self.unwinder;
        self.modules[index].get_or_insert_with(|| {
            let module = modules.get(id);
            unwinder.module(&ModuleRequest {
                kind: module.kind,
                path: module.path(),
                build_id: module.build_id.as_deref(),
            })
        })
    }

    pub(super) fn notes(&self) -> Vec<Note> {
        self.unwinder.notes()
    }

    pub(super) fn forget(&mut self, process: usize) {
        if let Some(state) = self.states.get_mut(process) {
            *state = None;
        }
    }
}
