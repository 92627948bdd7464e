//! Names of events: what users type, and the numbers that the kernel takes.

pub mod hardware;
mod list;
pub mod pmu;
pub mod software;
pub mod tracepoint;

pub use list::{EventKind, ListedEvent, list_events};
