//! What all sub-commands share about their output.

use anyhow::Context;
use std::io::{self, Write};

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
