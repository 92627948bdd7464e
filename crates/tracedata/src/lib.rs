//! The directory of a trace (`dioptra.trace`).
//!
//! Its files, and the bytes of chunks and records, are described in [`dioptra_tracelayout`]. Here are the JSON objects of
//! `info.json` ([`Info`]) and of the lines of `journal.jsonl` ([`JournalEntry`]), and the [`Writer`] that a recorder uses.

mod info;
mod journal;
mod writer;

pub use info::{Clock, Ending, Host, Info};
pub use journal::{ClockPair, JournalEntry, Mapping, Module, ProcessCause, Refusal};
pub use writer::{WriteError, Writer};
