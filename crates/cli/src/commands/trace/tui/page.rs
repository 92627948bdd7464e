//! What can be on the screen: lines, one of which is the current one.

use super::cursor::Cursor;
use super::search::{Match, Query, choose};
use crate::commands::trace::graph::Lines;

/// A line in its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// What stays where it is when one scrolls to the side.
    pub fixed: String,
    /// What can be scrolled.
    pub text: String,
    /// What is said of a fold behind it.
    pub fold: String,
}

/// Lines with a cursor. `lines` names functions and has the fields of graphs.
pub trait Page {
    /// What it is.
    fn title(&self) -> String;
    /// What the columns are; empty if there are none.
    fn heading(&self, lines: &Lines<'_, '_>) -> String;
    /// Reads so many lines, if there are as many and they are not there yet.
    fn read(&mut self, _lines: usize) {}
    /// How many lines there are.
    fn count(&self) -> usize;
    /// A line.
    fn line(&self, place: usize, lines: &mut Lines<'_, '_>) -> Line;
    /// The function that a line is about.
    fn function(&self, place: usize) -> Option<u32>;
    /// What is said of the current line at the bottom.
    fn position(&self) -> String;
    /// Where one is.
    fn cursor(&mut self) -> &mut Cursor;
    /// Scrolls to the side so that the current line's name is on a screen of so many columns.
    fn show_column(&mut self, _width: usize) {}
    /// Makes the next or the last match's line visible and tells it, without going there. The current line counts if it is
    /// `inclusive`.
    fn find(
        &mut self,
        query: &Query,
        forward: bool,
        inclusive: bool,
        lines: &mut Lines<'_, '_>,
    ) -> Option<Match>;
}

/// Text.
pub struct TextPage {
    title: String,
    lines: Vec<String>,
    cursor: Cursor,
}

impl TextPage {
    /// Returns the text's title.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Of lines; control characters are spelled out already.
    pub fn new(title: &str, lines: Vec<String>) -> TextPage {
        TextPage {
            title: title.to_owned(),
            lines,
            cursor: Cursor::default(),
        }
    }
}

impl Page for TextPage {
    fn title(&self) -> String {
        self.title.clone()
    }

    fn heading(&self, _: &Lines<'_, '_>) -> String {
        String::new()
    }

    fn count(&self) -> usize {
        self.lines.len()
    }

    fn line(&self, place: usize, _: &mut Lines<'_, '_>) -> Line {
        Line {
            text: self.lines.get(place).cloned().unwrap_or_default(),
            ..Line::default()
        }
    }

    fn function(&self, _: usize) -> Option<u32> {
        None
    }

    fn position(&self) -> String {
        format!("line {} of {}", self.cursor.at + 1, self.lines.len())
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
        let lines = self.lines.iter().enumerate();
        let matches = lines.filter(|(_, line)| query.matches(line));
        let places = matches.map(|(place, _)| place);
        choose(places, Some(self.cursor.at), forward, inclusive)
    }
}
