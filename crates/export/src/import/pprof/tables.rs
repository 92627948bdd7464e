//! The tables of a pprof profile: everything but its samples.

use crate::import::error::ImportError;
use crate::import::omitted::{Omissions, OmittedKind};
use crate::wire::{Value, Wire};
use hashbrown::HashMap;

/// A type of values: its name and unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ValueType<'a> {
    pub name: &'a str,
    pub unit: &'a str,
}

/// A mapping as the profile states it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mapping {
    pub id: u64,
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    /// Indices of texts.
    pub file: u64,
    pub build_id: u64,
}

/// A location: an address with its functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Location {
    /// The index of its mapping.
    pub mapping: Option<u32>,
    pub address: u64,
    /// The range of its lines in [`Tables::lines`].
    lines: (u32, u32),
}

/// A function at a location.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    /// The index in [`Tables::functions`].
    pub function: u32,
    pub line: Option<u32>,
}

/// A function; its fields are indices of texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Function {
    pub name: u64,
    pub system_name: u64,
    pub file: u64,
}

/// The tables of a profile.
#[derive(Debug, Default)]
pub(super) struct Tables<'a> {
    texts: Vec<Wire<'a>>,
    pub types: Vec<(u64, u64)>,
    pub mappings: Vec<Mapping>,
    pub locations: Vec<Location>,
    /// By id: the index in `locations`.
    location_ids: HashMap<u64, u32>,
    lines: Vec<Line>,
    pub functions: Vec<Function>,
    pub period_type: Option<(u64, u64)>,
    pub period: u64,
}

/// A location as it is read, before the tables that it refers to are complete.
struct RawLocation {
    id: u64,
    mapping: u64,
    address: u64,
    lines: (u32, u32),
    offset: u64,
}

impl<'a> Tables<'a> {
    /// Reads the tables of a profile.
    pub(super) fn read(
        mut content: Wire<'a>,
        omissions: &mut Omissions,
    ) -> Result<Tables<'a>, ImportError> {
        let mut tables = Tables::default();
        let mut raw_locations: Vec<RawLocation> = Vec::new();
        let mut raw_lines: Vec<(u64, u64)> = Vec::new();
        let mut function_ids: HashMap<u64, u32> = HashMap::new();
        let whole = content;
        while let Some((field, value)) = content.field()? {
            match (field, value) {
                (1, Value::Bytes(message)) => tables.types.push(pair(message)?),
                // Samples are read later.
                (2, Value::Bytes(_)) => {}
                (3, Value::Bytes(message)) => tables.mappings.push(mapping(message)?),
                (4, Value::Bytes(message)) => {
                    raw_locations.push(location(message, &mut raw_lines, omissions)?);
                }
                (5, Value::Bytes(message)) => {
                    let (id, function) = function(message, omissions)?;
                    let index = index(tables.functions.len());
                    tables.functions.push(function);
                    if function_ids.insert(id, index).is_some() {
                        return Err(message.error(format!("two functions have the id {id}")));
                    }
                }
                (6, Value::Bytes(text)) => tables.texts.push(text),
                (7 | 8, Value::Number(text)) => {
                    omissions.add_many(OmittedKind::FunctionFilters, u64::from(text != 0));
                }
                (9, Value::Number(date)) => {
                    omissions.add_many(OmittedKind::Date, u64::from(date != 0));
                }
                (10, Value::Number(duration)) => {
                    omissions.add_many(OmittedKind::Duration, u64::from(duration != 0));
                }
                (11, Value::Bytes(message)) => tables.period_type = Some(pair(message)?),
                (12, Value::Number(period)) => tables.period = period,
                (13, value) => {
                    let mut comments = Vec::new();
                    Wire::numbers(value, &mut comments)?;
                    omissions.add_many(OmittedKind::Comments, comments.len() as u64);
                }
                (14, Value::Number(choice)) => {
                    omissions.add_many(OmittedKind::DefaultEvent, u64::from(choice != 0));
                }
                (15, Value::Number(link)) => {
                    omissions.add_many(OmittedKind::DocumentationLink, u64::from(link != 0));
                }
                _ => omissions.add(OmittedKind::UnknownFields),
            }
        }
        if tables
            .texts
            .first()
            .is_some_and(|text| !text.bytes.is_empty())
        {
            return Err(whole.error("the first text of the table is not empty"));
        }
        let mapping_ids: HashMap<u64, u32> = tables
            .mappings
            .iter()
            .enumerate()
            .map(|(place, mapping)| (mapping.id, index(place)))
            .collect();
        for (function, line) in raw_lines {
            let Some(function) = function_ids.get(&function).copied() else {
                return Err(whole.error(format!("there is no function with the id {function}")));
            };
            // A line is signed, and 0 if it is not known.
            let number = u32::try_from(line);
            omissions.add_many(OmittedKind::LineNumbers, u64::from(number.is_err()));
            let line = number.ok().filter(|line| *line > 0);
            tables.lines.push(Line { function, line });
        }
        for raw in raw_locations {
            let at = Wire {
                bytes: &[],
                offset: raw.offset,
            };
            let mapping =
                match raw.mapping {
                    0 => None,
                    id => Some(*mapping_ids.get(&id).ok_or_else(|| {
                        at.error(format!("there is no mapping with the id {id}"))
                    })?),
                };
            let place = index(tables.locations.len());
            tables.locations.push(Location {
                mapping,
                address: raw.address,
                lines: raw.lines,
            });
            if raw.id == 0 || tables.location_ids.insert(raw.id, place).is_some() {
                return Err(at.error(format!(
                    "a location has the id {}, which is 0 or another one's",
                    raw.id
                )));
            }
        }
        Ok(tables)
    }

    /// Returns a text of the table.
    pub(super) fn text(&self, index: u64) -> Result<&'a str, ImportError> {
        let found = usize::try_from(index).ok();
        let text = found.and_then(|index| self.texts.get(index));
        match (text, index) {
            (Some(text), _) => std::str::from_utf8(text.bytes)
                .map_err(|_| text.error(format!("text {index} of the table is not UTF-8"))),
            (None, 0) => Ok(""),
            (None, _) => {
                Err(Wire::new(&[]).error(format!("there is no text {index} in the table")))
            }
        }
    }

    /// Returns a type of values.
    pub(super) fn value_type(
        &self,
        (name, unit): (u64, u64),
    ) -> Result<ValueType<'a>, ImportError> {
        Ok(ValueType {
            name: self.text(name)?,
            unit: self.text(unit)?,
        })
    }

    /// Returns the index of a location.
    pub(super) fn location(&self, id: u64) -> Option<u32> {
        self.location_ids.get(&id).copied()
    }

    /// Returns the functions of a location, innermost first.
    pub(super) fn lines(&self, location: &Location) -> &[Line] {
        let (start, end) = location.lines;
        &self.lines[start as usize..end as usize]
    }
}

/// Returns a place in a table as a number of 32 bits. Each entry takes at least two bytes of a content whose size is
/// bounded far below 8 GiB.
fn index(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

fn pair(mut message: Wire<'_>) -> Result<(u64, u64), ImportError> {
    let mut pair = (0, 0);
    while let Some((field, value)) = message.field()? {
        match (field, value) {
            (1, Value::Number(number)) => pair.0 = number,
            (2, Value::Number(number)) => pair.1 = number,
            _ => {}
        }
    }
    Ok(pair)
}

fn mapping(mut message: Wire<'_>) -> Result<Mapping, ImportError> {
    let start = message;
    let mut mapping = Mapping::default();
    while let Some((field, value)) = message.field()? {
        let Value::Number(number) = value else {
            continue;
        };
        match field {
            1 => mapping.id = number,
            2 => mapping.start = number,
            3 => mapping.end = number,
            4 => mapping.offset = number,
            5 => mapping.file = number,
            6 => mapping.build_id = number,
            // The marks of what has names: the names themselves say it.
            _ => {}
        }
    }
    match mapping.id {
        0 => Err(start.error("a mapping has the id 0")),
        _ => Ok(mapping),
    }
}

fn location(
    mut message: Wire<'_>,
    lines: &mut Vec<(u64, u64)>,
    omissions: &mut Omissions,
) -> Result<RawLocation, ImportError> {
    let first = index(lines.len());
    let mut location = RawLocation {
        id: 0,
        mapping: 0,
        address: 0,
        lines: (first, first),
        offset: message.offset,
    };
    while let Some((field, value)) = message.field()? {
        match (field, value) {
            (1, Value::Number(id)) => location.id = id,
            (2, Value::Number(mapping)) => location.mapping = mapping,
            (3, Value::Number(address)) => location.address = address,
            (4, Value::Bytes(mut message)) => {
                let mut line = (0, 0);
                let mut has_column = false;
                while let Some((field, value)) = message.field()? {
                    match (field, value) {
                        (1, Value::Number(function)) => line.0 = function,
                        (2, Value::Number(number)) => line.1 = number,
                        (3, Value::Number(column)) => has_column = column != 0,
                        _ => omissions.add(OmittedKind::UnknownFields),
                    }
                }
                omissions.add_many(OmittedKind::FunctionLines, u64::from(has_column));
                lines.push(line);
            }
            (5, Value::Number(folded)) => {
                omissions.add_many(OmittedKind::FoldedMarks, u64::from(folded != 0));
            }
            _ => omissions.add(OmittedKind::UnknownFields),
        }
    }
    location.lines.1 = index(lines.len());
    Ok(location)
}

fn function(
    mut message: Wire<'_>,
    omissions: &mut Omissions,
) -> Result<(u64, Function), ImportError> {
    let start = message;
    let mut id = 0;
    let mut function = Function::default();
    while let Some((field, value)) = message.field()? {
        let Value::Number(number) = value else {
            omissions.add(OmittedKind::UnknownFields);
            continue;
        };
        match field {
            1 => id = number,
            2 => function.name = number,
            3 => function.system_name = number,
            4 => function.file = number,
            5 => omissions.add_many(OmittedKind::FunctionLines, u64::from(number != 0)),
            _ => omissions.add(OmittedKind::UnknownFields),
        }
    }
    match id {
        0 => Err(start.error("a function has the id 0")),
        _ => Ok((id, function)),
    }
}
