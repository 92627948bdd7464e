//! `dioptra trace COMMAND`: records, then shows the calls, and keeps nothing.

use super::record::{TracedCommand, Tracing, exit_status, trace};
use super::selected::{Extent, Naming};
use super::{replay, report, summary};
use crate::exit::Exit;
use anyhow::Context;
use clap::{Args, FromArgMatches};
use std::ffi::OsStr;
use std::path::Path;

/// Arguments of `dioptra trace live`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  dioptra trace live ./program               show the calls of a program built with -pg
  dioptra trace live -P . -F main ./program  those of main, whoever built it
  dioptra trace live --report ./program      sums first, then the calls")]
pub struct Live {
    #[command(flatten)]
    tracing: Tracing,
    /// Show how often functions were called and how long they took before the calls
    #[arg(long)]
    report: bool,
    #[command(flatten)]
    extent: Extent,
    #[command(flatten)]
    naming: Naming,
    #[command(flatten)]
    show: replay::Showing,
    #[command(flatten)]
    command: TracedCommand,
}

pub fn run(arguments: Live) -> anyhow::Result<Exit> {
    arguments.show.check()?;
    let folder = tempfile::Builder::new()
        .prefix("dioptra-live-")
        .tempdir()
        .context("making a directory for the trace; set TMPDIR to a place with room")?;
    let data = folder.path().join("trace");
    let spec = arguments.tracing.spec(arguments.command, data.clone())?;
    let outcome = match trace(spec) {
        Ok(outcome) => outcome,
        Err(status) => return Ok(status),
    };
    summary::warnings(&outcome);
    if arguments.report {
        let mut reported: report::Arguments = with_data(&data)?;
        reported.selected.extent = arguments.extent.clone();
        reported.naming = arguments.naming.clone();
        report::run(reported)?;
        println!();
    }
    let mut replayed: replay::Arguments = with_data(&data)?;
    replayed.show = arguments.show;
    replayed.selected.extent = arguments.extent;
    replayed.naming = arguments.naming;
    replay::run(replayed)?;
    Ok(exit_status(&outcome))
}

/// Returns the arguments of a command that reads the trace in `data`, with defaults for the rest.
fn with_data<T: Args + FromArgMatches>(data: &Path) -> anyhow::Result<T> {
    let command = T::augment_args(clap::Command::new("live"));
    let words = [OsStr::new("live"), OsStr::new("--data"), data.as_os_str()];
    let matches = command.try_get_matches_from(words)?;
    Ok(T::from_arg_matches(&matches)?)
}
