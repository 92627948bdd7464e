//! `/api/flame`: merged call trees, of which answers have the heaviest nodes.

use crate::api::{
    Direction, FlameAbove, FlameAnswer, FlameEvent, FlameFunction, FlameLeftOut, FlameModule,
    FlameNodes, FlameRequest,
};
use crate::cache::MemorySize;
use crate::changes::{CallersPart, Changes, changed_tree, lost, module_kind};
use crate::failure::Failure;
use crate::jobs::Ticket;
use crate::selected::{Selected, SelectionKey};
use crate::server::Shared;
use crate::{flame_changes, flame_metrics, metrics, texts};
use dioptra_profile::{
    CallTree, Count, FunctionId, TreeDirection, TreeLimits, call_tree, trees_around,
};
use dioptra_report::{CountedMetrics, profile_facts};
use hashbrown::HashMap;
use std::sync::Arc;

/// The largest number of nodes in an answer.
const MOST_NODES: usize = 200_000;
/// The number of nodes in an answer unless the request gives one.
const NODES: usize = 50_000;
/// Nodes with a smaller share than this many ten-thousandths are left out unless told otherwise: less than a pixel.
pub(crate) const LEAST: u32 = 1;

/// Which tree: the key of trees that are kept.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TreeKey {
    pub selection: SelectionKey,
    pub events: Vec<usize>,
    pub callers: bool,
    pub focus: Option<FunctionId>,
    pub changes: Changes,
    pub part: CallersPart,
}

/// A whole tree: nodes depth first, the heaviest child first.
#[derive(Default)]
pub(crate) struct FlatTree {
    /// One more than the parent's number; 0 for top nodes.
    above: Vec<u32>,
    pub function: Vec<FunctionId>,
    /// The number of the first node behind the node's subtree.
    end: Vec<u32>,
    /// The number of children.
    below: Vec<u32>,
    /// By event, then node.
    own: Vec<Vec<Count>>,
    /// By event, then node.
    pub total: Vec<Vec<Count>>,
    /// The nodes that were too light to be made.
    left_out: usize,
    /// By event: the samples that changed stacks lost.
    dropped: Vec<Count>,
    /// By event: the samples without a function that is shown.
    bare: Vec<Count>,
}

impl MemorySize for FlatTree {
    fn bytes(&self) -> usize {
        1 + self.function.len() * (16 + 32 * self.own.len())
    }
}

impl FlatTree {
    pub(crate) fn of(tree: &CallTree, events: usize) -> FlatTree {
        let nodes = tree.rows.len();
        let mut flat = FlatTree {
            above: Vec::with_capacity(nodes),
            function: Vec::with_capacity(nodes),
            end: (1..).take(nodes).collect(),
            below: vec![0; nodes],
            own: vec![Vec::with_capacity(nodes); events],
            total: vec![Vec::with_capacity(nodes); events],
            left_out: tree.left_out,
            ..FlatTree::default()
        };
        for row in &tree.rows {
            // No more nodes than 32 bits count, since stacks have such numbers.
            let above = row.parent.map_or(0, |parent| parent as u32 + 1);
            if let Some(parent) = row.parent {
                flat.below[parent] += 1;
            }
            flat.above.push(above);
            flat.function.push(row.function);
            for (event, count) in row.counts.iter().enumerate() {
                flat.own[event].push(count.own);
                flat.total[event].push(count.total);
            }
        }
        for node in (0..nodes).rev() {
            let end = flat.end[node];
            if let Some(parent) = (flat.above[node] as usize).checked_sub(1) {
                flat.end[parent] = flat.end[parent].max(end);
            }
        }
        flat
    }

    pub(crate) fn len(&self) -> usize {
        self.function.len()
    }

    pub(crate) fn parent(&self, node: usize) -> Option<usize> {
        (self.above[node] as usize).checked_sub(1)
    }

    /// The node to which a path of functions leads, the top one first; `None` if no top node has the first function. A
    /// path is followed as far as it goes.
    fn at_path(&self, path: &[FunctionId]) -> Option<usize> {
        let mut found = None;
        let mut nodes = 0..self.len();
        for function in path {
            let mut node = nodes.start;
            while node < nodes.end && self.function[node] != *function {
                node = self.end[node] as usize;
            }
            if node >= nodes.end {
                break;
            }
            found = Some(node);
            nodes = node + 1..self.end[node] as usize;
        }
        found
    }

    pub(crate) fn weight(&self, event: usize, node: usize) -> u64 {
        self.total.get(event).map_or(0, |total| total[node].weight)
    }
}

/// The tree of a request.
pub(crate) fn tree(
    shared: &Shared,
    selected: &Selected,
    key: TreeKey,
    ticket: &Ticket,
) -> Result<Arc<FlatTree>, Failure> {
    shared.trees.get(key.clone(), || {
        ticket.check()?;
        let names = &selected.named().names;
        let profile = &selected.profile;
        if key.changes != Changes::default() || key.part != CallersPart::default() {
            let shape = (key.callers, key.focus, key.part);
            let changed = changed_tree(selected, &key.events, &key.changes, shape);
            return Ok(FlatTree {
                dropped: changed.dropped,
                bare: changed.bare,
                ..FlatTree::of(&changed.tree, key.events.len())
            });
        }
        let tree = match key.focus {
            Some(function) => {
                let limits = TreeLimits {
                    least: 0,
                    width: usize::MAX,
                };
                let trees = trees_around(profile, names, &key.events, function, limits);
                match key.callers {
                    true => trees.callers,
                    false => trees.callees,
                }
            }
            None => {
                let (direction, least) = match key.callers {
                    // Each function has a path of its own to each caller: all of them would be too many.
                    true => (TreeDirection::Callers, LEAST),
                    false => (TreeDirection::Callees, 0),
                };
                let limits = TreeLimits {
                    least,
                    width: usize::MAX,
                };
                call_tree(profile, names, &key.events, direction, limits)
            }
        };
        Ok(FlatTree::of(&tree, key.events.len()))
    })
}

/// The nodes of a subtree that an answer has, rising.
fn chosen(
    tree: &FlatTree,
    root: Option<usize>,
    wholes: &[u64],
    request: &FlameRequest,
) -> (Vec<usize>, usize) {
    let least = u128::from(request.least.unwrap_or(LEAST));
    let levels = request.levels.unwrap_or(u32::MAX);
    let most = request.count.unwrap_or(NODES).clamp(1, MOST_NODES);
    let all = match root {
        Some(root) => root..tree.end[root] as usize,
        None => 0..tree.len(),
    };
    let is_heavy = |node: usize| {
        wholes.iter().enumerate().any(|(event, whole)| {
            let weight = tree.weight(event, node);
            weight > 0 && u128::from(weight) * 10_000 >= u128::from(*whole) * least
        })
    };
    let mut depths: Vec<u32> = Vec::new();
    let mut nodes = Vec::new();
    let mut node = all.start;
    while node < all.end {
        let above = tree.parent(node).filter(|_| Some(node) != root);
        // Parents that are left out take their subtree with them, so the parent was the last one of its depth.
        let depth = match above {
            Some(parent) => {
                let place = nodes.partition_point(|known| *known < parent);
                depths[place] + 1
            }
            None => 0,
        };
        // The root itself is no level below it.
        let is_deep = depth >= levels.saturating_add(u32::from(root.is_some()));
        if is_deep || !(is_heavy(node) || Some(node) == root) {
            node = tree.end[node] as usize;
            continue;
        }
        nodes.push(node);
        depths.push(depth);
        node += 1;
    }
    if nodes.len() > most {
        // A node is never heavier than its parent. Of equal ones the earlier goes first, which stands above.
        let heaviest = |node: usize| {
            (0..wholes.len())
                .map(|event| tree.weight(event, node))
                .max()
        };
        let rank = |node: &usize| (std::cmp::Reverse(heaviest(*node)), *node);
        nodes.sort_by_key(rank);
        nodes.truncate(most);
        nodes.sort_unstable();
    }
    (nodes, all.len())
}

/// Functions and modules as an answer has them, each once.
struct Interned<'a> {
    selected: &'a Selected,
    functions: Vec<FlameFunction>,
    modules: Vec<FlameModule>,
    function_ids: HashMap<FunctionId, u32>,
    module_ids: HashMap<u32, u32>,
}

impl Interned<'_> {
    fn function(&mut self, id: FunctionId) -> u32 {
        if let Some(known) = self.function_ids.get(&id) {
            return *known;
        }
        let named = self.selected.named();
        let function = &named.names.functions()[id as usize];
        let keys = &self.selected.loaded.keys;
        let modules = &mut self.modules;
        let module = *self.module_ids.entry(function.module).or_insert_with(|| {
            let module = self.selected.profile.modules().get(function.module);
            modules.push(FlameModule {
                key: keys.module(function.module),
                name: texts::name(&module.label),
                kind: module_kind(module),
            });
            modules.len() as u32 - 1
        });
        self.functions.push(FlameFunction {
            key: named.function_key(keys, id),
            name: texts::name(&function.name),
            module,
            inlined: function.is_inlined,
        });
        let index = self.functions.len() as u32 - 1;
        self.function_ids.insert(id, index);
        index
    }
}

/// The nodes of a tree that an answer has.
pub(crate) struct ShownTree {
    pub above: Vec<FlameAbove>,
    pub nodes: FlameNodes,
    /// The same nodes as indices in the tree.
    pub chosen: Vec<usize>,
    pub left_out: FlameLeftOut,
}

/// Chooses the nodes of a subtree that an answer has. `function` returns the index of a function in the answer.
pub(crate) fn shown_tree(
    tree: &FlatTree,
    root: Option<usize>,
    wholes: &[u64],
    request: &FlameRequest,
    mut function: impl FnMut(FunctionId) -> u32,
) -> ShownTree {
    let (nodes, all) = chosen(tree, root, wholes, request);
    let mut answer_nodes = FlameNodes::default();
    for node in &nodes {
        let parent = tree.parent(*node).filter(|_| Some(*node) != root);
        let parent = parent.and_then(|parent| nodes.binary_search(&parent).ok());
        // No more nodes than an answer has.
        answer_nodes.id.push(*node as u32);
        answer_nodes
            .parent
            .push(parent.map_or(-1, |parent| parent as i32));
        answer_nodes.function.push(function(tree.function[*node]));
        answer_nodes.below.push(tree.below[*node]);
    }
    let each = |counts: &[Vec<Count>], value: fn(&Count) -> u64| -> Vec<Vec<u64>> {
        let of_event = |event: &Vec<Count>| nodes.iter().map(|node| value(&event[*node])).collect();
        // A tree may count events of metrics, too, which come last.
        counts.iter().take(wholes.len()).map(of_event).collect()
    };
    answer_nodes.own = each(&tree.own, |count| count.weight);
    answer_nodes.own_samples = each(&tree.own, |count| count.samples);
    answer_nodes.total = each(&tree.total, |count| count.weight);
    answer_nodes.total_samples = each(&tree.total, |count| count.samples);
    let mut above = Vec::new();
    let mut at = root.and_then(|root| tree.parent(root));
    while let Some(node) = at {
        above.push(FlameAbove {
            id: node as u32,
            function: function(tree.function[node]),
        });
        at = tree.parent(node);
    }
    above.reverse();
    let left_out = FlameLeftOut {
        nodes: all - nodes.len() + if root.is_none() { tree.left_out } else { 0 },
        weight: weight_left_out(tree, &nodes, root, wholes.first().copied().unwrap_or(0)),
    };
    ShownTree {
        above,
        nodes: answer_nodes,
        chosen: nodes,
        left_out,
    }
}

/// Answers `/api/flame`.
pub(crate) fn answer(
    shared: &Shared,
    request: &FlameRequest,
    ticket: &Ticket,
) -> Result<FlameAnswer, Failure> {
    let selected = Selected::of(shared, &request.selection, false)?;
    if !selected.loaded.has_chains() {
        return Err(Failure::no_chains());
    }
    selected.first_event()?;
    ticket.check()?;
    let direction = request.direction.unwrap_or_default();
    let named = selected.named();
    let focus = request.focus.as_deref();
    let focus = focus.map(|key| named.find_function(&selected.loaded.keys, key));
    let path = request.path.iter();
    let path = path.map(|key| named.find_function(&selected.loaded.keys, key));
    let path: Vec<FunctionId> = path.collect::<Result<_, _>>()?;
    let chosen = metrics::of_samples(&selected.loaded, &request.metric, flame_metrics::FEW)?;
    let columns = chosen.columns();
    let metrics = CountedMetrics::new(&columns, &selected.input());
    let key = TreeKey {
        changes: Changes::of(&selected, &request.changes)?,
        part: CallersPart::of(request, &path),
        selection: selected.key.clone(),
        events: flame_metrics::events_with(&selected.events, &metrics),
        callers: direction == Direction::Callers,
        focus: focus.transpose()?,
    };
    if request.with.is_some() && key.changes != Changes::default() {
        return Err(Failure::parameter(
            "with",
            "compares whole call stacks: it does not go with merge, drop and fold",
        ));
    }
    let is_focused = key.focus.is_some();
    let tree = tree(shared, &selected, key.clone(), ticket)?;
    ticket.check()?;
    let root = request.root.map(|root| root as usize);
    let root = root.or_else(|| tree.at_path(&path));
    if let Some(root) = root.filter(|root| *root >= tree.len()) {
        return Err(Failure::no_key("row", &root.to_string()));
    }
    let events = &selected.events;
    // The least share is a share of this node, or of the whole selection.
    let top = root.or(is_focused.then_some(0).filter(|_| tree.len() > 0));
    let wholes: Vec<u64> = events
        .iter()
        .enumerate()
        .map(|(place, event)| match top {
            Some(top) => tree.weight(place, top),
            None => selected.profile.events()[*event].total().weight,
        })
        .collect();
    let mut interned = Interned {
        selected: &selected,
        functions: Vec::new(),
        modules: Vec::new(),
        function_ids: HashMap::new(),
        module_ids: HashMap::new(),
    };
    let shown = shown_tree(&tree, root, &wholes, request, |function| {
        interned.function(function)
    });
    let mut facts = profile_facts(&selected.profile, &named.names, events);
    let other = match request.with {
        Some(with) => {
            let asked = flame_changes::Asked {
                request,
                with,
                selected: &selected,
                key: &key,
                tree: &tree,
                nodes: &shown.chosen,
            };
            Some(asked.answer(shared, &mut facts, ticket)?)
        }
        None => None,
    };
    let of_nodes = (!request.metric.is_empty()).then(|| {
        metrics.add_facts(&mut facts);
        let whole = |event: usize| selected.profile.events()[event].total();
        flame_metrics::answer(&metrics, &key.events, &tree, &shown.chosen, whole)
    });
    let shown_events = events.len();
    let of_shown = |counts: &[Count]| counts[..counts.len().min(shown_events)].to_vec();
    Ok(FlameAnswer {
        metrics: of_nodes,
        profile: selected.loaded.index,
        generation: selected.loaded.generation,
        direction,
        events: events
            .iter()
            .map(|index| {
                let event = &selected.profile.events()[*index];
                FlameEvent {
                    key: selected.loaded.keys.event(*index),
                    name: texts::name(event.name()),
                    unit: texts::unit(event),
                    samples: event.total().samples,
                    weight: event.total().weight,
                }
            })
            .collect(),
        functions: interned.functions,
        modules: interned.modules,
        above: shown.above,
        nodes: shown.nodes,
        left_out: shown.left_out,
        changes: lost(&of_shown(&tree.dropped), &of_shown(&tree.bare)),
        total_nodes: tree.len() + tree.left_out,
        other,
        facts: texts::facts(&facts),
    })
}

/// The weight of the first event in nodes that are not in the answer while their parents are.
fn weight_left_out(tree: &FlatTree, nodes: &[usize], root: Option<usize>, whole: u64) -> u64 {
    let mut shown_below = vec![0_u64; nodes.len()];
    let mut shown_tops = 0_u64;
    for node in nodes {
        let weight = tree.weight(0, *node);
        let parent = tree.parent(*node).filter(|_| Some(*node) != root);
        match parent.and_then(|parent| nodes.binary_search(&parent).ok()) {
            Some(place) => shown_below[place] = shown_below[place].saturating_add(weight),
            None => shown_tops = shown_tops.saturating_add(weight),
        }
    }
    let below = nodes.iter().zip(shown_below);
    let below = below.map(|(node, shown)| below_of(tree, *node).saturating_sub(shown));
    let tops = match root {
        Some(_) => 0,
        None => whole.saturating_sub(shown_tops),
    };
    below.fold(tops, u64::saturating_add)
}

/// The weight of the first event in all children of a node.
fn below_of(tree: &FlatTree, node: usize) -> u64 {
    let mut sum = 0_u64;
    let mut child = node + 1;
    while child < tree.end[node] as usize {
        sum = sum.saturating_add(tree.weight(0, child));
        child = tree.end[child] as usize;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use dioptra_profile::{SelfAndTotal, TreeRow};

    /// Nodes by parent and total weight.
    fn tree(nodes: &[(Option<usize>, u64)]) -> FlatTree {
        let count = |weight| Count { samples: 1, weight };
        let rows = nodes.iter().map(|(parent, weight)| TreeRow {
            parent: *parent,
            function: 0,
            frames: 1,
            counts: vec![SelfAndTotal {
                own: Count::default(),
                total: count(*weight),
            }],
        });
        let tree = CallTree {
            rows: rows.collect(),
            left_out: 0,
        };
        FlatTree::of(&tree, 1)
    }

    fn sample() -> FlatTree {
        tree(&[
            (None, 100),
            (Some(0), 60),
            (Some(1), 50),
            (Some(0), 30),
            (Some(3), 1),
            (None, 10),
        ])
    }

    #[test]
    fn subtrees_end_where_the_next_begins() {
        let tree = sample();
        assert_eq!(tree.end, [5, 3, 3, 5, 5, 6]);
        assert_eq!(tree.below, [2, 1, 0, 1, 0, 0]);
        assert_eq!(below_of(&tree, 0), 90);
    }

    #[test]
    fn light_deep_and_surplus_nodes_are_left_out() {
        let tree = sample();
        let of = |request: FlameRequest, root: Option<usize>, whole| {
            let (nodes, _) = chosen(&tree, root, &[whole], &request);
            let weight = weight_left_out(&tree, &nodes, root, whole);
            (nodes, weight)
        };
        let least = |least| FlameRequest {
            least: Some(least),
            ..FlameRequest::default()
        };
        assert_eq!(of(least(0), None, 110), (vec![0, 1, 2, 3, 4, 5], 0));
        assert_eq!(of(least(1000), None, 110), (vec![0, 1, 2, 3], 11));
        let levels = FlameRequest {
            levels: Some(1),
            ..FlameRequest::default()
        };
        assert_eq!(of(levels.clone(), None, 110), (vec![0, 5], 90));
        assert_eq!(of(levels, Some(0), 100), (vec![0, 1, 3], 51));
        let few = FlameRequest {
            count: Some(3),
            ..FlameRequest::default()
        };
        assert_eq!(of(few, None, 110), (vec![0, 1, 2], 40));
    }
}
