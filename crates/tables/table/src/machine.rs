//! The table for programs: CSV and JSON, raw numbers with full precision.
//!
//! Both write each number in its column's unit, as the shortest decimal that reads back as the same f64. An undefined
//! number (a ratio over zero, a number that is not finite) is written as no value. Addresses are hexadecimal text,
//! since spreadsheets and JavaScript round integers beyond 2⁵³ and kernel addresses are beyond it.

use std::io::{self, BufWriter, Write};

use serde::ser::{SerializeMap, SerializeSeq, SerializeStruct};
use serde::{Serialize, Serializer};

use crate::escape::push_escaped;
use crate::order::RowPosition;
use crate::table::{NOTE, PARENT_ROW_ID, ROW_ID, STANDARD_ERROR};
use crate::{Cell, Mark, RenderError, Row, Table};

/// Writes `table` as CSV: RFC 4180 with lines that end in LF, column ids in the first row, UTF-8.
///
/// - A column with standard errors is followed by a column of them, named after it plus `_standard_error`.
/// - A column with marked cells is followed by a column that tells the marks, named after it plus `_note`:
///   `few_samples`, `partial`, or `missing: ` and the inputs that were not recorded.
/// - If rows form a tree, the columns `row_id` and `parent_row_id` come first; parents come before their children.
/// - Names are quoted only where they must be. A name that is empty is `""`, a cell without a value nothing at all.
/// - Names are harmless wherever the file is opened, since whoever made the profiled program chose them. Control and
///   invisible characters are spelled out as in text ([`crate::escape()`]), so that each row is one line. A name that
///   begins with `=`, `+`, `-` or `@`, which a spreadsheet would take for a formula, has a `'` before it. JSON has the
///   exact names. Numbers are never changed: `-5` of a difference stays `-5`.
/// - A ratio is one number; its numerator and denominator are in JSON only.
/// - The table's facts are not part of it: print them with [`crate::Facts::write_text`].
///
/// # Errors
/// [`RenderError::Table`] before anything is written if the table contradicts itself, else those of the writer.
pub fn write_csv(table: &Table, out: impl Write) -> Result<(), RenderError> {
    let order = table.display_order()?;
    let tree = table.is_tree();
    let with_error: Vec<bool> = (0..table.columns.len())
        .map(|column| table.rows().any(|row| row.standard_error(column).is_some()))
        .collect();
    let with_note: Vec<bool> = (0..table.columns.len())
        .map(|column| table.rows().any(|row| row.mark(column).is_some()))
        .collect();
    let mut out = BufWriter::new(out);
    let mut record = Record {
        out: &mut out,
        fields: 0,
        escaped: String::new(),
    };

    if tree {
        record.text(ROW_ID)?;
        record.text(PARENT_ROW_ID)?;
    }
    for (index, column) in table.columns.iter().enumerate() {
        record.text(&column.id)?;
        if with_error[index] {
            record.text(&format!("{}{STANDARD_ERROR}", column.id))?;
        }
        if with_note[index] {
            record.text(&format!("{}{NOTE}", column.id))?;
        }
    }
    record.end()?;
    for RowPosition { row, .. } in order {
        let row = table.row(row);
        if tree {
            record.raw(row.id())?;
            record.optional(row.parent())?;
        }
        for (index, cell) in row.cells().enumerate() {
            match &cell {
                Cell::Name(name) => record.text(name)?,
                Cell::Count(count) => record.raw(count)?,
                Cell::Address(address) => record.raw(format_args!("{address:#x}"))?,
                Cell::Difference { .. } => record.optional(cell.difference())?,
                Cell::Empty | Cell::Ratio { .. } | Cell::Real { .. } => {
                    record.optional(cell.value(table.columns[index].unit.scale()).map(Shortest))?;
                }
            }
            if with_error[index] {
                record.optional(row.standard_error(index).map(Shortest))?;
            }
            if with_note[index] {
                match row.mark(index) {
                    Some(mark) => record.text(&mark.id())?,
                    None => record.optional(None::<u32>)?,
                }
            }
        }
        record.end()?;
    }
    out.flush()?;
    Ok(())
}

/// The shortest decimal that reads back as the same f64, with an exponent where that is shorter; `Display` would
/// write 300 digits.
struct Shortest(f64);

impl std::fmt::Display for Shortest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&self.0, formatter)
    }
}

/// One line of CSV in the making.
struct Record<'a, W: Write> {
    out: &'a mut W,
    fields: usize,
    /// Room for one name, reused.
    escaped: String,
}

/// The characters with which a spreadsheet's formula begins.
const FORMULA: [char; 4] = ['=', '+', '-', '@'];

impl<W: Write> Record<'_, W> {
    fn separate(&mut self) -> io::Result<()> {
        self.fields += 1;
        if self.fields > 1 {
            self.out.write_all(b",")
        } else {
            Ok(())
        }
    }

    /// Writes a field that needs no quotes.
    fn raw(&mut self, value: impl std::fmt::Display) -> io::Result<()> {
        self.separate()?;
        write!(self.out, "{value}")
    }

    fn optional(&mut self, value: Option<impl std::fmt::Display>) -> io::Result<()> {
        match value {
            Some(value) => self.raw(value),
            None => self.separate(),
        }
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        self.separate()?;
        self.escaped.clear();
        if text.starts_with(FORMULA) {
            self.escaped.push('\'');
        }
        push_escaped(&mut self.escaped, text);
        let text = &*self.escaped;
        if !text.is_empty() && !text.contains(['"', ',']) {
            return self.out.write_all(text.as_bytes());
        }
        self.out.write_all(b"\"")?;
        for (index, part) in text.split('"').enumerate() {
            if index > 0 {
                self.out.write_all(b"\"\"")?;
            }
            self.out.write_all(part.as_bytes())?;
        }
        self.out.write_all(b"\"")
    }

    fn end(&mut self) -> io::Result<()> {
        self.fields = 0;
        self.out.write_all(b"\n")
    }
}

/// Writes `table` as JSON, schema 1: one object, with a line for each row.
///
/// ```json
/// {"schema":1,
/// "facts":{"lost_records":{"severity":"loss","text":"3 records were lost","value":3}},
/// "columns":[{"id":"self","name":"self","unit":"percent","kind":"ratio","event":"cycles","parent":null},
/// {"id":"function","name":"function","unit":null,"kind":"name","event":null,"parent":null}],
/// "rows":[
/// {"id":0,"parent":null,"cells":[25.0,"main"],"ratios":{"self":[1,4]}}
/// ]}
/// ```
///
/// A cell is a string (names, addresses), a number or null (no value). Details that a number cannot hold stand beside
/// the cells, by column id, in rows that have them: `ratios` has the exact numerator and denominator before scaling,
/// `standard_errors` the errors in the column's unit, `notes` the cells' marks, as in CSV. A column's `parent` is a
/// column id, a row's a row id; parents come before their children.
///
/// # Errors
/// [`RenderError::Table`] before anything is written if the table contradicts itself, else those of the writer.
pub fn write_json(table: &Table, out: impl Write) -> Result<(), RenderError> {
    let order = table.display_order()?;
    let mut out = BufWriter::new(out);
    out.write_all(b"{\"schema\":1,\n\"facts\":")?;
    serde_json::to_writer(&mut out, &table.facts)?;
    out.write_all(b",\n\"columns\":[")?;
    for index in 0..table.columns.len() {
        if index > 0 {
            out.write_all(b",\n")?;
        }
        serde_json::to_writer(&mut out, &JsonColumn { table, index })?;
    }
    out.write_all(b"],\n\"rows\":[")?;
    for (number, place) in order.iter().enumerate() {
        out.write_all(if number > 0 { b",\n" } else { b"\n" })?;
        let row = table.row(place.row);
        serde_json::to_writer(&mut out, &JsonRow { table, row })?;
    }
    out.write_all(b"\n]}\n")?;
    out.flush()?;
    Ok(())
}

/// A column.
pub(crate) struct JsonColumn<'a> {
    pub table: &'a Table,
    pub index: usize,
}

impl Serialize for JsonColumn<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let column = &self.table.columns[self.index];
        let parent = column
            .parent
            .and_then(|parent| self.table.columns.get(parent));
        let mut object = serializer.serialize_struct("Column", 6)?;
        object.serialize_field("id", &column.id)?;
        object.serialize_field("name", &column.name)?;
        object.serialize_field("unit", &column.unit.id())?;
        object.serialize_field("kind", column.kind.id())?;
        object.serialize_field("event", &column.event)?;
        object.serialize_field("parent", &parent.map(|parent| &parent.id))?;
        object.end()
    }
}

struct JsonRow<'a> {
    table: &'a Table,
    row: Row<'a>,
}

impl Serialize for JsonRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let row = self.row;
        let columns = self.table.columns.len();
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry("id", &row.id())?;
        object.serialize_entry("parent", &row.parent())?;
        object.serialize_entry("cells", &JsonCells(self))?;
        if row.cells().any(|cell| matches!(cell, Cell::Ratio { .. })) {
            object.serialize_entry(
                "ratios",
                &Beside(self, |row, column| match row.cell(column) {
                    Cell::Ratio {
                        numerator,
                        denominator,
                    } => Some([numerator, denominator]),
                    _ => None,
                }),
            )?;
        }
        if (0..columns).any(|column| row.standard_error(column).is_some()) {
            object.serialize_entry(
                "standard_errors",
                &Beside(self, |row, column| row.standard_error(column)),
            )?;
        }
        if (0..columns).any(|column| row.mark(column).is_some()) {
            let mark = |row: Row<'_>, column| row.mark(column).map(Mark::id);
            object.serialize_entry("notes", &Beside(self, mark))?;
        }
        object.end()
    }
}

struct JsonCells<'a>(&'a JsonRow<'a>);

impl Serialize for JsonCells<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let JsonRow { table, row } = self.0;
        let mut list = serializer.serialize_seq(Some(table.columns.len()))?;
        for (column, cell) in table.columns.iter().zip(row.cells()) {
            match &cell {
                Cell::Name(name) => list.serialize_element(name)?,
                Cell::Count(count) => list.serialize_element(count)?,
                Cell::Address(address) => list.serialize_element(&format!("{address:#x}"))?,
                Cell::Difference { .. } => list.serialize_element(&cell.difference())?,
                Cell::Empty | Cell::Ratio { .. } | Cell::Real { .. } => {
                    list.serialize_element(&cell.value(column.unit.scale()))?;
                }
            }
        }
        list.end()
    }
}

/// The details of a row's cells besides their values, by column id, as the function returns them for each column.
struct Beside<'a, T>(&'a JsonRow<'a>, fn(Row<'_>, usize) -> Option<T>);

impl<T: Serialize> Serialize for Beside<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let JsonRow { table, row } = self.0;
        let columns = table.columns.iter().enumerate();
        let beside = columns.filter_map(|(index, column)| Some((&column.id, self.1(*row, index)?)));
        serializer.collect_map(beside)
    }
}
