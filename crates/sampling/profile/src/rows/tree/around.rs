//! The callers and the callees of one function.

use super::{CallTree, Growing, Path, TreeLimits, add, shown};
use crate::counts::counter::Count;
use crate::naming::names::{FunctionId, Names};
use crate::profile::{EventProfile, Profile};
use crate::rows::aggregate::SelfAndTotal;
use crate::stacks::call_stacks::{StackNode, Stacks};

/// Two call trees of the samples that have one function on their stack. Both have the function as their only top row, and
/// both start at its outermost call, so recursion never counts a sample twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreesAround {
    /// The function, below it its callers. `own` is what the function itself executed, at the top only.
    pub callers: CallTree,
    /// The function, below it what it called, directly or not.
    pub callees: CallTree,
}

/// The outermost call of the function on some stacks.
#[derive(Clone, Copy)]
struct Entry {
    /// The stack whose innermost frame holds the function.
    stack: u32,
    /// Whether that frame has called another one.
    is_calling: bool,
    /// The place of the function in the frame's chain of functions, the innermost one first.
    place: usize,
}

/// A stack's position below the outermost call of the function.
#[derive(Clone, Copy)]
struct Below {
    entry: u32,
    /// In the tree of callees.
    path: Path,
}

/// Returns the callers and the callees of `function` in `profile`, with the counts of `events` (indices of
/// [`Profile::events`]). `limits` are shares of the function's own total.
///
/// Needs [`crate::LoadOptions::call_chains`], else both trees are empty.
pub fn trees_around(
    profile: &Profile,
    names: &Names,
    events: &[usize],
    function: FunctionId,
    limits: TreeLimits,
) -> TreesAround {
    let events: Vec<&EventProfile> = events
        .iter()
        .filter_map(|index| profile.events().get(*index))
        .collect();
    if !profile.options().call_chains {
        return TreesAround::default();
    }
    let mut callees = Growing::new();
    let (entries, positions) = positions(profile, names, function, &mut callees);
    let mut callee_columns = Vec::new();
    // By event, then by entry.
    let mut entered: Vec<Vec<SelfAndTotal>> = Vec::new();
    for event in &events {
        let mut column = vec![SelfAndTotal::default(); callees.nodes.len()];
        let mut of_entries = vec![SelfAndTotal::default(); entries.len()];
        profile.places(event, |stack, count| {
            let Some(below) = positions[stack as usize] else {
                return;
            };
            add(&mut column, below.path.node, count, count);
            let of_entry = &mut of_entries[below.entry as usize];
            of_entry.total.add(count);
            if names.chain_of(profile.leaf(stack), None)[0] == function {
                of_entry.own.add(count);
            }
        });
        for id in (1..callees.nodes.len()).rev() {
            let total = column[id].total;
            column[callees.nodes[id].parent as usize].total.add(total);
        }
        callee_columns.push(column);
        entered.push(of_entries);
    }
    let mut callers = Growing::new();
    let caller_columns: Vec<Vec<SelfAndTotal>> = entered
        .iter()
        .map(|of_entries| {
            let mut column = Vec::new();
            for (entry, count) in entries.iter().zip(of_entries) {
                if !count.total.is_zero() {
                    add_callers(profile, names, *entry, *count, &mut callers, &mut column);
                }
            }
            column
        })
        .collect();
    // Limits are shares of what passed through the function.
    let whole = |columns: &[Vec<SelfAndTotal>]| -> Vec<Count> {
        columns
            .iter()
            .map(|column| column.get(1).map_or(Count::default(), |top| top.total))
            .collect()
    };
    TreesAround {
        callers: shown(
            &callers.nodes,
            &caller_columns,
            &whole(&caller_columns),
            limits,
        ),
        callees: shown(
            &callees.nodes,
            &callee_columns,
            &whole(&callee_columns),
            limits,
        ),
    }
}

/// By stack: where it is below the function's outermost call, if the function is on it. Grows the tree of callees.
fn positions(
    profile: &Profile,
    names: &Names,
    function: FunctionId,
    callees: &mut Growing,
) -> (Vec<Entry>, Vec<Option<Below>>) {
    let stacks = profile.stacks();
    let has_inlined = names.has_inlined();
    let mut entries: Vec<Entry> = Vec::new();
    let mut executing: Vec<Option<Below>> = vec![None; stacks.len()];
    let mut calling: Vec<Option<Below>> = match has_inlined {
        true => vec![None; stacks.len()],
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
        let mut below = |functions: &[FunctionId], is_calling: bool| {
            let mut at = start;
            for (place, next) in functions.iter().enumerate().rev() {
                at = match at {
                    Some(Below { entry, path }) => Some(Below {
                        entry,
                        path: path.child(callees, names, *next),
                    }),
                    None if *next == function => {
                        entries.push(Entry {
                            stack: id,
                            is_calling,
                            place,
                        });
                        Some(Below {
                            // No more entries than stacks and functions inlined there.
                            entry: u32::try_from(entries.len() - 1).unwrap_or(u32::MAX),
                            path: Path::default().child(callees, names, *next),
                        })
                    }
                    None => None,
                };
            }
            at
        };
        executing[index] = below(names.chain_of(frame, None), false);
        if has_inlined {
            calling[index] = below(names.chain_of_caller(frame), true);
        }
    }
    (entries, executing)
}

/// Adds the counts of an entry to its callers, from the function outwards.
fn add_callers(
    profile: &Profile,
    names: &Names,
    entry: Entry,
    count: SelfAndTotal,
    callers: &mut Growing,
    column: &mut Vec<SelfAndTotal>,
) {
    let stacks = profile.stacks();
    let mut path = Path::default();
    let mut step = |functions: &[FunctionId]| {
        for function in functions {
            let is_top = path.node == 0;
            let next = path.child(callers, names, *function);
            if next.node != path.node {
                let own = if is_top { count.own } else { Count::default() };
                add(column, next.node, own, count.total);
            }
            path = next;
        }
    };
    let StackNode { mut parent, frame } = stacks.get(entry.stack);
    let first = match entry.is_calling {
        true => names.chain_of_caller(frame),
        false => names.chain_of(frame, None),
    };
    step(&first[entry.place..]);
    let mut callee = frame;
    while parent != Stacks::ROOT {
        let node = stacks.get(parent);
        step(names.chain_of(node.frame, Some(callee)));
        callee = node.frame;
        parent = node.parent;
    }
}
