//! A directory that uftrace has recorded, made a trace.
//!
//! ```text
//! info, task.txt ─▶ Directory ─▶ who ran, when
//! sid-*.map, *.sym ─▶ Programs ─▶ address → function id
//! TID.dat ─▶ DataReader ─▶ ThreadImport ─▶ StreamWriter ─▶ chunks
//! perf-cpuN.dat ─▶ context switches, beginnings, ends and names of threads
//! ```

mod about;
mod calls;
mod data;
mod events;
mod programs;
mod stream;
mod symbols;
mod tasks;

use super::info::MAGIC;
use super::loss::{Losses, UftraceLoss, UftraceLossKind};
use calls::{ForkedChild, Inherited, ThreadImport};
use data::DataReader;
use dioptra_mapped::MappedFile;
use dioptra_tracedata::{JournalEntry, ProcessCause, TraceInfo, TraceWriteError, TraceWriter};
use programs::Programs;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use tasks::TaskTable;
use thiserror::Error;

/// The reason why a directory of uftrace's could not be imported.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UftraceImportError {
    /// The directory is none of uftrace's.
    #[error("{}: is no directory of uftrace's: the file `info` is missing or begins otherwise", .folder.display())]
    NotUftrace {
        /// The directory.
        folder: PathBuf,
    },
    /// The recording is of a kind that can't be read.
    #[error("{}: {what}", .folder.display())]
    Unsupported {
        /// The directory.
        folder: PathBuf,
        /// The kind.
        what: String,
    },
    /// A file can't be read.
    #[error("{}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// There are no calls.
    #[error("{}: has no calls", .folder.display())]
    NoCalls {
        /// The directory.
        folder: PathBuf,
    },
    /// The trace can't be written.
    // The text of the error has its cause.
    #[error("{0}")]
    Write(TraceWriteError),
}

impl From<TraceWriteError> for UftraceImportError {
    fn from(error: TraceWriteError) -> UftraceImportError {
        UftraceImportError::Write(error)
    }
}

/// A directory that was imported.
#[derive(Clone, Debug, Default)]
pub struct UftraceImported {
    /// The number of calls whose beginnings were read.
    pub calls: u64,
    /// The number of threads.
    pub threads: u64,
    /// The things that could not be read, or that a trace has no place for.
    pub omitted: Vec<UftraceLoss>,
}

/// Returns whether a directory looks like one of uftrace's.
pub fn is_uftrace(folder: &Path) -> bool {
    let head = File::open(folder.join("info")).and_then(|mut file| {
        let mut head = [0; 8];
        io::Read::read_exact(&mut file, &mut head)?;
        Ok(head)
    });
    head.is_ok_and(|head| head == *MAGIC)
}

/// Makes the trace `to` of uftrace's directory `from`. An existing trace there becomes `TO.old`, as with recordings.
/// `importer` names the program that does this, with its version.
///
/// Damaged parts are left out and counted.
///
/// # Errors
/// [`UftraceImportError`]. Then nothing is written.
pub fn read_uftrace(
    from: &Path,
    to: &Path,
    importer: &str,
) -> Result<UftraceImported, UftraceImportError> {
    if !is_uftrace(from) {
        let folder = from.to_owned();
        return Err(UftraceImportError::NotUftrace { folder });
    }
    let mut losses = Losses::default();
    let about = about::read(from)?;
    let tasks = TaskTable::read(from, &mut losses)?;
    let files = data_files(from, &mut losses)?;
    let first = files.first().map(|file| file.first.time);
    let Some(first) = first else {
        let folder = from.to_owned();
        return Err(UftraceImportError::NoCalls { folder });
    };
    let mut info = about.trace_info(first, importer);
    let mut writer = TraceWriter::create_tentative(to, &info)?;
    let threads: BTreeMap<u32, u32> = files
        .iter()
        .map(|file| (file.tid, tasks.process(file.tid)))
        .collect();
    let named = events::import(from, &threads, &mut writer, &mut losses)?;
    let mut import = Import {
        programs: Programs::new(from, &tasks, &mut losses),
        tasks: &tasks,
        writer: &mut writer,
        losses: &mut losses,
        streams: 0,
        calls: 0,
        last: first,
        forks: forks(&tasks, &files),
        inherited: BTreeMap::new(),
        named,
    };
    import.processes(&about)?;
    for file in &files {
        import.file(file)?;
    }
    let (calls, last) = (import.calls, import.last);
    losses.add_many(UftraceLossKind::KernelFiles, kernel_files(from));
    info.ending = Some(about.ending(last, &writer));
    writer.info(&info)?;
    if let Some(older) = writer.keep() {
        // If it can't be removed now, the next recording tries again.
        let _ = fs::remove_dir_all(older);
    }
    Ok(UftraceImported {
        calls,
        threads: files.len() as u64,
        omitted: losses.list(),
    })
}

/// A file of calls with the record in it that comes first.
struct DataFile {
    tid: u32,
    path: PathBuf,
    first: super::record::DataRecord,
}

/// Finds the files of calls, in the order of their first records.
fn data_files(folder: &Path, losses: &mut Losses) -> Result<Vec<DataFile>, UftraceImportError> {
    let mut files = Vec::new();
    for (name, path) in entries(folder)? {
        let Some(tid) = name.strip_suffix(".dat").and_then(|tid| tid.parse().ok()) else {
            continue;
        };
        let map = open(&path)?;
        let bytes = map.as_deref().unwrap_or_default();
        match DataReader::new(bytes).find(|item| item.is_call()) {
            Some(item) => files.push(DataFile {
                tid,
                path,
                first: item.record,
            }),
            None if bytes.is_empty() => {}
            None => losses.add_many(UftraceLossKind::DamagedBytes, bytes.len() as u64),
        }
    }
    files.sort_by_key(|file| (file.first.time, file.tid));
    Ok(files)
}

/// Returns the names and paths of a directory's files.
fn entries(folder: &Path) -> Result<Vec<(String, PathBuf)>, UftraceImportError> {
    let failed = |source| UftraceImportError::Read {
        path: folder.to_owned(),
        source,
    };
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if let Ok(name) = entry.file_name().into_string()
            && entry.path().is_file()
        {
            entries.push((name, entry.path()));
        }
    }
    entries.sort();
    Ok(entries)
}

/// Maps a file; `None` if it is empty.
fn open(path: &Path) -> Result<Option<MappedFile>, UftraceImportError> {
    let failed = |source| UftraceImportError::Read {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    match file.metadata().map_err(failed)?.len() {
        0 => Ok(None),
        _ => MappedFile::new(&file).map(Some).map_err(failed),
    }
}

/// Reads a text file; an absent one is empty. Bytes that are no UTF-8 are replaced.
fn read_text(path: &Path) -> Result<String, UftraceImportError> {
    match fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(source) => Err(UftraceImportError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

/// Returns the number of files with records of the kernel's functions.
fn kernel_files(folder: &Path) -> u64 {
    let files = entries(folder).unwrap_or_default();
    let is_kernel = |(name, path): &(String, PathBuf)| {
        let is_named = name.starts_with("kernel-cpu") || name == "extern.dat";
        is_named && path.metadata().is_ok_and(|file| file.len() > 0)
    };
    files.iter().filter(|file| is_kernel(file)).count() as u64
}

/// Returns the forked processes whose calls begin within inherited ones, by the id of the parent.
fn forks(tasks: &TaskTable, files: &[DataFile]) -> BTreeMap<u32, Vec<ForkedChild>> {
    let mut forks: BTreeMap<u32, Vec<ForkedChild>> = BTreeMap::new();
    for file in files {
        if let Some(fork) = tasks.fork(file.tid) {
            let time = fork.time.max(file.first.time);
            forks.entry(fork.parent).or_default().push(ForkedChild {
                child: file.tid,
                time,
                first: file.first,
            });
        }
    }
    forks
}

/// The state of an import.
struct Import<'a> {
    programs: Programs<'a>,
    tasks: &'a TaskTable,
    writer: &'a mut TraceWriter,
    losses: &'a mut Losses,
    /// The number of streams so far.
    streams: u32,
    calls: u64,
    /// The time of the last record.
    last: u64,
    /// The forked processes whose parents' files are still to be read, by the parent.
    forks: BTreeMap<u32, Vec<ForkedChild>>,
    /// The calls that forked processes inherit, by their ids.
    inherited: BTreeMap<u32, Inherited>,
    /// The ids of threads whose names are among the events.
    named: BTreeSet<u32>,
}

impl Import<'_> {
    /// Writes the processes of all programs.
    fn processes(&mut self, about: &about::About) -> Result<(), UftraceImportError> {
        for (place, session) in self.tasks.sessions().iter().enumerate() {
            let parent = self.tasks.fork(session.pid).map_or(0, |fork| fork.parent);
            let arguments = match place {
                0 => about.arguments(),
                _ => vec![session.executable.clone()],
            };
            self.writer.journal(&JournalEntry::Process {
                time: session.time,
                pid: session.pid,
                parent,
                cause: ProcessCause::Exec,
                executable: session.executable.clone(),
                arguments,
            })?;
        }
        Ok(())
    }

    /// Writes the facts of a stream, whose thread executes the program `session`.
    fn tell_thread(
        &mut self,
        stream: u32,
        (pid, tid): (u32, u32),
        session: Option<usize>,
        parent: u32,
    ) -> Result<(), UftraceImportError> {
        let session = session.and_then(|session| self.tasks.sessions().get(session));
        let path = session.map_or("", |session| &session.executable);
        // A thread whose names are known from events needs no other.
        let name = match self.named.contains(&tid) {
            true => "",
            false => path.rsplit('/').next().unwrap_or(path),
        };
        Ok(self.writer.journal(&JournalEntry::Thread {
            stream,
            pid,
            tid,
            name: name.to_owned(),
            parent,
        })?)
    }

    /// Imports the calls of one thread.
    fn file(&mut self, file: &DataFile) -> Result<(), UftraceImportError> {
        let map = open(&file.path)?;
        let bytes = map.as_deref().unwrap_or_default();
        let pid = self.tasks.process(file.tid);
        let inherited = self.inherited.remove(&file.tid);
        let pending = self.forks.remove(&file.tid).unwrap_or_default();
        let mut thread = ThreadImport::new(self, file.tid, pid, inherited, pending);
        thread.read(bytes)?;
        let found = thread.finish()?;
        self.inherited.extend(found);
        Ok(())
    }
}

/// Returns the facts about a trace that is not imported yet.
fn empty_info(first: u64) -> TraceInfo {
    TraceInfo::new(dioptra_tracedata::ClockInfo::monotonic(first))
}
