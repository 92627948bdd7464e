//! Profiles in the formats of other tools.
//!
//! A [`Source`] is a profile with its names and the events to export. Each format has a function that writes it:
//! [`write_collapsed`], [`write_pprof`], [`write_firefox`], [`write_callgrind`], [`write_flamegraph`],
//! [`write_speedscope`], [`write_autofdo`], [`write_chrome`]. The result, [`Exported`], holds the sums of the written
//! values and a list of the things that the format cannot hold, with their numbers.
//!
//! Writers read the counts of the profile, which are exact sums. They write while they walk through the stacks; only
//! tables of names wait until the end.
//!
//! **Invariant:** the written values of an event add up to the profile's total ([`Exported::check`]).

mod autofdo;
mod callgrind;
mod chrome;
mod collapsed;
mod comm_paths;
mod error;
mod exported;
mod firefox;
mod flamegraph;
mod import;
mod labels;
mod lost;
mod origin;
mod paths;
mod pprof;
mod protobuf;
mod sample_values;
mod source;
mod speedscope;
mod stack_calls;

pub use autofdo::write_autofdo;
pub use callgrind::write_callgrind;
pub use chrome::write_chrome;
pub use collapsed::write_collapsed;
pub use error::ExportError;
pub use exported::{EventTotal, Exported};
pub use firefox::write_firefox;
pub use flamegraph::write_flamegraph;
pub use import::{
    ImportError, ImportFormat, ImportOptions, Imported, ImportedEvent, Omitted, OmittedKind, import,
};
pub use lost::{Lost, LostKind};
pub use origin::Origin;
pub use paths::{PathId, PathNode, Paths};
pub use pprof::write_pprof;
pub use source::{Source, Value};
pub use speedscope::write_speedscope;
