//! `dioptra trace`: function tracing.

mod dump;
mod fields;
mod graph;
mod info;
mod live;
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
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "`dioptra trace COMMAND` is `dioptra trace live COMMAND`."
)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    live: live::Live,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Trace a command into a directory
    Record(record::Arguments),
    /// Trace a command and show its calls when it has ended
    Live(live::Live),
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
            None | Some(Command::Record(_) | Command::Live(_)) => 125,
            _ => 1,
        }
    }
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let command = arguments.command.unwrap_or(Command::Live(arguments.live));
    let result = match command {
        Command::Record(arguments) => record::run(arguments),
        Command::Live(arguments) => live::run(arguments),
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
