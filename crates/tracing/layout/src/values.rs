//! Values of calls: arguments and return values.
//!
//! A *fetch* says where the runtime finds a value and how much of it is recorded. The recorder puts the fetches of a
//! function in the pool, behind the function's thunk:
//!
//! ```text
//! thunk | slot, …, ValueNumbers | …    | ValueList, Fetch, Fetch, …
//!         32 bytes                       at ValueNumbers::distance
//! ```
//!
//! The values of a call's entry, or of its exit, are the payload of one escape ([`crate::record`]), in the order of the
//! fetches:
//!
//! | fetch | bytes |
//! |---|---|
//! | [`WORD`] | 8: the word |
//! | all others | 2: the [head](HEAD_LENGTH); then the bytes, and one more if their number is odd |
//! | the same, if the memory can't be read ([`HEAD_UNREADABLE`]) | 2: the head; 8: the pointer |

/// A fetch of one word: a register, or a word of the stack.
pub const WORD: u8 = 0;
/// A fetch of the text that a pointer leads to, up to its zero byte.
pub const TEXT: u8 = 1;
/// A fetch of the text of libstdc++'s `std::string`, to which a pointer leads: the string's address and length are its
/// first two words.
pub const STRING: u8 = 2;
/// A fetch of memory whose address is in one place and whose number of elements is in another one: a slice.
pub const SLICE: u8 = 3;
/// A fetch of memory of a fixed size on the stack, where structs are passed by value.
pub const STACK: u8 = 4;
/// A fetch of memory of a fixed size to which a pointer leads.
pub const MEMORY: u8 = 5;

/// The place of the first of the six registers for integer arguments: rdi, rsi, rdx, rcx, r8, r9.
pub const INTEGER_REGISTER: u8 = 0;
/// The number of registers for integer arguments.
pub const INTEGER_REGISTERS: u8 = 6;
/// The place of the first of the eight registers for floating-point arguments: xmm0 to xmm7. Return values are in the
/// first two of them, too.
pub const FLOAT_REGISTER: u8 = 8;
/// The number of registers for floating-point arguments.
pub const FLOAT_REGISTERS: u8 = 8;
/// The place of the first of the two registers for return values: rax, rdx.
pub const RETURN_REGISTER: u8 = 16;
/// The place of the first word of arguments on the stack; the others follow.
pub const STACK_WORD: u8 = 32;

/// The bits of a head with the number of bytes that follow.
pub const HEAD_LENGTH: u16 = 0x0fff;
/// The bit of a head that says that there were more bytes.
pub const HEAD_CUT: u16 = 0x1000;
/// The bit of a head that says that the pointer was null.
pub const HEAD_NULL: u16 = 0x2000;
/// The bit of a head that says that the memory could not be read. The pointer follows.
pub const HEAD_UNREADABLE: u16 = 0x4000;

/// The largest number of values of an entry or of an exit.
pub const MOST_VALUES: usize = 24;
/// The largest number of bytes of an entry's or an exit's values: the payload of an escape has at most 255 words.
pub const MOST_BYTES: usize = 510;
/// The largest number of bytes that a fetch of memory records.
pub const MOST_TEXT: u16 = 480;
/// The number of bytes of a text that are recorded if nothing else is asked for.
pub const USUAL_TEXT: u16 = 64;

/// The instruction to record one value.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fetch {
    /// The kind: [`WORD`], [`TEXT`], [`STRING`], [`SLICE`], [`STACK`] or [`MEMORY`].
    pub kind: u8,
    /// The place of the word, or of the pointer.
    pub place: u8,
    /// The place of a slice's number of elements.
    pub second: u8,
    /// Always 0.
    pub reserved: u8,
    /// The largest number of bytes that are recorded; with [`STACK`] and [`MEMORY`] their number.
    pub limit: u16,
    /// The size of a slice's element in bytes.
    pub element: u16,
}

impl Fetch {
    /// Returns the fetch of a word.
    pub const fn word(place: u8) -> Fetch {
        Fetch {
            kind: WORD,
            place,
            second: 0,
            reserved: 0,
            limit: 0,
            element: 0,
        }
    }

    /// Returns the fetch's bytes.
    pub fn to_bytes(self) -> [u8; 8] {
        let [a, b] = self.limit.to_le_bytes();
        let [c, d] = self.element.to_le_bytes();
        [self.kind, self.place, self.second, 0, a, b, c, d]
    }
}

/// The numbers of a function's values, at [`THUNK_VALUES`](crate::message::thread::THUNK_VALUES) behind its thunk.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ValueNumbers {
    /// The distance of the [`ValueList`] from here.
    pub distance: i32,
    /// The registers for integer arguments that a hook records by itself: bit 0 is the first register.
    pub registers: u8,
    /// The number of 16-bit words that these registers take in a record.
    pub words: u8,
    /// Always 0.
    pub reserved: u16,
}

/// The beginning of a function's list of fetches.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ValueList {
    /// The number of fetches of the entry, which follow.
    pub arguments: u16,
    /// The number of fetches of the exit, which follow those of the entry.
    pub returned: u16,
    /// Always 0.
    pub reserved: u32,
}

/// One recorded value, as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawValue<'a> {
    /// A word.
    Word(u64),
    /// Memory that was read; the flag says whether there was more.
    Bytes(&'a [u8], bool),
    /// The pointer was null.
    Null,
    /// The memory at this address could not be read.
    Unreadable(u64),
}

/// Takes the next value off a payload; `kind` is its fetch's. Returns `None` if the payload is too short.
pub fn take<'a>(payload: &mut &'a [u8], kind: u8) -> Option<RawValue<'a>> {
    if kind == WORD {
        let (word, rest) = payload.split_first_chunk()?;
        *payload = rest;
        return Some(RawValue::Word(u64::from_le_bytes(*word)));
    }
    let (head, rest) = payload.split_first_chunk()?;
    let head = u16::from_le_bytes(*head);
    if head & HEAD_NULL != 0 {
        *payload = rest;
        return Some(RawValue::Null);
    }
    if head & HEAD_UNREADABLE != 0 {
        let (pointer, rest) = rest.split_first_chunk()?;
        *payload = rest;
        return Some(RawValue::Unreadable(u64::from_le_bytes(*pointer)));
    }
    let length = usize::from(head & HEAD_LENGTH);
    let bytes = rest.get(..length)?;
    *payload = rest.get(length.next_multiple_of(2)..)?;
    Some(RawValue::Bytes(bytes, head & HEAD_CUT != 0))
}

const _: () = {
    assert!(size_of::<Fetch>() == 8 && size_of::<ValueNumbers>() == 8);
    assert!(size_of::<ValueList>() == 8);
    assert!(MOST_TEXT as usize + 2 <= MOST_BYTES && MOST_TEXT <= HEAD_LENGTH);
    // Null pointers and unreadable ones take no more than this; so a call's values always fit in some form.
    assert!(MOST_VALUES * 10 <= MOST_BYTES);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_taken_one_after_the_other() {
        let mut bytes = std::vec::Vec::new();
        bytes.extend(7u64.to_le_bytes());
        bytes.extend((3 | HEAD_CUT).to_le_bytes());
        bytes.extend(b"abc\0");
        bytes.extend(HEAD_NULL.to_le_bytes());
        bytes.extend(HEAD_UNREADABLE.to_le_bytes());
        bytes.extend(99u64.to_le_bytes());
        let mut rest = bytes.as_slice();
        assert_eq!(take(&mut rest, WORD), Some(RawValue::Word(7)));
        assert_eq!(take(&mut rest, TEXT), Some(RawValue::Bytes(b"abc", true)));
        assert_eq!(take(&mut rest, TEXT), Some(RawValue::Null));
        assert_eq!(take(&mut rest, SLICE), Some(RawValue::Unreadable(99)));
        assert_eq!(take(&mut rest, WORD), None);
        for length in 0..bytes.len() {
            // Payloads that are cut off give fewer values and no wrong ones.
            let mut rest = &bytes[..length];
            let kinds = [WORD, TEXT, TEXT, SLICE];
            let count = kinds
                .iter()
                .map_while(|kind| take(&mut rest, *kind))
                .count();
            assert!(count < kinds.len(), "{length} bytes");
        }
    }
}
