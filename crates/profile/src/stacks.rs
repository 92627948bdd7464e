//! Call stacks as a prefix tree: each node is a frame below its caller's node.

use crate::frames::FrameId;
use crate::hash::mix;
use hashbrown::HashTable;

/// The index of a node in [`Stacks`]; stands for the whole stack from the outermost frame to this one.
pub type StackId = u32;

/// A node: a frame and the stack of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackNode {
    /// The caller's stack, or [`Stacks::ROOT`]. Always smaller than the node's own id.
    pub parent: StackId,
    /// The frame.
    pub frame: FrameId,
}

/// All call stacks of a recording.
#[derive(Clone, Debug)]
pub struct Stacks {
    nodes: Vec<StackNode>,
    children: HashTable<StackId>,
}

impl Default for Stacks {
    fn default() -> Self {
        Stacks {
            nodes: vec![StackNode {
                parent: Self::ROOT,
                frame: FrameId::MAX,
            }],
            children: HashTable::new(),
        }
    }
}

impl Stacks {
    /// The empty stack, which has no frame.
    pub const ROOT: StackId = 0;

    /// The node of a stack that is not the empty one.
    ///
    /// # Panics
    /// On an id that these stacks did not give.
    #[inline]
    pub fn get(&self, id: StackId) -> StackNode {
        self.nodes[id as usize]
    }

    /// How many nodes there are, the empty stack included.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no stack but the empty one.
    pub fn is_empty(&self) -> bool {
        self.nodes.len() == 1
    }

    /// The frames of a stack, innermost first.
    pub fn frames(&self, id: StackId) -> impl Iterator<Item = FrameId> + '_ {
        let mut at = id;
        std::iter::from_fn(move || {
            if at == Self::ROOT {
                return None;
            }
            let node = self.get(at);
            at = node.parent;
            Some(node.frame)
        })
    }

    /// The stack of `frame` called from `parent`.
    #[inline]
    pub(crate) fn child(&mut self, parent: StackId, frame: FrameId) -> StackId {
        let node = StackNode { parent, frame };
        let hash = hash(node);
        let nodes = &mut self.nodes;
        if let Some(id) = self.children.find(hash, |&id| nodes[id as usize] == node) {
            return *id;
        }
        // A node needs eight bytes of the file at least: only past 32 GiB of distinct stacks would callees be cut.
        let Ok(id) = StackId::try_from(nodes.len()) else {
            return parent;
        };
        nodes.push(node);
        self.children
            .insert_unique(hash, id, |&id| self::hash(nodes[id as usize]));
        id
    }

    /// Drops what only growing needs.
    pub(crate) fn freeze(&mut self) {
        self.children = HashTable::new();
    }
}

#[inline]
fn hash(node: StackNode) -> u64 {
    mix(u64::from(node.parent), u64::from(node.frame))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_callers_are_shared_nodes() {
        let mut stacks = Stacks::default();
        let main = stacks.child(Stacks::ROOT, 10);
        let left = stacks.child(main, 11);
        let right = stacks.child(main, 12);
        let deep = stacks.child(left, 12);
        assert_eq!(stacks.child(main, 11), left);
        assert_ne!(right, deep);
        assert_eq!(stacks.frames(deep).collect::<Vec<_>>(), [12, 11, 10]);
        assert_eq!(stacks.frames(Stacks::ROOT).count(), 0);
        assert_eq!(stacks.len(), 5);
    }
}
