//! The summary at the end of `dioptra record`: figures, and the hottest functions.

use super::progress::bytes;
use crate::commands::profiles::open;
use dioptra_perfevents::windows::{Length, SourceKind};
use dioptra_profile::{Dimension, LoadPlan, Names, OFF_CPU_EVENT, Profile};
use dioptra_recorder::{Ending, Outcome};
use dioptra_report::{ByOptions, by};
use dioptra_symbols::SymbolOptions;
use dioptra_tables::{Format, Harmless};
use dioptra_windows::record::WindowsOutcome;
use std::fmt::Write as _;
use std::io::{self, Write};

/// The number of functions shown.
const FUNCTIONS: usize = 10;

/// The largest file, in bytes, that is read again for the hottest functions; that takes a moment only.
const READ_AT_ONCE: u64 = 128 << 20;

/// Writes the summary to standard error. A failure here is no failure of the recording.
pub fn write(outcome: &Outcome, windows: Option<&WindowsOutcome>) {
    let mut out = Harmless::new(io::stderr().lock(), false);
    // Standard error may be closed.
    let _ = writeln!(out, "{}", figures(outcome));
    if let Some(windows) = windows {
        let _ = writeln!(out, "dioptra: {}", windows_made(windows));
    }
    if let Some(warning) = losses(outcome) {
        let _ = writeln!(out, "dioptra: {warning}");
    }
    if outcome.samples() == 0 {
        let _ = writeln!(out, "dioptra: no samples: {}", why_none(outcome));
        return;
    }
    if outcome.path.as_os_str() == "-" {
        return;
    }
    if outcome.size > READ_AT_ONCE {
        let _ = writeln!(
            out,
            "dioptra: hottest functions: dioptra report -i {}",
            outcome.path.display()
        );
        return;
    }
    if let Err(error) = functions(outcome, &mut out) {
        let _ = writeln!(
            out,
            "dioptra: the hottest functions cannot be shown: {error:#}"
        );
    }
    // The rows above are those that ran most, which are not those that waited.
    let mut events = outcome.events.iter();
    if events.any(|event| event.name == OFF_CPU_EVENT && event.samples > 0) {
        let _ = writeln!(
            out,
            "dioptra: where threads waited: dioptra report --event {OFF_CPU_EVENT} -i {}",
            outcome.path.display()
        );
    }
}

/// Returns the sentence about lost records and throttling with the remedy; `None` if there was none.
pub fn losses(outcome: &Outcome) -> Option<String> {
    let mut parts = Vec::new();
    if outcome.lost > 0 {
        let what = if outcome.mappings_may_be_lost {
            ", mappings and names of threads may be among them"
        } else {
            ""
        };
        let lost = outcome.lost;
        parts.push(format!(
            "{lost} records were lost{what}: raise -m or lower -F"
        ));
    }
    if outcome.throttled() > 0 {
        let times = outcome.throttled();
        parts.push(format!(
            "the kernel held back samples {times} times, for taking too much time: lower -F"
        ));
    }
    for unsampled in &outcome.unsampled {
        parts.push(format!(
            "{unsampled}; record all CPUs (-a, then `report --comm NAME`), or raise -F"
        ));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Returns the likely reason why there are no samples.
fn why_none(outcome: &Outcome) -> &'static str {
    if outcome.command_is_kept {
        return "the command runs with another user's rights (set-user-ID), or its file may not be read: the kernel lets only \
                root and CAP_PERFMON watch it";
    }
    let any_ran = outcome.events.iter().any(|event| event.passes_with_time);
    if any_ran {
        "the target did not run, or too briefly"
    } else {
        "the events did not occur, or only where they may not be watched (in the kernel, for `:u`)"
    }
}

/// Returns the line of figures, such as `dioptra: 1203 samples of cpu-clock in 0.31 s, 0 lost, 0 throttled: perf.data
/// (120.1 KiB)`.
fn figures(outcome: &Outcome) -> String {
    let mut line = format!("dioptra: {} samples of ", outcome.samples());
    match outcome.events.as_slice() {
        [event] => line.push_str(&event.name),
        events => {
            let _ = write!(line, "{} events (", events.len());
            for (index, event) in events.iter().enumerate() {
                let comma = if index == 0 { "" } else { ", " };
                let _ = match &event.counted_with {
                    Some(leader) => write!(line, "{comma}{} counted with {leader}", event.name),
                    None => write!(line, "{comma}{} of {}", event.samples, event.name),
                };
            }
            line.push(')');
        }
    }
    let _ = write!(
        line,
        " in {:.2} s, {} lost, {} throttled: {} ({})",
        outcome.duration.as_secs_f64(),
        outcome.lost,
        outcome.throttled(),
        outcome.path.display(),
        bytes(outcome.size),
    );
    match outcome.ending {
        Ending::TargetsEnded => line.push_str("; all that was watched has ended"),
        Ending::Signal(signal) => {
            let _ = write!(line, "; ended by {}", signal_name(signal));
        }
        Ending::Duration => line.push_str("; the time was over"),
        Ending::Size => line.push_str("; the file is as large as it may be"),
        Ending::CommandEnded => {}
    }
    line
}

/// Returns the line about windows, such as `windows by refresh: 998 bursts armed, 990 complete, 3 late, 8 cut; 3960
/// windows of 51.2 us`.
fn windows_made(windows: &WindowsOutcome) -> String {
    let stats = &windows.stats;
    if windows.source != SourceKind::Refresh {
        return format!("windows by {}: {} samples", windows.source, stats.samples);
    }
    let mut line = format!(
        "windows by {}: {} bursts armed, {} complete, {} late, {} cut; {} windows",
        windows.source, stats.armed, stats.complete, stats.late, stats.cut, stats.windows
    );
    if let (Some(count), Some(time)) = (stats.median_count, stats.median_time) {
        let _ = match windows.schedule.short {
            Length::Time(asked) => write!(
                line,
                " of {:.1} us where {} were asked for",
                count as f64 / 1000.0,
                Length::Time(asked)
            ),
            Length::Count(_) => write!(line, " of {count} events, {:.1} us", time as f64 / 1000.0),
        };
        line.push_str(" (medians)");
    }
    if let Some(cost) = windows.cost {
        let each = cost.burst as f64 / 1e9;
        let all = each * stats.armed as f64;
        let _ = write!(
            line,
            "; they took about {all:.2} s from the program, {:.0} us a burst",
            1e6 * each
        );
    }
    for (count, what) in [
        (stats.throttled, "bursts throttled"),
        (stats.busy, "not armed since the one before was not over"),
        (stats.held_back, "not armed since the recorder was behind"),
        (stats.refused, "refused by the kernel"),
        (stats.unwatched, "threads without windows"),
    ] {
        if count > 0 {
            let _ = write!(line, "; {count} {what}");
        }
    }
    line
}

pub(super) fn signal_name(signal: i32) -> String {
    match signal {
        libc::SIGINT => "SIGINT".into(),
        libc::SIGTERM => "SIGTERM".into(),
        libc::SIGHUP => "SIGHUP".into(),
        libc::SIGQUIT => "SIGQUIT".into(),
        other => format!("signal {other}"),
    }
}

fn functions(outcome: &Outcome, out: &mut impl Write) -> anyhow::Result<()> {
    let recording = open(&outcome.path)?;
    let plan = LoadPlan {
        set_aside: recording.set_aside(),
        ..LoadPlan::default()
    };
    let profile = Profile::load_with(&recording.data, &plan);
    let options = SymbolOptions {
        kallsyms_cache: crate::symbol_sources::cache(),
        ..SymbolOptions::default()
    };
    let names = Names::find(&profile, options);
    let options = ByOptions {
        by: Dimension::Function,
        children: false,
        events: None,
    };
    let mut table = by(&profile, &names, &options)?;
    writeln!(out)?;
    Format::Text.write(&mut table, Some(FUNCTIONS), out)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use dioptra_recorder::outcome::EventOutcome;

    #[test]
    fn figures_of_one_and_of_several_events() {
        let event = |name: &str, samples| EventOutcome {
            name: name.into(),
            samples,
            counted_with: None,
            lost: Some(0),
            throttled: 1,
            passes_with_time: true,
        };
        let outcome = |events| Outcome::new("perf.data", 2048, events);
        let one = figures(&outcome(vec![event("cpu-clock", 7)]));
        assert_eq!(
            one,
            "dioptra: 7 samples of cpu-clock in 0.00 s, 0 lost, 1 throttled: perf.data (2.0 KiB)"
        );
        let two = figures(&outcome(vec![event("a", 1), event("b", 2)]));
        assert!(
            two.starts_with("dioptra: 3 samples of 2 events (1 of a, 2 of b) in "),
            "{two}"
        );
        let mut member = event("b", 0);
        member.counted_with = Some("a".into());
        let group = figures(&outcome(vec![event("a", 1), member]));
        assert!(
            group.starts_with("dioptra: 1 samples of 2 events (1 of a, b counted with a) in "),
            "{group}"
        );
    }
}
