//! Counts of samples and their weights.

use crate::counts::by_leaf::Computed;
use crate::counts::estimate::{Estimate, Spread};
use crate::counts::sample_keys::SampleKeyId;
use crate::hash::mix;
use crate::selecting::sample_log::{SampleLog, Span, is_bounded, meet};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use std::sync::Arc;

/// A number of samples and the sum of their weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Samples.
    pub samples: u64,
    /// The sum of their periods, in events.
    pub weight: u64,
}

impl Count {
    /// Adds another count. Sums of hostile periods stop at the largest number.
    #[inline]
    pub fn add(&mut self, other: Count) {
        self.samples = self.samples.saturating_add(other.samples);
        self.weight = self.weight.saturating_add(other.weight);
    }

    /// Adds one sample.
    #[inline]
    pub(crate) fn add_sample(&mut self, weight: u64) {
        self.add(Count { samples: 1, weight });
    }

    /// Returns whether there is no sample.
    pub fn is_zero(&self) -> bool {
        self.samples == 0
    }
}

/// Counts by a small dense id.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dense(Vec<Count>);

impl Dense {
    /// Keeps only the counts of ids that pass `keep`. `keep` is called only for ids with samples.
    fn retain_counted(&mut self, keep: impl Fn(u32) -> bool) {
        for (id, count) in (0_u32..).zip(&mut self.0) {
            if !count.is_zero() && !keep(id) {
                *count = Count::default();
            }
        }
    }

    #[inline]
    fn add(&mut self, id: u32, count: Count) {
        let index = id as usize;
        if index >= self.0.len() {
            self.0.resize(index + 1, Count::default());
        }
        self.0[index].add(count);
    }

    fn iter(&self) -> impl Iterator<Item = (u32, Count)> + '_ {
        (0_u32..)
            .zip(&self.0)
            .filter(|(_, count)| !count.is_zero())
            .map(|(id, count)| (id, *count))
    }

    /// Returns the counts by id, including zero counts.
    pub(crate) fn all(&self) -> &[Count] {
        &self.0
    }

    fn get(&self, id: u32) -> Count {
        self.0.get(id as usize).copied().unwrap_or_default()
    }
}

/// Pairs of a sample key and a place, each with a small id of its own, because most pairs never occur.
#[derive(Clone, Debug, Default)]
struct Pairs {
    list: Vec<(SampleKeyId, u32)>,
    /// Ids by pair. The pair is stored here too, so that a lookup costs one cache miss and does not read the list.
    ids: HashTable<((SampleKeyId, u32), u32)>,
}

impl Pairs {
    #[inline]
    fn intern(&mut self, pair: (SampleKeyId, u32)) -> u32 {
        // A pair costs a sample of the file, so its number fits as stack numbers do.
        let next = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        let entry = self.ids.entry(
            hash(pair),
            |(known, _)| *known == pair,
            |(known, _)| hash(*known),
        );
        match entry {
            Entry::Occupied(entry) => entry.get().1,
            Entry::Vacant(entry) => {
                entry.insert((pair, next));
                self.list.push(pair);
                next
            }
        }
    }
}

#[inline]
fn hash(pair: (u32, u32)) -> u64 {
    mix(u64::from(pair.0), u64::from(pair.1))
}

/// The contribution of one sample to a count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hit {
    pub weight: u64,
    /// Nanoseconds since the recording's first sample.
    pub elapsed: Option<u64>,
    /// The factor that scales the weight, because the sample's counter did not run all the time.
    pub factor: f64,
    /// Whether the sample was taken in the kernel and counts at the user code that entered it.
    pub in_kernel: bool,
}

/// Details of the samples that are kept beside their sums.
#[derive(Clone, Debug, Default)]
struct Extras {
    spread: Option<Spread>,
    log: Option<SampleLog>,
}

/// The data that a counter keeps beside the sums by place.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Keep {
    /// Keeps counts apart by sample key.
    pub sample_keys: bool,
    /// Keeps the sums that statistical errors need.
    pub spread: bool,
    /// Keeps every sample with its time.
    pub log: bool,
}

/// One event's counts while they grow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counter {
    pairs: Option<Pairs>,
    counts: Dense,
    extras: Option<Box<Extras>>,
}

impl Counter {
    pub(crate) fn new(keep: Keep) -> Self {
        Counter {
            pairs: keep.sample_keys.then(Pairs::default),
            counts: Dense::default(),
            extras: (keep.spread || keep.log).then(|| {
                Box::new(Extras {
                    spread: keep.spread.then(Spread::default),
                    log: keep.log.then(SampleLog::default),
                })
            }),
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, sample_key: SampleKeyId, place: u32, hit: Hit) {
        let cell = match &mut self.pairs {
            None => place,
            Some(pairs) => pairs.intern((sample_key, place)),
        };
        if let Some(extras) = &mut self.extras {
            if let Some(spread) = &mut extras.spread {
                spread.add(&self.counts, cell, hit);
            }
            if let Some(log) = &mut extras.log {
                log.push(cell, hit);
            }
        }
        self.counts.add(
            cell,
            Count {
                samples: 1,
                weight: hit.weight,
            },
        );
    }

    /// Returns the number of cells.
    pub(crate) fn cells(&self) -> usize {
        self.counts.0.len()
    }

    /// Forgets the times of samples before `elapsed`, and of the oldest ones beyond `most`; see
    /// [`crate::LiveProfile::forget_samples`].
    pub(crate) fn forget_samples(&mut self, elapsed: u64, most: usize) -> u64 {
        let log = self.extras.as_mut().and_then(|extras| extras.log.as_mut());
        log.map_or(0, |log| log.forget(elapsed, most))
    }

    /// Returns the counts so far.
    pub(crate) fn frozen(&self) -> Counts {
        let extras = self.extras.as_deref();
        Counts {
            pairs: self
                .pairs
                .as_ref()
                .map(|pairs| Arc::new(pairs.list.clone())),
            counts: self.counts.clone(),
            spread: extras.and_then(|extras| extras.spread.clone()),
            log: extras.and_then(|extras| extras.log.clone()).map(Arc::new),
            span: (None, None),
            computed: Computed::default(),
        }
    }

    /// Drops the data that only growing needs.
    pub(crate) fn freeze(self) -> Counts {
        let extras = self.extras.map(|extras| *extras).unwrap_or_default();
        Counts {
            pairs: self.pairs.map(|pairs| Arc::new(pairs.list)),
            counts: self.counts,
            spread: extras.spread,
            log: extras.log.map(Arc::new),
            span: (None, None),
            computed: Computed::default(),
        }
    }
}

/// One event's counts, by cell. A cell is a place, or a pair of a sample key and a place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// The sample key and place of each cell; `None` where the cell id is the place.
    pairs: Option<Arc<Vec<(SampleKeyId, u32)>>>,
    counts: Dense,
    spread: Option<Spread>,
    log: Option<Arc<SampleLog>>,
    /// The span of the log whose samples are in the counts. The span also holds samples of cells that count nothing.
    span: Span,
    pub(super) computed: Computed,
}

/// A unit of counting: the samples of one key at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub id: u32,
    /// The key of the samples; [`crate::counts::sample_keys::WHOLE`] where sample keys were not asked for.
    pub sample_key: SampleKeyId,
    pub place: u32,
}

impl Counts {
    /// Returns the cell with this id.
    #[inline]
    pub(crate) fn cell(&self, id: u32) -> Cell {
        let (sample_key, place) = match &self.pairs {
            Some(pairs) => pairs[id as usize],
            None => (crate::counts::sample_keys::WHOLE, id),
        };
        Cell {
            id,
            sample_key,
            place,
        }
    }

    /// Returns the count of a cell.
    #[inline]
    pub(crate) fn get(&self, id: u32) -> Count {
        self.counts.get(id)
    }

    /// Returns all cells with counts.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Cell, Count)> + '_ {
        self.counts.iter().map(|(id, count)| (self.cell(id), count))
    }

    /// Returns the estimated number of events of a cell, with its error.
    pub(crate) fn estimate(&self, id: u32) -> Estimate {
        let count = self.counts.get(id);
        match &self.spread {
            Some(spread) => spread.estimate(id, count),
            None => Estimate::of(count),
        }
    }

    /// Returns whether weights were scaled because counters shared a hardware counter.
    pub(crate) fn is_scaled(&self) -> bool {
        self.spread.as_ref().is_some_and(Spread::is_scaled)
    }

    /// Returns whether [`Counts::estimate`] knows every sample's weight.
    pub(crate) fn knows_spread(&self) -> bool {
        self.spread.is_some()
    }

    /// Returns the range of time to which the counts are restricted.
    pub(crate) fn span(&self) -> Span {
        self.span
    }

    /// Returns whether each sample is known with its time.
    pub(crate) fn has_log(&self) -> bool {
        self.log.is_some()
    }

    /// Calls `visit` with the cell of every counted sample in the order of the file; nothing without a log.
    pub(crate) fn samples(&self, mut visit: impl FnMut(u32, Hit)) {
        if let Some(log) = &self.log {
            log.visit(self.span, |cell, hit| {
                if !self.counts.get(cell).is_zero() {
                    visit(cell, hit);
                }
            });
        }
    }

    /// Keeps only the counts of cells that pass `keep`.
    pub(crate) fn retain(&mut self, keep: impl Fn(Cell) -> bool) {
        let mut counts = std::mem::take(&mut self.counts);
        counts.retain_counted(|id| keep(self.cell(id)));
        self.counts = counts;
        self.computed = Computed::default();
    }

    /// Returns the counts of the samples within `span` whose cells pass `keep`. A bounded span needs the log; without
    /// it the result is empty.
    pub(crate) fn select(&self, span: Span, keep: impl Fn(Cell) -> bool) -> Counts {
        if !is_bounded(span) {
            let mut selected = self.clone();
            selected.retain(keep);
            return selected;
        }
        let wanted: Vec<bool> = (0_u32..)
            .zip(&self.counts.0)
            .map(|(id, count)| !count.is_zero() && keep(self.cell(id)))
            .collect();
        let span = meet(self.span, span);
        let mut selected = Counts {
            pairs: self.pairs.clone(),
            counts: Dense(vec![Count::default(); self.counts.0.len()]),
            spread: self.spread.as_ref().map(|_| Spread::default()),
            log: self.log.clone(),
            span,
            computed: Computed::default(),
        };
        if let Some(log) = &self.log {
            log.visit(span, |cell, hit| {
                if !wanted[cell as usize] {
                    return;
                }
                if let Some(spread) = &mut selected.spread {
                    spread.add(&selected.counts, cell, hit);
                }
                selected.counts.add(
                    cell,
                    Count {
                        samples: 1,
                        weight: hit.weight,
                    },
                );
            });
        }
        selected
    }

    /// Returns the sum of all cells.
    pub(crate) fn total(&self) -> Count {
        let mut total = Count::default();
        self.counts.iter().for_each(|(_, count)| total.add(count));
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit(weight: u64, elapsed: u64) -> Hit {
        Hit {
            weight,
            elapsed: Some(elapsed),
            factor: 1.0,
            in_kernel: false,
        }
    }

    fn list(counts: &Counts) -> Vec<(u32, u32, u64, u64)> {
        counts
            .iter()
            .map(|(cell, count)| (cell.sample_key, cell.place, count.samples, count.weight))
            .collect()
    }

    #[test]
    fn sums_by_place_and_by_pair() {
        for sample_keys in [false, true] {
            let mut counter = Counter::new(Keep {
                sample_keys,
                ..Keep::default()
            });
            for place in [3, 0, 3] {
                counter.add(9, place, hit(7, 0));
            }
            let sample_key = if sample_keys {
                9
            } else {
                crate::counts::sample_keys::WHOLE
            };
            let mut cells = list(&counter.freeze());
            cells.sort_unstable();
            assert_eq!(cells, [(sample_key, 0, 1, 7), (sample_key, 3, 2, 14)]);
        }
    }

    #[test]
    fn selections_of_selections() {
        let mut counter = Counter::new(Keep {
            sample_keys: true,
            spread: true,
            log: true,
        });
        for (time, weight) in (0..100).zip([1, 2, 3, 4].into_iter().cycle()) {
            counter.add((time % 3) as u32, (time % 2) as u32, hit(weight, time));
        }
        let counts = counter.freeze();
        let sum = |counts: &Counts| (counts.total().samples, counts.total().weight);
        assert_eq!(sum(&counts), (100, 250));
        let late = counts.select((Some(40), None), |_| true);
        assert_eq!(sum(&late), (60, 150));
        // Samples that an earlier selection left out stay out.
        let even = late.select((None, None), |cell| cell.place == 0);
        assert_eq!(sum(&even), (30, 15 + 45));
        let middle = even.select((Some(10), Some(44)), |cell| cell.sample_key != 0);
        // 40 and 42 are even, 42 is divisible by 3.
        assert_eq!(sum(&middle), (1, 1));
        let mut left = 0;
        middle.samples(|_, hit| left += hit.weight);
        assert_eq!(left, 1);
    }

    #[test]
    fn hostile_periods_do_not_overflow() {
        let mut count = Count::default();
        for _ in 0..3 {
            count.add(Count {
                samples: 1,
                weight: u64::MAX,
            });
        }
        assert_eq!(
            count,
            Count {
                samples: 3,
                weight: u64::MAX
            }
        );
    }
}
