//! The sane interface to `perf_event_open`: events, sessions, rings and their records.
//!
//! A [`SessionSpec`] says what to capture ([`EventSpec`]s in groups), of whom ([`Target`]) and how. A [`Session`]
//! attaches it and hands every record to a [`RecordListener`]. A single counter is an [`Event`].

mod attach;
mod attr;
mod bytes;
mod cpus;
mod delivery;
mod errors;
mod event;
mod features;
pub mod limits;
mod listener;
pub mod names;
mod probe;
mod procfs;
mod reader;
pub mod record;
mod ring;
mod session;
mod signals;
mod spawn;
mod spec;
mod stop;
mod summary;
mod syntax;
mod sys;
pub mod traps;

pub use attach::{
    AttachSummary, Attachment, AttachmentStrategy, FailedThread, PerCoreAttachmentStrategy,
    PerCpuAttachmentStrategy, PerThreadAttachmentStrategy, Shape, SignalAttachmentStrategy,
    TimerAttachmentStrategy,
};
pub use attr::{
    ATTR_SIZE_IN_FILES, ATTR_SIZES, Attr, AttrFlags, ReadFormat, SampleType, event_type,
};
pub use bytes::{ByteOrder, Cursor, U64s};
pub use cpus::{CpuSet, CpuSetError};
pub use errors::{AttachError, EventError, OpenError, Refusal, RunError};
pub use event::{Count, Event, Place};
pub use features::Features;
pub use listener::{OnSample, RecordListener, on_sample};
pub use names::{EventKind, ListedEvent, list_events};
pub use probe::{Capabilities, Tried};
pub use reader::{FdPollReader, Reader, Woken};
pub use ring::{Drained, Ring};
pub use session::{AttachedEvent, Progress, Running, Session};
pub use spawn::RunningSession;
pub use spec::{
    EventGroup, EventSpec, Fallbacks, Inherit, SessionSpec, SideBand, Start, Target, ThreadChoice,
};
pub use stop::StopHandle;
pub use summary::{EventSummary, Summary};
pub use syntax::{EventSyntaxError, parse_events, parse_events_with};
