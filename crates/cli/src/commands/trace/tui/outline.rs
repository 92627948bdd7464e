//! A call tree with folded parts: its visible nodes, and their neighbours.

use dioptra_calls::{CallNode, CallPathTree};

/// A call tree whose nodes can be folded.
pub struct Outline {
    tree: CallPathTree,
    children: Vec<Vec<u32>>,
    /// All nodes, parents before their children, siblings in the order of their first calls.
    order: Vec<u32>,
    /// The index of each node in `order`.
    ranks: Vec<u32>,
    /// The number of nodes below each node.
    below: Vec<u32>,
    /// The number of branches that lead to each node.
    branches: Vec<u32>,
    folded: Vec<bool>,
    /// The visible nodes, in their order.
    visible: Vec<u32>,
    /// Whether the root is a line of its own.
    with_root: bool,
}

impl Outline {
    /// Makes the outline of a tree with nothing folded.
    pub fn new(tree: CallPathTree, with_root: bool) -> Outline {
        let count = tree.nodes().len();
        let children = tree.children();
        let mut order = Vec::with_capacity(count);
        let mut ranks = vec![0; count];
        let mut branches = vec![0; count];
        let mut open = vec![0_u32];
        while let Some(node) = open.pop() {
            ranks[node as usize] = order.len() as u32;
            order.push(node);
            let below = &children[node as usize];
            let branch = u32::from(below.len() > 1 && (node != 0 || with_root));
            for child in below.iter().rev() {
                branches[*child as usize] = branches[node as usize] + branch;
                open.push(*child);
            }
        }
        // Parents have smaller numbers than their children.
        let mut below = vec![0; count];
        for node in (1..count).rev() {
            let parent = tree.nodes()[node].parent as usize;
            below[parent] += below[node] + 1;
        }
        let mut outline = Outline {
            folded: vec![false; count],
            visible: Vec::new(),
            tree,
            children,
            order,
            ranks,
            below,
            branches,
            with_root,
        };
        outline.show();
        outline
    }

    /// Returns the tree.
    pub fn tree(&self) -> &CallPathTree {
        &self.tree
    }

    /// Returns a node's numbers.
    pub fn node(&self, node: u32) -> &CallNode {
        &self.tree.nodes()[node as usize]
    }

    /// Returns the visible nodes, in their order.
    pub fn visible(&self) -> &[u32] {
        &self.visible
    }

    /// Returns the index of a node among the visible ones. A hidden node has the index of the folded node around it.
    pub fn place(&self, node: u32) -> usize {
        let rank = self.ranks[node as usize];
        let behind = |other: &u32| self.ranks[*other as usize] <= rank;
        self.visible.partition_point(behind).saturating_sub(1)
    }

    /// Returns the number of nodes that a fold hides; 0 if the node is not folded.
    pub fn hidden(&self, node: u32) -> u32 {
        match self.folded[node as usize] {
            true => self.below[node as usize],
            false => 0,
        }
    }

    /// Computes the visible nodes anew.
    fn show(&mut self) {
        self.visible.clear();
        let mut rank = usize::from(!self.with_root);
        while let Some(node) = self.order.get(rank) {
            self.visible.push(*node);
            rank += 1 + self.hidden(*node) as usize;
        }
    }

    /// Folds an open node, or opens a folded one.
    pub fn toggle(&mut self, node: u32) {
        let folded = self.folded[node as usize];
        self.folded[node as usize] = !folded && self.below[node as usize] > 0;
        self.show();
    }

    /// Opens a node, and folds or opens its children.
    pub fn fold_children(&mut self, node: u32, fold: bool) {
        self.folded[node as usize] = false;
        for child in &self.children[node as usize] {
            self.folded[*child as usize] = fold && self.below[*child as usize] > 0;
        }
        self.show();
    }

    /// Opens a node, and folds or opens everything below it.
    pub fn fold_below(&mut self, node: u32, fold: bool) {
        self.folded[node as usize] = false;
        let first = self.ranks[node as usize] as usize + 1;
        let end = first + self.below[node as usize] as usize;
        for node in self.order.get(first..end).unwrap_or_default() {
            self.folded[*node as usize] = fold && self.below[*node as usize] > 0;
        }
        self.show();
    }

    /// Opens all nodes that hide a node.
    pub fn reveal(&mut self, node: u32) {
        let mut around = node;
        while around != 0 {
            around = self.node(around).parent;
            self.folded[around as usize] = false;
        }
        self.show();
    }

    /// Returns the node above, if it is a line.
    pub fn parent(&self, node: u32) -> Option<u32> {
        let parent = self.node(node).parent;
        (node != 0 && (parent != 0 || self.with_root)).then_some(parent)
    }

    /// Returns the next or the previous node of the same caller.
    pub fn sibling(&self, node: u32, forward: bool) -> Option<u32> {
        if node == 0 {
            return None;
        }
        let siblings = &self.children[self.node(node).parent as usize];
        let place = siblings.iter().position(|other| *other == node)?;
        let place = match forward {
            true => place + 1,
            false => place.checked_sub(1)?,
        };
        siblings.get(place).copied()
    }

    /// Returns the child with the most time, by `total`.
    pub fn longest(&self, node: u32, total: impl Fn(&CallNode) -> u64) -> Option<u32> {
        let children = self.children[node as usize].iter().copied();
        // The first of equal children wins.
        children.rev().max_by_key(|child| total(self.node(*child)))
    }

    /// Returns the indentation and branches before a node's text, as `trace graph` draws them behind a blank.
    pub fn indent(&self, node: u32) -> String {
        let mut parts: Vec<&str> = Vec::new();
        let mut at = node;
        while at != 0 {
            let parent = self.node(at).parent;
            let siblings = &self.children[parent as usize];
            if siblings.len() > 1 && (parent != 0 || self.with_root) {
                parts.push(if at == node {
                    " +-"
                } else if siblings.last() == Some(&at) {
                    "   "
                } else {
                    " | "
                });
            }
            at = parent;
        }
        parts.iter().rev().copied().collect()
    }

    /// Returns the number of columns of [`Outline::indent`].
    pub fn indent_width(&self, node: u32) -> usize {
        3 * self.branches[node as usize] as usize
    }

    /// Returns the number of calls that lead to a node, its own included.
    pub fn depth(&self, node: u32) -> usize {
        let mut depth = 0;
        let mut at = node;
        while at != 0 {
            at = self.node(at).parent;
            depth += 1;
        }
        depth
    }

    /// Finds the next node behind `from`, or the last one before it, whose function `is_match` accepts. Continues from
    /// the other end if there is none. Returns the node, its number among all matches, counted from 1, and the number
    /// of matches.
    pub fn find(
        &self,
        from: Option<u32>,
        forward: bool,
        inclusive: bool,
        is_match: impl Fn(u32) -> bool,
    ) -> Option<(u32, usize, usize)> {
        let here = from.map(|node| self.ranks[node as usize] as usize);
        let nodes = self.order.iter().enumerate().skip(1);
        let matches = nodes.filter(|(_, node)| is_match(self.node(**node).function));
        let ranks = matches.map(|(rank, _)| rank);
        let (rank, number, of) = super::search::choose(ranks, here, forward, inclusive)?;
        Some((self.order[rank], number, of))
    }
}
