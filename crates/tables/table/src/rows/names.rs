//! The texts of a table, each once that is likely to come again.

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;
use std::hash::BuildHasher;

/// Texts by a small number.
#[derive(Debug, Clone, Default)]
pub(super) struct Pool {
    text: String,
    /// By number: where the text ends.
    ends: Vec<usize>,
    /// The numbers of texts that may come again.
    known: HashTable<u32>,
}

impl Pool {
    #[inline]
    pub(super) fn get(&self, number: u32) -> &str {
        at(&self.text, &self.ends, number)
    }

    /// The number of a text that may be known.
    pub(super) fn number(&mut self, text: &str) -> u32 {
        let hash = |text: &str| FxBuildHasher.hash_one(text);
        let (all, ends) = (&self.text, &self.ends);
        let is = |number: &u32| at(all, ends, *number) == text;
        if let Some(number) = self.known.find(hash(text), is) {
            return *number;
        }
        let number = self.add(text);
        let (all, ends) = (&self.text, &self.ends);
        self.known
            .insert_unique(hash(text), number, |number| hash(at(all, ends, *number)));
        number
    }

    /// The number of a text, whether it is known or not.
    pub(super) fn add(&mut self, text: &str) -> u32 {
        // A table with more texts would need hundreds of gigabytes for its rows.
        let number = u32::try_from(self.ends.len()).unwrap_or(u32::MAX);
        assert!(number < u32::MAX - 1, "more names than numbers");
        self.text.push_str(text);
        self.ends.push(self.text.len());
        number
    }
}

#[inline]
fn at<'a>(text: &'a str, ends: &[usize], number: u32) -> &'a str {
    let index = number as usize;
    let start = index.checked_sub(1).map_or(0, |before| ends[before]);
    &text[start..ends[index]]
}
