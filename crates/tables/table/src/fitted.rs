//! The table as text that fits the width of a terminal.
//!
//! [`crate::write_text`] shows everything, however wide. This rendering shows a screen's worth: names are shortened
//! ([`crate::fit_name`]), columns that matter less give way, and what is not shown is summed up in a line each.

mod columns;
mod lines;
mod rows;

use crate::emphasis::Emphasis;
use crate::escape::display_width;
use crate::facts::fact_line;
use crate::order::RowPosition;
use crate::short_names::cut_end;
use crate::text::push_value;
use crate::{Cell, Facts, RenderError, Row, Severity, Table, Unit, escape};
use columns::Columns;
pub use lines::{close_percents, wrap};
use std::io::{BufWriter, Write};

/// Rows of a table that are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShownRows {
    /// All rows.
    All,
    /// This number of top rows, and all rows below them.
    Top(usize),
    /// This number of rows: in a tree, the rows with the largest values in the first percent column, and the rows above
    /// them.
    Best(usize),
}

/// The options of [`write_fitted`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FittedOptions {
    /// The width of a line in terminal cells.
    pub width: usize,
    /// The rows that are shown.
    pub rows: ShownRows,
    /// Whether to show the standard errors that stand beside cells.
    pub errors: bool,
    /// Whether shares are coloured by their heat, and diagnostics stand out.
    pub color: bool,
    /// Whether trees have lines of box drawing characters instead of ASCII.
    pub unicode: bool,
    /// The index of the column by which the table is sorted: it is shown, whatever the width.
    pub sorted_by: Option<usize>,
}

/// The number of spaces between two columns.
const GAP: usize = 2;

/// Writes `table` as text that is no wider than `options.width`: facts as lines that start with `# `, a heading, a
/// line for each row, a line that sums up the rows that are not shown.
///
/// Names stand behind the columns of the first event. Where the width does not suffice, samples and weights of the
/// later events go first; a line says which columns are not shown.
///
/// # Errors
/// [`RenderError::Table`] before anything is written if the table contradicts itself, else those of the writer.
pub fn write_fitted(
    table: &Table,
    options: &FittedOptions,
    out: impl Write,
) -> Result<(), RenderError> {
    let mut out = BufWriter::new(out);
    let order = table.display_order()?;
    let kept = rows::kept(table, &order, options.rows);
    let columns = Columns::choose(table, &kept.places, options);
    let page = Page { table, options };
    page.write_facts(&table.facts, true, &mut out)?;
    page.write_heading(&columns, &mut out)?;
    let tree = table.is_tree();
    let guides = match tree {
        true => lines::guides(&kept.places, columns.indent_limit(), options.unicode),
        false => Vec::new(),
    };
    let mut line = String::new();
    for (index, place) in kept.places.iter().enumerate() {
        line.clear();
        let guide = guides.get(index).map_or("", String::as_str);
        page.push_row(&columns, *place, guide, &mut line);
        writeln!(out, "{}", line.trim_end_matches(' '))?;
    }
    if order.is_empty() {
        writeln!(out, "# no rows")?;
    }
    if let Some(sentence) = kept.left_out {
        page.write_wrapped(Emphasis::Plain, &format!("… {sentence}"), "  ", &mut out)?;
    }
    if let Some(sentence) = columns.left_out(table) {
        page.write_wrapped(
            Emphasis::Heading,
            &format!("# {sentence}"),
            "#   ",
            &mut out,
        )?;
    }
    page.write_facts(&table.facts, false, &mut out)?;
    out.flush()?;
    Ok(())
}

/// A table on a screen.
struct Page<'a> {
    table: &'a Table,
    options: &'a FittedOptions,
}

impl Page<'_> {
    fn write_wrapped(
        &self,
        look: Emphasis,
        text: &str,
        indent: &str,
        out: &mut impl Write,
    ) -> std::io::Result<()> {
        let text = close_percents(text);
        for wrapped in wrap(&text, self.options.width, indent) {
            let mut line = String::new();
            look.push(self.options.color, &wrapped, &mut line);
            writeln!(out, "{line}")?;
        }
        Ok(())
    }

    /// Writes either the short facts that are information, which stand above the table, or all other facts, which stand
    /// below.
    fn write_facts(&self, facts: &Facts, above: bool, out: &mut impl Write) -> std::io::Result<()> {
        for fact in facts {
            let is_information = fact.severity == Severity::Info;
            let line = fact_line(fact);
            let is_above = is_information && display_width(&line) <= self.options.width;
            if is_above != above {
                continue;
            }
            let look = match is_information {
                true => Emphasis::Heading,
                false => Emphasis::Diagnostic,
            };
            self.write_wrapped(look, &line, "#   ", out)?;
        }
        Ok(())
    }

    /// Writes the line of events above their columns, if there are several; the names of the columns; their units.
    fn write_heading(&self, columns: &Columns, out: &mut impl Write) -> std::io::Result<()> {
        let events = self.table.events();
        let mut heads = Vec::new();
        match events.as_slice() {
            [] => {}
            // The facts tell as a rule how often it was sampled.
            [event] => {
                let start = format!("{event}: ");
                if !self
                    .table
                    .facts
                    .iter()
                    .any(|fact| fact.text.starts_with(&start))
                {
                    let line = format!("# event: {}", escape(event));
                    self.write_wrapped(Emphasis::Heading, &line, "#   ", out)?;
                }
            }
            _ => heads.push(columns.event_line(self.table, self.options.unicode)),
        }
        for cells in columns.headings() {
            let mut line = String::new();
            for (column, cell) in cells.iter().enumerate() {
                columns.push_padded(&mut line, cell, display_width(cell), column);
            }
            heads.push(line);
        }
        for head in heads {
            let mut line = String::new();
            Emphasis::Heading.push(self.options.color, head.trim_end(), &mut line);
            writeln!(out, "{line}")?;
        }
        Ok(())
    }

    fn push_row(&self, columns: &Columns, place: RowPosition, guide: &str, line: &mut String) {
        let row = self.table.row(place.row);
        let mut cell = String::new();
        for (column, index) in columns.shown().enumerate() {
            cell.clear();
            push_value(&mut cell, self.table, row, index, self.options.errors);
            let guide = match columns.is_indented(column) {
                true => guide,
                false => "",
            };
            if let Some(width) = columns.name_width(column) {
                let room = width.saturating_sub(display_width(guide));
                cell = match &*self.table.columns[index].id {
                    // The beginning tells a library, the end its version.
                    "module" => cut_end(&cell, room).into_owned(),
                    _ => crate::fit_name(&cell, room).into_owned(),
                };
            }
            let width = display_width(guide) + display_width(&cell);
            let mut shown = guide.to_owned();
            self.heat(row, index)
                .push(self.options.color, &cell, &mut shown);
            columns.push_padded(line, &shown, width, column);
        }
    }

    /// Returns the emphasis of a cell: by its size if the cell is a share of an event, else plain.
    fn heat(&self, row: Row<'_>, index: usize) -> Emphasis {
        let column = &self.table.columns[index];
        let cell = row.cell(index);
        let is_share = column.unit == Unit::Percent && matches!(cell, Cell::Ratio { .. });
        match is_share && column.event.is_some() {
            true => Emphasis::of_percent(cell.value(column.unit.scale())),
            false => Emphasis::Plain,
        }
    }
}
