//! An opened trace.
//!
//! Names and views borrow from the trace, so all of them live on the stack of one thread. Requests send it work, which
//! runs on threads of its own below it, several at a time.

use super::keys::FunctionKeys;
use crate::failure::Failure;
use crate::loaded::Finding;
use crate::profiles::FileState;
use dioptra_calls::{Demangle, FunctionNames, View};
use dioptra_trace_report::counts_ticks;
use dioptra_tracedata::{Stream, Trace};
use dioptra_tracelayout::Decoder;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

/// A piece of work on a trace.
type Work = Box<dyn for<'o, 't> FnOnce(&'o OpenTrace<'t>) + Send>;

/// A trace with the names of its functions.
pub(crate) struct OpenTrace<'t> {
    pub trace: &'t Trace,
    pub names: FunctionNames<'t>,
    pub index: usize,
    pub generation: u64,
    /// The clock's nanoseconds at the first record; 0 without records.
    pub first: u64,
    keys: OnceLock<FunctionKeys>,
}

impl OpenTrace<'_> {
    /// Returns the keys of the functions.
    pub(crate) fn keys(&self) -> &FunctionKeys {
        self.keys.get_or_init(|| FunctionKeys::of(self.trace))
    }

    /// Returns nanoseconds since the first record.
    pub(crate) fn since_first(&self, time: u64) -> u64 {
        time.saturating_sub(self.first)
    }
}

/// A loaded trace.
pub(crate) struct LoadedTrace {
    pub index: usize,
    pub generation: u64,
    pub label: String,
    pub path: String,
    /// The clock's nanoseconds at the first record; 0 without records.
    pub first: u64,
    /// Nanoseconds from the first record to the last one.
    pub duration: u64,
    /// Whether the length of the clock's ticks is unknown.
    pub ticks: bool,
    work: Sender<Work>,
}

impl LoadedTrace {
    /// Opens a trace.
    ///
    /// # Errors
    /// A sentence for the reader.
    pub(crate) fn load(
        file: &FileState,
        generation: u64,
        finding: &Finding,
    ) -> Result<LoadedTrace, String> {
        let trace = Trace::open(&file.path).map_err(|error| error.to_string())?;
        let first = View::first_time(&trace).unwrap_or(0);
        let ends = trace.streams().iter();
        let last = ends.filter_map(|stream| last_time(&trace, stream)).max();
        let ticks = counts_ticks(&trace);
        let (work, requests) = channel::<Work>();
        let (index, symbols) = (file.index, finding.symbols.clone());
        let run = move || {
            let open = OpenTrace {
                trace: &trace,
                // As `dioptra trace report` shows them.
                names: FunctionNames::new(&trace, symbols, Demangle::Simple),
                index,
                generation,
                first,
                keys: OnceLock::new(),
            };
            std::thread::scope(|scope| {
                for work in requests {
                    let open = &open;
                    scope.spawn(move || work(open));
                }
            });
        };
        std::thread::Builder::new()
            .name("dioptra-trace".to_owned())
            .spawn(run)
            .map_err(|error| error.to_string())?;
        Ok(LoadedTrace {
            index: file.index,
            generation,
            label: file.label.clone(),
            path: file.path.display().to_string(),
            first,
            duration: last.unwrap_or(first).saturating_sub(first),
            ticks,
            work,
        })
    }

    /// Runs work on the trace and waits for its result.
    ///
    /// # Errors
    /// The work's, or [`Failure::Internal`] if it panics.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        work: impl for<'o, 't> FnOnce(&'o OpenTrace<'t>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let (answer, answers) = channel();
        let run: Work = Box::new(move |open| {
            // A fault of ours costs this request only.
            let result = catch_unwind(AssertUnwindSafe(|| work(open)));
            // The receiver waits below.
            let _ = answer.send(result);
        });
        let failed = || Failure::Internal("the trace's thread has ended".to_owned());
        self.work.send(run).map_err(|_| failed())?;
        match answers.recv() {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(Failure::Internal("the answer's thread panicked".to_owned())),
            Err(_) => Err(failed()),
        }
    }
}

/// Returns the time of a stream's last record, by its last chunk.
fn last_time(trace: &Trace, stream: &Stream) -> Option<u64> {
    let chunk = trace.chunk(stream, stream.chunk_count().checked_sub(1)?)?;
    let mut decoder = Decoder::new(chunk.records, chunk.header.base);
    while let Some(Ok(_)) = decoder.next() {}
    let ticks = decoder.time() << chunk.header.shift;
    Some(trace.clock().cursor().monotonic(ticks))
}
