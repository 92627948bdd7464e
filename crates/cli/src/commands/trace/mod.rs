//! `dioptra trace`: function tracing.

mod dump;
mod graph;
mod info;
mod patches;
mod record;
mod render;
mod replay;
mod report;
mod rules;
mod selected;
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
    /// Show the calls in the order of time
    Replay(replay::Arguments),
    /// Show how often functions were called and how long they took
    Report(report::Arguments),
    /// Show who called whom
    Graph(graph::Arguments),
    /// Show the records, or write them for other programs
    Dump(dump::Arguments),
    /// Show what a trace holds: machine, processes, threads, methods, losses
    Info(info::Arguments),
}

impl Arguments {
    /// The exit status for our own failure: what runs a command keeps low numbers for the command's status.
    pub fn failure_status(&self) -> u8 {
        match self.command {
            Command::Record(_) => 125,
            _ => 1,
        }
    }
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let result = match arguments.command {
        Command::Record(arguments) => record::run(arguments),
        Command::Replay(arguments) => replay::run(arguments),
        Command::Report(arguments) => report::run(arguments),
        Command::Graph(arguments) => graph::run(arguments),
        Command::Dump(arguments) => dump::run(arguments),
        Command::Info(arguments) => info::run(arguments),
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
