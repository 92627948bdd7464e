//! Names of events: what users type, and the numbers that the kernel takes.

mod list;
pub mod pmu;
pub mod tracepoint;
mod unavailable;

pub use dioptra_perfrecords::names::{hardware, software};
pub use list::{EventKind, ListedEvent, list_events};
pub use unavailable::Unavailable;
