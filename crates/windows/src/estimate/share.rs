//! Shares of time, and whether shares and rates together make the program's own totals.

use rustc_hash::FxHashMap;

use super::artefact::Artefact;
use super::interval::{poisson_limits, student_quantile};
use super::tally::{Analysis, Clusters, Row};

/// A row's share of the time, from the samples of the ordinary event.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    /// Samples behind it.
    pub samples: u64,
    /// From 0 to 1.
    pub value: f64,
    /// One standard error of drawing samples.
    pub error: f64,
    /// The lower limit at 95 %.
    pub low: f64,
    /// The upper limit.
    pub high: f64,
}

/// The shares of all rows.
#[derive(Debug, Clone, Default)]
pub struct Shares {
    rows: FxHashMap<u32, (u64, f64)>,
    samples: u64,
    weight: f64,
}

/// Fewer samples or events than this have Poisson's limits.
const FEW: u64 = 20;
const NORMAL: f64 = 1.959_963_984_540_054;

impl Shares {
    /// From each row's key, samples and weight (the sum of their periods). Give all samples, those of rows without
    /// windows too; several entries of one key are added.
    pub fn new(rows: impl IntoIterator<Item = (u32, u64, u64)>) -> Self {
        let mut shares = Self::default();
        for (key, samples, weight) in rows {
            let entry = shares.rows.entry(key).or_default();
            entry.0 += samples;
            entry.1 += weight as f64;
            shares.samples += samples;
            shares.weight += weight as f64;
        }
        shares
    }

    /// All samples.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// A row's share; 0 with Poisson's upper limit for a row that no sample met. `None` without any sample.
    pub fn share(&self, key: u32) -> Option<Share> {
        if self.samples == 0 || self.weight <= 0.0 {
            return None;
        }
        let (samples, weight) = self.rows.get(&key).copied().unwrap_or_default();
        let value = weight / self.weight;
        let all = self.samples as f64;
        let error = (value * (1.0 - value) / all).max(0.0).sqrt();
        let (low, high) = if samples < FEW {
            let (low, high) = poisson_limits(samples, 0.95);
            let unit = if samples == 0 {
                1.0 / all
            } else {
                value / samples as f64
            };
            (low * unit, high * unit)
        } else {
            (value - NORMAL * error, value + NORMAL * error)
        };
        Some(Share {
            samples,
            value,
            error,
            low: low.max(0.0),
            high: high.min(1.0),
        })
    }
}

/// The counts of plain counters over a whole run.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Totals {
    /// The leader's count.
    pub leader: f64,
    /// The count of the event in question.
    pub counted: f64,
    /// The number of samples that interrupted the program: a clock's total holds the time that they take.
    pub interrupts: u64,
}

/// The closure of an event: its total over the program as shares and rates predict it, and as it was counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Closure {
    /// The event.
    pub event: u32,
    /// The count of a plain counter.
    pub counted: f64,
    /// Σ share × rate × the leader's total, as far as it is the program's own.
    pub predicted: f64,
    /// The lower limit of `predicted` at 95 %.
    pub low: f64,
    /// The upper limit.
    pub high: f64,
    /// The share of time of the rows whose rate is known; the others are taken to be as these on average.
    pub covered: f64,
}

impl Closure {
    /// Predicted ÷ counted − 1; NaN or infinite where nothing was counted.
    pub fn error(&self) -> f64 {
        self.predicted / self.counted - 1.0
    }

    /// The limits of [`error`](Self::error).
    pub fn error_limits(&self) -> (f64, f64) {
        (
            self.low / self.counted - 1.0,
            self.high / self.counted - 1.0,
        )
    }

    /// Whether the total lies inside of the interval.
    pub fn holds(&self) -> bool {
        self.low <= self.counted && self.counted <= self.high
    }
}

impl Analysis<'_> {
    /// Closure of one event. `leader` is the event by which rates are taken (a group's leader: cycles, a clock); it must
    /// stand in the groups that count `event`. `totals` are of the same run. Shares are shares of the ranking event: if that is a clock and the leader is cycles, a clock
    /// that changes speed shows as an error here. Artefacts of both are taken off; what windows hide of
    /// others is not, since it is part of the total wherever it stands. `None` where no row has both a share and a
    /// rate.
    pub fn closure(
        &self,
        shares: &Shares,
        artefacts: &[Artefact],
        event: u32,
        leader: u32,
        totals: &Totals,
    ) -> Option<Closure> {
        let constant_of = |event: u32| {
            let mut known = artefacts.iter().filter(|a| a.is_taken_off());
            let found = known.find(|a| a.event == event);
            found.map_or((0.0, 0.0), |a| (a.per_window, a.error))
        };
        let (constant, constant_error) = constant_of(event);
        let (interrupt, interrupt_error) = constant_of(leader);
        let interrupts = totals.interrupts as f64;
        let own_total = totals.leader - interrupt * interrupts;
        let mut rates = Vec::new();
        let mut covered = 0.0;
        for row in self.rows() {
            let Some(share) = shares.share(row.key()).filter(|s| s.samples > 0) else {
                continue;
            };
            let mut sums = RateSums::default();
            for (clusters, event, leader, _) in self.counting(row, event, leader) {
                sums.counts += clusters.total(event) as f64;
                sums.lengths += clusters.total(leader) as f64;
                sums.windows += clusters.all_windows();
            }
            sums.lengths -= interrupt * sums.windows;
            if sums.lengths > 0.0 {
                covered += share.value;
                rates.push((row, share.value, sums));
            }
        }
        if covered <= 0.0 {
            return None;
        }
        // To first order in each burst's counts; a burst may have met several rows.
        let mut of_burst: FxHashMap<u32, f64> = FxHashMap::default();
        let (mut mean, mut mean_square) = (0.0, 0.0);
        let (mut by_constant, mut by_interrupt) = (0.0, 0.0);
        for (row, share, sums) in &rates {
            let share = share / covered;
            let rate = (sums.counts - constant * sums.windows) / sums.lengths;
            mean += share * rate;
            mean_square += share * rate * rate;
            by_constant += share * sums.windows / sums.lengths;
            by_interrupt += share * rate * sums.windows / sums.lengths;
            for (clusters, event, leader, width) in self.counting(row, event, leader) {
                for (j, burst) in clusters.bursts.iter().enumerate() {
                    let counts = &clusters.sums[j * width..(j + 1) * width];
                    let windows = f64::from(clusters.windows[j]);
                    let length = counts[leader] as f64 - interrupt * windows;
                    let rest = counts[event] as f64 - constant * windows - rate * length;
                    *of_burst.entry(*burst).or_default() += share * rest / sums.lengths;
                }
            }
        }
        // Few counts do not show their spread: if they came evenly, so many more or fewer could have come.
        let seen: f64 = rates.iter().map(|(_, _, sums)| sums.counts).sum();
        let exposure: f64 = rates.iter().map(|(_, _, sums)| sums.lengths).sum();
        let (mut below, mut above) = (0.0, 0.0);
        if seen < FEW as f64 {
            let (low, high) = poisson_limits(seen as u64, 0.95);
            (below, above) = ((seen - low) / exposure, (high - seen) / exposure);
        }
        let bursts = of_burst.len() as f64;
        let squares: f64 = of_burst.values().map(|u| u * u).sum();
        let mut variance = (mean_square - mean * mean).max(0.0) / shares.samples() as f64;
        variance += (by_constant * constant_error).powi(2);
        // The time of interrupts raises the rates, and lowers the total that they are multiplied by.
        by_interrupt -= mean * interrupts / own_total;
        variance += (by_interrupt * interrupt_error).powi(2);
        let reach = if bursts > 1.0 {
            variance += squares * bursts / (bursts - 1.0);
            student_quantile(0.975, bursts - 1.0) * variance.sqrt()
        } else {
            f64::INFINITY
        };
        Some(Closure {
            event,
            counted: totals.counted,
            predicted: own_total * mean,
            // Borders that are taken off may leave less than nothing; that the program counts so is impossible.
            low: own_total * (mean - reach.max(below)).max(mean.min(0.0)),
            high: own_total * (mean + reach.max(above)),
            covered,
        })
    }

    /// The row's groups that count both events: clusters, the events' places, and the group's width.
    fn counting<'r>(
        &'r self,
        row: &'r Row,
        event: u32,
        leader: u32,
    ) -> impl Iterator<Item = (&'r Clusters, usize, usize, usize)> {
        self.groups_of(row).filter_map(move |(events, clusters)| {
            let place = |event| events.iter().position(|e| *e == event);
            Some((clusters, place(event)?, place(leader)?, events.len()))
        })
    }
}

/// A row's counts of an event and its leader.
#[derive(Debug, Default)]
struct RateSums {
    counts: f64,
    lengths: f64,
    windows: f64,
}
