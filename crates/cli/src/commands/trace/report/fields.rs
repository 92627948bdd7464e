//! The fields of a function's row and the keys that rows are sorted by, as words and as text.

use super::super::render::{push_right, push_timestamp};
use super::{Row, push_duration, push_number};
use dioptra_tables::Cell;
use dioptra_trace_report::Of;
pub use dioptra_trace_report::{Average, FIELDS, Field, Key, sort};

/// Returns the fields that `-f` asks for.
pub fn fields(text: Option<&str>, average: Average) -> anyhow::Result<Vec<Field>> {
    let known = FIELDS.iter().map(|(name, field, ..)| (*name, *field));
    crate::commands::trace::fields::parse(text, &Field::usual(average), known)
}

/// Returns the keys that `text` asks for. The default is the first of the default fields, shown or not.
pub fn keys(text: Option<&str>, average: Average) -> Result<Vec<Key>, String> {
    let Some(text) = text else {
        return Ok(vec![Key::Field(Field::usual(average)[0])]);
    };
    let key = |word: &str| {
        let field = |of| match average {
            Average::Self_ => Field::Self_(of),
            _ => Field::Total(of),
        };
        Ok(Key::Field(match (word, average) {
            ("func", _) => return Ok(Key::Function),
            ("avg" | "min" | "max", Average::None) => {
                return Err(format!(
                    "-s {word}: goes with --avg-total or --avg-self; else write total-{word} or self-{word}"
                ));
            }
            ("avg", _) => field(Of::Average),
            ("min", _) => field(Of::Shortest),
            ("max", _) => field(Of::Longest),
            _ => match FIELDS.iter().find(|(name, ..)| *name == word) {
                Some((_, field, ..)) => *field,
                None => {
                    let names: Vec<&str> = FIELDS.iter().map(|(name, ..)| *name).collect();
                    return Err(format!(
                        "-s: there is no key `{word}`; keys are {} and func",
                        names.join(", ")
                    ));
                }
            },
        }))
    };
    text.split(',').map(|word| key(word.trim())).collect()
}

/// Adds the value of a field, right-aligned.
pub fn push_text(field: Field, row: &Row, out: &mut Vec<u8>) {
    let is_time = field.is_time();
    let (at, width) = (field.is_moment(), width(field));
    match field.cell(row) {
        Cell::Count(time) if at => push_timestamp(out, time, width),
        Cell::Count(time) if is_time => push_duration(out, time),
        Cell::Count(count) => push_number(out, count, 10),
        Cell::Name(text) => push_right(out, &text, 10),
        Cell::Real { value, .. } => {
            out.extend_from_slice(format!("{value:>9.2}%").as_bytes());
        }
        _ => push_right(out, "-", width),
    }
}

/// Returns the width of the field in columns.
pub fn width(field: Field) -> usize {
    if field.is_moment() { 18 } else { 10 }
}
