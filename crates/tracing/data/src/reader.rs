//! The reader of a trace's files, whole or as far as they go.

mod index;

use crate::extents::StreamExtents;
use crate::mapped::Mapped;
use crate::switches::SwitchIndex;
use crate::tasks::TaskIndex;
use crate::{
    ClockMap, ClockPair, JournalEntry, ModuleMapping, ProcessCause, RecordedValues,
    SampledFunctions, TaskEvent, ThreadSwitches, TraceInfo, TracedModule,
};
use dioptra_tracelayout::chunk::Chunk;
use dioptra_tracelayout::directory::{
    EventPlace, FUNCTION_ENTRY_SIZE, FUNCTIONS, FunctionKind, INFO, JOURNAL, NAMES, RECORDS,
    SWITCHES,
};
use dioptra_tracelayout::{FunctionEntry, VERSION};
use index::parse;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The reason why a directory can't be read as a trace.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TraceOpenError {
    /// The directory holds no trace.
    #[error("{}: there is no trace", .folder.display())]
    Missing {
        /// The directory.
        folder: PathBuf,
    },
    /// The directory holds a trace of uftrace.
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
        /// The error of the system.
        error: io::Error,
    },
    /// `info.json` is damaged.
    #[error("{}: {error}; without it the trace's clock is not known", .path.display())]
    Info {
        /// The file.
        path: PathBuf,
        /// The error of the parser.
        error: serde_json::Error,
    },
    /// The trace is of another version.
    #[error("{}: a trace of layout {found}, this dioptra reads layout {VERSION}: use the dioptra that recorded it ({recorder})", .folder.display())]
    Version {
        /// The directory.
        folder: PathBuf,
        /// The version.
        found: u16,
        /// The program that recorded the trace.
        recorder: String,
    },
}

/// A part of the files that could not be read. All other parts were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceDamage {
    /// The file's name.
    pub file: &'static str,
    /// The offset of the damage in the file, in bytes.
    pub offset: u64,
    /// The defect.
    pub what: String,
}

impl std::fmt::Display for TraceDamage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at byte {}: {}", self.file, self.offset, self.what)
    }
}

/// A process image that was traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedProcess {
    /// The time at which the recorder learned of it, `CLOCK_MONOTONIC` in nanoseconds.
    pub time: u64,
    /// The process id.
    pub pid: u32,
    /// The parent's process id.
    pub parent: u32,
    /// The cause of the image.
    pub cause: ProcessCause,
    /// The executable's path.
    pub executable: String,
    /// The arguments.
    pub arguments: Vec<String>,
    /// The time of its end and its exit status, 128 plus the signal if it was killed; known only of the command.
    pub end: Option<(u64, i32)>,
}

/// The calls of one thread of one process image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    /// The number of the stream.
    pub stream: u32,
    /// The process id.
    pub pid: u32,
    /// The thread id.
    pub tid: u32,
    /// The stream that it continues, after a fork; else 0.
    pub parent: u32,
    /// The thread's name when its first chunk was written; empty if it was gone already.
    pub name: String,
    /// The number of records known to be missing between its chunks.
    pub lost: u64,
    /// The number of its first chunk; not 0 if older chunks were thrown away.
    pub first_sequence: u32,
    /// The size of its chunks in bytes.
    pub bytes: u64,
    /// The offsets of its chunks in `records`, in order.
    chunks: Vec<u64>,
    /// The ticks, not shifted, at which the first chunks begin: those up to the first gap, if the records begin
    /// without open calls.
    begins: Vec<u64>,
    /// The waits of the thread for the tracer, in ticks of the clock: beginnings and ends, in order.
    waits: Vec<(u64, u64)>,
}

impl Stream {
    /// Returns the number of its chunks.
    pub fn chunk_count(&self) -> usize {
        self.chunks.len()
    }
}

/// An opened trace. Everything but the records is in memory; the records are mapped.
#[derive(Debug)]
pub struct Trace {
    folder: PathBuf,
    info: TraceInfo,
    clock: ClockMap,
    processes: Vec<TracedProcess>,
    modules: BTreeMap<u32, TracedModule>,
    mappings: Vec<ModuleMapping>,
    notes: Vec<String>,
    untraced: Vec<String>,
    sampled: Vec<SampledFunctions>,
    values: Vec<RecordedValues>,
    /// The index in `values` by function.
    valued: HashMap<u32, usize>,
    counted: BTreeMap<(u32, u32), (u64, u64)>,
    /// The stated names of functions, by the id of the first function of each run.
    named: BTreeMap<u32, Vec<String>>,
    functions: Vec<FunctionEntry>,
    names: Vec<u8>,
    records: Option<Mapped>,
    streams: Vec<Stream>,
    extents: StreamExtents,
    switches: SwitchIndex,
    tasks: TaskIndex,
    /// The id of the first entry that stands for an event, if there are any.
    first_event: Option<u32>,
    damage: Vec<TraceDamage>,
}

impl Trace {
    /// Opens the trace in the directory `folder`.
    ///
    /// A trace whose recorder was killed is read up to its end. Other damaged parts are left out, see
    /// [`Trace::damage`].
    ///
    /// # Errors
    /// [`TraceOpenError`]
    pub fn open(folder: &Path) -> Result<Trace, TraceOpenError> {
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
            values: Vec::new(),
            valued: HashMap::new(),
            counted: BTreeMap::new(),
            named: BTreeMap::new(),
            functions: Vec::new(),
            names: read_or_empty(&folder.join(NAMES))?,
            records: map(&folder.join(RECORDS))?,
            streams: Vec::new(),
            extents: StreamExtents::default(),
            switches: SwitchIndex::default(),
            tasks: TaskIndex::default(),
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

    /// Returns the directory.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the facts about the recording.
    pub fn info(&self) -> &TraceInfo {
        &self.info
    }

    /// Returns the map of the records' clock.
    pub fn clock(&self) -> &ClockMap {
        &self.clock
    }

    /// Returns the process images, in the order in which the recorder learned of them.
    pub fn processes(&self) -> &[TracedProcess] {
        &self.processes
    }

    /// Returns a module by its number.
    pub fn module(&self, number: u32) -> Option<&TracedModule> {
        self.modules.get(&number)
    }

    /// Returns all modules in the order of their numbers.
    pub fn modules(&self) -> impl Iterator<Item = &TracedModule> {
        self.modules.values()
    }

    /// Returns the mappings of modules into processes.
    pub fn mappings(&self) -> &[ModuleMapping] {
        &self.mappings
    }

    /// Returns the recorder's notes to readers.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the notes that explain why calls are missing.
    pub fn untraced(&self) -> &[String] {
        &self.untraced
    }

    /// Returns the functions of which only chosen executions were recorded.
    pub fn sampled(&self) -> &[SampledFunctions] {
        &self.sampled
    }

    /// Returns the values that were recorded of a function's calls; `None` if there are none.
    pub fn values(&self, function: u32) -> Option<&RecordedValues> {
        // Most traces have none.
        match self.values.is_empty() {
            true => None,
            false => self.values.get(*self.valued.get(&function)?),
        }
    }

    /// Returns the number of functions of whose calls values were recorded.
    pub fn functions_with_values(&self) -> usize {
        self.valued.len()
    }

    /// Returns the place of a record's payload among the records: [`Trace::payload`] returns it again. The place is
    /// never 0. Returns 0 if the payload is not of this trace.
    pub fn place_of(&self, payload: &[u8]) -> u64 {
        let Some(records) = &self.records else {
            return 0;
        };
        let place = payload
            .as_ptr()
            .addr()
            .checked_sub(records.bytes().as_ptr().addr());
        place
            .filter(|place| *place < records.bytes().len())
            .unwrap_or(0) as u64
    }

    /// Returns the payload of a record at a [place](Trace::place_of); empty if there is none.
    pub fn payload(&self, place: u64) -> &[u8] {
        let payload = || {
            let place = usize::try_from(place).ok()?;
            let bytes = self.records.as_ref()?.bytes();
            // The head of the escape ends with the number of words.
            let words = *bytes.get(place.checked_sub(1)?)?;
            bytes.get(place..place.checked_add(2 * usize::from(words))?)
        };
        payload().unwrap_or_default()
    }

    /// Returns the counts of sampled functions by stream and function: the executions that would have been recorded
    /// without sampling, and the chosen ones among them. There are none if the recorder was killed.
    pub fn counted(&self) -> &BTreeMap<(u32, u32), (u64, u64)> {
        &self.counted
    }

    /// Returns the number of function ids, the id 0 and the ids of events included.
    pub fn function_count(&self) -> usize {
        self.functions.len()
    }

    /// Returns the entry of an id; [`FunctionEntry::NONE`] if the table does not have it.
    pub fn function(&self, id: u32) -> FunctionEntry {
        self.functions
            .get(id as usize)
            .copied()
            .unwrap_or(FunctionEntry::NONE)
    }

    /// Returns the name of a library call; `None` if the entry is of another kind or its name is missing.
    pub fn library_call_name(&self, entry: &FunctionEntry) -> Option<&[u8]> {
        if entry.kind != FunctionKind::LibraryCall {
            return None;
        }
        let start = usize::try_from(entry.place).ok()?;
        self.names
            .get(start..start.checked_add(entry.size as usize)?)
    }

    /// Returns the name of a function in its module's symbol table, if the trace states it.
    pub fn stated_name(&self, id: u32) -> Option<&str> {
        let (first, names) = self.named.range(..=id).next_back()?;
        names.get((id - first) as usize).map(String::as_str)
    }

    /// Returns the streams in the order of their numbers.
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// Returns the chunks of a stream, in order. The memory of chunks before the current one is given back to the
    /// system.
    pub fn chunks<'a>(&'a self, stream: &'a Stream) -> impl Iterator<Item = Chunk<'a>> + 'a {
        self.chunks_from(stream, 0)
    }

    /// Returns a chunk of a stream by its number; `None` if there is no such chunk.
    pub fn chunk<'a>(&'a self, stream: &'a Stream, number: usize) -> Option<Chunk<'a>> {
        let offset = *stream.chunks.get(number)?;
        let records = self.records.as_ref()?;
        parse(records.bytes().get(offset as usize..)?).ok()
    }

    /// Returns the number of the last chunk of a stream that begins before a time (`CLOCK_MONOTONIC` in nanoseconds)
    /// and knows all calls that are open then, so that nothing is missing before it. Returns the first chunk if there
    /// is no other.
    pub fn chunk_before(&self, stream: &Stream, time: u64) -> usize {
        let mut clock = self.clock.cursor();
        let begins = &stream.begins;
        let behind = begins.partition_point(|begin| clock.monotonic(*begin) < time);
        behind.saturating_sub(1)
    }

    /// Returns the chunks of a stream from number `first` on, in order; see [`Trace::chunks`].
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

    /// Returns the context switches of a stream's thread, if they were recorded.
    pub fn switches(&self, stream: &Stream) -> ThreadSwitches<'_> {
        self.switches.of(stream, &self.extents)
    }

    /// Returns the times in which a stream's thread waited for the tracer, whose memory was full: beginnings and
    /// ends, in order.
    pub fn tracer_waits(&self, stream: &Stream) -> Vec<(u64, u64)> {
        let mut cursor = self.clock.cursor();
        let waits = stream.waits.iter();
        waits
            .map(|(start, end)| (cursor.monotonic(*start), cursor.monotonic(*end)))
            .collect()
    }

    /// Returns the number of context switches of all threads.
    pub fn switch_count(&self) -> u64 {
        self.switches.count()
    }

    /// Returns the events of a stream's thread, its beginning, end and names, in the order of time, if they were
    /// recorded.
    pub fn task_events(&self, stream: &Stream) -> &[TaskEvent] {
        self.tasks.of(stream, &self.extents)
    }

    /// Returns the name that a thread got by an event; `None` if the entry is of another kind.
    pub fn task_name(&self, entry: &FunctionEntry) -> Option<&str> {
        match entry.as_event() {
            Some(EventPlace::TaskName) => self.tasks.name(entry.size),
            _ => None,
        }
    }

    /// Returns the name of a stream's thread. If the thread was gone before the recorder could ask: the last name
    /// that the kernel reported, else the name of the thread that began it.
    pub fn thread_name<'t>(&'t self, stream: &'t Stream) -> &'t str {
        let mut stream = stream;
        // Each step goes to an older stream.
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

    /// Returns the function id that stands for an event, for [`EventPlace::TaskName`] the first of several; `None` if
    /// no events were recorded. The ids of functions are lower.
    pub fn event_id(&self, event: EventPlace) -> Option<u32> {
        self.first_event.map(|first| first + event as u32)
    }

    /// Returns the parts that could not be read.
    pub fn damage(&self) -> &[TraceDamage] {
        &self.damage
    }

    /// Returns the damage of files that were truncated since the trace was opened. The bytes that were read of a file
    /// from the damage's offset on are wrong.
    pub fn truncated(&self) -> Vec<TraceDamage> {
        let records = self.records.as_ref().and_then(Mapped::truncated_at);
        let switches = self.switches.truncated_at();
        let files = [(RECORDS, records), (SWITCHES, switches)];
        let damage = |(file, offset): (_, Option<u64>)| {
            Some(TraceDamage {
                file,
                offset: offset?,
                what: "the file was truncated while it was read".into(),
            })
        };
        files.into_iter().filter_map(damage).collect()
    }

    /// Returns the size of `records` in bytes.
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
            } => self.processes.push(TracedProcess {
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
            // A mapping that has ended stays known: a call of a function that is gone keeps its name by its id.
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
            JournalEntry::Values(values) => {
                let functions = values.functions.iter();
                self.valued
                    .extend(functions.map(|function| (*function, self.values.len())));
                self.values.push(values);
            }
            JournalEntry::Sampled(functions) => self.sampled.push(functions),
            JournalEntry::Counted { stream, functions } => {
                for counts in functions {
                    let sum = self.counted.entry((stream, counts.function)).or_default();
                    sum.0 = sum.0.saturating_add(counts.seen);
                    sum.1 = sum.1.saturating_add(counts.shown);
                }
            }
            JournalEntry::Named { first, names } => _ = self.named.insert(first, names),
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
        self.damage.push(TraceDamage { file, offset, what });
    }
}

fn read_info(folder: &Path) -> Result<TraceInfo, TraceOpenError> {
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
                    TraceOpenError::Uftrace { folder }
                } else {
                    TraceOpenError::Missing { folder }
                },
            );
        }
        Err(error) => return Err(TraceOpenError::Io { path, error }),
    };
    let info: TraceInfo = serde_json::from_slice(&bytes).map_err(|error| TraceOpenError::Info {
        path: path.clone(),
        error,
    })?;
    if info.layout != VERSION {
        return Err(TraceOpenError::Version {
            folder: folder.to_owned(),
            found: info.layout,
            recorder: info.recorder,
        });
    }
    Ok(info)
}

fn read_or_empty(path: &Path) -> Result<Vec<u8>, TraceOpenError> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other.map_err(|error| TraceOpenError::Io {
            path: path.to_owned(),
            error,
        }),
    }
}

/// Maps a file; `None` if it is missing or empty.
fn map(path: &Path) -> Result<Option<Mapped>, TraceOpenError> {
    Mapped::open(path).map_err(|error| TraceOpenError::Io {
        path: path.to_owned(),
        error,
    })
}

#[cfg(test)]
mod tests;
