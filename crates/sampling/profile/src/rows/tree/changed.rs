//! Call trees of changed call stacks: functions merged into their callers, samples dropped, recursion folded.

use super::{CallTree, Growing, Path, TreeDirection, TreeLimits, add, passes, shown};
use crate::counts::counter::Count;
use crate::naming::names::{FunctionId, Names};
use crate::profile::{EventProfile, Profile};
use crate::rows::aggregate::SelfAndTotal;
use crate::stacks::call_stacks::{StackNode, Stacks};

/// The treatment of functions that call themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Recursion {
    /// Each call has a row of its own.
    #[default]
    Kept,
    /// A function directly below itself is one row.
    DirectFolded,
    /// A function anywhere below itself is one row: calls between its outermost and its innermost call are left out. Their
    /// samples count at the row of the function that goes on.
    Folded,
}

/// Changes of call stacks before a tree is made of them. No sample is counted twice, and the samples that a tree loses are
/// counted in [`ChangedTree`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackChanges {
    /// By [`FunctionId`]: functions that are left out. The functions that they called stand below their callers, and samples
    /// in them count for their callers. Empty if there are none.
    pub merged: Vec<bool>,
    /// By [`FunctionId`]: functions whose samples do not count, whether in them or in what they called. Empty if there are
    /// none.
    pub dropped: Vec<bool>,
    /// The treatment of functions that call themselves, after the changes above.
    pub recursion: Recursion,
}

/// The part of the changed stacks that a tree shows.
#[derive(Clone, Copy, Debug)]
pub struct ChangedTreeOptions {
    /// The functions below a function.
    pub direction: TreeDirection,
    /// Limits of the rows. With a focus or a leaf they are shares of its samples.
    pub limits: TreeLimits,
    /// The function at whose outermost call the tree begins, as [`crate::trees_around`] does.
    pub focus: Option<FunctionId>,
    /// In a tree of callers without a focus: the only function at the top.
    pub leaf: Option<FunctionId>,
    /// In a tree of callers without a focus: the number of rows below each other that are made at most.
    pub depth: u32,
}

/// A call tree of changed stacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedTree {
    /// The tree.
    pub tree: CallTree,
    /// By event: the samples that were dropped.
    pub dropped: Vec<Count>,
    /// By event: the samples whose functions were all merged, so that no row can have them.
    pub bare: Vec<Count>,
}

/// Returns the call tree of the changed stacks of `profile` for `events` (indices of [`Profile::events`]).
///
/// Needs [`crate::LoadOptions::call_chains`]; without it the tree is empty.
pub fn changed_call_tree(
    profile: &Profile,
    names: &Names,
    events: &[usize],
    changes: &StackChanges,
    options: &ChangedTreeOptions,
) -> ChangedTree {
    let events: Vec<&EventProfile> = events
        .iter()
        .filter_map(|index| profile.events().get(*index))
        .collect();
    if !profile.options().call_chains {
        return ChangedTree::default();
    }
    let (growing, paths) = changed_paths(profile, names, changes);
    let dropped_stacks = match changes.dropped.contains(&true) {
        true => profile.stacks_through(names, &changes.dropped),
        false => Vec::new(),
    };
    let mut changed = ChangedTree::default();
    // By event, then by node of the changed paths.
    let mut counts: Vec<Vec<Count>> = Vec::new();
    for event in &events {
        let mut of_event = vec![Count::default(); growing.nodes.len()];
        let mut dropped = Count::default();
        profile.places(event, |stack, count| {
            match dropped_stacks.get(stack as usize) {
                Some(true) => dropped.add(count),
                _ => of_event[paths[stack as usize] as usize].add(count),
            }
        });
        changed.dropped.push(dropped);
        changed.bare.push(of_event[0]);
        counts.push(of_event);
    }
    let wholes: Vec<Count> = events.iter().map(|event| event.total()).collect();
    changed.tree = match (options.focus, options.direction) {
        (None, TreeDirection::Callees) => callees(&growing, &counts, &wholes, options.limits),
        (None, TreeDirection::Callers) => callers(names, &growing, &counts, &wholes, options),
        (Some(focus), TreeDirection::Callees) => {
            callees_of(names, &growing, &counts, focus, options.limits)
        }
        (Some(focus), TreeDirection::Callers) => {
            callers_of(names, &growing, &counts, focus, options.limits)
        }
    };
    changed
}

/// Returns the prefix tree of all changed paths, and the node of each stack.
fn changed_paths(profile: &Profile, names: &Names, changes: &StackChanges) -> (Growing, Vec<u32>) {
    let stacks = profile.stacks();
    let has_inlined = names.has_inlined();
    let mut growing = Growing::new();
    let mut executing = vec![Path::default(); stacks.len()];
    // The paths of stacks whose innermost frame has made a call, because other functions may be inlined at the call.
    let mut calling = match has_inlined {
        true => vec![Path::default(); stacks.len()],
        false => Vec::new(),
    };
    for (index, id) in (1..stacks.len()).zip(1_u32..) {
        let StackNode { parent, frame } = stacks.get(id);
        let is_called = has_inlined
            && parent != Stacks::ROOT
            && !names.is_interrupted(stacks.get(parent).frame, frame);
        let start = match is_called {
            true => calling[parent as usize],
            false => executing[parent as usize],
        };
        let mut below = |functions: &[FunctionId]| {
            let outermost_first = functions.iter().rev();
            outermost_first.fold(start, |path, function| {
                extended(&mut growing, names, changes, path, *function)
            })
        };
        executing[index] = below(names.chain_of(frame, None));
        if has_inlined {
            calling[index] = below(names.chain_of_caller(frame));
        }
    }
    (growing, executing.iter().map(|path| path.node).collect())
}

/// Extends a path by a function, unless the changes leave the function out or fold it.
fn extended(
    growing: &mut Growing,
    names: &Names,
    changes: &StackChanges,
    path: Path,
    function: FunctionId,
) -> Path {
    let is_merged = changes.merged.get(function as usize);
    if is_merged.copied().unwrap_or(false) {
        return path;
    }
    match changes.recursion {
        Recursion::Kept => {}
        Recursion::DirectFolded => {
            if growing.nodes[path.node as usize].function == function {
                return path;
            }
        }
        Recursion::Folded => {
            let known = growing.ids.get(&(path.node, function)).copied();
            let mut at = path.node;
            while known.is_none() && at != 0 {
                let node = growing.nodes[at as usize];
                if node.function == function {
                    // The next look-up finds the outer call at once.
                    growing.ids.insert((path.node, function), at);
                    return Path {
                        node: at,
                        frames: 1,
                    };
                }
                at = node.parent;
            }
            if let Some(node) = known {
                return Path { node, frames: 1 };
            }
        }
    }
    path.child(growing, names, function)
}

/// Adds each node's count to all nodes above it.
fn summed_up(growing: &Growing, own: &[Count]) -> Vec<SelfAndTotal> {
    let both = own.iter().map(|own| SelfAndTotal {
        own: *own,
        total: *own,
    });
    let mut column: Vec<SelfAndTotal> = both.collect();
    // Callees have larger ids than their callers.
    for id in (1..growing.nodes.len()).rev() {
        let total = column[id].total;
        column[growing.nodes[id].parent as usize].total.add(total);
    }
    column
}

fn callees(
    growing: &Growing,
    counts: &[Vec<Count>],
    wholes: &[Count],
    limits: TreeLimits,
) -> CallTree {
    let columns = counts.iter().map(|counts| summed_up(growing, counts));
    shown(&growing.nodes, &columns.collect::<Vec<_>>(), wholes, limits)
}

fn callers(
    names: &Names,
    growing: &Growing,
    counts: &[Vec<Count>],
    wholes: &[Count],
    options: &ChangedTreeOptions,
) -> CallTree {
    let functions = names.functions().len();
    let is_wanted = |function| options.leaf.is_none_or(|leaf| leaf == function);
    // By event: the samples in each function itself.
    let own: Vec<Vec<Count>> = counts
        .iter()
        .map(|counts| {
            let mut own = vec![Count::default(); functions];
            for (node, count) in growing.nodes.iter().zip(counts).skip(1) {
                own[node.function as usize].add(*count);
            }
            own
        })
        .collect();
    let wholes: Vec<Count> = match options.leaf {
        Some(leaf) => own.iter().map(|own| own[leaf as usize]).collect(),
        None => wholes.to_vec(),
    };
    // Functions below the limit need no callers.
    let is_heavy = |function: FunctionId| {
        own.iter()
            .zip(&wholes)
            .any(|(own, whole)| passes(own[function as usize].weight, whole.weight, options.limits))
    };
    let mut callers = Growing::new();
    let columns: Vec<Vec<SelfAndTotal>> = counts
        .iter()
        .map(|counts| {
            let mut column = Vec::new();
            for (node, count) in (0_u32..).zip(counts).skip(1) {
                let function = growing.nodes[node as usize].function;
                if count.is_zero() || !is_wanted(function) {
                    continue;
                }
                let depth = match is_heavy(function) {
                    true => options.depth,
                    false => 1,
                };
                let count = SelfAndTotal {
                    own: *count,
                    total: *count,
                };
                add_path(
                    names,
                    growing,
                    node,
                    count,
                    depth,
                    (&mut callers, &mut column),
                );
            }
            column
        })
        .collect();
    shown(&callers.nodes, &columns, &wholes, options.limits)
}

/// Adds a count to the path from a node outwards, in a tree of callers. `own` counts at the first row only.
fn add_path(
    names: &Names,
    growing: &Growing,
    node: u32,
    count: SelfAndTotal,
    depth: u32,
    (callers, column): (&mut Growing, &mut Vec<SelfAndTotal>),
) {
    let mut path = Path::default();
    let mut at = node;
    let mut rows = 0;
    while at != 0 && rows < depth {
        let node = growing.nodes[at as usize];
        let next = path.child(callers, names, node.function);
        if next.node != path.node {
            let own = match path.node {
                0 => count.own,
                _ => Count::default(),
            };
            add(column, next.node, own, count.total);
            rows += 1;
        }
        path = next;
        at = node.parent;
    }
}

/// The weight of everything that passed through the only top row.
fn tops(columns: &[Vec<SelfAndTotal>]) -> Vec<Count> {
    let tops = columns.iter().map(|column| column.get(1));
    tops.map(|top| top.map_or(Count::default(), |top| top.total))
        .collect()
}

fn callees_of(
    names: &Names,
    growing: &Growing,
    counts: &[Vec<Count>],
    focus: FunctionId,
    limits: TreeLimits,
) -> CallTree {
    let mut callees = Growing::new();
    // By node of the changed paths: the path from the function's outermost call on.
    let mut below: Vec<Option<Path>> = vec![None; growing.nodes.len()];
    for id in 1..growing.nodes.len() {
        let node = growing.nodes[id];
        let start = match below[node.parent as usize] {
            None if node.function == focus => Some(Path::default()),
            start => start,
        };
        below[id] = start.map(|start| start.child(&mut callees, names, node.function));
    }
    let columns: Vec<Vec<SelfAndTotal>> = counts
        .iter()
        .map(|counts| {
            let mut own = vec![Count::default(); callees.nodes.len()];
            for (path, count) in below.iter().zip(counts) {
                if let Some(path) = path {
                    own[path.node as usize].add(*count);
                }
            }
            summed_up(&callees, &own)
        })
        .collect();
    shown(&callees.nodes, &columns, &tops(&columns), limits)
}

fn callers_of(
    names: &Names,
    growing: &Growing,
    counts: &[Vec<Count>],
    focus: FunctionId,
    limits: TreeLimits,
) -> CallTree {
    // By node of the changed paths: the function's outermost call on it; 0 if there is none.
    let mut entries = vec![0_u32; growing.nodes.len()];
    for (id, node) in (0_u32..).zip(&growing.nodes).skip(1) {
        entries[id as usize] = match entries[node.parent as usize] {
            0 if node.function == focus => id,
            entry => entry,
        };
    }
    let mut callers = Growing::new();
    let columns: Vec<Vec<SelfAndTotal>> = counts
        .iter()
        .map(|counts| {
            let mut entered = vec![SelfAndTotal::default(); growing.nodes.len()];
            for ((node, entry), count) in growing.nodes.iter().zip(&entries).zip(counts) {
                let entered = &mut entered[*entry as usize];
                entered.total.add(*count);
                if node.function == focus {
                    entered.own.add(*count);
                }
            }
            let mut column = Vec::new();
            for (entry, count) in (0_u32..).zip(entered).skip(1) {
                if !count.total.is_zero() {
                    let tree = (&mut callers, &mut column);
                    add_path(names, growing, entry, count, u32::MAX, tree);
                }
            }
            column
        })
        .collect();
    shown(&callers.nodes, &columns, &tops(&columns), limits)
}
