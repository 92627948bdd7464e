//! Metrics of profiles without windows: each event was sampled for itself, and a ratio is one of sampled counts.

use super::WindowOptions;
use super::measure::{Known, Measured, MeasuredRow, ranking};
use super::metrics::Metrics;
use super::rows::Rows;
use crate::{Facts, Input, ReportError, Severity};
use dioptra_metrics::windows::Shares;
use dioptra_metrics::{Cell, Count, Mode, RecordedEvent};
use dioptra_perfrecords::AttrFlags;
use dioptra_profile::EventProfile;
use serde_json::json;
use std::collections::BTreeMap;

/// The period of an event's samples, where it is fixed.
fn period(event: &EventProfile) -> Option<f64> {
    let fixed = !event.attr().flags.contains(AttrFlags::FREQ) && event.attr().sample_period > 0;
    fixed.then_some(event.attr().sample_period as f64)
}

pub(super) fn measure(
    input: &Input<'_>,
    options: &WindowOptions<'_>,
    rows: &Rows,
) -> Result<Measured, ReportError> {
    let profile = input.profile;
    let sampled: Vec<usize> = (0..profile.events().len())
        .filter(|index| {
            let event = &profile.events()[*index];
            event.weighs_events() && !event.unfiltered().is_zero()
        })
        .collect();
    let events: Vec<RecordedEvent> = sampled
        .iter()
        .map(|index| &profile.events()[*index])
        .map(|event| RecordedEvent {
            name: event.name().to_owned(),
            period: period(event),
            group: None,
        })
        .collect();
    let metrics = Metrics::new(options.metrics, &events);
    let inputs = |metric: &super::metrics::Metric| {
        &metrics.bound[metric.set].columns()[metric.column].inputs
    };
    if sampled.len() < 2 || metrics.list.iter().all(|metric| inputs(metric).is_empty()) {
        return Err(ReportError::NoWindows);
    }
    let mut counts: BTreeMap<u32, Vec<Count>> = BTreeMap::new();
    for (place, index) in sampled.iter().enumerate() {
        for (key, samples, weight) in rows.counts(input, *index) {
            let row = counts
                .entry(key)
                .or_insert_with(|| vec![Count::default(); sampled.len()]);
            row[place] = Count::sampled(samples, weight, 1.0);
        }
    }
    let mut totals = vec![Count::default(); sampled.len()];
    for row in counts.values() {
        for (total, count) in totals.iter_mut().zip(row) {
            *total = total.plus(*count);
        }
    }
    let ranking = options.ranking.or_else(|| ranking(profile));
    let shares = ranking.map_or_else(Shares::default, |event| {
        Shares::new(rows.counts(input, event))
    });
    let mut evaluators: Vec<_> = metrics
        .bound
        .iter()
        .map(|bound| bound.evaluator(&totals, Mode::Exact))
        .collect();
    let measured = counts
        .iter()
        .map(|(key, counts)| {
            let values: Vec<Vec<Cell>> = evaluators
                .iter_mut()
                .map(|evaluator| evaluator.row(counts).to_vec())
                .collect();
            let figures = metrics.list.iter();
            MeasuredRow {
                key: *key,
                share: shares.share(*key),
                figures: figures
                    .map(|metric| Known::Sampled(values[metric.set][metric.column].clone()))
                    .collect(),
                windows: None,
                discarded: None,
                trust: None,
                left: None,
            }
        })
        .collect();
    let mut facts = Facts::new();
    if options.for_people {
        super::facts::what_errors_are(&mut facts);
    }
    if let Some(windows) = profile.windows() {
        let (samples, stray) = (windows.facts().samples, windows.facts().stray);
        facts.add(
            Severity::Loss,
            "no_windows",
            format!(
                "of {samples} samples that could bound windows none do; {stray} belong to no burst"
            ),
            json!({"samples": samples, "stray": stray}),
        );
    }
    facts.add(
        Severity::Fallback,
        "sampled_events",
        "no windows: each event was sampled for itself, so values are ratios of sampled counts with Poisson errors; \
         `dioptra record --windows` reads counters together",
        json!({"source": "period", "events": events.iter().map(|event| &event.name).collect::<Vec<_>>()}),
    );
    super::facts::ranking(&mut facts, input, ranking, &shares);
    metrics.add_facts(options.metrics, options.tell_missing, &mut facts);
    Ok(Measured {
        metrics: metrics.list,
        rows: measured,
        has_windows: false,
        seconds: 0.0,
        facts,
    })
}
