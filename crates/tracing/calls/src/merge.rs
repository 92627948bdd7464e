//! The merge of many streams in time order.

use crate::{StreamWalk, WalkStep};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A step with a time.
pub trait Timed {
    /// Returns the time, `CLOCK_MONOTONIC` in nanoseconds.
    fn time(&self) -> u64;
}

impl Timed for WalkStep {
    fn time(&self) -> u64 {
        WalkStep::time(self)
    }
}

/// An iterator over the steps of many streams in time order, each with the stream's index in the given list. Steps of
/// the same nanosecond come in the streams' order.
///
/// A stream that runs alone for a long stretch costs one comparison a step.
pub struct Merge<W: Iterator> {
    walks: Vec<W>,
    /// The stream at work and its next step. It may go on until the time of the first one in `waiting`.
    current: Option<(usize, W::Item)>,
    /// The next steps of the other streams, by time.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    next: Vec<Option<W::Item>>,
}

impl<'t> Merge<StreamWalk<'t>> {
    /// Returns the merge of these walks.
    pub fn new(walks: Vec<StreamWalk<'t>>) -> Self {
        Merge::of(walks)
    }
}

impl<W: Iterator> Merge<W>
where
    W::Item: Timed,
{
    /// Returns the merge of iterators over steps whose times do not decrease.
    pub fn of(mut walks: Vec<W>) -> Self {
        let mut next: Vec<Option<W::Item>> = walks.iter_mut().map(Iterator::next).collect();
        let mut waiting: BinaryHeap<Reverse<(u64, usize)>> = next
            .iter()
            .enumerate()
            .filter_map(|(place, step)| Some(Reverse((step.as_ref()?.time(), place))))
            .collect();
        let current = waiting
            .pop()
            .and_then(|Reverse((_, place))| Some((place, next[place].take()?)));
        Merge {
            walks,
            current,
            waiting,
            next,
        }
    }

    /// Returns the walks, for what they know at the end.
    pub fn walks(&self) -> &[W] {
        &self.walks
    }

    /// Returns the next step without taking it.
    #[inline]
    pub fn peek(&self) -> Option<&(usize, W::Item)> {
        self.current.as_ref()
    }
}

impl<W: Iterator> Iterator for Merge<W>
where
    W::Item: Timed,
{
    type Item = (usize, W::Item);

    #[inline]
    fn next(&mut self) -> Option<(usize, W::Item)> {
        let (place, step) = self.current.take()?;
        let following = self.walks[place].next();
        let other = self.waiting.peek().map(|Reverse(first)| *first);
        self.current = match (following, other) {
            (Some(step), None) => Some((place, step)),
            (Some(step), Some(other)) if (step.time(), place) <= other => Some((place, step)),
            (following, _) => {
                let changed = self.waiting.pop();
                if let Some(step) = following {
                    self.waiting.push(Reverse((step.time(), place)));
                    self.next[place] = Some(step);
                }
                changed.and_then(|Reverse((_, place))| Some((place, self.next[place].take()?)))
            }
        };
        Some((place, step))
    }
}
