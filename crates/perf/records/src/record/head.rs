//! The front of a sample: the fields up to the call chain, at offsets that are worked out once.
//!
//! Every field before the counter values is one word, so its place depends on the attr alone.

use super::layout::RecordLayout;
use super::sample::ReadValues;
use super::{RawRecord, RecordError, RecordType};
use crate::attr::SampleType;
use crate::bytes::{Cursor, U64s};

/// The front of a sample, cheap to take: who, where, when, how much, and the call chain. A field that the attr did not
/// ask for is `None`. What stands behind the call chain is neither read nor checked: [`RecordLayout::sample`] does.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct SampleHead<'a> {
    /// Event id, from `IDENTIFIER` or else `ID`.
    pub id: Option<u64>,
    /// Instruction pointer.
    pub ip: Option<u64>,
    /// Process id.
    pub pid: Option<u32>,
    /// Thread id.
    pub tid: Option<u32>,
    /// Nanoseconds of the event's clock.
    pub time: Option<u64>,
    /// The address that the event is about.
    pub addr: Option<u64>,
    /// Id of the event's clone.
    pub stream_id: Option<u64>,
    /// CPU number.
    pub cpu: Option<u32>,
    /// Events since the previous sample.
    pub period: Option<u64>,
    /// Counter values.
    pub read: Option<ReadValues<'a>>,
    /// Call chain, innermost first, with context marks (`PERF_CONTEXT_*`) among the addresses.
    pub callchain: Option<U64s<'a>>,
}

/// The fields of one word each, in the order of a sample.
const WORDS: [(SampleType, &str); 9] = [
    (SampleType::IDENTIFIER, "IDENTIFIER"),
    (SampleType::IP, "IP"),
    (SampleType::TID, "TID"),
    (SampleType::TIME, "TIME"),
    (SampleType::ADDR, "ADDR"),
    (SampleType::ID, "ID"),
    (SampleType::STREAM_ID, "STREAM_ID"),
    (SampleType::CPU, "CPU"),
    (SampleType::PERIOD, "PERIOD"),
];

/// Offset of a field in bytes from the start of a sample's body; [`ABSENT`] where there is none.
type WordIndex = u8;

/// Behind every prefix: reading there gives nothing.
const ABSENT: WordIndex = u8::MAX;

/// Where the fields of one word each stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Prefix {
    /// Bytes of all of them.
    length: usize,
    id: WordIndex,
    ip: WordIndex,
    task: WordIndex,
    time: WordIndex,
    addr: WordIndex,
    stream_id: WordIndex,
    cpu: WordIndex,
    period: WordIndex,
    read: bool,
    callchain: bool,
}

impl Prefix {
    pub fn new(fields: SampleType) -> Self {
        let mut places = [ABSENT; WORDS.len()];
        let mut length: WordIndex = 0;
        for (place, (field, _)) in places.iter_mut().zip(WORDS) {
            if fields.contains(field) {
                *place = length;
                length += 8;
            }
        }
        let [identifier, ip, task, time, addr, id, stream_id, cpu, period] = places;
        Prefix {
            length: usize::from(length),
            id: if identifier == ABSENT { id } else { identifier },
            ip,
            task,
            time,
            addr,
            stream_id,
            cpu,
            period,
            read: fields.contains(SampleType::READ),
            callchain: fields.contains(SampleType::CALLCHAIN),
        }
    }

    /// Returns the field within which a body of `length` bytes ends, where it is shorter than the prefix.
    fn cut_field(&self, fields: SampleType, length: usize) -> &'static str {
        let mut present = WORDS.iter().filter(|(field, _)| fields.contains(*field));
        present.nth(length / 8).map_or("PERIOD", |(_, name)| name)
    }
}

impl RecordLayout {
    /// Reads the front of a sample: a fraction of the cost of [`RecordLayout::sample`], for those who count samples.
    ///
    /// # Errors
    /// [`RecordError::Field`] where the record ends before the end of the call chain.
    #[inline]
    pub fn head<'a>(&self, record: &RawRecord<'a>) -> Result<SampleHead<'a>, RecordError> {
        match self.head_and_rest(record.body) {
            Ok((head, _)) => Ok(head),
            Err(field) => Err(cut(field, record)),
        }
    }

    /// Splits a sample's body into its front and the rest; the error is the name of the field that is cut.
    #[inline]
    pub(super) fn head_and_rest<'a>(
        &self,
        body: &'a [u8],
    ) -> Result<(SampleHead<'a>, Cursor<'a>), &'static str> {
        let prefix = &self.prefix;
        let order = self.order;
        let Some((words, rest)) = body.split_at_checked(prefix.length) else {
            return Err(prefix.cut_field(self.sample_type, body.len()));
        };
        let word = |place: WordIndex| {
            let bytes = words.get(usize::from(place)..)?.first_chunk::<8>()?;
            Some(order.u64(*bytes))
        };
        let half = |place: WordIndex, second: usize| {
            let bytes = words.get(usize::from(place) + second..)?;
            Some(order.u32(*bytes.first_chunk::<4>()?))
        };
        let mut at = Cursor::new(rest, order);
        let read = if prefix.read {
            Some(ReadValues::parse(&mut at, self.read_format).ok_or("READ")?)
        } else {
            None
        };
        let callchain = if prefix.callchain {
            let count = at.u64().ok_or("CALLCHAIN")?;
            Some(at.u64s(count).ok_or("CALLCHAIN")?)
        } else {
            None
        };
        let head = SampleHead {
            id: word(prefix.id),
            ip: word(prefix.ip),
            pid: half(prefix.task, 0),
            tid: half(prefix.task, 4),
            time: word(prefix.time),
            addr: word(prefix.addr),
            stream_id: word(prefix.stream_id),
            cpu: half(prefix.cpu, 0),
            period: word(prefix.period),
            read,
            callchain,
        };
        Ok((head, at))
    }
}

/// Makes the error of a sample that is too short.
#[cold]
pub(super) fn cut(field: &'static str, record: &RawRecord<'_>) -> RecordError {
    RecordError::Field {
        kind: RecordType::SAMPLE,
        field,
        length: record.body.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::Attr;
    use crate::bytes::ByteOrder;
    use crate::record::Misc;

    /// For every combination of fields the words come out one after the other, as the manual page orders them; a body
    /// that ends earlier names the field in which it does.
    #[test]
    fn every_combination_of_fields_is_read_in_order() {
        for bits in 0..1_u32 << WORDS.len() {
            let mut fields = SampleType::CALLCHAIN;
            let mut names = Vec::new();
            for (index, (field, name)) in WORDS.iter().enumerate() {
                if bits >> index & 1 == 1 {
                    fields |= *field;
                    names.push(*name);
                }
            }
            let attr = Attr {
                sample_type: fields,
                ..Attr::default()
            };
            let layout = RecordLayout::new(&attr, ByteOrder::Little);
            // Each word tells its place in both halves; then a chain of two.
            let words = (0..names.len() as u64).map(|word| (word + 100) << 32 | word);
            let body: Vec<u8> = words
                .chain([2, 0xaaaa, 0xbbbb])
                .flat_map(u64::to_le_bytes)
                .collect();
            let raw = |body| RawRecord {
                kind: RecordType::SAMPLE,
                misc: Misc(2),
                body,
            };
            let head = layout.head(&raw(&body)).unwrap();
            let expected = |name: &str| {
                let place = names.iter().position(|each| *each == name)? as u64;
                Some((place + 100) << 32 | place)
            };
            let low = |name| expected(name).map(|word| word as u32);
            assert_eq!(head.id, expected("IDENTIFIER").or(expected("ID")));
            assert_eq!(head.ip, expected("IP"));
            assert_eq!(head.pid, low("TID"));
            assert_eq!(head.tid, expected("TID").map(|word| (word >> 32) as u32));
            assert_eq!(head.time, expected("TIME"));
            assert_eq!(head.addr, expected("ADDR"));
            assert_eq!(head.stream_id, expected("STREAM_ID"));
            assert_eq!(head.cpu, low("CPU"));
            assert_eq!(head.period, expected("PERIOD"));
            let chain: Vec<u64> = head.callchain.unwrap().iter().collect();
            assert_eq!(chain, [0xaaaa, 0xbbbb]);
            let sample = layout.sample(&raw(&body)).unwrap();
            assert_eq!((sample.id, sample.cpu), (head.id, head.cpu));
            for end in 0..body.len() {
                let field = names.get(end / 8).copied().unwrap_or("CALLCHAIN");
                let expected = RecordError::Field {
                    kind: RecordType::SAMPLE,
                    field,
                    length: end,
                };
                assert_eq!(layout.head(&raw(&body[..end])), Err(expected.clone()));
                assert_eq!(layout.sample(&raw(&body[..end])), Err(expected));
            }
        }
    }
}
