//! The directory of a trace (`dioptra.trace`).
//!
//! Its files, and the bytes of chunks and records, are described in [`dioptra_tracelayout`]. Here are the JSON objects of
//! `info.json` ([`Info`]) and of the lines of `journal.jsonl` ([`JournalEntry`]), the [`Writer`] that a recorder uses, and a [`Trace`] for those who read one.

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
mod writer;

pub use clock::{ClockCursor, ClockMap};
pub use info::{Clock, Ending, Host, Info, PendingRule, PendingRules, Usage};
pub use journal::{
    ClockPair, FunctionCounts, JournalEntry, Mapping, Module, ProcessCause, Refusal,
    SampledFunctions, TaskChange,
};
pub use reader::{Damage, OpenError, Process, Stream, Trace};
pub use switches::Switches;
pub use tasks::TaskEvent;
pub use writer::{WriteError, Writer};
