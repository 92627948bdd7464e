//! Arguments of all commands that show calls: the trace, and the part of it to show.

use super::render::show_ticks;
use super::rules::RuleTexts;
use super::usage;
use crate::commands::profiles::Selection;
use crate::output::say;
use crate::remedies::spell;
use crate::symbol_sources::SymbolSources;
use dioptra_calls::{
    Demangle, FunctionNames, Scheduling, TimeRange, View, ViewLosses, ViewSelection,
};
use dioptra_filters::{MatchStyle, parse_bool, parse_time};
use dioptra_symbols::{SymbolOptions, Symbolizer};
use dioptra_tables::Facts;
use dioptra_trace_report::{call_facts, counts_ticks};
use dioptra_tracedata::Trace;
use dioptra_tracelayout::directory;
use std::path::{Path, PathBuf};

/// Arguments that name the trace.
#[derive(clap::Args)]
pub struct Data {
    /// The trace's directory
    #[arg(short, long, value_name = "DIR", default_value = directory::DEFAULT,
          visible_short_alias = 'i', visible_alias = "input")]
    data: PathBuf,
}

impl Data {
    /// Opens the trace. As in uftrace, the default is the current directory if it is a trace and there is no default
    /// trace.
    pub fn open(&self) -> anyhow::Result<Trace> {
        let default = Path::new(directory::DEFAULT);
        let here = Path::new(directory::INFO);
        if self.data == default && !default.exists() && here.exists() {
            return open(Path::new("."));
        }
        open(&self.data)
    }
}

/// Opens a trace. If nobody has measured its clock's ticks, durations are shown in ticks from now on.
pub fn open(folder: &Path) -> anyhow::Result<Trace> {
    let trace = Trace::open(folder)?;
    if counts_ticks(&trace) {
        show_ticks();
    }
    Ok(trace)
}

/// Arguments about the names of functions.
#[derive(Clone, clap::Args)]
pub struct Naming {
    /// Form of C++ and Rust names; simple is without parameters and template arguments
    #[arg(long, value_name = "full|simple|no", default_value = "simple", value_parser = demangle)]
    demangle: Demangle,
    #[command(flatten)]
    symbols: SymbolSources,
}

impl Naming {
    /// Returns the names of a trace's functions.
    pub fn names<'t>(&self, trace: &'t Trace) -> anyhow::Result<FunctionNames<'t>> {
        let options = self.symbols.add_to(SymbolOptions::default())?;
        Ok(FunctionNames::new(trace, options, self.demangle))
    }
}

impl Naming {
    /// Returns the finder of names in files.
    pub fn symbolizer(&self) -> anyhow::Result<Symbolizer> {
        let options = self.symbols.add_to(SymbolOptions::default())?;
        Ok(Symbolizer::new(options))
    }

    /// Returns a name in the chosen style. `full` is the programmer's name, and `raw` is the symbol table's.
    pub fn shown(&self, full: &str, raw: &str) -> String {
        self.demangle.shown(full, raw)
    }
}

fn demangle(word: &str) -> Result<Demangle, String> {
    match word {
        "full" => Ok(Demangle::Full),
        "simple" => Ok(Demangle::Simple),
        word => match parse_bool(word) {
            Some(false) => Ok(Demangle::No),
            _ => Err("use full, simple or no".to_owned()),
        },
    }
}

/// Arguments that choose calls, of commands that take profiles, too. Threads and times are chosen as in profiles.
#[derive(clap::Args)]
#[command(next_help_heading = "Options for traces")]
pub struct CallSelection {
    #[command(flatten)]
    rules: RuleTexts,
    /// Kind of patterns: regular expressions, a shell's patterns, or plain names
    #[arg(long = "match", value_name = "regex|glob|simple", default_value = "regex", value_parser = style)]
    style: MatchStyle,
    /// Take the calls between two moments: timestamps (seconds), or times since the start if they have a unit; either
    /// may be missing
    #[arg(
        short = 'r',
        long,
        value_name = "START~STOP",
        allow_hyphen_values = true
    )]
    time_range: Option<String>,
    /// Leave out library calls
    #[arg(long)]
    no_libcall: bool,
    /// Leave out when threads had no CPU
    #[arg(long)]
    no_sched: bool,
    /// Leave out all events: --no-sched, and when threads began, ended and got names
    #[arg(long)]
    no_event: bool,
    /// Form of C++ and Rust names; simple is without parameters and template arguments
    #[arg(long, value_name = "full|simple|no", default_value = "simple", value_parser = demangle)]
    demangle: Demangle,
}

impl CallSelection {
    /// Returns the first of these options that is given, if one is.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            ("a rule about functions", !self.rules.texts().is_empty()),
            ("-r", self.time_range.is_some()),
            ("--no-libcall", self.no_libcall),
            ("--no-sched", self.no_sched),
            ("--no-event", self.no_event),
        ];
        let mut given = given.into_iter().filter(|(_, given)| *given);
        given.next().map(|(option, _)| option)
    }

    /// Returns the names of a trace's functions.
    pub fn names<'t>(&self, trace: &'t Trace, symbols: SymbolOptions) -> FunctionNames<'t> {
        let style = match symbols.demangle {
            true => self.demangle,
            false => Demangle::No,
        };
        FunctionNames::new(trace, symbols, style)
    }

    /// Returns the view of the calls, with the threads and times of `samples`, and with the events of threads if
    /// `tasks`. Prints its warnings to standard error.
    pub fn view<'t>(
        &self,
        names: &FunctionNames<'t>,
        samples: &Selection,
        tasks: bool,
    ) -> anyhow::Result<View<'t>> {
        let time_range = match (&self.time_range, samples.span()) {
            (text, (None, None)) => text.clone(),
            (Some(_), _) => return Err(usage("-r and --time: give one of them")),
            (None, (from, until)) => {
                let text =
                    |time: Option<u64>| time.map_or(String::new(), |time| format!("{time}ns"));
                Some(format!("{}~{}", text(from), text(until)))
            }
        };
        let selected = Selected {
            rules: self.rules.clone(),
            style: self.style,
            trace: true,
            disable: false,
            no_libcall: self.no_libcall,
            seed: None,
            no_sched: self.no_sched,
            no_event: self.no_event,
            extent: Extent {
                tid: samples.tids().to_vec(),
                time_range,
                no_sched_preempt: false,
                event_full: false,
                kernel_full: false,
                no_args: false,
                no_pager: false,
            },
        };
        selected.select(names, tasks && !self.no_event)
    }
}

/// Arguments that choose the calls and events to show.
#[derive(clap::Args)]
pub struct Selected {
    #[command(flatten)]
    rules: RuleTexts,
    /// Kind of patterns: regular expressions, a shell's patterns, or plain names
    #[arg(long = "match", value_name = "regex|glob|simple", default_value = "regex", value_parser = style)]
    style: MatchStyle,
    /// Begin with tracing on or off; a trigger may switch it
    #[arg(long, value_name = "on|off", default_value = "on", action = clap::ArgAction::Set, value_parser = switch)]
    trace: bool,
    /// As --trace=off
    #[arg(long, hide = true)]
    disable: bool,
    /// Leave out library calls
    #[arg(long)]
    no_libcall: bool,
    /// Choose other executions for random sampling [default: the recording's]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Leave out when threads had no CPU
    #[arg(long)]
    no_sched: bool,
    /// Leave out all events: --no-sched, and when threads began, ended and got names
    #[arg(long)]
    no_event: bool,
    #[command(flatten)]
    pub extent: Extent,
}

/// The choices that are no rules. Commands that record and then show also have these arguments.
#[derive(Clone, clap::Args)]
pub struct Extent {
    /// Show these threads only
    #[arg(long, value_name = "TID", value_delimiter = ',')]
    tid: Vec<u32>,
    /// Show what happened between two moments: timestamps (seconds), or times since the start if they have a unit;
    /// either may be missing
    #[arg(
        short = 'r',
        long,
        value_name = "START~STOP",
        allow_hyphen_values = true
    )]
    time_range: Option<String>,
    /// Leave out when threads had no CPU though they could have gone on
    #[arg(long)]
    no_sched_preempt: bool,
    /// Show events outside of recorded calls, too
    #[arg(long)]
    event_full: bool,
    // Options about data that no trace has; uftrace's users may pass them nevertheless.
    #[arg(long, hide = true)]
    kernel_full: bool,
    #[arg(long, hide = true)]
    no_args: bool,
    #[arg(long, hide = true)]
    no_pager: bool,
}

fn style(word: &str) -> Result<MatchStyle, String> {
    MatchStyle::parse(word).ok_or_else(|| "use regex, glob or simple".to_owned())
}

/// Parses `on` or `off`.
pub fn switch(word: &str) -> Result<bool, String> {
    parse_bool(word).ok_or_else(|| "use on or off".to_owned())
}

impl Selected {
    /// Returns the view for commands that sum calls. Prints its warnings to standard error.
    pub fn view<'t>(&self, names: &FunctionNames<'t>) -> anyhow::Result<View<'t>> {
        self.select(names, false)
    }

    /// Returns the view of [`Selected::view`] with the events of threads, for commands that show one call after the
    /// other.
    pub fn view_with_tasks<'t>(&self, names: &FunctionNames<'t>) -> anyhow::Result<View<'t>> {
        self.select(names, !self.no_event)
    }

    fn select<'t>(&self, names: &FunctionNames<'t>, tasks: bool) -> anyhow::Result<View<'t>> {
        let rules = self.rules.parse(self.style).map_err(usage)?;
        let first = View::first_time(names.trace()).unwrap_or(0);
        let range = match &self.extent.time_range {
            Some(text) => time_range(text, first)
                .map_err(|what| usage(format_args!("--time-range {text}: {what}")))?,
            None => TimeRange::default(),
        };
        let view = View::new(
            names,
            ViewSelection {
                rules,
                with_sources: self.rules.have_locations(),
                no_libcall: self.no_libcall,
                scheduling: Scheduling {
                    tasks,
                    ..self.scheduling()
                },
                tids: self.extent.tid.clone(),
                range,
                off: !self.trace || self.disable,
                seed: self.seed.or(names.trace().info().seed).unwrap_or(0),
            },
        )
        .map_err(usage)?;
        for warning in view.warnings() {
            say!("{warning}");
        }
        Ok(view)
    }
}

impl Selected {
    /// Returns the kind of patterns.
    pub fn style(&self) -> MatchStyle {
        self.style
    }

    /// Returns whether the range of times is in times since the start; `None` without a range.
    pub fn is_range_elapsed(&self) -> Option<bool> {
        let range = self.extent.time_range.as_ref()?;
        Some(range.ends_with(|c: char| c.is_ascii_alphabetic()) || range.contains("s~"))
    }

    /// Returns the kinds of periods without a CPU to show.
    fn scheduling(&self) -> Scheduling {
        let wanted = !self.no_sched && !self.no_event;
        Scheduling {
            waits: wanted,
            preemptions: wanted && !self.extent.no_sched_preempt,
            everywhere: self.extent.event_full,
            tasks: false,
        }
    }
}

/// Parses a range of times; `first` is the trace's first moment.
fn time_range(text: &str, first: u64) -> Result<TimeRange, String> {
    let (start, stop) = text
        .split_once('~')
        .ok_or("write START~STOP; either may be missing")?;
    let range = TimeRange {
        start: moment(start.trim(), first)?,
        stop: moment(stop.trim(), first)?,
    };
    match (range.start, range.stop) {
        (Some(start), Some(stop)) if start > stop => Err("it ends before it starts".to_owned()),
        _ => Ok(range),
    }
}

/// Parses a timestamp in seconds, or a time since `first` if it has a unit.
fn moment(text: &str, first: u64) -> Result<Option<u64>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    if text.ends_with(|c: char| c.is_ascii_alphabetic()) {
        let since = parse_time(text).map_err(|error| format!("`{text}`: {error}"))?;
        return Ok(Some(first.saturating_add(since)));
    }
    let wrong =
        || format!("`{text}` is no timestamp such as 12345.678901234, and no time such as 5ms");
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(seconds) || !is_number(fraction) || fraction.len() > 9 || seconds.is_empty() {
        return Err(wrong());
    }
    let seconds: u64 = seconds.parse().map_err(|_| wrong())?;
    let nanoseconds: u64 = format!("{fraction:0<9}").parse().map_err(|_| wrong())?;
    let time = seconds.checked_mul(1_000_000_000);
    Ok(Some(
        time.and_then(|time| time.checked_add(nanoseconds))
            .ok_or_else(wrong)?,
    ))
}

/// Returns the diagnostics of calls, with their remedies.
pub fn facts(trace: &Trace, names: &FunctionNames<'_>, losses: &ViewLosses) -> Facts {
    spelled(call_facts(trace, names, losses))
}

/// Returns diagnostics with their remedies.
pub fn spelled(mut facts: Facts) -> Facts {
    spell(&mut facts);
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_timestamps_or_times_since_the_start() {
        let range = |text| time_range(text, 5_000).map(|range| (range.start, range.stop));
        assert_eq!(range("1us~2us"), Ok((Some(6_000), Some(7_000))));
        assert_eq!(range("~1.5"), Ok((None, Some(1_500_000_000))));
        assert_eq!(range("0.000006~"), Ok((Some(6_000), None)));
        for wrong in ["1us", "2us~1us", "x~", "1.2.3~", "1.0000000001~", "-1~"] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
    }
}
