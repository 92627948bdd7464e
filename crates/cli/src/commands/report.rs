//! `dioptra report`.

use anyhow::{Context, bail};
use clap::ValueEnum;
use dioptra_perfdata::PerfData;
use dioptra_profile::{Dimension, LoadOptions, Names, Profile};
use dioptra_report::{ByOptions, ColumnKind, Direction, Format, Table, by};
use dioptra_symbols::SymbolOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `dioptra report`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  dioptra report                             hottest functions of perf.data
  dioptra report --children                  with the time spent in what they called
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
    /// Show this event only, by name or number from 1; may be given several times
    #[arg(long, short, value_name = "EVENT")]
    event: Vec<String>,
    /// Show this many rows at most
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
}

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
    let of_tasks = matches!(arguments.by, By::Process | By::Thread);
    if of_tasks && arguments.children {
        eprintln!("dioptra: --children goes with --by function or module: a process calls nothing");
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
    let profile = Profile::load(
        &data,
        LoadOptions {
            call_chains: arguments.children,
            threads: of_tasks,
        },
    );
    let events = match arguments.event.as_slice() {
        [] => None,
        wanted => Some(find_events(&profile, wanted)?),
    };
    let names = match arguments.by {
        By::Function => Names::find(
            &profile,
            SymbolOptions {
                demangle: !arguments.no_demangle,
                symfs: arguments.symfs,
                ..SymbolOptions::default()
            },
        ),
        _ => Names::default(),
    };
    let options = ByOptions {
        by: arguments.by.into(),
        children: arguments.children,
        events,
    };
    let mut table = by(&profile, &names, &options)?;
    if let Some(column) = &arguments.sort {
        sort(&mut table, column)?;
    }
    let format = Format::from(arguments.format);
    format.write(&mut table, arguments.limit, io::stdout().lock())?;
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

/// Opens a profile; `-` is standard input.
fn open(path: &Path) -> anyhow::Result<PerfData> {
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
    use super::without_modifiers;

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
