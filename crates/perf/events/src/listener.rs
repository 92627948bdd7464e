//! What a session tells: one method for each kind of record.

use crate::record::{
    Comm, Lost, Mmap, RawRecord, ReadRecord, Record, RecordError, Sample, SampleId, Switch, Task,
    Throttle,
};
use crate::session::AttachedEvent;

/// Receives a session's records, on the thread that runs the session. Every method does nothing unless written.
///
/// Records of one CPU come in the order of time; those of different CPUs are interleaved by rounds.
#[allow(unused_variables)]
pub trait RecordListener {
    /// Reading starts.
    fn reader_start(&mut self) {}

    /// Reading has ended, after the last record.
    fn reader_stop(&mut self) {}

    /// One whole record as the kernel wrote it: `bytes` with its header, and its parts. Called for every record,
    /// before it is parsed.
    fn raw(&mut self, cpu: u32, bytes: &[u8], record: &RawRecord<'_>) {}

    /// Every ring has been drained once: later records are not older than those written before the round began.
    fn round(&mut self) {}

    /// Whether records are parsed and given to the methods below; a recorder needs only [`RecordListener::raw`].
    fn wants_parsed(&self) -> bool {
        true
    }

    /// A sample. `event` is `None` where its id is not one of the session's, which kernels get wrong where two
    /// profilers watch the same software event.
    fn sample(&mut self, event: Option<&AttachedEvent>, sample: &Sample<'_>) {}

    /// An executable mapping.
    fn mmap(&mut self, mapping: &Mmap<'_>, ids: &SampleId) {}

    /// A thread's name.
    fn comm(&mut self, comm: &Comm<'_>, ids: &SampleId) {}

    /// A thread or process was created.
    fn fork(&mut self, task: &Task, ids: &SampleId) {}

    /// A thread ended.
    fn exit(&mut self, task: &Task, ids: &SampleId) {}

    /// Records were lost since the last such record of this CPU.
    fn lost(&mut self, lost: &Lost, ids: &SampleId) {}

    /// An event is throttled, or (`throttled` false) no longer.
    fn throttle(&mut self, throttle: &Throttle, throttled: bool, ids: &SampleId) {}

    /// A context switch.
    fn switch(&mut self, switch: &Switch, ids: &SampleId) {}

    /// Counter values of a thread that ended.
    fn read(&mut self, values: &ReadRecord<'_>, ids: &SampleId) {}

    /// Any other record that this crate can parse.
    fn other(&mut self, record: &Record<'_>) {}

    /// A record of a type that this crate does not know.
    fn unknown(&mut self, record: &RawRecord<'_>) {}

    /// A record that does not have the layout which its event's attr states.
    fn malformed(&mut self, record: &RawRecord<'_>, error: &RecordError) {}
}

/// A listener that calls a closure for each sample and ignores the rest; see [`on_sample`].
#[derive(Clone, Debug)]
pub struct OnSample<F>(pub F);

/// A listener of samples only.
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

/// Gives one parsed record to the method that is for it.
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
