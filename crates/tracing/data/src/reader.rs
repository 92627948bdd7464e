//! Reads the files of a trace, whole or as far as they go.

mod index;

use crate::extents::Extents;
use crate::mapped::Mapped;
use crate::switches::SwitchIndex;
use crate::tasks::Tasks;
use crate::{
    ClockMap, ClockPair, Info, JournalEntry, Mapping, Module, ProcessCause, SampledFunctions,
    Switches, TaskEvent,
};
use dioptra_tracelayout::chunk::Chunk;
use dioptra_tracelayout::directory::{
    EventPlace, FUNCTION_ENTRY_SIZE, FUNCTIONS, FunctionKind, INFO, JOURNAL, NAMES, RECORDS,
    SWITCHES,
};
use dioptra_tracelayout::{FunctionEntry, VERSION};
use index::parse;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a directory can't be read as a trace.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is none.
    #[error("{}: there is no trace; record one with `dioptra trace record COMMAND`, or name its directory with -d", .folder.display())]
    Missing {
        /// The directory.
        folder: PathBuf,
    },
    /// The directory is of uftrace.
    #[error("{}: is a trace of uftrace; read it with `uftrace replay -d {}`", .folder.display(), .folder.display())]
    Uftrace {
        /// The directory.
        folder: PathBuf,
    },
    /// A file can't be read.
    #[error("{}: {error}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// `info.json` does not say what it should.
    #[error("{}: {error}; without it the trace's clock is not known", .path.display())]
    Info {
        /// The file.
        path: PathBuf,
        /// Why.
        error: serde_json::Error,
    },
    /// The trace is of another version.
    #[error("{}: a trace of layout {found}, this dioptra reads layout {VERSION}: use the dioptra that recorded it ({recorder})", .folder.display())]
    Version {
        /// The directory.
        folder: PathBuf,
        /// The version.
        found: u16,
        /// Who recorded it.
        recorder: String,
    },
}

/// Something in the files that could not be read; all else was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file's name.
    pub file: &'static str,
    /// Where, in bytes from its start.
    pub offset: u64,
    /// What is wrong there.
    pub what: String,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at byte {}: {}", self.file, self.offset, self.what)
    }
}

/// A process image that was traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// When the recorder came to know of it, `CLOCK_MONOTONIC` in nanoseconds.
    pub time: u64,
    /// Its id.
    pub pid: u32,
    /// Its parent's.
    pub parent: u32,
    /// How it began.
    pub cause: ProcessCause,
    /// The executable's path.
    pub executable: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// When it ended and with which status, 128 plus the signal if it was killed; known of the command only.
    pub end: Option<(u64, i32)>,
}

/// The calls of one thread of one process image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    /// Its number.
    pub stream: u32,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The stream that it continues, after a fork; else 0.
    pub parent: u32,
    /// The thread's name when its first chunk was written; empty if it was gone already.
    pub name: String,
    /// Records known to be missing between its chunks.
    pub lost: u64,
    /// The number of its first chunk: not 0 if older ones were thrown away.
    pub first_sequence: u32,
    /// Bytes of its chunks.
    pub bytes: u64,
    /// Its chunks in order: where they lie in `records`.
    chunks: Vec<u64>,
    /// The ticks, not shifted, at which the first chunks begin: those up to the first gap, if the records begin without open
    /// calls.
    begins: Vec<u64>,
    /// When the thread waited for the tracer, in ticks of the clock, in order.
    waits: Vec<(u64, u64)>,
}

impl Stream {
    /// How many chunks it has.
    pub fn chunk_count(&self) -> usize {
        self.chunks.len()
    }
}

/// A trace, opened: everything but the records is in memory, those are mapped.
#[derive(Debug)]
pub struct Trace {
    folder: PathBuf,
    info: Info,
    clock: ClockMap,
    processes: Vec<Process>,
    modules: BTreeMap<u32, Module>,
    mappings: Vec<Mapping>,
    notes: Vec<String>,
    untraced: Vec<String>,
    sampled: Vec<SampledFunctions>,
    counted: BTreeMap<(u32, u32), (u64, u64)>,
    functions: Vec<FunctionEntry>,
    names: Vec<u8>,
    records: Option<Mapped>,
    streams: Vec<Stream>,
    extents: Extents,
    switches: SwitchIndex,
    tasks: Tasks,
    /// The id of the first entry that stands for an event, if there are any.
    first_event: Option<u32>,
    damage: Vec<Damage>,
}

impl Trace {
    /// Opens the trace in the directory `folder`.
    ///
    /// A trace whose recorder was killed is read up to its end; what else is damaged is left out, see
    /// [`Trace::damage`].
    ///
    /// # Errors
    /// [`OpenError`]
    pub fn open(folder: &Path) -> Result<Trace, OpenError> {
        let info = read_info(folder)?;
        let mut trace = Trace {
            folder: folder.to_owned(),
            clock: ClockMap::new(Vec::new()),
            info,
            processes: Vec::new(),
            modules: BTreeMap::new(),
            mappings: Vec::new(),
            notes: Vec::new(),
            untraced: Vec::new(),
            sampled: Vec::new(),
            counted: BTreeMap::new(),
            functions: Vec::new(),
            names: read_or_empty(&folder.join(NAMES))?,
            records: map(&folder.join(RECORDS))?,
            streams: Vec::new(),
            extents: Extents::default(),
            switches: SwitchIndex::default(),
            tasks: Tasks::default(),
            first_event: None,
            damage: Vec::new(),
        };
        let mut streams = BTreeMap::new();
        trace.read_journal(&read_or_empty(&folder.join(JOURNAL))?, &mut streams);
        trace.read_functions(&read_or_empty(&folder.join(FUNCTIONS))?);
        trace.index_chunks(&mut streams);
        trace.streams = streams.into_values().collect();
        trace.find_missing();
        trace.index_events(map(&folder.join(SWITCHES))?);
        Ok(trace)
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What was traced.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// The clock of the records.
    pub fn clock(&self) -> &ClockMap {
        &self.clock
    }

    /// The process images, in the order in which the recorder came to know of them.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// A module by its number.
    pub fn module(&self, number: u32) -> Option<&Module> {
        self.modules.get(&number)
    }

    /// All modules, by their numbers.
    pub fn modules(&self) -> impl Iterator<Item = &Module> {
        self.modules.values()
    }

    /// What was mapped where.
    pub fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }

    /// What the recorder wants readers to know.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the notes that say why calls are missing.
    pub fn untraced(&self) -> &[String] {
        &self.untraced
    }

    /// Functions of which only chosen executions were recorded.
    pub fn sampled(&self) -> &[SampledFunctions] {
        &self.sampled
    }

    /// How often sampled functions were called, by stream and function: executions that would have been recorded without
    /// sampling, and chosen ones among them. Missing if the recorder was killed.
    pub fn counted(&self) -> &BTreeMap<(u32, u32), (u64, u64)> {
        &self.counted
    }

    /// How many function ids there are, the id 0 included, and those of events.
    pub fn function_count(&self) -> usize {
        self.functions.len()
    }

    /// What an id stands for; [`FunctionEntry::NONE`] if the table does not have it.
    pub fn function(&self, id: u32) -> FunctionEntry {
        self.functions
            .get(id as usize)
            .copied()
            .unwrap_or(FunctionEntry::NONE)
    }

    /// The name of a library call, none if the entry is of another kind or its name is missing.
    pub fn library_call_name(&self, entry: &FunctionEntry) -> Option<&[u8]> {
        if entry.kind != FunctionKind::LibraryCall {
            return None;
        }
        let start = usize::try_from(entry.place).ok()?;
        self.names
            .get(start..start.checked_add(entry.size as usize)?)
    }

    /// The streams, by their numbers.
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// The chunks of a stream, in order. Memory of those before the one that is given is the system's again.
    pub fn chunks<'a>(&'a self, stream: &'a Stream) -> impl Iterator<Item = Chunk<'a>> + 'a {
        self.chunks_from(stream, 0)
    }

    /// A chunk of a stream by its number; none if there is no such chunk.
    pub fn chunk<'a>(&'a self, stream: &'a Stream, number: usize) -> Option<Chunk<'a>> {
        let offset = *stream.chunks.get(number)?;
        let records = self.records.as_ref()?;
        parse(records.bytes().get(offset as usize..)?).ok()
    }

    /// The number of the last chunk of a stream that begins before a time (`CLOCK_MONOTONIC` in nanoseconds) and knows of
    /// all calls that are open then: nothing is missing before it. The first one if there is no other.
    pub fn chunk_before(&self, stream: &Stream, time: u64) -> usize {
        let mut clock = self.clock.cursor();
        let begins = &stream.begins;
        let behind = begins.partition_point(|begin| clock.monotonic(*begin) < time);
        behind.saturating_sub(1)
    }

    /// The chunks of a stream from one on, in order; see [`Trace::chunks`].
    pub fn chunks_from<'a>(
        &'a self,
        stream: &'a Stream,
        first: usize,
    ) -> impl Iterator<Item = Chunk<'a>> + 'a {
        let mut before: Option<u64> = None;
        let chunks = stream.chunks.get(first..).unwrap_or_default();
        chunks.iter().filter_map(move |&offset| {
            let records = self.records.as_ref()?;
            if let Some(done) = before.replace(offset)
                && let Ok(chunk) = parse(records.bytes().get(done as usize..)?)
            {
                records.release(done as usize, chunk.header.size as usize);
            }
            parse(records.bytes().get(offset as usize..)?).ok()
        })
    }

    /// The context switches of a stream's thread, if they were recorded.
    pub fn switches(&self, stream: &Stream) -> Switches<'_> {
        self.switches.of(stream, &self.extents)
    }

    /// Returns when a stream's thread waited for the tracer, whose memory was full: beginnings and ends, in order.
    pub fn tracer_waits(&self, stream: &Stream) -> Vec<(u64, u64)> {
        let mut cursor = self.clock.cursor();
        let waits = stream.waits.iter();
        waits
            .map(|(start, end)| (cursor.monotonic(*start), cursor.monotonic(*end)))
            .collect()
    }

    /// How many context switches there are, of all threads.
    pub fn switch_count(&self) -> u64 {
        self.switches.count()
    }

    /// When a stream's thread began, ended and got names, if that was recorded; in the order of time.
    pub fn task_events(&self, stream: &Stream) -> &[TaskEvent] {
        self.tasks.of(stream, &self.extents)
    }

    /// The name that a thread got by an event; none if the entry is of another kind.
    pub fn task_name(&self, entry: &FunctionEntry) -> Option<&str> {
        match entry.as_event() {
            Some(EventPlace::TaskName) => self.tasks.name(entry.size),
            _ => None,
        }
    }

    /// A stream's thread's name; if it was gone before that could be asked: what the kernel told last, else the name of what
    /// began it.
    pub fn thread_name<'t>(&'t self, stream: &'t Stream) -> &'t str {
        let mut stream = stream;
        // Each step goes to a stream that is older.
        loop {
            if !stream.name.is_empty() {
                return &stream.name;
            }
            let mut events = self.task_events(stream).iter().rev();
            let told = events.find_map(|event| self.task_name(&self.function(event.function)));
            if let Some(name) = told {
                return name;
            }
            let older = self.streams.iter().find(|older| match stream.parent {
                0 => older.pid == stream.pid && older.tid == stream.pid,
                parent => older.stream == parent,
            });
            match older.filter(|older| older.stream < stream.stream) {
                Some(older) => stream = older,
                None => return "",
            }
        }
    }

    /// The id that stands for an event among the function ids, of [`EventPlace::TaskName`] the first; none if no events
    /// were recorded. Those of functions are lower.
    pub fn event_id(&self, event: EventPlace) -> Option<u32> {
        self.first_event.map(|first| first + event as u32)
    }

    /// What could not be read.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// Returns the damage of files that somebody has truncated since the trace was opened. The bytes
    /// that were read of a file from the damage's offset on are wrong.
    pub fn truncated(&self) -> Vec<Damage> {
        let records = self.records.as_ref().and_then(Mapped::truncated_at);
        let switches = self.switches.truncated_at();
        let files = [(RECORDS, records), (SWITCHES, switches)];
        let damage = |(file, offset): (_, Option<u64>)| {
            Some(Damage {
                file,
                offset: offset?,
                what: "the file was truncated while it was read".into(),
            })
        };
        files.into_iter().filter_map(damage).collect()
    }

    /// Bytes of `records`.
    pub fn record_bytes(&self) -> u64 {
        self.records
            .as_ref()
            .map_or(0, |records| records.bytes().len() as u64)
    }

    fn read_journal(&mut self, bytes: &[u8], streams: &mut BTreeMap<u32, Stream>) {
        let mut pairs = vec![self.info.clock.start];
        pairs.extend(self.info.ending.as_ref().map(|ending| ending.clock));
        let mut offset = 0;
        for line in bytes.split_inclusive(|&byte| byte == b'\n') {
            let start = offset;
            offset += line.len() as u64;
            let Some(line) = line.strip_suffix(b"\n") else {
                self.damaged(JOURNAL, start, "the last line is cut off".into());
                break;
            };
            match serde_json::from_slice::<JournalEntry>(line) {
                Ok(entry) => self.take(entry, &mut pairs, streams),
                Err(error) => {
                    self.damaged(
                        JOURNAL,
                        start,
                        format!("a line that can't be read: {error}"),
                    );
                }
            }
        }
        self.clock = ClockMap::new(pairs);
    }

    fn take(
        &mut self,
        entry: JournalEntry,
        pairs: &mut Vec<ClockPair>,
        streams: &mut BTreeMap<u32, Stream>,
    ) {
        match entry {
            JournalEntry::Clock(pair) => pairs.push(pair),
            JournalEntry::Process {
                time,
                pid,
                parent,
                cause,
                executable,
                arguments,
            } => self.processes.push(Process {
                time,
                pid,
                parent,
                cause,
                executable,
                arguments,
                end: None,
            }),
            JournalEntry::Module(module) => {
                self.modules.insert(module.module, module);
            }
            JournalEntry::Mapping(mapping) => self.mappings.push(mapping),
            // What was mapped stays known: a call of a function that is gone keeps its name by its id.
            JournalEntry::Unmapping { .. } => {}
            JournalEntry::Thread {
                stream,
                pid,
                tid,
                name,
                parent,
            } => {
                let known = Stream {
                    stream,
                    pid,
                    tid,
                    parent,
                    name,
                    ..Stream::default()
                };
                streams.insert(stream, known);
            }
            JournalEntry::Task {
                time,
                pid,
                tid,
                change,
            } => self.tasks.tell(time, (pid, tid), change),
            JournalEntry::Sampled(functions) => self.sampled.push(functions),
            JournalEntry::Counted { stream, functions } => {
                for counts in functions {
                    let sum = self.counted.entry((stream, counts.function)).or_default();
                    sum.0 = sum.0.saturating_add(counts.seen);
                    sum.1 = sum.1.saturating_add(counts.shown);
                }
            }
            JournalEntry::End { time, pid, status } => {
                let process = self.processes.iter_mut().rev().find(|p| p.pid == pid);
                if let Some(process) = process {
                    process.end = Some((time, status));
                }
            }
            JournalEntry::Note { text, is_loss, .. } => {
                if is_loss {
                    self.untraced.push(text.clone());
                }
                self.notes.push(text);
            }
        }
    }

    fn read_functions(&mut self, bytes: &[u8]) {
        let (entries, rest) = bytes.as_chunks::<FUNCTION_ENTRY_SIZE>();
        self.functions = entries.iter().map(FunctionEntry::from_bytes).collect();
        if !rest.is_empty() {
            let offset = (bytes.len() - rest.len()) as u64;
            self.damaged(FUNCTIONS, offset, "the last entry is cut off".into());
        }
    }

    fn damaged(&mut self, file: &'static str, offset: u64, what: String) {
        self.damage.push(Damage { file, offset, what });
    }
}

fn read_info(folder: &Path) -> Result<Info, OpenError> {
    let path = folder.join(INFO);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            let folder = folder.to_owned();
            return Err(
                if folder.join("info").exists() && folder.join("task.txt").exists() {
                    OpenError::Uftrace { folder }
                } else {
                    OpenError::Missing { folder }
                },
            );
        }
        Err(error) => return Err(OpenError::Io { path, error }),
    };
    let info: Info = serde_json::from_slice(&bytes).map_err(|error| OpenError::Info {
        path: path.clone(),
        error,
    })?;
    if info.layout != VERSION {
        return Err(OpenError::Version {
            folder: folder.to_owned(),
            found: info.layout,
            recorder: info.recorder,
        });
    }
    Ok(info)
}

fn read_or_empty(path: &Path) -> Result<Vec<u8>, OpenError> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other.map_err(|error| OpenError::Io {
            path: path.to_owned(),
            error,
        }),
    }
}

/// Maps a file; nothing if it is missing or empty.
fn map(path: &Path) -> Result<Option<Mapped>, OpenError> {
    Mapped::open(path).map_err(|error| OpenError::Io {
        path: path.to_owned(),
        error,
    })
}

#[cfg(test)]
mod tests;
