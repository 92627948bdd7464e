//! The table of functions on the screen.

use super::cursor::Cursor;
use super::page::{Line, Page};
use super::search::{Match, Query, choose};
use crate::commands::trace::graph::Lines;
use crate::commands::trace::report::fields::{Field, Key, sort, width};
use crate::commands::trace::report::{push_fields, push_name};
use dioptra_tables::escape;
use dioptra_trace_report::Row;

/// The functions of a trace in a table.
pub struct ReportPage {
    rows: Vec<Row>,
    fields: Vec<Field>,
    keys: Vec<Key>,
    cursor: Cursor,
}

impl ReportPage {
    /// Makes the page of rows, sorted by these keys.
    pub fn new(mut rows: Vec<Row>, fields: Vec<Field>, keys: Vec<Key>) -> ReportPage {
        sort(&mut rows, &keys);
        ReportPage {
            rows,
            fields,
            keys,
            cursor: Cursor::default(),
        }
    }

    /// Returns the shown fields.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Shows other fields.
    pub fn set_fields(&mut self, fields: Vec<Field>) {
        self.fields = fields;
    }

    /// Sorts by the next field; behind the last field, by the names.
    pub fn sort_by_next(&mut self) {
        let place = match self.keys.first() {
            Some(Key::Field(field)) => self.fields.iter().position(|other| other == field),
            _ => None,
        };
        let next = match self.keys.first() {
            Some(Key::Function) => self.fields.first(),
            _ => self.fields.get(place.map_or(0, |place| place + 1)),
        };
        self.keys = vec![next.map_or(Key::Function, |field| Key::Field(*field))];
        sort(&mut self.rows, &self.keys);
        self.cursor.at = 0;
    }

    /// Moves to a function's row, if it has one. Library calls of one name share a row.
    pub fn go(&mut self, function: u32, name: &str) -> bool {
        let find = |is_it: &dyn Fn(&Row) -> bool| self.rows.iter().position(is_it);
        let place = find(&|row| row.times.function == function);
        let place = place.or_else(|| find(&|row| row.name == name));
        self.cursor.at = place.unwrap_or(self.cursor.at);
        place.is_some()
    }

    /// Returns the heading of the column that the rows are sorted by.
    fn order(&self) -> &'static str {
        match self.keys.first() {
            Some(Key::Field(field)) => field.heading(),
            _ => "Function",
        }
    }
}

impl Page for ReportPage {
    fn title(&self) -> String {
        "report".to_owned()
    }

    fn heading(&self, _: &Lines<'_, '_>) -> String {
        let mut heading = String::new();
        for field in &self.fields {
            let width = width(*field);
            heading.push_str(&format!("  {:>width$}", field.heading()));
        }
        heading + "  Function"
    }

    fn count(&self) -> usize {
        self.rows.len()
    }

    fn line(&self, place: usize, _: &mut Lines<'_, '_>) -> Line {
        let Some(row) = self.rows.get(place) else {
            return Line::default();
        };
        let (mut fixed, mut text) = (Vec::new(), Vec::new());
        push_fields(row, &self.fields, &mut fixed);
        push_name(row, &mut text);
        Line {
            fixed: String::from_utf8_lossy(&fixed).into_owned(),
            text: String::from_utf8_lossy(&text).into_owned(),
            fold: String::new(),
        }
    }

    fn function(&self, place: usize) -> Option<u32> {
        Some(self.rows.get(place)?.times.function)
    }

    fn position(&self) -> String {
        let (at, count) = (self.cursor.at + 1, self.rows.len());
        format!("line {} of {count}, by {}", at.min(count), self.order())
    }

    fn cursor(&mut self) -> &mut Cursor {
        &mut self.cursor
    }

    fn find(
        &mut self,
        query: &Query,
        forward: bool,
        inclusive: bool,
        _: &mut Lines<'_, '_>,
    ) -> Option<Match> {
        let rows = self.rows.iter().enumerate();
        let matches = rows.filter(|(_, row)| query.matches(&escape(&row.name)));
        let places = matches.map(|(place, _)| place);
        choose(places, Some(self.cursor.at), forward, inclusive)
    }
}
