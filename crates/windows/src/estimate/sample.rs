//! A column's inputs in a row's bursts: which groups are asked, what is taken off, and the numbers as a matrix.

use super::estimator::Estimator;
use super::tally::{Clusters, Row};

/// A column's inputs in a row's bursts, as a matrix.
#[derive(Debug, Default)]
pub(super) struct Sample {
    pub(super) inputs: Vec<u32>,
    /// For each input: how often it was counted.
    pub(super) events: Vec<u64>,
    /// For each input: its sum, and the exposure of the groups that have it.
    pub(super) sums: Vec<f64>,
    pub(super) exposures: Vec<f64>,
    /// For each input: windows behind it.
    pub(super) windows_of: Vec<f64>,
    /// The exposure of all groups.
    pub(super) exposure: f64,
    pub(super) windows: u64,
    pub(super) apart: bool,
    /// For each group: where its bursts begin in `rows`, and which inputs it has.
    pub(super) parts: Vec<(usize, Vec<bool>)>,
    /// For each burst: its counts of the inputs; 0 for what its group has not.
    pub(super) rows: Vec<f64>,
    /// For each burst: its exposure.
    pub(super) lengths: Vec<f64>,
    /// The corrections that were taken off.
    pub(super) taken: Taken,
}

/// The corrections of a row: the counts in each window that do not belong to the row, for each input.
#[derive(Debug, Clone, Default)]
pub(super) struct Taken {
    /// The sum of both, for a window.
    pub(super) per_window: Vec<f64>,
    /// The variance of what borders add.
    pub(super) border_variance: Vec<f64>,
    /// For each row that windows hide: the standard error of its share of a window, and what it does in a window that
    /// is all its own.
    pub(super) hidden: Vec<(f64, Vec<f64>)>,
}

impl Taken {
    pub(super) fn nothing(inputs: usize) -> Self {
        Self {
            per_window: vec![0.0; inputs],
            border_variance: vec![0.0; inputs],
            hidden: Vec::new(),
        }
    }

    pub(super) fn is_nothing(&self) -> bool {
        self.per_window.iter().all(|t| *t == 0.0)
    }
}

pub(super) enum NoSample {
    NoWindows,
    NothingInCommon,
}

impl Sample {
    pub(super) fn bursts(&self) -> usize {
        self.lengths.len()
    }

    pub(super) fn row(&self, burst: usize) -> &[f64] {
        let width = self.inputs.len();
        &self.rows[burst * width..(burst + 1) * width]
    }

    /// Returns the factor that scales an input to the exposure of all groups.
    pub(super) fn scale(&self, input: usize) -> f64 {
        if self.apart {
            self.exposure / self.exposures[input]
        } else {
            1.0
        }
    }

    pub(super) fn total(&self, input: usize) -> f64 {
        self.sums[input] * self.scale(input)
    }

    pub(super) fn part_range(&self, part: usize) -> std::ops::Range<usize> {
        let end = self.parts.get(part + 1).map_or(self.bursts(), |p| p.0);
        self.parts[part].0..end
    }
}

impl Estimator<'_> {
    /// The periods of the bursts behind a row's column, ascending.
    pub(super) fn periods(&self, row: &Row, column: usize) -> Vec<u64> {
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

    pub(super) fn sample(
        &self,
        row: &Row,
        column: usize,
        corrected: bool,
        keep: impl Fn(u32) -> bool,
    ) -> Result<Sample, NoSample> {
        let inputs = self.bound.row_inputs(column);
        let mut groups: Vec<(&[u32], &Clusters)> = self.clusters(row, &inputs).collect();
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
        if apart {
            // A group with nothing but the exposure says nothing.
            let says = |e: &u32, events: &[u32]| *e != common && events.contains(e);
            groups.retain(|(events, _)| inputs.iter().any(|e| says(e, events)));
        }
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

    /// Returns the counts that borders and other rows add to a window of the row's groups. `common` is the event that measures
    /// exposure.
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
            // A row without kept windows has no known rates.
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
}
