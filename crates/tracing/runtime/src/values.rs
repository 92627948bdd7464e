//! The values of calls: arguments at entries, return values at exits.
//!
//! The recorder has written down behind a function's thunk which registers and which memory are recorded
//! ([`dioptra_tracelayout::values`]). The registers are those that a hook has saved. Memory is only read by a system
//! call that fails where nothing is mapped: pointers of programs may be any number.

use crate::arch::{EnterFrame, ExitFrame};
use crate::{confined, sys};
use core::ptr;
use core::slice;
use dioptra_tracelayout::Encoder;
use dioptra_tracelayout::values::{
    Fetch, HEAD_CUT, HEAD_NULL, HEAD_UNREADABLE, MEMORY, MOST_BYTES, MOST_TEXT, SLICE, STACK,
    STACK_WORD, STRING, TEXT, ValueList, ValueNumbers, WORD,
};

/// The largest number of bytes that are read of one text: one more than is recorded shows whether there is more.
const BUFFER: usize = MOST_TEXT as usize + 8;

/// The recorded values of an entry or an exit.
#[derive(Debug)]
pub struct Values {
    bytes: [u8; MOST_BYTES],
    used: usize,
}

impl Values {
    /// Returns no values.
    pub const NONE: Values = Values {
        bytes: [0; MOST_BYTES],
        used: 0,
    };

    /// Returns the payload of the record.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.used).unwrap_or_default()
    }

    /// Returns the number of bytes of the record; 0 if there is none.
    pub fn size(&self) -> usize {
        match self.used {
            0 => 0,
            used => used + dioptra_tracelayout::record::ESCAPE_HEAD,
        }
    }

    /// Writes the record with `record`, if there are values.
    pub fn write<'e>(
        &self,
        to: &mut Encoder<'e>,
        record: impl FnOnce(&mut Encoder<'e>, &[u8]) -> Option<()>,
    ) -> Option<()> {
        match self.used {
            0 => Some(()),
            _ => record(to, self.bytes()),
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        if let Some(place) = self.bytes.get_mut(self.used..self.used + bytes.len()) {
            place.copy_from_slice(bytes);
            self.used += bytes.len();
        }
    }

    fn put_head(&mut self, head: u16) {
        self.put(&head.to_le_bytes());
    }

    /// Adds the memory at an address, `length` bytes, of which `limit` at most are recorded. `until_zero` ends it at
    /// the first zero byte. `keep` bytes are left for the values behind.
    fn put_memory(&mut self, address: u64, length: u64, limit: u16, until_zero: bool, keep: usize) {
        if address == 0 {
            return self.put_head(HEAD_NULL);
        }
        let room = MOST_BYTES.saturating_sub(self.used + keep + 2) & !1;
        let most = usize::from(limit.min(MOST_TEXT)).min(room);
        let wanted = usize::try_from(length).unwrap_or(usize::MAX);
        let mut buffer = [0; BUFFER];
        let reads = wanted.min(most + 1).min(BUFFER);
        let buffer = buffer.get_mut(..reads).unwrap_or_default();
        // A process that has forbidden itself system calls can't ask the kernel.
        let read = match confined::is_quiet() {
            true => &[][..],
            false => sys::read_bytes(sys::pid(), address, buffer),
        };
        if read.is_empty() && reads > 0 {
            self.put_head(HEAD_UNREADABLE);
            return self.put(&address.to_le_bytes());
        }
        let zero = match until_zero {
            true => read.iter().position(|byte| *byte == 0),
            false => None,
        };
        let found = zero.unwrap_or(read.len());
        let kept = found.min(most);
        let is_cut = found > most || zero.is_none() && (read.len() < reads || wanted > kept);
        self.put_head(kept as u16 | if is_cut { HEAD_CUT } else { 0 });
        self.put(read.get(..kept).unwrap_or_default());
        if kept % 2 == 1 {
            self.put(&[0]);
        }
    }
}

/// The registers of a hook, and the call's slot.
#[derive(Clone, Copy)]
struct Registers<'a> {
    word: &'a dyn Fn(u8) -> Option<u64>,
    slot: u64,
}

impl Registers<'_> {
    fn get(self, place: u8) -> Option<u64> {
        match place.checked_sub(STACK_WORD) {
            Some(number) => sys::peek(sys::pid(), self.slot + 8 + 8 * u64::from(number)),
            None => (self.word)(place),
        }
    }
}

/// Returns the arguments of a call whose hook has saved `frame`, and its vector registers at `vectors`.
///
/// # Safety
/// [`ValueNumbers`] follow the thunk.
pub unsafe fn arguments(frame: &EnterFrame, vectors: *const u8) -> Values {
    let word = |place| frame.word(place, vectors);
    let registers = Registers {
        word: &word,
        slot: frame.slot(),
    };
    // SAFETY: the caller's promise.
    unsafe { fetch(frame.value_numbers(), registers, false) }
}

/// Returns the values with which a call returns; see [`arguments`].
///
/// # Safety
/// [`ValueNumbers`] follow the thunk.
pub unsafe fn returned(frame: &ExitFrame, vectors: *const u8) -> Values {
    let word = |place| frame.word_at_exit(place, vectors);
    let registers = Registers {
        word: &word,
        slot: frame.slot(),
    };
    // SAFETY: the caller's promise.
    unsafe { fetch(frame.value_numbers_at_exit(), registers, true) }
}

unsafe fn fetch(numbers: u64, registers: Registers<'_>, at_exit: bool) -> Values {
    let at = |address: u64| address as usize;
    // SAFETY: the caller's promise: the recorder has put these structs there.
    let fetches = unsafe {
        let numbers_at = ptr::with_exposed_provenance::<ValueNumbers>(at(numbers));
        let distance = numbers_at.read_unaligned().distance;
        let list = numbers.wrapping_add_signed(i64::from(distance));
        let count = ptr::with_exposed_provenance::<ValueList>(at(list)).read_unaligned();
        let first = ptr::with_exposed_provenance::<Fetch>(at(list) + size_of::<ValueList>());
        let arguments = usize::from(count.arguments);
        match at_exit {
            false => slice::from_raw_parts(first, arguments),
            true => slice::from_raw_parts(first.add(arguments), usize::from(count.returned)),
        }
    };
    let mut values = Values::NONE;
    for (number, fetch) in fetches.iter().enumerate() {
        // Each value behind takes at most this much if its text is left out.
        let keep = (fetches.len() - number - 1) * 10;
        if add(&mut values, fetch, registers, keep).is_none() {
            // Values that can't be found are no values; those behind would be taken for them.
            return Values::NONE;
        }
    }
    values
}

fn add(values: &mut Values, fetch: &Fetch, registers: Registers<'_>, keep: usize) -> Option<()> {
    let limit = fetch.limit;
    if fetch.kind == STACK {
        let number = u64::from(fetch.place.checked_sub(STACK_WORD)?);
        let address = registers.slot + 8 + 8 * number;
        values.put_memory(address, u64::from(limit), limit, false, keep);
        return Some(());
    }
    let word = registers.get(fetch.place)?;
    match fetch.kind {
        WORD => values.put(&word.to_le_bytes()),
        TEXT => values.put_memory(word, u64::MAX, limit, true, keep),
        MEMORY => values.put_memory(word, u64::from(limit), limit, false, keep),
        SLICE => {
            let count = registers.get(fetch.second)?;
            let length = count.saturating_mul(u64::from(fetch.element));
            values.put_memory(word, length, limit, false, keep);
        }
        STRING => {
            let mut object = [0; 16];
            let object = match word {
                0 => {
                    values.put_head(HEAD_NULL);
                    return Some(());
                }
                _ if confined::is_quiet() => &[],
                _ => sys::read_bytes(sys::pid(), word, &mut object),
            };
            match object.as_chunks::<8>() {
                ([text, length], _) => values.put_memory(
                    u64::from_le_bytes(*text),
                    u64::from_le_bytes(*length),
                    limit,
                    false,
                    keep,
                ),
                _ => {
                    values.put_head(HEAD_UNREADABLE);
                    values.put(&word.to_le_bytes());
                }
            }
        }
        _ => return None,
    }
    Some(())
}
