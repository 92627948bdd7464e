//! The time that interrupts take of windows that a clock leads.
//!
//! Such a window lasts from one interrupt to the next, and the clock goes on in them: of a length l the program has
//! l − c. Events come at the program's rate, x = r·(l − c), so that x ÷ l is low by the share of c. Two lengths tell r from
//! c, but not the lengths as they were measured: a window may be long because its interrupt was, or because the program
//! was kept from its CPU, and nothing more happens in it. The *period* was drawn for each burst, whatever the program
//! did: with it as the instrument r = cov(x, P) ÷ cov(l, P), and c = l̄ − x̄ ÷ r. It is one for all rows, so each row and
//! event adds its moment
//!
//! > m(c) = Σ(P − P̄)·x · (l̄ − c) − x̄ · Σ(P − P̄)·l,
//!
//! weighed by how well it tells, and c is where their sum is 0. Only rows of high trust take part: in the others longer
//! windows hold more of their neighbours. Where these tell less, all windows together do
//! ([`throughout`](super::throughout)). The error comes from the spread between bursts.

use super::artefact::{Artefact, ArtefactNote, LEAST_BURSTS, LEAST_VARIATION};
use super::homogeneity::{ByBurst, Disagreement};
use super::stream::WindowView;
use super::tally::Analysis;
use super::throughout::InterruptEstimate;

/// Interrupts that take more of the mean window are no finding.
const MOST: f64 = 0.6;
/// Nor are ones that are less well known: values would be off by as much.
const LARGEST_ERROR: f64 = 0.15;

/// Sums over the kept windows of a row in a group.
#[derive(Debug, Clone, Default)]
struct Sums {
    windows: f64,
    length: f64,
    period: f64,
    period_squares: f64,
    length_by_period: f64,
    /// For each event of the group: Σx, Σx·P, Σx².
    events: Vec<[f64; 3]>,
    /// The parts of all events' weighed moments by burst.
    moment: ByBurst,
}

impl Sums {
    fn add(&mut self, window: &WindowView<'_>) {
        let (length, period) = (window.counts[0] as f64, window.burst.period as f64);
        self.windows += 1.0;
        self.length += length;
        self.period += period;
        self.period_squares += period * period;
        self.length_by_period += length * period;
        self.events.resize(window.counts.len(), [0.0; 3]);
        for (event, count) in self.events.iter_mut().zip(window.counts) {
            let count = *count as f64;
            event[0] += count;
            event[1] += count * period;
            event[2] += count * count;
        }
    }

    fn is_enough(&self) -> bool {
        self.windows >= 2.0
    }

    fn mean_length(&self) -> f64 {
        self.length / self.windows
    }

    fn mean(&self, event: usize) -> f64 {
        self.events[event][0] / self.windows
    }

    /// Σ(P − P̄)·l
    fn length_slope(&self) -> f64 {
        self.length_by_period - self.length * self.period / self.windows
    }

    /// Σ(P − P̄)·x
    fn slope(&self, event: usize) -> f64 {
        let [sum, by_period, _] = self.events[event];
        by_period - sum * self.period / self.windows
    }

    /// Rate ÷ variance: what a moment tells of the constant for what it varies by chance. 0 for what never happened.
    fn weight(&self, event: usize) -> f64 {
        let mean = self.mean(event);
        if mean <= 0.0 {
            return 0.0;
        }
        let variance = self.events[event][2] / self.windows - mean * mean;
        // Even an event that comes evenly varies, with the position of a window's ends.
        mean / (variance.max(0.0) + mean / 10.0) / self.mean_length().powi(2)
    }

    fn moment(&self, event: usize, constant: f64) -> f64 {
        self.slope(event) * (self.mean_length() - constant) - self.mean(event) * self.length_slope()
    }

    /// Returns the part of an event's moment that a window adds, to first order.
    fn influence(&self, event: usize, constant: f64, window: &WindowView<'_>) -> f64 {
        let own = self.mean_length() - constant;
        let rest = window.counts[event] as f64
            - self.mean(event) / own * (window.counts[0] as f64 - constant);
        let period = window.burst.period as f64 - self.period / self.windows;
        rest * (period * own - self.length_slope() / self.windows)
    }
}

/// The sums over all rows and events.
#[derive(Debug, Default)]
struct Total {
    above: f64,
    below: f64,
    windows: f64,
    length: f64,
    period: f64,
    /// Σ(P − the row's mean)²
    period_spread: f64,
}

impl Total {
    fn add(&mut self, sums: &Sums, events: impl Iterator<Item = usize>) {
        for event in events {
            let weight = sums.weight(event);
            self.above += weight * sums.moment(event, 0.0);
            self.below += weight * sums.slope(event);
        }
        self.windows += sums.windows;
        self.length += sums.length;
        self.period += sums.period;
        self.period_spread += sums.period_squares - sums.period * sums.period / sums.windows;
    }

    /// Returns the variation of periods inside of rows: standard deviation ÷ mean.
    fn variation(&self) -> f64 {
        let mean = self.period / self.windows;
        let variation = (self.period_spread.max(0.0) / self.windows).sqrt() / mean;
        if variation.is_nan() { 0.0 } else { variation }
    }
}

impl Analysis<'_> {
    /// Returns the time that interrupts take of the windows that clocks lead ([`Windows::set_clock`](super::Windows::set_clock)), in the
    /// order of the clocks' numbers. Two passes over the windows for each.
    pub(super) fn interrupts(&self) -> Vec<Artefact> {
        let leaders = self.windows().groups().iter();
        let mut clocks: Vec<u32> = leaders
            .filter_map(|group| group.events.first().copied())
            .filter(|leader| self.windows().is_clock(*leader))
            .collect();
        clocks.sort_unstable();
        clocks.dedup();
        clocks
            .into_iter()
            .map(|clock| self.interrupts_of(clock))
            .collect()
    }

    fn interrupts_of(&self, clock: u32) -> Artefact {
        let groups = self.windows().groups();
        let trusted = self.trusted();
        let is_led = |group: u16| groups[usize::from(group)].events.first() == Some(&clock);
        let usable = || {
            self.kept()
                .filter(|(window, row)| trusted[*row] && is_led(window.burst.group))
        };
        // The places of a group's events that tell something: another clock does not.
        let told = |group: u16| {
            let events = groups[usize::from(group)].events.iter().enumerate();
            events
                .filter(|(_, event)| !self.windows().is_clock(**event))
                .map(|(place, _)| place)
        };
        // As the rows' own sums stand: one for each group that was kept there.
        let mut sums: Vec<Vec<Sums>> = self
            .rows()
            .iter()
            .map(|row| vec![Sums::default(); row.clusters.len()])
            .collect();
        for (window, row) in usable() {
            sums[row][self.rows()[row].place_of(window.burst.group)].add(&window);
        }
        let of_rows = |row: usize| self.rows()[row].clusters.iter().map(|c| c.group);
        let mut total = Total::default();
        for (row, sums) in sums.iter().enumerate() {
            for (group, sums) in of_rows(row).zip(sums).filter(|(_, sums)| sums.is_enough()) {
                total.add(sums, told(group));
            }
        }
        let constant = total.above / total.below;
        let mut bursts = ByBurst::default();
        for (window, row) in usable() {
            let group = window.burst.group;
            let sums = &mut sums[row][self.rows()[row].place_of(group)];
            if sums.is_enough() {
                let part = told(group)
                    .map(|place| sums.weight(place) * sums.influence(place, constant, &window))
                    .sum();
                bursts.add(window.burst_number, part);
                sums.moment.add(window.burst_number, part);
            }
        }
        let mut disagreement = Disagreement::default();
        for (row, sums) in sums.iter().enumerate() {
            for (group, sums) in of_rows(row).zip(sums).filter(|(_, sums)| sums.is_enough()) {
                let weighed = |of: &dyn Fn(usize) -> f64| -> f64 {
                    told(group)
                        .map(|place| sums.weight(place) * of(place))
                        .sum()
                };
                // The growth of its moment for each nanosecond less.
                let slope = weighed(&|place| sums.mean(place)) * sums.length_slope()
                    / (sums.mean_length() - constant);
                let deviation = weighed(&|place| sums.moment(place, constant)) / slope;
                disagreement.add(
                    deviation,
                    sums.moment.variance() / (slope * slope),
                    sums.moment.bursts(),
                );
            }
        }
        let length = total.length / total.windows;
        let of_rows = InterruptEstimate {
            constant,
            error: bursts.variance().sqrt() / total.below.abs(),
            length,
            windows: total.windows,
            bursts: bursts.bursts(),
            variation: total.variation(),
        };
        let by_rows = artefact(clock, &of_rows, disagreement.spread());
        let throughout = self.interrupts_throughout(clock);
        match throughout.map(|found| artefact(clock, &found, 0.0)) {
            Some(other) if other.error < by_rows.error || by_rows.windows == 0 => other,
            _ => by_rows,
        }
    }
}

fn artefact(clock: u32, found: &InterruptEstimate, spread: f64) -> Artefact {
    let InterruptEstimate {
        constant,
        error,
        length,
        ..
    } = *found;
    let note = if found.bursts < LEAST_BURSTS {
        ArtefactNote::FewBursts
    } else if found.variation < LEAST_VARIATION {
        ArtefactNote::LengthsDoNotVary
    } else if constant.abs() < MOST * length && error < LARGEST_ERROR * length {
        ArtefactNote::Known
    } else {
        ArtefactNote::NoSense
    };
    let known = note == ArtefactNote::Known;
    Artefact {
        event: clock,
        // They take something, if what was found is less than nothing.
        per_window: if known { constant.max(0.0) } else { 0.0 },
        error: if known { error } else { f64::INFINITY },
        spread: if known { spread } else { 0.0 },
        of_interrupts: true,
        windows: found.windows as u64,
        bursts: found.bursts,
        variation: found.variation,
        note,
    }
}
