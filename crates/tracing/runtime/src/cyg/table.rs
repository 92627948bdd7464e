//! The functions that call the runtime themselves, by their addresses: a hash table that hooks read without a
//! lock while the thread in the dynamic linker changes it.
//!
//! A function that is forgotten leaves its address behind in its place, as long as other functions are found behind it: hooks
//! may be on their way to them. Such places are given to functions that are learned later. A table that is half full is
//! replaced by one of twice its size. Replaced tables stay, since hooks may still read them: together they are smaller
//! than the one in use.

use crate::sys;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use dioptra_tracelayout::message::FunctionId;

/// The number of places in the first table, and the smallest a table has.
const FIRST: u64 = 256;

/// The head of a table; its places follow.
#[repr(C)]
struct Table {
    /// The number of places, a power of two, less one.
    mask: u64,
    /// The number of places that hold an address. Only who changes the table reads it.
    used: AtomicU64,
}

/// A function, or nothing: then the address is 0.
#[repr(C)]
#[derive(Debug)]
pub struct Place {
    address: AtomicU64,
    /// The function's id; 0: its calls are not wanted, or it was forgotten.
    id: AtomicU32,
    kind: AtomicU32,
    slot: AtomicU32,
    sample: AtomicU32,
}

static TABLE: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());

impl Place {
    /// Makes this the place of a function. No thread executes that function yet, so no hook looks for it.
    fn store(&self, function: FunctionId) {
        self.id.store(0, Ordering::Relaxed);
        self.kind.store(function.kind, Ordering::Relaxed);
        self.slot.store(function.slot, Ordering::Relaxed);
        self.sample.store(function.sample, Ordering::Relaxed);
        self.address.store(function.address, Ordering::Release);
        self.id.store(function.id, Ordering::Release);
    }

    /// Returns the function; `None` if its calls are not wanted.
    #[inline(always)]
    pub fn load(&self) -> Option<FunctionId> {
        let id = self.id.load(Ordering::Acquire);
        (id != 0).then(|| FunctionId {
            address: self.address.load(Ordering::Relaxed),
            id,
            kind: self.kind.load(Ordering::Relaxed),
            slot: self.slot.load(Ordering::Relaxed),
            sample: self.sample.load(Ordering::Relaxed),
        })
    }

    /// Returns the kind of work that the function's hook does.
    #[inline(always)]
    pub fn kind(&self) -> u64 {
        u64::from(self.kind.load(Ordering::Relaxed))
    }

    /// Returns the function's id; 0 if its calls are not wanted.
    #[inline(always)]
    pub fn id(&self) -> u32 {
        self.id.load(Ordering::Acquire)
    }
}

/// Learns functions, and forgets those whose id is 0. One thread at a time does so.
///
/// # Errors
/// `mmap`'s, if there is no memory for a larger table: then nothing was learned.
pub fn learn(functions: &[FunctionId]) -> Result<(), sys::Errno> {
    let mut table = TABLE.load(Ordering::Acquire);
    let is_new = |function: &&FunctionId| function.id != 0 && find(function.address).is_none();
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
fn forget(table: *mut Table, address: u64) {
    let mut at = hash(address);
    loop {
        // SAFETY: a table of ours; it is at most half full, so there is an end.
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

/// Whether a table has room for more functions, so that it is at most half full with them.
fn has_room(table: *mut Table, more: u64) -> bool {
    // SAFETY: a table is never unmapped, and as large as its mask says.
    !table.is_null()
        && unsafe { (*table).used.load(Ordering::Relaxed) + more <= (*table).mask.div_ceil(2) }
}

/// Returns a larger table with the functions of another one, and room for more.
fn larger(old: *mut Table, more: u64) -> Result<*mut Table, sys::Errno> {
    let (places, used) = match old.is_null() {
        true => (0, 0),
        // SAFETY: as above.
        false => unsafe { ((*old).mask + 1, (*old).used.load(Ordering::Relaxed)) },
    };
    // At least twice as large as the old one: so all replaced tables together are smaller than the last one.
    let wanted = ((used + more) * 2).next_power_of_two();
    let wanted = wanted.max(places * 2).max(FIRST);
    let size = size_of::<Table>() + wanted as usize * size_of::<Place>();
    let table: *mut Table = sys::map_private(size)?.cast();
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

/// Empties a place of a forgotten function, and those before it, if none is in use behind them: no hook needs to pass them.
fn clear_end(table: *mut Table, mut at: u64) {
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

/// Returns the place for a hash.
///
/// # Safety
/// The table is one.
#[inline(always)]
unsafe fn place<'a>(table: *mut Table, hash: u64) -> &'a Place {
    // SAFETY: the mask keeps it inside; tables are never unmapped.
    unsafe {
        &*table
            .add(1)
            .cast::<Place>()
            .add((hash & (*table).mask) as usize)
    }
}

#[inline(always)]
fn hash(address: u64) -> u64 {
    address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

/// Puts a function into a table that has room for it, in its own place or that of a forgotten one before.
fn put(table: *mut Table, function: FunctionId) {
    if function.address == 0 {
        return;
    }
    let mut free: Option<&Place> = None;
    let mut at = hash(function.address);
    loop {
        // SAFETY: a table of ours; it is at most half full, so there is an end.
        let place = unsafe { place(table, at) };
        let there = place.address.load(Ordering::Relaxed);
        if there == function.address {
            place.store(function);
            return;
        }
        if there == 0 {
            if free.is_none() {
                // SAFETY: as above. Counted first: a child that another thread forks now finds no table that is fuller than it says.
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

/// Returns the place of the function at an address, if that is known.
#[inline(always)]
pub fn find_place(address: u64) -> Option<&'static Place> {
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

/// Returns the function at an address; `None` if it is not known, or its calls are not wanted.
fn find(address: u64) -> Option<FunctionId> {
    find_place(address)?.load()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn functions(start: u64, count: u64) -> Vec<FunctionId> {
        let function = |number| FunctionId {
            address: start + number * 16,
            id: (start >> 12) as u32 + number as u32 + 1,
            kind: 0,
            slot: 0,
            sample: 0,
        };
        (0..count).map(function).collect()
    }

    fn forgotten(functions: &[FunctionId]) -> Vec<FunctionId> {
        let none = |function: &FunctionId| FunctionId { id: 0, ..*function };
        functions.iter().map(none).collect()
    }

    fn places() -> u64 {
        // SAFETY: the tests have learned something.
        unsafe { (*TABLE.load(Ordering::Acquire)).mask + 1 }
    }

    /// The table belongs to the process: one test goes through all of it.
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
            .map(|function| FunctionId {
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
