//! The values of calls: what the recorder records of arguments and return values, and how they are shown.

use dioptra_tracelayout::values::{RawValue, WORD, take};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The values that are recorded of calls of some functions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedValues {
    /// The functions' ids.
    pub functions: Vec<u32>,
    /// The arguments, in the order in which they are recorded and shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<ValueDescription>,
    /// The return value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returned: Option<ValueDescription>,
}

/// A value that is recorded with a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueDescription {
    /// The parameter's name, if it is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The argument as options name it: `arg1`, `fparg1`, `retval`.
    pub argument: String,
    /// The kinds of the fetches ([`dioptra_tracelayout::values`]) that give the value.
    pub fetches: Vec<u8>,
    /// The form in which the value is shown.
    pub form: ValueForm,
}

/// The meaning of a value's bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ValueForm {
    /// A word of unknown type: a decimal number if it is small, else a hexadecimal one.
    Word,
    /// A signed integer of so many bytes.
    Signed(u8),
    /// An unsigned integer of so many bytes.
    Unsigned(u8),
    /// An integer of so many bytes, shown in hexadecimal digits.
    Hexadecimal(u8),
    /// An integer of so many bytes, shown in octal digits.
    Octal(u8),
    /// A byte that is a character.
    Character,
    /// A truth value.
    Boolean,
    /// An address.
    Pointer,
    /// A floating-point number of 4 or 8 bytes.
    Float(u8),
    /// A text.
    Text,
    /// A value of an enumeration, an integer of so many bytes.
    Enumeration {
        /// The number of bytes.
        size: u8,
        /// The names of the values.
        names: Vec<(String, i64)>,
    },
    /// Elements of the same form, each of so many bytes.
    Elements(Box<ValueForm>, u16),
    /// A struct.
    Struct {
        /// The struct's name.
        name: String,
        /// The members.
        members: Vec<Member>,
    },
}

/// A member of a struct.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The name.
    pub name: String,
    /// The offset in bytes.
    pub offset: u16,
    /// The form.
    pub form: ValueForm,
}

/// The largest number of digits of a word of unknown type that is shown in decimal digits.
const SMALL: i64 = 100_000;

/// A value, as far as it was recorded.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An integer.
    Integer(i128, Digits),
    /// A truth value.
    Boolean(bool),
    /// A floating-point number; true for one of single precision.
    Float(f64, bool),
    /// A text, and whether there was more of it.
    Text(Vec<u8>, bool),
    /// A name of an enumeration's value, and the value.
    Named(String, i64),
    /// Elements, and whether there were more.
    Elements(Vec<Value>, bool),
    /// A struct's name and its members.
    Struct(String, Vec<(String, Value)>),
    /// A null pointer in the place of the memory.
    Null,
    /// The memory at this address could not be read.
    Unreadable(u64),
}

/// The form of an integer's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Digits {
    /// Decimal digits.
    Decimal,
    /// Hexadecimal digits.
    Hexadecimal,
    /// Octal digits.
    Octal,
    /// A character.
    Character,
}

impl ValueDescription {
    /// Takes the value off a payload; `None` if the payload does not have it.
    pub fn take(&self, payload: &mut &[u8]) -> Option<Value> {
        let mut bytes = Vec::new();
        let mut is_cut = false;
        for kind in &self.fetches {
            match take(payload, *kind)? {
                RawValue::Word(word) => bytes.extend(word.to_le_bytes()),
                RawValue::Bytes(found, cut) => {
                    bytes.extend(found);
                    is_cut |= cut;
                }
                RawValue::Null => return Some(Value::Null),
                RawValue::Unreadable(address) => return Some(Value::Unreadable(address)),
            }
        }
        self.form.value(&bytes, is_cut)
    }
}

impl ValueForm {
    /// Returns the size in bytes of a value that is a part of another one; `None` if it has no fixed size.
    pub fn size(&self) -> Option<u16> {
        match self {
            ValueForm::Word | ValueForm::Pointer => Some(8),
            ValueForm::Signed(size)
            | ValueForm::Unsigned(size)
            | ValueForm::Hexadecimal(size)
            | ValueForm::Octal(size)
            | ValueForm::Float(size)
            | ValueForm::Enumeration { size, .. } => Some(u16::from(*size)),
            ValueForm::Character | ValueForm::Boolean => Some(1),
            ValueForm::Text | ValueForm::Elements(..) => None,
            ValueForm::Struct { members, .. } => members
                .iter()
                .map(|member| member.offset.checked_add(member.form.size()?))
                .try_fold(0, |most, end| Some(most.max(end?))),
        }
    }

    fn value(&self, bytes: &[u8], is_cut: bool) -> Option<Value> {
        let unsigned = |size: u8| {
            let mut word = [0; 8];
            let size = usize::from(size);
            word.get_mut(..size)?.copy_from_slice(bytes.get(..size)?);
            Some(u64::from_le_bytes(word))
        };
        let signed = |size: u8| {
            let unused = 64 - 8 * u32::from(size.clamp(1, 8));
            Some((unsigned(size)? << unused) as i64 >> unused)
        };
        Some(match self {
            ValueForm::Word => {
                let word = unsigned(8)? as i64;
                match (-SMALL..=SMALL).contains(&word) {
                    true => Value::Integer(word.into(), Digits::Decimal),
                    false => Value::Integer((word as u64).into(), Digits::Hexadecimal),
                }
            }
            ValueForm::Signed(size) => Value::Integer(signed(*size)?.into(), Digits::Decimal),
            ValueForm::Unsigned(size) => Value::Integer(unsigned(*size)?.into(), Digits::Decimal),
            ValueForm::Hexadecimal(size) => {
                Value::Integer(unsigned(*size)?.into(), Digits::Hexadecimal)
            }
            ValueForm::Octal(size) => Value::Integer(unsigned(*size)?.into(), Digits::Octal),
            ValueForm::Character => Value::Integer(unsigned(1)?.into(), Digits::Character),
            ValueForm::Boolean => Value::Boolean(unsigned(1)? != 0),
            ValueForm::Pointer => Value::Integer(unsigned(8)?.into(), Digits::Hexadecimal),
            ValueForm::Float(4) => {
                let number = f32::from_bits(unsigned(4)? as u32);
                Value::Float(f64::from(number), true)
            }
            ValueForm::Float(_) => Value::Float(f64::from_bits(unsigned(8)?), false),
            ValueForm::Text => Value::Text(bytes.to_vec(), is_cut),
            ValueForm::Enumeration { size, names } => {
                let number = signed(*size)?;
                let same = |value: i64| match size {
                    8.. => value == number,
                    _ => (value ^ number) & ((1 << (8 * u32::from(*size))) - 1) == 0,
                };
                match names.iter().find(|(_, value)| same(*value)) {
                    Some((name, value)) => Value::Named(name.clone(), *value),
                    None => Value::Integer(number.into(), Digits::Decimal),
                }
            }
            ValueForm::Elements(form, size) => {
                let parts = bytes.chunks_exact(usize::from((*size).max(1)));
                let all = parts.map(|part| form.value(part, false));
                Value::Elements(all.collect::<Option<_>>()?, is_cut)
            }
            ValueForm::Struct { name, members } => {
                let member = |member: &Member| {
                    let part = bytes.get(usize::from(member.offset)..)?;
                    Some((member.name.clone(), member.form.value(part, false)?))
                };
                let members = members.iter().map(member).collect::<Option<_>>()?;
                Value::Struct(name.clone(), members)
            }
        })
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Integer(number, Digits::Decimal) => write!(f, "{number}"),
            Value::Integer(number, Digits::Hexadecimal) => write!(f, "{number:#x}"),
            Value::Integer(0, Digits::Octal) => f.write_str("0"),
            Value::Integer(number, Digits::Octal) => write!(f, "0{number:o}"),
            Value::Integer(number, Digits::Character) => {
                let byte = u8::try_from(*number).unwrap_or(0);
                write!(f, "'{}'", byte.escape_ascii())
            }
            Value::Boolean(value) => write!(f, "{value}"),
            Value::Float(number, true) => write!(f, "{:?}", *number as f32),
            Value::Float(number, false) => write!(f, "{number:?}"),
            Value::Text(bytes, is_cut) => {
                f.write_str("\"")?;
                for chunk in bytes.utf8_chunks() {
                    for character in chunk.valid().chars() {
                        match character {
                            '\'' => f.write_str("'")?,
                            '\n' | '\r' | '\t' | '\0' => write!(f, "{}", character.escape_debug())?,
                            _ if character.is_ascii_control() => {
                                write!(f, "\\x{:02x}", u32::from(character))?;
                            }
                            _ => write!(f, "{}", character.escape_debug())?,
                        }
                    }
                    for byte in chunk.invalid() {
                        write!(f, "\\x{byte:02x}")?;
                    }
                }
                f.write_str(if *is_cut { "\"..." } else { "\"" })
            }
            Value::Named(name, _) => f.write_str(name),
            Value::Elements(elements, is_cut) => {
                f.write_str("[")?;
                separated(f, elements.iter())?;
                match (is_cut, elements.is_empty()) {
                    (false, _) => f.write_str("]"),
                    (true, true) => f.write_str("...]"),
                    (true, false) => f.write_str(", ...]"),
                }
            }
            Value::Struct(name, members) => {
                write!(f, "{name}{{")?;
                for (number, (name, value)) in members.iter().enumerate() {
                    let separator = if number > 0 { ", " } else { "" };
                    write!(f, "{separator}{name}: {value}")?;
                }
                f.write_str("}")
            }
            Value::Null => f.write_str("NULL"),
            Value::Unreadable(address) => write!(f, "<{address:#x}>"),
        }
    }
}

fn separated<'a>(
    f: &mut fmt::Formatter<'_>,
    values: impl Iterator<Item = &'a Value>,
) -> fmt::Result {
    for (number, value) in values.enumerate() {
        let separator = if number > 0 { ", " } else { "" };
        write!(f, "{separator}{value}")?;
    }
    Ok(())
}

impl RecordedValues {
    /// Returns the arguments in a payload; the first ones, if the payload is cut off.
    pub fn arguments<'a>(
        &'a self,
        mut payload: &'a [u8],
    ) -> impl Iterator<Item = (&'a ValueDescription, Value)> {
        self.arguments
            .iter()
            .map_while(move |described| Some((described, described.take(&mut payload)?)))
    }

    /// Returns the return value in a payload.
    pub fn returned(&self, mut payload: &[u8]) -> Option<Value> {
        self.returned.as_ref()?.take(&mut payload)
    }
}

impl ValueDescription {
    /// Describes a value that is one word.
    pub fn word(argument: String, form: ValueForm) -> ValueDescription {
        ValueDescription {
            name: String::new(),
            argument,
            fetches: vec![WORD],
            form,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(form: ValueForm, bytes: &[u8]) -> String {
        let value = form.value(bytes, false);
        value.map_or("none".to_owned(), |value| value.to_string())
    }

    #[test]
    fn words_are_shown_in_their_form() {
        let minus = (-5i64).to_le_bytes();
        assert_eq!(shown(ValueForm::Word, &minus), "-5");
        assert_eq!(shown(ValueForm::Signed(4), &minus), "-5");
        assert_eq!(shown(ValueForm::Unsigned(1), &minus), "251");
        assert_eq!(
            shown(ValueForm::Unsigned(8), &minus),
            "18446744073709551611"
        );
        assert_eq!(shown(ValueForm::Hexadecimal(2), &minus), "0xfffb");
        assert_eq!(shown(ValueForm::Octal(1), &minus), "0373");
        assert_eq!(shown(ValueForm::Character, b"\n"), r"'\n'");
        assert_eq!(shown(ValueForm::Boolean, &[2]), "true");
        assert_eq!(
            shown(ValueForm::Word, &(1u64 << 40).to_le_bytes()),
            "0x10000000000"
        );
        assert_eq!(shown(ValueForm::Float(4), &1.1f32.to_le_bytes()), "1.1");
        assert_eq!(shown(ValueForm::Float(8), &(-2.0f64).to_le_bytes()), "-2.0");
        assert_eq!(shown(ValueForm::Signed(8), &minus[..7]), "none");
    }

    #[test]
    fn texts_and_compounds_are_shown_as_in_a_program() {
        assert_eq!(
            shown(ValueForm::Text, b"it's \"\xff\t"),
            r#""it's \"\xff\t""#
        );
        let cut = ValueForm::Text.value(b"ab", true).unwrap();
        assert_eq!(cut.to_string(), r#""ab"..."#);
        let colors = ValueForm::Enumeration {
            size: 4,
            names: vec![("RED".to_owned(), 0), ("LAST".to_owned(), 0xffff_ffff)],
        };
        assert_eq!(shown(colors.clone(), &[0; 4]), "RED");
        assert_eq!(shown(colors.clone(), &[0xff; 4]), "LAST");
        assert_eq!(shown(colors, &[7, 0, 0, 0]), "7");
        let element = Box::new(ValueForm::Unsigned(2));
        let elements = ValueForm::Elements(element, 2);
        assert_eq!(shown(elements.clone(), &[1, 0, 2, 0]), "[1, 2]");
        let cut = elements.value(&[1, 0], true).unwrap();
        assert_eq!(cut.to_string(), "[1, ...]");
        let point = ValueForm::Struct {
            name: "point".to_owned(),
            members: vec![
                Member {
                    name: "x".to_owned(),
                    offset: 0,
                    form: ValueForm::Signed(4),
                },
                Member {
                    name: "y".to_owned(),
                    offset: 4,
                    form: ValueForm::Signed(4),
                },
            ],
        };
        assert_eq!(point.size(), Some(8));
        let bytes = [3, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(shown(point, &bytes), "point{x: 3, y: -1}");
    }
}
