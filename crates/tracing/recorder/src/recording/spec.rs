//! The options of a recording.

use crate::collecting::clock::TraceClock;
use crate::selection::selector::{Everything, Selector};
use dioptra_tracedata::PendingRules;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// A function that is called with the command's process id before the command executes.
pub type BeforeStart = Box<dyn FnOnce(u32) -> io::Result<AfterStart>>;

/// A function that is called once the command has executed. It is dropped uncalled if the command can't execute.
pub type AfterStart = Box<dyn FnOnce()>;

/// The behaviour of a thread when the recorder can't keep up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFull {
    /// The thread waits.
    Block,
    /// The thread goes on. Its records are lost, and are counted where they are missing.
    Drop,
}

/// The command to trace, and the options of the recording.
pub struct TraceSpec {
    /// The program and its arguments; empty if the recorder attaches.
    pub command: Vec<OsString>,
    /// The running processes to attach to, in place of a command.
    pub attach: Vec<u32>,
    /// The time after which the recorder detaches from running processes; `None` for no limit.
    pub duration: Option<Duration>,
    /// The directory of the trace.
    pub folder: PathBuf,
    /// The choice of functions.
    pub selector: Box<dyn Selector>,
    /// The behaviour of threads when the memory is full.
    pub on_full: OnFull,
    /// The memory that full chunks may take, in bytes. The threads' own chunks come on top.
    pub memory: usize,
    /// The size of a chunk in bytes; rounded to pages.
    pub chunk_size: usize,
    /// The stretch of time before the end to keep, as far as `memory` reaches; `None` keeps everything.
    pub last: Option<Duration>,
    /// Whether to record when the threads have no CPU, where that is permitted.
    pub scheduling: bool,
    /// Whether to record when threads begin, end and get names, where that is permitted.
    pub tasks: bool,
    /// The clock of records' times; `None` for the best one.
    pub clock: Option<TraceClock>,
    /// The options as the user gave them, for `info.json`.
    pub options: Vec<String>,
    /// The share of the program's time that functions with `sample=auto` may cost, such as 0.01.
    pub overhead: f64,
    /// The seed of the random choices of sampled executions.
    pub seed: u64,
    /// Whether to keep the records of executions that were judged at their ends and are not shown (`sample=pNN`). These
    /// records are marked, and show what would have been taken back.
    pub keep_judged: bool,
    /// Rules that the selector does not carry out, for readers.
    pub pending: Option<PendingRules>,
    /// A function that is called while the command is held, so that another recorder can attach to it. The command does
    /// not start if the function fails.
    pub before_start: Option<BeforeStart>,
}

impl TraceSpec {
    /// Makes the options for a trace of all instrumented functions of a command, without loss.
    pub fn new(command: Vec<OsString>, folder: PathBuf) -> TraceSpec {
        TraceSpec {
            command,
            attach: Vec::new(),
            duration: None,
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
            before_start: None,
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
