//! Many walks down the prefix tree of stacks, taken at the same time.
//!
//! Each step of a walk reads a place in memory that only the step before reveals, usually far away. The walks of
//! different samples take their steps in turn, so that the memory for a walk's next step is fetched meanwhile.

use crate::stacks::call_stacks::{StackId, Stacks};
use crate::stacks::frames::{Frame, FrameId, Frames};

/// A stack that is known, or that the walks will find.
#[derive(Clone, Copy, Debug)]
pub(crate) enum At {
    Known(StackId),
    /// The stack that ends with this frame of the walks.
    Frame(u32),
}

impl At {
    /// The empty stack.
    pub(crate) const ROOT: At = At::Known(Stacks::ROOT);

    #[inline]
    fn stack(self, stacks: &[StackId]) -> StackId {
        match self {
            At::Known(stack) => stack,
            At::Frame(frame) => stacks[frame as usize],
        }
    }
}

/// The start of a walk: a stack, and the number of its frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    pub at: At,
    pub depth: u32,
}

impl Start {
    pub(crate) const ROOT: Start = Start {
        at: At::ROOT,
        depth: 0,
    };
}

#[derive(Clone, Copy, Debug)]
struct Walk {
    start: Start,
    /// The range of its own frames.
    first: u32,
    end: u32,
}

/// Walks that wait to be taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Walks {
    list: Vec<Walk>,
    /// The frames of all walks, outermost first within each walk.
    frames: Vec<Frame>,
    /// The frame ids, by frame.
    ids: Vec<FrameId>,
    /// By frame: the stack from the outermost frame down to this one.
    stacks: Vec<StackId>,
}

impl Walks {
    /// Returns the number of waiting walks.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns the number of frames of the waiting walks.
    #[inline]
    pub(crate) fn frames(&self) -> u32 {
        // So few walks wait that the number fits.
        self.frames.len() as u32
    }

    /// Begins a walk, which [`Walks::step`] continues.
    #[inline]
    pub(crate) fn begin(&mut self, start: Start) {
        let first = self.frames();
        self.list.push(Walk {
            start,
            first,
            end: first,
        });
    }

    /// Extends the walk that began last by a frame. Returns the place that the walk leads to.
    #[inline]
    pub(crate) fn step(&mut self, frame: Frame, frames: &Frames) -> At {
        frames.prefetch(frame);
        let at = At::Frame(self.frames());
        self.frames.push(frame);
        if let Some(walk) = self.list.last_mut() {
            walk.end += 1;
        }
        at
    }

    /// Takes all walks. They stay in the list until [`Walks::clear`].
    pub(crate) fn go(&mut self, stacks: &mut Stacks, frames: &mut Frames) {
        self.ids.clear();
        self.ids
            .extend(self.frames.iter().map(|frame| frames.intern(*frame)));
        self.stacks.clear();
        self.stacks.resize(self.frames.len(), Stacks::ROOT);
        let depths = self.list.iter().map(|walk| walk.start.depth);
        let least = depths.min().unwrap_or(0);
        for walk in self.list.iter().filter(|walk| walk.start.depth == least) {
            self.prefetch_first(walk, stacks);
        }
        let mut left: usize = self.frames.len();
        let mut depth = least;
        // A walk that starts within another walk starts at a smaller depth than the depth at which it continues.
        while left > 0 {
            for walk in &self.list {
                let Some(step) = depth.checked_sub(walk.start.depth) else {
                    if walk.start.depth == depth + 1 {
                        self.prefetch_first(walk, stacks);
                    }
                    continue;
                };
                let at = walk.first as usize + step as usize;
                if at >= walk.end as usize {
                    continue;
                }
                let parent = match step {
                    0 => walk.start.at.stack(&self.stacks),
                    _ => self.stacks[at - 1],
                };
                let stack = stacks.child(parent, self.ids[at]);
                self.stacks[at] = stack;
                if at + 1 < walk.end as usize {
                    stacks.prefetch(stack, self.ids[at + 1]);
                }
                left -= 1;
            }
            depth += 1;
        }
    }

    #[inline]
    fn prefetch_first(&self, walk: &Walk, stacks: &Stacks) {
        if walk.first < walk.end {
            let parent = walk.start.at.stack(&self.stacks);
            stacks.prefetch(parent, self.ids[walk.first as usize]);
        }
    }

    /// Returns the stack of a place, after all walks are taken.
    #[inline]
    pub(crate) fn stack(&self, at: At) -> StackId {
        at.stack(&self.stacks)
    }

    /// Returns the stack that a walk led to.
    #[inline]
    pub(crate) fn end(&self, index: usize) -> StackId {
        let walk = self.list[index];
        if walk.first == walk.end {
            walk.start.at.stack(&self.stacks)
        } else {
            self.stacks[walk.end as usize - 1]
        }
    }

    /// Forgets all walks.
    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.frames.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(address: u64) -> Frame {
        Frame { address, module: 0 }
    }

    #[test]
    fn walks_start_where_others_come_by() {
        let mut walks = Walks::default();
        let (mut stacks, mut frames) = (Stacks::default(), Frames::default());
        walks.begin(Start::ROOT);
        let ats: Vec<At> = (1..5).map(|at| walks.step(frame(at), &frames)).collect();
        // One walk turns off after two frames, one ends there, and one continues the walk that turned off.
        let start = Start {
            at: ats[1],
            depth: 2,
        };
        walks.begin(start);
        let other = walks.step(frame(9), &frames);
        walks.begin(start);
        walks.begin(Start {
            at: other,
            depth: 3,
        });
        walks.step(frame(7), &frames);
        walks.begin(Start::ROOT);
        walks.go(&mut stacks, &mut frames);
        let path = |stack| -> Vec<u64> {
            let ids: Vec<FrameId> = stacks.frames(stack).collect();
            ids.iter().map(|id| frames.get(*id).address).collect()
        };
        let ends: Vec<StackId> = (0..walks.len()).map(|index| walks.end(index)).collect();
        assert_eq!(path(ends[0]), [4, 3, 2, 1]);
        assert_eq!(path(ends[1]), [9, 2, 1]);
        assert_eq!(path(ends[2]), [2, 1]);
        assert_eq!(path(ends[3]), [7, 9, 2, 1]);
        assert_eq!(ends[4], Stacks::ROOT);
        assert_eq!(walks.stack(other), ends[1]);
        assert_eq!(stacks.len(), 7);
        walks.clear();
        assert_eq!((walks.len(), walks.frames()), (0, 0));
    }
}
