//! What is known of functions, by their addresses; a hash table that is only ever replaced by a larger one.

use crate::sys;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use dioptra_tracelayout::message::FunctionId;

#[repr(C)]
struct Table {
    mask: u64,
}

#[repr(C)]
struct Place {
    address: AtomicU64,
    id: AtomicU32,
    kind: AtomicU32,
    slot: AtomicU32,
    sample: AtomicU32,
}

static TABLE: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());

impl Place {
    fn store(&self, function: FunctionId) {
        self.id.store(function.id, Ordering::Relaxed);
        self.kind.store(function.kind, Ordering::Relaxed);
        self.slot.store(function.slot, Ordering::Relaxed);
        self.sample.store(function.sample, Ordering::Relaxed);
        self.address.store(function.address, Ordering::Relaxed);
    }

    #[inline]
    fn load(&self, address: u64) -> FunctionId {
        FunctionId {
            address,
            id: self.id.load(Ordering::Relaxed),
            kind: self.kind.load(Ordering::Relaxed),
            slot: self.slot.load(Ordering::Relaxed),
            sample: self.sample.load(Ordering::Relaxed),
        }
    }
}

/// Learns what is to be known of functions.
pub fn learn(functions: &[FunctionId]) {
    let old = TABLE.load(Ordering::Acquire);
    let known = match old.is_null() {
        true => 0,
        // SAFETY: a table is never unmapped, and as large as its mask says.
        false => unsafe { (*old).mask + 1 },
    };
    let wanted = (known + functions.len() as u64).next_power_of_two() * 2;
    let size = size_of::<Table>() + wanted as usize * size_of::<Place>();
    let Ok(memory) = sys::map_private(size) else {
        return;
    };
    let table: *mut Table = memory.cast();
    // SAFETY: new memory, zeroes.
    unsafe { (*table).mask = wanted - 1 };
    for at in 0..known {
        // SAFETY: as above.
        let place = unsafe { place(old, at) };
        put(table, place.load(place.address.load(Ordering::Relaxed)));
    }
    for function in functions {
        put(table, *function);
    }
    TABLE.store(table, Ordering::Release);
}

/// # Safety
/// The table is one.
unsafe fn place<'a>(table: *mut Table, hash: u64) -> &'a Place {
    // SAFETY: the mask keeps it inside; tables are never unmapped.
    unsafe {
        &*table
            .add(1)
            .cast::<Place>()
            .add((hash & (*table).mask) as usize)
    }
}

fn hash(address: u64) -> u64 {
    address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

fn put(table: *mut Table, function: FunctionId) {
    if function.address == 0 {
        return;
    }
    let mut at = hash(function.address);
    loop {
        // SAFETY: a table of ours; it is at most half full.
        let place = unsafe { place(table, at) };
        let there = place.address.load(Ordering::Relaxed);
        if there == 0 || there == function.address {
            place.store(function);
            return;
        }
        at += 1;
    }
}

/// The function at an address; `None` if it is not known, or its calls are not wanted.
#[inline]
pub fn find(address: u64) -> Option<FunctionId> {
    let table = TABLE.load(Ordering::Acquire);
    if table.is_null() {
        return None;
    }
    let mut at = hash(address);
    loop {
        // SAFETY: a table; it is at most half full, so there is an end.
        let place = unsafe { place(table, at) };
        match place.address.load(Ordering::Relaxed) {
            0 => return None,
            there if there == address => {
                let function = place.load(address);
                return (function.id != 0).then_some(function);
            }
            _ => at += 1,
        }
    }
}
