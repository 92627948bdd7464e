//! From one record of a file to the next, with the data that follows some of them.

use crate::kind::file_type;
use dioptra_perfevents::ByteOrder;
use dioptra_perfevents::record::{HEADER_SIZE, Misc, RawRecord, RecordType};

/// A record and what lies between it and the next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step<'a> {
    pub raw: RawRecord<'a>,
    /// Data after the record that belongs to it: of AUXTRACE and TRACING_DATA.
    pub trailing: &'a [u8],
    /// Where the next record starts.
    pub next: usize,
}

/// Why there is no next record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The bytes end here.
    End,
    /// The bytes end within a record of this size.
    Cut { needed: u64, have: u64 },
    /// A header states a size smaller than itself.
    Size { kind: RecordType, size: usize },
}

impl Stop {
    /// What to tell of it; `None` at an ordinary end.
    pub fn why(self) -> Option<String> {
        match self {
            Stop::End => None,
            Stop::Cut { needed, have } => Some(format!(
                "the file ends within a record: {needed} bytes needed, {have} left"
            )),
            Stop::Size { kind, size } => Some(format!(
                "a record of {kind} states a size of {size} bytes, less than its header"
            )),
        }
    }
}

/// The record at `at`.
#[inline]
pub(crate) fn step(bytes: &[u8], at: usize, order: ByteOrder) -> Result<Step<'_>, Stop> {
    let rest = bytes.get(at..).unwrap_or_default();
    let Some(header) = rest.first_chunk::<HEADER_SIZE>() else {
        return Err(cut(rest, HEADER_SIZE as u64));
    };
    let [a, b, c, d, e, f, g, h] = *header;
    let kind = RecordType(order.u32([a, b, c, d]));
    let size = usize::from(order.u16([g, h]));
    if size < HEADER_SIZE {
        return Err(Stop::Size { kind, size });
    }
    let Some(record) = rest.get(..size) else {
        return Err(cut(rest, size as u64));
    };
    let raw = RawRecord {
        kind,
        misc: Misc(order.u16([e, f])),
        body: &record[HEADER_SIZE..],
    };
    let mut step = Step {
        raw,
        trailing: &[],
        next: at + size,
    };
    if kind == file_type::AUXTRACE || kind == file_type::TRACING_DATA {
        let length = trailing_length(&raw, order);
        let Some(end) = length.checked_add(size).filter(|end| *end <= rest.len()) else {
            let needed = (size as u64).saturating_add(length as u64);
            return Err(cut(rest, needed));
        };
        step.trailing = &rest[size..end];
        step.next = at + end;
    }
    Ok(step)
}

fn cut(rest: &[u8], needed: u64) -> Stop {
    if rest.is_empty() {
        Stop::End
    } else {
        Stop::Cut {
            needed,
            have: rest.len() as u64,
        }
    }
}

/// How many bytes follow the record, as it states.
fn trailing_length(raw: &RawRecord<'_>, order: ByteOrder) -> usize {
    let length = if raw.kind == file_type::AUXTRACE {
        raw.body.first_chunk::<8>().map(|size| order.u64(*size))
    } else {
        let size = raw.body.first_chunk::<4>();
        size.map(|size| u64::from(order.u32(*size)))
    };
    usize::try_from(length.unwrap_or(0)).unwrap_or(usize::MAX)
}
