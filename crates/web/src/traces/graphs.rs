//! `/api/trace/graph`: the calls by path, as a tree in the shape of `/api/flame`.

use super::interned::Interned;
use super::loaded::OpenTrace;
use super::selected::{CallsKey, selected, view};
use super::tables::add_truncated;
use crate::api::{
    CallGraphRequest, CallSelection, CallWeight, Direction, FactAnswer, FlameAnswer, FlameEvent,
    FlameFunction, FlameModule, FlameRequest,
};
use crate::cache::MemorySize;
use crate::failure::Failure;
use crate::flames::{FlatTree, shown_tree};
use crate::jobs::Ticket;
use crate::server::Shared;
use crate::texts;
use dioptra_calls::{CallPathTree, call_tree};
use dioptra_profile::{CallTree, Count, SelfAndTotal, TreeRow};
use dioptra_trace_report::graph_facts;
use std::cmp::Reverse;
use std::sync::Arc;

/// Which tree: the key of trees that are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TraceTreeKey {
    pub calls: CallsKey,
    weight: CallWeight,
    focus: Option<String>,
}

/// A whole tree, with the functions of its nodes.
pub(crate) struct TraceTree {
    tree: FlatTree,
    functions: Vec<FlameFunction>,
    modules: Vec<FlameModule>,
    /// The weights and the number of all calls.
    whole: [Count; 2],
    facts: Vec<FactAnswer>,
}

impl MemorySize for TraceTree {
    fn bytes(&self) -> usize {
        self.tree.bytes() + 200 * self.functions.len()
    }
}

/// The weights of a node, in the order of [`weights_of`]: own, and with the nodes below.
type Weights = [SelfAndTotal; 2];

/// The weights of trees: the chosen one first, which decides the order of nodes.
fn weights_of(chosen: CallWeight) -> [CallWeight; 2] {
    match chosen {
        CallWeight::Time => [CallWeight::Time, CallWeight::Calls],
        CallWeight::Calls => [CallWeight::Calls, CallWeight::Time],
    }
}

/// Returns the weights of a tree's nodes.
fn weights(tree: &CallPathTree, is_sampled: bool, chosen: CallWeight) -> Vec<Weights> {
    let nodes = tree.nodes();
    let number = |exact: u64, scaled: f64| match is_sampled {
        true => scaled.round() as u64,
        false => exact,
    };
    let each = nodes.iter().map(|node| {
        let calls = number(node.calls, node.weighted_calls);
        weights_of(chosen).map(|weight| {
            let (own, total) = match weight {
                CallWeight::Time => (
                    number(node.self_time, node.weighted_self),
                    number(node.total, node.weighted_total),
                ),
                CallWeight::Calls => (calls, calls),
            };
            let count = |weight| Count {
                samples: calls,
                weight,
            };
            SelfAndTotal {
                own: count(own),
                total: count(total),
            }
        })
    });
    let mut weights: Vec<Weights> = each.collect();
    let calls = usize::from(chosen == CallWeight::Time);
    // Children stand behind their parents.
    for index in (1..nodes.len()).rev() {
        let below = weights[index][calls].total.weight;
        let above = &mut weights[nodes[index].parent as usize][calls].total.weight;
        *above = above.saturating_add(below);
    }
    weights
}

/// Returns a tree's rows depth first, the heaviest child first. `function` returns the index of a function.
fn rows(
    tree: &CallPathTree,
    weights: &[Weights],
    mut function: impl FnMut(u32) -> u32,
) -> Vec<TreeRow> {
    let nodes = tree.nodes();
    let mut children = tree.children();
    for list in &mut children {
        list.sort_by_key(|child| (Reverse(weights[*child as usize][0].total.weight), *child));
    }
    let mut rows: Vec<TreeRow> = Vec::with_capacity(nodes.len());
    // Nodes still to be added, the next one last: with the rows of their parents.
    let mut open: Vec<(u32, Option<usize>)> = Vec::new();
    open.extend(children[0].iter().rev().map(|child| (*child, None)));
    while let Some((node, parent)) = open.pop() {
        let place = rows.len();
        rows.push(TreeRow {
            parent,
            function: function(nodes[node as usize].function),
            frames: 1,
            counts: weights[node as usize].to_vec(),
        });
        let below = children[node as usize].iter().rev();
        open.extend(below.map(|child| (*child, Some(place))));
    }
    rows
}

fn make(
    open: &OpenTrace<'_>,
    key: &TraceTreeKey,
    selection: &CallSelection,
) -> Result<TraceTree, Failure> {
    let focus = key.focus.as_deref().map(|key| open.keys().find(key));
    let focus = focus.transpose()?;
    let view = view(open, selection, false)?;
    let whole = call_tree(&view);
    let mut facts = graph_facts(&view, &open.names, &whole);
    add_truncated(open, &mut facts);
    let tree = match focus {
        Some(ids) => whole.below(|function| ids.binary_search(&function).is_ok()),
        None => whole,
    };
    let weights = weights(&tree, view.is_sampled(), key.weight);
    let mut interned = Interned::new(open);
    let rows = rows(&tree, &weights, |function| interned.function(function));
    let calls = rows.iter().map(|row| row.counts[0].own.samples);
    let calls = calls.fold(0, u64::saturating_add);
    let whole = [0, 1].map(|weight| {
        let tops = rows.iter().filter(|row| row.parent.is_none());
        let weights = tops.map(|row| row.counts[weight].total.weight);
        Count {
            samples: calls,
            weight: weights.fold(0, u64::saturating_add),
        }
    });
    Ok(TraceTree {
        tree: FlatTree::of(&CallTree { rows, left_out: 0 }, 2),
        functions: interned.functions,
        modules: interned.modules,
        whole,
        facts: texts::facts(&facts),
    })
}

/// Answers `/api/trace/graph`.
pub(crate) fn answer(
    shared: &Shared,
    request: &CallGraphRequest,
    ticket: &Ticket,
) -> Result<FlameAnswer, Failure> {
    let (loaded, calls) = selected(shared, &request.selection)?;
    let key = TraceTreeKey {
        calls,
        weight: request.weight.unwrap_or_default(),
        focus: request.focus.clone(),
    };
    let tree: Arc<TraceTree> = shared.trace_trees.get(key.clone(), || {
        ticket.check()?;
        let (key, selection) = (key.clone(), request.selection.clone());
        loaded.run(move |open| make(open, &key, &selection))
    })?;
    ticket.check()?;
    let root = request.root.map(|root| root as usize);
    if let Some(root) = root.filter(|root| *root >= tree.tree.len()) {
        return Err(Failure::no_key("row", &root.to_string()));
    }
    let whole = |weight: usize| {
        root.map_or(tree.whole[weight].weight, |root| {
            tree.tree.weight(weight, root)
        })
    };
    let limits = FlameRequest {
        least: request.least,
        levels: request.levels,
        count: request.count,
        ..FlameRequest::default()
    };
    // Only the functions of the shown nodes go to the page.
    let mut shown: Vec<u32> = Vec::new();
    let mut places = vec![u32::MAX; tree.functions.len()];
    let nodes = shown_tree(
        &tree.tree,
        root,
        &[whole(0), whole(1)],
        &limits,
        |function| {
            let place = &mut places[function as usize];
            if *place == u32::MAX {
                *place = shown.len() as u32;
                shown.push(function);
            }
            *place
        },
    );
    let functions = shown
        .iter()
        .map(|function| tree.functions[*function as usize].clone());
    let events = weights_of(key.weight).into_iter().zip(tree.whole);
    let events = events.map(|(weight, whole)| {
        let (name, unit) = match weight {
            CallWeight::Time if loaded.ticks => ("time", Some("ticks")),
            CallWeight::Time => ("time", Some("ns")),
            CallWeight::Calls => ("calls", None),
        };
        FlameEvent {
            key: name.to_owned(),
            name: name.to_owned(),
            unit: unit.map(str::to_owned),
            samples: whole.samples,
            weight: whole.weight,
        }
    });
    Ok(FlameAnswer {
        profile: loaded.index,
        generation: loaded.generation,
        direction: Direction::Callees,
        events: events.collect(),
        functions: functions.collect(),
        modules: tree.modules.clone(),
        above: nodes.above,
        nodes: nodes.nodes,
        other: None,
        changes: None,
        metrics: None,
        left_out: nodes.left_out,
        total_nodes: tree.tree.len(),
        facts: tree.facts.clone(),
    })
}
