//! Call trees: functions below their callers, or callers below their callees.

pub(crate) mod around;
pub(crate) mod changed;

use crate::counts::counter::Count;
use crate::hash::FxBuildHasher;
use crate::naming::names::{FunctionId, Names};
use crate::profile::{EventProfile, Profile};
use crate::rows::aggregate::SelfAndTotal;
use crate::rows::paths::Paths;
use crate::stacks::call_stacks::{StackNode, Stacks};
use hashbrown::HashMap;

/// The functions that a tree shows below a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeDirection {
    /// Its callers. The functions that were sampled themselves are at the top.
    Callers,
    /// Its callees. The outermost functions are at the top.
    Callees,
}

/// Limits of the shown part of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeLimits {
    /// The least weight of a row, in ten-thousandths of an event's weight. A row with less of every event is left out,
    /// with the rows below it.
    pub least: u32,
    /// The largest number of rows below one row, and at the top. The rows with the largest weight in the first event
    /// are kept.
    pub width: usize,
}

/// A function at one place of a call tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeRow {
    /// The row above it; always an earlier one.
    pub parent: Option<usize>,
    /// The function.
    pub function: FunctionId,
    /// The largest number of frames that the row stands for. It is more than one for consecutive addresses without a
    /// name in the same module, as wrong frame pointers leave them.
    pub frames: u32,
    /// For each event: `total` is the weight of the samples with this path, and `own` is the part of it at the function
    /// itself. In a tree of callees, `own` is the weight that is not in the rows below. In a tree of callers, `own` is
    /// all of the weight at the top, and zero below.
    pub counts: Vec<SelfAndTotal>,
}

/// A call tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallTree {
    /// The rows, each after its parent; the rows of one parent are ordered by falling weight.
    pub rows: Vec<TreeRow>,
    /// The number of rows that the limits left out.
    pub left_out: usize,
}

/// A node while the tree grows.
#[derive(Clone, Copy)]
struct Node {
    parent: u32,
    function: FunctionId,
    /// See [`TreeRow::frames`].
    frames: u32,
}

/// The prefix tree of functions; node 0 is its root.
struct Growing {
    nodes: Vec<Node>,
    ids: HashMap<(u32, FunctionId), u32, FxBuildHasher>,
}

impl Growing {
    fn new() -> Growing {
        Growing {
            nodes: vec![Node {
                parent: 0,
                function: FunctionId::MAX,
                frames: 0,
            }],
            ids: HashMap::default(),
        }
    }

    fn child(&mut self, parent: u32, function: FunctionId) -> u32 {
        *self.ids.entry((parent, function)).or_insert_with(|| {
            let id = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
            self.nodes.push(Node {
                parent,
                function,
                frames: 1,
            });
            id
        })
    }
}

/// A path downwards from the root.
#[derive(Clone, Copy, Default)]
struct Path {
    node: u32,
    /// The number of consecutive frames that its last node stands for.
    frames: u32,
}

impl Path {
    /// Extends the path by a function. The node stays the same where the function is one more address without a name.
    fn child(self, growing: &mut Growing, names: &Names, function: FunctionId) -> Path {
        let last = &mut growing.nodes[self.node as usize];
        if last.function == function && names.functions()[function as usize].is_unknown() {
            let frames = self.frames.saturating_add(1);
            last.frames = last.frames.max(frames);
            return Path { frames, ..self };
        }
        Path {
            node: growing.child(self.node, function),
            frames: 1,
        }
    }
}

/// Returns the call tree of `profile` for `events` (indices of [`Profile::events`]). A function that calls itself
/// stands below itself. Memory is bounded by the distinct stacks; in a tree of callers, by the stacks of functions that
/// pass the limit.
///
/// Needs [`crate::LoadOptions::call_chains`]; without it the tree is empty.
pub fn call_tree(
    profile: &Profile,
    names: &Names,
    events: &[usize],
    direction: TreeDirection,
    limits: TreeLimits,
) -> CallTree {
    let events: Vec<&EventProfile> = events
        .iter()
        .filter_map(|index| profile.events().get(*index))
        .collect();
    if !profile.options().call_chains {
        return CallTree::default();
    }
    let mut growing = Growing::new();
    // The counts by node, for each event.
    let columns = match direction {
        TreeDirection::Callees => callees(profile, names, &events, &mut growing),
        TreeDirection::Callers => callers(profile, names, &events, limits, &mut growing),
    };
    let wholes: Vec<Count> = events.iter().map(|event| event.total()).collect();
    shown(&growing.nodes, &columns, &wholes, limits)
}

fn add(column: &mut Vec<SelfAndTotal>, node: u32, own: Count, total: Count) {
    let index = node as usize;
    if index >= column.len() {
        column.resize(index + 1, SelfAndTotal::default());
    }
    column[index].own.add(own);
    column[index].total.add(total);
}

fn callees(
    profile: &Profile,
    names: &Names,
    events: &[&EventProfile],
    growing: &mut Growing,
) -> Vec<Vec<SelfAndTotal>> {
    let stacks = profile.stacks();
    // The path of each stack whose last frame executes itself. Callers' stacks have smaller ids.
    let mut executing = vec![Path::default(); stacks.len()];
    // The path of each stack whose last frame has made a call, because other functions may be inlined at the call.
    let mut calling = match names.has_inlined() {
        true => vec![Path::default(); stacks.len()],
        false => Vec::new(),
    };
    for id in 1..stacks.len() {
        // Ids fit, since the stacks gave them.
        let StackNode { parent, frame } = stacks.get(u32::try_from(id).unwrap_or(u32::MAX));
        let is_called = names.has_inlined()
            && parent != Stacks::ROOT
            && !names.is_interrupted(stacks.get(parent).frame, frame);
        let start = if is_called {
            calling[parent as usize]
        } else {
            executing[parent as usize]
        };
        let mut below = |functions: &[FunctionId]| {
            let outermost_first = functions.iter().rev();
            outermost_first.fold(start, |path, function| {
                path.child(growing, names, *function)
            })
        };
        executing[id] = below(names.chain_of(frame, None));
        if names.has_inlined() {
            calling[id] = below(names.chain_of_caller(frame));
        }
    }
    events
        .iter()
        .map(|event| {
            let mut column = vec![SelfAndTotal::default(); growing.nodes.len()];
            profile.places(event, |stack, count| {
                add(&mut column, executing[stack as usize].node, count, count);
            });
            // Callees have larger ids than their callers.
            for id in (1..growing.nodes.len()).rev() {
                let total = column[id].total;
                column[growing.nodes[id].parent as usize].total.add(total);
            }
            column
        })
        .collect()
}

fn callers(
    profile: &Profile,
    names: &Names,
    events: &[&EventProfile],
    limits: TreeLimits,
    growing: &mut Growing,
) -> Vec<Vec<SelfAndTotal>> {
    let stacks = profile.stacks();
    // Functions below the limit need no callers.
    let mut heavy = vec![false; names.functions().len()];
    for event in events {
        let mut own = vec![Count::default(); names.functions().len()];
        profile.places(event, |stack, count| {
            own[names.chain_of(profile.leaf(stack), None)[0] as usize].add(count);
        });
        for (heavy, own) in heavy.iter_mut().zip(own) {
            *heavy |= passes(own.weight, event.total().weight, limits);
        }
    }
    // Finding paths costs time for all stacks, which pays only where the callers of many stacks are asked for.
    let mut asked = 0;
    for event in events {
        profile.places(event, |stack, _| {
            let function = names.chain_of(profile.leaf(stack), None)[0];
            asked += usize::from(heavy[function as usize]);
        });
    }
    let paths = (asked >= stacks.len() / 4)
        .then(|| Paths::fewer(profile, names))
        .flatten();
    events
        .iter()
        .map(|event| {
            let mut column = Vec::new();
            // Extends a path of callers by a function, with the count of the path's samples; `None` where the path need
            // not go on.
            let mut step = |path: Path, function: FunctionId, count: Count| {
                let next = path.child(growing, names, function);
                let is_top = path.node == 0;
                if next.node != path.node {
                    let own = if is_top { count } else { Count::default() };
                    add(&mut column, next.node, own, count);
                }
                (!is_top || heavy[function as usize]).then_some(next)
            };
            if let Some(paths) = &paths {
                for (mut at, count) in paths.counts(profile, event) {
                    let mut path = Some(Path::default());
                    while let (Some(below), true) = (path, at != 0) {
                        let node = paths.get(at);
                        path = step(below, node.function, count);
                        at = node.parent;
                    }
                }
                return column;
            }
            profile.places(event, |stack, count| {
                let mut path = Path::default();
                let mut callee = None;
                let mut at = stack;
                while at != Stacks::ROOT {
                    let StackNode { parent, frame } = stacks.get(at);
                    for function in names.chain_of(frame, callee) {
                        match step(path, *function, count) {
                            Some(next) => path = next,
                            None => return,
                        }
                    }
                    callee = Some(frame);
                    at = parent;
                }
            });
            column
        })
        .collect()
}

fn passes(weight: u64, whole: u64, limits: TreeLimits) -> bool {
    u128::from(weight) * 10_000 >= u128::from(whole) * u128::from(limits.least)
}

/// Returns the rows that pass the limits, which are shares of `wholes`, by event.
fn shown(
    nodes: &[Node],
    columns: &[Vec<SelfAndTotal>],
    wholes: &[Count],
    limits: TreeLimits,
) -> CallTree {
    let count = |event: usize, node: usize| -> SelfAndTotal {
        columns
            .get(event)
            .and_then(|column| column.get(node))
            .copied()
            .unwrap_or_default()
    };
    let mut below: Vec<Vec<u32>> = vec![Vec::new(); nodes.len()];
    for (id, node) in (0_u32..).zip(nodes).skip(1) {
        let counted = (0..wholes.len()).any(|event| !count(event, id as usize).total.is_zero());
        if counted {
            below[node.parent as usize].push(id);
        }
    }
    let mut tree = CallTree::default();
    let mut kept = 0;
    let counted: usize = below.iter().map(Vec::len).sum();
    let mut waiting: Vec<(u32, Option<usize>)> = vec![(0, None)];
    while let Some((id, parent)) = waiting.pop() {
        let row = if id == 0 {
            None
        } else {
            tree.rows.push(TreeRow {
                parent,
                function: nodes[id as usize].function,
                frames: nodes[id as usize].frames,
                counts: (0..wholes.len())
                    .map(|event| count(event, id as usize))
                    .collect(),
            });
            kept += 1;
            Some(tree.rows.len() - 1)
        };
        let mut children: Vec<u32> = std::mem::take(&mut below[id as usize]);
        children.retain(|child| {
            wholes.iter().enumerate().any(|(index, whole)| {
                let total = count(index, *child as usize).total.weight;
                total > 0 && passes(total, whole.weight, limits)
            })
        });
        let weights = |child: u32| -> Vec<u64> {
            (0..wholes.len())
                .map(|event| count(event, child as usize).total.weight)
                .collect()
        };
        children.sort_by_cached_key(|child| {
            (
                std::cmp::Reverse(weights(*child)),
                nodes[*child as usize].function,
            )
        });
        children.truncate(limits.width);
        waiting.extend(children.into_iter().rev().map(|child| (child, row)));
    }
    tree.left_out = counted - kept;
    tree
}
