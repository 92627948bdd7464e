//! The table as lines of JSON: one object for each row.

use crate::machine::JsonColumn;
use crate::table::{NOTE, PARENT_ROW_ID, ROW_ID, STANDARD_ERROR};
use crate::{Cell, Mark, RenderError, Row, Table};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::io::{BufWriter, Write};

/// Writes `table` as lines of JSON. The first one has `schema`, `facts` and `columns` as [`crate::write_json`] has
/// them; each other one is a row.
///
/// A row's keys are the ids of the columns. `row_id` comes first, and `parent_row_id` in trees. Standard errors and
/// marks of cells have the keys that CSV's columns have: the column's id with `_standard_error` and `_note`. Exact
/// numerators and denominators are in [`crate::write_json`]'s rendering only.
///
/// # Errors
/// [`RenderError::Table`] before anything is written if the table contradicts itself, else those of the writer.
pub fn write_ndjson(table: &Table, out: impl Write) -> Result<(), RenderError> {
    let order = table.display_order()?;
    let is_tree = table.is_tree();
    let mut out = BufWriter::new(out);
    out.write_all(b"{\"schema\":1,\"facts\":")?;
    serde_json::to_writer(&mut out, &table.facts)?;
    out.write_all(b",\"columns\":")?;
    let columns: Vec<JsonColumn<'_>> = (0..table.columns.len())
        .map(|index| JsonColumn { table, index })
        .collect();
    serde_json::to_writer(&mut out, &columns)?;
    out.write_all(b"}\n")?;
    for place in order {
        let row = table.row(place.row);
        let object = Object {
            table,
            row,
            is_tree,
        };
        serde_json::to_writer(&mut out, &object)?;
        out.write_all(b"\n")?;
    }
    out.flush()?;
    Ok(())
}

/// A row.
struct Object<'a> {
    table: &'a Table,
    row: Row<'a>,
    is_tree: bool,
}

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let row = self.row;
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry(ROW_ID, &row.id())?;
        if self.is_tree {
            object.serialize_entry(PARENT_ROW_ID, &row.parent())?;
        }
        for (index, column) in self.table.columns.iter().enumerate() {
            let id = &column.id;
            match &row.cell(index) {
                Cell::Name(name) => object.serialize_entry(id, name)?,
                Cell::Count(count) => object.serialize_entry(id, count)?,
                Cell::Address(address) => object.serialize_entry(id, &format!("{address:#x}"))?,
                cell @ Cell::Difference { .. } => {
                    object.serialize_entry(id, &cell.difference())?;
                }
                cell @ (Cell::Empty | Cell::Ratio { .. } | Cell::Real { .. }) => {
                    object.serialize_entry(id, &cell.value(column.unit.scale()))?;
                }
            }
            if let Some(error) = row.standard_error(index) {
                object.serialize_entry(&format!("{id}{STANDARD_ERROR}"), &error)?;
            }
            if let Some(mark) = row.mark(index).map(Mark::id) {
                object.serialize_entry(&format!("{id}{NOTE}"), &mark)?;
            }
        }
        object.end()
    }
}
