//! The style in which an annotation is shown on a terminal or in a file.

use super::arrows::{ASCII, Glyphs, UNICODE};
use super::fitting::cut_line;
use dioptra_instructions::Credit;
use dioptra_tables::{Emphasis, close_percents, wrap};
use std::io::{self, Write};

/// The parts of a function that are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AnnotationView {
    /// Instructions by rising address, each after the source line from which it was made.
    #[default]
    Mixed,
    /// Source lines only.
    Source,
    /// Instructions only.
    Assembly,
}

/// The characters with which jumps are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Drawing {
    /// With box drawing characters.
    #[default]
    Unicode,
    /// With ASCII characters.
    Ascii,
    /// Without any arrows; other characters are ASCII.
    None,
}

/// The style of [`super::write_annotation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnotationStyle {
    /// The parts that are shown.
    pub view: AnnotationView,
    /// The characters with which jumps are drawn.
    pub drawing: Drawing,
    /// Whether hot places are coloured, with ANSI sequences.
    pub color: bool,
    /// The number of hottest blocks, or lines in the source view, that are shown; `None` for all.
    pub limit: Option<usize>,
    /// The approximate number of lines around the hottest places that are shown, if there is no `limit`.
    pub lines: Option<usize>,
    /// The width of a terminal in cells. Longer lines are cut, and chains of inlined calls are folded.
    pub width: Option<usize>,
    /// In the source view: the number of lines to show around each line with code.
    pub context: u32,
    /// In the source view: the line of an inline chain that gets the counts.
    pub credit: Credit,
}

impl Default for AnnotationStyle {
    fn default() -> Self {
        AnnotationStyle {
            view: AnnotationView::Mixed,
            drawing: Drawing::Unicode,
            color: false,
            limit: None,
            lines: None,
            width: None,
            context: 2,
            credit: Credit::Innermost,
        }
    }
}

impl AnnotationStyle {
    /// Appends the text that `write` appends, with an emphasis.
    pub(super) fn paint(&self, look: Emphasis, out: &mut String, write: impl FnOnce(&mut String)) {
        look.paint(self.color, out, write);
    }

    /// Writes lines of a listing, cut where they are too wide.
    pub(super) fn write_lines(&self, text: &str, out: &mut impl Write) -> io::Result<()> {
        for line in text.lines() {
            match self.width {
                Some(width) => writeln!(out, "{}", cut_line(line, width))?,
                None => writeln!(out, "{line}")?,
            }
        }
        Ok(())
    }

    /// Writes a line of comment, wrapped where it is too wide.
    pub(super) fn write_comment(
        &self,
        look: Emphasis,
        text: &str,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let Some(width) = self.width else {
            return writeln!(out, "{text}");
        };
        for wrapped in wrap(&close_percents(text), width, "#   ") {
            let mut line = String::new();
            look.push(self.color, &wrapped, &mut line);
            writeln!(out, "{line}")?;
        }
        Ok(())
    }

    pub(super) fn glyphs(&self) -> Option<Glyphs> {
        match self.drawing {
            Drawing::Unicode => Some(UNICODE),
            Drawing::Ascii => Some(ASCII),
            Drawing::None => None,
        }
    }

    fn is_unicode(&self) -> bool {
        self.drawing == Drawing::Unicode
    }

    /// Returns the bar between numbers and code.
    pub(super) fn bar(&self) -> &'static str {
        if self.is_unicode() { "│" } else { "|" }
    }

    /// Returns the arrow before a block to which an instruction leads.
    pub(super) fn leads_to(&self) -> &'static str {
        if self.is_unicode() { "→" } else { "->" }
    }

    /// Returns the dots that stand for lines that are left out.
    pub(super) fn dots(&self) -> &'static str {
        if self.is_unicode() { "…" } else { "..." }
    }
}
