//! Tells debuggers of pools, by the interface that is meant for code made at run time (gdb's manual, "JIT Interface"): they
//! have no file, and a debugger reads their unwind tables from memory.

use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

/// How many pools can be told of; more are loaded, but debuggers do not see through them.
const MOST: usize = 256;

/// A code file in memory.
#[repr(C)]
struct CodeEntry {
    next: *mut CodeEntry,
    previous: *mut CodeEntry,
    address: u64,
    size: u64,
}

/// What debuggers read.
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
struct Shared<T>(UnsafeCell<T>);

// SAFETY: written while the runtime works for the dynamic linker, one thread at a time; read by debuggers, who stop it.
unsafe impl<T> Sync for Shared<T> {}

#[cfg_attr(feature = "preload", unsafe(export_name = "__jit_debug_descriptor"))]
static DESCRIPTOR: Shared<Descriptor> = Shared(UnsafeCell::new(Descriptor {
    version: 1,
    action: 0,
    relevant: ptr::null_mut(),
    first: ptr::null_mut(),
}));

static ENTRIES: Shared<[CodeEntry; MOST]> = Shared(UnsafeCell::new(
    [const {
        CodeEntry {
            next: ptr::null_mut(),
            previous: ptr::null_mut(),
            address: 0,
            size: 0,
        }
    }; MOST],
));
static USED: AtomicUsize = AtomicUsize::new(0);

/// Debuggers stop here when something has changed.
#[cfg_attr(feature = "preload", unsafe(export_name = "__jit_debug_register_code"))]
#[inline(never)]
extern "C" fn changed() {
    // SAFETY: nothing; it keeps the call.
    unsafe { core::arch::asm!("", options(nostack, nomem, preserves_flags)) };
}

/// A pool lies at `address`.
pub fn tell(address: u64, size: u64) {
    let number = USED.fetch_add(1, Ordering::Relaxed);
    if number >= MOST {
        return;
    }
    let descriptor = DESCRIPTOR.0.get();
    // SAFETY: below the number of entries, and this one is ours; the list is changed by one thread at a time.
    unsafe {
        let entry = ENTRIES.0.get().cast::<CodeEntry>().add(number);
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
