//! What a window's borders add to its counts.
//!
//! Each window ends in an interrupt. The pipeline refills, the kernel's own work shows in the caches: some counts too
//! many or too few, as many in a short window as in a long one. Bursts of different periods tell that constant a from
//! the rate r: x = r·l + a for a window of length l. Rates differ between rows, a is taken as one for the whole program, so
//! it is the least-squares intercept with a slope of its own for each row; each row weighs by how little its windows
//! scatter. Only rows of high trust take part: in the others longer windows hold more of their neighbours.
//! The error comes from the spread between bursts.
//!
//! What software counts (page faults, context switches) has no such constant: interrupts do not count there, and what a
//! fit finds is that longer windows stand elsewhere. [`Windows::set_borderless`](super::Windows::set_borderless) tells
//! which events those are.

use super::accept::Trust;
use super::tally::Analysis;

/// An event's constant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Artefact {
    /// The event.
    pub event: u32,
    /// Counts that a window has beside what its length explains; negative where the borders cost counts.
    pub per_window: f64,
    /// Its standard error.
    pub error: f64,
    /// Windows behind it.
    pub windows: u64,
    /// Bursts behind it.
    pub bursts: u64,
    /// How much lengths vary inside of rows: standard deviation ÷ mean.
    pub variation: f64,
    /// Whether it is of use.
    pub note: ArtefactNote,
}

/// Whether a constant could be told from a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArtefactNote {
    /// It could.
    Known,
    /// All windows are about as long: record with a random period.
    LengthsDoNotVary,
    /// Too few bursts to say.
    FewBursts,
}

/// Lengths must vary by this much (standard deviation ÷ mean). A period drawn from two to four thirds of the nominal one
/// varies by 0.19.
const LEAST_VARIATION: f64 = 0.05;
/// From fewer bursts the constant is so uncertain, and its error too, that taking it off does more harm than good.
const LEAST_BURSTS: u64 = 300;

impl Artefact {
    /// Whether it can be told from 0: more than three standard errors away. Only then is it taken off: one that is 0 in
    /// truth would else shift every row of one recording in twenty.
    pub fn is_significant(&self) -> bool {
        self.note == ArtefactNote::Known && self.per_window.abs() > 3.0 * self.error
    }
}

/// Sums over the windows of a row in a group.
#[derive(Debug, Clone, Default)]
struct Sums {
    windows: f64,
    length: f64,
    length_squares: f64,
    /// For each event of the group: Σx, Σx·l, Σx².
    events: Vec<[f64; 3]>,
}

impl Sums {
    /// Σz², z being what is left of 1 after a multiple of the length is taken off.
    fn leverage(&self) -> f64 {
        self.windows - self.length * self.length / self.length_squares
    }

    fn residue(&self, length: f64) -> f64 {
        1.0 - length * self.length / self.length_squares
    }

    fn weight(&self, event: usize) -> f64 {
        let [_, product, squares] = self.events[event];
        let scatter = (squares - product * product / self.length_squares) / self.windows;
        // One count is the least that can be seen: rows in which the event never happens do not decide alone.
        1.0 / (scatter.max(0.0) + 1.0)
    }
}

impl Analysis<'_> {
    /// The constants of all events that stand beside a leader and may have some, in the order of their numbers. Two
    /// passes over the windows.
    pub fn artefacts(&self) -> Vec<Artefact> {
        let groups = self.windows().groups();
        let trusted: Vec<bool> = self
            .rows()
            .iter()
            .map(|row| self.trust(row) == Some(Trust::High))
            .collect();
        let usable = || {
            let kept = self.kept().filter(|(_, row)| trusted[*row]);
            kept.filter(|(window, _)| window.counts.first().is_some_and(|length| *length > 0))
        };
        // As the rows' own sums stand: one for each group that was kept there.
        let mut sums: Vec<Vec<Sums>> = self
            .rows()
            .iter()
            .map(|row| vec![Sums::default(); row.clusters.len()])
            .collect();
        let place = |row: usize, group: u16| {
            let mut groups = self.rows()[row].clusters.iter().map(|c| c.group);
            groups.position(|g| g == group).unwrap_or(0)
        };
        for (window, row) in usable() {
            let sums = &mut sums[row][place(row, window.burst.group)];
            let length = window.counts[0] as f64;
            sums.windows += 1.0;
            sums.length += length;
            sums.length_squares += length * length;
            sums.events.resize(window.counts.len(), [0.0; 3]);
            for (event, count) in sums.events.iter_mut().zip(window.counts) {
                let count = *count as f64;
                event[0] += count;
                event[1] += count * length;
                event[2] += count * count;
            }
        }
        let mut events: Vec<u32> = groups
            .iter()
            .flat_map(|group| group.events.iter().skip(1).copied())
            .collect();
        events.retain(|event| !self.windows().is_borderless(*event));
        events.sort_unstable();
        events.dedup();
        let mut fits: Vec<Fit> = events.into_iter().map(Fit::new).collect();
        let fit_of = |event: u32, fits: &[Fit]| fits.iter().position(|f| f.event == event);
        let places: Vec<Vec<Option<usize>>> = groups
            .iter()
            .map(|group| group.events.iter().map(|e| fit_of(*e, &fits)).collect())
            .collect();
        for (row, sums) in self.rows().iter().zip(&sums) {
            for (clusters, sums) in row.clusters.iter().zip(sums) {
                if sums.windows < 2.0 {
                    continue;
                }
                for (event, place) in places[usize::from(clusters.group)]
                    .iter()
                    .enumerate()
                    .skip(1)
                {
                    if let Some(fit) = place {
                        fits[*fit].add(sums, event);
                    }
                }
            }
        }
        for fit in &mut fits {
            fit.solve();
        }
        for (window, row) in usable() {
            let sums = &sums[row][place(row, window.burst.group)];
            if sums.windows < 2.0 {
                continue;
            }
            for (event, place) in places[usize::from(window.burst.group)]
                .iter()
                .enumerate()
                .skip(1)
            {
                if let Some(fit) = place {
                    let (length, count) = (window.counts[0] as f64, window.counts[event] as f64);
                    fits[*fit].scatter(window.burst_number, sums, event, length, count);
                }
            }
        }
        fits.into_iter().map(Fit::finish).collect()
    }
}

/// The least-squares fit of one event's constant.
struct Fit {
    event: u32,
    above: f64,
    below: f64,
    constant: f64,
    windows: f64,
    length: f64,
    /// Σ(l − the row's mean)²
    length_spread: f64,
    bursts: u64,
    burst: Option<u32>,
    of_burst: f64,
    squares: f64,
}

impl Fit {
    fn new(event: u32) -> Self {
        Self {
            event,
            above: 0.0,
            below: 0.0,
            constant: 0.0,
            windows: 0.0,
            length: 0.0,
            length_spread: 0.0,
            bursts: 0,
            burst: None,
            of_burst: 0.0,
            squares: 0.0,
        }
    }

    fn add(&mut self, sums: &Sums, event: usize) {
        let [sum, product, _] = sums.events[event];
        let weight = sums.weight(event);
        self.above += weight * (sum - product * sums.length / sums.length_squares);
        self.below += weight * sums.leverage();
        self.windows += sums.windows;
        self.length += sums.length;
        self.length_spread +=
            (sums.length_squares - sums.length * sums.length / sums.windows).max(0.0);
    }

    fn solve(&mut self) {
        if self.below > 0.0 {
            self.constant = self.above / self.below;
        }
    }

    fn scatter(&mut self, burst: u32, sums: &Sums, event: usize, length: f64, count: f64) {
        if self.burst != Some(burst) {
            self.end_burst();
            self.burst = Some(burst);
            self.bursts += 1;
        }
        let rate = (sums.events[event][1] - self.constant * sums.length) / sums.length_squares;
        let rest = count - rate * length - self.constant;
        self.of_burst += sums.weight(event) * sums.residue(length) * rest;
    }

    fn end_burst(&mut self) {
        self.squares += self.of_burst * self.of_burst;
        self.of_burst = 0.0;
    }

    fn finish(mut self) -> Artefact {
        self.end_burst();
        let bursts = self.bursts as f64;
        let variation = (self.length_spread / self.windows).sqrt() / (self.length / self.windows);
        let note = if variation < LEAST_VARIATION {
            ArtefactNote::LengthsDoNotVary
        } else if self.bursts < LEAST_BURSTS {
            ArtefactNote::FewBursts
        } else {
            ArtefactNote::Known
        };
        let known = note == ArtefactNote::Known && self.below > 0.0;
        Artefact {
            event: self.event,
            per_window: if known { self.constant } else { 0.0 },
            error: if known {
                (self.squares * bursts / (bursts - 1.0)).sqrt() / self.below
            } else {
                f64::INFINITY
            },
            windows: self.windows as u64,
            bursts: self.bursts,
            variation: if variation.is_nan() { 0.0 } else { variation },
            note,
        }
    }
}
