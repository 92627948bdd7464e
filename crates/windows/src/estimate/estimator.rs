//! Metrics of rows with their intervals.
//!
//! A metric is a formula of the row's sums over kept windows, never a mean of windows' ratios. Its error comes from the
//! spread between bursts, J of them: for a smooth formula to first order,
//! Var = J ÷ (J − 1) · Σⱼ uⱼ² with uⱼ = Σₑ ∂g/∂Tₑ · xⱼₑ minus its mean; for one with `min`, `max` or conditionals by leaving
//! out one burst after the other. Student's t with J − 1 degrees of freedom makes the interval of it.
//!
//! Few counts are skew, and few bursts do not show their spread. So an input with fewer than
//! [`rare_events`](EstimatorOptions::rare_events) has Garwood's limits of Poisson's mean, given the exposure as it was
//! seen; the spread of the other inputs is added as for an input that comes evenly. The interval is never narrower than
//! the one from the bursts, which knows of events that come in clumps, and ends where there are no events.
//!
//! The corrected value has what does not belong to the function taken off, so much for each window: what the borders add,
//! where that can be told from 0 ([`Artefact::is_taken_off`]; to take off mere noise would only add its error to
//! every row), and what other functions do in the time that windows hide ([`Runs`](super::Runs)).
//!
//! Where no group holds all inputs, each is taken per event of the leader from the groups that have it. Groups
//! rotate between bursts, so their errors are independent.

use std::sync::Arc;

use super::artefact::Artefact;
use super::drift::Drift;
use super::interval::{poisson_limits, student_quantile};
use super::sample::{NoSample, Sample};
use super::spread::{influence, spread, taken_variance};
use super::stream::Windows;
use super::tally::{Analysis, Row};
use dioptra_metrics::{Bound, Count, Evaluator, Mode};

/// The options of estimates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EstimatorOptions {
    /// The confidence of the intervals, from 0 to 1.
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

/// The method that makes a standard error of the spread between bursts.
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

    /// Makes a corrected interval of a metric that cannot be negative: a value below 0 becomes 0, and the upper limit keeps
    /// its distance from the value.
    fn not_negative(mut self) -> Interval {
        if self.value < 0.0 {
            self.high -= self.value;
            self.value = 0.0;
        }
        self.low = self.low.max(0.0);
        self
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
    /// With what borders add and what windows hide of others taken off; `None` where nothing is known of either. Where
    /// the metric is never negative, neither is it, nor are its limits.
    pub corrected: Option<Interval>,
    /// Degrees of freedom of the interval.
    pub freedom: f64,
    /// Bursts behind it.
    pub bursts: u64,
    /// Windows behind it.
    pub windows: u64,
    /// The count of the input that was seen least.
    pub events: u64,
    /// The method that made an error of the spread between bursts.
    pub method: Method,
    /// Some input was so rare that Poisson's limits were asked.
    pub few_events: bool,
    /// There are fewer bursts than [`min_bursts`](EstimatorOptions::min_bursts): show it as such, or not at all. With one
    /// burst there is no interval: it is infinite.
    pub few_bursts: bool,
    /// The inputs come from different groups, counted in different bursts, each taken per event of the leader.
    pub apart: bool,
    /// The metric subtracts nothing: below 0 it cannot be, even where a limit is.
    pub never_negative: bool,
    /// Some terms of a sum were not recorded: a lower bound.
    pub partial: bool,
    /// Whether the metric depends on a leading clock whose windows hold interrupts, and the time that these take is not known
    /// ([`Artefact::of_interrupts`]). The interval does not include the error that this makes.
    pub holds_interrupts: bool,
    confidence: f64,
}

impl Estimate {
    /// The corrected interval where there is one, else the raw one.
    pub fn best(&self) -> &Interval {
        self.corrected.as_ref().unwrap_or(&self.raw)
    }

    /// Returns the seconds to record further until the interval's half width is `target` (0.05) of the value, if the program
    /// goes on as in the `recorded` seconds. 0 if the interval is that narrow already; `None` for a value of 0 or without an
    /// interval.
    pub fn seconds_for(&self, target: f64, recorded: f64) -> Option<f64> {
        let best = self.best();
        // With many bursts, t is as the normal distribution.
        let tail = 0.5 + self.confidence / 2.0;
        let shrinks = student_quantile(tail, f64::INFINITY) / student_quantile(tail, self.freedom);
        let reach = (best.high - best.value).max(best.value - best.low);
        let relative = reach * shrinks / best.value.abs();
        let times = (relative / target).powi(2);
        (times.is_finite() && best.value != 0.0).then(|| (recorded * (times - 1.0)).max(0.0))
    }

    pub(super) fn confidence(&self) -> f64 {
        self.confidence
    }
}

/// A metric of a row, or the reason why it has no value.
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
    pub(super) analysis: &'a Analysis<'a>,
    pub(super) windows: &'a Windows,
    pub(super) bound: &'a Bound,
    evaluator: Evaluator<'a>,
    /// One for each recorded event, for the formulas.
    counts: Vec<Count>,
    /// The counts that a window's borders add to each recorded event, and their variance.
    pub(super) borders: Vec<(f64, f64)>,
    /// Clocks that lead windows of which it is not known what interrupts take.
    uncorrected_clocks: Vec<u32>,
    options: EstimatorOptions,
}

impl Analysis<'_> {
    /// An estimator for the columns of a set, bound to the events that the groups name. `artefacts` are those to take off
    /// ([`artefacts`](Self::artefacts)), of which those count that can be told from 0, or none. `total(event)` in a
    /// formula is the event's count in all kept windows.
    pub fn estimator<'a>(
        &'a self,
        bound: &'a Bound,
        artefacts: &[Artefact],
        options: EstimatorOptions,
    ) -> Estimator<'a> {
        let events = bound.events();
        let totals: Vec<Count> = (0..events)
            .map(|event| Count::exact(self.sum(self.total(), event as u32) as f64))
            .collect();
        let mut borders = vec![(0.0, 0.0); events];
        for artefact in artefacts.iter().filter(|a| a.is_taken_off()) {
            if let Some(slot) = borders.get_mut(artefact.event as usize) {
                let variance = artefact.error.powi(2) + artefact.spread.powi(2);
                *slot = (artefact.per_window, variance);
            }
        }
        Estimator {
            analysis: self,
            windows: self.windows(),
            bound,
            evaluator: bound.evaluator(&totals, Mode::Exact),
            counts: vec![Count::default(); events],
            borders,
            uncorrected_clocks: artefacts
                .iter()
                .filter(|artefact| artefact.of_interrupts && !artefact.is_taken_off())
                .map(|artefact| artefact.event)
                .collect(),
            options,
        }
    }
}

impl Estimator<'_> {
    /// A column's estimate for a row of the analysis that the estimator was made by.
    pub fn estimate(&mut self, row: &Row, column: usize) -> Figure {
        let Some(found) = self.bound.columns().get(column) else {
            return Figure::Undefined;
        };
        if !found.has_value() {
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
        let mut corrected = match self.sample(row, column, true, |_| true) {
            Ok(sample) if !sample.taken.is_nothing() => {
                self.interval(&sample, column).map(|found| found.0)
            }
            _ => None,
        };
        let never_negative = self.bound.is_never_negative(column);
        if never_negative {
            corrected = corrected.map(Interval::not_negative);
        }
        let bursts = sample.bursts() as u64;
        let events = sample.events.iter().copied().min().unwrap_or(u64::MAX);
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
            never_negative,
            partial,
            // A rate of 0 is not too low.
            holds_interrupts: raw.value != 0.0
                && sample
                    .inputs
                    .iter()
                    .any(|event| self.uncorrected_clocks.contains(event)),
            confidence: self.options.confidence,
        })
    }

    /// The column's estimate from the shorter and from the longer windows; `None` where lengths do not vary or a half
    /// has no value.
    pub fn drift(&mut self, row: &Row, column: usize) -> Option<Drift> {
        let bound = self.bound.columns().get(column)?;
        if !bound.has_value() {
            return None;
        }
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
            for &i in &rare {
                let limits = poisson_limits(sample.events[i], self.options.confidence);
                let reaches =
                    [limits.0, limits.1].map(|l| self.reach_of(sample, column, i, l, value));
                down += reaches[0].0.max(reaches[1].0).powi(2);
                up += reaches[0].1.max(reaches[1].1).powi(2);
            }
            if freedom > 0.0 {
                below = below.max(down.sqrt());
                above = above.max(up.sqrt());
            } else {
                (below, above) = (down.sqrt(), up.sqrt());
            }
            if let [only] = rare[..] {
                let (down, up) = self.reach_of(sample, column, only, 0.0, value);
                if down > 0.0 {
                    below = below.min((down * down + rest).sqrt());
                }
                if up > 0.0 {
                    above = above.min((up * up + rest).sqrt());
                }
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

    /// Returns the distances by which the value goes down and up when an input is set to a count.
    fn reach_of(
        &mut self,
        sample: &Sample,
        column: usize,
        input: usize,
        count: f64,
        value: f64,
    ) -> (f64, f64) {
        let event = sample.inputs[input] as usize;
        let taken = sample.taken.per_window[input] * sample.windows_of[input];
        self.set(sample, |i| sample.total(i));
        self.counts[event].value = (count - taken).max(0.0) * sample.scale(input);
        match self.value(column) {
            Some(there) => ((value - there).max(0.0), (there - value).max(0.0)),
            // Below a line, nothing is infinitely much.
            None => (0.0, f64::INFINITY),
        }
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
                // A formula without a value when this burst is left out must not count as agreement: it keeps the value.
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
