//! The call tree of a trace.

use super::keys::{self, Keys, Match};
use super::table::{number_heads, unit};
use super::{Level, TraceInput};
use crate::facts::{call_facts, open_calls};
use dioptra_calls::{CallNode, CallPathTree, call_tree};
use dioptra_tables::{Cell, Column, ColumnKind, Direction, Severity, Table, TableError, Unit};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

/// The rows that stand below a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeDirection {
    /// The callers.
    Callers,
    /// The functions that it called.
    Callees,
}

/// The options of [`call_tree_table`].
#[derive(Clone, Copy, Debug)]
pub struct CallTreeOptions {
    /// The direction.
    pub direction: TreeDirection,
    /// The least share of the whole that a row has, in hundredths of a percent.
    pub least: u32,
    /// The most rows below a row.
    pub width: usize,
}

/// The most rows of a tree.
const MOST_ROWS: usize = 1 << 20;

/// The most callers above a function in a tree of callers. Each of them is found in all paths to the function, so that the
/// time for a recursion would grow with the square of its depth.
const MOST_CALLERS: u32 = 256;

/// The sums of the calls on some paths.
#[derive(Clone, Copy, Debug, Default)]
struct PathSums {
    calls: u64,
    self_time: u64,
    total: u64,
}

impl PathSums {
    fn of(node: &CallNode, is_sampled: bool) -> PathSums {
        let number = |exact: u64, scaled: f64| match is_sampled {
            true => scaled.round() as u64,
            false => exact,
        };
        PathSums {
            calls: number(node.calls, node.weighted_calls),
            self_time: number(node.self_time, node.weighted_self),
            total: number(node.total, node.weighted_total),
        }
    }

    /// Adds other calls; their total only if no call around them is among these.
    fn add(&mut self, other: PathSums, outermost: bool) {
        self.calls = self.calls.saturating_add(other.calls);
        self.self_time = self.self_time.saturating_add(other.self_time);
        if outermost {
            self.total = self.total.saturating_add(other.total);
        }
    }
}

/// A row that is still to be added, below the row `parent`.
struct Pending {
    parent: Option<u32>,
    /// The number of rows above it.
    depth: u32,
    function: u32,
    sums: PathSums,
    /// The nodes that it counts, each with the node in its path that the row stands for.
    nodes: Vec<(u32, u32)>,
}

/// Builds the call tree of a trace as a table whose rows have parents.
///
/// In a tree of callees a row is a path, and its numbers are those of the calls on it; the columns are those of
/// [`grouped_table`](crate::grouped_table) with children. In a tree of callers a top row is a function, and the rows below
/// it are paths that led to it: their numbers are those of the top row's function when it was called so. At most 256
/// callers stand below each other.
///
/// # Errors
/// [`TableError`] if the table cannot hold a row.
pub fn call_tree_table(
    input: &TraceInput<'_, '_>,
    options: &CallTreeOptions,
) -> Result<Table, TableError> {
    let tree = call_tree(input.view);
    let keys = Keys::new(*input);
    let builder = Builder {
        tree: &tree,
        keys: &keys,
        children: match options.direction {
            TreeDirection::Callees => tree.children(),
            TreeDirection::Callers => Vec::new(),
        },
        outer: match options.direction {
            TreeDirection::Callees => Vec::new(),
            TreeDirection::Callers => outer_calls(&tree, &keys),
        },
        sums: tree
            .nodes()
            .iter()
            .map(|node| PathSums::of(node, input.view.is_sampled()))
            .collect(),
        options,
    };
    let mut table = builder.table(unit(&[*input]))?;
    let mut facts = call_facts(input.view.trace(), input.names, &tree.losses);
    if tree.open > 0 {
        let text = open_calls(input.view, tree.open);
        facts.add(Severity::Info, "open_calls", text, tree.open);
    }
    if input.view.is_sampled() {
        let text = "the numbers of sampled functions, and of what these call, are estimates";
        facts.add(Severity::Info, "sampled", text, true);
    }
    facts.append(std::mem::take(&mut table.facts));
    table.facts = facts;
    Ok(table)
}

/// Returns for each node the next node above it of the same function; 0 if there is none.
fn outer_calls(tree: &CallPathTree, keys: &Keys<'_, '_>) -> Vec<u32> {
    let nodes = tree.nodes();
    let mut outer = vec![0_u32; nodes.len()];
    // The nodes on the path to each node are found by walking down in order, with the last node of each function. A
    // walk up from every node would take the square of the depth.
    let children = tree.children();
    let mut last: HashMap<u32, u32> = HashMap::new();
    let mut open: Vec<(u32, bool)> = children[0].iter().rev().map(|node| (*node, true)).collect();
    while let Some((node, enters)) = open.pop() {
        let function = keys.key(Level::Function, 0, nodes[node as usize].function);
        if !enters {
            last.insert(function, outer[node as usize]);
            continue;
        }
        outer[node as usize] = last.insert(function, node).unwrap_or(0);
        open.push((node, false));
        let below = children[node as usize].iter().rev();
        open.extend(below.map(|child| (*child, true)));
    }
    outer
}

struct Builder<'b, 'a, 't> {
    tree: &'b CallPathTree,
    keys: &'b Keys<'a, 't>,
    /// By node; empty in a tree of callers.
    children: Vec<Vec<u32>>,
    /// By node, see [`outer_calls`]; empty in a tree of callees.
    outer: Vec<u32>,
    sums: Vec<PathSums>,
    options: &'b CallTreeOptions,
}

impl Builder<'_, '_, '_> {
    fn is_callees(&self) -> bool {
        self.options.direction == TreeDirection::Callees
    }

    fn function(&self, node: u32) -> u32 {
        let function = self.tree.nodes()[node as usize].function;
        self.keys.key(Level::Function, 0, function)
    }

    fn table(&self, unit: Unit) -> Result<Table, TableError> {
        let mut heads = number_heads(self.is_callees(), unit);
        let numbers = heads.len();
        for (id, for_programs) in keys::heads(Level::Function, Match::Apart) {
            let kind = match *id {
                "function_address" => ColumnKind::Address,
                _ => ColumnKind::Name,
            };
            let mut head = Column::new(*id, id.replace('_', " "), kind, Unit::None);
            head.is_for_programs = *for_programs;
            heads.push(head);
        }
        let mut table = Table::new(heads);
        let mut left_out = 0_u64;
        let functions = (1..self.tree.nodes().len() as u32).map(|node| self.function(node));
        let labels = self.keys.labels_of(functions);
        let whole = self.whole();
        let mut open = Vec::new();
        self.push_kept(self.top_rows(), &whole, &mut open, &mut left_out);
        while let Some(row) = open.pop() {
            if table.len() >= MOST_ROWS {
                left_out += 1;
                continue;
            }
            let PathSums {
                calls,
                self_time,
                total,
            } = row.sums;
            let mut cells = Vec::with_capacity(table.columns.len());
            if self.is_callees() {
                cells.push(Cell::ratio(total, whole.total));
            }
            cells.extend([
                Cell::ratio(self_time, whole.self_time),
                Cell::Count(calls),
                Cell::Count(self_time),
                Cell::Count(total),
            ]);
            let names = self
                .keys
                .names(Level::Function, row.function, &labels, Match::Apart);
            cells.extend(names.cells);
            let id = table.push(row.parent, cells)?;
            if !self.is_callees() && row.depth == MOST_CALLERS {
                left_out += u64::from(self.callers(&row).next().is_some());
                continue;
            }
            self.push_kept(self.rows_below(&row, id), &whole, &mut open, &mut left_out);
        }
        let shares = (0..numbers).map(|column| (column, Direction::Descending));
        let order: Vec<_> = shares.collect();
        table.sort_by_all(&order)?;
        if left_out > 0 {
            let rows = match left_out {
                1 => "1 row".to_owned(),
                more => format!("{more} rows"),
            };
            table.facts.add(
                Severity::Info,
                "tree_rows_left_out",
                format!(
                    "{rows} of the tree, and the rows below, not shown: less than {} % of the time, or beyond the limits of rows and depth",
                    f64::from(self.options.least) / 100.0
                ),
                left_out,
            );
        }
        Ok(table)
    }

    /// Returns the sums of all calls. The total is the time within calls.
    fn whole(&self) -> PathSums {
        let mut whole = PathSums::default();
        for (node, sums) in self.tree.nodes().iter().zip(&self.sums).skip(1) {
            whole.add(*sums, node.parent == 0);
        }
        whole
    }

    /// Adds the rows that are to be shown, the heaviest last; counts the others.
    fn push_kept(
        &self,
        mut rows: Vec<Pending>,
        whole: &PathSums,
        open: &mut Vec<Pending>,
        left_out: &mut u64,
    ) {
        let weight = |row: &Pending| match self.is_callees() {
            true => row.sums.total,
            false => row.sums.self_time,
        };
        rows.sort_by_key(|row| (Reverse(weight(row)), Reverse(row.sums.calls), row.function));
        let of = match self.is_callees() {
            true => whole.total,
            false => whole.self_time,
        };
        let is_kept = |row: &Pending| {
            let share = u128::from(weight(row)) * 10_000;
            share >= u128::from(self.options.least) * u128::from(of)
        };
        let kept = rows.iter().take_while(|row| is_kept(row)).count();
        let kept = kept.min(self.options.width);
        *left_out += (rows.len() - kept) as u64;
        rows.truncate(kept);
        open.extend(rows.into_iter().rev());
    }

    fn top_rows(&self) -> Vec<Pending> {
        let nodes = 1..self.tree.nodes().len() as u32;
        match self.is_callees() {
            true => self.callees(0, None, 0),
            false => self.grouped(nodes.map(|node| (node, node)), None, 0),
        }
    }

    fn rows_below(&self, row: &Pending, id: u32) -> Vec<Pending> {
        if self.is_callees() {
            let node = row.nodes.first().map_or(0, |(node, _)| *node);
            return self.callees(node, Some(id), row.depth + 1);
        }
        self.grouped(self.callers(row), Some(id), row.depth + 1)
    }

    /// Returns the nodes that a row counts and that have a caller above the row, each with this caller.
    fn callers(&self, row: &Pending) -> impl Iterator<Item = (u32, u32)> {
        row.nodes.iter().filter_map(move |(node, at)| {
            let caller = self.tree.nodes()[*at as usize].parent;
            (caller != 0).then_some((*node, caller))
        })
    }

    fn callees(&self, node: u32, parent: Option<u32>, depth: u32) -> Vec<Pending> {
        let children = self.children[node as usize].iter();
        let rows = children.map(|child| Pending {
            parent,
            depth,
            function: self.function(*child),
            sums: self.sums[*child as usize],
            nodes: vec![(*child, *child)],
        });
        rows.collect()
    }

    /// Makes a row for each function that some nodes stand at.
    fn grouped(
        &self,
        nodes: impl Iterator<Item = (u32, u32)>,
        parent: Option<u32>,
        depth: u32,
    ) -> Vec<Pending> {
        let mut groups: HashMap<u32, Vec<(u32, u32)>> = HashMap::new();
        for (node, at) in nodes {
            groups
                .entry(self.function(at))
                .or_default()
                .push((node, at));
        }
        let rows = groups.into_iter().map(|(function, nodes)| {
            let own: HashSet<u32> = nodes.iter().map(|(node, _)| *node).collect();
            let mut sums = PathSums::default();
            for (node, _) in &nodes {
                let mut outer = self.outer[*node as usize];
                while outer != 0 && !own.contains(&outer) {
                    outer = self.outer[outer as usize];
                }
                sums.add(self.sums[*node as usize], outer == 0);
            }
            Pending {
                parent,
                depth,
                function,
                sums,
                nodes,
            }
        });
        rows.collect()
    }
}
