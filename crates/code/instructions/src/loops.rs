//! Dominators, natural loops and their nesting, and cycles that are no natural loops.

use std::ops::Range;

use super::blocks::{ControlFlow, EdgeEnd};

/// A natural loop: blocks that lead back to a header which comes before all of them on every way in.
/// Loops with the same header count as one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loop {
    /// The block through which it is entered.
    pub header: usize,
    /// The blocks from which it goes back to the header.
    pub latches: Vec<usize>,
    /// The number of the loop directly around it.
    pub parent: Option<usize>,
    /// The number of loops around it, itself included: from 1.
    pub depth: usize,
    /// Its own number and those of all loops inside it.
    pub nested: Range<usize>,
}

/// Blocks that form a cycle with several entries, so that it is no natural loop.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct IrreducibleRegion {
    /// Its blocks by rising number.
    pub blocks: Vec<usize>,
    /// The blocks that can be reached from outside the region.
    pub entries: Vec<usize>,
}

/// The loops of a function.
///
/// The first block is where the function begins; blocks that nothing leads to (exception handlers, cases of
/// an unknown table) count as further beginnings.
#[derive(Debug, Clone)]
pub struct LoopNest {
    loops: Vec<Loop>,
    /// For each block the innermost loop.
    innermost: Vec<u32>,
    /// For each block its immediate dominator.
    dominators: Vec<u32>,
    irreducible: Vec<IrreducibleRegion>,
    /// For each block its irreducible region.
    region: Vec<u32>,
}

const NONE: u32 = u32::MAX;

fn predecessors(flow: &ControlFlow, block: usize) -> impl Iterator<Item = usize> {
    flow.predecessors(block).map(|edge| edge.from)
}

impl LoopNest {
    pub(crate) fn of(flow: &ControlFlow) -> Self {
        let tree = DominatorTree::of(flow);
        let (loops, innermost) = natural_loops(flow, &tree);
        let (irreducible, region) = irreducible_regions(flow, &tree);
        Self {
            loops,
            innermost,
            dominators: tree.blocks(),
            irreducible,
            region,
        }
    }

    /// The loops; each comes after the one around it, neighbours by the address of their header.
    #[must_use]
    pub fn loops(&self) -> &[Loop] {
        &self.loops
    }

    /// The number of the innermost loop around a block.
    #[must_use]
    pub fn innermost(&self, block: usize) -> Option<usize> {
        known(*self.innermost.get(block)?)
    }

    /// Returns the number of loops around a block.
    #[must_use]
    pub fn depth(&self, block: usize) -> usize {
        self.innermost(block).map_or(0, |at| self.loops[at].depth)
    }

    /// Whether a loop has a block, itself or in a loop inside it.
    #[must_use]
    pub fn contains(&self, number: usize, block: usize) -> bool {
        match (self.loops.get(number), self.innermost(block)) {
            (Some(outer), Some(inner)) => outer.nested.contains(&inner),
            _ => false,
        }
    }

    /// The blocks of a loop, those of loops inside it included, by rising number.
    pub fn blocks_of(&self, number: usize) -> impl Iterator<Item = usize> {
        (0..self.innermost.len()).filter(move |&block| self.contains(number, block))
    }

    /// The last block, other than itself, that is passed on every way to a block. `None` for the first
    /// block, for others that control enters from outside, and for what can be reached from several of them.
    #[must_use]
    pub fn dominator(&self, block: usize) -> Option<usize> {
        known(*self.dominators.get(block)?)
    }

    /// Cycles with several entries.
    #[must_use]
    pub fn irreducible(&self) -> &[IrreducibleRegion] {
        &self.irreducible
    }

    /// The number of the irreducible region that a block belongs to.
    #[must_use]
    pub fn irreducible_region(&self, block: usize) -> Option<usize> {
        known(*self.region.get(block)?)
    }
}

fn known(number: u32) -> Option<usize> {
    (number != NONE).then_some(number as usize)
}

/// The loops, and for each block the innermost one.
fn natural_loops(flow: &ControlFlow, tree: &DominatorTree) -> (Vec<Loop>, Vec<u32>) {
    let mut loops: Vec<Loop> = Vec::new();
    let mut innermost = vec![NONE; flow.blocks().len()];
    // For each loop one further out, with shortcuts.
    let mut outer: Vec<u32> = Vec::new();
    let mut work = Vec::new();
    // A header comes after the headers of the loops around it, which dominate it.
    for &header in tree.preorder.iter().skip(1).rev() {
        let header = header as usize;
        work.extend(predecessors(flow, header).filter(|&from| tree.dominates(header, from)));
        if work.is_empty() {
            continue;
        }
        work.sort_unstable();
        work.dedup();
        let number = loops.len() as u32;
        outer.push(number);
        loops.push(Loop {
            header,
            latches: work.clone(),
            parent: None,
            depth: 0,
            nested: 0..0,
        });
        innermost[header] = number;
        while let Some(block) = work.pop() {
            let top = match innermost[block] {
                NONE => {
                    innermost[block] = number;
                    work.extend(predecessors(flow, block));
                    continue;
                }
                inner => outermost(&mut outer, inner),
            };
            if top != number {
                outer[top as usize] = number;
                let inner = &mut loops[top as usize];
                inner.parent = Some(number as usize);
                work.extend(predecessors(flow, inner.header));
            }
        }
    }
    number_by_nesting(loops, innermost)
}

/// The outermost loop known so far around a loop.
fn outermost(outer: &mut [u32], inner: u32) -> u32 {
    let mut top = inner;
    while outer[top as usize] != top {
        // Halves the way for whoever comes next.
        outer[top as usize] = outer[outer[top as usize] as usize];
        top = outer[top as usize];
    }
    top
}

/// Renumbers loops so that those inside a loop follow it.
fn number_by_nesting(mut loops: Vec<Loop>, mut innermost: Vec<u32>) -> (Vec<Loop>, Vec<u32>) {
    let mut sizes = vec![1_u32; loops.len()];
    for at in 0..loops.len() {
        // A loop around another was found after it.
        if let Some(parent) = loops[at].parent {
            sizes[parent] += sizes[at];
        }
    }
    for at in (0..loops.len()).rev() {
        loops[at].depth = loops[at].parent.map_or(0, |parent| loops[parent].depth) + 1;
    }
    let mut order: Vec<u32> = (0..loops.len() as u32).collect();
    order.sort_unstable_by_key(|&at| (loops[at as usize].depth, loops[at as usize].header));
    let mut numbers = vec![0_u32; loops.len()];
    // Where the next loop inside each one goes; the last is for those in no loop.
    let mut next = vec![0_u32; loops.len() + 1];
    let outside = loops.len();
    for &at in &order {
        let at = at as usize;
        let parent = loops[at].parent.unwrap_or(outside);
        numbers[at] = next[parent];
        next[parent] += sizes[at];
        next[at] = numbers[at] + 1;
    }
    for (at, each) in loops.iter_mut().enumerate() {
        each.nested = numbers[at] as usize..(numbers[at] + sizes[at]) as usize;
        each.parent = each.parent.map(|parent| numbers[parent] as usize);
    }
    loops.sort_unstable_by_key(|each| each.nested.start);
    for number in &mut innermost {
        if *number != NONE {
            *number = numbers[*number as usize];
        }
    }
    (loops, innermost)
}

/// Finds the parts that are still cyclic without the edges back to loop headers: strongly connected components,
/// after Tarjan (1972).
fn irreducible_regions(
    flow: &ControlFlow,
    tree: &DominatorTree,
) -> (Vec<IrreducibleRegion>, Vec<u32>) {
    let count = flow.blocks().len();
    let mut regions = Vec::new();
    let mut region = vec![NONE; count];
    // Zero: not seen yet.
    let mut seen_as = vec![0_u32; count];
    let mut lowest = vec![0_u32; count];
    let mut is_open = vec![false; count];
    let mut open: Vec<u32> = Vec::new();
    let mut walk: Vec<(u32, u32)> = Vec::new();
    let mut seen = 0;
    for root in 0..count {
        if seen_as[root] != 0 {
            continue;
        }
        walk.push((root as u32, 0));
        while let Some(&mut (block, ref mut next)) = walk.last_mut() {
            let block = block as usize;
            if *next == 0 {
                seen += 1;
                (seen_as[block], lowest[block]) = (seen, seen);
                is_open[block] = true;
                open.push(block as u32);
            }
            let edge = flow.successors(block).get(*next as usize);
            *next += 1;
            if let Some(edge) = edge {
                let EdgeEnd::Block(to) = edge.to else {
                    continue;
                };
                if tree.dominates(to, block) {
                    continue;
                }
                if seen_as[to] == 0 {
                    walk.push((to as u32, 0));
                } else if is_open[to] {
                    lowest[block] = lowest[block].min(seen_as[to]);
                }
                continue;
            }
            walk.pop();
            if let Some(&(above, _)) = walk.last() {
                let above = above as usize;
                lowest[above] = lowest[above].min(lowest[block]);
            }
            if lowest[block] != seen_as[block] {
                continue;
            }
            let mut blocks = Vec::new();
            while let Some(member) = open.pop() {
                is_open[member as usize] = false;
                blocks.push(member as usize);
                if member as usize == block {
                    break;
                }
            }
            if blocks.len() > 1 {
                blocks.sort_unstable();
                for &member in &blocks {
                    region[member] = regions.len() as u32;
                }
                regions.push(IrreducibleRegion {
                    blocks,
                    entries: Vec::new(),
                });
            }
        }
    }
    for (number, each) in regions.iter_mut().enumerate() {
        let is_entry = |&block: &usize| {
            tree.is_root(block)
                || predecessors(flow, block).any(|from| region[from] != number as u32)
        };
        each.entries = each.blocks.iter().copied().filter(is_entry).collect();
    }
    (regions, region)
}

/// The dominator tree of the blocks below one more node, which leads to all beginnings. Nodes are numbered
/// in the order a depth-first walk meets them; the added one is 0.
struct DominatorTree {
    /// The block of each node; `NONE` for node 0.
    preorder: Vec<u32>,
    /// The node of each block.
    node: Vec<u32>,
    /// The immediate dominator of each node.
    dominator: Vec<u32>,
    /// Where each node lies in a depth-first walk of the dominator tree, and how many there are from it down.
    place: Vec<u32>,
    size: Vec<u32>,
    is_root: Vec<bool>,
}

impl DominatorTree {
    fn of(flow: &ControlFlow) -> Self {
        let count = flow.blocks().len();
        let mut tree = Self {
            preorder: vec![NONE],
            node: vec![NONE; count],
            dominator: Vec::new(),
            place: Vec::new(),
            size: Vec::new(),
            is_root: vec![false; count],
        };
        let mut parent = vec![0_u32];
        if count > 0 {
            tree.walk(flow, 0, &mut parent);
        }
        for block in 0..count {
            if flow.predecessors(block).len() == 0 {
                tree.walk(flow, block, &mut parent);
            }
        }
        // Cycles that nothing leads to.
        for block in 0..count {
            tree.walk(flow, block, &mut parent);
        }
        tree.dominate(flow, &parent);
        tree.measure();
        tree
    }

    /// Numbers what a beginning leads to.
    fn walk(&mut self, flow: &ControlFlow, root: usize, parent: &mut Vec<u32>) {
        if self.node[root] != NONE {
            return;
        }
        self.is_root[root] = true;
        let mut stack = vec![(self.enter(root, 0, parent), 0_u32)];
        while let Some(&mut (node, ref mut next)) = stack.last_mut() {
            let block = self.preorder[node as usize] as usize;
            let Some(edge) = flow.successors(block).get(*next as usize) else {
                stack.pop();
                continue;
            };
            *next += 1;
            if let EdgeEnd::Block(to) = edge.to
                && self.node[to] == NONE
            {
                stack.push((self.enter(to, node, parent), 0));
            }
        }
    }

    fn enter(&mut self, block: usize, from: u32, parent: &mut Vec<u32>) -> u32 {
        let node = self.preorder.len() as u32;
        self.preorder.push(block as u32);
        self.node[block] = node;
        parent.push(from);
        node
    }

    /// Immediate dominators after Lengauer and Tarjan (1979), in the version with path compression: in
    /// `O(edges × log blocks)`, whatever the graph.
    fn dominate(&mut self, flow: &ControlFlow, parent: &[u32]) {
        let count = self.preorder.len();
        let numbers = || (0..count as u32).collect::<Vec<u32>>();
        let mut semi = numbers();
        let mut forest = Forest {
            ancestor: vec![NONE; count],
            label: numbers(),
            path: Vec::new(),
        };
        self.dominator = vec![0; count];
        // Nodes by semidominator, as linked lists.
        let mut first_of = vec![NONE; count];
        let mut next_of = vec![NONE; count];
        for node in (1..count).rev() {
            let block = self.preorder[node] as usize;
            if self.is_root[block] {
                semi[node] = 0;
            }
            for from in predecessors(flow, block) {
                let best = forest.evaluate(self.node[from], &semi);
                semi[node] = semi[node].min(semi[best as usize]);
            }
            let list = semi[node] as usize;
            next_of[node] = std::mem::replace(&mut first_of[list], node as u32);
            let above = parent[node];
            forest.ancestor[node] = above;
            let mut waiting = std::mem::replace(&mut first_of[above as usize], NONE);
            while waiting != NONE {
                let best = forest.evaluate(waiting, &semi);
                let at = waiting as usize;
                self.dominator[at] = if semi[best as usize] < semi[at] {
                    best
                } else {
                    above
                };
                waiting = next_of[at];
            }
        }
        for (node, &semi) in semi.iter().enumerate().skip(1) {
            if self.dominator[node] != semi {
                self.dominator[node] = self.dominator[self.dominator[node] as usize];
            }
        }
    }

    /// Places and sizes in the dominator tree, whose parents have smaller numbers than their children.
    fn measure(&mut self) {
        let count = self.preorder.len();
        self.size = vec![1; count];
        for node in (1..count).rev() {
            self.size[self.dominator[node] as usize] += self.size[node];
        }
        self.place = vec![0; count];
        let mut next = vec![1_u32; count];
        for node in 1..count {
            let above = self.dominator[node] as usize;
            self.place[node] = next[above];
            next[above] += self.size[node];
            next[node] = self.place[node] + 1;
        }
    }

    /// Whether every way to a block leads through another (or it is the same).
    fn dominates(&self, above: usize, below: usize) -> bool {
        let (above, below) = (self.node[above] as usize, self.node[below] as usize);
        self.place[below].wrapping_sub(self.place[above]) < self.size[above]
    }

    fn is_root(&self, block: usize) -> bool {
        self.is_root[block]
    }

    /// Each block's immediate dominator as a block; `NONE` where that is the added node.
    fn blocks(&self) -> Vec<u32> {
        let above = |&node: &u32| self.preorder[self.dominator[node as usize] as usize];
        self.node.iter().map(above).collect()
    }
}

/// The part of the walk's tree that is done, for Lengauer and Tarjan's `eval`.
struct Forest {
    ancestor: Vec<u32>,
    label: Vec<u32>,
    path: Vec<u32>,
}

impl Forest {
    /// The node with the smallest semidominator on the way from a node up to, without, its tree's root.
    fn evaluate(&mut self, node: u32, semi: &[u32]) -> u32 {
        if self.ancestor[node as usize] == NONE {
            return node;
        }
        let mut at = node;
        while self.ancestor[self.ancestor[at as usize] as usize] != NONE {
            self.path.push(at);
            at = self.ancestor[at as usize];
        }
        // From the top down, each takes over what is better above it.
        while let Some(below) = self.path.pop() {
            let below = below as usize;
            let above = self.ancestor[below] as usize;
            let (mine, theirs) = (self.label[below], self.label[above]);
            if semi[theirs as usize] < semi[mine as usize] {
                self.label[below] = theirs;
            }
            self.ancestor[below] = self.ancestor[above];
        }
        self.label[node as usize]
    }
}
