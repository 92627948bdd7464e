//! Stacks as paths of functions. Two call sites of one caller are the same path.

use crate::counts::counter::Count;
use crate::hash::FxBuildHasher;
use crate::naming::names::{FunctionId, Names};
use crate::profile::Profile;
use crate::stacks::call_stacks::Stacks;
use hashbrown::HashMap;

/// The path of functions to each stack of a profile, without inlined functions.
#[derive(Clone, Debug)]
pub struct FunctionPaths {
    /// The paths: each is the path of its caller, which has a smaller number, and the called function. The first is the
    /// empty path.
    nodes: Vec<(u32, FunctionId)>,
    /// The path of each stack.
    of_stack: Vec<u32>,
}

impl FunctionPaths {
    /// The path without functions.
    pub const EMPTY: u32 = 0;

    /// Returns the paths of all stacks; `None` where stacks were not loaded.
    pub fn new(profile: &Profile, names: &Names) -> Option<FunctionPaths> {
        if !profile.options().call_chains {
            return None;
        }
        let stacks = profile.stacks();
        let mut ids: HashMap<(u32, FunctionId), u32, FxBuildHasher> = HashMap::default();
        let mut paths = FunctionPaths {
            nodes: vec![(Self::EMPTY, FunctionId::MAX)],
            of_stack: vec![Self::EMPTY],
        };
        // Ids fit, since the stacks gave them. Callers come before their callees.
        for stack in 1..u32::try_from(stacks.len()).unwrap_or(u32::MAX) {
            let node = stacks.get(stack);
            let path = (
                paths.of_stack[node.parent as usize],
                names.of_frame(node.frame),
            );
            let next = paths.nodes.len() as u32;
            let id = *ids.entry(path).or_insert(next);
            if id == next {
                paths.nodes.push(path);
            }
            paths.of_stack.push(id);
        }
        Some(paths)
    }

    /// Returns the path of a stack, including its innermost function.
    pub fn of(&self, stack: u32) -> u32 {
        self.of_stack[stack as usize]
    }

    /// Returns the path of the callers of a path's innermost function.
    pub fn callers(&self, path: u32) -> u32 {
        self.nodes[path as usize].0
    }

    /// Returns the functions of a path, innermost first.
    pub fn functions(&self, path: u32) -> impl Iterator<Item = FunctionId> + '_ {
        let mut at = path;
        std::iter::from_fn(move || {
            let (callers, function) = *self.nodes.get(at as usize)?;
            (at != Self::EMPTY).then(|| {
                at = callers;
                function
            })
        })
    }

    /// Returns the counts of an event (an index of [`Profile::events`]) by path.
    pub fn counts(&self, profile: &Profile, event: usize) -> Vec<Count> {
        let mut counts = vec![Count::default(); self.nodes.len()];
        if let Some(event) = profile.events().get(event) {
            profile.places(event, |stack, count| {
                let path = if stack == Stacks::ROOT {
                    Self::EMPTY
                } else {
                    self.of(stack)
                };
                counts[path as usize].add(count);
            });
        }
        counts
    }
}
