//! Files that are read over a mapping, without keeping them in memory.

use dioptra_mapped::MappedFile;
use std::fs::File;
use std::io;
use std::path::Path;

/// How much of a file is passed over before its memory is given back.
const STRETCH: usize = 4 << 20;
/// The kernel maps what lies around a page that is looked at, too: so much, aligned.
const AROUND: usize = 64 << 10;

/// A file's bytes.
#[derive(Debug)]
pub(crate) struct Mapped(MappedFile);

impl Mapped {
    /// The file at `path`; none if there is none or it is empty.
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

    /// Gives the memory of a range back to the system; whoever looks at it again reads it again.
    pub fn release(&self, start: usize, length: usize) {
        let from = start / AROUND * AROUND;
        let until = start
            .saturating_add(length)
            .div_ceil(AROUND)
            .saturating_mul(AROUND);
        let until = until.min(self.0.len());
        self.0.release(from..until);
    }

    /// A reader who goes through the file from its start is at `offset`: once in a while the memory behind it is given
    /// back.
    pub fn done_with(&self, offset: usize) {
        // Blocks are smaller than a stretch, so each stretch is begun by some block.
        if offset % STRETCH < AROUND && offset >= STRETCH {
            self.release((offset / STRETCH - 1) * STRETCH, STRETCH);
        }
    }
}
