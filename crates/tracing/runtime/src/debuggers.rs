//! Registration of pools with debuggers, by the interface for code made at run time (gdb's manual, "JIT Interface").
//! Pools have no file, so debuggers read their unwind tables from memory.

use crate::shadow::PAGE;
use crate::sys;
use core::cell::UnsafeCell;
use core::ptr;

/// A code file in memory.
#[repr(C)]
struct CodeEntry {
    next: *mut CodeEntry,
    previous: *mut CodeEntry,
    address: u64,
    size: u64,
}

/// The structure that debuggers read.
#[repr(C)]
struct Descriptor {
    version: u32,
    action: u32,
    relevant: *mut CodeEntry,
    first: *mut CodeEntry,
}

/// The action that adds an entry.
const REGISTER: u32 = 1;

#[repr(transparent)]
struct DebuggerCell<T>(UnsafeCell<T>);

// SAFETY: written while the runtime works for the dynamic linker, by one thread at a time; read by debuggers, which
// stop the process.
unsafe impl<T> Sync for DebuggerCell<T> {}

#[cfg_attr(feature = "preload", unsafe(export_name = "__jit_debug_descriptor"))]
static DESCRIPTOR: DebuggerCell<Descriptor> = DebuggerCell(UnsafeCell::new(Descriptor {
    version: 1,
    action: 0,
    relevant: ptr::null_mut(),
    first: ptr::null_mut(),
}));

/// Entries that were mapped and are not used yet.
struct Spare {
    next: *mut CodeEntry,
    left: usize,
}

static SPARE: DebuggerCell<Spare> = DebuggerCell(UnsafeCell::new(Spare {
    next: ptr::null_mut(),
    left: 0,
}));

/// Returns memory for another entry, if there is some.
///
/// # Safety
/// Only one thread at a time calls this.
unsafe fn entry() -> Option<*mut CodeEntry> {
    // SAFETY: the caller's promise.
    let spare = unsafe { &mut *SPARE.0.get() };
    if spare.left == 0 {
        spare.next = sys::map_private(PAGE).ok()?.cast();
        spare.left = PAGE / size_of::<CodeEntry>();
    }
    let entry = spare.next;
    spare.next = entry.wrapping_add(1);
    spare.left -= 1;
    Some(entry)
}

/// Debuggers stop here when something has changed.
#[cfg_attr(feature = "preload", unsafe(export_name = "__jit_debug_register_code"))]
#[inline(never)]
extern "C" fn changed() {
    // SAFETY: nothing; it keeps the call.
    unsafe { core::arch::asm!("", options(nostack, nomem, preserves_flags)) };
}

/// Registers the pool at `address`. Without memory for the entry, debuggers can't unwind through the pool.
pub fn tell(address: u64, size: u64) {
    let descriptor = DESCRIPTOR.0.get();
    // SAFETY: the list is changed by one thread at a time; entries are never unmapped.
    unsafe {
        let Some(entry) = entry() else {
            return;
        };
        let first = (*descriptor).first;
        entry.write(CodeEntry {
            next: first,
            previous: ptr::null_mut(),
            address,
            size,
        });
        if !first.is_null() {
            (*first).previous = entry;
        }
        (*descriptor).first = entry;
        (*descriptor).relevant = entry;
        (*descriptor).action = REGISTER;
    }
    changed();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_pools_are_told_of() {
        for number in 1..=1000 {
            tell(number * PAGE as u64, 64);
        }
        // SAFETY: no other test tells of pools.
        unsafe {
            let mut entry = (*DESCRIPTOR.0.get()).first;
            for number in (1..=1000).rev() {
                assert_eq!((*entry).address, number * PAGE as u64);
                entry = (*entry).next;
            }
            assert!(entry.is_null());
        }
    }
}
