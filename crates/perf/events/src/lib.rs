//! The sane interface to `perf_event_open`: events, sessions, rings and their records.
//!
//! A [`SessionSpec`] says what to capture ([`EventSpec`]s in groups), of whom ([`Target`]) and how. A [`Session`]
//! attaches it and hands every record to a [`RecordListener`]. A single counter is an [`Event`].
//!
//! ```no_run
//! use dioptra_perfevents::{EventSpec, SampleType, Session, SessionSpec, on_sample};
//!
//! // Where do this program's threads spend their time? Existing and later ones, without privileges.
//! let clock = EventSpec::cpu_clock().with_frequency(1000).with_sample(SampleType::IP).user_only();
//! let session = Session::spawn(SessionSpec::new().event(clock), on_sample(|_, sample| {
//!     println!("{:?} at {:x?}", sample.tid, sample.ip);
//! }))?;
//! // … the program's work …
//! let (_, summary) = session.stop()?;
//! println!("{} samples, {} lost", summary.samples, summary.lost);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What is refused is either replaced, and then told in [`AttachSummary::notes`] ([`Fallbacks`] says what may be), or
//! an error that names the cause and the remedy ([`AttachError`], [`Refusal`]). Every record that the kernel could not
//! write is counted ([`Summary::lost`]). [`Capabilities`] tells what this machine and user can do, [`list_events`] and
//! [`parse_events`] know the names of events. [`traps`] lists what goes wrong with `perf_event_open` otherwise.
//!
//! # Limits
//! A thread that is created within the few microseconds in which its creator is being attached may be sampled by two
//! events; the doubles are dropped and counted ([`Summary::duplicates`]). Processes forked before their creator was attached are not followed.

mod attach;
mod cpus;
mod delivery;
mod errors;
mod event;
mod features;
pub mod limits;
mod listener;
pub mod names;
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
mod unsampled;
pub mod windows;

pub use dioptra_perfrecords::record;
pub use dioptra_perfrecords::{
    ATTR_SIZE_IN_FILES, ATTR_SIZES, Attr, AttrFlags, ByteOrder, Cursor, ReadFormat, SampleType,
    U64s, event_type,
};

pub use attach::{
    AttachSummary, Attachment, AttachmentStrategy, FailedThread, PerCoreAttachmentStrategy,
    PerCpuAttachmentStrategy, PerThreadAttachmentStrategy, Shape, SignalAttachmentStrategy,
    TimerAttachmentStrategy,
};
pub use cpus::{CpuSet, CpuSetError};
pub use errors::{AttachError, EventError, OpenError, Refusal, RunError};
pub use event::{Count, Event, EventTarget, OpenRequest};
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
pub use unsampled::Unsampled;
