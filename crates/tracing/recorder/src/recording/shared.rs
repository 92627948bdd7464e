//! What the threads of a recording share.

use crate::analysis::prepare::Planner;
use crate::collecting::arena_memory::ArenaMemory;
use crate::collecting::clock::TraceClock;
use crate::collecting::counters::Counters;
use crate::program::execs::Execs;
use crate::serving::loaded::LoadedModules;
use dioptra_tracedata::{ClockPair, JournalEntry, TraceWriteError, TraceWriter};
use std::collections::{HashMap, HashSet};
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

/// What the threads of a recording share.
#[derive(Debug)]
pub struct Shared {
    /// Where records come from.
    pub arena: ArenaMemory,
    /// What records' times are read from.
    pub clock: TraceClock,
    /// Both clocks at the start.
    pub start: ClockPair,
    /// The runtime's path.
    pub runtime: PathBuf,
    /// The rest, one at a time.
    pub state: Mutex<State>,
}

/// What changes.
#[derive(Debug)]
pub struct State {
    /// The trace.
    pub writer: TraceWriter,
    /// Modules.
    pub planner: Planner,
    /// Processes that have connected.
    pub processes: HashSet<u32>,
    /// Processes that have executed another program, and the first stream that may be the new one's: nobody fills the
    /// chunks of earlier ones any more.
    pub executed: Vec<(u32, u32)>,
    /// The modules of each process, with their patches and pools.
    pub planned: HashMap<u32, LoadedModules>,
    /// Executed programs that are perhaps not traced.
    pub execs: Execs,
    /// Processes whose pools have no personality routine, since they have LLVM's unwinder.
    pub without_personality: HashSet<u32>,
    /// What is counted of sampled functions.
    pub counters: Counters,
    /// How many have connected at all.
    pub connected: u64,
    /// The first thing that went wrong.
    pub failure: Option<TraceWriteError>,
    told: HashSet<String>,
}

impl State {
    /// Of a recording that begins.
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
            told: HashSet::new(),
        }
    }

    /// Writes a journal entry, and remembers if that fails.
    pub fn journal(&mut self, entry: &JournalEntry) {
        if let Err(error) = self.writer.journal(entry) {
            self.failure.get_or_insert(error);
        }
    }

    /// Tells something once.
    pub fn note(&mut self, text: String) {
        self.tell(text, false);
    }

    /// Tells once why calls are missing.
    pub fn note_loss(&mut self, text: String) {
        self.tell(text, true);
    }

    fn tell(&mut self, text: String, is_loss: bool) {
        if self.told.insert(text.clone()) {
            self.journal(&JournalEntry::Note {
                time: monotonic(),
                text,
                is_loss,
            });
        }
    }

    /// What was told.
    pub fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.told.iter().cloned().collect();
        notes.sort();
        notes
    }
}

impl Shared {
    /// The state; what a thread that panicked has left is whole.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many CPUs there are for us, asked once: files are read for it.
pub fn cpus() -> usize {
    static CPUS: OnceLock<usize> = OnceLock::new();
    *CPUS.get_or_init(|| thread::available_parallelism().map_or(1, NonZero::get))
}

/// `CLOCK_MONOTONIC` in nanoseconds.
pub fn monotonic() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}
