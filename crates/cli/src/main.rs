//! The `dioptra` binary: arguments, exit codes, and one file for each sub-command.

mod commands;
#[cfg(test)]
mod examples;
mod exit;
mod formats;
mod full_screen;
mod later;
mod metric_sets;
mod output;
mod remedies;
mod screen;
mod symbol_sources;
mod whole_file;
mod whole_folder;

use clap::{CommandFactory, Parser, Subcommand};
use dioptra_tables::Harmless;
use exit::Exit;
use later::Later;
use output::say;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

/// A Linux profiler and function tracer.
#[derive(Parser)]
#[command(
    name = "dioptra",
    version,
    arg_required_else_help = true,
    after_help = "\
Examples:
  dioptra record ./program                   sample a program into perf.data
  dioptra report                             show its hottest functions
  dioptra top                                watch the whole machine's hottest functions
  dioptra annotate                           show the hottest one's source and instructions
  dioptra web                                look at all of it in a browser
  dioptra trace -P . ./program               show a program's calls
  dioptra doctor                             check what works on this machine"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Sample a command, processes, threads or the machine into a perf.data file
    Record(Later<commands::record::Arguments>),
    /// Record all the time, within bounds of disk and CPU, and upload what was recorded
    Agent(Later<commands::agent::Arguments>),
    /// Show live where time goes: the hottest functions now and since the start
    Top(Later<commands::top::Arguments>),
    /// Show where the time of a profile went
    Report(Later<commands::report::Arguments>),
    /// Compare profiles: what changed, and whether chance may have made it
    Diff(Later<commands::diff::Arguments>),
    /// Show one table of several profiles: the sum of their counts
    Sum(Later<commands::sum::Arguments>),
    /// Show a function's source, instructions and basic blocks with the counts of each
    Annotate(Later<commands::annotate::Arguments>),
    /// Show ratios of counters for each function, with their intervals, from windows
    Metrics(Later<commands::metrics::Arguments>),
    /// Write a profile or a trace in the format of another tool: pprof, Perfetto, flame graph, uftrace
    Export(Later<commands::export::Arguments>),
    /// Make a profile or a trace of another tool's: collapsed stacks, pprof, perf script, uftrace
    Import(Later<commands::import::Arguments>),
    /// Show what a profile holds: machine, events, record counts, losses
    Info(Later<commands::info::Arguments>),
    /// Show every record of a profile in full, in time order
    Dump(Later<commands::dump::Arguments>),
    /// Show profiles in a browser: tables, flame graphs, timelines, source and instructions
    Web(Later<commands::web::Arguments>),
    /// Keep many profiles in a store of Parquet files: add, list, gc, verify
    Store(Later<commands::store::StoreArguments>),
    /// Ask a store of profiles: SQL, top-functions, regressions, flame
    Query(Later<commands::store::QueryArguments>),
    /// Trace the functions that a command calls, and show the calls
    Trace(Later<Box<commands::trace::Arguments>>),
    /// Check what works on this machine, what does not, and how to mend it
    Doctor(Later<commands::doctor::Arguments>),
    /// List what this machine can count and sample
    List(Later<commands::list::Arguments>),
    /// Write the script with which a shell completes dioptra's options
    Completions(Later<commands::completions::Arguments>),
    /// Write a man page for every sub-command
    #[command(hide = true)]
    ManPages(Later<commands::man_pages::Arguments>),
}

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let words = match commands::trace::with_option_file(words, Arguments::command) {
        Ok(words) => words,
        Err(error) => {
            say!("{error}");
            return Exit::WrongArguments.into();
        }
    };
    let is_harmful = |word: &OsString| word.to_string_lossy().contains(char::is_control);
    let words_are_harmful = words.iter().any(is_harmful);
    let arguments = match Arguments::try_parse_from(words) {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error, words_are_harmful).into(),
    };
    let (failure, result) = match arguments.command {
        Command::Record(Later(arguments)) => {
            (Exit::RecordingFailed, commands::record::run(arguments))
        }
        Command::Agent(Later(arguments)) => {
            (Exit::RecordingFailed, commands::agent::run(arguments))
        }
        Command::Top(Later(arguments)) => (Exit::RecordingFailed, commands::top::run(arguments)),
        Command::Report(Later(arguments)) => (Exit::Failed, commands::report::run(arguments)),
        Command::Diff(Later(arguments)) => (Exit::Failed, commands::diff::run(arguments)),
        Command::Sum(Later(arguments)) => (Exit::Failed, commands::sum::run(arguments)),
        Command::Annotate(Later(arguments)) => (Exit::Failed, commands::annotate::run(arguments)),
        Command::Metrics(Later(arguments)) => (Exit::Failed, commands::metrics::run(arguments)),
        Command::Export(Later(arguments)) => (Exit::Failed, commands::export::run(arguments)),
        Command::Import(Later(arguments)) => (Exit::Failed, commands::import::run(arguments)),
        Command::Info(Later(arguments)) => (Exit::Failed, commands::info::run(arguments)),
        Command::Dump(Later(arguments)) => (Exit::Failed, commands::dump::run(arguments)),
        Command::Web(Later(arguments)) => (Exit::Failed, commands::web::run(arguments)),
        Command::Store(Later(arguments)) => (Exit::Failed, commands::store::run(arguments)),
        Command::Query(Later(arguments)) => (Exit::Failed, commands::store::run_query(arguments)),
        Command::Trace(Later(arguments)) => (arguments.failure(), commands::trace::run(*arguments)),
        Command::Doctor(Later(arguments)) => (Exit::Failed, commands::doctor::run(arguments)),
        Command::List(Later(arguments)) => (Exit::Failed, commands::list::run(arguments)),
        Command::Completions(Later(arguments)) => (
            Exit::Failed,
            commands::completions::run(&arguments, Arguments::command()),
        ),
        Command::ManPages(Later(arguments)) => (
            Exit::Failed,
            commands::man_pages::run(&arguments, Arguments::command()),
        ),
    };
    let truncated = dioptra_mapped::truncations();
    for truncation in &truncated {
        say!("{truncation}; what was made of it is wrong");
    }
    // Buffered output that can't be written when the process ends is lost silently, so it is flushed here.
    let result = result.and_then(|exit| output::flush().map(|()| exit));
    let exit = match result {
        // Recordings pass the status of their command on.
        Ok(_) if !truncated.is_empty() && failure == Exit::Failed => failure,
        Ok(exit) => exit,
        // The reader of our output has closed the pipe: it has seen enough.
        Err(error) if output::is_broken_pipe(&error) => Exit::Done,
        Err(error) => {
            say!("{}", remedies::of_chain(&error));
            failure
        }
    };
    exit.into()
}

/// Prints the error in the arguments, or the help or version that they ask for.
fn refuse(error: &clap::Error, words_are_harmful: bool) -> Exit {
    let printed = if error.use_stderr() && words_are_harmful {
        // Plain text drops clap's own colours.
        let plain = error.render().to_string();
        let mut out = Harmless::new(std::io::stderr(), false);
        // A closed standard error does not change the exit status.
        let _ = out.write_all(plain.as_bytes());
        Ok(())
    } else {
        error.print().map_err(anyhow::Error::from)
    };
    match printed.and_then(|()| output::flush()) {
        Err(error) if !output::is_broken_pipe(&error) => {
            say!("{error:#}");
            Exit::Failed
        }
        _ if error.use_stderr() => Exit::WrongArguments,
        _ => Exit::Done,
    }
}
