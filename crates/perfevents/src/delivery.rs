//! From rings to the listener: finding each record's event, counting, parsing.

use crate::attach::Attachment;
use crate::attach::plan::Plan;
use crate::bytes::{ByteOrder, Cursor};
use crate::event::Count;
use crate::listener::{self, RecordListener};
use crate::record::{RawRecord, RecordLayout, RecordType};
use crate::ring::Drained;
use crate::session::AttachedEvent;
use crate::summary::{EventSummary, Summary};
use rustc_hash::{FxHashMap, FxHashSet};

/// What is known about each event, and what was seen of it.
#[derive(Debug, Default)]
pub(crate) struct Delivery {
    events: Vec<AttachedEvent>,
    layouts: Vec<RecordLayout>,
    /// By which any record's id is found.
    common: Option<RecordLayout>,
    /// Whether every event has the layout `common`, so that even a record of unknown id can be parsed.
    uniform: bool,
    ids: FxHashMap<u64, usize>,
    /// How much of the attachment's id log is in `ids`.
    ids_known: usize,
    duplicate_ids: FxHashSet<u64>,
    tallies: Vec<Tally>,
    totals: Summary,
    spill: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    samples: u64,
    throttled: u64,
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
        let uniform = layouts.windows(2).all(|pair| pair[0] == pair[1]);
        Delivery {
            tallies: vec![Tally::default(); events.len()],
            common: layouts.first().cloned(),
            uniform,
            layouts,
            events,
            duplicate_ids: attachment.duplicate_ids.clone(),
            spill: attachment.rings.iter().any(|ring| !ring.spill.is_empty()),
            ..Delivery::default()
        }
    }

    /// Takes in ids that were opened since the last call.
    pub(crate) fn learn_ids(&mut self, attachment: &Attachment) {
        for (index, id) in attachment.id_log.get(self.ids_known..).unwrap_or_default() {
            self.ids.insert(*id, *index);
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

    pub(crate) fn has_spill(&self) -> bool {
        self.spill
    }

    /// Drains every ring once.
    pub(crate) fn round(
        &mut self,
        attachment: &mut Attachment,
        listener: &mut dyn RecordListener,
    ) -> Drained {
        let parsed = listener.wants_parsed();
        let (records, bytes) = (self.totals.records, self.totals.bytes);
        for ring in &mut attachment.rings {
            let cpu = ring.cpu;
            if self.spill {
                let mut rest = std::mem::take(&mut ring.spill);
                let mut at = rest.as_mut_slice() as &[u8];
                while let Ok((record, after)) = RawRecord::split(at, ByteOrder::NATIVE) {
                    let length = at.len() - after.len();
                    self.one(cpu, &at[..length], &record, parsed, listener);
                    at = after;
                }
            }
            let drained = ring
                .ring
                .drain(|bytes, record| self.one(cpu, bytes, record, parsed, listener));
            self.totals.damaged_bytes += drained.damaged;
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

    /// Drains one ring that is about to be closed.
    pub(crate) fn last_of(
        &mut self,
        attachment: &mut Attachment,
        cpu: u32,
        listener: &mut dyn RecordListener,
    ) {
        let parsed = listener.wants_parsed();
        for ring in attachment.rings.iter_mut().filter(|ring| ring.cpu == cpu) {
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
        let index = id.and_then(|id| self.ids.get(&id).copied());
        self.totals.records += 1;
        self.totals.bytes += bytes.len() as u64;
        self.count(index, record);
        listener.raw(cpu, bytes, record);
        if parsed {
            self.parse(index, record, listener);
        }
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
                match index.and_then(|index| self.tallies.get_mut(index)) {
                    Some(tally) => tally.samples += 1,
                    None => self.totals.unknown_samples += 1,
                }
            }
            // An id, then the count.
            RecordType::LOST => self.totals.lost_told += word(1).unwrap_or(0),
            RecordType::LOST_SAMPLES => self.totals.lost_told += word(0).unwrap_or(0),
            RecordType::THROTTLE => {
                self.totals.throttled += 1;
                // A time, then the id.
                let index = word(1).and_then(|id| self.ids.get(&id).copied());
                if let Some(tally) = index.and_then(|index| self.tallies.get_mut(index)) {
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

    /// The totals until now, with what the kernel counted.
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
        let mut summary = self.totals.clone();
        let sum = |lost: u64, count: &Count| lost + count.lost.unwrap_or(0);
        // The kernel counts a lost record for its event and for its ring: the two tell of the same loss.
        summary.lost = counts.iter().fold(0, sum).max(summary.lost_told);
        summary.events = self
            .events
            .iter()
            .zip(&counts)
            .zip(&self.tallies)
            .map(|((event, count), tally)| {
                let mut total = EventSummary::named(event);
                total.samples = tally.samples;
                total.throttled = tally.throttled;
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
