//! One process's modules, and the walk up a stack.

use std::ops::Range;
use std::sync::{Arc, LazyLock};

use framehop::aarch64::{CacheAarch64, PtrAuthMask, UnwindRegsAarch64, UnwinderAarch64};
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{Error, FrameAddress, Unwinder};

use super::signals::SignalRegisters;
use super::tables::{HIGHEST, MachineUnwinder, ModuleUnwinder, UnwindTables};
use super::{StackEnd, StackUnwinder, UnwindMachine, UnwindMapping, UnwindModule, UserRegisters};
use crate::address::{FileMapping, LoadBias, MemoryAddress};

/// Frames kept of one stack; perf keeps 127.
const MOST_FRAMES: usize = 1024;
/// Stacks lie between these on every machine; sums of what is between can't overflow.
const STACKS: Range<u64> = 4096..1 << 62;

/// The number of editions that the modules of a cache may span. framehop tells them apart by a number of 16 bits
/// that counts all changes, so an old entry could be taken for a new one after 65536 changes. Some room
/// is left for threads that read modules at the same time.
const MOST_EDITIONS: u64 = 60_000;

type X86_64 = UnwinderX86_64<Arc<[u8]>>;
type Aarch64 = UnwinderAarch64<Arc<[u8]>>;

/// The unwinder for code without tables. There is but one for each processor, or the editions would run out.
static NO_TABLES_X86_64: LazyLock<ModuleUnwinder<X86_64>> =
    LazyLock::new(ModuleUnwinder::without_tables);
static NO_TABLES_AARCH64: LazyLock<ModuleUnwinder<Aarch64>> =
    LazyLock::new(ModuleUnwinder::without_tables);

#[derive(Clone)]
struct Placed {
    range: Range<u64>,
    file_offset: u64,
    /// `None` if the tables do not cover the mapping.
    bias: Option<LoadBias>,
    tables: Arc<UnwindTables>,
}

impl Placed {
    /// Whether signal handlers return to the code at an address of this mapping.
    #[inline]
    fn is_trampoline(&self, address: u64) -> bool {
        let trampolines = self.tables.trampolines();
        !trampolines.is_empty()
            && self.bias.is_some_and(|bias| {
                let address = bias.in_file(MemoryAddress(address)).0;
                trampolines.iter().any(|code| code.contains(&address))
            })
    }
}

/// Which module lies where in one process.
///
/// Cheap to clone and to make anew: it refers to modules, whose tables are shared by all.
#[derive(Clone)]
pub struct AddressSpace {
    machine: UnwindMachine,
    /// Sorted; none overlaps another.
    placed: Vec<Placed>,
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
            machine,
            placed: Vec::new(),
        }
    }

    /// Adds an executable mapping, which replaces what was mapped there. Reads the module's tables if
    /// `unwinder` doesn't have them yet (a millisecond for a few megabytes).
    ///
    /// For a mapping of data call [`unmap`](Self::unmap) instead: it too replaces what was there.
    pub fn map(&mut self, unwinder: &StackUnwinder, mapping: &UnwindMapping<'_>) {
        let UnwindMapping { mapping, module } = mapping;
        if mapping.start < mapping.end {
            self.map_module(*mapping, &unwinder.module(module));
        }
    }

    /// Maps a part of a module, which replaces what was mapped there. Takes no longer than adding to a list where
    /// mappings come by rising address.
    pub fn map_module(&mut self, mapping: FileMapping, module: &UnwindModule) {
        let FileMapping {
            start,
            end,
            file_offset,
        } = mapping;
        if start < end {
            self.unmap(start, end);
            self.place(start.0..end.0, file_offset.0, module.0.clone());
        }
    }

    /// Takes away what is mapped from `start` up to `end`; of mappings that reach beyond, what is
    /// outside stays.
    pub fn unmap(&mut self, start: MemoryAddress, end: MemoryAddress) {
        let (start, end) = (start.0, end.0);
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
            let range = placed.range;
            if range.start < start {
                let tables = placed.tables.clone();
                self.place(range.start..start, placed.file_offset, tables);
            }
            if end < range.end {
                let file_offset = placed.file_offset.wrapping_add(end - range.start);
                self.place(end..range.end, file_offset, placed.tables);
            }
        }
    }

    /// The process's stack, innermost first: the instruction pointer, then return addresses, into
    /// `frames`, whose old content goes. `stack` is a copy of memory from the stack pointer upwards.
    ///
    /// A return address is that of the instruction behind the call: look for the function and the line
    /// at the byte before it. A frame that a signal interrupted stands there as the address of its next instruction plus 1,
    /// so that the byte before it belongs to that instruction.
    pub fn unwind(
        &self,
        registers: &UserRegisters,
        stack: &[u8],
        cache: &mut UnwindCache,
        frames: &mut Vec<MemoryAddress>,
    ) -> StackEnd {
        frames.clear();
        let stack = Dump {
            start: registers.stack_pointer().0,
            bytes: stack,
        };
        let result = match (self.machine, *registers) {
            (UnwindMachine::X86_64, UserRegisters::X86_64 { ip, sp, bp }) => {
                frames.push(MemoryAddress(ip));
                if !STACKS.contains(&sp) {
                    return StackEnd::Broken;
                }
                let registers = UnwindRegsX86_64::new(ip, sp, bp);
                self.walk::<X86_64>(registers, &mut cache.x86_64, stack, frames)
            }
            (UnwindMachine::Aarch64, UserRegisters::Aarch64 { pc, sp, fp, lr }) => {
                frames.push(MemoryAddress(pc));
                if !STACKS.contains(&sp) {
                    return StackEnd::Broken;
                }
                // Without mappings all bits are those of addresses; framehop can't do with none.
                let highest = self
                    .placed
                    .last()
                    .map_or(u64::MAX, |placed| placed.range.end);
                let mask = PtrAuthMask::from_max_known_address(highest);
                let registers = UnwindRegsAarch64::new_with_ptr_auth_mask(mask, lr, sp, fp);
                self.walk::<Aarch64>(registers, &mut cache.aarch64, stack, frames)
            }
            _ => return StackEnd::WrongMachine,
        };
        match result {
            Ok(end) => end,
            Err(error) => self.failed(error, stack, frames),
        }
    }

    /// Follows a stack from the first of `frames` on; an error when it didn't end well.
    fn walk<U: OfModule>(
        &self,
        mut registers: U::UnwindRegs,
        caches: &mut Caches<U::Cache>,
        stack: Dump<'_>,
        frames: &mut Vec<MemoryAddress>,
    ) -> Result<StackEnd, Error>
    where
        U::Cache: Default,
        U::UnwindRegs: Clone + SignalRegisters,
    {
        let mut unread = false;
        // The frame is exactly at its address: the innermost one, and those that signals interrupted.
        let mut is_exact = true;
        caches.know(U::without_tables().edition);
        let mut address = frames.first().copied().unwrap_or_default().0;
        // Frames of the same module often follow each other.
        let mut last = 0;
        loop {
            // A return address may be the first behind its module.
            let within = address.wrapping_sub(u64::from(!is_exact));
            let placed = self.find(within, &mut last);
            if let Some(placed) = placed
                && placed.is_trampoline(within)
            {
                if frames.len() == MOST_FRAMES {
                    return Ok(StackEnd::TooDeep);
                }
                let interrupted = registers.interrupted(&mut |address| stack.word(address))?;
                (registers, address) = interrupted;
                frames.push(MemoryAddress(address.wrapping_add(1)));
                is_exact = true;
                // A handler with a stack of its own interrupted code whose stack is not in the copy.
                if !stack.holds(registers.stack_pointer()) {
                    return Ok(StackEnd::DumpExhausted);
                }
                continue;
            }
            let in_module = placed.and_then(|placed| {
                let in_file = placed.bias?.in_file(MemoryAddress(address)).0;
                let unwinder = U::of(placed.tables.unwinder()?)?;
                (1..HIGHEST)
                    .contains(&in_file)
                    .then_some((unwinder, in_file))
            });
            let (of_module, looked_up) =
                in_module.unwrap_or_else(|| (U::without_tables(), address));
            let frame = if is_exact {
                FrameAddress::from_instruction_pointer(looked_up)
            } else {
                FrameAddress::from_return_address(looked_up).ok_or(Error::ReturnAddressIsNull)?
            };
            let cache = caches.of(of_module.edition, frame.address());
            let unwinder = &of_module.unwinder;
            let caller = unwinder.unwind_frame(frame, &mut registers, cache, &mut |address| {
                let word = stack.word(address);
                unread |= word.is_err();
                word
            });
            if std::mem::take(&mut unread) {
                // Where the copy of the stack lacks a word that the tables ask for, framehop follows the frame pointer,
                // and remembers to do so for all stacks that come here. What it remembers at the same place of the
                // cache for code without tables puts an end to that.
                let address = FrameAddress::from_instruction_pointer(frame.address_for_lookup());
                let nowhere = &U::without_tables().unwinder;
                let none = &mut |_| Err(());
                let _ = nowhere.unwind_frame(address, &mut registers.clone(), cache, none);
            }
            let Some(caller) = caller? else {
                return Ok(StackEnd::Complete);
            };
            if frames.len() == MOST_FRAMES {
                return Ok(StackEnd::TooDeep);
            }
            if caller == 0 {
                return Err(Error::ReturnAddressIsNull);
            }
            address = caller;
            is_exact = false;
            frames.push(MemoryAddress(address));
        }
    }

    /// The mapping that holds an address; `last` is where the one before was found.
    fn find(&self, address: u64, last: &mut usize) -> Option<&Placed> {
        let holds = |placed: &&Placed| placed.range.contains(&address);
        if let Some(placed) = self.placed.get(*last).filter(holds) {
            return Some(placed);
        }
        let at = self
            .placed
            .partition_point(|placed| placed.range.end <= address);
        let placed = self.placed.get(at).filter(holds)?;
        *last = at;
        Some(placed)
    }

    /// Returns the end of a stack that couldn't be followed beyond its last frame.
    fn failed(&self, error: Error, dump: Dump<'_>, frames: &[MemoryAddress]) -> StackEnd {
        let Some((&last, before)) = frames.split_last() else {
            return StackEnd::Broken;
        };
        let address = last.0.wrapping_sub(u64::from(!before.is_empty()));
        let Some(placed) = self.find(address, &mut 0) else {
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

    fn place(&mut self, range: Range<u64>, file_offset: u64, tables: Arc<UnwindTables>) {
        let at = self
            .placed
            .partition_point(|other| other.range.start < range.start);
        let bias = tables.bias(&range, file_offset);
        let placed = Placed {
            range,
            file_offset,
            bias,
            tables,
        };
        self.placed.insert(at, placed);
    }
}

/// A machine's unwinder, as modules have it.
trait OfModule: Unwinder + Sized + 'static {
    /// That of a module, if it is of this machine.
    fn of(unwinder: &MachineUnwinder) -> Option<&ModuleUnwinder<Self>>;
    /// That of code without tables.
    fn without_tables() -> &'static ModuleUnwinder<Self>;
}

impl OfModule for X86_64 {
    fn of(unwinder: &MachineUnwinder) -> Option<&ModuleUnwinder<Self>> {
        match unwinder {
            MachineUnwinder::X86_64(unwinder) => Some(unwinder),
            MachineUnwinder::Aarch64(_) => None,
        }
    }

    fn without_tables() -> &'static ModuleUnwinder<Self> {
        &NO_TABLES_X86_64
    }
}

impl OfModule for Aarch64 {
    fn of(unwinder: &MachineUnwinder) -> Option<&ModuleUnwinder<Self>> {
        match unwinder {
            MachineUnwinder::Aarch64(unwinder) => Some(unwinder),
            MachineUnwinder::X86_64(_) => None,
        }
    }

    fn without_tables() -> &'static ModuleUnwinder<Self> {
        &NO_TABLES_AARCH64
    }
}

/// A cache of unwinding rules by address; for one thread, and for any number of processes.
#[derive(Default)]
pub struct UnwindCache {
    x86_64: Caches<CacheX86_64>,
    aarch64: Caches<CacheAarch64>,
}

impl std::fmt::Debug for UnwindCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UnwindCache").finish_non_exhaustive()
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

    /// Whether the copy has the word at an address.
    fn holds(&self, address: u64) -> bool {
        self.word(address).is_ok()
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
struct Caches<C> {
    /// Empty until first used.
    list: Vec<C>,
    /// The oldest edition among what they know.
    oldest: u64,
    /// The newest.
    newest: u64,
}

impl<C> Default for Caches<C> {
    fn default() -> Self {
        Self {
            list: Vec::new(),
            oldest: u64::MAX,
            newest: 0,
        }
    }
}

impl<C: Default> Caches<C> {
    /// A power of two; 16 hold 8144 addresses in some 400 KiB.
    const COUNT: usize = 16;

    /// Makes room for an edition.
    #[inline]
    fn know(&mut self, edition: u64) {
        if self.list.is_empty() || !(self.oldest..=self.newest).contains(&edition) {
            self.enter(edition);
        }
    }

    /// The one for an address of a module.
    #[inline]
    fn of(&mut self, edition: u64, address: u64) -> &mut C {
        self.know(edition);
        // The topmost bits of a product depend on all bits of the address.
        let hash = (address ^ edition << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60;
        &mut self.list[hash as usize % Self::COUNT]
    }

    /// Takes in an edition; forgets everything if what is known could be taken for something newer.
    #[cold]
    fn enter(&mut self, edition: u64) {
        self.oldest = self.oldest.min(edition);
        self.newest = self.newest.max(edition);
        if self.newest - self.oldest >= MOST_EDITIONS {
            self.list.clear();
            (self.oldest, self.newest) = (edition, edition);
        }
        if self.list.is_empty() {
            self.list.resize_with(Self::COUNT, C::default);
        }
    }
}
