//! Converts nodes and columns into rows.

use super::{Column, Hierarchy, Node};
use crate::counts::counter::Count;
use crate::counts::estimate::Estimate;

/// Puts nodes in the order of rows, with the cells of all columns. Every node below node 0 counts something.
pub(super) fn build(nodes: Vec<Node>, columns: Vec<Column>) -> Hierarchy {
    build_with_places(nodes, columns).0
}

/// Builds as [`build`] does, and also returns one more than the row of each node. For node 0, which is above all rows,
/// that is 0.
pub(super) fn build_with_places(nodes: Vec<Node>, columns: Vec<Column>) -> (Hierarchy, Vec<u32>) {
    let length = nodes.len().saturating_sub(1);
    let mut hierarchy = Hierarchy {
        above: Vec::with_capacity(length),
        keys: Vec::with_capacity(length),
        levels: Vec::with_capacity(length),
        ..Hierarchy::default()
    };
    let mut row_of = vec![0_u32; nodes.len()];
    let below = Below::new(&nodes);
    let mut waiting: Vec<u32> = below.of(0).iter().rev().copied().collect();
    while let Some(id) = waiting.pop() {
        let node = nodes[id as usize];
        hierarchy.above.push(row_of[node.parent as usize]);
        hierarchy.keys.push(node.key);
        hierarchy.levels.push(node.level - 1);
        // Node numbers have 32 bits, and each row belongs to a node.
        row_of[id as usize] = hierarchy.keys.len() as u32;
        waiting.extend(below.of(id).iter().rev());
    }
    drop((below, nodes));
    match <[Column; 1]>::try_from(columns) {
        Ok([column]) if column.nodes.is_empty() && column.own.len() == length => {
            hierarchy.own = in_order(column.own, &row_of);
            hierarchy.totals = in_order(column.totals, &row_of);
            hierarchy.estimates = in_order(column.estimates, &row_of);
        }
        Ok(column) => sparse(&mut hierarchy, column.into(), &row_of),
        Err(columns) => sparse(&mut hierarchy, columns, &row_of),
    }
    (hierarchy, row_of)
}

/// Returns the values of all nodes in the order of their rows.
fn in_order<T: Copy + Default>(by_node: Vec<T>, row_of: &[u32]) -> Vec<T> {
    let mut ordered = vec![T::default(); by_node.len()];
    for (value, row) in by_node.into_iter().zip(&row_of[1..]) {
        ordered[*row as usize - 1] = value;
    }
    ordered
}

/// Adds the cells of several columns, each of which covers only some rows.
fn sparse(hierarchy: &mut Hierarchy, columns: Vec<Column>, row_of: &[u32]) {
    let length = hierarchy.len();
    let row = |node: u32| row_of[node as usize] as usize - 1;
    // By row: the place of its next cell. At the end of the loops it is the first cell of the following row.
    let mut firsts = vec![0_usize; length + 1];
    for node in columns.iter().flat_map(Column::nodes) {
        firsts[row(node) + 1] += 1;
    }
    for row in 0..length {
        firsts[row + 1] += firsts[row];
    }
    let cells = firsts[length];
    let room = |some: bool| if some { cells } else { 0 };
    let has_totals = columns.iter().any(|column| !column.totals.is_empty());
    let estimated = columns.iter().any(|column| !column.estimates.is_empty());
    hierarchy.events = vec![0; cells];
    hierarchy.own = vec![Count::default(); cells];
    hierarchy.totals = vec![Count::default(); room(has_totals)];
    hierarchy.estimates = vec![Estimate::default(); room(estimated)];
    for (event, column) in (0..).zip(columns) {
        for (index, node) in column.nodes().enumerate() {
            let next = &mut firsts[row(node)];
            let cell = *next;
            *next += 1;
            let own = column.own[index];
            hierarchy.events[cell] = event;
            hierarchy.own[cell] = own;
            if has_totals {
                hierarchy.totals[cell] = column.totals.get(index).copied().unwrap_or(own);
            }
            if let Some(estimate) = column.estimates.get(index) {
                hierarchy.estimates[cell] = *estimate;
            }
        }
    }
    // Each row's cells end where those of the next one begin.
    firsts.rotate_right(1);
    if let Some(first) = firsts.first_mut() {
        *first = 0;
    }
    hierarchy.firsts = firsts;
}

/// The nodes below each node, by rising key.
struct Below {
    /// By node: the start of its list, with one more entry for the end.
    firsts: Vec<u32>,
    list: Vec<u32>,
}

impl Below {
    fn new(nodes: &[Node]) -> Below {
        let mut firsts = vec![0_u32; nodes.len() + 1];
        for node in nodes.iter().skip(1) {
            firsts[node.parent as usize + 1] += 1;
        }
        for index in 0..nodes.len() {
            firsts[index + 1] += firsts[index];
        }
        let mut next = firsts.clone();
        let mut list = vec![0_u32; nodes.len().saturating_sub(1)];
        for (id, node) in (0_u32..).zip(nodes).skip(1) {
            let place = &mut next[node.parent as usize];
            list[*place as usize] = id;
            *place += 1;
        }
        for range in firsts.windows(2) {
            let list = &mut list[range[0] as usize..range[1] as usize];
            list.sort_unstable_by_key(|id| nodes[*id as usize].key);
        }
        Below { firsts, list }
    }

    fn of(&self, node: u32) -> &[u32] {
        let at = |index: usize| self.firsts[index] as usize;
        &self.list[at(node as usize)..at(node as usize + 1)]
    }
}
