//! Files that are read over a mapping, without keeping them in memory.

use dioptra_mapped::MappedFile;
use std::fs::File;
use std::io;
use std::path::Path;

/// The number of bytes of a file that are read before their memory is given back.
const STRETCH: usize = 4 << 20;
/// The number of bytes, aligned, that the kernel may map around a page that is read.
const AROUND: usize = 64 << 10;

/// A file's bytes.
#[derive(Debug)]
pub(crate) struct Mapped(MappedFile);

impl Mapped {
    /// Returns the bytes of the file at `path`; `None` if there is no file or it is empty.
    pub fn open(path: &Path) -> io::Result<Option<Mapped>> {
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        if file.metadata()?.len() == 0 {
            return Ok(None);
        }
        Ok(Some(Mapped(MappedFile::new(&file)?)))
    }

    /// Returns the first byte that is missing, if the file was truncated since.
    pub fn truncated_at(&self) -> Option<u64> {
        self.0.truncated_at()
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Gives the memory of a range back to the system. Later reads of the range read the file again.
    pub fn release(&self, start: usize, length: usize) {
        let from = start / AROUND * AROUND;
        let until = start
            .saturating_add(length)
            .div_ceil(AROUND)
            .saturating_mul(AROUND);
        let until = until.min(self.0.len());
        self.0.release(from..until);
    }

    /// Gives the memory before `offset` back once in a while, for a reader who goes through the file from its start.
    pub fn done_with(&self, offset: usize) {
        // Blocks are smaller than a stretch, so each stretch is begun by some block.
        if offset % STRETCH < AROUND && offset >= STRETCH {
            self.release((offset / STRETCH - 1) * STRETCH, STRETCH);
        }
    }
}
