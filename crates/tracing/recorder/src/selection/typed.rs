//! The values that a function's declared types ask for (`-a`), where x86-64's calling convention puts them.
//!
//! Source: System V Application Binary Interface, AMD64 Architecture Processor Supplement, section 3.2.3. Rust passes
//! numbers, pointers and views as C does; how it passes structs is not specified, so the parameters behind a struct of
//! Rust's are left out.

use super::values::FunctionValues;
use dioptra_symbols::{FunctionSignature, StructType, ValueType};
use dioptra_trace_patch::Fetches;
use dioptra_tracedata::{Member, RecordedValues, ValueDescription, ValueForm};
use dioptra_tracelayout::values::{
    FLOAT_REGISTER, FLOAT_REGISTERS, Fetch, INTEGER_REGISTER, INTEGER_REGISTERS, MEMORY,
    MOST_BYTES, MOST_VALUES, RETURN_REGISTER, SLICE, STACK, STACK_WORD, STRING, TEXT, USUAL_TEXT,
};
use std::sync::Arc;

/// The largest number of a word of the stack that has a place.
const LAST_STACK_WORD: u8 = u8::MAX - STACK_WORD;

/// The largest part of a struct in memory that is recorded, in bytes.
const MOST_OF_STRUCT: u16 = 64;

/// The class of an eight-byte part of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Integer,
    Float,
}

/// The place in which a value is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passed {
    /// In one or two registers, or in as many words of the stack if there are not enough.
    Words(Class, Option<Class>),
    /// In memory of so many bytes on the stack.
    Stack(u64),
    /// By the address of a copy.
    Address,
    /// The convention does not say.
    Unknown,
}

/// The registers and words of the stack that are not taken yet.
#[derive(Clone, Copy, Debug, Default)]
struct Places {
    integers: u8,
    floats: u8,
    stack: u8,
}

impl Places {
    fn take(&mut self, class: Class) -> Option<u8> {
        let (used, most, first) = match class {
            Class::Integer => (&mut self.integers, INTEGER_REGISTERS, INTEGER_REGISTER),
            Class::Float => (&mut self.floats, FLOAT_REGISTERS, FLOAT_REGISTER),
        };
        if *used < most {
            *used += 1;
            return Some(first + *used - 1);
        }
        self.take_stack(1)
    }

    /// Takes words of the stack, and returns the place of the first.
    fn take_stack(&mut self, words: u64) -> Option<u8> {
        let first = self.stack;
        let behind = u64::from(first).checked_add(words)?;
        self.stack = u8::try_from(behind)
            .ok()
            .filter(|behind| *behind <= LAST_STACK_WORD)?;
        Some(STACK_WORD + first)
    }

    /// Takes the places of a value in registers. A value of two parts is in registers as a whole or not at all.
    fn take_words(&mut self, first: Class, second: Option<Class>) -> Option<[Option<u8>; 2]> {
        let Some(second) = second else {
            return Some([Some(self.take(first)?), None]);
        };
        let count = |class| [first, second].iter().filter(|one| **one == class).count() as u8;
        let fits = self.integers + count(Class::Integer) <= INTEGER_REGISTERS
            && self.floats + count(Class::Float) <= FLOAT_REGISTERS;
        if fits {
            return Some([Some(self.take(first)?), Some(self.take(second)?)]);
        }
        let place = self.take_stack(2)?;
        Some([Some(place), Some(place + 1)])
    }
}

/// Returns the values that a signature asks for; `None` if there are none.
pub fn values(signature: &FunctionSignature) -> Option<FunctionValues> {
    let mut places = Places::default();
    let mut fetched = Fetches::default();
    let mut described = RecordedValues::default();
    let returned = signature.returned.as_ref();
    if let Some(returned) = returned {
        match passed(returned, signature.is_rust) {
            // The caller says where the value is to be put, in the first register.
            Passed::Stack(1..) | Passed::Address => {
                places.take(Class::Integer);
            }
            Passed::Unknown if returned.size().is_none() => return None,
            // Small values that are not known are returned in registers all the same.
            Passed::Stack(0) | Passed::Words(..) | Passed::Unknown => {}
        }
    }
    let mut budget = MOST_BYTES;
    for (number, parameter) in signature.parameters.iter().enumerate() {
        let how = passed(&parameter.value, signature.is_rust);
        let Some((fetches, form)) = argument(&parameter.value, how, &mut places) else {
            // The places of the parameters behind it are not known.
            break;
        };
        if fetches.is_empty() {
            continue;
        }
        let size: usize = fetches.iter().map(least_size).sum();
        if fetched.entry.len() + fetches.len() > MOST_VALUES || size > budget {
            break;
        }
        budget -= size;
        described.arguments.push(ValueDescription {
            name: parameter.name.clone(),
            argument: format!("arg{}", number + 1),
            fetches: fetches.iter().map(|fetch| fetch.kind).collect(),
            form,
        });
        fetched.entry.extend(fetches);
    }
    if let Some((fetches, form)) = returned.and_then(|value| result(value, signature.is_rust)) {
        described.returned = Some(ValueDescription {
            name: String::new(),
            argument: "retval".to_owned(),
            fetches: fetches.iter().map(|fetch| fetch.kind).collect(),
            form,
        });
        fetched.exit = fetches;
    }
    let is_empty = fetched.entry.is_empty() && fetched.exit.is_empty();
    (!is_empty).then(|| FunctionValues {
        fetches: Arc::new(fetched),
        described,
    })
}

/// Returns the smallest number of bytes of a fetch's record in which its value is still whole enough to be followed.
fn least_size(fetch: &Fetch) -> usize {
    match fetch.kind {
        STACK | MEMORY => usize::from(fetch.limit) + 3,
        _ => 10,
    }
}

/// Returns how a value is passed.
fn passed(value: &ValueType, is_rust: bool) -> Passed {
    let word = |class| Passed::Words(class, None);
    match value {
        ValueType::Signed(_)
        | ValueType::Unsigned(_)
        | ValueType::Boolean
        | ValueType::Character
        | ValueType::Pointer
        | ValueType::Text
        | ValueType::StringReference
        | ValueType::Enumeration { .. } => word(Class::Integer),
        ValueType::String => Passed::Address,
        ValueType::Float(_) => word(Class::Float),
        ValueType::View { .. } => Passed::Words(Class::Integer, Some(Class::Integer)),
        ValueType::Struct(of) if is_rust => match of.size {
            0 => Passed::Stack(0),
            17.. => Passed::Address,
            _ => Passed::Unknown,
        },
        ValueType::Struct(of) => passed_struct(of),
        // `long double` is passed on the stack; complex numbers and vectors are not known.
        ValueType::Other(_) => Passed::Unknown,
        _ => Passed::Unknown,
    }
}

fn passed_struct(of: &StructType) -> Passed {
    if of.is_passed_by_address {
        return Passed::Address;
    }
    if of.size > 16 {
        return Passed::Stack(of.size);
    }
    let mut classes = [None; 2];
    match classify(of, 0, &mut classes) {
        Some(()) => {}
        None => return Passed::Unknown,
    }
    match (of.size, classes) {
        // An empty class of C++ takes a byte and no register.
        (_, [None, None]) => Passed::Stack(0),
        (..=8, [Some(first), _]) => Passed::Words(first, None),
        (_, [Some(first), Some(second)]) => Passed::Words(first, Some(second)),
        _ => Passed::Unknown,
    }
}

/// Finds the classes of a struct's parts. Returns `None` if a member is not known.
fn classify(of: &StructType, at: u64, classes: &mut [Option<Class>; 2]) -> Option<()> {
    if !of.is_whole {
        return None;
    }
    for (_, offset, value) in &of.members {
        let at = at + offset;
        let mut put = |at: u64, class: Class| {
            let place = classes.get_mut((at / 8) as usize)?;
            *place = Some(match (*place, class) {
                (Some(Class::Integer), _) | (_, Class::Integer) => Class::Integer,
                _ => Class::Float,
            });
            Some(())
        };
        match value {
            ValueType::Struct(inner) if inner.is_passed_by_address => return None,
            ValueType::Struct(inner) => classify(inner, at, classes)?,
            ValueType::Float(_) => put(at, Class::Float)?,
            ValueType::View { .. } => {
                put(at, Class::Integer)?;
                put(at + 8, Class::Integer)?;
            }
            ValueType::String | ValueType::Other(_) => return None,
            _ => put(at, Class::Integer)?,
        }
    }
    Some(())
}

/// Returns the fetches and the form of an argument, and takes its places. Returns `None` if its place is not known.
fn argument(
    value: &ValueType,
    how: Passed,
    places: &mut Places,
) -> Option<(Vec<Fetch>, ValueForm)> {
    let form = form(value);
    match how {
        Passed::Words(first, second) => {
            let taken = places.take_words(first, second)?;
            let [Some(one), other] = taken else {
                return None;
            };
            Some((words(value, one, other), form))
        }
        Passed::Stack(0) => Some((Vec::new(), form)),
        Passed::Stack(size) => {
            let place = places.take_stack(size.div_ceil(8))?;
            let limit = size.min(u64::from(MOST_OF_STRUCT)) as u16;
            Some((vec![memory(STACK, place, limit)], form))
        }
        Passed::Address => {
            let place = places.take(Class::Integer)?;
            Some((vec![at_address(value, place)], form))
        }
        Passed::Unknown => None,
    }
}

/// Returns the fetches of a value in registers or words of the stack.
fn words(value: &ValueType, one: u8, other: Option<u8>) -> Vec<Fetch> {
    match value {
        ValueType::Text => vec![memory(TEXT, one, USUAL_TEXT)],
        ValueType::StringReference => vec![memory(STRING, one, USUAL_TEXT)],
        ValueType::View {
            size,
            is_number_first,
            ..
        } => {
            let other = other.unwrap_or(one);
            let (pointer, number) = match is_number_first {
                true => (other, one),
                false => (one, other),
            };
            vec![Fetch {
                kind: SLICE,
                second: number,
                limit: USUAL_TEXT,
                element: *size,
                ..Fetch::word(pointer)
            }]
        }
        _ => std::iter::once(one).chain(other).map(Fetch::word).collect(),
    }
}

fn memory(kind: u8, place: u8, limit: u16) -> Fetch {
    Fetch {
        kind,
        limit,
        ..Fetch::word(place)
    }
}

/// Returns the fetch of a value to whose memory a place leads.
fn at_address(value: &ValueType, place: u8) -> Fetch {
    match value {
        ValueType::Struct(of) => {
            let size = of.size.min(u64::from(MOST_OF_STRUCT));
            memory(MEMORY, place, size as u16)
        }
        _ => memory(STRING, place, USUAL_TEXT),
    }
}

/// Returns the fetches and the form of a return value; `None` if there is none, or its place is not known.
fn result(value: &ValueType, is_rust: bool) -> Option<(Vec<Fetch>, ValueForm)> {
    let form = form(value);
    match passed(value, is_rust) {
        Passed::Words(first, second) => {
            // The integer registers for results are rax and rdx, the others are xmm0 and xmm1.
            let (mut integers, mut floats) = (0, 0);
            let mut place = |class| {
                let (used, base) = match class {
                    Class::Integer => (&mut integers, RETURN_REGISTER),
                    Class::Float => (&mut floats, FLOAT_REGISTER),
                };
                *used += 1;
                base + *used - 1
            };
            let one = place(first);
            let other = second.map(place);
            Some((words(value, one, other), form))
        }
        Passed::Stack(0) | Passed::Unknown => None,
        // The function returns the address at which it has put the value.
        Passed::Stack(_) | Passed::Address => {
            Some((vec![at_address(value, RETURN_REGISTER)], form))
        }
    }
}

/// Returns the form in which a value is shown.
fn form(value: &ValueType) -> ValueForm {
    match value {
        ValueType::Signed(size) => ValueForm::Signed(*size),
        ValueType::Unsigned(size) => ValueForm::Unsigned(*size),
        ValueType::Boolean => ValueForm::Boolean,
        ValueType::Character => ValueForm::Character,
        ValueType::Float(size) => ValueForm::Float(*size),
        ValueType::Pointer => ValueForm::Pointer,
        ValueType::Text | ValueType::String | ValueType::StringReference => ValueForm::Text,
        ValueType::View { element, .. } if **element == ValueType::Character => ValueForm::Text,
        ValueType::View { element, size, .. } => {
            ValueForm::Elements(Box::new(form(element)), *size)
        }
        ValueType::Enumeration { size, names } => ValueForm::Enumeration {
            size: *size,
            names: names.clone(),
        },
        ValueType::Struct(of) => ValueForm::Struct {
            // A template's arguments fill lines.
            name: of.name.split('<').next().unwrap_or_default().to_owned(),
            members: members(of),
        },
        _ => ValueForm::Word,
    }
}

/// Returns the members of a struct that can be shown from the struct's own bytes. The members of base classes, which have
/// no name, stand among those of the class.
fn members(of: &StructType) -> Vec<Member> {
    let mut found = Vec::new();
    for (name, offset, value) in &of.members {
        let form = match value {
            // The memory that these lead to is not recorded.
            ValueType::Text | ValueType::StringReference | ValueType::View { .. } => {
                ValueForm::Pointer
            }
            ValueType::String | ValueType::Other(_) => continue,
            other => form(other),
        };
        let is_recorded = value.size().is_some_and(|size| {
            let recorded = of.size.min(u64::from(MOST_OF_STRUCT));
            offset.saturating_add(size) <= recorded
        });
        if !is_recorded {
            continue;
        }
        let offset = *offset as u16;
        match form {
            ValueForm::Struct { members, .. } if members.is_empty() => {}
            ValueForm::Struct { members, .. } if name.is_empty() => {
                found.extend(members.into_iter().map(|member| Member {
                    offset: member.offset + offset,
                    ..member
                }));
            }
            form => found.push(Member {
                name: name.clone(),
                offset,
                form,
            }),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use dioptra_symbols::Parameter;
    use dioptra_tracelayout::values::WORD;

    fn places(parameters: &[ValueType], returned: Option<ValueType>) -> Vec<(u8, u8)> {
        let mut signature = FunctionSignature::default();
        signature.parameters = parameters
            .iter()
            .map(|value| Parameter {
                name: String::new(),
                value: value.clone(),
            })
            .collect();
        signature.returned = returned;
        let values = values(&signature).unwrap();
        let fetches = values.fetches.entry.iter();
        fetches.map(|fetch| (fetch.kind, fetch.place)).collect()
    }

    #[test]
    fn what_does_not_fit_into_registers_is_on_the_stack() {
        let long = ValueType::Signed(8);
        let view = ValueType::View {
            element: Box::new(ValueType::Character),
            size: 1,
            is_number_first: false,
        };
        let five = vec![long.clone(); 5];
        let all = [five.as_slice(), &[view, long.clone(), ValueType::Float(8)]].concat();
        // The view's two words don't fit into the last register, which the next number takes.
        let expected = [
            (WORD, 0),
            (WORD, 1),
            (WORD, 2),
            (WORD, 3),
            (WORD, 4),
            (SLICE, STACK_WORD),
            (WORD, 5),
            (WORD, FLOAT_REGISTER),
        ];
        assert_eq!(places(&all, None), expected);
        // A string that is returned takes the first register.
        let hidden = places(&[long], Some(ValueType::String));
        assert_eq!(hidden, [(WORD, 1)]);
    }

    #[test]
    fn what_is_behind_an_unknown_value_is_left_out() {
        let unknown = [
            ValueType::Signed(4),
            ValueType::Other(Some(16)),
            ValueType::Signed(4),
        ];
        assert_eq!(places(&unknown, None), [(WORD, 0)]);
    }
}
