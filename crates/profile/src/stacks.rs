//! Call stacks as a prefix tree: each node is a frame below its caller's node.

use crate::frames::FrameId;
use crate::slots::{Slots, fetch};

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

/// A node as it is kept.
#[derive(Clone, Copy, Debug)]
struct Kept {
    parent: StackId,
    frame: FrameId,
    /// The callee that was seen first, or [`Stacks::ROOT`], which is nobody's callee.
    first_child: StackId,
    /// Its frame, so that the callee itself needs not be read.
    first_frame: FrameId,
}

/// All call stacks of a recording.
#[derive(Clone, Debug)]
pub struct Stacks {
    nodes: Vec<Kept>,
    /// All callees but the first of each node: most nodes have no other, and so stay out of the table.
    others: Slots,
}

impl Default for Stacks {
    fn default() -> Self {
        Stacks {
            nodes: vec![Kept {
                parent: Self::ROOT,
                frame: FrameId::MAX,
                first_child: Self::ROOT,
                first_frame: FrameId::MAX,
            }],
            others: Slots::default(),
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
        let Kept { parent, frame, .. } = self.nodes[id as usize];
        StackNode { parent, frame }
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
        let Kept {
            first_child,
            first_frame,
            ..
        } = self.nodes[parent as usize];
        if first_frame == frame && first_child != Self::ROOT {
            return first_child;
        }
        self.other_child(StackNode { parent, frame }, first_child)
    }

    /// Prepares for [`Stacks::child`] soon.
    #[inline]
    pub(crate) fn prefetch(&self, parent: StackId, frame: FrameId) {
        if let Some(node) = self.nodes.get(parent as usize) {
            fetch(node);
        }
        self.others.prefetch((u64::from(parent), frame));
    }

    fn other_child(&mut self, node: StackNode, first: StackId) -> StackId {
        // A node needs eight bytes of the file at least: only past 32 GiB of distinct stacks would callees be cut.
        let next = StackId::try_from(self.nodes.len()).unwrap_or(StackId::MAX);
        if next == StackId::MAX {
            return node.parent;
        }
        if first == Self::ROOT {
            let parent = &mut self.nodes[node.parent as usize];
            (parent.first_child, parent.first_frame) = (next, node.frame);
        } else {
            let key = (u64::from(node.parent), node.frame);
            let id = self.others.get_or_insert(key, next);
            if id != next {
                return id;
            }
        }
        self.nodes.push(Kept {
            parent: node.parent,
            frame: node.frame,
            first_child: Self::ROOT,
            first_frame: FrameId::MAX,
        });
        next
    }

    /// Drops what only growing needs.
    pub(crate) fn freeze(&mut self) {
        self.others = Slots::default();
    }
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
