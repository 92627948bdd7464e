//! Calls that are open on stacks that their thread does not use now: coroutines.
//!
//! Where a program exchanges stacks with `swapcontext` and its kin, the shadow stack is exchanged along with them
//! ([`switch`]), and the trace says so. What others do (a library's own assembler code) is only noticed when a stack does
//! not fit any more; then calls are recorded as left, but their return addresses are kept ([`bury`], [`exhume`]), since
//! the stack may come back and the program must go on.

use crate::arch;
use crate::chunks::{Writer, now};
use crate::session;
use crate::shadow::{self, Entry, Gate};
use crate::sys;
use core::cell::UnsafeCell;
use core::hint;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use dioptra_tracelayout::message::thread::{ENTRY_NO_RETURN, ENTRY_UNWOUND};

/// A stack that was left.
#[repr(C)]
struct Parked {
    next: *mut Parked,
    /// How many bytes it takes.
    size: usize,
    /// The stack pointer with which it will be resumed; 0: the memory is free.
    key: u64,
    stack: u32,
    count: usize,
    gate: Gate,
}

/// How many calls are kept that may come back: sets of [`WAYS`].
const SETS: usize = 1 << 14;
const WAYS: usize = 4;

#[repr(C)]
#[derive(Clone, Copy)]
struct Grave {
    slot: u64,
    return_address: u64,
}

struct Lists {
    parked: *mut Parked,
    graves: *mut Grave,
}

struct Locked {
    taken: AtomicBool,
    lists: UnsafeCell<Lists>,
}

// SAFETY: the lists are used by who holds the lock only.
unsafe impl Sync for Locked {}

static LISTS: Locked = Locked {
    taken: AtomicBool::new(false),
    lists: UnsafeCell::new(Lists {
        parked: ptr::null_mut(),
        graves: ptr::null_mut(),
    }),
};

/// The number of the next stack in this process.
static NEXT_STACK: AtomicU32 = AtomicU32::new(1);

/// Whether this process has exchanged stacks.
pub fn is_used() -> bool {
    NEXT_STACK.load(Ordering::Relaxed) > 1
}

/// For a few instructions, while signals are blocked.
fn locked<T>(work: impl FnOnce(&mut Lists) -> T) -> T {
    // A child that was forked while another thread held the lock would wait forever: it takes it after a while.
    let mut patience = 1_u32 << 24;
    while LISTS.taken.swap(true, Ordering::Acquire) && patience > 0 {
        hint::spin_loop();
        patience -= 1;
    }
    // SAFETY: the lock is ours.
    let result = work(unsafe { &mut *LISTS.lists.get() });
    LISTS.taken.store(false, Ordering::Release);
    result
}

/// The thread leaves its stack, to be resumed with the stack pointer `key` (0: never), for the one that is resumed with
/// `target`, or for a new one.
pub fn switch(writer: &mut Writer, key: u64, target: u64, is_new: bool) {
    let found = locked(|lists| find(lists, target));
    if found.is_null() && !is_new {
        // A jump within this stack, as by longjmp: what it leaves is noticed later.
        return;
    }
    let stack = writer.record().stack;
    let entries = writer.entries();
    // SAFETY: the block of this thread.
    let gate = unsafe { &mut (*arch::block()).gate };
    if key != 0 {
        let parked = locked(|lists| park(lists, key, stack, entries, *gate));
        if !parked {
            // No memory: the return addresses at least are kept as far as possible.
            entries.iter().for_each(bury);
        }
    }
    let record = writer.record();
    let bottom = shadow::bottom(record);
    if found.is_null() {
        record.top = bottom;
        record.stack = NEXT_STACK.fetch_add(1, Ordering::Relaxed);
        if let Some(arena) = session::arena() {
            *gate = Gate::at_start(arena.header());
        }
    } else {
        // SAFETY: `find` has taken it off the list; its entries follow it. They were a shadow stack's, so they fit.
        unsafe {
            let count = (*found).count;
            let entries = found.add(1).cast::<Entry>();
            bottom.add(1).copy_from_nonoverlapping(entries, count);
            record.top = bottom.add(count);
            record.stack = (*found).stack;
            *gate = (*found).gate;
            locked(|lists| {
                (*found).key = 0;
                (*found).next = lists.parked;
                lists.parked = found;
            });
        }
    }
    let stack = record.stack;
    if let Some(arena) = session::arena() {
        let time = now(&arena);
        writer.write(1, |to| to.stack(time, stack));
    }
}

/// Takes a stack off the list.
fn find(lists: &mut Lists, key: u64) -> *mut Parked {
    take(lists, |parked| parked.key == key)
}

fn take(lists: &mut Lists, is_it: impl Fn(&Parked) -> bool) -> *mut Parked {
    let mut link: *mut *mut Parked = &raw mut lists.parked;
    // SAFETY: the list holds mapped memory only.
    unsafe {
        while !(*link).is_null() {
            let parked = *link;
            if is_it(&*parked) {
                *link = (*parked).next;
                return parked;
            }
            link = &raw mut (*parked).next;
        }
    }
    ptr::null_mut()
}

fn park(lists: &mut Lists, key: u64, stack: u32, entries: &[Entry], gate: Gate) -> bool {
    let size = size_of::<Parked>() + size_of_val(entries);
    let mut parked = take(lists, |parked| parked.key == 0 && parked.size >= size);
    if parked.is_null() {
        let size = size.next_power_of_two().max(shadow::PAGE);
        let Ok(memory) = sys::map_private(size) else {
            return false;
        };
        parked = memory.cast();
        // SAFETY: new memory of that size.
        unsafe { (*parked).size = size };
    }
    // SAFETY: off the list, and large enough.
    unsafe {
        (*parked).key = key;
        (*parked).stack = stack;
        (*parked).count = entries.len();
        (*parked).gate = gate;
        parked
            .add(1)
            .cast::<Entry>()
            .copy_from_nonoverlapping(entries.as_ptr(), entries.len());
        (*parked).next = lists.parked;
    }
    lists.parked = parked;
    true
}

/// Whether a call's place on the stack still looks like one's.
fn alive(slot: u64) -> bool {
    sys::peek(sys::pid(), slot).is_some_and(crate::slow::is_thunk)
}

/// Whether a call may still return through its thunk.
pub fn will_return(entry: &Entry) -> bool {
    entry.flags & (ENTRY_UNWOUND | ENTRY_NO_RETURN) == 0 && alive(entry.slot)
}

/// Keeps the return address of a call that seems to be gone, if its place on the stack still looks like a call's.
pub fn bury(entry: &Entry) {
    if !alive(entry.slot) {
        return;
    }
    let grave = Grave {
        slot: entry.slot,
        return_address: entry.return_address,
    };
    locked(|lists| {
        let Some(set) = set(lists, entry.slot) else {
            return;
        };
        let place = set
            .iter()
            .position(|other| other.slot == grave.slot)
            .or_else(|| set.iter().position(|other| other.slot == 0))
            .or_else(|| set.iter().position(|other| !alive(other.slot)))
            .unwrap_or(0);
        if let Some(place) = set.get_mut(place) {
            *place = grave;
        }
    });
}

/// The return address of a call that came back.
pub fn exhume(slot: u64) -> Option<u64> {
    locked(|lists| {
        let grave = set(lists, slot)?
            .iter_mut()
            .find(|grave| grave.slot == slot)?;
        grave.slot = 0;
        Some(grave.return_address)
    })
}

fn set(lists: &mut Lists, slot: u64) -> Option<&mut [Grave]> {
    if lists.graves.is_null() {
        let size = SETS * WAYS * size_of::<Grave>();
        lists.graves = sys::map_private(size).ok()?.cast();
    }
    let number = (slot >> 3) as usize % SETS;
    // SAFETY: one of the table's sets; zeroes are free graves.
    Some(unsafe { core::slice::from_raw_parts_mut(lists.graves.add(number * WAYS), WAYS) })
}
