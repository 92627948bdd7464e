//! Every sample with its time, in columns, so that any range of time can be counted again without reading the file.

use crate::counts::counter::Hit;

/// A span of nanoseconds since the recording's first sample: the start, which is included, and the end, which is not.
pub(crate) type Span = (Option<u64>, Option<u64>);

/// Returns whether a span leaves anything out.
pub(crate) fn is_bounded(span: Span) -> bool {
    span != (None, None)
}

/// Returns the intersection of two spans.
pub(crate) fn meet(one: Span, other: Span) -> Span {
    let from = match (one.0, other.0) {
        (Some(one), Some(other)) => Some(one.max(other)),
        (one, other) => one.or(other),
    };
    let to = match (one.1, other.1) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    };
    (from, to)
}

/// Consecutive samples whose times lie less than 2^32 nanoseconds after the first one's, and not before it.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// The row of its first sample.
    first: usize,
    /// Nanoseconds since the recording's first sample; `None` for samples without a time.
    base: Option<u64>,
    /// The largest offset from `base` within the block.
    last: u32,
}

/// The weights of all samples. Most recordings need only one value, or few bits for each.
#[derive(Clone, Debug, Default)]
enum Weights {
    #[default]
    None,
    /// All samples weigh the same.
    Constant(u64),
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
}

impl Weights {
    /// Adds the weight of the sample in `row`, which is the next row.
    fn push(&mut self, row: usize, weight: u64) {
        match self {
            Weights::None => *self = Weights::Constant(weight),
            Weights::Constant(constant) if *constant == weight => {}
            Weights::Constant(constant) => {
                let constant = *constant;
                *self = match (u32::try_from(constant), u32::try_from(weight)) {
                    (Ok(constant), Ok(_)) => Weights::Narrow(vec![constant; row]),
                    _ => Weights::Wide(vec![constant; row]),
                };
                self.push(row, weight);
            }
            Weights::Narrow(list) => match u32::try_from(weight) {
                Ok(weight) => list.push(weight),
                Err(_) => {
                    let mut wide: Vec<u64> = list.iter().map(|weight| u64::from(*weight)).collect();
                    wide.push(weight);
                    *self = Weights::Wide(wide);
                }
            },
            Weights::Wide(list) => list.push(weight),
        }
    }

    /// Forgets the weights of the first rows.
    fn forget(&mut self, rows: usize) {
        match self {
            Weights::None | Weights::Constant(_) => {}
            Weights::Narrow(list) => drop(list.drain(..rows)),
            Weights::Wide(list) => drop(list.drain(..rows)),
        }
    }

    #[inline]
    fn get(&self, row: usize) -> u64 {
        match self {
            Weights::None => 0,
            Weights::Constant(constant) => *constant,
            Weights::Narrow(list) => u64::from(list[row]),
            Weights::Wide(list) => list[row],
        }
    }
}

/// The samples of one event in the order in which they were read. Each takes 8 bytes, 4 or 8 more where weights differ,
/// and 8 more where weights were scaled.
#[derive(Clone, Debug, Default)]
pub(crate) struct SampleLog {
    blocks: Vec<Block>,
    /// Nanoseconds since the block's base, by row.
    offsets: Vec<u32>,
    cells: Vec<u32>,
    weights: Weights,
    /// The factors by row; empty while all are 1.
    factors: Vec<f64>,
}

impl SampleLog {
    pub(crate) fn push(&mut self, cell: u32, hit: Hit) {
        let row = self.offsets.len();
        let offset = match (self.blocks.last_mut(), hit.elapsed) {
            (Some(Block { base: None, .. }), None) => Some(0),
            (
                Some(Block {
                    base: Some(base),
                    last,
                    ..
                }),
                Some(elapsed),
            ) => {
                let offset = elapsed
                    .checked_sub(*base)
                    .and_then(|offset| u32::try_from(offset).ok());
                if let Some(offset) = offset {
                    *last = offset.max(*last);
                }
                offset
            }
            _ => None,
        };
        let offset = offset.unwrap_or_else(|| {
            self.blocks.push(Block {
                first: row,
                base: hit.elapsed,
                last: 0,
            });
            0
        });
        self.offsets.push(offset);
        self.cells.push(cell);
        self.weights.push(row, hit.weight);
        if hit.factor != 1.0 && self.factors.is_empty() {
            self.factors = vec![1.0; row];
        }
        if hit.factor != 1.0 || !self.factors.is_empty() {
            self.factors.push(hit.factor);
        }
    }

    /// Forgets the samples at the front that were taken before `elapsed`, once they are half of all, and the oldest samples
    /// beyond `most`. Returns the number of younger samples that were forgotten because of `most`.
    pub(crate) fn forget(&mut self, elapsed: u64, most: usize) -> u64 {
        let length = self.offsets.len();
        let mut old = 0;
        for (index, block) in self.blocks.iter().enumerate() {
            let next = self.blocks.get(index + 1);
            let end = next.map_or(length, |next| next.first);
            let is_old = |row: &usize| {
                let offset = u64::from(self.offsets[*row]);
                block
                    .base
                    .is_some_and(|base| base.saturating_add(offset) < elapsed)
            };
            old += (block.first..end).take_while(is_old).count();
            if old < end {
                break;
            }
        }
        let beyond = length.saturating_sub(most);
        if old * 2 < length && beyond == 0 {
            return 0;
        }
        let rows = old.max(beyond);
        self.offsets.drain(..rows);
        self.cells.drain(..rows);
        self.weights.forget(rows);
        if !self.factors.is_empty() {
            self.factors.drain(..rows);
        }
        let kept = self.blocks.partition_point(|block| block.first <= rows);
        // The block that holds the first kept row loses rows at its front only.
        self.blocks.drain(..kept.saturating_sub(1));
        for block in &mut self.blocks {
            block.first = block.first.saturating_sub(rows);
        }
        if rows == length {
            self.blocks.clear();
        }
        beyond.saturating_sub(old) as u64
    }

    /// Calls `visit` with the cell of every sample within `span`, in the order in which the samples were read.
    #[inline]
    pub(crate) fn visit(&self, span: Span, mut visit: impl FnMut(u32, Hit)) {
        let (from, to) = (span.0.unwrap_or(0), span.1.unwrap_or(u64::MAX));
        let within = |time: u64| from <= time && (time < to || span.1.is_none());
        for (index, block) in self.blocks.iter().enumerate() {
            let end = self
                .blocks
                .get(index + 1)
                .map_or(self.offsets.len(), |next| next.first);
            let mut all = !is_bounded(span);
            if let (false, Some(base)) = (all, block.base) {
                let last = base.saturating_add(u64::from(block.last));
                if last < from || (span.1.is_some() && base >= to) {
                    continue;
                }
                all = within(base) && within(last);
            }
            for row in block.first..end {
                let elapsed = block
                    .base
                    .map(|base| base.saturating_add(u64::from(self.offsets[row])));
                if !all && !elapsed.is_some_and(within) {
                    continue;
                }
                let hit = Hit {
                    weight: self.weights.get(row),
                    elapsed,
                    // The list is empty or covers all rows, because a late start fills in the rows before.
                    factor: self.factors.get(row).copied().unwrap_or(1.0),
                    in_kernel: false,
                };
                visit(self.cells[row], hit);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(log: &SampleLog, span: Span) -> Vec<(u32, u64, Option<u64>, f64)> {
        let mut rows = Vec::new();
        log.visit(span, |cell, hit| {
            rows.push((cell, hit.weight, hit.elapsed, hit.factor));
        });
        rows
    }

    #[test]
    fn every_order_of_times_and_size_of_weights_comes_back() {
        let far = 1_u64 << 33;
        let times = [
            Some(5),
            Some(3),
            None,
            None,
            Some(far),
            Some(far + 1),
            Some(7),
            Some(u64::MAX),
            Some(0),
        ];
        let weights: [&[u64]; 4] = [&[9], &[9, 10], &[9, far], &[9, 9, 10, u64::MAX]];
        for weights in weights {
            let mut log = SampleLog::default();
            let mut expected = Vec::new();
            for (row, time) in times.into_iter().enumerate() {
                let weight = *weights.get(row).unwrap_or(&weights[weights.len() - 1]);
                let factor = if row > 4 { 1.5 } else { 1.0 };
                let hit = Hit {
                    weight,
                    elapsed: time,
                    factor,
                    in_kernel: false,
                };
                log.push(row as u32, hit);
                expected.push((row as u32, weight, time, factor));
            }
            assert_eq!(rows(&log, (None, None)), expected);
            for span in [
                (Some(0), None),
                (Some(4), Some(far + 1)),
                (None, Some(u64::MAX)),
                (Some(u64::MAX), None),
                (Some(8), Some(8)),
            ] {
                let within: Vec<_> = expected
                    .iter()
                    .filter(|row| {
                        row.2.is_some_and(|time| {
                            span.0.is_none_or(|from| from <= time)
                                && span.1.is_none_or(|to| time < to)
                        })
                    })
                    .copied()
                    .collect();
                assert_eq!(rows(&log, span), within, "{span:?}");
            }
        }
    }

    #[test]
    fn old_samples_are_forgotten_from_the_front() {
        let second = 1_000_000_000;
        for varying in [false, true] {
            let mut log = SampleLog::default();
            let mut expected = Vec::new();
            for index in 0..1000_u64 {
                let hit = Hit {
                    weight: if varying { index % 7 } else { 3 },
                    elapsed: Some(index * second / 10),
                    factor: if varying { 2.0 } else { 1.0 },
                    in_kernel: false,
                };
                log.push(index as u32, hit);
                expected.push((index as u32, hit.weight, hit.elapsed, hit.factor));
            }
            // Less than half of them are old.
            assert_eq!(log.forget(40 * second, usize::MAX), 0);
            assert_eq!(rows(&log, (None, None)), expected);
            assert_eq!(log.forget(60 * second, usize::MAX), 0);
            assert_eq!(rows(&log, (None, None)), expected[600..]);
            let span = (Some(70 * second), Some(71 * second));
            assert_eq!(rows(&log, span), expected[700..710]);
            assert_eq!(log.forget(60 * second, 150), 250);
            assert_eq!(rows(&log, (None, None)), expected[850..]);
            assert_eq!(log.forget(1000 * second, usize::MAX), 0);
            assert_eq!(rows(&log, (None, None)), []);
            log.push(
                7,
                Hit {
                    weight: 1,
                    elapsed: Some(5),
                    factor: 1.0,
                    in_kernel: false,
                },
            );
            assert_eq!(rows(&log, (None, None)).len(), 1);
        }
    }

    #[test]
    fn spans_meet() {
        assert_eq!(
            meet((Some(1), None), (Some(3), Some(9))),
            (Some(3), Some(9))
        );
        assert_eq!(meet((None, Some(5)), (None, Some(9))), (None, Some(5)));
        assert!(!is_bounded(meet((None, None), (None, None))));
    }
}
