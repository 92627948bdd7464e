//! Call stacks as a prefix tree: each node is a frame below its caller's node.

use crate::stacks::frames::FrameId;
use crate::stacks::slots::{Slots, fetch};

/// The index of a node in [`Stacks`]. It identifies the whole stack from the outermost frame to this one.
pub type StackId = u32;

/// A node: a frame and the stack of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackNode {
    /// The caller's stack, or [`Stacks::ROOT`]. Always smaller than the node's own id.
    pub parent: StackId,
    /// The frame.
    pub frame: FrameId,
}

/// The callee of a node that was seen first.
#[derive(Clone, Copy, Debug)]
struct First {
    /// The callee; [`Stacks::ROOT`], which is nobody's callee, where there is none.
    child: StackId,
    /// The callee's frame, so that the callee's node need not be read.
    frame: FrameId,
}

/// All call stacks of a recording.
#[derive(Clone, Debug)]
pub struct Stacks {
    nodes: Vec<StackNode>,
    /// The first callee of each node, while stacks grow.
    firsts: Vec<First>,
    /// All further callees. Most nodes have only one callee, and so stay out of this table.
    others: Slots,
}

impl Default for Stacks {
    fn default() -> Self {
        Stacks {
            nodes: vec![StackNode {
                parent: Self::ROOT,
                frame: FrameId::MAX,
            }],
            firsts: vec![Self::CHILDLESS],
            others: Slots::default(),
        }
    }
}

impl Stacks {
    /// The empty stack, which has no frame.
    pub const ROOT: StackId = 0;

    const CHILDLESS: First = First {
        child: Self::ROOT,
        frame: FrameId::MAX,
    };

    /// Returns the node of a stack other than the empty stack.
    ///
    /// # Panics
    /// On an id that these stacks did not give.
    #[inline]
    pub fn get(&self, id: StackId) -> StackNode {
        self.nodes[id as usize]
    }

    /// Returns the number of nodes, the empty stack included.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns whether there is no stack but the empty one.
    pub fn is_empty(&self) -> bool {
        self.nodes.len() == 1
    }

    /// Returns the frames of a stack, innermost first.
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

    /// Returns the stack of `frame` called from `parent`.
    #[inline]
    pub(crate) fn child(&mut self, parent: StackId, frame: FrameId) -> StackId {
        let first = self.firsts[parent as usize];
        if first.frame == frame && first.child != Self::ROOT {
            return first.child;
        }
        self.other_child(StackNode { parent, frame }, first.child)
    }

    /// Prefetches the table entries that [`Stacks::child`] will read soon.
    #[inline]
    pub(crate) fn prefetch(&self, parent: StackId, frame: FrameId) {
        if let Some(first) = self.firsts.get(parent as usize) {
            fetch(first);
        }
        self.others.prefetch((u64::from(parent), frame));
    }

    fn other_child(&mut self, node: StackNode, first: StackId) -> StackId {
        // A node needs at least eight bytes of the file, so callees would be cut only past 32 GiB of distinct stacks.
        let next = StackId::try_from(self.nodes.len()).unwrap_or(StackId::MAX);
        if next == StackId::MAX {
            return node.parent;
        }
        if first == Self::ROOT {
            self.firsts[node.parent as usize] = First {
                child: next,
                frame: node.frame,
            };
        } else {
            let key = (u64::from(node.parent), node.frame);
            let id = self.others.get_or_insert(key, next);
            if id != next {
                return id;
            }
        }
        self.nodes.push(node);
        self.firsts.push(Self::CHILDLESS);
        next
    }

    /// Returns a copy without the tables that only growing needs.
    pub(crate) fn frozen(&self) -> Self {
        Stacks {
            nodes: self.nodes.clone(),
            firsts: Vec::new(),
            others: Slots::default(),
        }
    }

    /// Drops the tables that only growing needs.
    pub(crate) fn freeze(&mut self) {
        self.firsts = Vec::new();
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
