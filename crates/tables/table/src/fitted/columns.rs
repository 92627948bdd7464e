//! The columns that a screen has room for.

use super::{FittedOptions, GAP};
use crate::escape::display_width;
use crate::order::RowPosition;
use crate::short_names::cut_middle;
use crate::text::{push_value, unit_heading};
use crate::{Cell, Column, ColumnKind, Table, Unit, escape};

/// The least width of the name of a row in terminal cells, unless the name is shorter.
const LEAST_NAME: usize = 24;
/// The least width of other names, such as modules, in terminal cells.
const LEAST_OTHER_NAME: usize = 10;

/// The least width of the name of an event in terminal cells, unless the name is shorter.
const LEAST_EVENT: usize = 10;

/// One shown column.
struct Shown {
    /// Its index in the table.
    index: usize,
    width: usize,
    /// The least width in terminal cells: names can be shortened to it.
    least: usize,
    is_right: bool,
    /// Whether the cells are texts that can be shortened.
    is_name: bool,
    /// Whether the column is one of names, and no row has a name.
    is_empty: bool,
    /// The lines of the heading.
    heading: [String; 2],
}

/// The columns in the order in which they are shown.
pub(super) struct Columns {
    shown: Vec<Shown>,
    /// The place in `shown` of the column that is indented by the rows' depth.
    indented: Option<usize>,
    /// Indices in the table of the columns that do not fit.
    left_out: Vec<usize>,
}

impl Columns {
    pub fn choose(table: &Table, places: &[RowPosition], options: &FittedOptions) -> Columns {
        let mut columns = Columns {
            shown: order(table)
                .into_iter()
                .map(|index| measure(table, places, options, index))
                .filter(|shown| !shown.is_empty || options.sorted_by == Some(shown.index))
                .collect(),
            indented: None,
            left_out: Vec::new(),
        };
        if let Some(last) = columns.last_name() {
            let deepest = places.iter().map(|place| place.depth).max().unwrap_or(0);
            let shown = &mut columns.shown[last];
            shown.least = shown.width.min(LEAST_NAME);
            // The tree's lines need room, up to a point.
            let indent = 2 * (deepest as usize).min(options.width / 4);
            shown.width += indent;
            shown.least += indent.min(8);
            if table.is_tree() {
                shown.is_right = false;
            }
        }
        columns.drop_some(table, options);
        columns.share_room(table, options.width);
        columns.indented = columns.last_name();
        columns
    }

    /// Returns the place of the column that names a row best.
    fn last_name(&self) -> Option<usize> {
        let is_name = |shown: &Shown| shown.is_name;
        self.shown.iter().rposition(is_name)
    }

    /// Returns the least width of a line, with room for the names of events above their columns.
    fn least_width(&self, table: &Table) -> usize {
        let runs = self
            .shown
            .chunk_by(|one, other| of_one_event(table, one, other));
        let widths: usize = runs
            .map(|run| width_of(run, |shown| shown.least) + lacking(table, run))
            .sum();
        let gaps = self
            .shown
            .chunk_by(|one, other| of_one_event(table, one, other));
        widths + GAP * gaps.count().saturating_sub(1)
    }

    /// Widens the first column of each event where the event's name needs it.
    fn make_room_for_events(&mut self, table: &Table) {
        for run in self
            .shown
            .chunk_by_mut(|one, other| of_one_event(table, one, other))
        {
            let lacking = lacking(table, run);
            if let Some(first) = run.first_mut() {
                first.width += lacking;
                first.least += lacking;
            }
        }
    }

    /// Drops columns until the rest can fit.
    fn drop_some(&mut self, table: &Table, options: &FittedOptions) {
        let first = self.shown.first().map(|shown| shown.index);
        let events = table.events();
        while self.least_width(table) > options.width {
            let last_name = self.last_name();
            let droppable = self.shown.iter().enumerate().filter(|(place, shown)| {
                let is_needed = Some(*place) == last_name
                    || Some(shown.index) == first
                    || Some(shown.index) == options.sorted_by;
                !is_needed
            });
            let worst = droppable
                .max_by_key(|(place, shown)| (rank(&table.columns[shown.index], &events), *place));
            let Some((worst, _)) = worst else {
                break;
            };
            self.left_out.push(self.shown.remove(worst).index);
        }
        self.left_out.sort_unstable();
        self.make_room_for_events(table);
        // On a screen too narrow even for the remaining columns, the last name becomes narrower.
        let over = self.least_width(table).saturating_sub(options.width);
        if let Some(last) = self.last_name() {
            let least = &mut self.shown[last].least;
            *least = least.saturating_sub(over).max(4);
        }
    }

    /// Gives names the room that is left, beginning with the last column, which says most.
    fn share_room(&mut self, table: &Table, width: usize) {
        let mut room = width.saturating_sub(self.least_width(table));
        for shown in self.shown.iter_mut().rev() {
            let more = shown.width.saturating_sub(shown.least).min(room);
            shown.width = shown.least + more;
            room -= more;
        }
    }

    /// Returns the indices of the shown columns in the table.
    pub fn shown(&self) -> impl Iterator<Item = usize> + '_ {
        self.shown.iter().map(|shown| shown.index)
    }

    pub fn is_indented(&self, column: usize) -> bool {
        self.indented == Some(column)
    }

    /// Returns the width of a column's cells, if they can be shortened.
    pub fn name_width(&self, column: usize) -> Option<usize> {
        let shown = &self.shown[column];
        shown.is_name.then_some(shown.width)
    }

    /// Returns the number of a tree's levels that are drawn.
    pub fn indent_limit(&self) -> u32 {
        let width = self.indented.map_or(0, |column| self.shown[column].width);
        (width / 4).max(2) as u32
    }

    /// Returns the lines of the heading: names, and units if there are any.
    pub fn headings(&self) -> Vec<Vec<&str>> {
        let line = |line: usize| -> Vec<&str> {
            let each = self.shown.iter();
            each.map(|shown| shown.heading[line].as_str()).collect()
        };
        let mut lines = vec![line(0), line(1)];
        lines.retain(|line| line.iter().any(|cell| !cell.is_empty()));
        lines
    }

    /// Appends a gap and one cell, which takes `width` terminal cells, aligned.
    pub fn push_padded(&self, line: &mut String, cell: &str, width: usize, column: usize) {
        if column > 0 {
            line.extend(std::iter::repeat_n(' ', GAP));
        }
        let shown = &self.shown[column];
        let padding = shown.width.saturating_sub(width);
        let is_last = column + 1 == self.shown.len();
        if shown.is_right {
            line.extend(std::iter::repeat_n(' ', padding));
        }
        line.push_str(cell);
        if !shown.is_right && !is_last {
            line.extend(std::iter::repeat_n(' ', padding));
        }
    }

    /// Returns the line of events above their columns.
    pub fn event_line(&self, table: &Table, unicode: bool) -> String {
        let dash = if unicode { "─" } else { "-" };
        let event = |shown: &Shown| table.columns[shown.index].event.as_deref();
        let mut line = String::new();
        let runs = self
            .shown
            .chunk_by(|one, other| of_one_event(table, one, other));
        for (number, run) in runs.enumerate() {
            if number > 0 {
                line.extend(std::iter::repeat_n(' ', GAP));
            }
            let width = width_of(run, |shown| shown.width);
            let name = escape(event(&run[0]).unwrap_or(""));
            let name = cut_middle(&name, width);
            line.push_str(&name);
            let rest = width - display_width(&name);
            match rest {
                // Dashes to the span's end show which columns belong to the event.
                2.. if !name.is_empty() => {
                    line.push(' ');
                    line.extend(std::iter::repeat_n(dash, rest - 1));
                }
                rest => line.extend(std::iter::repeat_n(' ', rest)),
            }
        }
        line
    }

    /// Returns a sentence about the columns that do not fit.
    pub fn left_out(&self, table: &Table) -> Option<String> {
        if self.left_out.is_empty() {
            return None;
        }
        let events = table.events().len() > 1;
        let column = |index: &usize| &table.columns[*index];
        let mut parts: Vec<String> = Vec::new();
        for run in self
            .left_out
            .chunk_by(|one, other| column(one).event == column(other).event)
        {
            let names: Vec<String> = run
                .iter()
                .map(|index| escape(&column(index).name))
                .collect();
            let names = names.join(", ");
            parts.push(match &column(&run[0]).event {
                Some(event) if events => format!("{names} of {}", escape(event)),
                _ => names,
            });
        }
        Some(format!(
            "no room for {}; a wider terminal has it",
            parts.join("; ")
        ))
    }
}

fn of_one_event(table: &Table, one: &Shown, other: &Shown) -> bool {
    table.columns[one.index].event == table.columns[other.index].event
}

/// Returns the width of neighbouring columns with the gaps between them.
fn width_of(run: &[Shown], width: impl Fn(&Shown) -> usize) -> usize {
    run.iter().map(width).sum::<usize>() + GAP * run.len().saturating_sub(1)
}

/// Returns the number of terminal cells by which an event's columns are too narrow for its name. A long name needs no
/// more than [`LEAST_EVENT`] cells, since its first and last characters say enough.
fn lacking(table: &Table, run: &[Shown]) -> usize {
    let event = run
        .first()
        .and_then(|shown| table.columns[shown.index].event.as_deref());
    let name = event.filter(|_| table.events().len() > 1);
    let needed = name.map_or(0, |name| display_width(&escape(name)).min(LEAST_EVENT));
    needed.saturating_sub(width_of(run, |shown| shown.least))
}

/// Returns the columns in the order in which a screen shows them: the names of rows behind the numbers of the first
/// event.
fn order(table: &Table) -> Vec<usize> {
    let shown = (0..table.columns.len()).filter(|index| !table.columns[*index].is_for_programs);
    let mut shown: Vec<usize> = shown.collect();
    let events = table.events();
    let [first, _, ..] = events.as_slice() else {
        return shown;
    };
    let names = shown.iter().rev();
    let names = names
        .take_while(|index| names_row(&table.columns[**index]))
        .count();
    let names = shown.split_off(shown.len() - names);
    let of_first = |index: &usize| table.columns[*index].event.as_deref() == Some(*first);
    let at = shown.iter().rposition(of_first).map_or(0, |last| last + 1);
    shown.splice(at..at, names);
    shown
}

/// Returns true if a column says what a row is about.
fn names_row(column: &Column) -> bool {
    let is_time = column.kind == ColumnKind::Time && matches!(&*column.id, "start" | "end");
    let is_name = matches!(column.kind, ColumnKind::Name | ColumnKind::Address);
    column.event.is_none() && (is_name || is_time)
}

/// Returns a column's rank in giving way: the column with the largest rank is dropped first.
fn rank(column: &Column, events: &[&str]) -> (usize, usize) {
    let event = column.event.as_deref();
    let event = event.and_then(|event| events.iter().position(|known| *known == event));
    let of_event = event.is_some();
    let level = match (column.kind, &column.unit) {
        _ if matches!(&*column.id, "module" | "end_address") => 2,
        // Other names tell rows from each other.
        _ if names_row(column) && !matches!(&*column.id, "trust" | "method" | "apart") => 0,
        (ColumnKind::Ratio, Unit::Percent) if of_event => 0,
        (ColumnKind::Ratio, Unit::Percent) => 2,
        // The difference itself, in tables of differences.
        _ if column.id.starts_with("delta") => 1,
        // A metric, its trust, the significance of a difference.
        (ColumnKind::Ratio | ColumnKind::Name, _) => 1,
        (_, Unit::Samples) => 4,
        _ => 3,
    };
    // Shares of later events give way before the weight of the first one does.
    let event = event.unwrap_or(0);
    match (level, event) {
        (level, 0) => (level, 0),
        (0, event) => (1, event),
        (level, event) => (level + 1, event),
    }
}

/// Measures a column as wide as it wants to be.
fn measure(table: &Table, places: &[RowPosition], options: &FittedOptions, index: usize) -> Shown {
    let column = &table.columns[index];
    let mut heading = [
        escape(&column.name),
        unit_heading(column).unwrap_or_default(),
    ];
    let mut is_right = column.kind != ColumnKind::Name;
    if !is_right {
        let mut cells = places.iter().map(|place| table.row(place.row).cell(index));
        let numbers = |cell: Cell<'_>| matches!(cell, Cell::Count(_) | Cell::Empty);
        is_right = !places.is_empty() && cells.all(numbers);
    }
    let mut cell = String::new();
    let mut width = 0;
    let mut is_empty = true;
    for place in places {
        cell.clear();
        push_value(
            &mut cell,
            table,
            table.row(place.row),
            index,
            options.errors,
        );
        is_empty &= cell.is_empty();
        width = width.max(display_width(&cell));
    }
    // A heading of several words stands in two lines where that saves room.
    if heading[1].is_empty()
        && display_width(&heading[0]) > width.max(8)
        && let Some((first, second)) = heading[0].rsplit_once(' ')
    {
        heading = [first.to_owned(), second.to_owned()];
    }
    let headed = heading.iter().map(|line| display_width(line)).max();
    let headed = headed.unwrap_or(0);
    let is_name = column.kind == ColumnKind::Name && !is_right;
    let width = width.max(headed);
    let least = match is_name && column.event.is_none() {
        true => width.min(LEAST_OTHER_NAME.max(headed)),
        false => width,
    };
    Shown {
        index,
        width,
        least,
        is_right,
        is_name: is_name && column.event.is_none(),
        is_empty: column.kind == ColumnKind::Name && is_empty && !places.is_empty(),
        heading,
    }
}
