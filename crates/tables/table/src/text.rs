//! The table as text for people.

use std::io::{BufWriter, Write};

use crate::escape::{display_width, escape};
use crate::facts::write_fact;
use crate::number::{push_cell, push_error};
use crate::order::{RowPosition, kept};
use crate::{Cell, Column, ColumnKind, Mark, RenderError, Row, Severity, Table, Unit};

/// The options of [`write_text`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextOptions {
    /// The greatest number of top rows to show. A last line then gives the number of the remaining rows and their
    /// share.
    pub limit: Option<usize>,
    /// Whether to show the table's facts: information above the table, other facts below it.
    pub facts: bool,
    /// Whether to show the standard errors that stand beside cells.
    pub errors: bool,
    /// Whether to show the events and the columns' names.
    pub heading: bool,
}

impl Default for TextOptions {
    /// Shows everything.
    fn default() -> TextOptions {
        TextOptions {
            limit: None,
            facts: true,
            errors: true,
            heading: true,
        }
    }
}

/// The space between two columns.
const GAP: &str = "  ";
/// The greatest width to which a name column before the last one is padded, in terminal cells. Longer names are shown
/// in full and push their own line to the right, so that one monstrous name does not make the whole table unreadable.
const WIDEST_NAMES: usize = 48;
/// The number of a tree's levels that are indented. Deeper rows give the number of their level instead, since a
/// recursion some thousand calls deep would otherwise be written as some million spaces.
const DEEPEST_INDENT: u32 = 32;

/// Writes `table` as text: facts and events as lines that start with `# `, a heading, one line a row. Numbers are
/// right-aligned, names left-aligned. A value that rests on few samples ends in `?`, one that lacks parts in `+`, and
/// one whose clock contains interrupts in `~`. Where inputs are missing, `no` and the first missing input stand
/// instead. A row in a tree is indented in the last name column. Control characters in names are spelled out (see
/// [`escape()`]). There are no colours. Rows are written as they are formatted; none is kept.
///
/// # Errors
/// [`RenderError::Table`] before anything is written if the table contradicts itself, else those of the writer.
pub fn write_text(
    table: &Table,
    options: &TextOptions,
    out: impl Write,
) -> Result<(), RenderError> {
    let order = table.display_order()?;
    let kept = options
        .limit
        .map_or(order.len(), |limit| kept(&order, limit));
    let layout = Layout::new(table, &order[..kept], options);
    let mut out = BufWriter::new(out);

    let facts = |information: bool| {
        let shown = options.facts;
        table
            .facts
            .iter()
            .filter(move |fact| shown && (fact.severity == Severity::Info) == information)
    };
    for fact in facts(true) {
        write_fact(fact, &mut out)?;
    }
    if options.heading {
        for event in table.events() {
            writeln!(out, "# event: {}", escape(event))?;
        }
        layout.write_heading(&mut out)?;
    }
    let (mut line, mut cell) = (String::new(), String::new());
    for place in &order[..kept] {
        line.clear();
        for column in 0..layout.shown.len() {
            cell.clear();
            layout.push_cell(&mut cell, *place, column);
            layout.push_padded(&mut line, &cell, column);
        }
        writeln!(out, "{}", line.trim_end_matches(' '))?;
    }
    if order.is_empty() {
        writeln!(out, "# no rows")?;
    }
    if let Some(left_out) = table.left_out_after(&order, kept) {
        writeln!(out, "… {}", left_out.sentence())?;
    }
    for fact in facts(false) {
        write_fact(fact, &mut out)?;
    }
    out.flush()?;
    Ok(())
}

/// The places of columns and headings in the text.
struct Layout<'a> {
    table: &'a Table,
    /// The indices of the shown columns. All other fields use places in this list.
    shown: Vec<usize>,
    errors: bool,
    /// Each column's heading, escaped, with its unit where the cells do not show it.
    headings: Vec<String>,
    /// Each column's width in terminal cells.
    widths: Vec<usize>,
    /// Whether the column is right-aligned.
    right: Vec<bool>,
    /// The column that shows the rows' depth in the tree.
    indented: Option<usize>,
    /// Runs of columns about one event (first, one past the last, its name escaped), if there are several events.
    spans: Vec<(usize, usize, String)>,
}

impl<'a> Layout<'a> {
    fn new(table: &'a Table, order: &[RowPosition], options: &TextOptions) -> Layout<'a> {
        let shown: Vec<usize> = (0..table.columns.len())
            .filter(|column| !table.columns[*column].is_for_programs)
            .collect();
        let columns = shown.len();
        let of = |column: &usize| &table.columns[*column];
        let mut layout = Layout {
            table,
            headings: shown.iter().map(of).map(heading).collect(),
            widths: vec![0; columns],
            right: shown
                .iter()
                .map(of)
                .map(|column| column.kind != ColumnKind::Name)
                .collect(),
            indented: shown
                .iter()
                .map(of)
                .rposition(|column| column.kind == ColumnKind::Name),
            spans: Vec::new(),
            errors: options.errors,
            shown,
        };
        // Numbers that name, such as thread ids, are aligned like numbers. An indented column stays on the left.
        for column in 0..columns {
            let stays_left = layout.indented == Some(column) && table.is_tree();
            if !layout.right[column] && !stays_left {
                let mut cells = order
                    .iter()
                    .map(|place| table.row(place.row).cell(layout.shown[column]));
                let numbers = |cell: Cell<'_>| matches!(cell, Cell::Count(_) | Cell::Empty);
                layout.right[column] = !order.is_empty() && cells.all(numbers);
            }
        }
        let mut cell = String::new();
        for column in 0..columns {
            let cap = if layout.right[column] {
                usize::MAX
            } else {
                WIDEST_NAMES
            };
            let mut width = if options.heading {
                display_width(&layout.headings[column])
            } else {
                0
            };
            // The last column is only padded on its left.
            if layout.right[column] || column + 1 < columns {
                for place in order {
                    cell.clear();
                    layout.push_cell(&mut cell, *place, column);
                    width = width.max(display_width(&cell).min(cap));
                }
            }
            layout.widths[column] = width;
        }
        if options.heading && table.events().len() > 1 {
            layout.find_spans();
        }
        layout
    }

    /// Finds the runs of columns about one event, and widens their first columns where the event's name needs it.
    fn find_spans(&mut self) {
        let columns: Vec<&Column> = self
            .shown
            .iter()
            .map(|column| &self.table.columns[*column])
            .collect();
        let mut start = 0;
        while start < columns.len() {
            let event = &columns[start].event;
            let length = columns[start..]
                .iter()
                .take_while(|column| column.event == *event)
                .count();
            let end = start + length;
            if let Some(event) = event {
                let name = escape(event);
                let width = self.span_width(start, end);
                self.widths[start] += display_width(&name).saturating_sub(width);
                self.spans.push((start, end, name));
            }
            start = end;
        }
    }

    fn span_width(&self, start: usize, end: usize) -> usize {
        self.widths[start..end].iter().sum::<usize>() + GAP.len() * (end - start - 1)
    }

    /// Writes the line of events above their columns, if there are several, and the line of names.
    fn write_heading(&self, out: &mut impl Write) -> std::io::Result<()> {
        let mut line = String::new();
        let mut column = 0;
        for (start, end, name) in &self.spans {
            while column < *start {
                self.push_padded(&mut line, "", column);
                column += 1;
            }
            if *start > 0 {
                line.push_str(GAP);
            }
            line.push_str(name);
            // Dashes to the span's end show which columns belong to the event.
            let room = self
                .span_width(*start, *end)
                .saturating_sub(display_width(name));
            if room > 1 {
                line.push(' ');
                line.extend(std::iter::repeat_n('-', room - 1));
            } else {
                line.extend(std::iter::repeat_n(' ', room));
            }
            column = *end;
        }
        if !self.spans.is_empty() {
            writeln!(out, "{}", line.trim_end_matches(' '))?;
            line.clear();
        }
        if self.headings.is_empty() {
            return Ok(());
        }
        for (column, heading) in self.headings.iter().enumerate() {
            self.push_padded(&mut line, heading, column);
        }
        writeln!(out, "{}", line.trim_end_matches(' '))
    }

    /// Appends one cell with its place in the tree, not yet aligned.
    fn push_cell(&self, out: &mut String, place: RowPosition, column: usize) {
        if self.indented == Some(column) {
            for _ in 0..place.depth.min(DEEPEST_INDENT) {
                out.push_str(GAP);
            }
            if place.depth > DEEPEST_INDENT {
                out.push_str(&format!("[{}] ", place.depth));
            }
        }
        push_value(
            out,
            self.table,
            self.table.row(place.row),
            self.shown[column],
            self.errors,
        );
    }

    /// Appends a gap and one cell, aligned.
    fn push_padded(&self, line: &mut String, cell: &str, column: usize) {
        if column > 0 {
            line.push_str(GAP);
        }
        let padding = self.widths[column].saturating_sub(display_width(cell));
        if self.right[column] {
            line.extend(std::iter::repeat_n(' ', padding));
        }
        line.push_str(cell);
        if !self.right[column] && column + 1 < self.widths.len() {
            line.extend(std::iter::repeat_n(' ', padding));
        }
    }
}

/// Appends a cell with its standard error, if that is wanted, and its mark.
pub(crate) fn push_value(
    out: &mut String,
    table: &Table,
    row: Row<'_>,
    index: usize,
    with_error: bool,
) {
    let column = &table.columns[index];
    if let Some(Mark::Missing(inputs)) = row.mark(index) {
        push_missing(out, inputs);
        return;
    }
    let cell = row.cell(index);
    if row.mark(index) == Some(&Mark::Unreliable) {
        out.push('[');
        push_cell(out, &cell, column);
        out.push(']');
        return;
    }
    push_cell(out, &cell, column);
    if let Some(error) = row
        .noted_error(index)
        .filter(|_| with_error && !cell.is_undefined())
    {
        push_error(out, error, column);
    }
    match row.mark(index) {
        Some(Mark::FewSamples) => out.push('?'),
        Some(Mark::Partial) => out.push('+'),
        Some(Mark::HoldsInterrupts) => out.push('~'),
        _ => {}
    }
}

/// Appends `no` and the first missing input, with the number of further ones.
fn push_missing(out: &mut String, inputs: &[String]) {
    out.push_str("no ");
    out.push_str(&escape(inputs.first().map_or("inputs", String::as_str)));
    if inputs.len() > 1 {
        out.push_str(&format!(" +{}", inputs.len() - 1));
    }
}

/// Returns a column's name, and its unit where neither the name nor the cells say it.
fn heading(column: &crate::Column) -> String {
    let mut heading = escape(&column.name);
    if let Some(unit) = unit_heading(column) {
        heading.push_str(&format!(" {unit}"));
    }
    heading
}

/// Returns a column's unit in brackets, where neither its name nor the cells say it.
pub(crate) fn unit_heading(column: &crate::Column) -> Option<String> {
    match &column.unit {
        Unit::Bytes => Some("[bytes]".to_owned()),
        Unit::Named(symbol) => Some(format!("[{}]", escape(symbol))),
        _ => None,
    }
}
