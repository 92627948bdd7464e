//! The progress of reading a recording, for threads that wait for it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The progress of loading, shared between the thread that loads and those that watch it.
///
/// See [`crate::LoadPlan::progress`].
#[derive(Debug, Default)]
pub struct LoadProgress {
    /// The largest offset of a record that was read.
    offset: AtomicU64,
    is_cancelled: AtomicBool,
}

impl LoadProgress {
    /// Returns the number of bytes of the file before the last record that was read. Records are read in the order of time,
    /// so the number rises in steps.
    pub fn bytes_read(&self) -> u64 {
        self.offset.load(Ordering::Relaxed)
    }

    /// Makes the reading stop at the next record. The profile then holds what was read so far.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether [`LoadProgress::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    /// Notes that the record at `offset` was read.
    #[inline]
    pub(crate) fn read(&self, offset: u64) {
        // Only the loading thread writes.
        if offset > self.offset.load(Ordering::Relaxed) {
            self.offset.store(offset, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::LoadProgress;

    #[test]
    fn progress_never_goes_back() {
        let progress = LoadProgress::default();
        for offset in [8, 4, 16, 12] {
            progress.read(offset);
        }
        assert_eq!(progress.bytes_read(), 16);
        assert!(!progress.is_cancelled());
        progress.cancel();
        assert!(progress.is_cancelled());
    }
}
