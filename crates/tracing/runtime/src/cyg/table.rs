//! The functions that call the runtime themselves, by their addresses: a hash table that hooks read without a lock
//! while the thread in the dynamic linker changes it.
//!
//! A function that is forgotten leaves its address behind in its cell, as long as other functions are found behind
//! it: hooks may be on their way to them. Such cells are given to functions that are learned later. A table that is
//! half full is replaced by one of twice its size. Replaced tables stay, since hooks may still read them; together
//! they are smaller than the one in use.

use crate::sys;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use dioptra_tracelayout::message::InstrumentedFunction;

/// The number of cells in the first table, and in the smallest.
const FIRST: u64 = 256;

/// The head of a table; its cells follow.
#[repr(C)]
struct FunctionTable {
    /// The number of cells, a power of two, less one.
    mask: u64,
    /// The number of cells that hold an address. Only the thread that changes the table reads it.
    used: AtomicU64,
}

/// A cell of the table: a function, or nothing if the address is 0.
#[repr(C)]
#[derive(Debug)]
pub struct TableCell {
    address: AtomicU64,
    /// The function's id; 0 if its calls are not recorded or it was forgotten.
    id: AtomicU32,
    kind: AtomicU32,
    slot: AtomicU32,
    sample: AtomicU32,
}

static TABLE: AtomicPtr<FunctionTable> = AtomicPtr::new(ptr::null_mut());

impl TableCell {
    /// Stores a function in this cell. No thread executes that function yet, so no hook looks for it.
    fn store(&self, function: InstrumentedFunction) {
        self.id.store(0, Ordering::Relaxed);
        self.kind.store(function.kind, Ordering::Relaxed);
        self.slot.store(function.slot, Ordering::Relaxed);
        self.sample.store(function.sample, Ordering::Relaxed);
        self.address.store(function.address, Ordering::Release);
        self.id.store(function.id, Ordering::Release);
    }

    /// Returns the function; `None` if its calls are not recorded.
    #[inline(always)]
    pub fn load(&self) -> Option<InstrumentedFunction> {
        let id = self.id.load(Ordering::Acquire);
        (id != 0).then(|| InstrumentedFunction {
            address: self.address.load(Ordering::Relaxed),
            id,
            kind: self.kind.load(Ordering::Relaxed),
            slot: self.slot.load(Ordering::Relaxed),
            sample: self.sample.load(Ordering::Relaxed),
        })
    }

    /// Returns the duties of the function's hook.
    #[inline(always)]
    pub fn kind(&self) -> u64 {
        u64::from(self.kind.load(Ordering::Relaxed))
    }

    /// Returns the function's id; 0 if its calls are not recorded.
    #[inline(always)]
    pub fn id(&self) -> u32 {
        self.id.load(Ordering::Acquire)
    }
}

/// Learns functions, and forgets those whose id is 0. One thread at a time does so.
///
/// # Errors
/// `mmap`'s, if there is no memory for a larger table: then nothing was learned.
pub fn learn(functions: &[InstrumentedFunction]) -> Result<(), sys::Errno> {
    let mut table = TABLE.load(Ordering::Acquire);
    let is_new =
        |function: &&InstrumentedFunction| function.id != 0 && find(function.address).is_none();
    let more = functions.iter().filter(is_new).count() as u64;
    if !has_room(table, more) {
        table = larger(table, more)?;
        TABLE.store(table, Ordering::Release);
    }
    for function in functions {
        match function.id {
            0 => forget(table, function.address),
            _ => put(table, *function),
        }
    }
    Ok(())
}

/// Forgets the function at an address.
fn forget(table: *mut FunctionTable, address: u64) {
    let mut at = hash(address);
    loop {
        // SAFETY: a table of this module; it is at most half full, so there is an end.
        let place = unsafe { place(table, at) };
        match place.address.load(Ordering::Relaxed) {
            0 => return,
            there if there == address => {
                place.id.store(0, Ordering::Relaxed);
                clear_end(table, at);
                return;
            }
            _ => at += 1,
        }
    }
}

/// Returns true if a table is at most half full with `more` functions added.
fn has_room(table: *mut FunctionTable, more: u64) -> bool {
    // SAFETY: a table is never unmapped, and as large as its mask says.
    !table.is_null()
        && unsafe { (*table).used.load(Ordering::Relaxed) + more <= (*table).mask.div_ceil(2) }
}

/// Returns a larger table with the functions of `old` and room for `more`.
fn larger(old: *mut FunctionTable, more: u64) -> Result<*mut FunctionTable, sys::Errno> {
    let (places, used) = match old.is_null() {
        true => (0, 0),
        // SAFETY: as above.
        false => unsafe { ((*old).mask + 1, (*old).used.load(Ordering::Relaxed)) },
    };
    // At least twice as large as the old one, so that all replaced tables together are smaller than the last one.
    let wanted = ((used + more) * 2).next_power_of_two();
    let wanted = wanted.max(places * 2).max(FIRST);
    let size = size_of::<FunctionTable>() + wanted as usize * size_of::<TableCell>();
    let table: *mut FunctionTable = sys::map_private(size)?.cast();
    // SAFETY: new memory, zeroes.
    unsafe { (*table).mask = wanted - 1 };
    for at in 0..places {
        // SAFETY: as above.
        let function = unsafe { place(old, at) };
        if let Some(function) = function.load() {
            put(table, function);
        }
    }
    Ok(table)
}

/// Empties the cell of a forgotten function, and cells of forgotten functions before it, if the cell behind is empty:
/// no hook needs to pass them.
fn clear_end(table: *mut FunctionTable, mut at: u64) {
    // SAFETY: as above. There is always an empty place, where this ends.
    unsafe {
        while place(table, at + 1).address.load(Ordering::Relaxed) == 0 {
            let here = place(table, at);
            let is_forgotten =
                here.address.load(Ordering::Relaxed) != 0 && here.id.load(Ordering::Relaxed) == 0;
            if !is_forgotten {
                return;
            }
            here.address.store(0, Ordering::Relaxed);
            (*table).used.fetch_sub(1, Ordering::Relaxed);
            at = at.wrapping_sub(1);
        }
    }
}

/// Returns the cell for a hash.
///
/// # Safety
/// `table` is a table of this module.
#[inline(always)]
unsafe fn place<'a>(table: *mut FunctionTable, hash: u64) -> &'a TableCell {
    // SAFETY: the mask keeps it inside; tables are never unmapped.
    unsafe {
        &*table
            .add(1)
            .cast::<TableCell>()
            .add((hash & (*table).mask) as usize)
    }
}

#[inline(always)]
fn hash(address: u64) -> u64 {
    address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

/// Stores a function in a table that has room for it: in its own cell, or in that of a forgotten function before.
fn put(table: *mut FunctionTable, function: InstrumentedFunction) {
    if function.address == 0 {
        return;
    }
    let mut free: Option<&TableCell> = None;
    let mut at = hash(function.address);
    loop {
        // SAFETY: a table of this module; it is at most half full, so there is an end.
        let place = unsafe { place(table, at) };
        let there = place.address.load(Ordering::Relaxed);
        if there == function.address {
            place.store(function);
            return;
        }
        if there == 0 {
            if free.is_none() {
                // SAFETY: as above. Counted first: in a child that another thread forks now, the table is never
                // fuller than its count.
                unsafe { (*table).used.fetch_add(1, Ordering::Relaxed) };
            }
            free.unwrap_or(place).store(function);
            return;
        }
        if free.is_none() && place.id.load(Ordering::Relaxed) == 0 {
            free = Some(place);
        }
        at += 1;
    }
}

/// Returns the cell of the function at an address, if the function is known.
#[inline(always)]
pub fn find_place(address: u64) -> Option<&'static TableCell> {
    let table = TABLE.load(Ordering::Acquire);
    if table.is_null() {
        return None;
    }
    let mut at = hash(address);
    loop {
        // SAFETY: a table; it is at most half full, so there is an end.
        let place = unsafe { place(table, at) };
        match place.address.load(Ordering::Acquire) {
            0 => return None,
            there if there == address => return Some(place),
            _ => at += 1,
        }
    }
}

/// Returns the function at an address; `None` if it is not known, or its calls are not recorded.
fn find(address: u64) -> Option<InstrumentedFunction> {
    find_place(address)?.load()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn functions(start: u64, count: u64) -> Vec<InstrumentedFunction> {
        let function = |number| InstrumentedFunction {
            address: start + number * 16,
            id: (start >> 12) as u32 + number as u32 + 1,
            kind: 0,
            slot: 0,
            sample: 0,
        };
        (0..count).map(function).collect()
    }

    fn forgotten(functions: &[InstrumentedFunction]) -> Vec<InstrumentedFunction> {
        let none = |function: &InstrumentedFunction| InstrumentedFunction { id: 0, ..*function };
        functions.iter().map(none).collect()
    }

    fn places() -> u64 {
        // SAFETY: the tests have learned something.
        unsafe { (*TABLE.load(Ordering::Acquire)).mask + 1 }
    }

    /// The table belongs to the process, so one test goes through all of it.
    #[test]
    fn the_table_grows_with_what_it_knows() {
        // Modules one after another, as they stay loaded.
        let modules: Vec<_> = (1..=200_u64)
            .map(|module| functions(module << 20, 100))
            .collect();
        for (count, module) in modules.iter().enumerate() {
            learn(module).unwrap();
            let known = (count as u64 + 1) * 100;
            assert!(places() <= (known * 4).max(FIRST), "{known}: {}", places());
        }
        for function in modules.iter().flatten() {
            assert_eq!(find(function.address), Some(*function));
            assert_eq!(find(function.address + 1), None);
        }
        // Another module at the same addresses.
        let other: Vec<_> = functions(7 << 20, 100)
            .into_iter()
            .map(|function| InstrumentedFunction {
                id: function.id + 5000,
                ..function
            })
            .collect();
        let before = places();
        learn(&other).unwrap();
        assert_eq!(find(7 << 20).unwrap().id, other[0].id);
        // A module that comes back again and again, each time elsewhere: forgotten functions make room.
        for round in 1..=5000_u64 {
            let start = (1000 << 20) + (round << 16);
            let module = functions(start, 100);
            learn(&module).unwrap();
            assert!(
                module
                    .iter()
                    .all(|function| find(function.address) == Some(*function))
            );
            learn(&forgotten(&module)).unwrap();
            assert!(
                module
                    .iter()
                    .all(|function| find(function.address).is_none())
            );
        }
        assert!(places() <= before * 2, "{before}, now {}", places());
        for function in modules
            .iter()
            .flatten()
            .filter(|function| function.address >> 20 != 7)
        {
            assert_eq!(find(function.address), Some(*function));
        }
        for module in &modules {
            learn(&forgotten(module)).unwrap();
        }
        assert!(
            modules
                .iter()
                .flatten()
                .all(|function| find(function.address).is_none())
        );
        // SAFETY: as above.
        let used = unsafe {
            (*TABLE.load(Ordering::Acquire))
                .used
                .load(Ordering::Relaxed)
        };
        assert_eq!(used, 0);
    }
}
