//! How an annotation is shown on a terminal or in a file.

use super::arrows::{ASCII, Glyphs, UNICODE};
use dioptra_instructions::Credit;

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
            context: 2,
            credit: Credit::Innermost,
        }
    }
}

/// What stands out, and how.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    Plain,
    /// The one with most weight.
    Hottest,
    Hot,
    Warm,
    Source,
    Heading,
}

impl Look {
    /// By a share in percent, with perf's bounds.
    pub fn of_percent(percent: Option<f64>) -> Look {
        match percent {
            Some(percent) if percent >= 5.0 => Look::Hot,
            Some(percent) if percent >= 0.5 => Look::Warm,
            _ => Look::Plain,
        }
    }

    fn code(self) -> &'static str {
        match self {
            Look::Plain => "",
            Look::Hottest => "\x1b[1;31m",
            Look::Hot => "\x1b[31m",
            Look::Warm => "\x1b[32m",
            Look::Source => "\x1b[36m",
            Look::Heading => "\x1b[2m",
        }
    }
}

impl AnnotationStyle {
    /// Appends what `write` writes, so that it looks like that.
    pub(super) fn paint(&self, look: Look, out: &mut String, write: impl FnOnce(&mut String)) {
        let code = if self.color { look.code() } else { "" };
        out.push_str(code);
        write(out);
        if !code.is_empty() {
            out.push_str("\x1b[0m");
        }
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
