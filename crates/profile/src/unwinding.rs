//! Callers found from copies of user stacks.

use crate::modules::Modules;
use crate::space::Space;
use dioptra_perfevents::record::Sample;
use dioptra_perfevents::{ByteOrder, U64s};
use dioptra_symbols::{
    AddressSpace, ModuleRequest, Note, StackEnd, StackUnwinder, SymbolOptions, UnwindCache,
    UnwindMachine, UnwindMapping, UserRegisters,
};

/// Entries from here on are no addresses but marks (`PERF_CONTEXT_MAX` in `linux/perf_event.h`).
const FIRST_MARK: u64 = -4095_i64 as u64;
/// `PERF_CONTEXT_USER`: what follows are addresses of the program.
const USER: u64 = -512_i64 as u64;
/// `PERF_SAMPLE_REGS_ABI_64`.
const ABI_64: u64 = 2;

/// How unwinding went, in samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnwindCounts {
    /// Up to the outermost function.
    pub complete: u64,
    /// The rest of the stack was not recorded.
    pub cut: u64,
    /// Stopped in code without unwind tables.
    pub no_table: u64,
    /// Led to what is no stack, or deeper than is kept.
    pub broken: u64,
    /// Not tried: registers of a program of 32 bits or of a machine that is not known.
    pub not_tried: u64,
}

impl UnwindCounts {
    /// Samples whose callers are not all there.
    pub fn incomplete(&self) -> u64 {
        self.cut + self.no_table + self.broken + self.not_tried
    }
}

/// One process's modules as the unwinder knows them.
struct Known {
    /// Which state of the mappings it is.
    version: u64,
    space: AddressSpace,
}

/// Unwinds the samples of one recording.
pub(crate) struct Unwinding {
    machine: Option<UnwindMachine>,
    unwinder: StackUnwinder,
    cache: UnwindCache,
    /// By process.
    spaces: Vec<Option<Known>>,
    frames: Vec<u64>,
    /// The chain in the making, as bytes of this machine's order.
    chain: Vec<u8>,
    pub(crate) counts: UnwindCounts,
}

impl Unwinding {
    /// `machine` as `uname -m` names the recorded one.
    pub(crate) fn new(machine: Option<&str>, symbols: SymbolOptions) -> Self {
        Unwinding {
            machine: match machine {
                Some(name) => UnwindMachine::of_name(name),
                None => UnwindMachine::native(),
            },
            unwinder: StackUnwinder::new(symbols),
            cache: UnwindCache::default(),
            spaces: Vec::new(),
            frames: Vec::new(),
            chain: Vec::new(),
            counts: UnwindCounts::default(),
        }
    }

    /// The call chain of a sample with a stack copy: the kernel's part as recorded, then the program's callers.
    /// `None` where there are no user registers, so that the recorded chain is all there is.
    pub(crate) fn chain(
        &mut self,
        process: usize,
        version: u64,
        space: &Space,
        modules: &Modules,
        sample: &Sample<'_>,
    ) -> Option<U64s<'_>> {
        let registers = sample.regs_user.filter(|registers| registers.abi != 0)?;
        let stack = sample.stack_user?;
        let start = self
            .machine
            .filter(|_| registers.abi == ABI_64)
            .and_then(|machine| UserRegisters::of_sample(machine, |number| registers.get(number)));
        let Some(start) = start else {
            self.counts.not_tried += 1;
            return None;
        };
        self.update(process, version, space, modules, start.machine());
        let known = self.spaces.get(process)?.as_ref()?;
        let end = known
            .space
            .unwind(&start, stack.bytes, &mut self.cache, &mut self.frames);
        let counter = match end {
            StackEnd::Complete => &mut self.counts.complete,
            StackEnd::DumpExhausted => &mut self.counts.cut,
            StackEnd::NoUnwindTable => &mut self.counts.no_table,
            StackEnd::WrongMachine => &mut self.counts.not_tried,
            _ => &mut self.counts.broken,
        };
        *counter += 1;
        self.chain.clear();
        let mut push = |address: u64| self.chain.extend_from_slice(&address.to_ne_bytes());
        let recorded = sample.callchain.iter().flat_map(U64s::iter);
        for address in recorded.take_while(|address| *address != USER) {
            push(address);
        }
        push(USER);
        for (index, address) in self.frames.iter().enumerate() {
            // A return address is behind the call, perhaps in the next function: the call itself is what is meant.
            let address = address.wrapping_sub(u64::from(index > 0));
            if address < FIRST_MARK {
                push(address);
            }
        }
        Some(U64s::new(&self.chain, ByteOrder::NATIVE))
    }

    /// Brings what is known of a process's modules up to date.
    fn update(
        &mut self,
        process: usize,
        version: u64,
        space: &Space,
        modules: &Modules,
        machine: UnwindMachine,
    ) {
        if self.spaces.len() <= process {
            self.spaces.resize_with(process + 1, || None);
        }
        let known = &mut self.spaces[process];
        if known.as_ref().is_some_and(|known| known.version == version) {
            return;
        }
        let mut fresh = AddressSpace::new(machine);
        for mapping in space.mappings() {
            let module = modules.get(mapping.module);
            fresh.map(
                &self.unwinder,
                &UnwindMapping {
                    start: mapping.start,
                    end: mapping.end,
                    file_offset: mapping.start.wrapping_sub(mapping.bias),
                    module: ModuleRequest {
                        kind: module.kind,
                        path: module.path(),
                        build_id: module.build_id.as_deref(),
                    },
                },
            );
        }
        *known = Some(Known {
            version,
            space: fresh,
        });
    }

    /// What is worth telling about the modules that were met.
    pub(crate) fn notes(&self) -> Vec<Note> {
        self.unwinder.notes()
    }

    /// Forgets a process that ended.
    pub(crate) fn forget(&mut self, process: usize) {
        if let Some(known) = self.spaces.get_mut(process) {
            *known = None;
        }
    }
}
