//! Calls that are open on stacks that their thread does not use now: coroutines.
//!
//! Where a program exchanges stacks with `swapcontext` and its kin, the shadow stack is exchanged along with them
//! ([`switch`]), and the trace says so. What others do (a library's own assembler code) is only noticed when a stack does
//! not fit any more; then calls are recorded as left, but their return addresses are kept ([`bury`], [`exhume`]), since
//! the stack may come back and the program must go on.

use crate::arch;
use crate::chunks::{Writer, now};
use crate::judged;
use crate::session;
use crate::shadow::{self, Caller, Entry, Gate};
use crate::sys;
use core::cell::UnsafeCell;
use core::hint;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use dioptra_tracelayout::message::thread::{self as layout, ENTRY_NO_RETURN, ENTRY_UNWOUND};

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
    /// The shadow stack on which the entries were.
    home: *mut Entry,
}

/// How many calls are kept that may come back: sets of [`WAYS`].
const SETS: usize = 1 << 14;
const WAYS: usize = 4;

/// How much of the stack around here the runtime uses, at most, below and above.
const OWN_STACK: u64 = 16384;

#[repr(C)]
#[derive(Clone, Copy)]
struct Grave {
    slot: u64,
    caller: Caller,
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
    judged::keep_open(writer);
    let entries = writer.entries();
    // SAFETY: the block of this thread.
    let gate = unsafe { &mut (*arch::block()).gate };
    if key != 0 {
        let parked = locked(|lists| park(lists, key, stack, entries, *gate));
        if !parked {
            // No memory: the return addresses at least are kept as far as possible.
            bury(entries);
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
            if (*found).home != bottom {
                let moved = core::slice::from_raw_parts_mut(bottom.add(1), count);
                follow(moved, (*found).home.add(1).addr());
            }
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

/// Entries were on another thread's shadow stack, from `home` on, and the stack with their calls is at rest: frame pointers
/// that lead to where they were are led to where they are.
fn follow(entries: &mut [Entry], home: usize) {
    let start = entries.as_ptr().addr();
    let moved = start.wrapping_sub(home) as u64;
    for (at, entry) in entries.iter_mut().enumerate() {
        if index(home, entry.frame).is_some_and(|index| index < at) {
            entry.frame = entry.frame.wrapping_add(moved);
        }
        let now = (&raw const *entry).addr() as u64;
        lead(entry.slot, now.wrapping_sub(moved), now);
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
        (*parked).home = entries.as_ptr().cast_mut().wrapping_sub(1);
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
    arch::is_there(slot)
}

/// Whether a call may still return through its thunk.
pub fn will_return(entry: &Entry) -> bool {
    entry.flags & (ENTRY_UNWOUND | ENTRY_NO_RETURN) == 0 && arch::will_return(entry.slot)
}

/// Keeps what calls that seem to be gone return to, outermost first, if their places on the stack still look like calls'.
///
/// Their entries will be others': frame pointers that lead there are led to what is kept, here (in the entries, which are
/// left so) and where functions have saved them.
pub fn bury(left: &mut [Entry]) {
    let start = left.as_ptr().addr();
    for at in 0..left.len() {
        let entry = left[at];
        let caller = Caller {
            frame: match index(start, entry.frame).filter(|&index| index < at) {
                Some(index) => left[index].frame,
                None => entry.frame,
            },
            ..entry.caller()
        };
        // What another call ended in a jump to has its place, and returns to where that one would.
        let before = at.checked_sub(1).map(|before| left[before]);
        let record = match before.filter(|before| before.slot == entry.slot) {
            Some(before) => Some(before.frame),
            None if alive(entry.slot) => keep(entry.slot, caller),
            None => None,
        };
        if let Some(record) = record {
            lead(entry.slot, (&raw const left[at]).addr() as u64, record);
        }
        let record = record.unwrap_or(caller.frame);
        left[at].frame = record;
    }
}

/// Which of the entries from `start` on a frame pointer leads to.
fn index(start: usize, frame: u64) -> Option<usize> {
    let distance = frame.checked_sub(start as u64)?;
    let size = layout::ENTRY_SIZE as u64;
    distance
        .is_multiple_of(size)
        .then_some((distance / size) as usize)
}

/// Where a function of a call at `slot` has saved its frame pointer, if it is one with a frame, it leads to an entry at
/// `from`: from now on it leads to `to`. The hook of its exit does not ask.
fn lead(slot: u64, from: u64, to: u64) {
    // The runtime's own frames lie around here, and hold addresses of entries.
    let here = (&raw const slot).addr() as u64;
    let is_own = slot.wrapping_sub(here.wrapping_sub(OWN_STACK)) < 2 * OWN_STACK;
    let place = slot.wrapping_sub(8);
    if is_own || !place.is_multiple_of(8) || sys::peek(sys::pid(), place) != Some(from) {
        return;
    }
    let place = ptr::with_exposed_provenance_mut(place as usize);
    // SAFETY: it was there just now. That it still holds what the hook of the entry put into the frame pointer is asked
    // again while it is changed: another thread may run on that stack by now.
    let place = unsafe { AtomicU64::from_ptr(place) };
    let _ = place.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
}

/// The address of what is kept, which is a frame record.
fn keep(slot: u64, caller: Caller) -> Option<u64> {
    let (place, evicted) = locked(|lists| {
        let set = set(lists, slot)?;
        let place = set
            .iter()
            .position(|other| other.slot == slot)
            .or_else(|| set.iter().position(|other| other.slot == 0))
            .or_else(|| set.iter().position(|other| !alive(other.slot)))
            .unwrap_or(0);
        let place = set.get_mut(place)?;
        let evicted = core::mem::replace(place, Grave { slot, caller });
        Some(((&raw const place.caller).addr() as u64, evicted))
    })?;
    if evicted.slot != 0 && evicted.slot != slot {
        lead(evicted.slot, place, evicted.caller.frame);
    }
    Some(place)
}

/// What a call that came back returns to.
pub fn exhume(slot: u64) -> Option<Caller> {
    locked(|lists| {
        let grave = set(lists, slot)?
            .iter_mut()
            .find(|grave| grave.slot == slot)?;
        grave.slot = 0;
        Some(grave.caller)
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
