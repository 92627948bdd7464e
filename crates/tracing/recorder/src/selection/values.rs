//! The values that are recorded with a function's calls: places of the processor's calling convention, and the forms
//! of the values.

use dioptra_filters::{ValueFormat, ValuePlace, ValueRequest};
use dioptra_tracedata::{RecordedValues, ValueDescription, ValueForm};
use dioptra_tracelayout::message::thread::{THUNK_SLOT, THUNK_VALUES};
use dioptra_tracelayout::values::{
    FLOAT_REGISTER, Fetch, INTEGER_REGISTER, INTEGER_REGISTERS, MOST_TEXT, RETURN_REGISTER,
    STACK_WORD, STRING, TEXT, USUAL_TEXT, ValueList, ValueNumbers, WORD,
};

/// The values that are recorded with the calls of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionValues {
    /// The fetches of the entry.
    pub entry: Vec<Fetch>,
    /// The fetches of the exit.
    pub exit: Vec<Fetch>,
    /// The values for readers; the functions are not known here.
    pub described: RecordedValues,
}

impl FunctionValues {
    /// Returns the values that rules ask for; `None` if there are none.
    pub fn of(requests: &[ValueRequest]) -> Option<FunctionValues> {
        let mut values = FunctionValues::default();
        for request in requests {
            let (fetch, form) = fetch_of(*request);
            let (name, fetches) = match request.place {
                ValuePlace::Argument(number) => (format!("arg{number}"), &mut values.entry),
                ValuePlace::FloatArgument(number) => (format!("fparg{number}"), &mut values.entry),
                ValuePlace::Returned => ("retval".to_owned(), &mut values.exit),
            };
            fetches.push(fetch);
            let described = ValueDescription {
                fetches: vec![fetch.kind],
                ..ValueDescription::word(name, form)
            };
            match request.place {
                ValuePlace::Returned => values.described.returned = Some(described),
                _ => values.described.arguments.push(described),
            }
        }
        (!requests.is_empty()).then_some(values)
    }

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

/// Returns the fetch and the form of a value that a rule asks for.
fn fetch_of(request: ValueRequest) -> (Fetch, ValueForm) {
    let is_returned = request.place == ValuePlace::Returned;
    let place = match (request.place, request.format) {
        (ValuePlace::Argument(number), _) => match number - 1 {
            number @ ..INTEGER_REGISTERS => INTEGER_REGISTER + number,
            number => STACK_WORD + number - INTEGER_REGISTERS,
        },
        (ValuePlace::FloatArgument(number), _) => FLOAT_REGISTER + number - 1,
        (ValuePlace::Returned, ValueFormat::Float(_)) => FLOAT_REGISTER,
        (ValuePlace::Returned, _) => RETURN_REGISTER,
    };
    debug_assert!(is_returned || place != RETURN_REGISTER);
    let text = |kind, limit| Fetch {
        kind,
        limit: match limit {
            0 => USUAL_TEXT,
            limit => limit.min(MOST_TEXT),
        },
        ..Fetch::word(place)
    };
    let word = Fetch::word(place);
    match request.format {
        ValueFormat::Word => (word, ValueForm::Word),
        ValueFormat::Signed(size) => (word, ValueForm::Signed(size)),
        ValueFormat::Unsigned(size) => (word, ValueForm::Unsigned(size)),
        ValueFormat::Hexadecimal(size) => (word, ValueForm::Hexadecimal(size)),
        ValueFormat::Octal(size) => (word, ValueForm::Octal(size)),
        ValueFormat::Character => (word, ValueForm::Character),
        ValueFormat::Float(size) => (word, ValueForm::Float(size)),
        ValueFormat::Pointer => (word, ValueForm::Pointer),
        ValueFormat::Text(limit) => (text(TEXT, limit), ValueForm::Text),
        ValueFormat::String(limit) => (text(STRING, limit), ValueForm::Text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(places: &[ValuePlace]) -> FunctionValues {
        let request = |place: &ValuePlace| ValueRequest {
            place: *place,
            format: match place {
                ValuePlace::FloatArgument(_) => ValueFormat::Float(8),
                _ => ValueFormat::Word,
            },
        };
        let requests: Vec<_> = places.iter().map(request).collect();
        FunctionValues::of(&requests).unwrap_or_default()
    }

    #[test]
    fn only_registers_in_rising_order_are_left_to_a_hook() {
        use ValuePlace::{Argument, FloatArgument, Returned};
        assert_eq!(values(&[Argument(1), Argument(3)]).registers(), Some(5));
        assert_eq!(values(&[Argument(6), Returned]).registers(), Some(32));
        assert_eq!(values(&[Argument(2), Argument(1)]).registers(), None);
        assert_eq!(values(&[Argument(1), Argument(7)]).registers(), None);
        assert_eq!(values(&[Argument(1), FloatArgument(1)]).registers(), None);
    }

    #[test]
    fn the_list_lies_where_the_numbers_say() {
        let values = values(&[ValuePlace::Argument(2), ValuePlace::Returned]);
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
