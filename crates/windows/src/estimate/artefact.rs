//! The counts that a window's borders add.
//!
//! Each window ends in an interrupt. The pipeline refills, the kernel's own work shows in the caches: some counts too
//! many or too few, as many in a short window as in a long one. Bursts of different periods tell that constant a from
//! the rate r: x = r·l + a for a window of length l. Rates differ between rows, a is taken as one for the whole program, so
//! it is the least-squares intercept with a slope of its own for each row; each row weighs by how little its windows
//! scatter. Only rows of high trust take part: in the others longer windows hold more of their neighbours.
//! The error comes from the spread between bursts.
//!
//! The constant is one only if all rows agree on it: a row in which the event never happens has none, and rates that bend
//! with the windows' length look like one. So rows' own constants are compared, and where they disagree more than chance
//! explains none is taken off.
//!
//! Windows that a clock leads hold their interrupts; what these take comes first, and is off the lengths then.
//!
//! Events that software counts (page faults, context switches) have no such constant: interrupts are not counted there, and
//! a fit only finds that longer windows lie elsewhere. [`Windows::set_borderless`](super::Windows::set_borderless) names
//! these events.

use super::homogeneity::{ByBurst, Disagreement};
use super::stream::{CountedGroup, WindowView};
use super::tally::Analysis;

/// An event's constant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Artefact {
    /// The event. A clock that leads is one too: it counts the interrupts.
    pub event: u32,
    /// Counts that a window has beside what its length explains; negative where the borders cost counts. Of a clock
    /// nanoseconds in which the program did nothing.
    pub per_window: f64,
    /// Its standard error.
    pub error: f64,
    /// The standard deviation between rows that chance does not explain: part of the uncertainty of each row's constant.
    pub spread: f64,
    /// Whether the constant is the time that interrupts take of windows led by a clock. Such a constant exists for sure,
    /// however well it is known.
    pub of_interrupts: bool,
    /// Windows behind it.
    pub windows: u64,
    /// Bursts behind it.
    pub bursts: u64,
    /// The variation of lengths inside of rows: standard deviation ÷ mean.
    pub variation: f64,
    /// Whether the constant is known.
    pub note: ArtefactNote,
}

/// Whether a constant could be told from a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArtefactNote {
    /// The constant is known.
    Known,
    /// All windows are about as long: record with a random period.
    LengthsDoNotVary,
    /// Too few bursts to say.
    FewBursts,
    /// Rows do not have it in common.
    RowsDisagree,
    /// The fit gives an impossible constant: a negative time, or most of the window.
    NoSense,
}

/// Lengths must vary by this much (standard deviation ÷ mean). A period drawn from two to four thirds of the nominal one
/// varies by 0.19.
pub(super) const LEAST_VARIATION: f64 = 0.05;
/// From fewer bursts the constant is so uncertain, and its error too, that taking it off does more harm than good.
pub(super) const LEAST_BURSTS: u64 = 300;

impl Artefact {
    /// Whether the constant is taken off: if it is more than three standard errors from 0, or exists for sure. Otherwise a
    /// constant that is really 0 would shift every row of one recording in twenty.
    pub fn is_taken_off(&self) -> bool {
        let is_certain = self.of_interrupts || self.per_window.abs() > 3.0 * self.error;
        self.note == ArtefactNote::Known && is_certain
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
    /// For each event: what the row's own constant is made of, by burst.
    own: Vec<ByBurst>,
}

impl Sums {
    /// Σz², z being what is left of 1 after a multiple of the length is taken off.
    fn leverage(&self) -> f64 {
        self.windows - self.length * self.length / self.length_squares
    }

    fn residue(&self, length: f64) -> f64 {
        1.0 - length * self.length / self.length_squares
    }

    /// The row's own constant, weighed by its leverage.
    fn own_constant(&self, event: usize) -> f64 {
        let [sum, product, _] = self.events[event];
        sum - product * self.length / self.length_squares
    }

    fn weight(&self, event: usize) -> f64 {
        let [_, product, squares] = self.events[event];
        let scatter = (squares - product * product / self.length_squares) / self.windows;
        // One count is the least that can be seen: rows in which the event never happens do not decide alone.
        1.0 / (scatter.max(0.0) + 1.0)
    }
}

impl Analysis<'_> {
    /// The constants of all clocks that lead, then those of all events that stand beside a leader and may have some, each
    /// in the order of their numbers. Two passes over the windows for either.
    pub fn artefacts(&self) -> Vec<Artefact> {
        let mut found = self.interrupts();
        let borders = self.borders(&found);
        found.extend(borders);
        found
    }

    fn borders(&self, interrupts: &[Artefact]) -> Vec<Artefact> {
        let groups = self.windows().groups();
        let trusted = self.trusted();
        let usable = || {
            let kept = self.kept().filter(|(_, row)| trusted[*row]);
            kept.filter(|(window, _)| window.counts.first().is_some_and(|length| *length > 0))
        };
        let taken_of = |group: &CountedGroup| {
            let leader = group.events.first();
            let mut known = interrupts.iter().filter(|a| a.is_taken_off());
            let found = known.find(|a| Some(&a.event) == leader);
            found.map_or(0.0, |a| a.per_window)
        };
        let taken: Vec<f64> = groups.iter().map(taken_of).collect();
        let length_of = |window: &WindowView<'_>| {
            window.counts[0] as f64 - taken[usize::from(window.burst.group)]
        };
        // As the rows' own sums stand: one for each group that was kept there.
        let mut sums: Vec<Vec<Sums>> = self
            .rows()
            .iter()
            .map(|row| vec![Sums::default(); row.clusters.len()])
            .collect();
        let place = |row: usize, group: u16| self.rows()[row].place_of(group);
        for (window, row) in usable() {
            let sums = &mut sums[row][place(row, window.burst.group)];
            let length = length_of(&window);
            sums.windows += 1.0;
            sums.length += length;
            sums.length_squares += length * length;
            sums.events.resize(window.counts.len(), [0.0; 3]);
            sums.own.resize(window.counts.len(), ByBurst::default());
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
        events.retain(|event| {
            !self.windows().is_borderless(*event) && !self.windows().is_clock(*event)
        });
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
            let sums = &mut sums[row][place(row, window.burst.group)];
            if sums.windows < 2.0 {
                continue;
            }
            for (event, place) in places[usize::from(window.burst.group)]
                .iter()
                .enumerate()
                .skip(1)
            {
                if let Some(fit) = place {
                    let (length, count) = (length_of(&window), window.counts[event] as f64);
                    fits[*fit].scatter(window.burst_number, sums, event, length, count);
                }
            }
        }
        for (row, sums) in self.rows().iter().zip(&sums) {
            for (clusters, sums) in row.clusters.iter().zip(sums) {
                let places = &places[usize::from(clusters.group)];
                for (event, place) in places.iter().enumerate().skip(1) {
                    if let Some(fit) = place.filter(|_| sums.windows >= 2.0) {
                        fits[fit].compare(sums, event);
                    }
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
    bursts: ByBurst,
    disagreement: Disagreement,
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
            bursts: ByBurst::default(),
            disagreement: Disagreement::default(),
        }
    }

    fn add(&mut self, sums: &Sums, event: usize) {
        let weight = sums.weight(event);
        self.above += weight * sums.own_constant(event);
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

    fn scatter(&mut self, burst: u32, sums: &mut Sums, event: usize, length: f64, count: f64) {
        let rate = (sums.events[event][1] - self.constant * sums.length) / sums.length_squares;
        let part = sums.residue(length) * (count - rate * length - self.constant);
        self.bursts.add(burst, sums.weight(event) * part);
        sums.own[event].add(burst, part);
    }

    /// Whether the row's own constant is the one of all.
    fn compare(&mut self, sums: &Sums, event: usize) {
        let own = &sums.own[event];
        let leverage = sums.leverage();
        // Counts that should be there and never are do not vary: that they come by chance is the least.
        let variance = own.variance().max(self.constant.abs() * leverage);
        let deviation = sums.own_constant(event) / leverage - self.constant;
        self.disagreement
            .add(deviation, variance / (leverage * leverage), own.bursts());
    }

    fn finish(self) -> Artefact {
        let bursts = self.bursts.bursts();
        let variation = (self.length_spread / self.windows).sqrt() / (self.length / self.windows);
        let note = if variation < LEAST_VARIATION {
            ArtefactNote::LengthsDoNotVary
        } else if bursts < LEAST_BURSTS {
            ArtefactNote::FewBursts
        } else if self.disagreement.is_significant() {
            ArtefactNote::RowsDisagree
        } else {
            ArtefactNote::Known
        };
        let known = note == ArtefactNote::Known && self.below > 0.0;
        Artefact {
            event: self.event,
            per_window: if known { self.constant } else { 0.0 },
            error: if known {
                self.bursts.variance().sqrt() / self.below
            } else {
                f64::INFINITY
            },
            spread: self.disagreement.spread(),
            of_interrupts: false,
            windows: self.windows as u64,
            bursts,
            variation: if variation.is_nan() { 0.0 } else { variation },
            note,
        }
    }
}
