#![doc = include_str!("../README.md")]
//!
//! # Where to look
//! A [`SessionSpec`] states the events to capture ([`EventSpec`]s in groups), the [`Target`] and the settings. A
//! [`Session`] attaches it and passes every record to a [`RecordListener`]. A single event is an [`Event`], a
//! [`Counter`] or a member of a [`Group`].
//!
//! Where the kernel refuses something, the session falls back and adds an [`AttachNote`] ([`Fallbacks`] says which
//! fallbacks it may take), or fails with an error that names the cause and the remedy ([`AttachError`], [`Refusal`]).
//! Every record that the kernel could not write is counted ([`Summary::lost`]). [`Capabilities`] finds out what this
//! machine and user can do; [`list_events`] and [`parse_events`] know the names of events. [`traps`] lists what goes
//! wrong with `perf_event_open` otherwise.
//!
//! # Limits
//! A thread that is created within the few microseconds in which its creator is being attached may be sampled by two
//! events; the doubles are dropped and counted ([`Summary::duplicates`]). Processes forked before their creator was
//! attached are not followed.

mod attach;
mod counter;
mod cpus;
mod delivery;
mod errors;
mod event;
mod features;
pub mod limits;
mod listener;
pub mod names;
mod notes;
mod owner;
mod probe;
mod procfs;
mod reader;
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
mod user_page;
mod wakeups;
pub mod windows;

pub use dioptra_perfrecords::record;
pub use dioptra_perfrecords::{
    ATTR_SIZE_IN_FILES, ATTR_SIZES, Attr, AttrFlags, ByteOrder, Cursor, ReadFormat, SampleType,
    U64s, Unsampled, event_type,
};

pub use attach::{
    AttachSummary, AttachmentStrategy, FailedThread, PerCoreAttachmentStrategy,
    PerCpuAttachmentStrategy, PerThreadAttachmentStrategy, SignalAttachmentStrategy,
    TimerAttachmentStrategy,
};
pub use counter::{Counter, Group};
pub use cpus::{CpuSet, CpuSetError};
pub use errors::{AttachError, EventError, NoInheritance, OpenError, Refusal, RunError};
pub use event::{Count, Event, EventTarget, OpenRequest};
pub use features::Features;
pub use listener::{OnSample, RecordListener, on_sample};
pub use names::{EventKind, ListedEvent, Unavailable, list_events};
pub use notes::{AttachNote, CpuChange};
pub use probe::{Capabilities, Tried};
pub use ring::{Drained, Ring};
pub use session::{AttachedEvent, AttachedSession, Progress, Running, Session};
pub use spawn::RunningSession;
pub use spec::{
    EventGroup, EventSpec, Fallbacks, Inherit, Reader, SessionSpec, SideBand, Start, Target,
    ThreadChoice,
};
pub use stop::StopHandle;
pub use summary::{EventSummary, Summary};
pub use syntax::{EventSyntaxError, SyntaxCause, parse_events, parse_events_with};
pub use wakeups::Wakeups;
