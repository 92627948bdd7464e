//! How an annotation is shown on a terminal or in a file.

use super::arrows::{ASCII, Glyphs, UNICODE};
use super::fitting::cut_line;
use dioptra_instructions::Credit;
use dioptra_tables::{Emphasis, close_percents, wrap};
use std::io::{self, Write};

/// What is shown of a function.
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

/// How jumps are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Drawing {
    /// With box drawing characters.
    #[default]
    Unicode,
    /// With letters that every terminal has.
    Ascii,
    /// Not at all; other characters are ASCII.
    None,
}

/// How [`super::write_annotation`] shows an annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnotationStyle {
    /// What is shown.
    pub view: AnnotationView,
    /// How jumps are drawn.
    pub drawing: Drawing,
    /// Whether hot places are coloured, with ANSI sequences.
    pub color: bool,
    /// Only the hottest blocks, or lines in the source view, this many.
    pub limit: Option<usize>,
    /// Only about so many lines around the hottest places, if there is no `limit`.
    pub lines: Option<usize>,
    /// How many cells a line may have, on a terminal. Longer ones are cut, and chains of inlined calls are folded.
    pub width: Option<usize>,
    /// In the source view: how many lines to show around those with code.
    pub context: u32,
    /// In the source view: which of an inline chain's lines counts.
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
    /// Appends what `write` writes, so that it looks like that.
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

    /// Between numbers and code.
    pub(super) fn bar(&self) -> &'static str {
        if self.is_unicode() { "│" } else { "|" }
    }

    /// Before where something leads.
    pub(super) fn leads_to(&self) -> &'static str {
        if self.is_unicode() { "→" } else { "->" }
    }

    /// Instead of what is left out.
    pub(super) fn dots(&self) -> &'static str {
        if self.is_unicode() { "…" } else { "..." }
    }
}
