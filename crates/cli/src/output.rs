//! What all sub-commands share about their output.

use anyhow::Context;
use dioptra_report::escape;
use std::fmt;
use std::io::{self, Write};

/// Writes a line to standard error, after the program's name. Control characters, which names of files and symbols may
/// have, are spelled out.
macro_rules! say {
    ($($text:tt)*) => { $crate::output::write_line(format_args!($($text)*)) };
}
pub(crate) use say;

/// As [`say!`].
pub fn write_line(text: fmt::Arguments<'_>) {
    // A closed standard error is no reason to fail.
    let _ = writeln!(io::stderr(), "dioptra: {}", escape(&text.to_string()));
}

/// Whether the error came from a closed pipe, such as that of `| head`.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// Writes what standard output still holds.
///
/// # Errors
/// The error of the write.
pub fn flush() -> anyhow::Result<()> {
    io::stdout().flush().context("writing the output")
}
