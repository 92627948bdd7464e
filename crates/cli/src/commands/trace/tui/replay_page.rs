//! The calls in the order of time on the screen, read only as far as the user scrolls.

use super::cursor::Cursor;
use super::page::{Line, Page};
use super::search::{Match, Query, choose};
use crate::commands::trace::graph::Lines;
use crate::commands::trace::render::Output;
use crate::commands::trace::replay::{Field, Replay};
use dioptra_calls::{FunctionNames, Merge, ShownCalls, ShownStep, View};

/// The number of lines kept at most.
const MOST_LINES: usize = 1 << 21;
/// The bytes of all kept lines at most.
const MOST_BYTES: usize = 1 << 27;

/// A line without its indentation.
struct Kept {
    /// The byte in the page's text where the line begins.
    start: usize,
    /// The bytes of the line's fields.
    fixed: u32,
    indent: u32,
    function: Option<u32>,
}

/// The calls of a trace as `trace replay` shows them.
pub struct ReplayPage<'v, 't> {
    replay: Replay<'v, 'v, 't>,
    merged: Merge<ShownCalls<'v>>,
    lines: Vec<Kept>,
    text: String,
    ended: bool,
    most_lines: usize,
    cursor: Cursor,
}

impl<'v, 't> ReplayPage<'v, 't> {
    /// Makes the page of a view's calls.
    pub fn new(
        view: &'v View<'t>,
        names: &'v FunctionNames<'t>,
        fields: &[Field],
    ) -> ReplayPage<'v, 't> {
        let mut replay = Replay::new(view, names, fields.to_vec(), Output::new());
        // Calls may be so deep that blanks would be most of the text.
        replay.indents = Some(Vec::new());
        ReplayPage {
            replay,
            merged: view.merged(),
            lines: Vec::new(),
            text: String::new(),
            ended: false,
            most_lines: MOST_LINES,
            cursor: Cursor::default(),
        }
    }

    /// Limits the number of kept lines.
    #[cfg(test)]
    pub fn limit(&mut self, lines: usize) {
        self.most_lines = lines;
    }

    fn is_full(&self) -> bool {
        self.lines.len() >= self.most_lines || self.text.len() >= MOST_BYTES
    }

    /// Keeps the lines that the replay has made.
    fn keep(&mut self, function: Option<u32>) {
        let made = std::mem::take(&mut self.replay.out.text);
        let mut indents = self.replay.indents.take().unwrap_or_default();
        for (number, line) in String::from_utf8_lossy(&made).lines().enumerate() {
            self.lines.push(Kept {
                start: self.text.len(),
                fixed: line.find("| ").map_or(0, |place| place + 2) as u32,
                indent: indents.get(number).copied().unwrap_or(0),
                function,
            });
            self.text.push_str(line);
        }
        indents.clear();
        self.replay.indents = Some(indents);
        // The buffer is used again.
        self.replay.out.text = made;
        self.replay.out.text.clear();
    }

    /// Returns a line's fields and text.
    fn parts(&self, place: usize) -> (&str, &str) {
        let Some(kept) = self.lines.get(place) else {
            return ("", "");
        };
        let end = self
            .lines
            .get(place + 1)
            .map_or(self.text.len(), |next| next.start);
        self.text[kept.start..end].split_at(kept.fixed as usize)
    }
}

impl Page for ReplayPage<'_, '_> {
    fn title(&self) -> String {
        "replay".to_owned()
    }

    fn heading(&self, _: &Lines<'_, '_>) -> String {
        self.replay.headings()
    }

    fn read(&mut self, lines: usize) {
        while self.lines.len() < lines && !self.ended && !self.is_full() {
            let Some((place, shown)) = self.merged.next() else {
                self.ended = true;
                self.replay.remaining();
                self.keep(None);
                return;
            };
            let function = match &shown {
                ShownStep::Enter { call, .. } | ShownStep::Leave { call, .. } => {
                    Some(call.function)
                }
                _ => None,
            };
            let merged = &self.merged;
            if self.replay.step(place, shown, || merged.peek()) {
                self.merged.next();
            }
            self.keep(function);
        }
    }

    fn count(&self) -> usize {
        self.lines.len()
    }

    fn line(&self, place: usize, _: &mut Lines<'_, '_>) -> Line {
        let (fixed, text) = self.parts(place);
        let indent = self.lines.get(place).map_or(0, |kept| kept.indent as usize);
        Line {
            fixed: fixed.to_owned(),
            text: format!("{:indent$}{text}", ""),
            fold: String::new(),
        }
    }

    fn function(&self, place: usize) -> Option<u32> {
        self.lines.get(place)?.function
    }

    fn position(&self) -> String {
        let (at, count) = (self.cursor.at + 1, self.lines.len());
        let at = at.min(count);
        match (self.ended, self.is_full()) {
            (true, _) => format!("line {at} of {count}"),
            (false, false) => format!("line {at} of {count} and more"),
            (false, true) => {
                format!("line {at} of the first {count}: -r, -F or --tid show the others")
            }
        }
    }

    fn cursor(&mut self) -> &mut Cursor {
        &mut self.cursor
    }

    fn show_column(&mut self, width: usize) {
        let kept = self.lines.get(self.cursor.at);
        let column = kept.map_or(0, |kept| kept.indent as usize);
        self.cursor.show_column(column, width);
    }

    fn find(
        &mut self,
        query: &Query,
        forward: bool,
        inclusive: bool,
        _: &mut Lines<'_, '_>,
    ) -> Option<Match> {
        self.read(usize::MAX);
        let is_match = |place: &usize| query.matches(self.parts(*place).1);
        let places = (0..self.lines.len()).filter(is_match);
        choose(places, Some(self.cursor.at), forward, inclusive)
    }
}
