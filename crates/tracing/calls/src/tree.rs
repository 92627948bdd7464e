//! Sums by call path.

use crate::frames::OpenCalls;
use crate::{CallEnding, ShownStep, View, ViewLosses, workers};
use rustc_hash::FxHashMap;

/// All calls of one function on one path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallNode {
    /// The function's id; 0 for the root.
    pub function: u32,
    /// The index of the caller's node; the root is its own caller.
    pub parent: u32,
    /// The number of calls that were shown.
    pub calls: u64,
    /// The time within the calls in nanoseconds.
    pub total: u64,
    /// The time within the calls and not within recorded calls below, shown or not, in nanoseconds.
    pub self_time: u64,
    /// The shortest and the longest duration of a call.
    pub totals: (u64, u64),
    /// The shortest and the longest self time of a call.
    pub selves: (u64, u64),
    /// The number of calls that they stand for, if the view samples; else `calls`.
    pub weighted_calls: f64,
    /// The total time of the calls that they stand for, in nanoseconds.
    pub weighted_total: f64,
    /// The self time of the calls that they stand for, in nanoseconds.
    pub weighted_self: f64,
    /// The time at which the first call began.
    pub first: u64,
    /// The child that was called last.
    last: u32,
}

impl CallNode {
    fn new(function: u32, parent: u32, first: u64) -> CallNode {
        CallNode {
            function,
            parent,
            calls: 0,
            total: 0,
            self_time: 0,
            totals: (u64::MAX, 0),
            selves: (u64::MAX, 0),
            weighted_calls: 0.0,
            weighted_total: 0.0,
            weighted_self: 0.0,
            first,
            last: 0,
        }
    }

    fn merge(&mut self, other: &CallNode) {
        self.calls += other.calls;
        self.total = self.total.saturating_add(other.total);
        self.self_time = self.self_time.saturating_add(other.self_time);
        self.totals.0 = self.totals.0.min(other.totals.0);
        self.totals.1 = self.totals.1.max(other.totals.1);
        self.selves.0 = self.selves.0.min(other.selves.0);
        self.selves.1 = self.selves.1.max(other.selves.1);
        self.weighted_calls += other.weighted_calls;
        self.weighted_total += other.weighted_total;
        self.weighted_self += other.weighted_self;
        self.first = self.first.min(other.first);
    }
}

/// A tree of call paths. Node 0 is the root: outside of all shown calls.
#[derive(Clone, Debug)]
pub struct CallPathTree {
    nodes: Vec<CallNode>,
    by_call: FxHashMap<(u32, u32), u32>,
    /// The losses.
    pub losses: ViewLosses,
    /// The number of calls that were still open at their stream's end; their durations reach up to it.
    pub open: u64,
}

impl Default for CallPathTree {
    fn default() -> Self {
        CallPathTree {
            nodes: vec![CallNode::new(0, 0, 0)],
            by_call: FxHashMap::default(),
            losses: ViewLosses::default(),
            open: 0,
        }
    }
}

/// Sums the shown calls of a view, streams in parallel. Of calls that lie in the view's time in part, that part is
/// summed.
pub fn call_tree(view: &View<'_>) -> CallPathTree {
    let most = if view.is_sampled() { 1 } else { usize::MAX };
    let count = view.streams().len();
    let sum = |tree: &mut CallPathTree, place| tree.sum(view, place);
    let mut trees = workers::each(count, most, CallPathTree::default, sum);
    // The largest tree takes in the nodes of the others, because fewer are copied so.
    trees.sort_by_key(|tree| tree.nodes.len());
    let mut whole = trees.pop().unwrap_or_default();
    for tree in trees {
        whole.losses += tree.losses;
        whole.open += tree.open;
        whole.graft(0, &tree, 0);
    }
    whole.without_unseen()
}

/// Sums the shown calls of a view as [`call_tree`] does, apart for each stream: tree for tree as
/// [`View::streams`] has them.
pub fn call_trees(view: &View<'_>) -> Vec<CallPathTree> {
    let most = if view.is_sampled() { 1 } else { usize::MAX };
    let sum = |trees: &mut Vec<(usize, CallPathTree)>, place| {
        let mut tree = CallPathTree::default();
        tree.sum(view, place);
        trees.push((place, tree.without_unseen()));
    };
    let mut trees = workers::each(view.streams().len(), most, Vec::new, sum).concat();
    trees.sort_by_key(|(place, _)| *place);
    trees.into_iter().map(|(_, tree)| tree).collect()
}

#[derive(Clone, Copy)]
struct OpenNode {
    node: u32,
    entered: bool,
    start: u64,
    weight: f64,
}

impl CallPathTree {
    /// Returns the nodes; parents come before their children.
    pub fn nodes(&self) -> &[CallNode] {
        &self.nodes
    }

    /// Returns the children of each node, in the order of their first calls.
    pub fn children(&self) -> Vec<Vec<u32>> {
        let mut children = vec![Vec::new(); self.nodes.len()];
        for (index, node) in self.nodes.iter().enumerate().skip(1) {
            children[node.parent as usize].push(index as u32);
        }
        for list in &mut children {
            list.sort_by_key(|child| {
                let node = &self.nodes[*child as usize];
                (node.first, node.function)
            });
        }
        children
    }

    /// Returns the functions of the path to a node, the outermost first, its own last.
    pub fn path(&self, mut node: u32) -> Vec<u32> {
        let mut path = Vec::new();
        while node != 0 {
            let known = &self.nodes[node as usize];
            path.push(known.function);
            node = known.parent;
        }
        path.reverse();
        path
    }

    /// Returns the tree below the functions for which `is_wanted` returns true: the root's children are these
    /// functions. Calls within a call of such a function belong to that one's subtree.
    pub fn below(&self, is_wanted: impl Fn(u32) -> bool) -> CallPathTree {
        let mut tree = CallPathTree::default();
        // The index of each node in the new tree; 0 outside.
        let mut places = vec![0_u32; self.nodes.len()];
        for (index, node) in self.nodes.iter().enumerate().skip(1) {
            let around = places[node.parent as usize];
            if around == 0 && !is_wanted(node.function) {
                continue;
            }
            let place = tree.child(around, node.function, node.first);
            tree.nodes[place as usize].merge(node);
            places[index] = place;
        }
        tree
    }

    /// Adds the nodes below `from` in another tree to those below `to`.
    fn graft(&mut self, to: u32, other: &CallPathTree, from: u32) {
        let mut places = vec![to; other.nodes.len()];
        for (index, node) in other.nodes.iter().enumerate().skip(from as usize + 1) {
            let place = self.child(places[node.parent as usize], node.function, node.first);
            self.nodes[place as usize].merge(node);
            places[index] = place;
        }
    }

    #[inline]
    fn child(&mut self, parent: u32, function: u32, time: u64) -> u32 {
        let last = self.nodes[parent as usize].last;
        if last != 0 && self.nodes[last as usize].function == function {
            return last;
        }
        let next = self.nodes.len() as u32;
        let child = *self.by_call.entry((parent, function)).or_insert(next);
        if child == next {
            self.nodes.push(CallNode::new(function, parent, time));
        }
        self.nodes[parent as usize].last = child;
        child
    }

    fn sum(&mut self, view: &View<'_>, place: usize) {
        let from = view.range().start.unwrap_or(0);
        let mut frames: OpenCalls<OpenNode> = OpenCalls::default();
        let mut calls = match view.is_sampled() {
            true => view.scaled_calls(place),
            false => view.calls(place),
        };
        calls.each(|shown| match shown {
            ShownStep::Enter {
                time, call, weight, ..
            } => {
                let parent = frames.last().map_or(0, |frame| frame.node);
                let node = self.child(parent, call.function, time);
                frames.push(OpenNode {
                    node,
                    entered: call.entered.is_some(),
                    start: time.max(from),
                    weight,
                });
            }
            ShownStep::Leave {
                time, ending, own, ..
            } => {
                self.open += u64::from(ending == CallEnding::Open);
                self.leave(&mut frames, time, own, from);
            }
            ShownStep::Lost { .. } => {}
            ShownStep::Switch { stack, .. } => frames.switch(stack),
        });
        self.losses += calls.losses();
    }

    /// Returns the tree without paths on which nothing was seen, whose calls ended before the view's time.
    fn without_unseen(self) -> CallPathTree {
        let mut seen: Vec<bool> = self
            .nodes
            .iter()
            .map(|node| node.calls > 0 || node.total > 0)
            .collect();
        if seen.iter().skip(1).all(|seen| *seen) {
            return self;
        }
        for index in (1..self.nodes.len()).rev() {
            let parent = self.nodes[index].parent as usize;
            seen[parent] |= seen[index];
        }
        let mut tree = CallPathTree {
            losses: self.losses,
            open: self.open,
            ..CallPathTree::default()
        };
        let mut places = vec![0_u32; self.nodes.len()];
        for (index, node) in self
            .nodes
            .iter()
            .enumerate()
            .skip(1)
            .filter(|(index, _)| seen[*index])
        {
            let place = tree.child(places[node.parent as usize], node.function, node.first);
            tree.nodes[place as usize].merge(node);
            places[index] = place;
        }
        tree
    }

    #[inline]
    fn leave(&mut self, frames: &mut OpenCalls<OpenNode>, time: u64, own: u64, from: u64) {
        let Some(frame) = frames.pop() else {
            return;
        };
        if time < from {
            return;
        }
        let duration = time.saturating_sub(frame.start);
        let node = &mut self.nodes[frame.node as usize];
        node.total = node.total.saturating_add(duration);
        node.self_time = node.self_time.saturating_add(own);
        node.weighted_total += duration as f64 * frame.weight;
        node.weighted_self += own as f64 * frame.weight;
        if frame.entered {
            node.calls += 1;
            node.weighted_calls += frame.weight;
            node.totals = (node.totals.0.min(duration), node.totals.1.max(duration));
            node.selves = (node.selves.0.min(own), node.selves.1.max(own));
        }
    }
}
