//! The state that the threads of a recording share.

use super::notes::TraceNote;
use crate::analysis::prepare::Planner;
use crate::collecting::arena_memory::ArenaMemory;
use crate::collecting::clock::TraceClock;
use crate::collecting::counters::Counters;
use crate::program::execs::Execs;
use crate::serving::loaded::LoadedModules;
use dioptra_tracedata::{ClockPair, JournalEntry, TraceWriteError, TraceWriter};
use rustix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

/// The state that the threads of a recording share.
#[derive(Debug)]
pub struct Shared {
    /// The memory that records come from.
    pub arena: ArenaMemory,
    /// The clock of records' times.
    pub clock: TraceClock,
    /// The readings of both clocks at the start.
    pub start: ClockPair,
    /// The runtime's path.
    pub runtime: PathBuf,
    /// Whether the recorder has attached to processes that were running.
    pub attached: bool,
    /// The number of processes that are carrying out steps.
    pub served: AtomicUsize,
    /// The part that changes, for one thread at a time.
    pub state: Mutex<State>,
}

/// The part of the shared state that changes.
#[derive(Debug)]
pub struct State {
    /// The writer of the trace.
    pub writer: TraceWriter,
    /// The analysis of modules.
    pub planner: Planner,
    /// Processes that have connected.
    pub processes: HashSet<u32>,
    /// Processes that have executed another program, and the first stream that may be the new program's. Nobody fills
    /// the chunks of earlier streams any more.
    pub executed: Vec<(u32, u32)>,
    /// The modules of each process, with their patches and pools.
    pub planned: HashMap<u32, LoadedModules>,
    /// Executed programs that are perhaps not traced.
    pub execs: Execs,
    /// Processes whose pools have no personality routine, because they have LLVM's unwinder.
    pub without_personality: HashSet<u32>,
    /// The counts of sampled functions.
    pub counters: Counters,
    /// The number of process images that have connected.
    pub connected: u64,
    /// The first error of writing the trace.
    pub failure: Option<TraceWriteError>,
    /// The notes so far, by their text.
    notes: BTreeMap<String, TraceNote>,
}

impl State {
    /// Returns the state of a recording that begins.
    pub fn new(writer: TraceWriter, planner: Planner) -> State {
        State {
            writer,
            planner,
            processes: HashSet::new(),
            executed: Vec::new(),
            planned: HashMap::new(),
            execs: Execs::default(),
            without_personality: HashSet::new(),
            counters: Counters::default(),
            connected: 0,
            failure: None,
            notes: BTreeMap::new(),
        }
    }

    /// Writes a journal entry, and keeps the error if that fails.
    pub fn journal(&mut self, entry: &JournalEntry) {
        if let Err(error) = self.writer.journal(entry) {
            self.failure.get_or_insert(error);
        }
    }

    /// Writes a note, unless the same text was noted before.
    pub fn note(&mut self, note: TraceNote) {
        let text = note.to_string();
        if self.notes.contains_key(&text) {
            return;
        }
        self.journal(&JournalEntry::Note {
            time: monotonic(),
            text: text.clone(),
            is_loss: note.is_loss(),
        });
        self.notes.insert(text, note);
    }

    /// Returns the notes so far, sorted by their text.
    pub fn notes(&self) -> Vec<TraceNote> {
        self.notes.values().cloned().collect()
    }
}

impl Shared {
    /// Locks the state. A thread that panicked has left it whole.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the number of CPUs that this process may use. The answer is kept, because finding it takes reading files.
pub fn cpus() -> usize {
    static CPUS: OnceLock<usize> = OnceLock::new();
    *CPUS.get_or_init(|| thread::available_parallelism().map_or(1, NonZero::get))
}

/// Returns `CLOCK_MONOTONIC` in nanoseconds.
pub fn monotonic() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}
