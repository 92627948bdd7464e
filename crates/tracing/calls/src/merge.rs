//! Many streams at once, in time order.

use crate::{Step, Walk};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Something that happens at a time.
pub trait Timed {
    /// When, `CLOCK_MONOTONIC` in nanoseconds.
    fn time(&self) -> u64;
}

impl Timed for Step {
    fn time(&self) -> u64 {
        Step::time(self)
    }
}

/// Goes through many streams at once: an iterator over their steps with the stream's place in the list given, in time
/// order; what happens at the same nanosecond comes in the streams' order.
///
/// Streams that run long stretches alone cost a comparison a step.
pub struct Merge<W: Iterator> {
    walks: Vec<W>,
    /// The stream at work, its next step, and until when it may go on before another has to be looked at.
    current: Option<(usize, W::Item)>,
    /// The next steps of the others, by time.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    next: Vec<Option<W::Item>>,
}

impl<'t> Merge<Walk<'t>> {
    /// Of these walks.
    pub fn new(walks: Vec<Walk<'t>>) -> Self {
        Merge::of(walks)
    }
}

impl<W: Iterator> Merge<W>
where
    W::Item: Timed,
{
    /// Of anything that gives steps whose times do not decrease.
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

    /// The walks, for what they know at the end.
    pub fn walks(&self) -> &[W] {
        &self.walks
    }

    /// What comes next, without taking it.
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
