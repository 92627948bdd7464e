//! From nodes and columns to rows.

use super::{Column, Hierarchy, HierarchyCell, HierarchyRow, Node};
use crate::aggregate::SelfAndTotal;
use crate::spread::Estimate;

/// Puts nodes in the order of rows, with the cells of all columns. Every node below node 0 counts something.
pub(super) fn build(nodes: &[Node], columns: Vec<Column>) -> Hierarchy {
    let below = Below::new(nodes);
    let mut rows: Vec<HierarchyRow> = Vec::with_capacity(nodes.len().saturating_sub(1));
    let mut row_of = vec![0_u32; nodes.len()];
    let mut waiting: Vec<u32> = below.of(0).iter().rev().copied().collect();
    while let Some(id) = waiting.pop() {
        let node = nodes[id as usize];
        // Nodes have numbers, and so have their rows.
        row_of[id as usize] = rows.len() as u32;
        rows.push(HierarchyRow {
            parent: (node.parent != 0).then(|| row_of[node.parent as usize] as usize),
            level: usize::from(node.level) - 1,
            key: node.key,
        });
        waiting.extend(below.of(id).iter().rev());
    }
    drop(below);
    // By row: where its next cell goes; in the end, where those of the row after it begin.
    let mut firsts = vec![0_usize; rows.len() + 1];
    for node in columns.iter().flat_map(|column| &column.nodes) {
        firsts[row_of[*node as usize] as usize + 1] += 1;
    }
    for row in 0..rows.len() {
        firsts[row + 1] += firsts[row];
    }
    let length = firsts[rows.len()];
    let nothing = HierarchyCell {
        event: 0,
        count: SelfAndTotal::default(),
    };
    let estimated = columns.iter().any(|column| !column.estimates.is_empty());
    let mut hierarchy = Hierarchy {
        cells: vec![nothing; length],
        estimates: vec![Estimate::default(); if estimated { length } else { 0 }],
        ..Hierarchy::default()
    };
    for (event, column) in (0..).zip(columns) {
        for (index, node) in column.nodes.iter().enumerate() {
            let own = column.own[index];
            let total = column.totals.get(index).copied().unwrap_or(own);
            let cell = &mut firsts[row_of[*node as usize] as usize];
            hierarchy.cells[*cell] = HierarchyCell {
                event,
                count: SelfAndTotal { own, total },
            };
            if let Some(estimate) = column.estimates.get(index) {
                hierarchy.estimates[*cell] = *estimate;
            }
            *cell += 1;
        }
    }
    // Each row's cells end where those of the next one begin.
    firsts.rotate_right(1);
    if let Some(first) = firsts.first_mut() {
        *first = 0;
    }
    hierarchy.rows = rows;
    hierarchy.firsts = firsts;
    hierarchy
}

/// The nodes below each node, by rising key.
struct Below {
    /// By node: where its list begins; one more at the end.
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
