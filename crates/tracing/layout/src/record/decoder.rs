//! The decoder: bytes in, records out.

use super::{
    ARGUMENTS, DISCARDED, ENTRY, ESCAPE, LOST, RETURNED, Record, STACK, TIME, TIME_ESCAPE, UNWOUND,
    UnwindCause,
};

/// An entry or an exit in its short form that a decoder has not taken yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain {
    /// The tick.
    pub time: u64,
    /// The id of the function that is entered; 0 for an exit.
    pub function: u32,
}

/// Bytes that are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The offset of the bytes from the decoder's start.
    pub offset: usize,
    /// The defect.
    pub what: &'static str,
}

impl core::fmt::Display for Malformed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "{} at byte {} of a chunk's records",
            self.what, self.offset
        )
    }
}

impl core::error::Error for Malformed {}

/// A decoder of records: an iterator that ends at the first unwritten byte or the first error.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
    offset: usize,
    time: u64,
}

impl<'a> Decoder<'a> {
    /// Returns a decoder for the records of a chunk whose base is `base`.
    pub fn new(bytes: &'a [u8], base: u64) -> Decoder<'a> {
        Decoder {
            bytes,
            offset: 0,
            time: base,
        }
    }

    /// Returns the number of bytes that were decoded; at the end, the number of bytes that hold records.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the tick of the last record.
    pub fn time(&self) -> u64 {
        self.time
    }

    /// Returns the next record if it is an entry or an exit in its short form, for readers that handle these faster.
    /// The record is not taken before [`Decoder::accept`]. `None` does not mean that there is no record.
    #[inline]
    pub fn plain(&self) -> Option<Plain> {
        // The two words of an entry; with fewer bytes the end is near.
        let words = self.bytes.get(self.offset..)?.first_chunk::<4>()?;
        let [a, b, c, d] = *words;
        let (first, second) = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
        let is_exit = first & 1 == 1;
        if first >= ESCAPE || !is_exit && second == 0 {
            return None;
        }
        Some(Plain {
            time: self.time.wrapping_add(u64::from(first >> 1)),
            function: if is_exit { 0 } else { u32::from(second) },
        })
    }

    /// Takes the record that [`Decoder::plain`] has returned.
    #[inline]
    pub fn accept(&mut self, plain: Plain) {
        self.offset += if plain.function == 0 { 2 } else { 4 };
        self.time = plain.time;
    }

    /// Returns true if a call's arguments follow the entry that [`Decoder::plain`] has returned.
    #[inline]
    pub fn has_arguments_behind(&self, entry: Plain) -> bool {
        let mut behind = self.clone();
        behind.accept(entry);
        behind.has_arguments()
    }

    /// Returns true if the next record is a call's arguments.
    #[inline]
    pub fn has_arguments(&self) -> bool {
        let words = self.bytes.get(self.offset..).and_then(|b| b.first_chunk());
        words.is_some_and(|[a, b, kind, _]| {
            u16::from_le_bytes([*a, *b]) == ESCAPE && *kind == ARGUMENTS
        })
    }

    #[inline]
    fn word(&self, offset: usize) -> Option<u16> {
        let bytes = self.bytes.get(offset..offset.checked_add(2)?)?;
        Some(u16::from_le_bytes(bytes.try_into().ok()?))
    }

    #[inline]
    fn step(&mut self, delta: u16, bytes: usize) -> u64 {
        self.offset += bytes;
        self.time = self.time.wrapping_add(u64::from(delta));
        self.time
    }

    #[inline]
    fn decode(&mut self) -> Option<Result<Record<'a>, Malformed>> {
        let mut first = self.word(self.offset)?;
        while first == ESCAPE
            && let Some(time) = self.time_escape()
        {
            self.step(0, 12);
            self.time = time;
            first = self.word(self.offset)?;
        }
        if first & 1 == 1 {
            if first == u16::MAX {
                return self.fail("the word 0xffff");
            }
            let time = self.step(first >> 1, 2);
            return Some(Ok(Record::Exit { time }));
        }
        let second = self.word(self.offset + 2);
        if first == ESCAPE {
            return self.escape(second);
        }
        match second {
            Some(0) | None if first == 0 => None,
            Some(0) => self.fail("an entry of function 0"),
            None => self.fail("an entry that is cut off"),
            Some(id) => {
                let time = self.step(first >> 1, 4);
                Some(Ok(Record::Entry {
                    time,
                    function: u32::from(id),
                }))
            }
        }
    }

    #[cold]
    fn fail(&mut self, what: &'static str) -> Option<Result<Record<'a>, Malformed>> {
        let offset = self.offset;
        self.bytes = self.bytes.get(..offset).unwrap_or_default();
        Some(Err(Malformed { offset, what }))
    }

    fn time_escape(&self) -> Option<u64> {
        let bytes = self.bytes.get(self.offset..self.offset.checked_add(12)?)?;
        (bytes.get(..4)? == TIME_ESCAPE.to_le_bytes()).then(|| u64_at(bytes, 4))
    }

    fn escape(&mut self, second: Option<u16>) -> Option<Result<Record<'a>, Malformed>> {
        let start = self.offset + 4;
        let Some(second) = second else {
            return self.fail("an escape that is cut off");
        };
        let [kind, words] = second.to_le_bytes();
        let bytes: &'a [u8] = self.bytes;
        let Some(payload) = bytes.get(start..start + 2 * usize::from(words)) else {
            return self.fail("an escape that is cut off");
        };
        let size = 4 + payload.len();
        let record = match (kind, payload.len()) {
            (ENTRY, 6) => {
                let function = u32_at(payload, 2);
                if function == 0 {
                    return self.fail("an entry of function 0");
                }
                let time = self.step(u16_at(payload, 0), size);
                Record::Entry { time, function }
            }
            (UNWOUND, 8) => Record::Unwound {
                time: self.step(u16_at(payload, 0), size),
                cause: UnwindCause::from_u16(u16_at(payload, 2)),
                calls: u32_at(payload, 4),
            },
            (LOST, 8) => {
                self.step(0, size);
                Record::Lost {
                    records: u64_at(payload, 0),
                }
            }
            (STACK, 6) => Record::Stack {
                time: self.step(u16_at(payload, 0), size),
                stack: u32_at(payload, 2),
            },
            (DISCARDED, 0) => {
                let exit = self.word(start).unwrap_or(0);
                if exit == 0 {
                    // The thread was killed here.
                    return None;
                }
                if exit & 1 == 0 || exit == u16::MAX {
                    return self.fail("a call that is not to be shown, and does not return");
                }
                Record::Discarded {
                    time: self.step(exit >> 1, size + 2),
                }
            }
            (ARGUMENTS, _) => {
                self.step(0, size);
                Record::Arguments { payload }
            }
            (RETURNED, _) => {
                self.step(0, size);
                Record::Returned { payload }
            }
            (0, _) => return self.fail("an escape of kind 0"),
            (TIME | ENTRY | UNWOUND | LOST | STACK | DISCARDED, _) => {
                return self.fail("an escape whose length is wrong");
            }
            _ => {
                self.step(0, size);
                Record::Other { kind, payload }
            }
        };
        Some(Ok(record))
    }
}

impl<'a> Iterator for Decoder<'a> {
    type Item = Result<Record<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.decode()
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes
        .get(at..at + 2)
        .and_then(|b| b.try_into().ok())
        .map_or(0, u16::from_le_bytes)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..at + 4)
        .and_then(|b| b.try_into().ok())
        .map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..at + 8)
        .and_then(|b| b.try_into().ok())
        .map_or(0, u64::from_le_bytes)
}
