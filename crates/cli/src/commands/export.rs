//! `dioptra export`.

mod parquet;
#[cfg(feature = "push")]
mod push;
mod traces;
mod uftrace;

use super::profiles::{By, DataNeeds, Loaded, OptionalData, Selection};
use super::trace::{CallSelection, say_usage, usage};
use crate::exit::Exit;
use crate::output::say;
use crate::remedies;
use crate::whole_file::write_whole;
use anyhow::{Context, bail};
use clap::ValueEnum;
#[cfg(feature = "push")]
use dioptra_export::otlp_requests;
use dioptra_export::{
    Exported, Lost, Source, Value, write_autofdo, write_callgrind, write_chrome, write_collapsed,
    write_firefox, write_flamegraph, write_otlp, write_perfetto, write_pprof, write_speedscope,
};
use dioptra_profile::KernelSamples;
use dioptra_report::profile_facts;
use dioptra_symbols::SymbolOptions;
use dioptra_tables::{Facts, Severity, escape};
use dioptra_tracelayout::directory;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// The profile that is exported if none is named.
const DEFAULT_PROFILE: &str = "perf.data";

/// Arguments of `dioptra export`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  dioptra export --to pprof                  write profile.pb.gz; then: go tool pprof -http : profile.pb.gz
  dioptra export --to flamegraph             write flamegraph.svg for a browser
  dioptra export --to firefox                write profile.firefox.json for profiler.firefox.com
  dioptra export --to chrome                 write profile.chrome.json for chrome://tracing
  dioptra export --to perfetto               write profile.pftrace for ui.perfetto.dev
  dioptra export --to otlp                   write profile.otlp.pb for an OpenTelemetry collector
  dioptra export --to otlp --push http://127.0.0.1:4317 --service web     send it to a collector
  dioptra export --to callgrind              write callgrind.out.dioptra; then: kcachegrind callgrind.out.dioptra
  dioptra export --to autofdo --dso prog     write profile.afdo; then: clang -O2 -fprofile-sample-use=profile.afdo prog.c
  dioptra export --to collapsed | flamegraph.pl > flame.svg
  dioptra export --to parquet                write tables to profile.store for SQL, pandas, DuckDB, Spark
  dioptra export --to uftrace                write the trace dioptra.trace to uftrace.data; then: uftrace replay
  dioptra export --to pprof --time 2..3.5 --comm gcc -o gcc.pb.gz
  dioptra export --to collapsed -i other.data -e cycles --value samples -o -
  dioptra export --to perfetto -d dioptra.trace     write the calls of a trace to profile.pftrace
  dioptra export --to perfetto -i perf.data -d dioptra.trace     samples and calls on one axis
  dioptra export --to flamegraph -d dioptra.trace -N malloc --value samples")]
pub struct Arguments {
    /// The format to write
    #[arg(long, value_enum, value_name = "FORMAT")]
    to: Format,
    /// The profile, or the directory of a trace; `-` is standard input
    /// [default: perf.data]
    #[arg(short, long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// The directory of a trace, whose calls are written: by call path with self times, or with chrome, perfetto and
    /// uftrace one by one. Beside -i with perfetto: samples and calls in one file, on one axis of time
    #[arg(short, long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The file to write; `-` is standard output [default: the format's usual name; standard output for collapsed]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The value of each stack, in formats with room for one: weights are nanoseconds of clocks and numbers of other
    /// events, as in `dioptra report`. Of traces, self times in nanoseconds, or numbers of calls
    #[arg(long, value_enum, default_value_t = StackValue::Weight)]
    value: StackValue,
    /// Let the time of inlined functions count for the function that contains them
    #[arg(long)]
    no_inline: bool,
    #[cfg(feature = "push")]
    #[command(flatten)]
    push: push::PushArguments,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    calls: CallSelection,
}

impl Arguments {
    /// Returns the profile, or the directory of a trace.
    fn input(&self) -> PathBuf {
        let usual = || PathBuf::from(DEFAULT_PROFILE);
        self.input.clone().unwrap_or_else(usual)
    }

    /// Returns the file to write; `-` is standard output.
    fn output(&self) -> PathBuf {
        let usual = || PathBuf::from(self.to.usual_output());
        self.output.clone().unwrap_or_else(usual)
    }

    /// Returns the service that the exported profiles are about.
    fn service(&self) -> Option<&str> {
        #[cfg(feature = "push")]
        return self.push.service.as_deref();
        #[cfg(not(feature = "push"))]
        None
    }
}

/// The formats.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A line for each stack: flamegraph.pl, inferno, speedscope. To standard output
    Collapsed,
    /// pprof's protocol buffer: go tool pprof, and much that reads it. To profile.pb.gz
    Pprof,
    /// The Firefox Profiler (profiler.firefox.com), samply load. To profile.firefox.json
    Firefox,
    /// speedscope.app. To profile.speedscope.json
    Speedscope,
    /// KCachegrind, callgrind_annotate. To callgrind.out.dioptra
    Callgrind,
    /// A flame graph for browsers. To flamegraph.svg
    Flamegraph,
    /// AutoFDO's text, with which clang optimizes (-fprofile-sample-use). To profile.afdo
    Autofdo,
    /// Chrome's trace events: chrome://tracing, ui.perfetto.dev. To profile.chrome.json
    Chrome,
    /// Perfetto's trace, with stacks: ui.perfetto.dev, trace_processor. To profile.pftrace
    Perfetto,
    /// OpenTelemetry's profiles (OTLP, v1development), as a collector takes them. To profile.otlp.pb
    Otlp,
    /// uftrace's directory, of a trace of function calls. To uftrace.data
    Uftrace,
    /// Tables of Parquet files, which dioptra query, pandas, DuckDB and Spark read. Into the folder profile.store
    Parquet,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StackValue {
    /// Sums of periods; of traces, self times
    Weight,
    /// Numbers of samples; of traces, of calls
    #[value(alias = "calls")]
    Samples,
}

impl From<StackValue> for Value {
    fn from(value: StackValue) -> Self {
        match value {
            StackValue::Weight => Value::Weight,
            StackValue::Samples => Value::Samples,
        }
    }
}

impl Format {
    /// Returns the name that the format's users expect; `-` for a format that is read from pipes.
    fn usual_output(self) -> &'static str {
        match self {
            Format::Collapsed => "-",
            Format::Pprof => "profile.pb.gz",
            Format::Firefox => "profile.firefox.json",
            Format::Speedscope => "profile.speedscope.json",
            Format::Callgrind => "callgrind.out.dioptra",
            Format::Flamegraph => "flamegraph.svg",
            Format::Autofdo => "profile.afdo",
            Format::Chrome => "profile.chrome.json",
            Format::Perfetto => "profile.pftrace",
            Format::Otlp => "profile.otlp.pb",
            Format::Uftrace => "uftrace.data",
            Format::Parquet => "profile.store",
        }
    }

    /// Returns whether the format is no text.
    fn is_binary(self) -> bool {
        matches!(self, Format::Pprof | Format::Perfetto | Format::Otlp)
    }

    /// Returns the format's name as `--to` takes it.
    fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Returns the data to load.
    fn needs(self, inlined: bool) -> DataNeeds {
        let mut needs = DataNeeds {
            by: vec![By::Function, By::Thread],
            call_chains: true,
            inlined,
            // `dioptra report` counts them so, too.
            kernel: KernelSamples::WithCallerOfSetAside,
            ..DataNeeds::default()
        };
        // All data is loaded, so that whatever the format has no place for is counted.
        needs.by.push(By::Line);
        needs.branches = self == Format::Autofdo;
        needs.optional = OptionalData {
            cpus: true,
            times: true,
            mappings: self.is_binary(),
            switches: self == Format::Firefox,
        };
        needs
    }
}

pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    say_usage(export(&arguments))
}

fn export(arguments: &Arguments) -> anyhow::Result<Exit> {
    let format = arguments.to;
    let has_both = arguments.data.is_some() && arguments.input.is_some();
    if has_both && format != Format::Perfetto {
        return Err(usage(format_args!(
            "--to {}: samples and calls go into one file with perfetto alone; give -i or -d",
            format.name()
        )));
    }
    #[cfg(feature = "push")]
    if let Some(option) = arguments.push.given()
        && format != Format::Otlp
    {
        bail!("{option}: only OpenTelemetry's collectors take profiles; add --to otlp");
    }
    match format {
        Format::Uftrace => return uftrace::run(arguments),
        Format::Parquet => return parquet::run(arguments),
        _ => {}
    }
    if arguments.output() == Path::new("-") && format.is_binary() && io::stdout().is_terminal() {
        bail!("-o -: this format is no text for a terminal; redirect it, or give a file");
    }
    let input = arguments.input();
    match &arguments.data {
        Some(_) if has_both && arguments.selection.span() != (None, None) => {
            return Err(usage(
                "--time: samples and calls begin at different times; export them one by one",
            ));
        }
        Some(folder) if !has_both => {
            traces::check(arguments)?;
            return traces::run(arguments, folder, |_| Ok(()));
        }
        None if input.join(directory::INFO).is_file() => {
            traces::check(arguments)?;
            return traces::run(arguments, &input, |_| Ok(()));
        }
        _ => {}
    }
    if let Some(option) = arguments.calls.given().filter(|_| !has_both) {
        bail!("{option}: only traces have calls to choose from; name a trace with -d");
    }
    if format == Format::Autofdo && arguments.no_inline {
        bail!(
            "--no-inline: an AutoFDO profile consists of functions where they were inlined; leave it out"
        );
    }
    let symbols = arguments.selection.symbols()?;
    let needs = format.needs(!arguments.no_inline);
    let loaded = arguments
        .selection
        .load(std::slice::from_ref(&input), &needs)?;
    let only = loaded.first().context("there is no profile")?;
    let events = arguments.selection.events(&loaded)?;
    let events: Vec<usize> = events.iter().filter_map(|event| event.of[0]).collect();
    let mut facts = profile_facts(&only.profile, &only.names, &events);
    remedies::spell(&mut facts);
    let export = Export {
        format,
        value: arguments.value.into(),
        only,
        events: &events,
        facts: &facts,
        symbols: &symbols,
        service: arguments.service(),
    };
    let (exported, exit) = match &arguments.data {
        Some(folder) => export.run_with_calls(arguments, folder)?,
        None => export.run(arguments)?,
    };
    warn(&facts)?;
    say_lost(format, &exported.lost);
    only.check_end()?;
    Ok(exit)
}

/// Writes the output to the file that was asked for, or to the format's usual one.
fn write_out<T>(
    arguments: &Arguments,
    write: impl FnOnce(&mut dyn Write) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let output = arguments.output();
    if output != Path::new("-") {
        let written = write_whole(&output, |out| write(out))?;
        say!("wrote {}", output.display());
        return Ok(written);
    }
    let mut out = BufWriter::new(io::stdout().lock());
    let written = write(&mut out)?;
    out.flush().context("writing the output")?;
    Ok(written)
}

/// Says what the format has no place for.
fn say_lost(format: Format, lost: &[Lost]) {
    if !lost.is_empty() {
        let lost: Vec<String> = lost.iter().map(ToString::to_string).collect();
        say!("{} has no place for: {}", format.name(), lost.join("; "));
    }
}

/// A loaded profile with the format to write it in.
struct Export<'a> {
    format: Format,
    value: Value,
    only: &'a Loaded,
    events: &'a [usize],
    facts: &'a Facts,
    symbols: &'a SymbolOptions,
    service: Option<&'a str>,
}

impl Export<'_> {
    /// Writes the output, or sends it.
    fn run(&self, arguments: &Arguments) -> anyhow::Result<(Exported, Exit)> {
        #[cfg(feature = "push")]
        if let Some(url) = &arguments.push.push {
            let mut sender = arguments.push.sender(url)?;
            let source = self.source();
            let limit = sender.limit();
            let sent = otlp_requests(&source, self.service, limit, &mut |request| {
                sender.send(request)
            });
            let exported = sent.map_err(|error| sender.failed(error.into()))?;
            exported.check(&self.only.profile)?;
            return Ok((exported, sender.finish()));
        }
        let exported = write_out(arguments, |out| self.write(out))?;
        Ok((exported, Exit::Done))
    }

    /// Writes the samples and behind them the calls of a trace, as Perfetto's traces may follow each other in a file.
    fn run_with_calls(
        &self,
        arguments: &Arguments,
        folder: &Path,
    ) -> anyhow::Result<(Exported, Exit)> {
        let mut exported = None;
        let exit = traces::run(arguments, folder, |out| {
            exported = Some(self.write(out)?);
            Ok(())
        })?;
        Ok((exported.context("no samples were written")?, exit))
    }

    fn source(&self) -> Source<'_> {
        Source {
            profile: &self.only.profile,
            names: &self.only.names,
            events: self.events,
            origin: &self.only.origin,
        }
    }

    fn write(&self, out: &mut dyn Write) -> anyhow::Result<Exported> {
        let source = self.source();
        let exported = match self.format {
            Format::Collapsed => write_collapsed(&source, self.value, out)?,
            Format::Pprof => {
                let comments: Vec<String> =
                    self.facts.iter().map(|fact| fact.text.clone()).collect();
                write_pprof(&source, &comments, out)?
            }
            Format::Firefox => write_firefox(&source, out)?,
            Format::Speedscope => write_speedscope(&source, out)?,
            Format::Callgrind => write_callgrind(&source, out)?,
            Format::Flamegraph => write_flamegraph(&source, self.value, out)?,
            Format::Chrome => write_chrome(&source, out)?,
            Format::Perfetto => write_perfetto(&source, out)?,
            Format::Otlp => write_otlp(&source, self.service, out)?,
            Format::Autofdo => write_autofdo(&source, self.value, self.symbols.clone(), out)?,
            Format::Uftrace | Format::Parquet => bail!("{} is no single file", self.format.name()),
        };
        exported.check(&self.only.profile)?;
        Ok(exported)
    }
}

/// Shows the losses, fallbacks and contradictions of the profile itself.
fn warn(facts: &Facts) -> anyhow::Result<()> {
    let grave = facts.iter().filter(|fact| fact.severity != Severity::Info);
    let mut err = io::stderr().lock();
    for fact in grave {
        writeln!(err, "# {}: {}", fact.severity.word(), escape(&fact.text))?;
    }
    Ok(())
}
