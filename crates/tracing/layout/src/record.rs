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

mod decoder;
mod encoder;
#[cfg(test)]
mod tests;

pub use decoder::{Decoder, Malformed, Plain};
pub use encoder::Encoder;

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
