//! Paths of functions: stacks without addresses. Stacks that differ in addresses only have one path.

use crate::source::Source;
use dioptra_profile::{FunctionId, StackId, Stacks};
use hashbrown::HashMap;

/// The number of a path in [`Paths`].
pub type PathId = u32;

/// A function and the path of its callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PathNode {
    /// The path of the callers, whose number is smaller.
    pub parent: PathId,
    /// The path's innermost function.
    pub function: FunctionId,
}

/// The paths of all stacks. Path 0 is empty.
pub struct Paths {
    nodes: Vec<PathNode>,
    /// By stack: the path, if the stack's innermost frame executes itself.
    of_stack: Vec<PathId>,
}

impl Paths {
    /// Finds the paths of all stacks of the source's profile, with inlined functions where they were loaded.
    pub fn of(source: &Source<'_>) -> Paths {
        let names = source.names;
        let stacks = source.profile.stacks();
        let mut nodes = vec![PathNode {
            parent: 0,
            function: FunctionId::MAX,
        }];
        let mut ids: HashMap<PathNode, PathId> = HashMap::new();
        let mut below = |start: PathId, functions: &[FunctionId]| {
            functions.iter().rev().fold(start, |parent, function| {
                let node = PathNode {
                    parent,
                    function: *function,
                };
                *ids.entry(node).or_insert_with(|| {
                    nodes.push(node);
                    // The nodes fit in memory, and so does their number in 32 bits for less than 32 GiB of them.
                    PathId::try_from(nodes.len() - 1).unwrap_or(PathId::MAX)
                })
            })
        };
        let mut of_stack = vec![0; stacks.len()];
        // The path of each stack whose innermost frame has made a call, because other functions may be inlined there.
        let mut calling: Vec<PathId> = match names.has_inlined() {
            true => vec![0; stacks.len()],
            false => Vec::new(),
        };
        for id in 1..stacks.len() {
            let node = stacks.get(StackId::try_from(id).unwrap_or(StackId::MAX));
            let parent = node.parent as usize;
            let is_called = names.has_inlined()
                && node.parent != Stacks::ROOT
                && !names.is_interrupted(stacks.get(node.parent).frame, node.frame);
            let start = match is_called {
                true => calling[parent],
                false => of_stack[parent],
            };
            of_stack[id] = below(start, names.chain_of(node.frame, None));
            if names.has_inlined() {
                // No frame interrupts itself, so this names the functions behind a call.
                calling[id] = below(start, names.chain_of(node.frame, Some(node.frame)));
            }
        }
        Paths { nodes, of_stack }
    }

    /// Returns the path of a stack with samples.
    ///
    /// # Panics
    /// On a stack that is none of the profile.
    pub fn of_stack(&self, stack: StackId) -> PathId {
        self.of_stack[stack as usize]
    }

    /// Returns the innermost function of a path other than the empty one, and the path of its callers.
    ///
    /// # Panics
    /// On a number that these paths did not give.
    pub fn get(&self, path: PathId) -> PathNode {
        self.nodes[path as usize]
    }

    /// Writes the functions of a path into `into`, outermost first.
    ///
    /// # Panics
    /// As [`Paths::get`].
    pub fn functions(&self, path: PathId, into: &mut Vec<FunctionId>) {
        into.clear();
        let mut at = path;
        while at != 0 {
            let node = self.get(at);
            into.push(node.function);
            at = node.parent;
        }
        into.reverse();
    }
}
