//! The receiver of a session's records: one method for each kind of record.

use crate::record::{
    Comm, Lost, Mmap, RawRecord, ReadRecord, Record, RecordError, Sample, SampleId, Switch, Task,
    Throttle,
};
use crate::session::AttachedEvent;

/// The receiver of a session's records, on the thread that runs the session. Every method does nothing by default.
///
/// Records of one CPU come in the order of time; those of different CPUs are interleaved by rounds.
#[allow(unused_variables)]
pub trait RecordListener {
    /// Handles the start of reading.
    fn reader_start(&mut self) {}

    /// Handles the end of reading, after the last record.
    fn reader_stop(&mut self) {}

    /// Handles a whole record as the kernel wrote it: `bytes` with its header, and its parts. Called for every record,
    /// before it is parsed.
    fn raw(&mut self, cpu: u32, bytes: &[u8], record: &RawRecord<'_>) {}

    /// Handles the end of a round, in which every ring was drained once. Later records are not older than those that
    /// were written before the round began.
    fn round(&mut self) {}

    /// Returns true if records are to be parsed and passed to the methods below. A recorder needs only
    /// [`RecordListener::raw`].
    fn wants_parsed(&self) -> bool {
        true
    }

    /// Handles a sample. `event` is `None` where its id is not one of the session's, which kernels get wrong where two
    /// profilers watch the same software event.
    fn sample(&mut self, event: Option<&AttachedEvent>, sample: &Sample<'_>) {}

    /// Handles a mapping.
    fn mmap(&mut self, mapping: &Mmap<'_>, ids: &SampleId) {}

    /// Handles a thread's new name.
    fn comm(&mut self, comm: &Comm<'_>, ids: &SampleId) {}

    /// Handles the creation of a thread or process.
    fn fork(&mut self, task: &Task, ids: &SampleId) {}

    /// Handles the end of a thread.
    fn exit(&mut self, task: &Task, ids: &SampleId) {}

    /// Handles the report that records were lost since the last such report of this CPU.
    fn lost(&mut self, lost: &Lost, ids: &SampleId) {}

    /// Handles the start of an event's throttling or (`throttled` false) its end.
    fn throttle(&mut self, throttle: &Throttle, throttled: bool, ids: &SampleId) {}

    /// Handles a context switch.
    fn switch(&mut self, switch: &Switch, ids: &SampleId) {}

    /// Handles the counter values of a thread that ended.
    fn read(&mut self, values: &ReadRecord<'_>, ids: &SampleId) {}

    /// Handles any other record that this crate can parse.
    fn other(&mut self, record: &Record<'_>) {}

    /// Handles a record of a type that this crate does not know.
    fn unknown(&mut self, record: &RawRecord<'_>) {}

    /// Handles a record that does not have the layout which its event's attr states.
    fn malformed(&mut self, record: &RawRecord<'_>, error: &RecordError) {}
}

/// A listener that calls a closure for each sample and ignores the rest; see [`on_sample`].
#[derive(Clone, Debug)]
pub struct OnSample<F>(pub F);

/// Returns a listener that calls `closure` for each sample and ignores all other records.
pub fn on_sample<F>(closure: F) -> OnSample<F>
where
    F: FnMut(Option<&AttachedEvent>, &Sample<'_>),
{
    OnSample(closure)
}

impl<F> RecordListener for OnSample<F>
where
    F: FnMut(Option<&AttachedEvent>, &Sample<'_>),
{
    fn sample(&mut self, event: Option<&AttachedEvent>, sample: &Sample<'_>) {
        (self.0)(event, sample);
    }
}

/// Passes a parsed record to the method for its kind.
pub(crate) fn deliver(
    listener: &mut dyn RecordListener,
    event: Option<&AttachedEvent>,
    record: &Record<'_>,
) {
    match record {
        Record::Sample(sample) => listener.sample(event, sample),
        Record::Mmap(mapping, ids) => listener.mmap(mapping, ids),
        Record::Comm(comm, ids) => listener.comm(comm, ids),
        Record::Fork(task, ids) => listener.fork(task, ids),
        Record::Exit(task, ids) => listener.exit(task, ids),
        Record::Lost(lost, ids) => listener.lost(lost, ids),
        Record::Throttle(throttle, ids) => listener.throttle(throttle, true, ids),
        Record::Unthrottle(throttle, ids) => listener.throttle(throttle, false, ids),
        Record::Switch(switch, ids) => listener.switch(switch, ids),
        Record::Read(values, ids) => listener.read(values, ids),
        Record::Unknown(raw) => listener.unknown(raw),
        other => listener.other(other),
    }
}
