//! Totals: what was counted at a row's places or anything they called, each sample once.

use super::keys::Keys;
use super::{Growing, Hits, Scratch};
use crate::counts::Count;
use crate::frames::FrameId;
use crate::names::Names;
use crate::profile::Profile;
use crate::stacks::{StackId, StackNode, Stacks};

/// The place of each stack in an order in which all that it calls follows it at once.
pub(super) struct Order(Vec<u32>);

impl Order {
    pub(super) fn of(stacks: &Stacks) -> Order {
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
        for index in 1..length {
            let parent = stacks.get(id(index)).parent as usize;
            places[index] = next[parent];
            next[parent] += sizes[index];
            next[index] = places[index] + 1;
        }
        Order(places)
    }
}

/// The branches of places on the way to a stack.
struct Path<'a> {
    keys: &'a Keys,
    /// By branch: how many callers lie on it.
    active: Vec<u32>,
}

impl Path<'_> {
    /// Goes to branches, the innermost one given first, and adds what was counted there or below.
    fn enter(
        &mut self,
        branches: &[u32],
        weight: Count,
        group: u32,
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
                let mut row = growing.end(self.keys, group, *branch);
                for level in (0..growing.levels).rev() {
                    if usize::from(self.keys.depth(level)) <= repeated {
                        break;
                    }
                    scratch.at(row).total.add(weight);
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
    profile: &Profile,
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
    };
    let Some(order) = order else {
        for hit in &hits.list {
            let branches = keys.leaf(hit.place);
            path.enter(branches, hit.count, hit.group, growing, scratch);
            path.leave(branches);
        }
        return;
    };
    let mut by_group: Vec<u32> = (0_u32..).take(hits.list.len()).collect();
    if growing.groups.len() > 1 {
        by_group.sort_by_key(|index| hits.list[*index as usize].group);
    }
    let mut below = Below::new(profile.stacks());
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
        below.walk(order, |step| match step {
            Step::Enter(node, caller, weights) if keys.of_context() => {
                if let Some(caller) = caller {
                    let branches = keys.caller(names, caller, node.frame);
                    path.enter(branches, weights.all, group, growing, scratch);
                }
                if !weights.own.is_zero() {
                    let branches = keys.leaf(node.frame);
                    path.enter(branches, weights.own, group, growing, scratch);
                    path.leave(branches);
                }
            }
            Step::Leave(node, caller) if keys.of_context() => {
                if let Some(caller) = caller {
                    path.leave(keys.caller(names, caller, node.frame));
                }
            }
            Step::Enter(node, _, weights) => {
                let branches = keys.leaf(node.frame);
                path.enter(branches, weights.all, group, growing, scratch);
            }
            Step::Leave(node, _) => path.leave(keys.leaf(node.frame)),
        });
    }
}

/// What was counted at a stack itself, and there or in what it called.
#[derive(Clone, Copy, Default)]
struct Weights {
    own: Count,
    all: Count,
}

/// A step of a walk through the stacks that count anything, with the frame of the caller.
enum Step {
    Enter(StackNode, Option<FrameId>, Weights),
    Leave(StackNode, Option<FrameId>),
}

/// The stacks of a group's samples and their callers.
struct Below<'a> {
    stacks: &'a Stacks,
    /// By stack.
    weights: Vec<Weights>,
    seen: Vec<bool>,
    touched: Vec<StackId>,
}

impl<'a> Below<'a> {
    fn new(stacks: &'a Stacks) -> Self {
        Below {
            stacks,
            weights: vec![Weights::default(); stacks.len()],
            seen: vec![false; stacks.len()],
            touched: Vec::new(),
        }
    }

    fn add(&mut self, stack: StackId, count: Count) {
        self.weights[stack as usize].own.add(count);
        let mut at = stack;
        while at != Stacks::ROOT && !self.seen[at as usize] {
            self.seen[at as usize] = true;
            self.touched.push(at);
            at = self.stacks.get(at).parent;
        }
    }

    /// Visits all stacks, callers before what they called, and forgets them.
    fn walk(&mut self, order: &Order, mut visit: impl FnMut(Step)) {
        let stacks = self.stacks;
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable_by_key(|stack| order.0[*stack as usize]);
        for stack in touched.iter().rev() {
            let weights = &mut self.weights[*stack as usize];
            let own = weights.own;
            weights.all.add(own);
            let all = weights.all;
            self.weights[stacks.get(*stack).parent as usize]
                .all
                .add(all);
        }
        let frame_of = |stack: StackId| (stack != Stacks::ROOT).then(|| stacks.get(stack).frame);
        let mut path: Vec<StackId> = Vec::new();
        for stack in touched.drain(..) {
            let node = stacks.get(stack);
            while let Some(last) = path.pop_if(|last| *last != node.parent) {
                let last = stacks.get(last);
                visit(Step::Leave(last, frame_of(last.parent)));
            }
            let weights = std::mem::take(&mut self.weights[stack as usize]);
            self.seen[stack as usize] = false;
            visit(Step::Enter(node, frame_of(node.parent), weights));
            path.push(stack);
        }
        while let Some(last) = path.pop() {
            let last = stacks.get(last);
            visit(Step::Leave(last, frame_of(last.parent)));
        }
        self.weights[Stacks::ROOT as usize] = Weights::default();
        self.touched = touched;
    }
}
