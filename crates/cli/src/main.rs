//! The `dioptra` binary: arguments, exit codes, and one file for each sub-command.

mod commands;
#[cfg(test)]
mod examples;
mod later;
mod metric_sets;
mod output;
mod screen;
mod symbol_sources;

use clap::{CommandFactory, Parser, Subcommand};
use dioptra_tables::Harmless;
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
    /// Show what a profile holds: machine, events, record counts, losses
    Info(Later<commands::info::Arguments>),
    /// Show every record of a profile in full, in time order
    Dump(Later<commands::dump::Arguments>),
    /// Show profiles in a browser: tables, flame graphs, timelines, source and instructions
    Web(Later<commands::web::Arguments>),
    /// Trace the functions that a command calls, and show the calls
    Trace(Later<Box<commands::trace::Arguments>>),
    /// Check what works on this machine, what does not, and how to mend it
    Doctor(Later<commands::doctor::Arguments>),
    /// List what this machine can count and sample
    List(Later<commands::list::Arguments>),
}

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let words = match commands::trace::with_option_file(words, Arguments::command) {
        Ok(words) => words,
        Err(error) => {
            say!("{error}");
            return ExitCode::from(2);
        }
    };
    let is_harmful = |word: &OsString| word.to_string_lossy().contains(char::is_control);
    let words_are_harmful = words.iter().any(is_harmful);
    let arguments = match Arguments::try_parse_from(words) {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error, words_are_harmful),
    };
    let (failure, result) = match arguments.command {
        Command::Record(Later(arguments)) => (125, commands::record::run(arguments)),
        Command::Report(Later(arguments)) => (1, commands::report::run(arguments)),
        Command::Diff(Later(arguments)) => (1, commands::diff::run(arguments)),
        Command::Sum(Later(arguments)) => (1, commands::sum::run(arguments)),
        Command::Annotate(Later(arguments)) => (1, commands::annotate::run(arguments)),
        Command::Metrics(Later(arguments)) => (1, commands::metrics::run(arguments)),
        Command::Info(Later(arguments)) => (1, commands::info::run(arguments)),
        Command::Dump(Later(arguments)) => (1, commands::dump::run(arguments)),
        Command::Web(Later(arguments)) => (1, commands::web::run(arguments)),
        Command::Trace(Later(arguments)) => {
            (arguments.failure_status(), commands::trace::run(*arguments))
        }
        Command::Doctor(Later(arguments)) => (1, commands::doctor::run(arguments)),
        Command::List(Later(arguments)) => (1, commands::list::run(arguments)),
    };
    let truncated = dioptra_mapped::truncations();
    for truncation in &truncated {
        say!("{truncation}; what was made of it is wrong");
    }
    // What standard output still holds is lost silently if it can't be written when the process ends.
    let result = result.and_then(|code| output::flush().map(|()| code));
    match result {
        // Recordings pass their command's status on.
        Ok(_) if !truncated.is_empty() && failure == 1 => ExitCode::from(1),
        Ok(code) => code,
        // Whoever read our output has seen enough.
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            say!("{error:#}");
            ExitCode::from(failure)
        }
    }
}

/// Tells what is wrong with the arguments, or the help or version that they ask for.
fn refuse(error: &clap::Error, words_are_harmful: bool) -> ExitCode {
    let printed = if error.use_stderr() && words_are_harmful {
        // Without clap's own colours.
        let plain = error.render().to_string();
        let mut out = Harmless::new(std::io::stderr(), false);
        // A closed standard error changes nothing of the status.
        let _ = out.write_all(plain.as_bytes());
        Ok(())
    } else {
        error.print().map_err(anyhow::Error::from)
    };
    match printed.and_then(|()| output::flush()) {
        Err(error) if !output::is_broken_pipe(&error) => {
            say!("{error:#}");
            ExitCode::from(1)
        }
        _ => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2)),
    }
}
