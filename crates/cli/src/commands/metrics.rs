//! `dioptra metrics`.

use super::derived::Derived;
use super::profiles::{By, DataNeeds, Selection, WantedWindows};
use super::shown::Shown;
use crate::exit::Exit;
use crate::formats::TableFormat;
use crate::output::say;
use anyhow::Context;
use clap::ValueEnum;
use dioptra_profile::KernelSamples;
use dioptra_windows::display::{WindowOptions, WindowRows, window_metrics};
use dioptra_windows::estimate::Trust;
use std::path::PathBuf;

/// Arguments of `dioptra metrics`.
#[derive(clap::Args)]
#[command(after_help = "\
Counters are read at both ends of short windows; a window counts for a function if it starts and ends there, called from the same place. Values are ratios of sums over such windows, ± their 95% interval; windows that leave the function are discarded, and a row that had to discard many deserves less trust. Windows of a thread or process (--by thread, --by process) are all kept. What windows' borders add is taken off where it can be told from 0; software counts page faults, context switches and the like exactly, so nothing is taken off there.

Profiles without windows give ratios too: those that read groups (`-e '{cycles,instructions}:S' -c 300`) by the windows between all their samples, others as ratios of sampled counts.

Examples:
  dioptra record --windows ./program && dioptra metrics
  dioptra metrics --set ipc,faults_per_ms    these metrics only
  dioptra metrics --by path                  functions apart by who called them
  dioptra metrics --min-share 1 --trust low  what takes 1% of the time and can be trusted somewhat
  dioptra metrics --format json | jq .facts  how windows were made, discards, closure")]
pub struct Arguments {
    /// The profile; `-` is standard input
    #[arg(short, long, value_name = "FILE", default_value = "perf.data")]
    input: PathBuf,
    /// Kind of row
    #[arg(long, value_enum, default_value_t = MetricRows::Function)]
    by: MetricRows,
    /// The metrics: a set such as `generic`, a metric such as `ipc`, `SET:METRIC`, a file of metrics, or `cpu` for the
    /// set of the recorded CPU; see `dioptra list metrics` [default: all of `generic` that the recorded events make]
    #[arg(
        long,
        visible_alias = "metric",
        value_name = "NAME",
        value_delimiter = ','
    )]
    set: Vec<String>,
    /// A folder of the events and metrics that Intel (perfmon) or Arm (telemetry-solution) publish
    /// [default: DIOPTRA_PMU_DATA]
    #[arg(long, value_name = "DIR")]
    pmu_data: Option<PathBuf>,
    /// Give functions of the kernel rows of their own. Without it their time and windows count for the function of the
    /// program that entered the kernel, where samples tell it, and a column shows the kernel's part
    #[arg(long)]
    kernel_apart: bool,
    #[command(flatten)]
    selection: Selection,
    /// Leave rows out that have less than this share of the time [default: none; text then shows 30 rows unless --limit
    /// says otherwise]
    #[arg(long, value_name = "PERCENT")]
    min_share: Option<f64>,
    /// Leave rows out that deserve less trust
    #[arg(long, value_enum, default_value_t = LeastTrust::Unreliable)]
    trust: LeastTrust,
    #[command(flatten)]
    shown: Shown,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum MetricRows {
    /// A function of a module, over all processes
    Function,
    /// A function and the path of its callers; needs call chains
    Path,
    /// A line of a source file
    Line,
    /// A module, whatever function of it
    Module,
    /// A thread, whatever function it is in
    Thread,
    /// A process, whatever function it is in
    Process,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LeastTrust {
    /// At most a quarter of the windows left the function
    High,
    /// At most 45%
    Low,
    /// Any
    Unreliable,
}

/// The number of rows of text unless the user gives a number.
const ROWS: usize = 30;

pub fn run(mut arguments: Arguments) -> anyhow::Result<Exit> {
    let least_share = arguments.min_share.unwrap_or(0.0);
    if !(0.0..=100.0).contains(&least_share) {
        say!("--min-share: give a number from 0 to 100");
        return Ok(Exit::WrongArguments);
    }
    let (by, rows) = match arguments.by {
        MetricRows::Function => (vec![By::Function], WindowRows::Function),
        MetricRows::Path => (vec![By::Function], WindowRows::Path),
        MetricRows::Line => (vec![By::Function, By::Line], WindowRows::Line),
        MetricRows::Module => (vec![By::Function, By::Module], WindowRows::Module),
        MetricRows::Thread => (vec![By::Function, By::Thread], WindowRows::Thread),
        MetricRows::Process => (vec![By::Function, By::Process], WindowRows::Process),
    };
    let wanted = DataNeeds {
        by,
        call_chains: arguments.by == MetricRows::Path,
        windows: WantedWindows::All,
        kernel: match arguments.kernel_apart {
            true => KernelSamples::Apart,
            false => KernelSamples::WithCaller,
        },
        ..DataNeeds::default()
    };
    let path = std::slice::from_ref(&arguments.input);
    let loaded = arguments.selection.load(path, &wanted)?;
    let only = loaded.first().context("there is no profile")?;
    let derived = Derived::of(arguments.set.clone(), arguments.pmu_data.clone());
    let chosen = derived.choose_or_generic(&loaded)?;
    if !derived.is_empty() {
        chosen.check_events(&loaded).context("--set")?;
    }
    let metrics = chosen.columns();
    let table = window_metrics(
        &only.windowed(),
        &WindowOptions {
            by: rows,
            metrics: &metrics,
            tell_missing: !arguments.set.is_empty(),
            ranking: arguments.selection.chosen_event(only)?,
            least_share: least_share / 100.0,
            least_trust: match arguments.trust {
                LeastTrust::High => Trust::High,
                LeastTrust::Low => Trust::Low,
                LeastTrust::Unreliable => Trust::Unreliable,
            },
            closure: arguments.selection.is_everything(),
            for_people: arguments.shown.format == TableFormat::Text,
        },
    )
    .with_context(|| arguments.input.display().to_string())?;
    if arguments.min_share.is_none() {
        arguments.shown.limit_text(ROWS);
    }
    // A value without its interval says nothing, so errors are always shown.
    arguments.shown.write(table, 1, true, &loaded)?;
    Ok(Exit::Done)
}
