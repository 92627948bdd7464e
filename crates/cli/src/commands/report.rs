//! `dioptra report`.

mod traces;

use super::derived::Derived;
use super::profiles::{
    By, DataNeeds, Loaded, Selection, WantedWindows, has_windows, no_windows_here, window_rows,
};
use super::shown::{Rows, Shown};
use super::trace::{CallSelection, say_usage};
use super::traces::{are_traces, check_profile_options};
use crate::exit::Exit;
use crate::output::say;
use anyhow::{Context, bail};
use clap::ValueEnum;
use dioptra_profile::KernelSamples;
use dioptra_profile::{Dimension, Profile, Slices, TreeDirection, TreeLimits};
use dioptra_report::{
    CallGraphOptions, Input, PercentOf, ReportOptions, ShownNumbers, TreeOptions, call_graph,
    has_calls, report, tree,
};
use dioptra_tables::Table;
use dioptra_windows::display::{WindowOptions, WindowRows, add_window_metrics};
use std::path::PathBuf;

/// Arguments of `dioptra report`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  dioptra report                             hottest functions of perf.data
  dioptra report --children                  with the time spent in what they called
  dioptra report --by process,module,function
                                             in each process its modules, in each its functions
  dioptra report --by function,line --limit 5
                                             the hottest lines of the hottest functions
  dioptra report --by time --slices 10       a row for each tenth of the recording
  dioptra report --by function --errors      with standard errors
  dioptra report --metric ipc,branch_mpki    with derived columns, from what was recorded
  dioptra report --tree callers              who calls the hottest functions
  dioptra report --tree callees --calls      the graph of calls, from branch records (record -b)
  dioptra report --working-set               with the cache lines and pages of code that each function executed
  dioptra report --inline                    with inlined functions as rows of their own
  dioptra report --time 2..3.5 --comm gcc    one program in a part of the recording
  dioptra report -i a.data -i b.data         the sum of two recordings
  dioptra report -i dioptra.trace --by module,function
                                             the calls and times of a trace
  dioptra report --format json | jq .rows    for programs")]
pub struct Arguments {
    /// The profile, or the directory of a trace; `-` is standard input. Given several times, the profiles are summed
    #[arg(short, long, value_name = "FILE", default_value = "perf.data")]
    input: Vec<PathBuf>,
    #[command(flatten)]
    options: Options,
}

/// Arguments of every command that shows the table of a profile or of a sum of profiles.
#[derive(clap::Args)]
pub struct Options {
    /// Kind of row; several are levels of a tree, the first one outermost
    #[arg(long, value_enum, value_delimiter = ',', default_value = "function")]
    by: Vec<By>,
    /// Show totals too: time in a function or anything it called. Needs call chains (`record -g`). Places without names
    /// are apart by module and range of addresses
    #[arg(long)]
    children: bool,
    /// Show a call tree: below each sampled function its callers, or below the outermost ones what they call
    #[arg(long, value_enum, value_name = "DIRECTION")]
    tree: Option<Tree>,
    /// With --tree: count the calls that branch records (LBR, `record -b`) tell, not samples by their call chains. So
    /// do trees of profiles without call chains
    #[arg(long, requires = "tree")]
    calls: bool,
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
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    derived: Derived,
    /// Columns of each event; `scaled` are weights and shares of events whose counters took turns, each sample times
    /// the factor of its own interval
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "percent,samples,weight,scaled"
    )]
    columns: Vec<Number>,
    /// Reference of percentages
    #[arg(long, value_enum, default_value_t = Percent::Column)]
    percent: Percent,
    /// Show the standard errors of samples, weights and shares; JSON has them anyway
    #[arg(long)]
    errors: bool,
    /// Show how many distinct cache lines and pages of code each row executed, as far as samples and branch records
    /// tell: lower bounds of its instruction working set
    #[arg(long)]
    working_set: bool,
    #[command(flatten)]
    rows: Rows,
    #[command(flatten)]
    shown: Shown,
    #[command(flatten)]
    of_traces: CallSelection,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Tree {
    /// Below each function its callers
    Callers,
    /// Below each function what it calls
    Callees,
}

/// The columns of an event.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Number {
    /// Shares
    Percent,
    /// Numbers of samples
    Samples,
    /// Sums of periods, as counted
    Weight,
    /// Weights and shares, scaled for the time in which the event was not counted
    Scaled,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Percent {
    /// The event's sum over all samples that pass the filters
    Column,
    /// The event's sum over the whole recording
    Total,
    /// The first event's sum in the same row
    Row,
    /// The event's sum in the row above
    Parent,
}

impl From<Percent> for PercentOf {
    fn from(percent: Percent) -> Self {
        match percent {
            Percent::Column => PercentOf::Column,
            Percent::Total => PercentOf::Total,
            Percent::Row => PercentOf::Row,
            Percent::Parent => PercentOf::Parent,
        }
    }
}

pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    arguments.options.run(&arguments.input)
}

impl Options {
    /// Shows the table of a profile, or of the sum of several profiles.
    pub(super) fn run(&self, inputs: &[PathBuf]) -> anyhow::Result<Exit> {
        say_usage(match are_traces(inputs) {
            Ok(true) => self.run_on_traces(inputs),
            Ok(false) => {
                check_profile_options(&self.of_traces).and_then(|()| self.run_on_profiles(inputs))
            }
            Err(error) => Err(error),
        })
    }

    fn run_on_profiles(&self, inputs: &[PathBuf]) -> anyhow::Result<Exit> {
        if let Some(wrong) = self.contradiction(inputs.len()) {
            say!("{wrong}");
            return Ok(Exit::WrongArguments);
        }
        let wanted = DataNeeds {
            by: self.by.clone(),
            call_chains: self.children || self.tree.is_some(),
            inlined: self.inline || (self.tree.is_some() && !self.no_inline),
            errors: self.errors || self.shown.format.is_json() || !self.derived.is_empty(),
            windows: WantedWindows::for_metrics(&self.derived),
            branches: self.tree.is_some() || self.working_set,
            unknown_ranges: self.children,
            // As `dioptra metrics` counts them, so that a metric has one meaning.
            kernel: KernelSamples::WithCallerOfSetAside,
            ..DataNeeds::default()
        };
        let loaded = self.selection.load(inputs, &wanted)?;
        let of_windows = has_windows(&loaded);
        if of_windows
            && let Some(wrong) = no_windows_here(&self.by, self.inline)
                .or((loaded.len() > 1).then_some("--metric: windows are of one recording: give one -i, or compare them with dioptra diff"))
        {
            say!("{wrong}");
            return Ok(Exit::WrongArguments);
        }
        let table = match self.tree {
            Some(direction) => self.tree(direction, &loaded)?,
            None => self.table(&loaded, of_windows)?,
        };
        self.shown
            .write(table, self.by.len(), self.errors, &loaded)?;
        Ok(Exit::Done)
    }

    /// Returns the error for arguments that make no sense together.
    fn contradiction(&self, inputs: usize) -> Option<&'static str> {
        let by_function = self.by == [By::Function];
        if self.children && !self.by.iter().any(|by| by.is_place()) {
            Some(
                "--children goes with --by function, module, line, block or instruction: a process calls nothing",
            )
        } else if self.tree.is_some() && !by_function {
            Some("--tree goes with --by function")
        } else if self.tree.is_some() && !self.derived.is_empty() {
            Some("--metric does not go with --tree")
        } else if self.working_set && (self.tree.is_some() || inputs > 1) {
            Some("--working-set goes with one profile, and not with --tree")
        } else if self.tree.is_some() && inputs > 1 {
            Some("--tree goes with one profile")
        } else if self.inline && !self.by.contains(&By::Function) {
            Some(
                "--inline goes with --by function; --by line tells the lines of inlined code anyway",
            )
        } else {
            let mut by = self.by.iter().enumerate();
            let twice = by.any(|(place, by)| self.by[..place].contains(by));
            twice.then_some("--by has a level twice")
        }
    }

    fn table(&self, loaded: &[Loaded], of_windows: bool) -> anyhow::Result<Table> {
        let inputs: Vec<Input<'_>> = loaded.iter().map(Loaded::input).collect();
        let by: Vec<Dimension> = self.by.iter().map(|by| (*by).into()).collect();
        let shown = |number| self.columns.contains(&number);
        let events = self.selection.events(loaded)?;
        let metrics = self.derived.choose(loaded, self.rows.few)?;
        metrics.check_events_of_sum(loaded).context("--metric")?;
        let columns = metrics.columns();
        let mut table = report(
            &inputs,
            &ReportOptions {
                by: &by,
                children: self.children,
                events: &events,
                shown: ShownNumbers {
                    percent: shown(Number::Percent),
                    samples: shown(Number::Samples),
                    weight: shown(Number::Weight),
                    scaled: shown(Number::Scaled),
                },
                percent_of: self.percent.into(),
                errors: self.errors || self.shown.format.is_json(),
                few: self.rows.few,
                metrics: if of_windows { &[] } else { &columns },
                slices: Slices::Number(self.rows.slices),
                working_set: self.working_set,
            },
        )?;
        if of_windows {
            let options = WindowOptions {
                by: window_rows(&self.by).unwrap_or(WindowRows::Function),
                metrics: &columns,
                closure: self.selection.is_everything(),
                for_people: false,
                ..WindowOptions::default()
            };
            add_window_metrics(&mut table, &loaded[0].windowed(), &options)?;
        }
        Ok(table)
    }

    fn tree(&self, direction: Tree, loaded: &[Loaded]) -> anyhow::Result<Table> {
        let events = self.selection.events(loaded)?;
        let only = loaded.first().context("there is no profile")?;
        let events: Vec<usize> = events.iter().filter_map(|event| event.of[0]).collect();
        let direction = match direction {
            Tree::Callers => TreeDirection::Callers,
            Tree::Callees => TreeDirection::Callees,
        };
        let limits = TreeLimits {
            // The argument's parser has checked that the value lies between 0 and 100.
            least: (self.percent_limit * 100.0).round() as u32,
            width: self.shown.limit.unwrap_or(usize::MAX),
        };
        if let Some(event) = self.event_of_calls(&only.profile, &events)? {
            let options = CallGraphOptions {
                direction,
                event,
                limits,
                symbols: self.selection.symbols()?,
            };
            return Ok(call_graph(&only.profile, &only.names, &options)?);
        }
        let table = tree(
            &only.profile,
            &only.names,
            &TreeOptions {
                direction,
                limits,
                events: Some(events),
            },
        );
        let table = table?;
        Ok(match self.shown.is_fitted() {
            true => table.fold_recursion()?,
            false => table,
        })
    }

    /// Returns the event whose branch records a tree shows: if `--calls` asks for them, or there are no call chains.
    fn event_of_calls(&self, profile: &Profile, events: &[usize]) -> anyhow::Result<Option<usize>> {
        let has_chains = |event: &&usize| profile.events()[**event].has_chains();
        if !self.calls && events.iter().any(|event| has_chains(&event)) {
            return Ok(None);
        }
        let event = events.iter().find(|event| has_calls(profile, **event));
        if event.is_none() && profile.dropped().branches {
            bail!(
                "--tree: branch records of calls go with the filters --comm, --tid, --cpu and --time only, not with --dso or --symbol"
            );
        }
        if event.is_none() && self.calls {
            bail!(
                "--calls: the profile has no branch records of calls; record with -b, on a CPU that keeps them (LBR, BRBE)"
            );
        }
        Ok(event.copied())
    }
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("give a number from 0 to 100".to_owned()),
    }
}
