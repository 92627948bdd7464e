//! `dioptra import`.

mod uftrace;

use super::profiles::is_stdin;
use crate::exit::Exit;
use crate::output::say;
use crate::whole_file::write_whole;
use anyhow::Context;
use clap::ValueEnum;
use dioptra_export::{ImportFormat, ImportOptions, Imported, import};
use dioptra_perfdata::FeaturesToWrite;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Arguments of `dioptra import`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  dioptra import cpu.pb.gz -o cpu.perf.data              a profile of Go, gperftools, or dioptra export --to pprof
  dioptra import cpu.pb.gz -o cpu.perf.data && dioptra report -i cpu.perf.data
  dioptra import stacks.folded -o stacks.perf.data       collapsed stacks, as flamegraph.pl reads them
  dioptra import stacks.folded -e cpu-clock -o stacks.perf.data
  perf script | dioptra import - -o script.perf.data     a recording of another machine as text
  dioptra import uftrace.data -o dioptra.trace           a trace of uftrace's; then: dioptra trace replay")]
pub struct Arguments {
    /// The profile, compressed with gzip or not; `-` is standard input. Or uftrace's directory
    #[arg(value_name = "FILE")]
    input: PathBuf,
    /// The perf.data file to write; for uftrace's directory, that of the trace
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// The profile's format [default: found out by its content]
    #[arg(long, value_enum, value_name = "FORMAT")]
    from: Option<Format>,
    /// The name of the event, for collapsed stacks, which do not name it; the values of cpu-clock and task-clock are
    /// nanoseconds
    #[arg(long, short, value_name = "EVENT", default_value = "value")]
    event: String,
    /// The first name of each collapsed stack is a function's, not its thread's
    #[arg(long)]
    no_thread_names: bool,
}

/// The formats.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A line for each stack, as flamegraph.pl, inferno and async-profiler write and read them
    Collapsed,
    /// pprof's protocol buffer, as Go, gperftools and dioptra export write it
    Pprof,
    /// The text that perf script prints
    PerfScript,
    /// A directory that uftrace has recorded
    Uftrace,
}

impl Format {
    /// Returns the format of a profile; `None` for a trace.
    fn of_profile(self) -> Option<ImportFormat> {
        match self {
            Format::Collapsed => Some(ImportFormat::Collapsed),
            Format::Pprof => Some(ImportFormat::Pprof),
            Format::PerfScript => Some(ImportFormat::PerfScript),
            Format::Uftrace => None,
        }
    }
}

pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let input = &arguments.input;
    let is_uftrace = arguments.from == Some(Format::Uftrace);
    if is_uftrace || arguments.from.is_none() && !is_stdin(input) && input.is_dir() {
        return uftrace::run(input, &arguments.output);
    }
    let profile = match is_stdin(input) {
        true => {
            let mut profile = Vec::new();
            let read = io::stdin().lock().read_to_end(&mut profile);
            read.map(|_| profile).context("reading standard input")?
        }
        false => fs::read(input).with_context(|| format!("reading {}", input.display()))?,
    };
    let options = ImportOptions {
        format: arguments.from.and_then(Format::of_profile),
        event: arguments.event.clone(),
        first_is_function: arguments.no_thread_names,
        thread_name: thread_name(input),
        features: FeaturesToWrite {
            version: Some(concat!("dioptra ", env!("CARGO_PKG_VERSION")).to_owned()),
            command_line: std::env::args().collect(),
            ..FeaturesToWrite::default()
        },
    };
    let imported = write_whole(&arguments.output, |out| {
        import(&profile, options, out).with_context(|| input.display().to_string())
    })?;
    summarize(&imported, &arguments.output);
    Ok(Exit::Done)
}

/// Returns the name of threads whose names the profile does not state: that of its file.
fn thread_name(input: &Path) -> String {
    let stem = input.file_name().filter(|_| !is_stdin(input));
    let stem = stem.map(|name| name.to_string_lossy().into_owned());
    let stem = stem.as_deref().and_then(|name| name.split('.').next());
    let stem = stem.filter(|stem| !stem.is_empty());
    stem.unwrap_or("imported").to_owned()
}

fn summarize(imported: &Imported, output: &Path) {
    let events = imported.events.iter().map(|event| {
        let noun = if event.samples == 1 {
            "sample"
        } else {
            "samples"
        };
        format!("{} {noun} of {}", event.samples, event.name)
    });
    let events: Vec<String> = events.collect();
    say!(
        "wrote {} from {}: {}",
        output.display(),
        imported.format.name(),
        events.join(", ")
    );
    if !imported.omitted.is_empty() {
        let omitted: Vec<String> = imported.omitted.iter().map(ToString::to_string).collect();
        say!("perf.data has no place for: {}", omitted.join("; "));
    }
}
