//! Starts or attaches to targets and writes what they did to a perf.data file.
//!
//! [`record::record`] does it all, as a [`spec::RecordSpec`] says, and returns an [`outcome::Outcome`]. It stands on
//! `dioptra-perfevents` for the events and on `dioptra-perfdata` for the file; what is its own is the order of things
//! (see [`mod@record`]), the command that is held until its events are open ([`dioptra_processes::command`]), and the description of what
//! existed before ([`existing`]).

pub mod counters;
mod error;
pub mod existing;
mod extension;
mod features;
mod file_events;
pub mod kernel;
pub mod machine;
pub mod modules;
pub mod outcome;
pub mod output_file;
pub mod record;
pub mod sample_options;
mod session;
mod sink;
pub mod spec;
mod tracing_data;
mod watchdog;

pub use error::RecordError;
pub use extension::{CountedEvent, ExtensionError, ExtensionTarget, RecordExtension, RecordingEnd};
pub use outcome::{Ending, Outcome};
pub use record::{Observer, record, record_with};
pub use spec::{RecordSpec, RecordTarget};
