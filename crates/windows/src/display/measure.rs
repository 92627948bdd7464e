//! The analysis of a profile's windows, as plain rows.

use super::WindowOptions;
use super::facts::{self, Told};
use super::metrics::{Metric, Metrics};
use super::rows::{Counted, Rows};
use super::stream::Stream;
use crate::collect::{CollectedWindows, WindowSource};
use crate::estimate::{Drift, EstimatorOptions, Figure, Rules, Share, Shares, Trust};
use dioptra_metrics as metrics;
use dioptra_profile::Profile;
use dioptra_report::Input;
use dioptra_tables::Facts;
use std::collections::HashMap;

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
    /// The part of its time that the kernel worked for it, from 0 to 1; `None` where samples in the kernel stand apart.
    pub in_kernel: Option<f64>,
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

impl MeasuredRow {
    /// Whether its values are of others' work as much as of its own.
    pub fn is_unreliable(&self) -> bool {
        self.trust == Some(Trust::Unreliable)
    }
}

/// What is known of a profile.
pub(super) struct Measured {
    pub metrics: Vec<Metric>,
    pub rows: Vec<MeasuredRow>,
    /// Whether there are windows, or else sampled counts.
    pub has_windows: bool,
    /// Whether samples in the kernel count at the user code that entered it.
    pub with_kernel: bool,
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
    windows: &CollectedWindows,
    options: &WindowOptions<'_>,
    rows: &Rows,
) -> Measured {
    let stream = Stream::new(input, windows, rows);
    let metrics = Metrics::new(options.metrics, &stream.events);
    let ranking = options.ranking.or_else(|| ranking(input.profile));
    let counted = ranking.map_or_else(Vec::new, |event| rows.counts(input, event));
    let shares = Shares::new(counted.iter().copied());
    let inside = ranking.and_then(|event| InKernel::new(input, event, rows));
    let user_shares = match &inside {
        Some(inside) => Shares::new(inside.without(&counted)),
        None => shares.clone(),
    };
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
                in_kernel: inside.as_ref().map(|inside| inside.part(key, &counted)),
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
            user_shares: &user_shares,
            ranking,
            options,
        },
    );
    metrics.add_facts(options.metrics, options.tell_missing, &mut facts);
    Measured {
        rows: measured,
        has_windows: true,
        with_kernel: inside.is_some(),
        seconds: seconds(windows),
        facts,
        metrics: metrics.list,
    }
}

/// The samples in the kernel that count at the user code that entered it, by row.
pub(super) struct InKernel(HashMap<u32, (u64, u64)>);

impl InKernel {
    /// Of an event; `None` where its samples in the kernel stand apart.
    pub fn new(input: &Input<'_>, event: usize, rows: &Rows) -> Option<InKernel> {
        if !input.profile.counts_kernel_at_caller(event) {
            return None;
        }
        let profile = input.profile.in_kernel();
        let inside = Input {
            profile: &profile,
            ..*input
        };
        let counts = rows.counts(&inside, event).into_iter();
        let counts = counts.map(|(key, samples, weight)| (key, (samples, weight)));
        Some(InKernel(counts.collect()))
    }

    /// Returns all samples without these: those of user code, and of the kernel where nobody entered it.
    pub fn without(&self, counted: &[Counted]) -> Vec<Counted> {
        let rest = counted.iter().map(|&(key, samples, weight)| {
            let inside = self.0.get(&key).copied().unwrap_or_default();
            let rest = (
                samples.saturating_sub(inside.0),
                weight.saturating_sub(inside.1),
            );
            (key, rest.0, rest.1)
        });
        rest.collect()
    }

    /// Returns their part of a row's weight, from 0 to 1. `counted` has all samples by row.
    pub fn part(&self, key: u32, counted: &[Counted]) -> f64 {
        let of_row = counted.iter().filter(|(other, ..)| *other == key);
        let all: u64 = of_row.map(|(.., weight)| weight).sum();
        let (_, inside) = self.0.get(&key).copied().unwrap_or_default();
        if all == 0 {
            0.0
        } else {
            inside as f64 / all as f64
        }
    }
}

/// The shares of time in rows of each trust, from 0 to 1.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TrustShares {
    pub high: f64,
    pub low: f64,
    pub unreliable: f64,
    /// The share of rows without windows.
    pub none: f64,
}

impl TrustShares {
    /// Adds a row.
    pub fn add(&mut self, trust: Option<Trust>, share: f64) {
        *match trust {
            Some(Trust::High) => &mut self.high,
            Some(Trust::Low) => &mut self.low,
            Some(Trust::Unreliable) => &mut self.unreliable,
            None => &mut self.none,
        } += share;
    }

    /// Returns the share of time in rows whose values have intervals.
    pub fn trusted(&self) -> f64 {
        self.high + self.low
    }

    /// Returns the share of all rows.
    pub fn sum(&self) -> f64 {
        self.high + self.low + self.unreliable + self.none
    }
}

/// Returns how far rows can be trusted, without measuring anything else.
pub(super) fn trust_shares(
    input: &Input<'_>,
    windows: &CollectedWindows,
    options: &WindowOptions<'_>,
    rows: &Rows,
) -> TrustShares {
    let stream = Stream::new(input, windows, rows);
    let ranking = options.ranking.or_else(|| ranking(input.profile));
    let counted = ranking.map_or_else(Vec::new, |event| rows.counts(input, event));
    let shares = Shares::new(counted.iter().copied());
    let analysis = stream
        .windows
        .analyze(&rules(windows), |window| stream.key(window.number));
    let mut found = TrustShares::default();
    for (key, ..) in &counted {
        let trust = analysis.row(*key).and_then(|row| analysis.trust(row));
        found.add(trust, shares.share(*key).map_or(0.0, |share| share.value));
    }
    found
}

/// For how long windows were recorded.
fn seconds(windows: &CollectedWindows) -> f64 {
    let recorded = windows.plan().recorded.as_ref();
    let span = recorded.and_then(|recorded| recorded.span);
    let times = || windows.bursts().iter().map(|burst| burst.time);
    let (began, ended) =
        span.unwrap_or_else(|| (times().min().unwrap_or(0), times().max().unwrap_or(0)));
    ended.saturating_sub(began) as f64 / 1e9
}

fn rules(windows: &CollectedWindows) -> Rules {
    let warm_up = windows.plan().recorded.as_ref().map_or(0, |of| of.warm_up);
    Rules {
        warm_up: match windows.plan().source {
            // What nobody armed has no beginning.
            WindowSource::Steady => 0,
            _ => u16::try_from(warm_up).unwrap_or(u16::MAX),
        },
        ..Rules::default()
    }
}
