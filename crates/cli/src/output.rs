//! Output that all sub-commands share: messages, and the end of standard output.

use anyhow::Context;
use dioptra_tables::escape;
use std::fmt;
use std::io::{self, Write};

/// Writes a line to standard error, after the program's name. Control characters, which names of files and symbols may
/// have, are spelled out.
macro_rules! say {
    ($($text:tt)*) => { $crate::output::write_line(format_args!($($text)*)) };
}
pub(crate) use say;

/// Writes the line of [`say!`]. An indented line continues the message before it, such as a pattern with a mark below
/// its fault. Any other newline is spelled out, because a name could hold a line that looks like one of ours.
pub fn write_line(text: fmt::Arguments<'_>) {
    // A closed standard error is no reason to fail.
    let _ = writeln!(io::stderr(), "dioptra: {}", spelled(&text.to_string()));
}

fn spelled(text: &str) -> String {
    const INDENTED: &str = "\n    ";
    let lines: Vec<String> = text.split(INDENTED).map(escape).collect();
    lines.join(INDENTED)
}

/// Returns whether the error came from a closed pipe, such as that of `| head`.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// Writes the buffered standard output.
///
/// # Errors
/// The error of the write.
pub fn flush() -> anyhow::Result<()> {
    io::stdout().flush().context("writing the output")
}

#[cfg(test)]
mod tests {
    use super::spelled;

    #[test]
    fn indented_lines_stay_and_other_control_characters_are_spelled_out() {
        assert_eq!(
            spelled("no pattern\n    a(\n     ^"),
            "no pattern\n    a(\n     ^"
        );
        assert_eq!(
            spelled("a\ndioptra: b\u{1b}[31m"),
            "a\\ndioptra: b\\x1b[31m"
        );
    }
}
