//! The options of a recording.

use crate::collecting::clock::TraceClock;
use crate::selection::selector::{Everything, Selector};
use dioptra_tracedata::PendingRules;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// What a thread does when the recorder can't keep up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFull {
    /// It waits.
    Block,
    /// It goes on, and its records are lost and counted, where they are missing.
    Drop,
}

/// What is to be traced.
pub struct TraceSpec {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// The directory of the trace.
    pub folder: PathBuf,
    /// Which functions.
    pub selector: Box<dyn Selector>,
    /// What happens when memory is full.
    pub on_full: OnFull,
    /// How much memory full chunks may take, in bytes; threads' own chunks come on top.
    pub memory: usize,
    /// The size of a chunk in bytes; rounded to pages.
    pub chunk_size: usize,
    /// Keep only what happened in this last stretch of time, as far as `memory` reaches.
    pub last: Option<Duration>,
    /// Record when the threads have no CPU, too, where that is permitted.
    pub scheduling: bool,
    /// Record when threads begin, end and get names, too, where that is permitted.
    pub tasks: bool,
    /// What times are read from; none: the best.
    pub clock: Option<TraceClock>,
    /// The options as the user gave them, for `info.json`.
    pub options: Vec<String>,
    /// The share of the program's time that functions with `sample=auto` may cost, such as 0.01.
    pub overhead: f64,
    /// Chooses the executions that are sampled at random.
    pub seed: u64,
    /// Keep the records of executions that were judged at their ends and are not shown (`sample=pNN`), marked: to compare
    /// what was taken back with what would have been recorded.
    pub keep_judged: bool,
    /// Rules that the selector does not carry out, for readers.
    pub pending: Option<PendingRules>,
}

impl TraceSpec {
    /// Of a command, everything that is instrumented, without loss.
    pub fn new(command: Vec<OsString>, folder: PathBuf) -> TraceSpec {
        TraceSpec {
            command,
            folder,
            selector: Box::new(Everything {
                plain: false,
                plain_libraries: false,
                library_calls: true,
            }),
            on_full: OnFull::Block,
            memory: 32 << 20,
            chunk_size: 64 << 10,
            last: None,
            clock: None,
            scheduling: false,
            tasks: false,
            options: Vec::new(),
            overhead: 0.01,
            seed: 0,
            keep_judged: false,
            pending: None,
        }
    }
}

impl std::fmt::Debug for TraceSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TraceSpec")
            .field("command", &self.command)
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}
