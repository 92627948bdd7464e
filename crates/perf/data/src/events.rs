//! The events of a recording, and which of them a record belongs to.

use crate::features::{DescribedEvent, Features, PmuMapping};
use crate::name::event_name;
use dioptra_perfrecords::record::{RawRecord, RecordLayout, RecordType};
use dioptra_perfrecords::{Attr, ByteOrder, SampleType};
use rustc_hash::{FxHashMap, FxHashSet};

/// An event of a recording.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct EventDescription {
    /// The counted event and the fields of its records.
    pub attr: Attr,
    /// Name, such as `cycles:u`.
    pub name: String,
    /// The ids that its records carry.
    pub ids: Vec<u64>,
    /// The layout of its records.
    pub layout: RecordLayout,
    /// The unit of its counts, where one was recorded.
    pub unit: Option<String>,
    /// The factor of its counts, if it was recorded.
    pub scale: Option<f64>,
}

impl EventDescription {
    pub(crate) fn new(attr: Attr, ids: Vec<u64>, order: ByteOrder) -> Self {
        EventDescription {
            layout: RecordLayout::new(&attr, order),
            attr,
            name: String::new(),
            ids,
            unit: None,
            scale: None,
        }
    }
}

/// Gives every event its name: from the recording where it has one, else from the attr.
pub(crate) fn name_events(
    events: &mut [EventDescription],
    described: &[DescribedEvent],
    types: &[(u64, String)],
    features: &Features,
) {
    // Maps, since a hostile recording may have very many of each.
    let by_id: FxHashMap<u64, &DescribedEvent> = described
        .iter()
        .flat_map(|event| event.ids.iter().map(move |id| (*id, event)))
        .collect();
    let types: FxHashMap<u64, &String> = types.iter().map(|(id, name)| (*id, name)).collect();
    let pmus: FxHashMap<u32, &PmuMapping> = features
        .pmu_mappings
        .iter()
        .map(|pmu| (pmu.kind, pmu))
        .collect();
    for (index, event) in events.iter_mut().enumerate() {
        if !event.name.is_empty() {
            continue;
        }
        // Ids are the surest link; recordings without ids have their events in the same order.
        let by_id = event.ids.first().and_then(|id| by_id.get(id).copied());
        let same_event = |candidate: &&DescribedEvent| {
            (candidate.attr.kind, candidate.attr.config) == (event.attr.kind, event.attr.config)
        };
        let found = by_id.or_else(|| described.get(index).filter(same_event));
        if event.ids.is_empty()
            && let Some(found) = found
        {
            event.ids.clone_from(&found.ids);
        }
        let named = found.map(|found| found.name.clone());
        let typed = || types.get(&event.attr.config).map(|name| (*name).clone());
        let derived = || {
            let pmu = pmus.get(&event.attr.kind).copied();
            event_name(&event.attr, pmu.map_or(&[], std::slice::from_ref))
        };
        event.name = named
            .or_else(typed)
            .filter(|name| !name.is_empty())
            .unwrap_or_else(derived);
    }
}

/// Where ids and times stand in an event's records: bytes from the start of a sample's body, bytes before the end of
/// any other record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Positions {
    sample_id: Option<usize>,
    sample_time: Option<usize>,
    trailer_id: Option<usize>,
    trailer_time: Option<usize>,
}

impl Positions {
    fn of(layout: &RecordLayout) -> Self {
        let fields = layout.sample_type();
        let words = |set: SampleType| 8 * (fields & set).bits().count_ones() as usize;
        let time = fields.contains(SampleType::TIME);
        let before = SampleType::IDENTIFIER | SampleType::IP | SampleType::TID;
        let from_time = SampleType::TIME
            | SampleType::ID
            | SampleType::STREAM_ID
            | SampleType::CPU
            | SampleType::IDENTIFIER;
        Positions {
            sample_id: layout.sample_id_offset(),
            sample_time: time.then(|| words(before)),
            trailer_id: layout.trailer_id_distance(),
            trailer_time: (time && layout.sample_id_all()).then(|| words(from_time)),
        }
    }
}

/// Finds events by their ids.
#[derive(Clone, Debug)]
enum IdMap {
    /// Ids are few and close together, as those of one recording are: `table[id - first]`.
    Dense {
        first: u64,
        table: Vec<u32>,
    },
    Sparse(FxHashMap<u64, u32>),
}

/// No event, in [`IdMap::Dense`].
const NONE: u32 = u32::MAX;

impl IdMap {
    fn new(events: &[EventDescription]) -> Self {
        let all = || {
            let indexed = (0_u32..).zip(events);
            indexed.flat_map(|(index, event)| event.ids.iter().map(move |id| (*id, index)))
        };
        // Zero marks a record that the recorder made up: it belongs to no event.
        let real = || all().filter(|(id, _)| *id != 0);
        let count = real().count();
        let first = real().map(|(id, _)| id).min().unwrap_or(0);
        let last = real().map(|(id, _)| id).max().unwrap_or(0);
        match usize::try_from(last - first) {
            Ok(span) if span <= 1024 + 8 * count => {
                let mut table = vec![NONE; span + 1];
                for (id, index) in real() {
                    table[(id - first) as usize] = index;
                }
                IdMap::Dense { first, table }
            }
            _ => IdMap::Sparse(real().collect()),
        }
    }

    #[inline]
    fn get(&self, id: u64) -> Option<u32> {
        match self {
            IdMap::Dense { first, table } => {
                let index = usize::try_from(id.wrapping_sub(*first)).ok()?;
                table.get(index).copied().filter(|index| *index != NONE)
            }
            IdMap::Sparse(map) => map.get(&id).copied(),
        }
    }
}

/// All events, prepared for looking up.
#[derive(Clone, Debug)]
pub(crate) struct EventTable {
    pub events: Vec<EventDescription>,
    order: ByteOrder,
    /// The positions of the fields, by event.
    positions: Vec<Positions>,
    /// Where all events agree.
    common: Option<Positions>,
    /// `positions` without repetitions.
    distinct: Vec<Positions>,
    ids: IdMap,
}

impl EventTable {
    pub fn new(events: Vec<EventDescription>, order: ByteOrder) -> Self {
        let positions: Vec<_> = events
            .iter()
            .map(|event| Positions::of(&event.layout))
            .collect();
        let distinct: FxHashSet<_> = positions.iter().copied().collect();
        let mut distinct: Vec<_> = distinct.into_iter().collect();
        distinct.sort_unstable();
        EventTable {
            common: common_positions(&events, &positions),
            distinct,
            positions,
            ids: IdMap::new(&events),
            events,
            order,
        }
    }

    /// Adds ids to an event. Only [`EventTable::time`] is right afterwards, [`EventTable::find`] knows the old ids.
    pub fn add_ids(&mut self, index: usize, ids: &[u64]) {
        if let Some(event) = self.events.get_mut(index) {
            event.ids.extend_from_slice(ids);
        }
        if self.common.is_none() {
            self.ids = IdMap::new(&self.events);
        }
    }

    /// Removes ids that an event has more than once; they keep their order.
    pub fn remove_repeated_ids(&mut self) {
        for event in &mut self.events {
            let mut seen = FxHashSet::default();
            event.ids.retain(|id| seen.insert(*id));
        }
    }

    pub fn order(&self) -> ByteOrder {
        self.order
    }

    /// Whether every sample has a time.
    pub fn has_sample_time(&self) -> bool {
        let mut positions = self.positions.iter();
        positions.all(|each| each.sample_time.is_some())
    }

    /// The event that the record belongs to, as far as that can be told.
    #[inline]
    pub fn find(&self, record: &RawRecord<'_>) -> Option<usize> {
        if self.events.len() == 1 {
            return Some(0);
        }
        if let Some(positions) = &self.common {
            let id = self.id_at(record, positions)?;
            return self.ids.get(id).map(|index| index as usize);
        }
        self.find_mixed(record)
    }

    /// Tries the place where each event's records have their id: the right one leads back to that event.
    fn find_mixed(&self, record: &RawRecord<'_>) -> Option<usize> {
        self.distinct.iter().find_map(|positions| {
            let id = self.id_at(record, positions)?;
            let index = self.ids.get(id)? as usize;
            let found = self.positions.get(index)?;
            let agrees = if record.kind == RecordType::SAMPLE {
                found.sample_id == positions.sample_id
            } else {
                found.trailer_id == positions.trailer_id
            };
            agrees.then_some(index)
        })
    }

    #[inline]
    fn id_at(&self, record: &RawRecord<'_>, positions: &Positions) -> Option<u64> {
        self.word(record, positions.sample_id, positions.trailer_id)
    }

    /// The record's time in nanoseconds, `None` where it has none.
    #[inline]
    pub fn time(&self, record: &RawRecord<'_>) -> Option<u64> {
        let positions = match &self.common {
            Some(positions) => positions,
            None => self.positions.get(self.find(record).unwrap_or(0))?,
        };
        self.word(record, positions.sample_time, positions.trailer_time)
    }

    #[inline]
    fn word(
        &self,
        record: &RawRecord<'_>,
        in_sample: Option<usize>,
        from_end: Option<usize>,
    ) -> Option<u64> {
        let offset = if record.kind == RecordType::SAMPLE {
            in_sample?
        } else {
            record.body.len().checked_sub(from_end?)?
        };
        let word = record.body.get(offset..)?.first_chunk()?;
        Some(self.order.u64(*word))
    }
}

/// The positions that hold for every record, `None` where events disagree.
fn common_positions(events: &[EventDescription], positions: &[Positions]) -> Option<Positions> {
    // An event that never samples, such as the carrier of mappings, has no say about samples.
    let sampling = || {
        let pairs = events.iter().zip(positions);
        pairs.filter(|(event, _)| event.attr.samples())
    };
    let first = sampling().next().or(events.iter().zip(positions).next())?.1;
    let samples_agree = sampling().all(|(_, each)| {
        (each.sample_id, each.sample_time) == (first.sample_id, first.sample_time)
    });
    let trailer = positions.first()?;
    let trailers_agree = positions.iter().all(|each| {
        (each.trailer_id, each.trailer_time) == (trailer.trailer_id, trailer.trailer_time)
    });
    (samples_agree && trailers_agree).then_some(Positions {
        sample_id: first.sample_id,
        sample_time: first.sample_time,
        trailer_id: trailer.trailer_id,
        trailer_time: trailer.trailer_time,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use dioptra_perfrecords::AttrFlags;
    use dioptra_perfrecords::record::Misc;

    fn event(fields: SampleType, id: u64) -> EventDescription {
        let attr = Attr {
            sample_period: 1,
            sample_type: fields,
            flags: AttrFlags::SAMPLE_ID_ALL,
            ..Attr::default()
        };
        EventDescription::new(attr, vec![id], ByteOrder::Little)
    }

    fn body(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn raw(kind: RecordType, body: &[u8]) -> RawRecord<'_> {
        RawRecord {
            kind,
            misc: Misc(0),
            body,
        }
    }

    /// Events whose ids stand in unlike places, which perf refuses: each is tried, and only its own events count.
    #[test]
    fn ids_in_unlike_places_are_found() {
        let plain = SampleType::IP | SampleType::TIME | SampleType::ID;
        let events = vec![
            event(plain, 7),
            event(plain | SampleType::TID | SampleType::CPU, 1 << 40),
        ];
        let table = EventTable::new(events, ByteOrder::Little);
        let first = body(&[0x1000, 50, 7]);
        let second = body(&[0x1000, 3, 60, 1 << 40, 0]);
        let find = |kind, body: &[u8]| {
            let record = raw(kind, body);
            (table.find(&record), table.time(&record))
        };
        assert_eq!(find(RecordType::SAMPLE, &first), (Some(0), Some(50)));
        assert_eq!(find(RecordType::SAMPLE, &second), (Some(1), Some(60)));
        let exit = body(&[1, 1, 70, 3, 80, 1 << 40, 0]);
        assert_eq!(find(RecordType::EXIT, &exit), (Some(1), Some(80)));
        let unknown = body(&[0x1000, 50, 8]);
        assert_eq!(find(RecordType::SAMPLE, &unknown).0, None);
    }

    #[test]
    fn a_carrier_of_mappings_has_no_say_about_samples() {
        let fields = SampleType::TIME | SampleType::ID;
        let mut carrier = event(fields | SampleType::ADDR, 1);
        carrier.attr.sample_period = 0;
        let table = EventTable::new(vec![carrier, event(fields, 2)], ByteOrder::Little);
        let sample = body(&[99, 2]);
        let sample = raw(RecordType::SAMPLE, &sample);
        assert!(table.common.is_some());
        assert_eq!(
            (table.find(&sample), table.time(&sample)),
            (Some(1), Some(99))
        );
    }

    #[test]
    fn ids_far_apart_are_found() {
        let fields = SampleType::TIME | SampleType::ID;
        let events = vec![event(fields, 5), event(fields, u64::MAX - 1)];
        let table = EventTable::new(events, ByteOrder::Little);
        assert!(matches!(table.ids, IdMap::Sparse(_)));
        assert_eq!(table.ids.get(u64::MAX - 1), Some(1));
        assert_eq!(table.ids.get(5), Some(0));
        assert_eq!(table.ids.get(6), None);
    }
}
