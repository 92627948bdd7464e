//! Stacks as paths of functions: two call sites of one caller are the same path.

use crate::counts::counter::Count;
use crate::hash::FxBuildHasher;
use crate::naming::names::{FunctionId, Names};
use crate::profile::Profile;
use crate::stacks::call_stacks::Stacks;
use hashbrown::HashMap;

/// The functions on the way to each stack of a profile, without inlined ones.
#[derive(Clone, Debug)]
pub struct FunctionPaths {
    /// Each a caller's path, which is smaller, and the function that it called. The first is the empty path.
    nodes: Vec<(u32, FunctionId)>,
    /// By stack.
    of_stack: Vec<u32>,
}

impl FunctionPaths {
    /// The path of no function.
    pub const EMPTY: u32 = 0;

    /// The paths of all stacks; `None` where stacks were not loaded.
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
        // Ids fit, since the stacks gave them; callers come before what they call.
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

    /// The path of a stack, its innermost function included.
    pub fn of(&self, stack: u32) -> u32 {
        self.of_stack[stack as usize]
    }

    /// The path of those who called the innermost function of a path.
    pub fn callers(&self, path: u32) -> u32 {
        self.nodes[path as usize].0
    }

    /// The functions of a path, innermost first.
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

    /// The samples of an event (an index of [`Profile::events`]) by path.
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
