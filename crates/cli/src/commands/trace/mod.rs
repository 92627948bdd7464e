//! `dioptra trace`: function tracing.

mod patches;
mod record;
mod rules;
mod summary;

use std::process::ExitCode;

/// Arguments of `dioptra trace`.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Trace a command into a directory
    Record(record::Arguments),
}

impl Arguments {
    /// The exit status for our own failure: what runs a command keeps low numbers for the command's status.
    pub fn failure_status(&self) -> u8 {
        match self.command {
            Command::Record(_) => 125,
        }
    }
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let result = match arguments.command {
        Command::Record(arguments) => record::run(arguments),
    };
    match result {
        Err(error) if error.is::<Usage>() => {
            eprintln!("dioptra: {error:#}");
            Ok(ExitCode::from(2))
        }
        result => result,
    }
}

/// Wrong arguments.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Usage(String);

/// The error that `text` says about the arguments.
fn usage(text: impl std::fmt::Display) -> anyhow::Error {
    Usage(text.to_string()).into()
}
