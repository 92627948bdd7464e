//! Metrics of rows with their intervals.
//!
//! A metric is a formula of the row's sums over kept windows, never a mean of windows' ratios. Its error comes from the
//! spread between bursts, J of them: for a smooth formula to first order,
//! Var = J ÷ (J − 1) · Σⱼ uⱼ² with uⱼ = Σₑ ∂g/∂Tₑ · xⱼₑ minus its mean; for one with `min`, `max` or conditionals by leaving
//! out one burst after the other. Student's t with J − 1 degrees of freedom makes the interval of it.
//!
//! Few counts are skew and their spread is not seen in few bursts, so an input with fewer than
//! [`rare_events`](EstimatorOptions::rare_events) has Garwood's limits of Poisson's mean: the exposure (the other inputs,
//! as they were seen) is not uncertain, its ratio to the other inputs may be, and the interval is never narrower than the one from the
//! bursts, which knows of events that come in clumps.
//!
//! The corrected value has what does not belong to the function taken off, so much for each window: what the borders add,
//! where that can be told from 0 ([`Artefact::is_significant`]; to take off mere noise would only add its error to
//! every row), and what other functions do in the time that windows hide ([`Runs`](super::Runs)).
//!
//! Where no group holds all inputs, each is taken per event of the leader from the groups that have it. Groups
//! rotate between bursts, so their errors are independent.

use std::sync::Arc;

use super::artefact::Artefact;
use super::drift::Drift;
use super::interval::{poisson_limits, student_quantile};
use super::stream::Windows;
use super::tally::{Analysis, Clusters, Row};
use crate::bound::Bound;
use crate::count::Count;
use crate::evaluate::{Evaluator, Mode};

/// How estimates are made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EstimatorOptions {
    /// Of the intervals.
    pub confidence: f64,
    /// Fewer bursts than this make a cell's [`few_bursts`](Estimate::few_bursts).
    pub min_bursts: u64,
    /// An input with fewer events than this gets Poisson's limits.
    pub rare_events: u64,
    /// Use this method for the spread between bursts instead of the one that the formula asks for.
    pub method: Option<Method>,
}

impl Default for EstimatorOptions {
    fn default() -> Self {
        Self {
            confidence: 0.95,
            min_bursts: 10,
            rare_events: 20,
            method: None,
        }
    }
}

/// How the spread between bursts became a standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// To first order, by the formula's derivatives.
    Delta,
    /// By leaving out one burst after the other.
    Jackknife,
}

/// A value between its limits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The value.
    pub value: f64,
    /// One standard error of it from the spread between bursts; 0 where nothing varied.
    pub error: f64,
    /// The lower limit.
    pub low: f64,
    /// The upper limit; infinite where an input below a fraction's line may be 0.
    pub high: f64,
}

impl Interval {
    /// Half of the interval's length.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// Whether it holds a value.
    pub fn holds(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// A metric of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// From the counts as they were read.
    pub raw: Interval,
    /// With what borders add and what windows hide of others taken off; `None` where nothing is known of either.
    pub corrected: Option<Interval>,
    /// Degrees of freedom of the interval.
    pub freedom: f64,
    /// Bursts behind it.
    pub bursts: u64,
    /// Windows behind it.
    pub windows: u64,
    /// The count of the input that was seen least, the leader aside.
    pub events: u64,
    /// How the spread between bursts was turned into an error.
    pub method: Method,
    /// Some input was so rare that Poisson's limits were asked.
    pub few_events: bool,
    /// There are fewer bursts than [`min_bursts`](EstimatorOptions::min_bursts): show it as such, or not at all. With one
    /// burst there is no interval: it is infinite.
    pub few_bursts: bool,
    /// The inputs come from different groups, counted in different bursts, each taken per event of the leader.
    pub apart: bool,
    /// Some terms of a sum were not recorded: a lower bound.
    pub partial: bool,
    confidence: f64,
}

impl Estimate {
    /// The corrected interval where there is one, else the raw one.
    pub fn best(&self) -> &Interval {
        self.corrected.as_ref().unwrap_or(&self.raw)
    }

    /// How much longer to record, in seconds, until the interval's half width is `target` (0.05) of the value, if it goes on
    /// as in the `recorded` seconds. 0 where it is that narrow already. `None` for a value of 0 or without an interval.
    pub fn seconds_for(&self, target: f64, recorded: f64) -> Option<f64> {
        let best = self.best();
        // Of many bursts, t is as the normal distribution.
        let tail = 0.5 + self.confidence / 2.0;
        let shrinks = student_quantile(tail, f64::INFINITY) / student_quantile(tail, self.freedom);
        let relative = best.half_width() * shrinks / best.value.abs();
        let times = (relative / target).powi(2);
        (times.is_finite() && best.value != 0.0).then(|| (recorded * (times - 1.0)).max(0.0))
    }

    pub(super) fn confidence(&self) -> f64 {
        self.confidence
    }
}

/// What there is to say about a metric of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Figure {
    /// A number.
    Value(Estimate),
    /// Inputs that were not recorded.
    Missing(Arc<[String]>),
    /// No kept window counted the inputs here.
    NoWindows,
    /// The inputs stand in groups that have no event in common, so that they cannot be brought together.
    NothingInCommon,
    /// The formula has no value here, such as 0 / 0.
    Undefined,
}

impl Figure {
    /// The number, where there is one.
    pub fn estimate(&self) -> Option<&Estimate> {
        match self {
            Self::Value(estimate) => Some(estimate),
            _ => None,
        }
    }
}

/// Makes estimates. One for each thread.
#[derive(Debug)]
pub struct Estimator<'a> {
    analysis: &'a Analysis<'a>,
    windows: &'a Windows,
    bound: &'a Bound,
    evaluator: Evaluator<'a>,
    /// One for each recorded event, for the formulas.
    counts: Vec<Count>,
    /// What a window's borders add to each recorded event, and its variance.
    borders: Vec<(f64, f64)>,
    options: EstimatorOptions,
}

impl Analysis<'_> {
    /// An estimator for the columns of a set, bound to the events that the groups name. `artefacts` are those to take off
    /// ([`artefacts`](Self::artefacts)), of which those count that can be told from 0, or none. `total(event)` in a formula is the event's count in all kept windows.
    pub fn estimator<'a>(
        &'a self,
        bound: &'a Bound,
        artefacts: &[Artefact],
        options: EstimatorOptions,
    ) -> Estimator<'a> {
        let events = bound.periods.len();
        let totals: Vec<Count> = (0..events)
            .map(|event| Count::exact(self.sum(self.total(), event as u32) as f64))
            .collect();
        let mut borders = vec![(0.0, 0.0); events];
        for artefact in artefacts.iter().filter(|a| a.is_significant()) {
            if let Some(slot) = borders.get_mut(artefact.event as usize) {
                *slot = (artefact.per_window, artefact.error * artefact.error);
            }
        }
        Estimator {
            analysis: self,
            windows: self.windows(),
            bound,
            evaluator: bound.evaluator(&totals, Mode::Exact),
            counts: vec![Count::default(); events],
            borders,
            options,
        }
    }
}

/// A column's inputs in a row's bursts, as a matrix.
#[derive(Debug, Default)]
pub(super) struct Sample {
    inputs: Vec<u32>,
    /// For each input: how often it was counted.
    events: Vec<u64>,
    /// For each input: its sum, and the exposure of the groups that have it.
    sums: Vec<f64>,
    exposures: Vec<f64>,
    /// For each input: windows behind it.
    windows_of: Vec<f64>,
    /// The exposure of all groups.
    exposure: f64,
    windows: u64,
    apart: bool,
    /// For each group: where its bursts begin in `rows`, and which inputs it has.
    parts: Vec<(usize, Vec<bool>)>,
    /// For each burst: its counts of the inputs; 0 for what its group has not.
    rows: Vec<f64>,
    /// For each burst: its exposure.
    lengths: Vec<f64>,
    /// What was taken off.
    taken: Taken,
}

/// What does not belong to the row, in each window, for each input.
#[derive(Debug, Clone, Default)]
struct Taken {
    /// The sum of both, for a window.
    per_window: Vec<f64>,
    /// The variance of what borders add.
    border_variance: Vec<f64>,
    /// For each row that windows hide: the standard error of its share of a window, and what it does in a window that
    /// is all its own.
    hidden: Vec<(f64, Vec<f64>)>,
}

impl Taken {
    fn nothing(inputs: usize) -> Self {
        Self {
            per_window: vec![0.0; inputs],
            border_variance: vec![0.0; inputs],
            hidden: Vec::new(),
        }
    }

    fn is_nothing(&self) -> bool {
        self.per_window.iter().all(|t| *t == 0.0)
    }
}

enum NoSample {
    NoWindows,
    NothingInCommon,
}

impl Sample {
    fn bursts(&self) -> usize {
        self.lengths.len()
    }

    fn row(&self, burst: usize) -> &[f64] {
        let width = self.inputs.len();
        &self.rows[burst * width..(burst + 1) * width]
    }

    /// What brings an input to the exposure of all groups.
    fn scale(&self, input: usize) -> f64 {
        if self.apart {
            self.exposure / self.exposures[input]
        } else {
            1.0
        }
    }

    fn total(&self, input: usize) -> f64 {
        self.sums[input] * self.scale(input)
    }

    fn part_range(&self, part: usize) -> std::ops::Range<usize> {
        let end = self.parts.get(part + 1).map_or(self.bursts(), |p| p.0);
        self.parts[part].0..end
    }
}

impl Estimator<'_> {
    /// A column's estimate for a row of the analysis that the estimator was made by.
    pub fn estimate(&mut self, row: &Row, column: usize) -> Figure {
        let Some(found) = self.bound.columns.get(column) else {
            return Figure::Undefined;
        };
        if found.root.is_none() {
            return Figure::Missing(found.missing.clone());
        }
        let partial = !found.left_out.is_empty();
        let sample = match self.sample(row, column, false, |_| true) {
            Ok(sample) => sample,
            Err(NoSample::NoWindows) => return Figure::NoWindows,
            Err(NoSample::NothingInCommon) => return Figure::NothingInCommon,
        };
        let Some((raw, freedom)) = self.interval(&sample, column) else {
            return Figure::Undefined;
        };
        let corrected = match self.sample(row, column, true, |_| true) {
            Ok(sample) if !sample.taken.is_nothing() => {
                self.interval(&sample, column).map(|found| found.0)
            }
            _ => None,
        };
        let bursts = sample.bursts() as u64;
        let counted = sample.events.iter().zip(&sample.sums);
        let events = counted.map(|(events, _)| *events).min().unwrap_or(0);
        Figure::Value(Estimate {
            raw,
            corrected,
            freedom,
            bursts,
            windows: sample.windows,
            events,
            method: self.method(column),
            few_events: events < self.options.rare_events,
            few_bursts: bursts < self.options.min_bursts,
            apart: sample.apart,
            partial,
            confidence: self.options.confidence,
        })
    }

    /// The column's estimate from the shorter and from the longer windows; `None` where lengths do not vary or a half
    /// has no value.
    pub fn drift(&mut self, row: &Row, column: usize) -> Option<Drift> {
        self.bound.columns.get(column)?.root?;
        let periods = self.periods(row, column);
        let middle = *periods.get(periods.len() / 2)?;
        let windows = self.windows;
        let mut half = |short: bool| {
            let keep = |burst: u32| (windows.period(burst) < middle) == short;
            let sample = self.sample(row, column, true, keep).ok()?;
            let bursts = sample.bursts() as u64;
            let (interval, freedom) = self.interval(&sample, column)?;
            let length = sample.exposure / sample.windows as f64;
            Some((interval, freedom, bursts, length))
        };
        Drift::of(half(true)?, half(false)?)
    }

    fn method(&self, column: usize) -> Method {
        self.options
            .method
            .unwrap_or(if self.bound.is_smooth(column) {
                Method::Delta
            } else {
                Method::Jackknife
            })
    }

    /// The periods of the bursts behind a row's column, ascending.
    fn periods(&self, row: &Row, column: usize) -> Vec<u64> {
        let inputs = self.bound.row_inputs(column);
        let mut periods: Vec<u64> = self
            .clusters(row, &inputs)
            .flat_map(|(_, clusters)| clusters.bursts.iter())
            .map(|burst| self.windows.period(*burst))
            .collect();
        periods.sort_unstable();
        periods
    }

    /// The row's groups that count all inputs; where there is none, those that count any.
    fn clusters<'r>(
        &'r self,
        row: &'r Row,
        inputs: &'r [u32],
    ) -> impl Iterator<Item = (&'r [u32], &'r Clusters)> {
        let groups = self.analysis.groups_of(row);
        let has_all = |events: &[u32]| inputs.iter().all(|e| events.contains(e));
        let together = groups.clone().any(|(events, _)| has_all(events));
        groups.filter(move |(events, _)| {
            has_all(events) || !together && inputs.iter().any(|e| events.contains(e))
        })
    }

    fn sample(
        &self,
        row: &Row,
        column: usize,
        corrected: bool,
        keep: impl Fn(u32) -> bool,
    ) -> Result<Sample, NoSample> {
        let inputs = self.bound.row_inputs(column);
        let groups: Vec<(&[u32], &Clusters)> = self.clusters(row, &inputs).collect();
        let covered = |e: &u32| groups.iter().any(|(events, _)| events.contains(e));
        if groups.is_empty() || !inputs.iter().all(covered) {
            return Err(NoSample::NoWindows);
        }
        let apart = groups
            .iter()
            .any(|(events, _)| !inputs.iter().all(|e| events.contains(e)));
        let common = groups[0]
            .0
            .iter()
            .find(|e| groups.iter().all(|(events, _)| events.contains(e)));
        let Some(common) = common.copied() else {
            return Err(NoSample::NothingInCommon);
        };
        let width = inputs.len();
        let mut sample = Sample {
            events: vec![0; width],
            sums: vec![0.0; width],
            exposures: vec![0.0; width],
            windows_of: vec![0.0; width],
            apart,
            taken: Taken::nothing(width),
            ..Sample::default()
        };
        if corrected {
            sample.taken = self.taken(row, &inputs, common, &groups);
        }
        for (events, clusters) in groups {
            let place = |event: &u32| events.iter().position(|e| e == event);
            let places: Vec<Option<usize>> = inputs.iter().map(place).collect();
            let length_place = place(&common).unwrap_or(0);
            let begin = sample.bursts();
            for (j, (burst, windows)) in clusters.bursts.iter().zip(&clusters.windows).enumerate() {
                if !keep(*burst) {
                    continue;
                }
                let counts = &clusters.sums[j * events.len()..(j + 1) * events.len()];
                let length = counts[length_place] as f64;
                sample.windows += u64::from(*windows);
                sample.exposure += length;
                sample.lengths.push(length);
                for (i, place) in places.iter().enumerate() {
                    let Some(place) = *place else {
                        sample.rows.push(0.0);
                        continue;
                    };
                    let taken = sample.taken.per_window[i] * f64::from(*windows);
                    let count = counts[place] as f64 - taken;
                    sample.rows.push(count);
                    sample.sums[i] += count;
                    sample.events[i] = sample.events[i].saturating_add(counts[place]);
                    sample.exposures[i] += length;
                    sample.windows_of[i] += f64::from(*windows);
                }
            }
            if sample.bursts() > begin {
                let has = places.iter().map(Option::is_some).collect();
                sample.parts.push((begin, has));
            }
        }
        sample.inputs = inputs;
        if sample.bursts() == 0 || sample.exposures.iter().any(|e| *e <= 0.0) && apart {
            return Err(NoSample::NoWindows);
        }
        Ok(sample)
    }

    /// What borders and others add to a window of the row's groups. `common` is the exposure.
    fn taken(
        &self,
        row: &Row,
        inputs: &[u32],
        common: u32,
        groups: &[(&[u32], &Clusters)],
    ) -> Taken {
        let mut taken = Taken::nothing(inputs.len());
        for (i, event) in inputs.iter().enumerate() {
            let border = self.borders[*event as usize];
            (taken.per_window[i], taken.border_variance[i]) = border;
        }
        let (mut windows, mut exposure) = (0.0, 0.0);
        for (events, clusters) in groups {
            let place = events.iter().position(|e| *e == common).unwrap_or(0);
            windows += clusters.all_windows();
            exposure += clusters.total(place) as f64;
        }
        for hidden in self.analysis.hidden(row) {
            // Who has no kept windows has no rates that are known.
            let rates = inputs
                .iter()
                .map(|event| self.rate(hidden.row, *event, common));
            let Some(rates) = rates.collect::<Option<Vec<f64>>>() else {
                continue;
            };
            let own: Vec<f64> = rates.iter().map(|rate| rate * exposure / windows).collect();
            for (taken, own) in taken.per_window.iter_mut().zip(&own) {
                *taken += hidden.share * own;
            }
            taken.hidden.push((hidden.error, own));
        }
        taken
    }

    /// An event's rate per exposure in a row, borders taken off.
    fn rate(&self, row: &Row, event: u32, common: u32) -> Option<f64> {
        let border = self.borders[event as usize].0;
        let (mut count, mut length) = (0.0, 0.0);
        for (events, clusters) in self.analysis.groups_of(row) {
            let place = |event| events.iter().position(|e| *e == event);
            let (Some(of_event), Some(of_length)) = (place(event), place(common)) else {
                continue;
            };
            count += clusters.total(of_event) as f64 - border * clusters.all_windows();
            length += clusters.total(of_length) as f64;
        }
        (length > 0.0).then(|| count / length)
    }

    fn set(&mut self, sample: &Sample, values: impl Fn(usize) -> f64) {
        for (i, event) in sample.inputs.iter().enumerate() {
            self.counts[*event as usize].value = values(i);
        }
    }

    fn value(&mut self, column: usize) -> Option<f64> {
        self.evaluator.value(column, &self.counts)
    }

    /// The value, its error and limits, and the degrees of freedom. `None` where the formula has no value.
    fn interval(&mut self, sample: &Sample, column: usize) -> Option<(Interval, f64)> {
        self.set(sample, |i| sample.total(i));
        let (value, slopes) = self.evaluator.gradient(column, &self.counts)?;
        let slope_of = |event: &u32| slopes.iter().find(|(e, _)| e == event).map_or(0.0, |s| s.1);
        let slopes: Vec<f64> = sample.inputs.iter().map(slope_of).collect();
        let (mut variance, freedom) = match self.method(column) {
            Method::Delta => spread(sample, |j, part| {
                influence(sample, &slopes, j, part, |_| false)
            }),
            Method::Jackknife => self.jackknife(sample, column, value),
        };
        variance += taken_variance(sample, &slopes);
        let tail = 0.5 + self.options.confidence / 2.0;
        let t = if freedom > 0.0 {
            student_quantile(tail, freedom)
        } else {
            f64::INFINITY
        };
        let error = variance.sqrt();
        let reach = if freedom > 0.0 {
            t * error
        } else {
            f64::INFINITY
        };
        let (mut below, mut above) = (reach, reach);
        let is_rare = |i: usize| sample.events[i] < self.options.rare_events;
        let rare: Vec<usize> = (0..sample.inputs.len()).filter(|i| is_rare(*i)).collect();
        if !rare.is_empty() {
            let (mut rest, _) = spread(sample, |j, part| {
                influence(sample, &slopes, j, part, |i| rare.contains(&i))
            });
            rest += taken_variance(sample, &slopes);
            // One burst knows nothing of the rest's spread, but a rare count's limits it has.
            let rest = if freedom > 0.0 { t * t * rest } else { 0.0 };
            let (mut down, mut up) = (rest, rest);
            for i in rare {
                let (less, more) = self.rare_reach(sample, column, i, value);
                down += less * less;
                up += more * more;
            }
            if freedom > 0.0 {
                below = below.max(down.sqrt());
                above = above.max(up.sqrt());
            } else {
                (below, above) = (down.sqrt(), up.sqrt());
            }
        }
        let interval = Interval {
            value,
            error,
            low: value - below,
            high: value + above,
        };
        Some((interval, freedom))
    }

    /// How far the value goes down and up when a rare input goes over its Poisson limits.
    fn rare_reach(
        &mut self,
        sample: &Sample,
        column: usize,
        input: usize,
        value: f64,
    ) -> (f64, f64) {
        let (low, high) = poisson_limits(sample.events[input], self.options.confidence);
        let event = sample.inputs[input] as usize;
        let taken = sample.taken.per_window[input] * sample.windows_of[input];
        let (mut down, mut up) = (0.0_f64, 0.0_f64);
        for limit in [low, high] {
            self.set(sample, |i| sample.total(i));
            self.counts[event].value = (limit - taken).max(0.0) * sample.scale(input);
            match self.value(column) {
                Some(there) => {
                    down = down.max(value - there);
                    up = up.max(there - value);
                }
                None => up = f64::INFINITY,
            }
        }
        (down, up)
    }

    /// Variance and degrees of freedom by leaving out one burst after the other.
    fn jackknife(&mut self, sample: &Sample, column: usize, value: f64) -> (f64, f64) {
        let mut without = vec![value; sample.bursts()];
        for part in 0..sample.parts.len() {
            for j in sample.part_range(part) {
                let has = &sample.parts[part].1;
                let (row, length) = (sample.row(j), sample.lengths[j]);
                self.set(sample, |i| {
                    if !has[i] {
                        return sample.total(i);
                    }
                    let sum = sample.sums[i] - row[i];
                    if sample.apart {
                        sum / (sample.exposures[i] - length) * sample.exposure
                    } else {
                        sum
                    }
                });
                // What has no value without this burst is not counted as agreement: it stays where it was.
                without[j] = self.value(column).unwrap_or(value);
            }
        }
        // uⱼ of the delta method is what leaving out moves, times −(J − 1) ÷ J.
        let sizes: Vec<f64> = (0..sample.parts.len())
            .map(|part| {
                let own = sample.part_range(part).len();
                (if sample.apart { own } else { sample.bursts() }) as f64
            })
            .collect();
        spread(sample, |j, part| {
            let size = sizes[part];
            without[j] * (size - 1.0) / size.max(1.0)
        })
    }
}

/// What the errors of what was taken off add to the variance.
fn taken_variance(sample: &Sample, slopes: &[f64]) -> f64 {
    let weight = |i: usize| slopes[i] * sample.scale(i) * sample.windows_of[i];
    let inputs = 0..slopes.len();
    let of_borders = inputs
        .clone()
        .map(|i| weight(i).powi(2) * sample.taken.border_variance[i]);
    // One share for all inputs: what it moves above and below a line belongs together.
    let of_hidden = sample.taken.hidden.iter().map(|(error, own)| {
        let moved: f64 = inputs.clone().map(|i| weight(i) * own[i]).sum();
        (moved * error).powi(2)
    });
    of_borders.sum::<f64>() + of_hidden.sum::<f64>()
}

/// What a burst adds to the value, to first order. Inputs for which `even` holds are taken as spread evenly over
/// exposure.
fn influence(
    sample: &Sample,
    slopes: &[f64],
    burst: usize,
    part: usize,
    even: impl Fn(usize) -> bool,
) -> f64 {
    let (row, length) = (sample.row(burst), sample.lengths[burst]);
    let mut sum = 0.0;
    for (i, slope) in slopes.iter().enumerate() {
        if !sample.parts[part].1[i] || *slope == 0.0 {
            continue;
        }
        let expected = if sample.exposures[i] > 0.0 {
            sample.sums[i] / sample.exposures[i] * length
        } else {
            0.0
        };
        let own = if even(i) { expected } else { row[i] };
        sum += slope
            * if sample.apart {
                sample.scale(i) * (own - expected)
            } else {
                own
            };
    }
    sum
}

/// Variance of a sum from its bursts' parts, and the degrees of freedom: groups are independent, and put together by
/// Welch and Satterthwaite. None for one burst.
fn spread(sample: &Sample, part_of: impl Fn(usize, usize) -> f64) -> (f64, f64) {
    // Groups that hold all inputs are of one kind.
    if !sample.apart {
        let all = |range: std::ops::Range<usize>| {
            let part = |j: usize| sample.parts.partition_point(|p| p.0 <= j) - 1;
            variance_of_sum(range.map(|j| part_of(j, part(j))))
        };
        return all(0..sample.bursts());
    }
    let (mut variance, mut below) = (0.0, 0.0);
    let mut single = false;
    for part in 0..sample.parts.len() {
        let (own, freedom) = variance_of_sum(sample.part_range(part).map(|j| part_of(j, part)));
        variance += own;
        if freedom > 0.0 {
            below += own * own / freedom;
        } else {
            single = true;
        }
    }
    let freedom = match (single, below > 0.0) {
        (true, _) => 0.0,
        (false, true) => variance * variance / below,
        (false, false) => (sample.bursts() - sample.parts.len()) as f64,
    };
    (variance, freedom)
}

fn variance_of_sum(parts: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let (mut number, mut sum) = (0.0, 0.0);
    for part in parts.clone() {
        number += 1.0;
        sum += part;
    }
    if number < 2.0 {
        return (0.0, 0.0);
    }
    let mean = sum / number;
    let squares: f64 = parts.map(|part| (part - mean) * (part - mean)).sum();
    (squares * number / (number - 1.0), number - 1.0)
}

impl Bound {
    /// The events of a column's row, without those it takes from the whole profile only.
    fn row_inputs(&self, column: usize) -> Vec<u32> {
        use crate::bound::Node;
        let order = self.columns.get(column).map_or(&[][..], |c| &c.order);
        let inputs = order.iter().filter_map(|&n| match self.nodes[n as usize] {
            Node::Input(event) => Some(event),
            _ => None,
        });
        let mut inputs: Vec<u32> = inputs.collect();
        inputs.sort_unstable();
        inputs.dedup();
        inputs
    }
}
