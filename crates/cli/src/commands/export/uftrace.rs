//! `dioptra export --to uftrace`: a trace as a directory that uftrace reads.

use super::traces::say_values_left_out;
use super::{Arguments, StackValue};
use crate::exit::Exit;
use crate::output::say;
use crate::remedies;
use crate::whole_folder::write_whole_folder;
use anyhow::{Context, bail};
use dioptra_export::{UftraceExported, is_uftrace, write_uftrace};
use dioptra_trace_report::number_of;
use dioptra_tracedata::Trace;
use dioptra_tracelayout::directory::DEFAULT;
use std::io;
use std::path::{Path, PathBuf};

/// Writes the trace that `-d` names.
pub fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    if let Some(option) = arguments.selection.given() {
        bail!(
            "{option}: chooses samples of a profile, and --to uftrace writes a trace; leave it out"
        );
    }
    if let Some(option) = arguments.calls.given() {
        bail!(
            "{option}: --to uftrace writes all calls, and uftrace has filters of its own; leave it out"
        );
    }
    if arguments.no_inline || arguments.value != StackValue::Weight {
        bail!(
            "--no-inline, --value: a trace has neither inlined functions nor weights; leave it out"
        );
    }
    // As the readers of traces, this takes the trace's directory with -i as well.
    let folder = arguments
        .data
        .as_ref()
        .or(arguments.input.as_ref())
        .cloned();
    let folder = folder.unwrap_or_else(|| PathBuf::from(DEFAULT));
    let usual = || PathBuf::from(super::Format::Uftrace.usual_output());
    let output = arguments.output.clone().unwrap_or_else(usual);
    if output == Path::new("-") {
        bail!("-o -: uftrace reads a directory, which standard output is not");
    }
    let trace = Trace::open(&folder)?;
    let symbols = arguments.selection.symbols()?;
    let exported = write_whole_folder(&output, is_uftrace, |place| {
        write_uftrace(&trace, symbols.clone(), place).context("writing for uftrace")
    })?;
    let UftraceExported {
        calls,
        tasks,
        mut facts,
        lost,
    } = exported;
    say!(
        "wrote {}: {}, {}",
        output.display(),
        number_of(calls, "call"),
        number_of(tasks, "thread")
    );
    remedies::spell(&mut facts);
    facts.write_text(&mut io::stderr().lock())?;
    if !lost.is_empty() {
        let lost: Vec<String> = lost.iter().map(ToString::to_string).collect();
        say!("uftrace has no place for: {}", lost.join("; "));
    }
    say_values_left_out(&trace);
    Ok(Exit::Done)
}
