//! The analysis of a profile's windows, as plain rows.

use super::WindowOptions;
use super::facts::{self, Told};
use super::metrics::{Metric, Metrics};
use super::rows::Rows;
use super::stream::Stream;
use crate::{Facts, Input};
use dioptra_metrics as metrics;
use dioptra_metrics::windows::{Drift, EstimatorOptions, Figure, Rules, Share, Shares, Trust};
use dioptra_profile::Profile;
use dioptra_profile::windows::{ProfileWindows, WindowSource};

/// What is known of a metric in a row.
pub(super) enum Known {
    /// From windows; with what shorter and longer ones say.
    Windows(Figure, Option<Drift>),
    /// From sampled counts.
    Sampled(metrics::Cell),
}

/// What is known of one row.
pub(super) struct MeasuredRow {
    pub key: u32,
    pub share: Option<Share>,
    /// In the order of the metrics.
    pub figures: Vec<Known>,
    /// Kept windows, and all of them.
    pub windows: Option<(u64, u64)>,
    /// Which part of the windows was discarded because its function was left.
    pub discarded: Option<f64>,
    pub trust: Option<Trust>,
    /// In which part of the windows the function was left, seen or not, and how long it runs, in windows.
    pub left: Option<(f64, f64)>,
}

/// What is known of a profile.
pub(super) struct Measured {
    pub metrics: Vec<Metric>,
    pub rows: Vec<MeasuredRow>,
    /// Whether there are windows, or else sampled counts.
    pub has_windows: bool,
    /// How long windows were recorded, in seconds.
    pub seconds: f64,
    pub facts: Facts,
}

/// The event whose samples say where time went: the first that has any, or had before a filter took them.
pub(super) fn ranking(profile: &Profile) -> Option<usize> {
    let sampled = profile.sampled_events();
    let has_some = |event: &&usize| !profile.events()[**event].total().is_zero();
    sampled.iter().find(has_some).or(sampled.first()).copied()
}

pub(super) fn measure(
    input: &Input<'_>,
    windows: &ProfileWindows,
    options: &WindowOptions<'_>,
    rows: &Rows,
) -> Measured {
    let stream = Stream::new(input, windows, rows);
    let metrics = Metrics::new(options.metrics, &stream.events);
    let ranking = options.ranking.or_else(|| ranking(input.profile));
    let counted = ranking.map_or_else(Vec::new, |event| rows.counts(input, event));
    let shares = Shares::new(counted.iter().copied());
    let analysis = stream
        .windows
        .analyze(&rules(windows), |window| stream.key(window.number));
    let artefacts = analysis.artefacts();
    let mut estimators: Vec<_> = metrics
        .bound
        .iter()
        .map(|bound| analysis.estimator(bound, &artefacts, EstimatorOptions::default()))
        .collect();
    let mut keys: Vec<u32> = counted.iter().map(|(key, ..)| *key).collect();
    keys.extend(analysis.rows().iter().map(|row| row.key()));
    keys.sort_unstable();
    keys.dedup();
    let measured = keys
        .into_iter()
        .map(|key| {
            let row = analysis.row(key);
            let figures = metrics.list.iter().map(|metric| {
                let Some(row) = row else {
                    return Known::Windows(Figure::NoWindows, None);
                };
                let estimator = &mut estimators[metric.set];
                let figure = estimator.estimate(row, metric.column);
                let drift = figure
                    .estimate()
                    .and_then(|_| estimator.drift(row, metric.column));
                Known::Windows(figure, drift)
            });
            let acceptance = row.map(|row| row.acceptance());
            MeasuredRow {
                key,
                share: shares.share(key),
                figures: figures.collect(),
                windows: acceptance.map(|acceptance| (acceptance.kept(), acceptance.total())),
                discarded: acceptance.and_then(|acceptance| acceptance.discard_ratio()),
                trust: row.and_then(|row| analysis.trust(row)),
                left: row
                    .and_then(|row| row.runs())
                    .map(|runs| (runs.left, runs.mean)),
            }
        })
        .collect();
    let mut facts = Facts::new();
    facts::add(
        &mut facts,
        input,
        &Told {
            windows,
            analysis: &analysis,
            stream: &stream,
            artefacts: &artefacts,
            shares: &shares,
            ranking,
            options,
        },
    );
    metrics.add_facts(options.metrics, options.tell_missing, &mut facts);
    Measured {
        rows: measured,
        has_windows: true,
        seconds: seconds(windows),
        facts,
        metrics: metrics.list,
    }
}

/// For how long windows were recorded.
fn seconds(windows: &ProfileWindows) -> f64 {
    let recorded = windows.plan().recorded.as_ref();
    let span = recorded.and_then(|recorded| recorded.span);
    let times = || windows.bursts().iter().map(|burst| burst.time);
    let (began, ended) =
        span.unwrap_or_else(|| (times().min().unwrap_or(0), times().max().unwrap_or(0)));
    ended.saturating_sub(began) as f64 / 1e9
}

fn rules(windows: &ProfileWindows) -> Rules {
    let settle = windows.plan().recorded.as_ref().map_or(0, |of| of.settle);
    Rules {
        settle: match windows.plan().source {
            // What nobody armed has no beginning.
            WindowSource::Steady => 0,
            _ => u16::try_from(settle).unwrap_or(u16::MAX),
        },
        ..Rules::default()
    }
}
