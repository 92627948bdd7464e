//! One process's modules, and the walk up a stack.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use framehop::aarch64::{CacheAarch64, PtrAuthMask, UnwindRegsAarch64, UnwinderAarch64};
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{Error, FrameAddress, Unwinder};
use object::elf;

use super::tables::UnwindTables;
use super::{StackEnd, StackUnwinder, UnwindMachine, UnwindMapping, UserRegisters};

/// Frames kept of one stack; perf keeps 127.
const MOST_FRAMES: usize = 1024;
/// Stacks lie between these on every machine; sums of what is between can't overflow.
const STACKS: Range<u64> = 4096..1 << 62;

/// How many different lists of modules a cache may know. framehop tells them apart by a number of 16
/// bits that counts changes to any list, so an old entry could be taken for a new one after 65536
/// changes. Some room is left for threads that change lists at the same time.
const MOST_EDITIONS: u64 = 60_000;

/// Counts changes to lists of modules, at least as fast as framehop's own counter.
static EDITION: AtomicU64 = AtomicU64::new(0);

type Module = framehop::Module<Arc<[u8]>>;

#[derive(Debug, Clone)]
struct Placed {
    range: Range<u64>,
    file_offset: u64,
    tables: Arc<UnwindTables>,
}

#[derive(Clone)]
enum Machine {
    X86_64(UnwinderX86_64<Arc<[u8]>>),
    Aarch64(UnwinderAarch64<Arc<[u8]>>),
}

/// Which module lies where in one process.
///
/// A clone is the address space of a forked process, and shares what caches know of the original until
/// one of them changes.
#[derive(Clone)]
pub struct AddressSpace {
    machine: Machine,
    /// Sorted; none overlaps another.
    placed: Vec<Placed>,
    edition: u64,
}

impl std::fmt::Debug for AddressSpace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AddressSpace")
            .field("mappings", &self.placed.len())
            .finish_non_exhaustive()
    }
}

impl AddressSpace {
    /// One without mappings.
    #[must_use]
    pub fn new(machine: UnwindMachine) -> Self {
        Self {
            machine: match machine {
                UnwindMachine::X86_64 => Machine::X86_64(UnwinderX86_64::new()),
                UnwindMachine::Aarch64 => Machine::Aarch64(UnwinderAarch64::new()),
            },
            placed: Vec::new(),
            edition: 0,
        }
    }

    /// Adds an executable mapping, which replaces what was mapped there. Reads the module's tables if
    /// `unwinder` doesn't have them yet (a millisecond for a few megabytes).
    ///
    /// For a mapping of data call [`unmap`](Self::unmap) instead: it too replaces what was there.
    pub fn map(&mut self, unwinder: &StackUnwinder, mapping: &UnwindMapping<'_>) {
        if mapping.start >= mapping.end {
            return;
        }
        self.unmap(mapping.start, mapping.end);
        self.place(Placed {
            range: mapping.start..mapping.end,
            file_offset: mapping.file_offset,
            tables: unwinder.tables(&mapping.module),
        });
    }

    /// Takes away what is mapped from `start` up to `end`; of mappings that reach beyond, what is
    /// outside stays.
    pub fn unmap(&mut self, start: u64, end: u64) {
        let first = self
            .placed
            .partition_point(|placed| placed.range.end <= start);
        let last = self
            .placed
            .partition_point(|placed| placed.range.start < end);
        if first >= last {
            return;
        }
        let removed: Vec<Placed> = self.placed.drain(first..last).collect();
        for placed in removed {
            let range = placed.range.clone();
            self.change(|machine| machine.remove(range.start));
            if range.start < start {
                self.place(Placed {
                    range: range.start..start,
                    ..placed.clone()
                });
            }
            if end < range.end {
                self.place(Placed {
                    range: end..range.end,
                    file_offset: placed.file_offset.wrapping_add(end - range.start),
                    tables: placed.tables,
                });
            }
        }
    }

    /// The process's stack, innermost first: the instruction pointer, then return addresses, into
    /// `frames`, whose old content goes. `stack` is a copy of memory from the stack pointer upwards.
    ///
    /// A return address is that of the instruction behind the call: look for the function and the line
    /// at the byte before it.
    pub fn unwind(
        &self,
        registers: &UserRegisters,
        stack: &[u8],
        cache: &mut UnwindCache,
        frames: &mut Vec<u64>,
    ) -> StackEnd {
        frames.clear();
        cache.enter(self.edition);
        let dump = Dump {
            start: registers.stack_pointer(),
            bytes: stack,
        };
        let result = match (&self.machine, *registers) {
            (Machine::X86_64(unwinder), UserRegisters::X86_64 { ip, sp, bp }) => {
                if !STACKS.contains(&sp) {
                    frames.push(ip);
                    return StackEnd::Broken;
                }
                let registers = UnwindRegsX86_64::new(ip, sp, bp);
                walk(unwinder, ip, registers, &mut cache.x86_64, dump, frames)
            }
            (Machine::Aarch64(unwinder), UserRegisters::Aarch64 { pc, sp, fp, lr }) => {
                if !STACKS.contains(&sp) {
                    frames.push(pc);
                    return StackEnd::Broken;
                }
                let mask = PtrAuthMask::from_max_known_address(unwinder.max_known_code_address());
                let registers = UnwindRegsAarch64::new_with_ptr_auth_mask(mask, lr, sp, fp);
                walk(unwinder, pc, registers, &mut cache.aarch64, dump, frames)
            }
            _ => return StackEnd::WrongMachine,
        };
        match result {
            Ok(end) => end,
            Err(error) => self.failed(error, dump, frames),
        }
    }

    /// How the stack ended that couldn't be followed beyond its last frame.
    fn failed(&self, error: Error, dump: Dump<'_>, frames: &[u64]) -> StackEnd {
        let Some((&last, before)) = frames.split_last() else {
            return StackEnd::Broken;
        };
        let address = last.wrapping_sub(u64::from(!before.is_empty()));
        let at = self
            .placed
            .partition_point(|placed| placed.range.end <= address);
        let placed = self.placed.get(at);
        let Some(placed) = placed.filter(|placed| placed.range.contains(&address)) else {
            return StackEnd::NoUnwindTable;
        };
        let offset = (address - placed.range.start).wrapping_add(placed.file_offset);
        match error {
            _ if placed.tables.is_entry(offset) => StackEnd::Complete,
            _ if !placed.tables.cover(offset) => StackEnd::NoUnwindTable,
            // The tables were right, so the stack goes on above the copy.
            Error::CouldNotReadStack(address) if dump.is_above(address) => StackEnd::DumpExhausted,
            _ => StackEnd::Broken,
        }
    }

    fn place(&mut self, placed: Placed) {
        let machine = match &self.machine {
            Machine::X86_64(_) => elf::EM_X86_64,
            Machine::Aarch64(_) => elf::EM_AARCH64,
        };
        let module = placed
            .tables
            .module(placed.range.clone(), placed.file_offset, machine);
        if let Some(module) = module {
            self.change(|machine| machine.add(module));
        }
        let at = self
            .placed
            .partition_point(|other| other.range.start < placed.range.start);
        self.placed.insert(at, placed);
    }

    fn change(&mut self, change: impl FnOnce(&mut Machine)) {
        change(&mut self.machine);
        self.edition = 1 + EDITION.fetch_add(1, Ordering::Relaxed);
    }
}

impl Machine {
    fn add(&mut self, module: Module) {
        match self {
            Self::X86_64(unwinder) => unwinder.add_module(module),
            Self::Aarch64(unwinder) => unwinder.add_module(module),
        }
    }

    fn remove(&mut self, start: u64) {
        match self {
            Self::X86_64(unwinder) => unwinder.remove_module(start),
            Self::Aarch64(unwinder) => unwinder.remove_module(start),
        }
    }
}

/// What unwinding found out about addresses; for one thread, and for any number of processes.
#[derive(Default)]
pub struct UnwindCache {
    x86_64: Shards<CacheX86_64>,
    aarch64: Shards<CacheAarch64>,
    /// The oldest and newest list of modules it knows addresses of.
    editions: Option<(u64, u64)>,
}

impl std::fmt::Debug for UnwindCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UnwindCache")
            .field("editions", &self.editions)
            .finish_non_exhaustive()
    }
}

impl UnwindCache {
    /// Forgets everything if what is known could be taken for something newer.
    fn enter(&mut self, edition: u64) {
        let (oldest, newest) = self.editions.unwrap_or((edition, edition));
        let (oldest, newest) = (oldest.min(edition), newest.max(edition));
        if newest - oldest < MOST_EDITIONS {
            self.editions = Some((oldest, newest));
        } else {
            *self = Self {
                editions: Some((edition, edition)),
                ..Self::default()
            };
        }
    }
}

/// A copy of the top of a stack.
#[derive(Clone, Copy)]
struct Dump<'a> {
    start: u64,
    bytes: &'a [u8],
}

impl Dump<'_> {
    fn word(&self, address: u64) -> Result<u64, ()> {
        let at = usize::try_from(address.wrapping_sub(self.start)).map_err(|_| ())?;
        let bytes = self
            .bytes
            .get(at..)
            .and_then(<[u8]>::first_chunk)
            .ok_or(())?;
        Ok(u64::from_le_bytes(*bytes))
    }

    /// Whether an address lies behind the copy, but where the stack may still be.
    fn is_above(&self, address: u64) -> bool {
        // The kernel's limit for the main thread's stack is 8 MiB unless asked otherwise.
        const REACH: u64 = 64 << 20;
        let inside = address.wrapping_sub(self.start);
        inside.saturating_add(8) > self.bytes.len() as u64 && inside < REACH
    }
}

/// Several of framehop's caches, since one has but 509 places: a compiler or an interpreter runs through
/// thousands of call sites.
struct Shards<C> {
    /// Empty until first used.
    caches: Vec<C>,
}

impl<C> Default for Shards<C> {
    fn default() -> Self {
        Self { caches: Vec::new() }
    }
}

impl<C: Default> Shards<C> {
    /// A power of two; 16 hold 8144 addresses in some 400 KiB.
    const COUNT: usize = 16;

    fn of(&mut self, address: u64) -> &mut C {
        if self.caches.is_empty() {
            self.caches.resize_with(Self::COUNT, C::default);
        }
        // The topmost bits of a product depend on all bits of the address.
        let hash = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60;
        &mut self.caches[hash as usize % Self::COUNT]
    }
}

/// Follows a stack; an error when it didn't end well.
fn walk<U>(
    unwinder: &U,
    ip: u64,
    mut registers: U::UnwindRegs,
    caches: &mut Shards<U::Cache>,
    dump: Dump<'_>,
    frames: &mut Vec<u64>,
) -> Result<StackEnd, Error>
where
    U: Unwinder,
    U::Cache: Default,
{
    let mut read = |address| dump.word(address);
    let mut frame = FrameAddress::from_instruction_pointer(ip);
    frames.push(ip);
    loop {
        let cache = caches.of(frame.address());
        let caller = unwinder.unwind_frame(frame, &mut registers, cache, &mut read)?;
        let Some(caller) = caller else {
            return Ok(StackEnd::Complete);
        };
        if frames.len() == MOST_FRAMES {
            return Ok(StackEnd::TooDeep);
        }
        frame = FrameAddress::from_return_address(caller).ok_or(Error::ReturnAddressIsNull)?;
        frames.push(frame.address());
    }
}
