//! The writer of a trace's files.

use crate::place::{NEW_INFO, TentativeDirectory, private_file};
use crate::{JournalEntry, TraceInfo};
use dioptra_tracelayout::directory::{FUNCTIONS, INFO, JOURNAL, NAMES, RECORDS, SWITCHES};
use dioptra_tracelayout::switches::{BlockHeader, ContextSwitch, MAX_SWITCHES};
use dioptra_tracelayout::{ChunkHeader, FunctionEntry, chunk};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// An error while a file of the trace was written.
#[derive(Debug, Error)]
#[error("{}: {source}; {remedy}", .path.display())]
pub struct TraceWriteError {
    /// The file.
    pub path: PathBuf,
    /// The error of the system.
    pub source: io::Error,
    remedy: &'static str,
}

const READABLE: &str = "what was written before can be read";

/// Locks a directory against other recordings, as long as the returned file is open. On file systems without locks
/// there is no lock.
pub(crate) fn lock(folder: &Path) -> io::Result<File> {
    let file = File::open(folder)?;
    // SAFETY: the file's own descriptor.
    let locked = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
    if locked != 0 && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock {
        return Err(io::Error::new(
            io::ErrorKind::WouldBlock,
            "another recording writes there",
        ));
    }
    Ok(file)
}

/// A trace that is being written.
#[derive(Debug)]
pub struct TraceWriter {
    folder: PathBuf,
    /// The directory of the trace. It puts the older trace back if the recording fails.
    place: TentativeDirectory,
    /// The locked directory: no other recording writes there, or moves it away.
    _lock: File,
    journal: File,
    functions: File,
    names: File,
    records: File,
    /// The file of context switches, made with the first of them.
    switches: Option<File>,
    next_function: u32,
    names_size: u64,
    records_size: u64,
    chunks: u64,
}

impl TraceWriter {
    /// Makes the directory `folder`. An existing trace there becomes `FOLDER.old` and replaces an older one.
    ///
    /// Other content of the folder is left alone and is an error; so is a trace that is being written. The files of a
    /// recording that was killed before it had written `info.json` are taken over.
    ///
    /// # Errors
    /// [`TraceWriteError`]. Then everything is as it was before.
    pub fn create(folder: &Path, info: &TraceInfo) -> Result<TraceWriter, TraceWriteError> {
        let mut writer = TraceWriter::create_tentative(folder, info)?;
        if let Some(older) = writer.keep() {
            // If it can't be removed now, the next recording tries again.
            let _ = fs::remove_dir_all(older);
        }
        Ok(writer)
    }

    /// Makes the directory as [`TraceWriter::create`] does. A writer that is dropped before [`TraceWriter::keep`] was called
    /// leaves everything as it was before: for recordings that may yet fail to start.
    ///
    /// # Errors
    /// [`TraceWriteError`]
    pub fn create_tentative(
        folder: &Path,
        info: &TraceInfo,
    ) -> Result<TraceWriter, TraceWriteError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| TraceWriteError {
                path,
                source,
                remedy: "give another directory",
            }
        };
        let mut place = TentativeDirectory::of(folder);
        place
            .make()
            .map_err(|(path, source)| failed(&path)(source))?;
        let lock = lock(folder).map_err(failed(folder))?;
        let create = |name: &str| {
            let path = folder.join(name);
            private_file(&path).map_err(failed(&path))
        };
        let mut writer = TraceWriter {
            journal: create(JOURNAL)?,
            functions: create(FUNCTIONS)?,
            names: create(NAMES)?,
            records: create(RECORDS)?,
            switches: None,
            folder: folder.to_owned(),
            place,
            _lock: lock,
            next_function: 0,
            names_size: 0,
            records_size: 0,
            chunks: 0,
        };
        writer.info(info)?;
        writer.functions(&[FunctionEntry::NONE])?;
        Ok(writer)
    }

    /// Makes the trace of [`TraceWriter::create_tentative`] permanent. Returns the directory of the trace that was
    /// `FOLDER.old`, if there was one: the caller removes it, which may take long.
    #[must_use]
    pub fn keep(&mut self) -> Option<PathBuf> {
        self.place.keep()
    }

    /// Leaves everything as it was before, unless [`TraceWriter::keep`] was called. Nothing can be written afterwards.
    pub fn abandon(&mut self) {
        self.place.abandon();
    }

    /// Returns the directory.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes `info.json`, in place of the one before.
    ///
    /// # Errors
    /// [`TraceWriteError`]
    pub fn info(&mut self, info: &TraceInfo) -> Result<(), TraceWriteError> {
        let path = self.folder.join(INFO);
        let new = self.folder.join(NEW_INFO);
        let write = || {
            let mut text = serde_json::to_vec_pretty(info)?;
            text.push(b'\n');
            private_file(&new)?.write_all(&text)?;
            fs::rename(&new, &path)
        };
        let remedy = READABLE;
        write().map_err(|source| TraceWriteError {
            path,
            source,
            remedy,
        })
    }

    /// Adds a line to the journal.
    ///
    /// # Errors
    /// [`TraceWriteError`]
    pub fn journal(&mut self, entry: &JournalEntry) -> Result<(), TraceWriteError> {
        let result = serde_json::to_vec(entry)
            .map_err(io::Error::from)
            .and_then(|mut line| {
                line.push(b'\n');
                self.journal.write_all(&line)
            });
        result.map_err(|source| self.failed(JOURNAL, source))
    }

    /// Returns the id that the next function gets.
    pub fn next_function(&self) -> u32 {
        self.next_function
    }

    /// Adds functions. The first gets the id [`TraceWriter::next_function`], the others follow.
    ///
    /// # Errors
    /// [`TraceWriteError`], also if there are more than 32-bit ids can count.
    pub fn functions(&mut self, entries: &[FunctionEntry]) -> Result<(), TraceWriteError> {
        let next = u32::try_from(entries.len())
            .ok()
            .and_then(|count| self.next_function.checked_add(count))
            .ok_or_else(|| self.failed(FUNCTIONS, io::Error::other("too many functions")))?;
        let bytes: Vec<u8> = entries.iter().flat_map(FunctionEntry::to_bytes).collect();
        self.functions
            .write_all(&bytes)
            .map_err(|source| self.failed(FUNCTIONS, source))?;
        self.next_function = next;
        Ok(())
    }

    /// Adds text to `names` and returns its offset there.
    ///
    /// # Errors
    /// [`TraceWriteError`]
    pub fn names(&mut self, text: &[u8]) -> Result<u64, TraceWriteError> {
        self.names
            .write_all(text)
            .map_err(|source| self.failed(NAMES, source))?;
        let start = self.names_size;
        self.names_size += text.len() as u64;
        Ok(start)
    }

    /// Adds a chunk: the header with the size that follows from `body`, then `body`, everything behind the header
    /// (listed calls and records), and zeroes up to a multiple of 8 bytes.
    ///
    /// # Errors
    /// [`TraceWriteError`]
    pub fn chunk(&mut self, mut header: ChunkHeader, body: &[u8]) -> Result<(), TraceWriteError> {
        let size = (chunk::HEADER_SIZE + body.len()).next_multiple_of(8);
        let padding = size - chunk::HEADER_SIZE - body.len();
        header.size = u32::try_from(size)
            .map_err(|_| self.failed(RECORDS, io::Error::other("a chunk that is too large")))?;
        let parts = [&header.to_bytes()[..], body, &[0; 8][..padding]];
        write_all_vectored(&mut self.records, parts)
            .map_err(|source| self.failed(RECORDS, source))?;
        self.records_size += size as u64;
        self.chunks += 1;
        Ok(())
    }

    /// Adds context switches of one thread, in the order of time.
    ///
    /// # Errors
    /// [`TraceWriteError`]
    pub fn switches(
        &mut self,
        (pid, tid): (u32, u32),
        switches: &[ContextSwitch],
    ) -> Result<(), TraceWriteError> {
        let mut bytes = Vec::new();
        for block in switches.chunks(MAX_SWITCHES) {
            let count = block.len() as u32;
            bytes.extend(BlockHeader { count, pid, tid }.to_bytes());
            bytes.extend(block.iter().flat_map(ContextSwitch::to_bytes));
        }
        let result = match &mut self.switches {
            Some(file) => file.write_all(&bytes),
            None => private_file(&self.folder.join(SWITCHES))
                .and_then(|file| self.switches.insert(file).write_all(&bytes)),
        };
        result.map_err(|source| self.failed(SWITCHES, source))
    }

    /// Returns the size of `records` in bytes.
    pub fn records_size(&self) -> u64 {
        self.records_size
    }

    /// Returns the number of chunks that were written.
    pub fn chunks(&self) -> u64 {
        self.chunks
    }

    fn failed(&self, file: &str, source: io::Error) -> TraceWriteError {
        TraceWriteError {
            path: self.folder.join(file),
            source,
            remedy: READABLE,
        }
    }
}

/// Writes the parts, as a rule with one system call.
fn write_all_vectored(file: &mut File, parts: [&[u8]; 3]) -> io::Result<()> {
    let mut slices = parts.map(io::IoSlice::new);
    let mut rest = &mut slices[..];
    while rest.iter().any(|slice| !slice.is_empty()) {
        match file.write_vectored(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => io::IoSlice::advance_slices(&mut rest, n),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::info;
    use dioptra_tracelayout::chunk::Chunk;
    use dioptra_tracelayout::{FunctionKind, VERSION};

    #[test]
    fn a_trace_that_is_being_written_stays_where_it_is() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("t");
        let mut writer = TraceWriter::create(&folder, &info()).unwrap();
        let error = TraceWriter::create(&folder, &info()).unwrap_err();
        assert!(error.to_string().contains("another recording writes there"));
        writer.info(&info()).unwrap();
        assert!(folder.join(INFO).exists() && !parent.path().join("t.old").exists());
        drop(writer);
        TraceWriter::create(&folder, &info()).unwrap();
        assert!(parent.path().join("t.old").exists());
    }

    #[test]
    fn what_is_written_can_be_read() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("t");
        for _ in 0..3 {
            let mut writer = TraceWriter::create(&folder, &info()).unwrap();
            assert_eq!(writer.next_function(), 1);
            let name = writer.names(b"puts").unwrap();
            let entry = FunctionEntry {
                module: 0,
                kind: FunctionKind::LibraryCall,
                method: 7,
                place: name,
                size: 4,
            };
            writer.functions(&[entry, entry]).unwrap();
            assert_eq!(writer.next_function(), 3);
            let note = JournalEntry::Note {
                time: 5,
                text: "a\nb".into(),
                is_loss: false,
            };
            writer.journal(&note).unwrap();
            writer
                .journal(&JournalEntry::Clock(info().clock.start))
                .unwrap();
            let header = ChunkHeader {
                magic: chunk::MAGIC,
                version: VERSION,
                ..ChunkHeader::default()
            };
            writer.chunk(header, &[3, 0]).unwrap();
            writer.chunk(header, &[]).unwrap();
            let journal = fs::read_to_string(folder.join(JOURNAL)).unwrap();
            let lines: Vec<JournalEntry> = journal
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect();
            assert_eq!(lines[0], note);
            assert_eq!(lines.len(), 2);
            let records = fs::read(folder.join(RECORDS)).unwrap();
            assert_eq!(records.len() as u64, writer.records_size());
            let first = Chunk::parse(&records).unwrap();
            assert_eq!(
                (first.header.size, first.records),
                (72, &[3, 0, 0, 0, 0, 0, 0, 0][..])
            );
            let second = Chunk::parse(&records[72..]).unwrap();
            assert_eq!(second.header.size, 64);
            let read: TraceInfo =
                serde_json::from_slice(&fs::read(folder.join(INFO)).unwrap()).unwrap();
            assert_eq!(read, info());
        }
        assert!(parent.path().join("t.old").join(INFO).exists());
    }

    #[test]
    fn what_is_no_trace_is_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        fs::write(parent.path().join("letter"), "dear").unwrap();
        let error = TraceWriter::create(parent.path(), &info()).unwrap_err();
        assert!(error.to_string().contains("no trace"), "{error}");
        assert!(parent.path().join("letter").exists());
    }
}
