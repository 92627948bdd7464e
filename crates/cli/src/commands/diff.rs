//! `dioptra diff`.

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
use dioptra_profile::{Dimension, KernelSamples, Slices};
use dioptra_report::{DiffOptions, Input, Normalize, TableEvent, diff};
use dioptra_windows::display::{WindowInput, WindowOptions, WindowRows, add_window_differences};
use std::num::NonZeroU32;
use std::path::PathBuf;

/// Arguments of `dioptra diff`.
#[derive(clap::Args)]
#[command(after_help = "\
Rows are the same where their names are: modules with the same build id, else with the same path or file name, so that a program can be compared with a newer build of itself; functions of one build by address, of different builds by name and source file; functions of stripped modules by their instructions; processes and threads by name. What shares a row although nothing tells it apart is told.

The status is `new` or `gone` where only one profile has samples of a row and that is no chance of sampling, else `new?` or `gone?`.

The error of a difference is that of sampling. Stars tell which differences are more than that; two runs of the same program may differ by more, so compare sums of several runs where it matters.

Examples:
  dioptra diff before.data after.data                  functions, the largest change first
  dioptra diff a.data b.data --by module,function      libraries, and in each its functions
  dioptra diff a.data b.data --normalize time          per second of each recording
  dioptra diff a.data b.data --normalize instructions  per instruction of each recording
  dioptra diff base.data try1.data try2.data           each against the first
  dioptra diff before.trace after.trace                the calls and times of two traces")]
pub struct Arguments {
    /// The profile or trace to compare with, and those that are compared; one may be `-`, standard input
    #[arg(value_name = "FILE", required = true, num_args = 2..)]
    inputs: Vec<PathBuf>,
    /// Kind of row; several are levels of a tree, the first one outermost
    #[arg(long, value_enum, value_delimiter = ',', default_value = "function")]
    by: Vec<By>,
    /// Make weights comparable: `none`, `time` (per second of each recording), or per one of an event of it
    #[arg(long, value_name = "none|time|EVENT", default_value = "none")]
    normalize: String,
    /// Show functions that the compiler inlined as functions of their own, from debug information
    #[arg(long)]
    inline: bool,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    derived: Derived,
    #[command(flatten)]
    rows: Rows,
    #[command(flatten)]
    shown: Shown,
    #[command(flatten)]
    of_traces: CallSelection,
}

pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    say_usage(match are_traces(&arguments.inputs) {
        Ok(true) => traces::run(&arguments),
        Ok(false) => {
            check_profile_options(&arguments.of_traces).and_then(|()| run_on_profiles(arguments))
        }
        Err(error) => Err(error),
    })
}

fn run_on_profiles(arguments: Arguments) -> anyhow::Result<Exit> {
    if arguments.inline && !arguments.by.contains(&By::Function) {
        say!("--inline goes with --by function");
        return Ok(Exit::WrongArguments);
    }
    let by_time = arguments.normalize == "time";
    let wanted = DataNeeds {
        by: arguments.by.clone(),
        inlined: arguments.inline,
        errors: true,
        times: by_time,
        shapes: true,
        windows: WantedWindows::for_metrics(&arguments.derived),
        // As `dioptra metrics` counts them, so that a metric has one meaning.
        kernel: KernelSamples::WithCallerOfSetAside,
        ..DataNeeds::default()
    };
    let loaded = arguments.selection.load(&arguments.inputs, &wanted)?;
    let of_windows = has_windows(&loaded);
    if of_windows && let Some(wrong) = no_windows_here(&arguments.by, arguments.inline) {
        say!("{wrong}");
        return Ok(Exit::WrongArguments);
    }
    if of_windows && let Some(without) = loaded.iter().find(|loaded| !loaded.has_recorded_windows())
    {
        bail!(
            "--metric: {} has no windows and the other profile has; record both with --windows, or both without",
            without.path.display()
        );
    }
    let inputs: Vec<Input<'_>> = loaded.iter().map(Loaded::input).collect();
    let by: Vec<Dimension> = arguments.by.iter().map(|by| (*by).into()).collect();
    let mut events = arguments.selection.events(&loaded)?;
    let shown = events.len();
    let normalize = match arguments.normalize.as_str() {
        "none" => Normalize::None,
        "time" => Normalize::Time(arguments.seconds(&loaded)?),
        event => Normalize::Event(arguments.event(event, &mut events, &loaded)?),
    };
    let metrics = arguments.derived.choose(&loaded, arguments.rows.few)?;
    metrics.check_events(&loaded).context("--metric")?;
    let columns = metrics.columns();
    let mut table = diff(
        &inputs,
        &DiffOptions {
            by: &by,
            events: &events,
            shown,
            normalize,
            few: arguments.rows.few,
            metrics: if of_windows { &[] } else { &columns },
            slices: Slices::Number(arguments.rows.slices),
        },
    )?;
    if of_windows {
        let options = WindowOptions {
            by: window_rows(&arguments.by).unwrap_or(WindowRows::Function),
            metrics: &columns,
            closure: arguments.selection.is_everything(),
            for_people: false,
            ..WindowOptions::default()
        };
        let windowed: Vec<WindowInput<'_>> = loaded.iter().map(Loaded::windowed).collect();
        add_window_differences(&mut table, &windowed, &options)?;
    }
    arguments.shown.write(table, by.len(), false, &loaded)?;
    Ok(Exit::Done)
}

impl Arguments {
    /// Returns the seconds of each profile, between its first and last sample or within `--time`.
    fn seconds(&self, loaded: &[Loaded]) -> anyhow::Result<Vec<f64>> {
        let each = loaded.iter().map(|loaded| {
            let slices = loaded.profile.time_slices(Slices::Number(NonZeroU32::MIN));
            let (_, end) = slices
                .with_context(|| {
                    format!(
                        "--normalize time: {} has no sample with a time",
                        loaded.path.display()
                    )
                })?
                .span(0);
            let start = self.selection.span().0.unwrap_or(0);
            Ok(end.saturating_sub(start) as f64 / 1e9)
        });
        each.collect()
    }

    /// Returns the index of the event by which weights are divided. All profiles must have that event.
    fn event(
        &self,
        name: &str,
        events: &mut Vec<TableEvent>,
        loaded: &[Loaded],
    ) -> anyhow::Result<usize> {
        let event = Selection::event(name, loaded).context("--normalize")?;
        if let Some(place) = event.of.iter().position(Option::is_none) {
            bail!(
                "--normalize: {} has no event `{name}`",
                loaded[place].path.display()
            );
        }
        let known = events.iter().position(|known| known.of == event.of);
        Ok(known.unwrap_or_else(|| {
            events.push(event);
            events.len() - 1
        }))
    }
}
