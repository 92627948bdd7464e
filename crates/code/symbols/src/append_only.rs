//! A list that many threads add to while others hold references into it.

use std::sync::OnceLock;

/// Elements never move and never go, so a shared reference to the list gives references to elements.
/// Element `n` lies in the bucket whose size is the power of two that is not above `n + 1`.
#[derive(Debug)]
pub(crate) struct AppendOnly<T> {
    buckets: [OnceLock<Box<[OnceLock<T>]>>; usize::BITS as usize],
}

impl<T> Default for AppendOnly<T> {
    fn default() -> Self {
        Self {
            buckets: [const { OnceLock::new() }; usize::BITS as usize],
        }
    }
}

impl<T> AppendOnly<T> {
    fn place(index: usize) -> (usize, usize) {
        let bucket = (index + 1).ilog2();
        (bucket as usize, index + 1 - (1 << bucket))
    }

    /// Sets an element that was not set before and gives it back; one that was stays.
    pub(crate) fn set(&self, index: usize, value: T) -> &T {
        let (bucket, at) = Self::place(index);
        let bucket = self.buckets[bucket]
            .get_or_init(|| (0..1_usize << bucket).map(|_| OnceLock::new()).collect());
        bucket[at].get_or_init(|| value)
    }

    /// An element.
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        let (bucket, at) = Self::place(index);
        self.buckets[bucket].get()?.get(at)?.get()
    }

    /// All elements.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.buckets
            .iter()
            .filter_map(OnceLock::get)
            .flatten()
            .filter_map(OnceLock::get)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_keep_their_place() {
        let list = AppendOnly::default();
        let first = list.set(0, 0);
        for value in 1..1000 {
            assert_eq!(*list.set(value, value), value);
        }
        assert_eq!(*first, 0);
        assert_eq!(*list.set(7, 0), 7);
        assert_eq!(list.get(999), Some(&999));
        assert_eq!(list.get(1000), None);
        assert_eq!(list.get(5000), None);
        assert!(list.iter().copied().eq(0..1000));
    }
}
