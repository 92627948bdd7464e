//! Values by pairs of ids, numbered in the order of their first use.

use crate::hash::mix;
use hashbrown::HashTable;

/// Values by pair, each with a number.
#[derive(Clone, Debug)]
pub(super) struct PairTable<T> {
    pub list: Vec<T>,
    ids: HashTable<((u32, u32), u32)>,
}

impl<T> Default for PairTable<T> {
    fn default() -> Self {
        PairTable {
            list: Vec::new(),
            ids: HashTable::new(),
        }
    }
}

impl<T> PairTable<T> {
    /// Returns the number of the value for `pair`; makes the value where there is none.
    #[inline]
    pub fn intern(&mut self, pair: (u32, u32), make: impl FnOnce() -> T) -> u32 {
        let hash = |pair: &(u32, u32)| mix(u64::from(pair.0), u64::from(pair.1));
        let list = &mut self.list;
        self.ids
            .entry(
                hash(&pair),
                |(known, _)| *known == pair,
                |(known, _)| hash(known),
            )
            .or_insert_with(|| {
                // Each pair costs a branch of 24 bytes in the file; frames run out long before.
                let id = u32::try_from(list.len()).unwrap_or(u32::MAX - 1);
                list.push(make());
                (pair, id)
            })
            .get()
            .1
    }

    /// Drops the hash table, which only growing needs.
    pub fn freeze(&mut self) {
        self.ids = HashTable::new();
        self.list.shrink_to_fit();
    }
}
