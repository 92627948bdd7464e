//! Where a recording's bytes are: mapped files, or memory.

use crate::error::OpenError;
use crate::header::{MAGIC_SIZE, check_magic};
use dioptra_mapped::{Advice, MappedFile};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::{Deref, Range};
use std::path::Path;

/// The part of a stream, in bytes, that is kept in memory before the stream goes to a file.
const SPOOL_LIMIT: u64 = 64 << 20;

/// Ranges are given back in multiples of this, in bytes: the largest page that Linux systems commonly have.
const PAGE: usize = 64 << 10;

/// The bytes of one file.
#[derive(Debug)]
pub(crate) enum Source {
    Map(MappedFile),
    Memory(Vec<u8>),
}

impl Deref for Source {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Source::Map(map) => map,
            Source::Memory(bytes) => bytes,
        }
    }
}

impl Source {
    /// Maps a regular file; anything else that can be opened (a pipe, a character device) is read to its end.
    pub fn open(path: &Path) -> Result<Source, OpenError> {
        let name = path.display().to_string();
        let failed = |reason: io::Error| match reason.kind() {
            io::ErrorKind::NotFound => OpenError::Missing { path: path.into() },
            _ => OpenError::Io {
                name: name.clone(),
                reason,
            },
        };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Source::spool(file, &name);
        }
        if metadata.len() == 0 {
            return Err(OpenError::Empty { name });
        }
        Source::map(&file).map_err(failed)
    }

    fn map(file: &File) -> io::Result<Source> {
        let map = MappedFile::new(file)?;
        map.advise(Advice::Sequential);
        Ok(Source::Map(map))
    }

    /// Whether bytes were read that are missing: they were zeroes.
    pub fn has_faulted(&self) -> bool {
        match self {
            Source::Map(map) => map.has_faulted(),
            Source::Memory(_) => false,
        }
    }

    /// Returns the first byte that is missing, if the file was truncated since it was opened.
    pub fn truncated_at(&self) -> Option<u64> {
        match self {
            Source::Map(map) => map.truncated_at(),
            Source::Memory(_) => None,
        }
    }

    /// Gives back the memory of `range` of a mapped file, which will hardly be read again; if it is, the system maps it
    /// again.
    pub fn release(&self, range: Range<usize>) {
        let Source::Map(map) = self else {
            return;
        };
        let start = range.start.next_multiple_of(PAGE);
        let end = range.end / PAGE * PAGE;
        map.release(start..end);
    }

    /// Reads a stream to its end: into memory, or, when it is long, into a temporary file that has no name. A stream
    /// that is no recording is refused by its first bytes: it may have no end.
    pub fn spool(mut stream: impl Read, name: &str) -> Result<Source, OpenError> {
        let failed = |reason| OpenError::Io {
            name: name.into(),
            reason,
        };
        let mut bytes = Vec::new();
        (&mut stream)
            .take(MAGIC_SIZE)
            .read_to_end(&mut bytes)
            .map_err(failed)?;
        check_magic(&bytes, name)?;
        Source::spool_rest(bytes, stream, name)
    }

    /// Reads a stream to its end, as [`Source::spool`] does. `bytes` were read from it before.
    pub fn spool_rest(
        mut bytes: Vec<u8>,
        mut stream: impl Read,
        name: &str,
    ) -> Result<Source, OpenError> {
        let failed = |reason| OpenError::Io {
            name: name.into(),
            reason,
        };
        let room = (SPOOL_LIMIT + MAGIC_SIZE).saturating_sub(bytes.len() as u64);
        (&mut stream)
            .take(room)
            .read_to_end(&mut bytes)
            .map_err(failed)?;
        if (bytes.len() as u64) < SPOOL_LIMIT + MAGIC_SIZE {
            return Ok(Source::Memory(bytes));
        }
        let mut to_file = || {
            let mut file = tempfile::tempfile()?;
            file.write_all(&bytes)?;
            io::copy(&mut stream, &mut file)?;
            file.seek(SeekFrom::Start(0))?;
            Source::map(&file)
        };
        to_file().map_err(|reason| OpenError::Spool {
            name: name.into(),
            folder: std::env::temp_dir(),
            reason,
        })
    }
}
