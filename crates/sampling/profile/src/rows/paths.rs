//! The functions on the way to each stack: far fewer than stacks where functions call themselves, or call from many
//! places.

use crate::counts::counter::Count;
use crate::naming::names::{FunctionId, Names};
use crate::profile::{EventProfile, Profile};
use crate::stacks::call_stacks::{StackNode, Stacks};
use crate::stacks::slots::Slots;

/// A function, and the path of its callers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathNode {
    /// Always smaller than the path's own number; 0 is the empty path.
    pub parent: u32,
    pub function: FunctionId,
}

/// All paths of a profile's stacks.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    nodes: Vec<PathNode>,
    ids: Slots,
    /// By stack whose innermost frame executes.
    of_stack: Vec<u32>,
}

/// So many stacks tell whether there are fewer paths.
const TRIED: usize = 1 << 16;

impl Paths {
    /// The paths of all stacks; `None` where they are not much fewer than the stacks, so that they would only cost.
    pub(crate) fn fewer(profile: &Profile, names: &Names) -> Option<Paths> {
        let stacks = profile.stacks();
        let mut paths = Paths {
            nodes: vec![PathNode {
                parent: 0,
                function: FunctionId::MAX,
            }],
            ids: Slots::default(),
            of_stack: Vec::with_capacity(stacks.len()),
        };
        paths.of_stack.push(0);
        // The same where the frame has called another: other functions may be inlined there.
        let mut calling = vec![0];
        for id in 1..stacks.len() {
            if id % TRIED == 0 && paths.nodes.len() > id / 4 {
                return None;
            }
            // Ids fit, since the stacks gave them.
            let StackNode { parent, frame } = stacks.get(u32::try_from(id).unwrap_or(u32::MAX));
            let is_called = names.has_inlined()
                && parent != Stacks::ROOT
                && !names.is_interrupted(stacks.get(parent).frame, frame);
            let start = match is_called {
                true => calling[parent as usize],
                false => paths.of_stack[parent as usize],
            };
            let path = paths.below(start, names.chain_of(frame, None));
            paths.of_stack.push(path);
            if names.has_inlined() {
                let path = paths.below(start, names.chain_of_caller(frame));
                calling.push(path);
            }
        }
        paths.ids = Slots::default();
        Some(paths)
    }

    /// The path that goes on from `start` with functions, the innermost one given first.
    fn below(&mut self, start: u32, functions: &[FunctionId]) -> u32 {
        functions.iter().rev().fold(start, |parent, function| {
            // No more paths than stacks and the functions inlined there.
            let next = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX - 1);
            let id = self.ids.get_or_insert((u64::from(parent), *function), next);
            if id == next {
                self.nodes.push(PathNode {
                    parent,
                    function: *function,
                });
            }
            id
        })
    }

    /// The innermost function of a path that is not the empty one, and the path of its callers.
    #[inline]
    pub(crate) fn get(&self, path: u32) -> PathNode {
        self.nodes[path as usize]
    }

    /// The counts of an event by path, those that count anything.
    pub(crate) fn counts(
        &self,
        profile: &Profile,
        event: &EventProfile,
    ) -> impl Iterator<Item = (u32, Count)> + use<> {
        let mut counts = vec![Count::default(); self.nodes.len()];
        profile.places(event, |stack, count| {
            counts[self.of_stack[stack as usize] as usize].add(count);
        });
        (0_u32..).zip(counts).filter(|(_, count)| !count.is_zero())
    }
}
