//! Records: what a thread writes when it enters or leaves a function.
//!
//! A sequence of 16-bit words, little endian. The first word of a record says what it is, and how many ticks have passed
//! since the record before (since the chunk's base for the first):
//!
//! | first word | bytes | meaning |
//! |---|---|---|
//! | `delta << 1`, delta < 0x7fff | 4 | entry; the second word is the function id (1 … 65535) |
//! | `delta << 1 \| 1`, delta < 0x7fff | 2 | exit of the innermost open call |
//! | 0xfffe | 4 + 2n | escape: the second word is `kind \| n << 8`, n words follow |
//! | 0xffff | | never written |
//! | 0, and no non-zero word behind it | | the end: nothing was written here |
//!
//! Escapes, all of which a reader can step over without knowing them:
//!
//! | kind | words | meaning |
//! |---|---|---|
//! | 1 time | 4 | u64: the clock stands at this tick now. Comes before a record whose delta is too large |
//! | 2 entry | 3 | u16 delta, u32 id: an entry whose id is larger than 65535 |
//! | 3 unwound | 4 | u16 delta, u16 [cause](UnwindCause), u32 n: the n innermost calls ended without returning |
//! | 4 lost | 4 | u64 n: n records of this thread are missing here |
//! | 5 arguments | n | reserved: values of the entry or exit before |
//! | 6 stack | 3 | u16 delta, u32 n: the thread goes on, on call stack n (coroutines; a stream begins on stack 0). Numbers are unique in a process: another thread may go on with a stack. First in each chunk that begins on another stack than 0; the calls that it lists are that stack's |
//! | 7 discarded | 0 | the call that returns with the next record is not to be shown, nor what it called: it was judged at its end |
//!
//! A delta is never added twice: the clock after a record is that of the record before plus delta, ticks are truncated
//! readings of the clock, so errors do not add up.

/// The largest delta that fits a short record.
pub const MAX_DELTA: u64 = 0x7ffe;
/// The first word of an escape.
pub const ESCAPE: u16 = 0xfffe;
/// The most bytes that one call of an [`Encoder`]'s methods writes, a time escape in front included.
pub const MAX_RECORD: usize = 12 + 16;

const TIME: u8 = 1;
const ENTRY: u8 = 2;
const UNWOUND: u8 = 3;
const LOST: u8 = 4;
const STACK: u8 = 6;
const DISCARDED: u8 = 7;

/// The two words with which a time escape begins, as the number that they are in memory.
pub const TIME_ESCAPE: u32 = ESCAPE as u32 | (TIME as u32 | 4 << 8) << 16;
/// The two words with which an entry with a large id begins, as the number that they are in memory.
pub const ENTRY_ESCAPE: u32 = ESCAPE as u32 | (ENTRY as u32 | 3 << 8) << 16;
/// The two words before the end of a call that is not to be shown, as the number that they are in memory.
pub const DISCARDED_ESCAPE: u32 = ESCAPE as u32 | (DISCARDED as u32) << 16;

/// Why calls ended without returning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum UnwindCause {
    /// The stack was cut: `longjmp`, or anything else that moves the stack pointer up past open calls.
    Jump = 1,
    /// An exception or a panic went through them, or the thread was cancelled or left by `pthread_exit`.
    Exception = 2,
    /// The thread ended.
    ThreadEnd = 3,
    /// A cause that this version does not know.
    Unknown = 0,
}

impl UnwindCause {
    fn from_u16(value: u16) -> UnwindCause {
        match value {
            1 => UnwindCause::Jump,
            2 => UnwindCause::Exception,
            3 => UnwindCause::ThreadEnd,
            _ => UnwindCause::Unknown,
        }
    }
}

/// A decoded record, with the tick at which it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A function is entered.
    Entry {
        /// When.
        time: u64,
        /// Which; an index into the table of functions.
        function: u32,
    },
    /// The innermost open call returns.
    Exit {
        /// When.
        time: u64,
    },
    /// The innermost calls end without returning.
    Unwound {
        /// When that was noticed (for a jump: at the next entry or exit).
        time: u64,
        /// Why.
        cause: UnwindCause,
        /// How many.
        calls: u32,
    },
    /// Records are missing here.
    Lost {
        /// How many.
        records: u64,
    },
    /// The thread goes on with another call stack.
    Stack {
        /// When.
        time: u64,
        /// Which; 0 is the one with which the stream began.
        stack: u32,
    },
    /// The innermost open call returns, and is not to be shown, nor what it called: it was judged at its end.
    Discarded {
        /// When.
        time: u64,
    },
    /// An escape that this version does not know.
    Other {
        /// Its kind.
        kind: u8,
        /// Its words, as bytes.
        payload: &'a [u8],
    },
}

/// An entry or an exit in its short form, as a decoder is about to take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain {
    /// When.
    pub time: u64,
    /// Which function is entered; 0: an exit.
    pub function: u32,
}

/// Bytes that are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Where they lie, in bytes from the decoder's start.
    pub offset: usize,
    /// What is wrong with them.
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

/// Takes records from bytes; an iterator that ends at the first unwritten byte or the first error.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
    offset: usize,
    time: u64,
}

impl<'a> Decoder<'a> {
    /// Of the records of a chunk whose base is `base`.
    pub fn new(bytes: &'a [u8], base: u64) -> Decoder<'a> {
        Decoder {
            bytes,
            offset: 0,
            time: base,
        }
    }

    /// How far it has come, in bytes: at the end, how many bytes of records there were.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The tick of the last record.
    pub fn time(&self) -> u64 {
        self.time
    }

    /// The next record if it is an entry or an exit in its short form, for readers who have a quick way for these; it is not
    /// taken before [`Decoder::accept`]. None does not mean that there is no record.
    #[inline]
    pub fn plain(&self) -> Option<Plain> {
        // Both words of an entry; whoever has less is near its end.
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

    /// Takes the record that [`Decoder::plain`] has given.
    #[inline]
    pub fn accept(&mut self, plain: Plain) {
        self.offset += if plain.function == 0 { 2 } else { 4 };
        self.time = plain.time;
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

fn u32_at(bytes: &[u8], at: usize) -> u32 {
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

/// Writes records into a zeroed buffer, in the order that keeps what is written whole if the thread is killed midway.
///
/// Each method writes a record, with a time escape before it where that is needed, or nothing at all and returns
/// `None` if the buffer has no room for it.
#[derive(Debug)]
pub struct Encoder<'a> {
    buffer: &'a mut [u8],
    used: usize,
    time: u64,
}

impl<'a> Encoder<'a> {
    /// Into `buffer`, of which `used` bytes hold records already, the last of them at the tick `time`.
    pub fn new(buffer: &'a mut [u8], used: usize, time: u64) -> Encoder<'a> {
        Encoder { buffer, used, time }
    }

    /// How many bytes of the buffer hold records.
    pub fn used(&self) -> usize {
        self.used
    }

    /// The tick of the last record.
    pub fn time(&self) -> u64 {
        self.time
    }

    /// An entry of the function with this id (not 0).
    pub fn entry(&mut self, time: u64, function: u32) -> Option<()> {
        debug_assert_ne!(function, 0);
        match u16::try_from(function) {
            Ok(id) => {
                let delta = self.delta(time, 4)?;
                let record = u32::from(delta) << 1 | u32::from(id) << 16;
                self.put(&record.to_le_bytes());
            }
            Err(_) => {
                let delta = self.delta(time, 10)?;
                let [a, b, c, d] = function.to_le_bytes();
                let [d0, d1] = delta.to_le_bytes();
                self.put_escape(ENTRY, &[d0, d1, a, b, c, d]);
            }
        }
        Some(())
    }

    /// The innermost open call returns.
    pub fn exit(&mut self, time: u64) -> Option<()> {
        let delta = self.delta(time, 2)?;
        self.put(&(delta << 1 | 1).to_le_bytes());
        Some(())
    }

    /// The innermost `calls` calls end without returning.
    pub fn unwound(&mut self, time: u64, cause: UnwindCause, calls: u32) -> Option<()> {
        let delta = self.delta(time, 12)?;
        let [d0, d1] = delta.to_le_bytes();
        let [c0, c1] = (cause as u16).to_le_bytes();
        let [a, b, c, d] = calls.to_le_bytes();
        self.put_escape(UNWOUND, &[d0, d1, c0, c1, a, b, c, d]);
        Some(())
    }

    /// That many records are missing here.
    pub fn lost(&mut self, records: u64) -> Option<()> {
        self.room(12)?;
        self.put_escape(LOST, &records.to_le_bytes());
        Some(())
    }

    /// The thread goes on, on another call stack.
    pub fn stack(&mut self, time: u64, stack: u32) -> Option<()> {
        let delta = self.delta(time, 10)?;
        let [d0, d1] = delta.to_le_bytes();
        let [a, b, c, d] = stack.to_le_bytes();
        self.put_escape(STACK, &[d0, d1, a, b, c, d]);
        Some(())
    }

    /// The innermost open call returns, and is not to be shown, nor what it called.
    pub fn discarded(&mut self, time: u64) -> Option<()> {
        let delta = self.delta(time, 6)?;
        self.put_escape(DISCARDED, &[]);
        self.put(&(delta << 1 | 1).to_le_bytes());
        Some(())
    }

    fn room(&self, bytes: usize) -> Option<()> {
        (self.buffer.len().checked_sub(self.used)? >= bytes).then_some(())
    }

    /// The delta to `time` for a record of `bytes` bytes, after a time escape if it is too large. Time does not go back: a
    /// clock that was read before the last record counts as read with it.
    fn delta(&mut self, time: u64, bytes: usize) -> Option<u16> {
        let time = time.max(self.time);
        let delta = time - self.time;
        let short = delta <= MAX_DELTA;
        self.room(if short { bytes } else { bytes + 12 })?;
        if !short {
            self.put_escape(TIME, &time.to_le_bytes());
        }
        self.time = time;
        Some(if short { delta as u16 } else { 0 })
    }

    fn put(&mut self, bytes: &[u8]) {
        if let Some(place) = self.buffer.get_mut(self.used..self.used + bytes.len()) {
            place.copy_from_slice(bytes);
            self.used += bytes.len();
        }
    }

    /// The payload first: without its first word the escape is not there.
    fn put_escape(&mut self, kind: u8, payload: &[u8]) {
        let start = self.used + 4;
        if let Some(place) = self.buffer.get_mut(start..start + payload.len()) {
            place.copy_from_slice(payload);
            let [e0, e1] = ESCAPE.to_le_bytes();
            self.put(&[e0, e1, kind, (payload.len() / 2) as u8]);
            self.used = start + payload.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    #[derive(Clone, Debug)]
    enum Step {
        Entry(u32),
        Exit,
        Unwound(u32),
        Lost(u64),
        Stack(u32),
        Discarded,
    }

    fn step() -> impl Strategy<Value = (u64, Step)> {
        let delta = prop_oneof![0..4_u64, 0x7ff0..0x8010_u64, any::<u64>()];
        let step = prop_oneof![
            prop_oneof![1..70_000_u32, 1..=u32::MAX].prop_map(Step::Entry),
            Just(Step::Exit),
            any::<u32>().prop_map(Step::Unwound),
            any::<u64>().prop_map(Step::Lost),
            any::<u32>().prop_map(Step::Stack),
            Just(Step::Discarded),
        ];
        (delta, step)
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(base: u64, steps in proptest::collection::vec(step(), 0..200)) {
            let mut buffer = vec![0; 4096];
            let mut encoder = Encoder::new(&mut buffer, 0, base);
            let mut expected = Vec::new();
            let mut time = base;
            for (delta, step) in steps {
                time = time.saturating_add(delta);
                let (done, record) = match step {
                    Step::Entry(function) => (encoder.entry(time, function), Record::Entry { time, function }),
                    Step::Exit => (encoder.exit(time), Record::Exit { time }),
                    Step::Unwound(calls) => {
                        let cause = UnwindCause::Jump;
                        (encoder.unwound(time, cause, calls), Record::Unwound { time, cause, calls })
                    }
                    Step::Lost(records) => (encoder.lost(records), Record::Lost { records }),
                    Step::Stack(stack) => (encoder.stack(time, stack), Record::Stack { time, stack }),
                    Step::Discarded => (encoder.discarded(time), Record::Discarded { time }),
                };
                if done.is_none() {
                    break;
                }
                expected.push(record);
            }
            let used = encoder.used();
            let mut decoder = Decoder::new(&buffer, base);
            let decoded: Result<Vec<_>, _> = decoder.by_ref().collect();
            prop_assert_eq!(decoded.unwrap(), expected.clone());
            prop_assert_eq!(decoder.offset(), used);
            // A shorter file gives a prefix, or an error at its end.
            let cut = used / 2;
            let prefix: Vec<_> = Decoder::new(&buffer[..cut], base).map_while(Result::ok).collect();
            prop_assert!(expected.starts_with(&prefix));
        }

        #[test]
        fn the_quick_way_gives_the_same(bytes: Vec<u8>, base: u64) {
            let mut quick = Decoder::new(&bytes, base);
            let mut decoder = quick.clone();
            loop {
                let record = match quick.plain() {
                    Some(plain) => {
                        quick.accept(plain);
                        let Plain { time, function } = plain;
                        Some(Ok(match function {
                            0 => Record::Exit { time },
                            function => Record::Entry { time, function },
                        }))
                    }
                    None => quick.next(),
                };
                prop_assert_eq!(record, decoder.next());
                prop_assert_eq!(quick.offset(), decoder.offset());
                if record.is_none() {
                    break;
                }
            }
        }

        #[test]
        fn any_bytes_are_decoded(bytes: Vec<u8>, base: u64) {
            let mut decoder = Decoder::new(&bytes, base);
            let count = decoder.by_ref().count();
            prop_assert!(count <= bytes.len() / 2 + 1);
            prop_assert!(decoder.offset() <= bytes.len());
        }

        #[test]
        fn escapes_are_decoded_whatever_their_bytes(kind: u8, words in 0..8_u8, tail: Vec<u8>) {
            let mut bytes = vec![0xfe, 0xff, kind, words];
            bytes.extend(&tail);
            prop_assert!(Decoder::new(&bytes, 0).count() <= bytes.len() / 2 + 1);
        }
    }

    #[test]
    fn an_ordinary_call_takes_six_bytes() {
        let mut buffer = [0; 64];
        let mut encoder = Encoder::new(&mut buffer, 0, 1000);
        encoder.entry(1000, 1).unwrap();
        encoder.exit(1000 + MAX_DELTA).unwrap();
        assert_eq!(encoder.used(), 6);
        encoder.exit(1001 + 2 * MAX_DELTA).unwrap();
        assert_eq!(encoder.used(), 6 + 14);
    }

    #[test]
    fn words_of_the_hot_path_are_those_of_the_encoder() {
        let mut buffer = [0; 64];
        Encoder::new(&mut buffer, 0, 0)
            .entry(1 << 20, 1 << 16)
            .unwrap();
        assert_eq!(u32_at(&buffer, 0), TIME_ESCAPE);
        assert_eq!(u32_at(&buffer, 12), ENTRY_ESCAPE);
    }

    #[test]
    fn an_unknown_escape_is_stepped_over() {
        let bytes = [0xfe, 0xff, 99, 2, 1, 2, 3, 4, 3, 0];
        let records: Vec<_> = Decoder::new(&bytes, 5).map(Result::unwrap).collect();
        assert_eq!(
            records,
            [
                Record::Other {
                    kind: 99,
                    payload: &[1, 2, 3, 4]
                },
                Record::Exit { time: 6 }
            ]
        );
    }
}
