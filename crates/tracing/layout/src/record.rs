//! Records: the words that a thread writes when it enters or leaves a function.
//!
//! A stream of records is a sequence of 16-bit words, little endian. The first word of a record says what the record
//! is and how many ticks have passed since the record before (for the first record: since the chunk's base):
//!
//! ```text
//! entry, 4 bytes                        exit, 2 bytes           escape, 4 + 2n bytes
//! | delta:15 | 0 | function id:16 |     | delta:15 | 1 |        | 0xfffe:16 | kind:8 | n:8 | n words |
//! ```
//!
//! | first word | bytes | meaning |
//! |---|---|---|
//! | `delta << 1`, delta < 0x7fff | 4 | entry; the second word is the function id (1 … 65535) |
//! | `delta << 1 \| 1`, delta < 0x7fff | 2 | exit of the innermost open call |
//! | 0xfffe | 4 + 2n | escape: the second word is `kind \| n << 8`, n words follow |
//! | 0xffff | | never written |
//! | 0, and no non-zero word behind it | | the end: nothing was written here |
//!
//! A reader can step over every escape without knowing its kind:
//!
//! | kind | words | meaning |
//! |---|---|---|
//! | 1 time | 4 | u64: the clock stands at this tick now. Comes before a record whose delta is too large |
//! | 2 entry | 3 | u16 delta, u32 id: an entry whose id is larger than 65535 |
//! | 3 unwound | 4 | u16 delta, u16 [cause](UnwindCause), u32 n: the n innermost calls ended without returning |
//! | 4 lost | 4 | u64 n: n records of this thread are missing here |
//! | 5 arguments | n | [values](crate::values) of the innermost open call, which the record before has begun |
//! | 6 stack | 3 | u16 delta, u32 n: the thread goes on, on call stack n (coroutines; a stream begins on stack 0). Numbers are unique in a process: another thread may go on with a stack. First in each chunk that begins on another stack than 0; the calls that the chunk lists are that stack's |
//! | 7 discarded | 0 | the call that returns with the next record was judged at its end: neither the call nor the calls below it are shown |
//! | 8 returned | n | [values](crate::values) with which the innermost open call returns, by the next record that is an exit |
//!
//! Errors do not add up: ticks are truncated readings of the clock, and the clock after a record is the clock after
//! the record before plus the delta.

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
/// The largest number of bytes that one call of an [`Encoder`]'s methods writes, a time escape in front included.
pub const MAX_RECORD: usize = 12 + 16;

const TIME: u8 = 1;
const ENTRY: u8 = 2;
const UNWOUND: u8 = 3;
const LOST: u8 = 4;
const ARGUMENTS: u8 = 5;
const STACK: u8 = 6;
const DISCARDED: u8 = 7;
const RETURNED: u8 = 8;

/// The first two words of a time escape, as one number in memory.
pub const TIME_ESCAPE: u32 = ESCAPE as u32 | (TIME as u32 | 4 << 8) << 16;
/// The first two words of an entry with a large id, as one number in memory.
pub const ENTRY_ESCAPE: u32 = ESCAPE as u32 | (ENTRY as u32 | 3 << 8) << 16;
/// The first two words of an escape with a call's arguments and no payload, as one number in memory. The number of
/// words of the payload is added to its uppermost byte.
pub const ARGUMENTS_ESCAPE: u32 = ESCAPE as u32 | (ARGUMENTS as u32) << 16;
/// The first two words of an escape with one word of 8 bytes that a call returns, as one number in memory.
pub const RETURNED_ESCAPE: u32 = ESCAPE as u32 | (RETURNED as u32 | 4 << 8) << 16;
/// The number of bytes in front of the payload of an escape.
pub const ESCAPE_HEAD: usize = 4;
/// The two words in front of the exit of a call that is not shown, as one number in memory.
pub const DISCARDED_ESCAPE: u32 = ESCAPE as u32 | (DISCARDED as u32) << 16;

/// The reason why calls ended without returning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum UnwindCause {
    /// The stack was cut: by `longjmp`, or by anything else that moves the stack pointer up past open calls.
    Jump = 1,
    /// An exception or a panic passed through the calls, or the thread was cancelled or left by `pthread_exit`.
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
        /// The tick.
        time: u64,
        /// The function's id, an index into the table of functions.
        function: u32,
    },
    /// The innermost open call returns.
    Exit {
        /// The tick.
        time: u64,
    },
    /// The innermost calls end without returning.
    Unwound {
        /// The tick at which the runtime noticed it (for a jump: at the next entry or exit).
        time: u64,
        /// The cause.
        cause: UnwindCause,
        /// The number of calls.
        calls: u32,
    },
    /// Records are missing here.
    Lost {
        /// The number of missing records.
        records: u64,
    },
    /// The thread goes on with another call stack.
    Stack {
        /// The tick.
        time: u64,
        /// The number of the call stack; 0 is the stack on which the stream began.
        stack: u32,
    },
    /// The innermost open call returns. It was judged at its end: neither the call nor the calls below it are shown.
    Discarded {
        /// The tick.
        time: u64,
    },
    /// The arguments of the innermost open call.
    Arguments {
        /// The [values](crate::values).
        payload: &'a [u8],
    },
    /// The values with which the innermost open call returns.
    Returned {
        /// The [values](crate::values).
        payload: &'a [u8],
    },
    /// An escape that this version does not know.
    Other {
        /// The escape's kind.
        kind: u8,
        /// The escape's words as bytes.
        payload: &'a [u8],
    },
}
