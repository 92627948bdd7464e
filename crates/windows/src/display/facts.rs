//! The facts beside the rows: how windows were made and discarded, the counts that windows' borders add, and whether shares
//! and rates make the program's own totals.

use super::WindowOptions;
use super::columns::NORMAL;
use super::stream::Stream;
use crate::collect::{CollectedWindows, WindowSource};
use crate::estimate::{Analysis, Artefact, ArtefactNote, Discard, Shares, Totals};
use crate::section::{EventTotal, WindowsSection};
use dioptra_metrics::EventName;
use dioptra_perfrecords::AttrFlags;
use dioptra_perfrecords::event_type;
use dioptra_perfrecords::names::software;
use dioptra_report::Input;
use dioptra_tables::{Facts, Severity};
use serde_json::{Map, Value, json};

/// The windows and estimates that facts are about.
pub(super) struct FactSources<'t, 'w> {
    pub windows: &'t CollectedWindows,
    pub analysis: &'t Analysis<'w>,
    pub stream: &'t Stream,
    pub artefacts: &'t [Artefact],
    pub shares: &'t Shares,
    /// The shares without the kernel's work for the rows, for events that count user code alone.
    pub user_shares: &'t Shares,
    pub ranking: Option<usize>,
    pub options: &'t WindowOptions<'t>,
}

pub(super) fn add(facts: &mut Facts, input: &Input<'_>, told: &FactSources<'_, '_>) {
    if told.options.for_people {
        what_errors_are(facts);
    }
    source(facts, told);
    ranking(facts, input, told.ranking, told.shares);
    discards(facts, told);
    samples(facts, told);
    let is_empty = told.windows.is_empty();
    for artefact in told.artefacts.iter().filter(|_| !is_empty) {
        let name = &told.stream.events[artefact.event as usize].name;
        match artefact.of_interrupts {
            true => interrupts_fact(facts, artefact, name),
            false => artefact_fact(facts, artefact, name),
        }
    }
    if told.options.closure {
        closures(facts, input, told);
    }
}

pub(super) fn what_errors_are(facts: &mut Facts) {
    let text = "± is the 95% interval, to its farther limit";
    facts.add(Severity::Info, "errors", text, 0.95);
}

fn source(facts: &mut Facts, told: &FactSources<'_, '_>) {
    let windows = told.windows;
    let total = told.analysis.total();
    let bursts = windows.bursts().len();
    let Some(recorded) = &windows.plan().recorded else {
        facts.add(
            Severity::Info,
            "windows",
            format!(
                "{} windows from one sample of a group to the next; 1% of the time is taken as a burst",
                windows.len()
            ),
            json!({"source": "samples", "windows": windows.len(), "bursts": bursts, "bursts_used": total.bursts()}),
        );
        return;
    };
    let schedule = recorded.schedule.as_ref().map(ToString::to_string);
    let what = match windows.plan().source {
        WindowSource::Bursts => "bursts".to_owned(),
        WindowSource::Pairs { .. } => "runs of pairs at the short distance".to_owned(),
        WindowSource::Steady => "slices of 1% of the time, taken as bursts".to_owned(),
    };
    facts.add(
        Severity::Info,
        "windows",
        format!(
            "{} windows in {bursts} {what}; source {}, schedule {}",
            windows.len(),
            recorded.source,
            schedule.as_deref().unwrap_or("not recorded"),
        ),
        json!({
            "source": recorded.source,
            "schedule": schedule,
            "warm_up": recorded.warm_up,
            "windows": windows.len(),
            "bursts": bursts,
            "bursts_used": total.bursts(),
            // For programs: `dioptra info` tells people.
            "findings": recorded.findings,
        }),
    );
    changed_source(facts, recorded);
    for loss in &recorded.losses {
        facts.add(
            Severity::Loss,
            "without_windows",
            format!("{}: {}", loss.what, loss.count),
            loss.count,
        );
    }
}

/// Adds the fact that a better source did not make the windows, and why.
pub(super) fn changed_source(facts: &mut Facts, recorded: &WindowsSection) {
    if let Some(why) = &recorded.instead {
        let text = format!("windows by {why}");
        facts.add(Severity::Fallback, "window_source", text, why.as_str());
    }
}

pub(super) fn ranking(
    facts: &mut Facts,
    input: &Input<'_>,
    ranking: Option<usize>,
    shares: &Shares,
) {
    let Some(event) = ranking.and_then(|event| input.profile.events().get(event)) else {
        facts.add(
            Severity::Loss,
            "no_ranking",
            "no event was sampled that says where time went: there are no shares",
            Value::Null,
        );
        return;
    };
    let samples = shares.samples();
    facts.add(
        Severity::Info,
        "ranking",
        format!(
            "shares of time are of {samples} samples of {}",
            event.name()
        ),
        json!({"event": event.name(), "samples": samples}),
    );
    if event.is_set_aside() {
        facts.add(
            Severity::Fallback,
            "ranking_of_windows",
            "there are no ordinary samples: shares are those of the windows' own samples",
            Value::Null,
        );
    }
}

fn discards(facts: &mut Facts, told: &FactSources<'_, '_>) {
    let row = told.analysis.total();
    let causes: Vec<(Discard, u64)> = row.discards().collect();
    let kept = row.acceptance().kept();
    let all = row.acceptance().total();
    let mut value: Map<String, Value> = causes
        .iter()
        .map(|(cause, count)| (cause.name().to_owned(), json!(count)))
        .collect();
    value.insert("kept".to_owned(), json!(kept));
    let list: Vec<String> = causes
        .iter()
        .map(|(cause, count)| format!("{count} {}", cause.name()))
        .collect();
    let why = if list.is_empty() {
        String::new()
    } else {
        format!("; discarded: {}", list.join(", "))
    };
    facts.add(
        Severity::Info,
        "discarded_windows",
        format!("{kept} of {all} windows are kept{why}"),
        value,
    );
}

fn samples(facts: &mut Facts, told: &FactSources<'_, '_>) {
    let of = told.windows.facts();
    for (count, id, what) in [
        (
            of.stray,
            "stray_samples",
            "samples of windows belong to no burst",
        ),
        (
            of.malformed,
            "malformed_windows",
            "samples of windows have no usable values",
        ),
    ] {
        if count > 0 {
            facts.add(Severity::Loss, id, format!("{count} {what}"), count);
        }
    }
    if of.filtered > 0 {
        facts.add(
            Severity::Info,
            "filtered_windows",
            format!("{} windows did not pass the filters", of.filtered),
            of.filtered,
        );
    }
    if of.other_lengths > 0 {
        facts.add(
            Severity::Info,
            "other_lengths",
            format!(
                "{} stretches between samples are too long or short for windows",
                of.other_lengths
            ),
            of.other_lengths,
        );
    }
}

/// Returns the standard error of the constant of one row: the error of the mean, and the spread between rows.
fn reach_of(artefact: &Artefact) -> f64 {
    artefact.error.hypot(artefact.spread)
}

/// Adds the fact about the time that interrupts take of windows led by a clock.
fn interrupts_fact(facts: &mut Facts, artefact: &Artefact, clock: &str) {
    let why = match artefact.note {
        ArtefactNote::Known => {
            let text = format!(
                "{clock}: interrupts take {:.1} ±{:.1} us of each window, taken off where values are shown",
                artefact.per_window / 1000.0,
                NORMAL * reach_of(artefact) / 1000.0
            );
            let value = json!({"event": clock, "per_window": artefact.per_window, "standard_error": artefact.error,
                "spread": artefact.spread, "taken_off": true});
            facts.add(Severity::Info, "clock_windows", text, value);
            return;
        }
        ArtefactNote::LengthsDoNotVary => "all windows are about as long; record with jitter",
        ArtefactNote::FewBursts => "too few bursts in functions of high trust; record longer",
        ArtefactNote::RowsDisagree | ArtefactNote::NoSense => {
            "shorter and longer windows do not tell"
        }
    };
    facts.add(
        Severity::Info,
        "clock_windows",
        format!(
            "{clock}: how much of windows interrupts take, some 10 to 20 us in a virtual machine, is not known: {why}; \
             rates are low by it"
        ),
        json!({"event": clock, "per_window": null, "why": why, "taken_off": false}),
    );
}

fn artefact_fact(facts: &mut Facts, artefact: &Artefact, event: &str) {
    let why = match artefact.note {
        ArtefactNote::Known => {
            let what = if artefact.is_taken_off() {
                "taken off where values are shown"
            } else {
                "which cannot be told from 0 and is not taken off"
            };
            let text = format!(
                "{event}: windows' borders add {:.3} ±{:.3} to each window, {what}",
                artefact.per_window,
                NORMAL * reach_of(artefact)
            );
            let value = json!({"event": event, "per_window": artefact.per_window, "standard_error": artefact.error,
                "spread": artefact.spread, "taken_off": artefact.is_taken_off()});
            facts.add(Severity::Info, "boundary_artefact", text, value);
            return;
        }
        ArtefactNote::LengthsDoNotVary => "all windows are about as long; record with jitter",
        ArtefactNote::FewBursts => "too few bursts",
        ArtefactNote::RowsDisagree => "it is not the same in all rows, and is not taken off",
        ArtefactNote::NoSense => "shorter and longer windows do not tell",
    };
    facts.add(
        Severity::Info,
        "boundary_artefact",
        format!("{event}: what windows' borders add is not known: {why}"),
        json!({"event": event, "per_window": null, "why": why}),
    );
}

/// Adds the facts that compare shares × rates with the counts of plain counters.
fn closures(facts: &mut Facts, input: &Input<'_>, told: &FactSources<'_, '_>) {
    let Some(recorded) = &told.windows.plan().recorded else {
        return;
    };
    if recorded.totals.is_empty() {
        facts.add(
            Severity::Info,
            "closure",
            "no plain counts were recorded beside the windows: whether shares and rates make the totals is not known",
            Value::Null,
        );
        return;
    }
    let groups = told.analysis.windows().groups();
    for (event, of) in (0_u32..).zip(&told.stream.events) {
        let leader = groups
            .iter()
            .find(|group| group.events.iter().skip(1).any(|member| *member == event))
            .and_then(|group| group.events.first());
        let Some(leader) = leader.copied().filter(|leader| *leader != event) else {
            continue;
        };
        let leader_name = &told.stream.events[leader as usize].name;
        let totals = &recorded.totals;
        let (Some(leader_total), Some(counted)) =
            (total(totals, leader_name), total(totals, &of.name))
        else {
            continue;
        };
        let totals = Totals {
            leader: leader_total,
            counted,
            // All that a sample interrupts takes about as long.
            interrupts: told.windows.facts().samples + told.shares.samples(),
        };
        let shares = match counts_user_only(input, leader_name) {
            true => told.user_shares,
            false => told.shares,
        };
        let closure = told
            .analysis
            .closure(shares, told.artefacts, event, leader, &totals);
        let Some(closure) = closure else {
            continue;
        };
        let (low, high) = closure.error_limits();
        let error = closure.error();
        // The thread that arms a burst takes the CPU from the program once: this switch is counted, but lies in no window.
        let switches = recorded.source == "refresh" && is_switches(input, &of.name);
        let arming = match switches {
            true => told.windows.bursts().len() as f64,
            false => 0.0,
        };
        let holds = closure.low <= counted && counted - arming <= closure.high;
        // Windows that end in another thread than they began in are none of either.
        let lost_switches = is_switches(input, &of.name)
            && told
                .analysis
                .total()
                .discards()
                .any(|(cause, _)| cause == Discard::Switched);
        let rates_are_low = told.artefacts.iter().any(|artefact| {
            artefact.event == leader
                && artefact.of_interrupts
                && artefact.note != ArtefactNote::Known
        });
        // A clock of the program goes on while its events are switched on.
        let arming_counts = recorded.source == "refresh"
            && told
                .artefacts
                .iter()
                .any(|a| a.event == leader && a.of_interrupts);
        let said = if counted == 0.0 {
            format!("predicts {:.1} where 0 were counted", closure.predicted)
        } else {
            let within = match (holds, closure.holds()) {
                (_, true) => "within its interval".to_owned(),
                (false, false) => {
                    let why = why_missed(error, lost_switches, rates_are_low, arming_counts);
                    format!("NOT within its interval{why}")
                }
                (true, false) => {
                    format!(
                        "explained by arming: {arming} bursts took the CPU from the program as often"
                    )
                }
            };
            format!(
                "misses the count by {:+.1}% (95%: {:+.1}% to {:+.1}%), {within}",
                100.0 * error,
                100.0 * low,
                100.0 * high
            )
        };
        let severity = if holds {
            Severity::Info
        } else {
            Severity::Warning
        };
        let finite = |number: f64| {
            if number.is_finite() {
                json!(number)
            } else {
                Value::Null
            }
        };
        facts.add(
            severity,
            "closure",
            format!(
                "closure of {}: shares × rates {said}; rows with a rate have {:.1}% of the time",
                of.name,
                100.0 * closure.covered
            ),
            json!({
                "event": of.name, "counted": counted, "predicted": finite(closure.predicted), "error": finite(error),
                "error_low": finite(low), "error_high": finite(high), "covered": closure.covered,
                "holds": holds, "by_arming": arming,
            }),
        );
    }
}

/// Arming makes shares × rates larger by less than this: bursts come so seldom that they slow a program by a part of it.
const MOST_BY_ARMING: f64 = 0.3;

/// Interrupts take less of the windows that are useful.
const MOST_BY_INTERRUPTS: f64 = -0.4;

/// Returns the most likely reason why shares and rates miss a count.
fn why_missed(
    error: f64,
    lost_switches: bool,
    rates_are_low: bool,
    arming_counts: bool,
) -> &'static str {
    if lost_switches {
        ": windows that another thread ended are discarded, and their switches with them"
    } else if rates_are_low && (MOST_BY_INTERRUPTS..0.0).contains(&error) {
        ": rates are low by what interrupts take"
    } else if error < 0.0 {
        ": much of it was outside of windows, as at the program's start, or in rows without a rate"
    } else if arming_counts && error < MOST_BY_ARMING {
        ": arming bursts takes time that the clock counts and no window holds; a larger long= takes less"
    } else {
        ""
    }
}

/// Whether an event counts nothing in the kernel.
fn counts_user_only(input: &Input<'_>, name: &str) -> bool {
    let mut events = input.profile.events().iter();
    let found = events.find(|event| event.name() == name);
    found.is_some_and(|event| event.attr().flags.contains(AttrFlags::EXCLUDE_KERNEL))
}

/// Whether an event counts how often the program lost its CPU.
fn is_switches(input: &Input<'_>, name: &str) -> bool {
    let mut events = input.profile.events().iter();
    events.any(|event| {
        let attr = event.attr();
        event.name() == name
            && attr.kind == event_type::SOFTWARE
            && attr.config == software::CONTEXT_SWITCHES
    })
}

/// Returns the count of an event over the whole run, scaled if its counter took turns.
pub(super) fn total(totals: &[EventTotal], name: &str) -> Option<f64> {
    let same = |total: &&EventTotal| total.event == name;
    let parsed = EventName::parse(name);
    let alike = |total: &&EventTotal| EventName::parse(&total.event) == parsed;
    let found = totals
        .iter()
        .find(same)
        .or_else(|| totals.iter().find(alike))?;
    if found.running == 0 {
        return (found.enabled == 0).then_some(found.value as f64);
    }
    Some(found.value as f64 * found.enabled as f64 / found.running as f64)
}
