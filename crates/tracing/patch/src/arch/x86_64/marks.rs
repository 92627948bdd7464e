//! Marks on addresses of code, which several threads set at a time.

use crate::analysis::image::Image;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// A bit for each byte of a module's code.
#[derive(Debug, Default)]
pub struct Marks {
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    start: u64,
    size: u64,
    words: Vec<AtomicU64>,
}

impl Marks {
    /// Creates marks for an image's code, none of which is set yet.
    pub fn of_code(image: &Image<'_>) -> Marks {
        let executable = image.segments.iter().filter(|segment| segment.executable);
        let mut parts: Vec<Part> = Vec::new();
        // There are no more marks than the file has bytes: segments may overlap in files that are made to do harm.
        let mut left = image.size();
        for segment in executable {
            let size = segment.file_size.min(left);
            left -= size;
            parts.push(Part {
                start: segment.address,
                size,
                words: (0..size.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            });
        }
        Marks { parts }
    }

    /// Returns the word of an address, and the address's bit in it; `None` if the address is not in executable
    /// segments.
    fn place(&self, address: u64) -> Option<(&AtomicU64, u64)> {
        let inside = |part: &&Part| address.wrapping_sub(part.start) < part.size;
        let part = self.parts.iter().find(inside)?;
        let at = address - part.start;
        Some((part.words.get((at / 64) as usize)?, 1 << (at % 64)))
    }

    /// Marks an address, if it is in executable segments.
    pub fn set(&self, address: u64) {
        if let Some((word, bit)) = self.place(address)
            && word.load(Ordering::Relaxed) & bit == 0
        {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Returns whether one of these addresses is marked. Treats addresses outside of executable segments as marked.
    pub fn any(&self, mut addresses: Range<u64>) -> bool {
        addresses.any(|address| {
            self.place(address)
                .is_none_or(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
        })
    }
}
