//! The values that are recorded with a function's calls, as the runtime reads them.

use dioptra_tracelayout::message::thread::{THUNK_SLOT, THUNK_VALUES};
use dioptra_tracelayout::values::{Fetch, INTEGER_REGISTERS, ValueList, ValueNumbers, WORD};

/// The fetches of the values that are recorded with the calls of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fetches {
    /// The fetches of the entry.
    pub entry: Vec<Fetch>,
    /// The fetches of the exit.
    pub exit: Vec<Fetch>,
}

impl Fetches {
    /// Returns the registers for integer arguments, as bits from the first register on, if the entry's values are such
    /// registers in rising order and nothing else.
    pub fn registers(&self) -> Option<u8> {
        let mut bits: u8 = 0;
        for fetch in &self.entry {
            let is_register = fetch.kind == WORD && fetch.place < INTEGER_REGISTERS;
            let bit = is_register.then(|| 1 << fetch.place)?;
            // A register that is not behind all others would be recorded before them.
            if bits >= bit {
                return None;
            }
            bits |= bit;
        }
        Some(bits)
    }

    /// Writes the numbers of the values into the part behind a thunk, in front of which the list is `distance` bytes
    /// away. Returns `None` if the list is out of reach.
    pub fn put_numbers(&self, part: &mut [u8], distance: usize) -> Option<()> {
        const AT: usize = (THUNK_VALUES - THUNK_SLOT) as usize;
        let bits = self.registers().unwrap_or(0);
        let numbers = ValueNumbers {
            distance: i32::try_from(distance.checked_sub(AT)?).ok()?,
            registers: bits,
            words: (bits.count_ones() * 4) as u8,
            reserved: 0,
        };
        let [a, b, c, d] = numbers.distance.to_le_bytes();
        let bytes = [a, b, c, d, numbers.registers, numbers.words, 0, 0];
        part.get_mut(AT..AT + bytes.len())?.copy_from_slice(&bytes);
        Some(())
    }

    /// Returns the size in bytes of the list of fetches.
    pub fn list_size(&self) -> usize {
        size_of::<ValueList>() + (self.entry.len() + self.exit.len()) * size_of::<Fetch>()
    }

    /// Returns the list of fetches.
    pub fn list(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.list_size());
        bytes.extend((self.entry.len() as u16).to_le_bytes());
        bytes.extend((self.exit.len() as u16).to_le_bytes());
        bytes.extend([0; 4]);
        let all = self.entry.iter().chain(&self.exit);
        bytes.extend(all.flat_map(|fetch| fetch.to_bytes()));
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dioptra_tracelayout::values::RETURN_REGISTER;

    #[test]
    fn the_list_lies_where_the_numbers_say() {
        let values = Fetches {
            entry: vec![Fetch::word(1)],
            exit: vec![Fetch::word(RETURN_REGISTER)],
        };
        let mut part = [0; 32];
        values.put_numbers(&mut part, 64).unwrap();
        assert_eq!(part[24..], [40, 0, 0, 0, 2, 4, 0, 0]);
        let list = values.list();
        assert_eq!(list.len(), values.list_size());
        assert_eq!(list[..4], [1, 0, 1, 0]);
        assert_eq!(list[8..16], Fetch::word(1).to_bytes());
        assert_eq!(list[16..], Fetch::word(RETURN_REGISTER).to_bytes());
    }
}
