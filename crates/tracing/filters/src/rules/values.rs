//! The grammar of values that are recorded with calls: `arg1`, `arg2/x32`, `fparg1/32`, `retval/s`.

use super::RuleOption;
use super::action::Changes;
use super::error::{OptionText, SyntaxError, TextPart};
use std::format;

/// The largest number of an argument.
pub const MOST_ARGUMENTS: u8 = 16;
/// The largest number of a floating-point argument: the others are on the stack, among those that are integers.
pub const MOST_FLOAT_ARGUMENTS: u8 = 8;

/// A value to record with the calls of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ValueRequest {
    /// The place of the value.
    pub place: ValuePlace,
    /// The form in which it is recorded and shown.
    pub format: ValueFormat,
}

/// The place of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ValuePlace {
    /// `argN`: the N-th of the arguments that are integers or pointers, from 1.
    Argument(u8),
    /// `fpargN`: the N-th of the arguments that are floating-point numbers, from 1.
    FloatArgument(u8),
    /// `retval`: the return value.
    Returned,
}

/// The form of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValueFormat {
    /// A word of unknown type: decimal if it is small, else hexadecimal.
    Word,
    /// `/i`: a signed integer of so many bytes.
    Signed(u8),
    /// `/u`: an unsigned integer of so many bytes.
    Unsigned(u8),
    /// `/x`: an integer of so many bytes in hexadecimal digits.
    Hexadecimal(u8),
    /// `/o`: an integer of so many bytes in octal digits.
    Octal(u8),
    /// `/c`: a character.
    Character,
    /// `/f`: a floating-point number of so many bytes.
    Float(u8),
    /// `/s`: the text that a pointer leads to, up to its zero byte, with this limit in bytes; 0 for the usual one.
    Text(u16),
    /// `/S`: libstdc++'s `std::string`, with a limit as [`ValueFormat::Text`].
    String(u16),
    /// `/p`: an address.
    Pointer,
}

const FORM: &str = "a value is `argN`, `fpargN` or `retval`, and then perhaps one of /d /i /u /x /o (with 8, 16, 32 or \
                    64), /c, /f32, /f64, /p, /s (text) and /S (std::string), both with the largest number of bytes";

/// Returns true if a word names a value.
pub(crate) fn is_value(word: &str) -> bool {
    let numbered = |word: &str| {
        word.strip_prefix("fparg")
            .or_else(|| word.strip_prefix("arg"))
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    numbered(word) || word == "retval" || word.starts_with("retval/")
}

/// Parses a word that [names](is_value) a value.
pub(crate) fn value_request(
    source: OptionText<'_>,
    word: TextPart<'_>,
) -> Result<ValueRequest, SyntaxError> {
    let wrong = |problem: &str| source.error(word.place(), problem, FORM);
    if word.text.contains('%') {
        return Err(wrong("the place of a value follows from its number"));
    }
    let (name, format) = match word.text.split_once('/') {
        Some((name, format)) => (name, format),
        None => (word.text, ""),
    };
    let number = |digits: &str| {
        let number: Option<u8> = digits.parse().ok();
        number
            .filter(|number| (1..=MOST_ARGUMENTS).contains(number))
            .ok_or_else(|| {
                wrong(&format!(
                    "arguments are numbered from 1 to {MOST_ARGUMENTS}"
                ))
            })
    };
    let (place, is_float) = if let Some(digits) = name.strip_prefix("fparg") {
        let number = Some(number(digits)?).filter(|number| *number <= MOST_FLOAT_ARGUMENTS);
        let number = number.ok_or_else(|| {
            wrong(&format!(
                "`fpargN` is numbered from 1 to {MOST_FLOAT_ARGUMENTS}"
            ))
        })?;
        (ValuePlace::FloatArgument(number), true)
    } else if let Some(digits) = name.strip_prefix("arg") {
        (ValuePlace::Argument(number(digits)?), false)
    } else {
        (ValuePlace::Returned, false)
    };
    let digits = format.trim_start_matches(|c: char| !c.is_ascii_digit());
    let letter = &format[..format.len() - digits.len()];
    let bits: Option<u16> = match digits {
        "" => None,
        digits => Some(
            digits
                .parse()
                .map_err(|_| wrong("the number is too large"))?,
        ),
    };
    let size = |usual: u8| match bits {
        None => Ok(usual),
        Some(bits @ (8 | 16 | 32 | 64)) => Ok((bits / 8) as u8),
        Some(_) => Err(wrong("an integer has 8, 16, 32 or 64 bits")),
    };
    let float = || match bits {
        None | Some(64) => Ok(ValueFormat::Float(8)),
        Some(32) => Ok(ValueFormat::Float(4)),
        Some(_) => Err(wrong("a floating-point number has 32 or 64 bits here")),
    };
    let format = match letter {
        "" if is_float => float()?,
        "f" if place != ValuePlace::Returned && !is_float => {
            return Err(wrong("floating-point arguments are `fpargN`"));
        }
        "f" => float()?,
        _ if is_float => return Err(wrong("`fpargN` is a floating-point number")),
        "" | "d" if bits.is_none() => ValueFormat::Word,
        "" | "d" | "i" => ValueFormat::Signed(size(8)?),
        "u" => ValueFormat::Unsigned(size(8)?),
        "x" => ValueFormat::Hexadecimal(size(8)?),
        "o" => ValueFormat::Octal(size(8)?),
        "c" if bits.is_none_or(|bits| bits == 8) => ValueFormat::Character,
        "p" if bits.is_none_or(|bits| bits == 64) => ValueFormat::Pointer,
        "s" => ValueFormat::Text(bits.unwrap_or(0)),
        "S" => ValueFormat::String(bits.unwrap_or(0)),
        _ if letter.starts_with(['e', 't']) => {
            return Err(wrong("enumerations and structs are not recorded by name"));
        }
        _ => return Err(wrong(&format!("there is no format `{letter}{digits}`"))),
    };
    Ok(ValueRequest { place, format })
}

/// Completes the changes of `-A` and `-R`, which ask for values.
pub(crate) fn complete(
    option: RuleOption,
    source: OptionText<'_>,
    part: TextPart<'_>,
    changes: &mut Changes,
) -> Result<(), SyntaxError> {
    let end = part.place().end;
    match option {
        RuleOption::Argument if changes.arguments.is_empty() => {
            let remedy = "name them, such as -A FUNCTION@arg1,arg2/s";
            Err(source.error(end..end, "no argument is named", remedy))
        }
        RuleOption::Retval if changes.returned.is_none() => {
            changes.returned = Some(ValueRequest {
                place: ValuePlace::Returned,
                format: ValueFormat::Word,
            });
            Ok(())
        }
        _ => Ok(()),
    }
}
