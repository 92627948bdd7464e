//! From rings to the listener: finding each record's event, counting, parsing.

use crate::attach::plan::{Plan, Planned};
use crate::attach::{Arrangement, Attachment, CpuRing};
use crate::event::Count;
use crate::listener::{self, RecordListener};
use crate::names::software;
use crate::notes::AttachNote;
use crate::record::{RawRecord, RecordLayout, RecordType};
use crate::ring::Drained;
use crate::session::AttachedEvent;
use crate::signals::SignalSource;
use crate::summary::{EventSummary, Summary};
use crate::windows::ids::set_id;
use crate::{Attr, AttrFlags, ByteOrder, Cursor, event_type};
use rustc_hash::{FxHashMap, FxHashSet};
use std::time::Instant;

/// Records read between two looks at the clock.
const RECORDS_PER_LOOK: u32 = 64;

/// The state of delivering: facts about each event, and totals of its records.
#[derive(Debug, Default)]
pub(crate) struct Delivery {
    events: Vec<AttachedEvent>,
    layouts: Vec<RecordLayout>,
    /// By which any record's id is found.
    common: Option<RecordLayout>,
    /// Whether every event has the layout `common`, so that even a record of unknown id can be parsed.
    uniform: bool,
    /// Event index of each id, and the thread for which it was opened, 0 for a CPU.
    ids: FxHashMap<u64, (usize, u32)>,
    /// Threads with events of their own, where threads inherit as well.
    opened: FxHashSet<u32>,
    /// For each event, whether all copies of it that count one occurrence write the same time and the same id: a
    /// software event other than a clock (trap T9), of which the session has one specification.
    at_once: Vec<bool>,
    /// Events that a sample of each event stands for where it doesn't say so itself.
    periods: Vec<Option<u64>>,
    /// Whether processes inherit events, not threads only.
    children_inherit: bool,
    /// The event of samples whose id is unknown: the only one of the session that may carry another session's id
    /// (trap T9).
    of_unknown_id: Option<usize>,
    /// Room for a sample of a foreign id.
    adopted: Vec<u8>,
    /// The last occurrence of such an event in each CPU's ring, and whether one of its samples was delivered.
    occurrences: FxHashMap<u32, (Occurrence, bool)>,
    /// The number of entries of the attachment's id log that are in `ids`.
    ids_known: usize,
    duplicate_ids: FxHashSet<u64>,
    tallies: Vec<Tally>,
    totals: Summary,
    spill: bool,
}

/// One occurrence of a software event, for which two copies of the event may each have written a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Occurrence {
    thread: u32,
    time: u64,
    event: Option<usize>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    samples: u64,
    throttled: u64,
    /// Sum of the samples' periods.
    weight: u64,
}

impl Delivery {
    pub(crate) fn new(attachment: &Attachment) -> Delivery {
        let plan: &Plan = &attachment.plan;
        let events: Vec<AttachedEvent> = plan
            .events
            .iter()
            .map(|planned| AttachedEvent {
                spec: planned.spec,
                name: planned.name.clone(),
                attr: planned.attr.clone(),
                ids: Vec::new(),
            })
            .collect();
        let layouts: Vec<RecordLayout> = events
            .iter()
            .map(|event| RecordLayout::new(&event.attr, ByteOrder::NATIVE))
            .collect();
        let shares_ids = |event: &AttachedEvent| {
            event.attr.kind == event_type::SOFTWARE
                && !matches!(
                    event.attr.config,
                    software::CPU_CLOCK | software::TASK_CLOCK | software::DUMMY
                )
        };
        let sharing = || (0..events.len()).filter(|index| shares_ids(&events[*index]));
        let at_once = (0..events.len())
            .map(|index| {
                let config = events[index].attr.config;
                let copies = sharing().filter(|other| events[*other].attr.config == config);
                shares_ids(&events[index]) && copies.count() == 1
            })
            .collect();
        let of_unknown_id = sharing().next().filter(|_| sharing().count() == 1);
        let uniform = layouts.windows(2).all(|pair| pair[0] == pair[1]);
        Delivery {
            tallies: vec![Tally::default(); events.len()],
            periods: plan.events.iter().map(Planned::fixed_period).collect(),
            children_inherit: !events
                .iter()
                .any(|event| event.attr.flags.contains(AttrFlags::INHERIT_THREAD)),
            common: layouts.first().cloned(),
            uniform,
            layouts,
            events,
            at_once,
            of_unknown_id,
            duplicate_ids: attachment.duplicate_ids.clone(),
            spill: attachment.rings.iter().any(|ring| !ring.spill.is_empty()),
            ..Delivery::default()
        }
    }

    /// Takes in ids that were opened since the last call.
    pub(crate) fn learn_ids(&mut self, attachment: &Attachment) {
        let log = attachment.id_log.iter().zip(&attachment.id_owners);
        for ((index, id), owner) in log.skip(self.ids_known) {
            self.ids.insert(*id, (*index, *owner));
            if *owner != 0 && attachment.shape == Arrangement::PerCore {
                self.opened.insert(*owner);
            }
            if let Some(event) = self.events.get_mut(*index) {
                event.ids.push(*id);
            }
        }
        self.ids_known = attachment.id_log.len();
    }

    pub(crate) fn events(&self) -> &[AttachedEvent] {
        &self.events
    }

    pub(crate) fn samples(&self) -> u64 {
        self.totals.samples
    }

    pub(crate) fn lost_told(&self) -> u64 {
        self.totals.lost_told
    }

    pub(crate) fn has_spill(&self) -> bool {
        self.spill
    }

    /// Drains every ring once. At `deadline` the events are disabled, even in the middle of it.
    pub(crate) fn round(
        &mut self,
        attachment: &mut Attachment,
        mut deadline: Option<Instant>,
        listener: &mut dyn RecordListener,
    ) -> Drained {
        let parsed = listener.wants_parsed();
        let (records, bytes) = (self.totals.records, self.totals.bytes);
        let mut until_look = RECORDS_PER_LOOK;
        // Taken out, so that the attachment can be disabled while they are read.
        let mut rings = std::mem::take(&mut attachment.rings);
        let mut look = |attachment: &mut Attachment| {
            until_look -= 1;
            if until_look == 0 {
                until_look = RECORDS_PER_LOOK;
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    deadline = None;
                    // The end of the session disables once more, and reports a failure.
                    let _ = attachment.disable();
                }
            }
        };
        for ring in &mut rings {
            let cpu = ring.cpu;
            if self.spill {
                let mut rest = std::mem::take(&mut ring.spill);
                let mut at = rest.as_mut_slice() as &[u8];
                while let Ok((record, after)) = RawRecord::split(at, ByteOrder::NATIVE) {
                    let length = at.len() - after.len();
                    self.one(cpu, &at[..length], &record, parsed, listener);
                    look(attachment);
                    at = after;
                }
            }
            let drained = ring.ring.drain(|bytes, record| {
                self.one(cpu, bytes, record, parsed, listener);
                look(attachment);
            });
            self.totals.damaged_bytes += drained.damaged;
        }
        attachment.rings = rings;
        if let Some(signals) = attachment.signals.take() {
            self.signalled(&signals, attachment, parsed, listener);
            attachment.signals = Some(signals);
        }
        self.spill = false;
        self.totals.rounds += 1;
        listener.round();
        Drained {
            records: self.totals.records - records,
            bytes: self.totals.bytes - bytes,
            damaged: 0,
        }
    }

    /// Takes in the samples that came by signals.
    fn signalled(
        &mut self,
        signals: &SignalSource,
        attachment: &mut Attachment,
        parsed: bool,
        listener: &mut dyn RecordListener,
    ) {
        while let Some(sample) = signals.next() {
            let inherited = sample.owner != 0 && sample.owner != sample.tid;
            if inherited && attachment.threads.contains_key(&sample.tid) {
                // Found and opened although it had inherited: one of the two goes.
                attachment.close_duplicate(sample.tid);
                self.totals.duplicates += 1;
                continue;
            }
            let bytes = sample.record();
            if let Ok((record, _)) = RawRecord::split(&bytes, ByteOrder::NATIVE) {
                self.one(sample.cpu, &bytes, &record, parsed, listener);
            }
        }
    }

    /// Drains one ring that is about to be closed.
    pub(crate) fn last_of(
        &mut self,
        attachment: &mut Attachment,
        is_last: impl Fn(&CpuRing) -> bool,
        listener: &mut dyn RecordListener,
    ) {
        let parsed = listener.wants_parsed();
        for ring in attachment.rings.iter_mut().filter(|ring| is_last(ring)) {
            let cpu = ring.cpu;
            let drained = ring
                .ring
                .drain(|bytes, record| self.one(cpu, bytes, record, parsed, listener));
            self.totals.damaged_bytes += drained.damaged;
        }
    }

    #[inline]
    fn one(
        &mut self,
        cpu: u32,
        bytes: &[u8],
        record: &RawRecord<'_>,
        parsed: bool,
        listener: &mut dyn RecordListener,
    ) {
        let id = self
            .common
            .as_ref()
            .and_then(|layout| layout.event_id(record));
        if !self.duplicate_ids.is_empty() && id.is_some_and(|id| self.duplicate_ids.contains(&id)) {
            self.totals.duplicates += 1;
            return;
        }
        let known = id.and_then(|id| self.ids.get(&id).copied());
        let index = match known {
            Some((index, _)) => Some(index),
            None if record.kind == RecordType::SAMPLE => self.of_unknown_id,
            None => None,
        };
        let is_double = known.is_some_and(|(_, owner)| self.is_double(owner, record));
        if self.is_dropped(cpu, index, is_double, record) {
            self.totals.duplicates += 1;
            return;
        }
        if let (None, Some(index)) = (known, index) {
            self.adopt(cpu, index, bytes, parsed, listener);
            return;
        }
        self.deliver(cpu, index, bytes, record, parsed, listener);
    }

    #[inline]
    fn deliver(
        &mut self,
        cpu: u32,
        index: Option<usize>,
        bytes: &[u8],
        record: &RawRecord<'_>,
        parsed: bool,
        listener: &mut dyn RecordListener,
    ) {
        self.totals.records += 1;
        self.totals.bytes += bytes.len() as u64;
        self.count(index, record);
        listener.raw(cpu, bytes, record);
        if parsed {
            self.parse(index, record, listener);
        }
    }

    /// Delivers a sample of a foreign id with an id of the event at `index`: readers of files could not find its layout,
    /// and perf gives up at the first such sample.
    fn adopt(
        &mut self,
        cpu: u32,
        index: usize,
        bytes: &[u8],
        parsed: bool,
        listener: &mut dyn RecordListener,
    ) {
        let mut own = std::mem::take(&mut self.adopted);
        own.clear();
        own.extend_from_slice(bytes);
        if let Some(id) = self.events.get(index).and_then(|event| event.ids.first()) {
            set_id(*id, &mut own);
        }
        self.totals.foreign_ids += 1;
        if let Ok((record, _)) = RawRecord::split(&own, ByteOrder::NATIVE) {
            self.deliver(cpu, Some(index), &own, &record, parsed, listener);
        }
        self.adopted = own;
    }

    /// Returns true if a record is of a thread that has events of its own, but comes from an event of another thread: one that
    /// it inherited while that other thread was being attached. Its own events write the same.
    #[inline]
    fn is_double(&self, owner: u32, record: &RawRecord<'_>) -> bool {
        if owner == 0 || self.opened.is_empty() {
            return false;
        }
        let thread = self
            .common
            .as_ref()
            .and_then(|layout| layout.thread(record));
        thread.is_some_and(|thread| thread != owner && self.opened.contains(&thread))
    }

    /// Returns true if a record is to be left out. `is_double` says that its id belongs to a double.
    ///
    /// Two copies of a software event that count the same page fault write two samples with one id and one time (trap
    /// T9), so the id can't tell which is the double. One of the two is delivered.
    #[inline]
    fn is_dropped(
        &mut self,
        cpu: u32,
        event: Option<usize>,
        is_double: bool,
        record: &RawRecord<'_>,
    ) -> bool {
        if self.opened.is_empty()
            || record.kind != RecordType::SAMPLE
            || event.is_some_and(|event| !self.at_once[event])
        {
            return is_double;
        }
        let Some(layout) = &self.common else {
            return is_double;
        };
        let (Some(thread), Some(time)) = (layout.thread(record), layout.time(record)) else {
            return is_double;
        };
        let occurrence = Occurrence {
            thread,
            time,
            event,
        };
        let twin = self
            .occurrences
            .get(&cpu)
            .filter(|last| last.0 == occurrence);
        let is_dropped = twin.map_or(is_double, |(_, is_delivered)| *is_delivered);
        let is_delivered = twin.is_some() || !is_dropped;
        self.occurrences.insert(cpu, (occurrence, is_delivered));
        is_dropped
    }

    fn count(&mut self, index: Option<usize>, record: &RawRecord<'_>) {
        let word = |skip: u64| {
            let mut at = Cursor::new(record.body, ByteOrder::NATIVE);
            at.u64s(skip)?;
            at.u64()
        };
        match record.kind {
            RecordType::SAMPLE => {
                self.totals.samples += 1;
                match index.and_then(|index| Some((index, self.tallies.get_mut(index)?))) {
                    Some((index, tally)) => {
                        tally.samples += 1;
                        let period = match self.layouts[index].period(record) {
                            None => self.periods[index],
                            stated => stated,
                        };
                        tally.weight = tally.weight.saturating_add(period.unwrap_or(0));
                    }
                    None => self.totals.unknown_samples += 1,
                }
            }
            // Pid and parent's pid.
            RecordType::FORK => {
                let pids = word(0).unwrap_or(0);
                let is_thread = pids >> 32 == pids & 0xffff_ffff;
                self.totals.threads += u64::from(is_thread || self.children_inherit);
            }
            // An id, then the count.
            RecordType::LOST => self.totals.lost_told += word(1).unwrap_or(0),
            RecordType::LOST_SAMPLES => self.totals.lost_told += word(0).unwrap_or(0),
            RecordType::THROTTLE => {
                self.totals.throttled += 1;
                // A time, then the id.
                let known = word(1).and_then(|id| self.ids.get(&id).copied());
                if let Some(tally) = known.and_then(|(index, _)| self.tallies.get_mut(index)) {
                    tally.throttled += 1;
                }
            }
            _ => {}
        }
    }

    fn parse(
        &mut self,
        index: Option<usize>,
        record: &RawRecord<'_>,
        listener: &mut dyn RecordListener,
    ) {
        let layout = match index {
            Some(index) => self.layouts.get(index),
            // Only samples differ in layout: the ids that end other records are the same for all.
            None if self.uniform || record.kind != RecordType::SAMPLE => self.common.as_ref(),
            None => None,
        };
        let Some(layout) = layout else {
            listener.unknown(record);
            return;
        };
        match layout.parse(record) {
            Ok(parsed) => {
                let event = index.and_then(|index| self.events.get(index));
                listener::deliver(listener, event, &parsed);
            }
            Err(error) => {
                self.totals.malformed += 1;
                listener.malformed(record, &error);
            }
        }
    }

    /// Notes the share of a timer's samples that never came: the kernel looks at such timers at its ticks only, and a
    /// signal that still waits swallows the next.
    fn note_late_timer(&self, index: usize, time: u64, attachment: &mut Attachment) {
        let Some(expected) = self.periods[index].and_then(|period| time.checked_div(period)) else {
            return;
        };
        let came = self.tallies[index].samples;
        let missing = expected.saturating_sub(came);
        attachment
            .summary
            .notes
            .retain(|note| !matches!(note, AttachNote::TimerGaveLess { .. }));
        // A sample more or less is chance.
        if missing > 2 && missing * 20 > expected {
            attachment.note(AttachNote::TimerGaveLess {
                samples: came,
                expected,
                cpu_time: time,
            });
        }
    }

    /// Returns the totals until now, with the kernel's counts.
    pub(crate) fn sum_up(&self, attachment: &mut Attachment) -> Summary {
        let mut counts = attachment.closed.clone();
        for placed in attachment.threads.values().chain(attachment.cpus.values()) {
            for (index, event) in &placed.events {
                crate::attach::add_count(&mut counts[*index], event);
            }
        }
        if let Some(index) = attachment.plan.owner_event {
            for ring in &attachment.rings {
                crate::attach::add_count(&mut counts[index], &ring.owner);
            }
        }
        let timed = attachment.signals.as_ref().and_then(SignalSource::cpu_time);
        if let (Some(time), Some((index, _))) = (timed, attachment.id_log.first().copied()) {
            counts[index].value = time;
            self.note_late_timer(index, time, attachment);
        }
        let mut summary = self.totals.clone();
        summary.threads = match attachment.shape {
            Arrangement::PerCpu => 0,
            // Threads are looked for; what they inherit is nothing.
            Arrangement::PerThread => {
                attachment.id_owners.iter().collect::<FxHashSet<_>>().len() as u64
            }
            _ => summary.threads + attachment.summary.threads as u64,
        };
        let sum = |lost: u64, count: &Count| lost + count.lost.unwrap_or(0);
        // The kernel counts a lost record for its event and for its ring: the two report the same loss.
        summary.lost = counts.iter().fold(0, sum).max(summary.lost_told);
        summary.lost += attachment.signals.as_ref().map_or(0, SignalSource::lost);
        summary.events = self
            .events
            .iter()
            .zip(&counts)
            .zip(&self.tallies)
            .enumerate()
            .map(|(index, ((event, count), tally))| {
                let mut total = EventSummary::named(event);
                let average = || tally.weight.checked_div(tally.samples);
                total.period = self.periods[index].or_else(average);
                total.is_time = is_clock(&event.attr);
                total.is_per_thread = attachment.shape == Arrangement::PerThread
                    || event.attr.flags.contains(AttrFlags::INHERIT);
                total.samples = tally.samples;
                total.throttled = tally.throttled;
                total.sampled = tally.weight;
                total.lost = count.lost;
                total.count = count.value;
                total.time_enabled = count.time_enabled.unwrap_or(0);
                total.time_running = count.time_running.unwrap_or(0);
                total
            })
            .collect();
        summary
    }
}

/// Returns whether an event counts nanoseconds.
fn is_clock(attr: &Attr) -> bool {
    attr.kind == event_type::SOFTWARE
        && matches!(attr.config, software::CPU_CLOCK | software::TASK_CLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SampleType;
    use crate::record::Misc;

    #[test]
    fn records_that_a_thread_inherited_beside_its_own_events_are_doubles() {
        let attr = Attr {
            sample_type: SampleType::IDENTIFIER | SampleType::IP | SampleType::TID,
            ..Attr::default()
        };
        let delivery = Delivery {
            common: Some(RecordLayout::new(&attr, ByteOrder::NATIVE)),
            opened: [10, 11].into_iter().collect(),
            ..Delivery::default()
        };
        let is_double = |owner: u32, tid: u32| {
            let mut body = [0; 24];
            body[16..20].copy_from_slice(&1_u32.to_ne_bytes());
            body[20..].copy_from_slice(&tid.to_ne_bytes());
            let record = RawRecord {
                kind: RecordType::SAMPLE,
                misc: Misc(0),
                body: &body,
            };
            delivery.is_double(owner, &record)
        };
        assert!(is_double(10, 11), "11 has events of its own");
        assert!(!is_double(11, 11), "its own");
        assert!(!is_double(10, 12), "inherited, and nothing else");
        assert!(!is_double(0, 11), "a CPU's");
    }
}
