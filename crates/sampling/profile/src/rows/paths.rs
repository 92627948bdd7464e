//! The path of functions to each stack. There are far fewer paths than stacks where functions call themselves, or call
//! from many places.

use crate::counts::counter::Count;
use crate::naming::names::{FunctionId, Names};
use crate::profile::{EventProfile, Profile};
use crate::stacks::call_stacks::{StackNode, Stacks};
use crate::stacks::slots::Slots;

/// A function, and the path of its callers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathNode {
    /// The number of the path of the callers. It is always smaller than the path's own number; 0 is the empty path.
    pub parent: u32,
    pub function: FunctionId,
}

/// All paths of a profile's stacks.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    nodes: Vec<PathNode>,
    ids: Slots,
    /// By stack: its path, if the stack's innermost frame executes itself.
    of_stack: Vec<u32>,
}

/// The number of stacks after which it is checked whether there are fewer paths.
const TRIED: usize = 1 << 16;

impl Paths {
    /// Returns the paths of all stacks; `None` where they are not much fewer than the stacks and would not pay off.
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
        // The path of each stack whose innermost frame has made a call, because other functions may be inlined at the
        // call.
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

    /// Returns the path that extends `start` by functions, which are given innermost first.
    fn below(&mut self, start: u32, functions: &[FunctionId]) -> u32 {
        functions.iter().rev().fold(start, |parent, function| {
            // The number of paths is at most the number of stacks and the functions inlined there.
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

    /// Returns the innermost function of a path other than the empty path, and the path of its callers.
    #[inline]
    pub(crate) fn get(&self, path: u32) -> PathNode {
        self.nodes[path as usize]
    }

    /// Returns the counts of an event by path, without zero counts.
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
