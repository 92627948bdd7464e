//! The pages of the screen: lines, one of which is the current one.

use super::cursor::Cursor;
use super::search::{Match, Query, choose};
use crate::commands::trace::graph::Lines;

/// The parts of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// The part that stays in place when the user scrolls to the side.
    pub fixed: String,
    /// The part that scrolls to the side.
    pub text: String,
    /// The remark about a fold, behind the text.
    pub fold: String,
}

/// Lines with a cursor. The argument `lines` names functions and has the columns of graphs.
pub trait Page {
    /// Returns the page's title.
    fn title(&self) -> String;
    /// Returns the headings of the columns; empty if there are none.
    fn heading(&self, lines: &Lines<'_, '_>) -> String;
    /// Reads until there are this many lines, or the end.
    fn read(&mut self, _lines: usize) {}
    /// Returns the number of lines.
    fn count(&self) -> usize;
    /// Returns a line.
    fn line(&self, place: usize, lines: &mut Lines<'_, '_>) -> Line;
    /// Returns the function that a line is about.
    fn function(&self, place: usize) -> Option<u32>;
    /// Returns the text about the current line at the bottom.
    fn position(&self) -> String;
    /// Returns the cursor.
    fn cursor(&mut self) -> &mut Cursor;
    /// Scrolls to the side so that the current line's name is on a screen of this many columns.
    fn show_column(&mut self, _width: usize) {}
    /// Makes the line of the next or previous match visible and returns the match, without moving the cursor. The
    /// current line counts if `inclusive`.
    fn find(
        &mut self,
        query: &Query,
        forward: bool,
        inclusive: bool,
        lines: &mut Lines<'_, '_>,
    ) -> Option<Match>;
}

/// A page of plain text.
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

    /// Makes a page of lines whose control characters are already spelled out.
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
