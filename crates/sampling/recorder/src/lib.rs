//! Starts or attaches to targets, and writes a recording of them to a perf.data file.
//!
//! [`record::record`] makes a recording, as a [`spec::RecordSpec`] describes it, and returns an [`outcome::Outcome`].
//! `dioptra-perfevents` opens the events and `dioptra-perfdata` writes the file. This crate adds the order of steps
//! (see [`mod@record`]), the command that is held until its events are open ([`dioptra_processes::command`]), and the
//! description of all that existed before ([`existing`]).

pub mod counters;
mod error;
pub mod existing;
mod extension;
mod features;
mod file_events;
pub mod flight;
pub mod kernel;
pub mod machine;
pub mod modules;
mod note;
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
pub use note::RecordNote;
pub use outcome::{Ending, Outcome};
pub use record::{Observer, Prepared, record, record_with};
pub use spec::{RecordSpec, RecordTarget};
