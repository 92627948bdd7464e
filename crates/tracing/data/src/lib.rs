//! The directory of a trace (`dioptra.trace`), written and read.
//!
//! [`dioptra_tracelayout`] describes the files, and the bytes of chunks and records. This crate has the JSON objects
//! of `info.json` ([`TraceInfo`]) and of the lines of `journal.jsonl` ([`JournalEntry`]), the [`TraceWriter`] that a
//! recorder uses, and the [`Trace`] that readers use.

mod clock;
mod extents;
#[cfg(test)]
mod fixture;
mod info;
mod journal;
mod mapped;
mod place;
mod reader;
mod switches;
mod tasks;
mod values;
mod writer;

pub use clock::{ClockCursor, ClockMap};
pub use info::{
    ClockInfo, Host, PendingRule, PendingRules, RecordingEnd, ResourceUsage, TraceInfo,
};
pub use journal::{
    ClockPair, FunctionCounts, JournalEntry, ModuleMapping, ProcessCause, RefusedFunctions,
    SampledFunctions, TaskChange, TracedModule,
};
pub use reader::{Stream, Trace, TraceDamage, TraceOpenError, TracedProcess};
pub use switches::ThreadSwitches;
pub use tasks::TaskEvent;
pub use values::{Digits, Member, RecordedValues, Value, ValueDescription, ValueForm};
pub use writer::{TraceWriteError, TraceWriter};
