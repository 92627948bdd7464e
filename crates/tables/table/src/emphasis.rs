//! Colours of terminals: which parts of an output stand out.

/// The kind of a part of an output, which decides its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emphasis {
    /// Ordinary text.
    Plain,
    /// The row or line with the largest share.
    Hottest,
    /// A share of 5 % or more.
    Hot,
    /// A share of 0.5 % or more.
    Warm,
    /// Source code among instructions.
    Source,
    /// A heading.
    Heading,
    /// A diagnostic: a loss, a fallback or a warning.
    Diagnostic,
}

impl Emphasis {
    /// Returns the emphasis of a share in percent, with perf's bounds: 5 and 0.5 %.
    pub fn of_percent(percent: Option<f64>) -> Self {
        match percent {
            Some(percent) if percent >= 5.0 => Self::Hot,
            Some(percent) if percent >= 0.5 => Self::Warm,
            _ => Self::Plain,
        }
    }

    /// Returns the ANSI sequence that begins the colour; empty for ordinary text.
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Hottest => "\x1b[1;31m",
            Self::Hot => "\x1b[31m",
            Self::Warm => "\x1b[32m",
            Self::Source => "\x1b[36m",
            Self::Heading => "\x1b[2m",
            Self::Diagnostic => "\x1b[33m",
        }
    }

    /// Appends a text, coloured if `color` is set.
    pub fn push(self, color: bool, text: &str, out: &mut String) {
        self.paint(color, out, |out| out.push_str(text));
    }

    /// Appends the text that `write` appends, coloured if `color` is set.
    pub fn paint(self, color: bool, out: &mut String, write: impl FnOnce(&mut String)) {
        let code = if color { self.code() } else { "" };
        out.push_str(code);
        write(out);
        if !code.is_empty() {
            out.push_str("\x1b[0m");
        }
    }
}
