//! `dioptra report`.

use crate::symbol_sources::SymbolSources;
use anyhow::{Context, bail};
use clap::ValueEnum;
use dioptra_perfdata::PerfData;
use dioptra_perfevents::SampleType;
use dioptra_profile::{
    DebugInfoWanted, Dimension, LoadOptions, LoadPlan, Names, Profile, SampleFilter, TreeDirection,
    TreeLimits,
};
use dioptra_report::{ByOptions, ColumnKind, Direction, Format, Table, TreeOptions, by, tree};
use dioptra_symbols::SymbolOptions;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `dioptra report`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  dioptra report                             hottest functions of perf.data
  dioptra report --children                  with the time spent in what they called
  dioptra report --tree callers              who calls the hottest functions
  dioptra report --inline                    with inlined functions as rows of their own
  dioptra report --time 2..3.5 --comm gcc    one program in a part of the recording
  dioptra report --by process -i other.data  which processes took the time
  dioptra report --format json | jq .rows    for programs")]
pub struct Arguments {
    /// The profile; `-` is standard input
    #[arg(short, long, value_name = "FILE", default_value = "perf.data")]
    input: PathBuf,
    /// What a row is
    #[arg(long, value_enum, default_value_t = By::Function)]
    by: By,
    /// Show totals too: time in a function or anything it called. Needs call chains (`record -g`)
    #[arg(long)]
    children: bool,
    /// Show a call tree: below each sampled function its callers, or below the outermost ones what they call
    #[arg(long, value_enum, value_name = "DIRECTION")]
    tree: Option<Tree>,
    /// Show functions that the compiler inlined as functions of their own, from debug information. Trees do unless told
    /// otherwise; in tables the time of inlined code counts for the function that contains it
    #[arg(long, overrides_with = "no_inline")]
    inline: bool,
    /// Show no inlined functions in trees either
    #[arg(long, overrides_with = "inline")]
    no_inline: bool,
    /// Leave branches of a tree out that have less than this share of the weight
    #[arg(long, value_name = "PERCENT", default_value_t = 0.5, requires = "tree", value_parser = percent)]
    percent_limit: f64,
    /// Count samples of threads with these names only
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    comm: Vec<String>,
    /// Count samples in these modules only, by name or path
    #[arg(long, value_name = "MODULE", value_delimiter = ',')]
    dso: Vec<String>,
    /// Count samples in this function only, with what was inlined into it; may be given several times
    #[arg(long, value_name = "FUNCTION")]
    symbol: Vec<String>,
    /// Count samples of these threads only
    #[arg(long, value_name = "TID", value_delimiter = ',')]
    tid: Vec<u32>,
    /// Count samples on these CPUs only, such as 0,2-5
    #[arg(long, value_name = "CPUS", value_delimiter = ',', value_parser = cpus)]
    cpu: Vec<RangeInclusive<u32>>,
    /// Count samples of this time only: seconds since the first sample, from A on, up to before B; either may be empty
    #[arg(long, value_name = "A..B", value_parser = time)]
    time: Option<Span>,
    /// Show this event only, by name or number from 1; may be given several times
    #[arg(long, short, value_name = "EVENT")]
    event: Vec<String>,
    /// Show this many rows at most; in a tree below each row
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Sort by this column, such as `samples` or `module`
    #[arg(long, value_name = "COLUMN")]
    sort: Option<String>,
    /// How to show the table
    #[arg(long, value_enum, default_value_t = Shape::Text)]
    format: Shape,
    /// Show C++ and Rust names as linkers see them
    #[arg(long)]
    no_demangle: bool,
    /// Look for the recorded files below this directory
    #[arg(long, value_name = "DIR")]
    symfs: Option<PathBuf>,
    #[command(flatten)]
    sources: SymbolSources,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    /// A function of a module, over all processes
    Function,
    /// A program, library, kernel or kernel module, over all processes
    Module,
    /// A process
    Process,
    /// A thread
    Thread,
    /// A CPU
    Cpu,
    /// An instruction's address, relative to its module
    Address,
    /// A line of a source file
    Line,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Tree {
    /// Below each function its callers
    Callers,
    /// Below each function what it calls
    Callees,
}

/// Nanoseconds from and to.
type Span = (Option<u64>, Option<u64>);

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Shape {
    /// Aligned columns
    Text,
    /// RFC 4180; losses go to standard error
    Csv,
    /// All there is, in full precision
    Json,
}

impl From<By> for Dimension {
    fn from(by: By) -> Self {
        match by {
            By::Function => Dimension::Function,
            By::Module => Dimension::Module,
            By::Process => Dimension::Process,
            By::Thread => Dimension::Thread,
            By::Cpu => Dimension::Cpu,
            By::Address => Dimension::Address,
            By::Line => Dimension::Line,
        }
    }
}

impl From<Shape> for Format {
    fn from(shape: Shape) -> Self {
        match shape {
            Shape::Text => Format::Text,
            Shape::Csv => Format::Csv,
            Shape::Json => Format::Json,
        }
    }
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let of_tasks = matches!(arguments.by, By::Process | By::Thread | By::Cpu);
    if of_tasks && arguments.children {
        eprintln!(
            "dioptra: --children goes with --by function, module, line or address: a process calls nothing"
        );
        return Ok(ExitCode::from(2));
    }
    if arguments.tree.is_some() && arguments.by != By::Function {
        eprintln!("dioptra: --tree goes with --by function");
        return Ok(ExitCode::from(2));
    }
    if arguments.inline && arguments.by != By::Function {
        eprintln!(
            "dioptra: --inline goes with --by function; --by line tells the lines of inlined code anyway"
        );
        return Ok(ExitCode::from(2));
    }
    if let Some(directory) = &arguments.symfs
        && !directory.is_dir()
    {
        bail!(
            "--symfs {}: no such directory; give the one that holds the recorded machine's files",
            directory.display()
        );
    }
    let data = open(&arguments.input)?;
    let symbols = SymbolOptions {
        demangle: !arguments.no_demangle,
        symfs: arguments.symfs.clone(),
        ..SymbolOptions::default()
    };
    let symbols = arguments.sources.add_to(symbols)?;
    if arguments.by == By::Cpu || !arguments.cpu.is_empty() {
        check_cpus(&data)?;
    }
    let mut profile = Profile::load_with(
        &data,
        &LoadPlan {
            options: LoadOptions {
                call_chains: arguments.children || arguments.tree.is_some(),
                threads: matches!(arguments.by, By::Process | By::Thread),
            },
            cpus: arguments.by == By::Cpu,
            filter: SampleFilter {
                comms: arguments.comm.clone(),
                tids: arguments.tid.clone(),
                cpus: arguments.cpu.clone(),
                time: arguments.time.unwrap_or_default(),
            },
            symbols: symbols.clone(),
            ..LoadPlan::default()
        },
    );
    let events = match arguments.event.as_slice() {
        [] => None,
        wanted => Some(find_events(&profile, wanted)?),
    };
    let mut names = Names::default();
    if matches!(arguments.by, By::Function | By::Address) || !arguments.symbol.is_empty() {
        names = Names::find(&profile, symbols.clone());
    }
    let wanted = DebugInfoWanted {
        lines: arguments.by == By::Line,
        inlined: arguments.inline || (arguments.tree.is_some() && !arguments.no_inline),
    };
    if wanted != DebugInfoWanted::default() {
        names.find_debug_info(&profile, symbols, wanted);
    }
    keep_places(&mut profile, &names, &arguments);
    let limit = arguments.limit;
    let mut table = match arguments.tree {
        Some(direction) => tree(
            &profile,
            &names,
            &TreeOptions {
                direction: match direction {
                    Tree::Callers => TreeDirection::Callers,
                    Tree::Callees => TreeDirection::Callees,
                },
                limits: TreeLimits {
                    // Checked to lie between 0 and 100.
                    least: (arguments.percent_limit * 100.0).round() as u32,
                    width: limit.unwrap_or(usize::MAX),
                },
                events,
            },
        )?,
        None => by(
            &profile,
            &names,
            &ByOptions {
                by: arguments.by.into(),
                children: arguments.children,
                events,
            },
        )?,
    };
    if let Some(column) = &arguments.sort {
        sort(&mut table, column)?;
    }
    let format = Format::from(arguments.format);
    format.write(&mut table, limit, io::stdout().lock())?;
    if !format.shows_facts() {
        table.facts.write_text(&mut io::stderr().lock())?;
    }
    let summary = &profile.losses().summary;
    if let Some(offset) = summary.stopped_at {
        bail!(
            "{}: damaged at byte {offset}, where reading stopped; what lies before is shown. Copy or record it again",
            arguments.input.display()
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether any sample can tell its CPU.
fn check_cpus(data: &PerfData) -> anyhow::Result<()> {
    let mut samplers = data.events().iter().filter(|event| event.attr.samples());
    if samplers.any(|event| event.attr.sample_type.contains(SampleType::CPU)) {
        return Ok(());
    }
    bail!(
        "the profile's samples do not tell their CPU; record the whole machine (-a), or with perf's --sample-cpu"
    );
}

/// Drops samples outside of the wanted modules and functions.
fn keep_places(profile: &mut Profile, names: &Names, arguments: &Arguments) {
    if !arguments.dso.is_empty() {
        let wanted: Vec<bool> = profile
            .modules()
            .iter()
            .map(|module| {
                let path = String::from_utf8_lossy(&module.path);
                arguments
                    .dso
                    .iter()
                    .any(|name| *name == module.label || *name == path)
            })
            .collect();
        let frames: Vec<bool> = profile
            .frames()
            .iter()
            .map(|frame| wanted[frame.module as usize])
            .collect();
        profile.retain_samples(|frame| frames[frame as usize]);
    }
    if !arguments.symbol.is_empty() {
        let wanted: Vec<bool> = names
            .functions()
            .iter()
            .map(|function| arguments.symbol.contains(&function.name))
            .collect();
        profile.retain_samples(|frame| {
            let mut functions = names.chain_of(frame, None).iter();
            functions.any(|function| wanted[*function as usize])
        });
    }
}

/// `2`, `0-3`.
fn cpus(text: &str) -> Result<RangeInclusive<u32>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok(first..=last),
        _ => Err("give CPUs such as 0,2-5".to_owned()),
    }
}

/// `A..B` in seconds, either of which may be empty.
fn time(text: &str) -> Result<Span, String> {
    let wrong = || "give seconds since the first sample, such as 1.5..2, 1.5.. or ..2".to_owned();
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let nanoseconds = |text: &str| match text {
        "" => Ok(None),
        text => match text.parse::<f64>() {
            // Beyond the largest number of nanoseconds is as good as never.
            Ok(seconds) if seconds >= 0.0 => Ok(Some((seconds * 1e9).round() as u64)),
            _ => Err(wrong()),
        },
    };
    match (nanoseconds(from)?, nanoseconds(to)?) {
        (Some(from), Some(to)) if from >= to => Err("the end must come after the start".to_owned()),
        span => Ok(span),
    }
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("give a number from 0 to 100".to_owned()),
    }
}

/// Opens a profile; `-` is standard input.
pub(super) fn open(path: &Path) -> anyhow::Result<PerfData> {
    let data = if path == Path::new("-") {
        PerfData::from_reader(io::stdin().lock())
    } else {
        PerfData::open(path)
    };
    Ok(data?)
}

/// The events that were asked for, each by its name, its name without modifiers, or its number from 1.
fn find_events(profile: &Profile, wanted: &[String]) -> anyhow::Result<Vec<usize>> {
    let names = || profile.events().iter().map(|event| event.name());
    wanted
        .iter()
        .map(|wanted| {
            let number = || {
                let number: usize = wanted.parse().ok()?;
                (1..=profile.events().len())
                    .contains(&number)
                    .then(|| number - 1)
            };
            names()
                .position(|name| name == wanted)
                .or_else(|| names().position(|name| without_modifiers(name) == wanted))
                .or_else(number)
                .with_context(|| {
                    let known: Vec<&str> = names().collect();
                    format!(
                        "the profile has no event `{wanted}`; it has {}",
                        known.join(", ")
                    )
                })
        })
        .collect()
}

/// `cycles` of `cycles:u`; a tracepoint's name keeps its colon.
fn without_modifiers(name: &str) -> &str {
    match name.rsplit_once(':') {
        Some((event, modifiers))
            if modifiers
                .chars()
                .all(|letter| "ukhGHpPSDIeWb".contains(letter)) =>
        {
            event
        }
        _ => name,
    }
}

/// Sorts by the column with this id or heading: names upwards, numbers downwards.
fn sort(table: &mut Table, wanted: &str) -> anyhow::Result<()> {
    let index = table
        .column_index(wanted)
        .or_else(|| {
            table
                .columns
                .iter()
                .position(|column| column.name == wanted)
        })
        .with_context(|| {
            let known: Vec<&str> = table
                .columns
                .iter()
                .map(|column| column.id.as_str())
                .collect();
            format!(
                "--sort: there is no column `{wanted}`; there are {}",
                known.join(", ")
            )
        })?;
    let direction = match table.columns[index].kind {
        ColumnKind::Name => Direction::Ascending,
        _ => Direction::Descending,
    };
    table.sort_by(index, direction)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{cpus, time, without_modifiers};

    #[test]
    fn ranges() {
        assert_eq!(
            time("1.5..2"),
            Ok((Some(1_500_000_000), Some(2_000_000_000)))
        );
        assert_eq!(time("..0.25"), Ok((None, Some(250_000_000))));
        assert_eq!(time("3.."), Ok((Some(3_000_000_000), None)));
        for wrong in ["", "1", "2..1", "1..1", "-1..", "a..b", "nan.."] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
        assert_eq!(cpus("2-5"), Ok(2..=5));
        assert_eq!(cpus("7"), Ok(7..=7));
        assert!(cpus("5-2").is_err() && cpus("x").is_err());
    }

    #[test]
    fn modifiers_are_no_part_of_a_name() {
        assert_eq!(without_modifiers("cycles:uk"), "cycles");
        assert_eq!(without_modifiers("cpu-clock"), "cpu-clock");
        assert_eq!(
            without_modifiers("sched:sched_switch"),
            "sched:sched_switch"
        );
    }
}
