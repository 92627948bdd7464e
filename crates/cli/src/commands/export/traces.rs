//! `dioptra export` of a trace of calls.

use super::{Arguments, Format, write_out};
use crate::commands::trace::facts;
use crate::exit::Exit;
use crate::output::say;
use anyhow::bail;
#[cfg(feature = "push")]
use dioptra_export::trace_otlp_requests;
use dioptra_export::{
    ExportedTrace, NOT_SHOWN, TraceSource, Value, write_trace_callgrind, write_trace_chrome,
    write_trace_collapsed, write_trace_firefox, write_trace_flamegraph, write_trace_otlp,
    write_trace_perfetto, write_trace_pprof, write_trace_speedscope,
};
use dioptra_tables::Facts;
use dioptra_trace_report::{counts_ticks, number_of};
use dioptra_tracedata::Trace;
use std::io::{self, Write};
use std::path::Path;

/// Checks that the arguments fit a trace.
pub fn check(arguments: &Arguments) -> anyhow::Result<()> {
    let format = arguments.to;
    if let Some(option) = arguments.selection.only_for_samples() {
        bail!("{option}: a trace has calls and no samples; choose calls with -F, -N, --tid, -r");
    }
    if arguments.no_inline {
        bail!("--no-inline: a trace has no calls of inlined functions; leave it out");
    }
    if format == Format::Autofdo {
        bail!(
            "--to autofdo: clang wants how often each source line ran, and a trace has how often functions were called; \
             record samples with `dioptra record -b`"
        );
    }
    Ok(())
}

/// Exports the trace in a folder. `before` writes what stands before the calls.
pub fn run(
    arguments: &Arguments,
    folder: &Path,
    before: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>,
) -> anyhow::Result<Exit> {
    let format = arguments.to;
    let trace = Trace::open(folder)?;
    let symbols = arguments.selection.symbols()?;
    let names = arguments.calls.names(&trace, symbols);
    let has_moments = matches!(format, Format::Chrome | Format::Firefox | Format::Perfetto);
    let view = arguments
        .calls
        .view(&names, &arguments.selection, has_moments)?;
    let source = TraceSource {
        view: &view,
        names: &names,
    };
    let value = Value::from(arguments.value);
    let command = trace.info().command.join(" ");
    let service = arguments.service();
    let write = |out: &mut dyn Write| -> anyhow::Result<ExportedTrace> {
        before(out)?;
        Ok(match format {
            Format::Collapsed => write_trace_collapsed(&source, value, out)?,
            Format::Flamegraph => write_trace_flamegraph(&source, value, out)?,
            Format::Speedscope => write_trace_speedscope(&source, out)?,
            Format::Callgrind => write_trace_callgrind(&source, out)?,
            Format::Chrome => write_trace_chrome(&source, out)?,
            Format::Firefox => write_trace_firefox(&source, out)?,
            Format::Perfetto => write_trace_perfetto(&source, out)?,
            Format::Otlp => write_trace_otlp(&source, service, out)?,
            _ => write_trace_pprof(&source, std::slice::from_ref(&command), out)?,
        })
    };
    let (exported, exit) = write_or_send(arguments, &source, write)?;
    let facts: Facts = facts(&trace, &names, &exported.losses);
    facts.write_text(&mut io::stderr().lock())?;
    if counts_ticks(&trace) {
        say!("times are ticks of a clock that nobody has measured, not nanoseconds");
    }
    if view.is_sampled() && !has_moments {
        say!("calls of sampled functions stand for others: their numbers and times are estimates");
    }
    if exported.began_before > 0 {
        say!(
            "calls that began before: {}; they begin with the file's times",
            exported.began_before
        );
    }
    if exported.open > 0 {
        say!("calls without an end: {}", exported.open);
    }
    if exported.not_shown > 0 {
        say!(
            "{} ns were spent in calls that are not shown: `{NOT_SHOWN}`",
            exported.not_shown
        );
    }
    super::say_lost(format, &exported.lost);
    if !has_moments || format == Format::Firefox {
        say_values_left_out(&trace);
    }
    io::stderr().flush()?;
    Ok(exit)
}

/// Says that the values that were recorded with calls are not exported, if there are any.
pub fn say_values_left_out(trace: &Trace) {
    let functions = trace.functions_with_values() as u64;
    if functions > 0 {
        say!(
            "the arguments and return values of {} are not written; `dioptra trace replay` shows them",
            number_of(functions, "function")
        );
    }
}

/// Writes the output, or sends it to a collector.
fn write_or_send(
    arguments: &Arguments,
    #[cfg_attr(not(feature = "push"), expect(unused_variables))] source: &TraceSource<'_, '_>,
    write: impl FnOnce(&mut dyn Write) -> anyhow::Result<ExportedTrace>,
) -> anyhow::Result<(ExportedTrace, Exit)> {
    #[cfg(feature = "push")]
    if let Some(url) = &arguments.push.push {
        let mut sender = arguments.push.sender(url)?;
        let limit = sender.limit();
        let sent = trace_otlp_requests(source, arguments.service(), limit, &mut |request| {
            sender.send(request)
        });
        let exported = sent.map_err(|error| sender.failed(error.into()))?;
        return Ok((exported, sender.finish()));
    }
    Ok((write_out(arguments, write)?, Exit::Done))
}
