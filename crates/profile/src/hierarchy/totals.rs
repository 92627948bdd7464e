//! Totals: what was counted at a row's places or anything they called, each sample once.

use super::keys::Keys;
use super::{Growing, Hits, Scratch};
use crate::counts::Count;
use crate::frames::FrameId;
use crate::names::Names;
use crate::stacks::{StackId, Stacks};

/// All stacks in an order in which each is followed at once by all that it calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    /// By stack: its place in the order.
    places: Vec<u32>,
    /// By place: the caller's place, and the frame.
    nodes: Vec<(u32, FrameId)>,
}

impl Order {
    pub(crate) fn of(stacks: &Stacks) -> Order {
        let length = stacks.len();
        let id = |index: usize| StackId::try_from(index).unwrap_or(StackId::MAX);
        // How many stacks there are below each, itself included: callers have smaller ids.
        let mut sizes = vec![1_u32; length];
        for index in (1..length).rev() {
            sizes[stacks.get(id(index)).parent as usize] += sizes[index];
        }
        // Each takes its place after its caller and those below its caller that came before.
        let mut places = vec![0_u32; length];
        let mut next = vec![1_u32; length];
        let mut nodes = vec![(0, FrameId::MAX); length];
        for index in 1..length {
            let node = stacks.get(id(index));
            let parent = node.parent as usize;
            let place = next[parent];
            places[index] = place;
            nodes[place as usize] = (places[parent], node.frame);
            next[parent] += sizes[index];
            next[index] = place + 1;
        }
        Order { places, nodes }
    }
}

/// The branches of places on the way to a stack.
struct Path<'a> {
    keys: &'a Keys,
    /// By branch: how many callers lie on it.
    active: Vec<u32>,
    group: u32,
    /// By branch: the group for which its row is known, and the row.
    rows: Vec<(u32, u32)>,
}

impl Path<'_> {
    /// Goes on with samples of another group.
    fn group(&mut self, group: u32) {
        self.group = group;
    }

    /// The row of the group's samples at a branch.
    #[inline]
    fn row(&mut self, branch: u32, growing: &mut Growing) -> u32 {
        let (group, row) = self.rows[branch as usize];
        if group == self.group {
            return row;
        }
        let row = growing.end(self.keys, self.group, branch);
        self.rows[branch as usize] = (self.group, row);
        row
    }

    /// Goes to branches, the innermost one given first, and adds what was counted there or below.
    fn enter(
        &mut self,
        branches: &[u32],
        weight: Count,
        growing: &mut Growing,
        scratch: &mut Scratch,
    ) {
        for branch in branches.iter().rev() {
            // On so many levels of places a caller has the same keys: it counts these samples already.
            let mut repeated = self.keys.places();
            let mut at = *branch;
            while repeated > 0 && self.active[at as usize] == 0 {
                at = self.keys.branches[at as usize].parent;
                repeated -= 1;
            }
            if repeated < self.keys.places() {
                let mut row = self.row(*branch, growing);
                for level in (0..growing.levels).rev() {
                    if usize::from(self.keys.depth(level)) <= repeated {
                        break;
                    }
                    scratch.total(row).add(weight);
                    row = growing.nodes[row as usize].parent;
                }
            }
            self.mark(*branch, |active| *active += 1);
        }
    }

    fn leave(&mut self, branches: &[u32]) {
        for branch in branches {
            self.mark(*branch, |active| *active -= 1);
        }
    }

    #[inline]
    fn mark(&mut self, branch: u32, change: impl Fn(&mut u32)) {
        let mut at = branch;
        for _ in 0..self.keys.places() {
            change(&mut self.active[at as usize]);
            at = self.keys.branches[at as usize].parent;
        }
    }
}

/// Adds the totals of one event on all levels from the first one of places on. Without an order places are frames.
pub(super) fn add(
    names: &Names,
    keys: &Keys,
    growing: &mut Growing,
    hits: &Hits,
    order: Option<&Order>,
    scratch: &mut Scratch,
) {
    let mut path = Path {
        keys,
        active: vec![0; keys.branches.len()],
        group: u32::MAX,
        rows: vec![(u32::MAX, 0); keys.branches.len()],
    };
    let Some(order) = order else {
        for hit in &hits.list {
            let branches = keys.leaf(hit.place);
            path.group(hit.group);
            path.enter(branches, hit.count, growing, scratch);
            path.leave(branches);
        }
        return;
    };
    let mut by_group: Vec<u32> = (0_u32..).take(hits.list.len()).collect();
    if growing.groups.len() > 1 {
        by_group.sort_by_key(|index| hits.list[*index as usize].group);
    }
    let mut below = Below::new(order, keys.of_context());
    for of_group in by_group
        .chunk_by(|one, other| hits.list[*one as usize].group == hits.list[*other as usize].group)
    {
        for index in of_group {
            let hit = hits.list[*index as usize];
            below.add(hit.place, hit.count);
        }
        let Some(group) = of_group.first().map(|hit| hits.list[*hit as usize].group) else {
            continue;
        };
        path.group(group);
        below.walk(|step| match step {
            Step::Enter(frame, caller, weights) if keys.of_context() => {
                if let Some(caller) = caller {
                    let branches = keys.caller(names, caller, frame);
                    path.enter(branches, weights.all, growing, scratch);
                }
                if !weights.own.is_zero() {
                    let branches = keys.leaf(frame);
                    path.enter(branches, weights.own, growing, scratch);
                    path.leave(branches);
                }
            }
            Step::Leave(frame, caller) if keys.of_context() => {
                if let Some(caller) = caller {
                    path.leave(keys.caller(names, caller, frame));
                }
            }
            Step::Enter(frame, _, weights) => {
                path.enter(keys.leaf(frame), weights.all, growing, scratch);
            }
            Step::Leave(frame, _) => path.leave(keys.leaf(frame)),
        });
    }
}

/// What was counted at a stack itself, and there or in what it called.
#[derive(Clone, Copy, Default)]
struct Weights {
    /// Only where it was asked for.
    own: Count,
    all: Count,
}

/// A step of a walk through the stacks that count anything: the frame, and that of the caller.
enum Step {
    Enter(FrameId, Option<FrameId>, Weights),
    Leave(FrameId, Option<FrameId>),
}

/// The stacks of a group's samples and their callers, all by their places in the order.
struct Below<'a> {
    order: &'a Order,
    all: Vec<Count>,
    /// Empty unless asked for.
    own: Vec<Count>,
    seen: Vec<bool>,
    touched: Vec<u32>,
}

impl<'a> Below<'a> {
    fn new(order: &'a Order, own: bool) -> Self {
        let length = order.nodes.len();
        Below {
            order,
            all: vec![Count::default(); length],
            own: vec![Count::default(); if own { length } else { 0 }],
            seen: vec![false; length],
            touched: Vec::new(),
        }
    }

    fn add(&mut self, stack: StackId, count: Count) {
        let mut at = self.order.places[stack as usize];
        self.all[at as usize].add(count);
        if let Some(own) = self.own.get_mut(at as usize) {
            own.add(count);
        }
        while at != 0 && !self.seen[at as usize] {
            self.seen[at as usize] = true;
            self.touched.push(at);
            at = self.order.nodes[at as usize].0;
        }
    }

    /// Visits all stacks, callers before what they called, and forgets them.
    fn walk(&mut self, mut visit: impl FnMut(Step)) {
        let nodes = &self.order.nodes;
        let mut touched = std::mem::take(&mut self.touched);
        if touched.len() > nodes.len() / 16 {
            // Looking at all is faster than sorting.
            touched.clear();
            let all = (0_u32..).zip(&self.seen);
            touched.extend(all.filter(|(_, seen)| **seen).map(|(place, _)| place));
        } else {
            touched.sort_unstable();
        }
        for place in touched.iter().rev() {
            let all = self.all[*place as usize];
            self.all[nodes[*place as usize].0 as usize].add(all);
        }
        let frame_of = |place: u32| (place != 0).then(|| nodes[place as usize].1);
        let mut path: Vec<u32> = Vec::new();
        for place in touched.drain(..) {
            let (caller, frame) = nodes[place as usize];
            while let Some(last) = path.pop_if(|last| *last != caller) {
                let (caller, frame) = nodes[last as usize];
                visit(Step::Leave(frame, frame_of(caller)));
            }
            let index = place as usize;
            let weights = Weights {
                own: self
                    .own
                    .get_mut(index)
                    .map(std::mem::take)
                    .unwrap_or_default(),
                all: std::mem::take(&mut self.all[index]),
            };
            self.seen[index] = false;
            visit(Step::Enter(frame, frame_of(caller), weights));
            path.push(place);
        }
        while let Some(last) = path.pop() {
            let (caller, frame) = nodes[last as usize];
            visit(Step::Leave(frame, frame_of(caller)));
        }
        if let Some(root) = self.all.first_mut() {
            *root = Count::default();
        }
        self.touched = touched;
    }
}
