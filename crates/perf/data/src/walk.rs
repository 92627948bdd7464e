//! From one record of a file to the next, with the data that follows some of them.

use crate::kind::{file_type, is_file_type};
use dioptra_perfrecords::ByteOrder;
use dioptra_perfrecords::record::{HEADER_SIZE, Misc, RawRecord, RecordType};

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
    /// Returns the reason to report; `None` at an ordinary end.
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

/// The bytes at an offset where a record should be.
pub(crate) enum Next<'a> {
    Record(Step<'a>),
    /// Bytes that are no records up to here.
    Gap {
        to: usize,
    },
    Stop(Stop),
}

/// So many records in a row are no accident.
const ROW: usize = 4;

/// One more than the largest type that some perf may write. Its own are below 100 by now.
const TYPES: u32 = 128;

/// Whether the kernel or perf would write such a header. All records but some of perf's fill whole words.
#[inline]
pub(crate) fn is_ordinary(raw: &RawRecord<'_>) -> bool {
    let kind = raw.kind.0;
    kind != 0 && kind < TYPES && (raw.body.len().is_multiple_of(WORD) || is_file_type(raw.kind))
}

/// Bytes of a word.
const WORD: usize = 8;

/// A walk over the records of a file.
///
/// Bytes that are no records (of a disk or a transfer that failed) are passed over. The whole takes time in proportion
/// to the file: what was searched once is passed, and a search that found nothing is the last.
#[derive(Clone, Debug)]
pub(crate) struct Walk<'d> {
    bytes: &'d [u8],
    /// Where the data starts.
    start: usize,
    order: ByteOrder,
    /// Whether a search reached the end.
    searched: bool,
}

impl<'d> Walk<'d> {
    /// Over `bytes` from `start` on.
    pub fn new(bytes: &'d [u8], start: usize, order: ByteOrder) -> Self {
        Walk {
            bytes,
            start,
            order,
            searched: false,
        }
    }

    /// The record at `at`, which is the start or what a record before told, or where records go on behind bytes that
    /// are none.
    #[inline]
    pub fn next(&mut self, at: usize) -> Next<'d> {
        match step(self.bytes, at, self.order) {
            Ok(found) if is_ordinary(&found.raw) => Next::Record(found),
            Err(Stop::End) => Next::Stop(Stop::End),
            _ => self.doubtful(at),
        }
    }

    /// A record as nobody is known to write is one of a perf to come where others follow it. Else there may be others
    /// farther on; where there are none, it is taken for what it says.
    #[cold]
    #[inline(never)]
    fn doubtful(&mut self, at: usize) -> Next<'d> {
        let found = step(self.bytes, at, self.order);
        if let Ok(found) = found
            && let (count, stop) = row(self.bytes, found.next, self.order)
            && (count == ROW
                || stop == Some(Stop::End)
                || (count > 0 && matches!(stop, Some(Stop::Cut { .. }))))
        {
            return Next::Record(found);
        }
        if !self.searched {
            if let Some(to) = self.find_row(at) {
                return Next::Gap { to };
            }
            self.searched = true;
        }
        match found {
            Ok(found) => Next::Record(found),
            Err(stop) => Next::Stop(stop),
        }
    }

    /// The first place behind `at` where records stand in a row, or up to the end.
    fn find_row(&self, at: usize) -> Option<usize> {
        // Where all records so far filled whole words, the others will.
        let whole_words = at.wrapping_sub(self.start).is_multiple_of(WORD);
        let stride = if whole_words { WORD } else { 1 };
        let mut places = (at..self.bytes.len()).step_by(stride).skip(1);
        places.find(|place| {
            let (count, stop) = row(self.bytes, *place, self.order);
            count == ROW || (count > 0 && stop == Some(Stop::End))
        })
    }
}

/// Returns the number of ordinary records in a row from `at` on, [`ROW`] at most, and the reason why the row ends.
fn row(bytes: &[u8], mut at: usize, order: ByteOrder) -> (usize, Option<Stop>) {
    for count in 0..ROW {
        match step(bytes, at, order) {
            Ok(found) if is_ordinary(&found.raw) => at = found.next,
            Ok(_) => return (count, None),
            Err(stop) => return (count, Some(stop)),
        }
    }
    (ROW, None)
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

/// Returns the number of bytes that follow the record, as the record states.
fn trailing_length(raw: &RawRecord<'_>, order: ByteOrder) -> usize {
    let length = if raw.kind == file_type::AUXTRACE {
        raw.body.first_chunk::<8>().map(|size| order.u64(*size))
    } else {
        let size = raw.body.first_chunk::<4>();
        size.map(|size| u64::from(order.u32(*size)))
    };
    usize::try_from(length.unwrap_or(0)).unwrap_or(usize::MAX)
}
