//! Metrics of profiles without windows: each event was sampled for itself, and a ratio is one of sampled counts.

use super::WindowOptions;
use super::measure::{InKernel, Known, Measured, MeasuredRow, ranking};
use super::metrics::Metrics;
use super::rows::Rows;
use super::{DisplayError, WindowInput};
use crate::estimate::Shares;
use crate::section::WindowsSection;
use dioptra_metrics::{Cell, Count, Mode, RecordedEvent};
use dioptra_perfrecords::AttrFlags;
use dioptra_profile::EventProfile;
use dioptra_profile::Profile;
use dioptra_tables::{Facts, Severity};
use serde_json::json;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Returns for each event the factor that makes its sampled counts the plain count of the run; 1 where none was taken.
/// Clocks that miss ticks and periods that the kernel adapts make weights that sum to another number.
fn scales(profile: &Profile, recorded: Option<&WindowsSection>, sampled: &[usize]) -> Vec<f64> {
    let scale = |index: &usize| {
        let event = &profile.events()[*index];
        let counted = super::facts::total(&recorded?.totals, event.name())?;
        let weight = event.unfiltered().weight as f64;
        let scale = counted / weight;
        (scale.is_finite() && scale > 0.0).then_some(scale)
    };
    let scales = sampled.iter().map(|index| scale(index).unwrap_or(1.0));
    scales.collect()
}

/// Tells the factors.
fn tell_scales(facts: &mut Facts, events: &[RecordedEvent], scales: &[f64]) {
    let scaled = events
        .iter()
        .zip(scales)
        .filter(|(_, scale)| **scale != 1.0);
    let scaled: Vec<(&str, f64)> = scaled
        .map(|(event, scale)| (event.name.as_str(), *scale))
        .collect();
    if scaled.is_empty() {
        return;
    }
    let list: Vec<String> = scaled
        .iter()
        .map(|(name, scale)| format!("{name} × {scale:.3}"))
        .collect();
    let value: Map<String, Value> = scaled
        .iter()
        .map(|(name, scale)| ((*name).to_owned(), json!(scale)))
        .collect();
    facts.add(
        Severity::Info,
        "scaled_counts",
        format!(
            "sampled counts are scaled to the plain counts of the run: {}",
            list.join(", ")
        ),
        value,
    );
}

/// The period of an event's samples, where it is fixed.
fn period(event: &EventProfile) -> Option<f64> {
    let fixed = !event.attr().flags.contains(AttrFlags::FREQ) && event.attr().sample_period > 0;
    fixed.then_some(event.attr().sample_period as f64)
}

pub(super) fn measure(
    windowed: &WindowInput<'_>,
    options: &WindowOptions<'_>,
    rows: &Rows,
) -> Result<Measured, DisplayError> {
    let (input, windows) = (&windowed.report, windowed.windows);
    let profile = input.profile;
    let recorded = windows.and_then(|windows| windows.plan().recorded.as_ref());
    // The ranking's own event is none that was to be counted over windows: a clock of it must not stand for theirs.
    let was_asked = |name: &str| match recorded {
        Some(recorded) if !recorded.totals.is_empty() => {
            super::facts::total(&recorded.totals, name).is_some()
        }
        _ => true,
    };
    let sampled: Vec<usize> = (0..profile.events().len())
        .filter(|index| {
            let event = &profile.events()[*index];
            event.weighs_events() && !event.unfiltered().is_zero() && was_asked(event.name())
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
        return Err(DisplayError::NoWindows);
    }
    let scales = scales(profile, recorded, &sampled);
    let mut counts: BTreeMap<u32, Vec<Count>> = BTreeMap::new();
    for (place, index) in sampled.iter().enumerate() {
        for (key, samples, weight) in rows.counts(input, *index) {
            let row = counts
                .entry(key)
                .or_insert_with(|| vec![Count::default(); sampled.len()]);
            row[place] = Count::sampled(samples, weight, scales[place]);
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
    let counted = ranking.map_or_else(Vec::new, |event| rows.counts(input, event));
    let inside = ranking.and_then(|event| InKernel::new(input, event, rows));
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
                in_kernel: inside.as_ref().map(|inside| inside.part(*key, &counted)),
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
    if let Some(windows) = windows.filter(|windows| windows.facts().samples > 0) {
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
    if let Some(recorded) = recorded {
        super::facts::changed_source(&mut facts, recorded);
    }
    tell_scales(&mut facts, &events, &scales);
    super::facts::ranking(&mut facts, input, ranking, &shares);
    metrics.add_facts(options.metrics, options.tell_missing, &mut facts);
    Ok(Measured {
        metrics: metrics.list,
        rows: measured,
        has_windows: false,
        with_kernel: inside.is_some(),
        seconds: 0.0,
        facts,
    })
}
