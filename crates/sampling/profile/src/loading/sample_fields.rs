//! The few fields of a sample that counting needs, read without parsing the rest.

use dioptra_perfrecords::record::{RawRecord, RecordLayout};
use dioptra_perfrecords::{Attr, AttrFlags, ByteOrder, Cursor, ReadFormat, SampleType, U64s};

/// The fields of a sample that counting needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Essence<'a> {
    pub ip: u64,
    pub pid: u32,
    pub tid: u32,
    pub cpu: Option<u32>,
    pub weight: u64,
    pub chain: Option<U64s<'a>>,
}

/// The positions of these fields in the samples of one event.
#[derive(Clone, Debug)]
pub(crate) struct SampleShape {
    order: ByteOrder,
    /// Bytes from the body's start; `None` where samples lack the field.
    ip: Option<usize>,
    task: Option<usize>,
    cpu: Option<usize>,
    period: Option<usize>,
    chain: Option<usize>,
    /// The weight of a sample without a recorded period.
    fixed_weight: u64,
    /// Whether a field of variable length stands before the call chain.
    read_first: bool,
    reads_group: bool,
    layout: RecordLayout,
}

impl SampleShape {
    pub(crate) fn new(attr: &Attr, layout: &RecordLayout) -> Self {
        let fields = attr.sample_type;
        let offset = |field: SampleType, before: SampleType| {
            fields
                .contains(field)
                .then(|| 8 * (fields & before).bits().count_ones() as usize)
        };
        let before_ip = SampleType::IDENTIFIER;
        let before_task = before_ip | SampleType::IP;
        let before_cpu = before_task
            | SampleType::TID
            | SampleType::TIME
            | SampleType::ADDR
            | SampleType::ID
            | SampleType::STREAM_ID;
        let before_period = before_cpu | SampleType::CPU;
        SampleShape {
            order: layout.order(),
            ip: offset(SampleType::IP, before_ip),
            task: offset(SampleType::TID, before_task),
            cpu: offset(SampleType::CPU, before_cpu),
            period: offset(SampleType::PERIOD, before_period),
            chain: offset(SampleType::CALLCHAIN, before_period | SampleType::PERIOD),
            // A frequency is no period. Without PERIOD, samples of a frequency all weigh one.
            fixed_weight: if attr.flags.contains(AttrFlags::FREQ) {
                1
            } else {
                attr.sample_period.max(1)
            },
            read_first: fields.contains(SampleType::READ),
            reads_group: fields.contains(SampleType::READ)
                && attr
                    .read_format
                    .contains(ReadFormat::GROUP | ReadFormat::ID),
            layout: layout.clone(),
        }
    }

    /// Returns whether samples hold the values of their whole group, with the ids of the members.
    #[inline]
    pub(crate) fn reads_group(&self) -> bool {
        self.reads_group
    }

    /// Returns whether a sample's weight is the number of events that it stands for, not just one.
    pub(crate) fn weighs_events(&self, attr: &Attr) -> bool {
        self.period.is_some() || !attr.flags.contains(AttrFlags::FREQ)
    }

    /// Reads the fields of a sample; `None` where the record is too short for them.
    #[inline]
    pub(crate) fn essence<'a>(
        &self,
        record: &RawRecord<'a>,
        want_chain: bool,
    ) -> Option<Essence<'a>> {
        let body = record.body;
        let word = |offset: usize| {
            let bytes = body.get(offset..)?.first_chunk()?;
            Some(self.order.u64(*bytes))
        };
        let half = |offset: usize| {
            let bytes = body.get(offset..)?.first_chunk()?;
            Some(self.order.u32(*bytes))
        };
        let ip = match self.ip {
            Some(offset) => word(offset)?,
            None => 0,
        };
        let (pid, tid) = match self.task {
            Some(offset) => (half(offset)?, half(offset + 4)?),
            None => (u32::MAX, u32::MAX),
        };
        let cpu = match self.cpu {
            Some(offset) => Some(half(offset)?),
            None => None,
        };
        let weight = match self.period {
            Some(offset) => word(offset)?,
            None => self.fixed_weight,
        };
        let chain = match self.chain {
            Some(_) if want_chain && self.read_first => self.layout.sample(record).ok()?.callchain,
            Some(offset) if want_chain => {
                let mut at = Cursor::new(body.get(offset..)?, self.order);
                let count = at.u64()?;
                Some(at.u64s(count)?)
            }
            _ => None,
        };
        Some(Essence {
            ip,
            pid,
            tid,
            cpu,
            weight,
            chain,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dioptra_perfrecords::record::{Misc, RecordType};

    /// For every combination of fields up to the call chain, the shortcut reads what the whole parser reads.
    #[test]
    fn equals_the_whole_parser() {
        let words: Vec<u64> = (1..=40).collect();
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let record = RawRecord {
            kind: RecordType::SAMPLE,
            misc: Misc(2),
            body: &body,
        };
        let optional = [
            SampleType::IDENTIFIER,
            SampleType::IP,
            SampleType::TID,
            SampleType::TIME,
            SampleType::ADDR,
            SampleType::ID,
            SampleType::STREAM_ID,
            SampleType::CPU,
            SampleType::PERIOD,
            SampleType::READ,
            SampleType::CALLCHAIN,
        ];
        for bits in 0..1_u32 << optional.len() {
            let mut attr = Attr {
                sample_period: 5,
                ..Attr::default()
            };
            for (index, field) in optional.iter().enumerate() {
                if bits >> index & 1 == 1 {
                    attr.sample_type |= *field;
                }
            }
            let layout = RecordLayout::new(&attr, ByteOrder::NATIVE);
            let whole = layout.sample(&record).unwrap();
            let part = SampleShape::new(&attr, &layout)
                .essence(&record, true)
                .unwrap();
            assert_eq!(part.ip, whole.ip.unwrap_or(0), "{attr:?}");
            assert_eq!(part.pid, whole.pid.unwrap_or(u32::MAX), "{attr:?}");
            assert_eq!(part.tid, whole.tid.unwrap_or(u32::MAX), "{attr:?}");
            assert_eq!(part.cpu, whole.cpu, "{attr:?}");
            assert_eq!(part.weight, whole.period.unwrap_or(5), "{attr:?}");
            assert_eq!(part.chain, whole.callchain, "{attr:?}");
        }
    }
}
