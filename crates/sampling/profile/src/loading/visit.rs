//! The interface for crates that look at single samples while a recording is read.

use crate::processes::tasks::ThreadId;
use dioptra_perfrecords::record::{RawRecord, RecordLayout};

/// Visits the samples that hold the counts of a group of events, in the order of the recording. See
/// [`crate::Profile::load_visited`].
pub trait GroupVisitor {
    /// Visits a sample.
    fn sample(&mut self, sample: &GroupSample<'_>);

    /// Visits a THROTTLE record: the kernel stopped an event for a while.
    fn throttled(&mut self, record: &RawRecord<'_>);

    /// Notes that records are missing between the sample before and the next one.
    fn lost(&mut self);
}

/// A sample that holds the counts of a group of events.
#[derive(Clone, Copy, Debug)]
pub struct GroupSample<'r> {
    /// The event, as an index of [`crate::Profile::events`].
    pub event: usize,
    /// The thread that was sampled.
    pub thread: ThreadId,
    /// The record.
    pub raw: &'r RawRecord<'r>,
    /// The layout of the record.
    pub layout: &'r RecordLayout,
    /// The call stack of the sample, or its frame where stacks were not loaded; `None` if it did not pass the filter.
    pub stack: Option<u32>,
}
