//! A hash table from 96-bit keys to small ids, made for tables far larger than the CPU's caches.
//!
//! A key and its id share 16 bytes, four to a cache line, so that finding a key costs one cache miss. The slot of a key
//! that is needed soon can be fetched in advance.

use crate::hash::mix;

/// A key: an address and a module, or a stack and a frame.
type Key = (u64, u32);

#[derive(Clone, Copy, Debug)]
struct Slot {
    first: u64,
    second: u32,
    /// The id; [`EMPTY`] where the slot is free.
    id: u32,
}

const _: () = assert!(size_of::<Slot>() == 16);

/// The id of a free slot.
const EMPTY: u32 = u32::MAX;

/// The number of slots of the smallest table.
const LEAST: usize = 64;

/// The hash table. Keys are never removed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots {
    /// The slots, whose number is a power of two or zero.
    slots: Vec<Slot>,
    used: usize,
}

impl Slots {
    /// Returns the id of a key. A new key gets `new`, which must not be the largest number.
    #[inline]
    pub(crate) fn get_or_insert(&mut self, key: Key, new: u32) -> u32 {
        if let Some(id) = self.find(key) {
            return id;
        }
        self.insert(key, new);
        new
    }

    /// Returns the id of a key.
    #[inline]
    pub(crate) fn find(&self, key: Key) -> Option<u32> {
        let mask = self.slots.len().checked_sub(1)?;
        let mut at = hash(key) as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot.id == EMPTY {
                return None;
            }
            if (slot.first, slot.second) == key {
                return Some(slot.id);
            }
            at = (at + 1) & mask;
        }
    }

    /// Asks the CPU to fetch the slot that [`Slots::find`] will read.
    #[inline]
    pub(crate) fn prefetch(&self, key: Key) {
        if let Some(mask) = self.slots.len().checked_sub(1) {
            fetch(&self.slots[hash(key) as usize & mask]);
        }
    }

    #[cold]
    fn insert(&mut self, key: Key, id: u32) {
        debug_assert!(id != EMPTY);
        // At most three quarters of the slots are used, so that runs of used slots stay short.
        if (self.used + 1) * 4 > self.slots.len() * 3 {
            let empty = Slot {
                first: 0,
                second: 0,
                id: EMPTY,
            };
            let size = (self.slots.len() * 2).max(LEAST);
            let old = std::mem::replace(&mut self.slots, vec![empty; size]);
            for slot in old.into_iter().filter(|slot| slot.id != EMPTY) {
                self.put(slot);
            }
        }
        self.used += 1;
        self.put(Slot {
            first: key.0,
            second: key.1,
            id,
        });
    }

    /// Puts a slot, whose key is not in the table yet, into the first free place.
    fn put(&mut self, slot: Slot) {
        let mask = self.slots.len() - 1;
        let mut at = hash((slot.first, slot.second)) as usize & mask;
        while self.slots[at].id != EMPTY {
            at = (at + 1) & mask;
        }
        self.slots[at] = slot;
    }
}

/// Asks the CPU to fetch a value that will be read soon.
#[inline]
pub(crate) fn fetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch changes nothing but the cache, and faults for no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>((&raw const *value).cast::<i8>()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

#[inline]
fn hash(key: Key) -> u64 {
    mix(u64::from(key.1), key.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_their_first_id() {
        let mut slots = Slots::default();
        assert_eq!(slots.find((0, 0)), None);
        slots.prefetch((0, 0));
        for round in 0..2 {
            for id in 0..10_000_u32 {
                let key = (u64::from(id) * 8, id % 3);
                assert_eq!(slots.get_or_insert(key, id + round), id, "round {round}");
                slots.prefetch(key);
            }
        }
        assert_eq!(slots.find((8, 2)), None);
        assert_eq!(slots.used, 10_000);
    }
}
