//! Totals: the counts at a row's places or anything they called, each sample once.
//!
//! A row's total is a sum over samples, so the samples are cut into pieces that threads walk at the same time. Within a
//! piece, samples are in the order of their stacks, so that each stack is entered and left once.

use super::keys::Keys;
use super::{Growing, Hit, Hits, Scratch};
use crate::counts::counter::Count;
use crate::naming::names::Names;
use crate::stacks::call_stacks::{StackId, Stacks};
use crate::stacks::frames::FrameId;
use rayon::prelude::*;

/// All stacks in an order in which each stack is directly followed by all its callees.
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
        // The number of stacks below each stack, itself included. Callers have smaller ids.
        let mut sizes = vec![1_u32; length];
        for index in (1..length).rev() {
            sizes[stacks.get(id(index)).parent as usize] += sizes[index];
        }
        // Each stack takes its place after its caller and after the earlier stacks below the same caller.
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

/// Adds the totals of one event, on all levels from the first level of places on. Without an order, the places of hits
/// are frames.
pub(super) fn add(
    names: &Names,
    keys: &Keys,
    growing: &mut Growing,
    hits: &Hits,
    order: Option<&Order>,
    scratch: &mut Scratch,
) {
    let place = |hit: &Hit| order.map_or(hit.place, |order| order.places[hit.place as usize]);
    let mut placed: Vec<Placed> = hits
        .list
        .iter()
        .map(|hit| Placed {
            group: hit.group,
            place: place(hit),
            count: hit.count,
        })
        .collect();
    placed.par_sort_unstable_by_key(|hit| (hit.group, hit.place));
    let pieces = rayon::current_num_threads() * PIECES_OF_THREAD;
    let length = placed.len().div_ceil(pieces).max(LEAST_PIECE);
    let sums: Vec<Vec<GroupSums>> = placed
        .par_chunks(length)
        .map_init(
            || Path::new(names, keys, order),
            |path, piece| {
                let groups = piece.chunk_by(|one, other| one.group == other.group);
                groups.map(|of_group| path.walk(of_group)).collect()
            },
        )
        .collect();
    drop(placed);
    let mut above = vec![Count::default(); keys.branches.len()];
    let all: Vec<GroupSums> = sums.into_iter().flatten().collect();
    for of_group in all.chunk_by(|one, other| one.group == other.group) {
        for (branch, count) in of_group.iter().flat_map(|sums| &sums.above) {
            above[*branch as usize].add(*count);
        }
        for sums in of_group {
            for (branch, count) in &sums.ends {
                let row = growing.end(keys, sums.group, *branch);
                add_to_rows(keys, growing, row, (*branch, *count), &mut above, scratch);
            }
        }
    }
}

/// Adds the count of a branch to its `row` on the last level, and the counts of the branches above it to the rows
/// above. Each count in `above` is taken only once.
fn add_to_rows(
    keys: &Keys,
    growing: &Growing,
    mut row: u32,
    (mut branch, mut count): (u32, Count),
    above: &mut [Count],
    scratch: &mut Scratch,
) {
    let mut depth = keys.places();
    for level in (0..growing.levels).rev() {
        let of_level = usize::from(keys.depth(level));
        if of_level == 0 {
            break;
        }
        if of_level < depth {
            depth = of_level;
            branch = keys.branches[branch as usize].parent;
            count = std::mem::take(&mut above[branch as usize]);
        }
        if !count.is_zero() {
            scratch.total(row).add(count);
        }
        row = growing.nodes[row as usize].parent;
    }
}

/// The number of pieces of the samples for each thread, since some pieces take longer than others.
const PIECES_OF_THREAD: usize = 4;
/// The least number of samples in a piece.
const LEAST_PIECE: usize = 1 << 12;

/// The samples of a group at a place: the place of their stack in the order, or their frame.
struct Placed {
    group: u32,
    place: u32,
    count: Count,
}

/// The counts at or below branches, for some samples of a group.
struct GroupSums {
    group: u32,
    /// Counts of branches on the last level of places.
    ends: Vec<(u32, Count)>,
    /// Counts of the branches above them.
    above: Vec<(u32, Count)>,
}

/// A stack on the path to a sample, and the counts there so far.
#[derive(Clone, Copy)]
struct Step {
    place: u32,
    frame: FrameId,
    own: Count,
    /// The counts at the stack or its callees.
    all: Count,
}

/// The path from the outermost caller to a sample.
struct Path<'a> {
    names: &'a Names,
    keys: &'a Keys,
    order: Option<&'a Order>,
    /// The stacks on the path. The first entry is no stack.
    steps: Vec<Step>,
    /// Room for the places of stacks that are yet to be entered.
    ahead: Vec<u32>,
    /// By branch: the number of times that it is on the path.
    active: Vec<u32>,
    /// By branch: its count.
    sums: Vec<Count>,
    ends: Vec<u32>,
    above: Vec<u32>,
}

impl<'a> Path<'a> {
    fn new(names: &'a Names, keys: &'a Keys, order: Option<&'a Order>) -> Self {
        Path {
            names,
            keys,
            order,
            steps: vec![Step {
                place: 0,
                frame: FrameId::MAX,
                own: Count::default(),
                all: Count::default(),
            }],
            ahead: Vec::new(),
            active: vec![0; keys.branches.len()],
            sums: vec![Count::default(); keys.branches.len()],
            ends: Vec::new(),
            above: Vec::new(),
        }
    }

    /// Returns the counts of samples of one group, which are in the order of their places.
    fn walk(&mut self, hits: &[Placed]) -> GroupSums {
        match self.order {
            None => {
                for hit in hits {
                    let branches = self.keys.leaf(hit.place);
                    self.enter(branches);
                    self.leave(branches, hit.count);
                }
            }
            Some(order) => {
                for hit in hits.iter().filter(|hit| hit.place != 0) {
                    self.go_to(hit.place, order);
                    if let Some(step) = self.steps.last_mut() {
                        step.own.add(hit.count);
                        step.all.add(hit.count);
                    }
                }
                while self.steps.len() > 1 {
                    self.step_back();
                }
            }
        }
        let sums = &mut self.sums;
        let mut take = |branches: &mut Vec<u32>| {
            let sum = |branch: u32| (branch, std::mem::take(&mut sums[branch as usize]));
            branches.drain(..).map(sum).collect()
        };
        GroupSums {
            group: hits.first().map_or(0, |hit| hit.group),
            ends: take(&mut self.ends),
            above: take(&mut self.above),
        }
    }

    /// Leaves the stacks that are not callers of the stack at `place`, and enters the stacks that are.
    fn go_to(&mut self, place: u32, order: &Order) {
        let mut at = place;
        loop {
            // Callers come before their callees, and all callees of a stack follow each other.
            let last = self.steps.last().map_or(0, |step| step.place);
            while at > last {
                self.ahead.push(at);
                at = order.nodes[at as usize].0;
            }
            if at == last {
                break;
            }
            self.step_back();
        }
        while let Some(place) = self.ahead.pop() {
            let step = Step {
                place,
                frame: order.nodes[place as usize].1,
                own: Count::default(),
                all: Count::default(),
            };
            let branches = self.branches(step.frame);
            self.enter(branches);
            self.steps.push(step);
        }
    }

    /// Returns the branches that entering `frame` puts on the path. They are the frame's own or, where branches depend
    /// on callees, those of the last step, which has now called `frame`.
    fn branches(&self, frame: FrameId) -> &'a [u32] {
        if !self.keys.of_context() {
            return self.keys.leaf(frame);
        }
        match self.steps.last() {
            Some(caller) if caller.place != 0 => self.keys.caller(self.names, caller.frame, frame),
            _ => &[],
        }
    }

    /// Leaves the last stack.
    fn step_back(&mut self) {
        let Some(step) = self.steps.pop() else {
            return;
        };
        if self.keys.of_context() && !step.own.is_zero() {
            let branches = self.keys.leaf(step.frame);
            self.enter(branches);
            self.leave(branches, step.own);
        }
        let branches = self.branches(step.frame);
        self.leave(branches, step.all);
        if let Some(caller) = self.steps.last_mut() {
            caller.all.add(step.all);
        }
    }

    /// Puts branches on the path.
    fn enter(&mut self, branches: &[u32]) {
        for branch in branches {
            let mut at = *branch;
            for _ in 0..self.keys.places() {
                self.active[at as usize] += 1;
                at = self.keys.branches[at as usize].parent;
            }
        }
    }

    /// Takes branches off the path; the innermost one comes first. Adds the count to each branch that is not on the
    /// path any more. A branch that is still on the path belongs to a caller with the same keys, which counts the
    /// samples later.
    fn leave(&mut self, branches: &[u32], weight: Count) {
        for branch in branches {
            let mut at = *branch;
            for step in 0..self.keys.places() {
                let index = at as usize;
                self.active[index] -= 1;
                if self.active[index] == 0 {
                    if self.sums[index].is_zero() {
                        match step {
                            0 => self.ends.push(at),
                            _ => self.above.push(at),
                        }
                    }
                    self.sums[index].add(weight);
                }
                at = self.keys.branches[index].parent;
            }
        }
    }
}
