//! Selections by the functions on a call stack.

use crate::naming::names::{FunctionId, Names};
use crate::profile::Profile;
use crate::stacks::call_stacks::{StackNode, Stacks};

impl Profile {
    /// Returns for each stack whether one of the wanted functions is on it: the function itself, one that was inlined into
    /// it, or one of their callers. `wanted` is by [`FunctionId`]. The result is for [`crate::Selection::stacks`].
    ///
    /// Without [`crate::LoadOptions::call_chains`] there is only the empty stack.
    pub fn stacks_through(&self, names: &Names, wanted: &[bool]) -> Vec<bool> {
        let stacks = self.stacks();
        let is_wanted =
            |function: &FunctionId| wanted.get(*function as usize).copied().unwrap_or(false);
        // By stack: whether it holds a wanted function if its innermost frame executes.
        let mut executing = vec![false; stacks.len()];
        // The same if the innermost frame has called another one: other functions may be inlined there.
        let mut calling = match names.has_inlined() {
            true => vec![false; stacks.len()],
            false => Vec::new(),
        };
        for (index, id) in (1..stacks.len()).zip(1_u32..) {
            let StackNode { parent, frame } = stacks.get(id);
            let is_called = names.has_inlined()
                && parent != Stacks::ROOT
                && !names.is_interrupted(stacks.get(parent).frame, frame);
            let above = match is_called {
                true => calling[parent as usize],
                false => executing[parent as usize],
            };
            executing[index] = above || names.chain_of(frame, None).iter().any(is_wanted);
            if names.has_inlined() {
                calling[index] = above || names.chain_of_caller(frame).iter().any(is_wanted);
            }
        }
        executing
    }
}
