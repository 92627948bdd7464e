//! The header of a pipe: attrs, names and features stand in records there.

use crate::error::{Damage, note};
use crate::events::EventDescription;
use crate::features::{DescribedEvent, Feature, Features, read_build_id, read_feature};
use crate::kind::file_type;
use crate::walk::{Next, Walk};
use dioptra_perfrecords::record::RawRecord;
use dioptra_perfrecords::{Attr, ByteOrder, Cursor};
use rustc_hash::FxHashMap;
use std::ops::Range;

/// The description of the whole recording in a pipe's records.
#[derive(Debug, Default)]
pub(crate) struct PipeHeader {
    pub events: Vec<EventDescription>,
    pub features: Features,
    pub described: Vec<DescribedEvent>,
    pub types: Vec<(u64, String)>,
    pub damaged: Vec<Damage>,
    /// Events by their ids.
    by_id: FxHashMap<u64, usize>,
}

/// The subjects of an EVENT_UPDATE record.
mod update {
    pub const UNIT: u64 = 0;
    pub const SCALE: u64 = 1;
    pub const NAME: u64 = 2;
}

/// Walks over all records in `range` of `bytes`, by their headers, and collects what is about the recording.
///
/// They stand at the beginning of most pipes, but build ids come anywhere.
pub(crate) fn scan(bytes: &[u8], range: Range<usize>, order: ByteOrder) -> PipeHeader {
    let mut header = PipeHeader::default();
    let bytes = bytes.get(..range.end).unwrap_or(bytes);
    let walk = Walk::new(bytes, range.start, order);
    header.scan(walk, range.start, 0, order);
    header
}

impl PipeHeader {
    /// Takes all records of a walk from `at` on that are about the recording. `base` bytes of the pipe lie before those of
    /// the walk.
    pub(crate) fn scan(&mut self, mut walk: Walk<'_>, mut at: usize, base: u64, order: ByteOrder) {
        // `PerfData::read` reports missing records.
        loop {
            let found = match walk.next(at) {
                Next::Record(found) => found,
                Next::Gap { to } => {
                    at = to;
                    continue;
                }
                Next::Stop(_) => break,
            };
            self.see(&found.raw, found.trailing, base + at as u64, order);
            at = found.next;
        }
    }

    /// Takes a record if it is about the recording.
    #[inline]
    pub(crate) fn see(
        &mut self,
        raw: &RawRecord<'_>,
        trailing: &[u8],
        offset: u64,
        order: ByteOrder,
    ) {
        if raw.kind.0 >= file_type::HEADER_ATTR.0 && self.take(raw, trailing, order).is_none() {
            let kind = crate::kind::record_name(raw.kind).unwrap_or("unknown");
            let why = format!("a record of {kind} is shorter than its content");
            note(&mut self.damaged, offset, why);
        }
    }

    /// Reads a record that is about the recording; `None` where it is too short.
    fn take(&mut self, raw: &RawRecord<'_>, trailing: &[u8], order: ByteOrder) -> Option<()> {
        let mut at = Cursor::new(raw.body, order);
        match raw.kind {
            file_type::HEADER_ATTR => {
                let attr = Attr::from_bytes(raw.body, order)?;
                at.take(attr.size as usize)?;
                let ids: Vec<u64> = at.u64s(at.rest().len() as u64 / 8)?.iter().collect();
                self.by_id
                    .extend(ids.iter().map(|id| (*id, self.events.len())));
                self.events.push(EventDescription::new(attr, ids, order));
            }
            file_type::EVENT_TYPE => {
                let config = at.u64()?;
                let name = String::from_utf8_lossy(at.c_string()).into_owned();
                self.types.push((config, name));
            }
            file_type::TRACING_DATA => {
                let length = trailing.len() as u64;
                self.features.tracing_data = Some(length);
                self.features.sections.insert(Feature::TRACING_DATA, length);
            }
            file_type::BUILD_ID => {
                self.features.build_ids.push(read_build_id(raw, order)?);
            }
            file_type::HEADER_FEATURE => {
                let feature = Feature(u32::try_from(at.u64()?).ok()?);
                // After the last one, perf writes the first number that its version does not know, without content.
                let has_content = ![Feature::BRANCH_STACK, Feature::STAT].contains(&feature);
                if has_content && at.rest().is_empty() {
                    return Some(());
                }
                let described = &mut self.described;
                read_feature(&mut self.features, described, feature, at.rest(), order).ok()?;
            }
            file_type::EVENT_UPDATE => {
                let (kind, id) = (at.u64()?, at.u64()?);
                let index = self.by_id.get(&id).copied();
                let event = index.and_then(|index| self.events.get_mut(index));
                match (kind, event) {
                    (update::UNIT, Some(event)) => event.unit = Some(lossy(at.c_string())),
                    (update::SCALE, Some(event)) => event.scale = Some(f64::from_bits(at.u64()?)),
                    (update::NAME, Some(event)) => event.name = lossy(at.c_string()),
                    _ => {}
                }
            }
            _ => {}
        }
        Some(())
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
