//! `dioptra trace`: function tracing.

mod dump;
mod elsewhere;
mod events;
mod fields;
mod graph;
mod info;
mod live;
mod option_file;
mod patches;
mod record;
mod render;
mod replay;
mod report;
mod rules;
mod script;
mod selected;
mod summary;
mod tui;

use crate::exit::Exit;
use crate::later::Later;
use crate::output::say;
use elsewhere::Options;

pub use option_file::replaced as with_option_file;
pub use record::{Recorded, record_calls};
pub use selected::{CallSelection, facts};
pub use summary::TRACE_LESS;

/// Arguments of `dioptra trace`.
#[derive(clap::Args)]
#[command(
    version,
    args_conflicts_with_subcommands = true,
    infer_long_args = true,
    subcommand_negates_reqs = true,
    after_help = "\
`dioptra trace COMMAND` is `dioptra trace live COMMAND`.

Examples:
  dioptra trace ./program                    trace a program built with -pg, and show its calls
  dioptra trace -P . ./program               a program that no compiler has prepared
  dioptra trace record ./program             trace into the directory dioptra.trace
  dioptra trace report                       show how often functions were called, and how long they took"
)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    live: Options<live::Live>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Trace a command into a directory
    Record(Later<Options<record::Arguments>>),
    /// Trace a command and show its calls when it has ended
    Live(Later<Options<live::Live>>),
    /// Show the calls in the order of time
    Replay(Later<Options<replay::Arguments>>),
    /// Show how often functions were called and how long they took
    Report(Later<Options<report::Arguments>>),
    /// Show who called whom
    Graph(Later<Options<graph::Arguments>>),
    /// Walk through a trace in the terminal
    Tui(Later<Options<tui::Arguments>>),
    /// Show the records, or write them for other programs
    Dump(Later<Options<dump::Arguments>>),
    /// Show what a trace holds: machine, processes, threads, methods, losses
    Info(Later<Options<info::Arguments>>),
    /// Run a script of uftrace's (Python) on the calls
    Script(Later<Options<script::Arguments>>),
    #[command(hide = true)]
    Recv(Missing),
}

/// Arguments of uftrace's commands that dioptra lacks.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
struct Missing {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _words: Vec<std::ffi::OsString>,
}

/// Returns the error that names a missing command of uftrace, and the replacement.
fn missing(command: &str, instead: &str) -> anyhow::Error {
    usage(format_args!(
        "there is no `dioptra trace {command}`: {instead}; a program of this name is traced by `dioptra trace live {command}`"
    ))
}

impl Arguments {
    /// Returns the exit status for our own failure. Commands that run a program leave low numbers to the program's
    /// status.
    pub fn failure(&self) -> Exit {
        match self.command {
            None | Some(Command::Record(_) | Command::Live(_)) => Exit::RecordingFailed,
            _ => Exit::Failed,
        }
    }
}

pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let command = arguments
        .command
        .unwrap_or(Command::Live(Later(arguments.live)));
    let result = match command {
        Command::Record(Later(options)) => options.begin_recording().and_then(record::run),
        Command::Live(Later(options)) => options.begin_recording().and_then(live::run),
        Command::Replay(Later(options)) => options.begin().and_then(replay::run),
        Command::Report(Later(options)) => options.begin().and_then(report::run),
        Command::Graph(Later(options)) => options.begin().and_then(graph::run),
        Command::Tui(Later(options)) => options.begin().and_then(tui::run),
        Command::Dump(Later(options)) => options.begin().and_then(dump::run),
        Command::Info(Later(options)) => options.begin().and_then(info::run),
        Command::Script(Later(options)) => options.begin().and_then(script::run),
        Command::Recv(_) => Err(missing(
            "recv",
            "traces are directories, which can be copied",
        )),
    };
    say_usage(result)
}

/// Says an error about arguments and returns its exit; passes other results on.
pub fn say_usage(result: anyhow::Result<Exit>) -> anyhow::Result<Exit> {
    match result {
        Err(error) if error.is::<Usage>() => {
            say!("{error:#}");
            Ok(Exit::WrongArguments)
        }
        result => result,
    }
}

/// An error in the arguments.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Usage(String);

/// Returns an error about the arguments with this text.
pub fn usage(text: impl std::fmt::Display) -> anyhow::Error {
    Usage(text.to_string()).into()
}
