//! The cells of each innermost frame, so that the counts of one function need no walk through all cells.

use super::counter::{Count, Counts};
use super::estimate::Estimate;
use crate::FrameId;
use std::sync::{Arc, OnceLock};

/// The cells that count something, by the innermost frame of their place.
#[derive(Debug)]
pub(crate) struct CellsByLeaf {
    /// The index of each frame's first cell in `cells`, and the number of all cells at the end.
    firsts: Vec<u32>,
    cells: Vec<u32>,
}

impl CellsByLeaf {
    /// Sorts the cells of `counts`, of which `leaf` returns the innermost frame of a place. There are `frames` frames.
    fn of(counts: &Counts, frames: usize, leaf: impl Fn(u32) -> FrameId) -> CellsByLeaf {
        let counted = || counts.iter().filter(|(_, count)| !count.is_zero());
        let mut firsts = vec![0_u32; frames + 1];
        for (cell, _) in counted() {
            firsts[leaf(cell.place) as usize + 1] += 1;
        }
        for frame in 0..frames {
            firsts[frame + 1] += firsts[frame];
        }
        let mut next = firsts.clone();
        let mut cells = vec![0; firsts[frames] as usize];
        for (cell, _) in counted() {
            let next = &mut next[leaf(cell.place) as usize];
            cells[*next as usize] = cell.id;
            *next += 1;
        }
        CellsByLeaf { firsts, cells }
    }

    /// Returns the cells whose place ends in `frame`, in rising order.
    pub(crate) fn cells(&self, frame: FrameId) -> &[u32] {
        let frame = frame as usize;
        match (self.firsts.get(frame), self.firsts.get(frame + 1)) {
            (Some(first), Some(end)) => &self.cells[*first as usize..*end as usize],
            _ => &[],
        }
    }
}

/// Values that are computed from counts on first use, and kept.
#[derive(Clone, Debug, Default)]
pub(super) struct Computed {
    by_leaf: OnceLock<Arc<CellsByLeaf>>,
    own: OnceLock<Arc<[(FrameId, Count)]>>,
    estimate: OnceLock<Estimate>,
}

impl Counts {
    /// Returns the cells by innermost frame. `frames` and `leaf` must be the same in every call.
    pub(crate) fn by_leaf(&self, frames: usize, leaf: impl Fn(u32) -> FrameId) -> &CellsByLeaf {
        let computed = &self.computed.by_leaf;
        computed.get_or_init(|| Arc::new(CellsByLeaf::of(self, frames, leaf)))
    }

    /// Returns the sum of the cells of each innermost frame that has samples, in rising order. `frames` and `leaf` must be
    /// the same in every call.
    pub(crate) fn own(&self, frames: usize, leaf: impl Fn(u32) -> FrameId) -> &[(FrameId, Count)] {
        self.computed.own.get_or_init(|| {
            let mut own = vec![Count::default(); frames];
            for (cell, count) in self.iter() {
                own[leaf(cell.place) as usize].add(count);
            }
            let own = (0..).zip(own).filter(|(_, count)| !count.is_zero());
            own.collect()
        })
    }

    /// Returns the estimated number of events of all cells, with its error.
    pub(crate) fn total_estimate(&self) -> Estimate {
        *self.computed.estimate.get_or_init(|| {
            let mut total = Estimate::default();
            for (cell, _) in self.iter() {
                total.add(self.estimate(cell.id));
            }
            total
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::counter::{Counter, Hit, Keep};

    /// Places 0 to 5 end in the frames 0 to 2, two places in each.
    fn leaf(place: u32) -> FrameId {
        place / 2
    }

    #[test]
    fn kept_values_follow_the_counts() {
        let mut counter = Counter::new(Keep::default());
        for (place, weight) in [(0, 1), (1, 10), (5, 100), (0, 1000)] {
            let hit = Hit {
                weight,
                elapsed: None,
                factor: 1.0,
                in_kernel: false,
            };
            counter.add(0, place, hit);
        }
        let mut counts = counter.freeze();
        let count = |samples, weight| Count { samples, weight };
        assert_eq!(
            counts.own(3, leaf),
            [(0, count(3, 1011)), (2, count(1, 100))]
        );
        let by_leaf = counts.by_leaf(3, leaf);
        assert_eq!(by_leaf.cells(0), [0, 1]);
        assert_eq!(by_leaf.cells(2), [5]);
        for frame in [1, 3, u32::MAX] {
            assert!(by_leaf.cells(frame).is_empty(), "{frame}");
        }
        assert_eq!(counts.total_estimate().value, 1111.0);
        // Kept values of the old counts must not survive.
        counts.retain(|cell| cell.place != 0);
        assert_eq!(counts.own(3, leaf), [(0, count(1, 10)), (2, count(1, 100))]);
        assert_eq!(counts.by_leaf(3, leaf).cells(0), [1]);
        assert_eq!(counts.total_estimate().value, 110.0);
        let kept = counts.select((None, None), |cell| cell.place == 5);
        assert_eq!(kept.own(3, leaf), [(2, count(1, 100))]);
        assert_eq!(kept.total_estimate().value, 100.0);
    }
}
