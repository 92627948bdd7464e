//! The call paths of each thread, with their numbers of calls and self times.

use super::{ExportedTrace, TraceSource};
use crate::error::ExportError;
use crate::lost::{Lost, LostKind, number};
use dioptra_calls::{CallPathTree, ViewLosses, call_trees};
use dioptra_trace_report::distinct_names;
use hashbrown::HashMap;
use std::collections::BTreeSet;

/// The name of calls that the view's rules hide.
pub const NOT_SHOWN: &str = "[calls not shown]";

/// A function on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum PathFunction {
    /// The function's id.
    Shown(u32),
    /// All functions that the view's rules hide.
    NotShown,
}

/// All calls of one function on one path.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathNode {
    pub function: PathFunction,
    /// The caller's node, whose index is smaller; `None` for outermost calls.
    pub parent: Option<usize>,
    /// The number of calls; 0 for calls that are not shown, and where no call's beginning was seen.
    pub calls: u64,
    /// Nanoseconds.
    pub self_time: u64,
    /// Nanoseconds within the calls: the self times of this node and of all nodes below it.
    pub total: u64,
}

/// The paths of a stream.
#[derive(Debug)]
pub(super) struct ThreadPaths {
    /// The index of the stream in the view.
    pub place: usize,
    pub nodes: Vec<PathNode>,
}

/// The paths of all streams of a view.
pub(super) struct TracePaths {
    pub threads: Vec<ThreadPaths>,
    /// By function: its name in the table of calls, where functions of equal names have longer ones.
    names: HashMap<u32, String>,
    losses: ViewLosses,
    open: u64,
}

/// Sums that a writer has written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Written {
    pub calls: u64,
    pub self_time: u64,
    pub not_shown: u64,
}

impl Written {
    pub(super) fn add(&mut self, node: &PathNode) {
        self.calls = self.calls.saturating_add(node.calls);
        let time = match node.function {
            PathFunction::Shown(_) => &mut self.self_time,
            PathFunction::NotShown => &mut self.not_shown,
        };
        *time = time.saturating_add(node.self_time);
    }
}

impl TracePaths {
    pub(super) fn of(source: &TraceSource<'_, '_>) -> TracePaths {
        let mut paths = TracePaths {
            threads: Vec::new(),
            names: HashMap::new(),
            losses: ViewLosses::default(),
            open: 0,
        };
        let is_sampled = source.view.is_sampled();
        for (place, tree) in call_trees(source.view).iter().enumerate() {
            paths.losses += tree.losses;
            paths.open += tree.open;
            let nodes = nodes(tree, is_sampled);
            if !nodes.is_empty() {
                paths.threads.push(ThreadPaths { place, nodes });
            }
        }
        let functions = paths.functions();
        let names = distinct_names(&functions, source.names);
        paths.names = functions.into_iter().zip(names).collect();
        paths
    }

    /// Returns a function's name.
    pub(super) fn name(&self, function: PathFunction) -> &str {
        match function {
            PathFunction::Shown(function) => self.names.get(&function).map_or("", String::as_str),
            PathFunction::NotShown => NOT_SHOWN,
        }
    }

    /// Returns the functions on the paths, each once.
    pub(super) fn functions(&self) -> Vec<u32> {
        let mut functions = BTreeSet::new();
        for node in self.threads.iter().flat_map(|thread| &thread.nodes) {
            if let PathFunction::Shown(function) = node.function {
                functions.insert(function);
            }
        }
        functions.into_iter().collect()
    }

    /// Checks that everything was written, and returns the result with the numbers of things that have no place.
    pub(super) fn exported(
        &self,
        written: Written,
        kinds: &[LostKind],
    ) -> Result<ExportedTrace, ExportError> {
        let mut there = Written::default();
        for node in self.threads.iter().flat_map(|thread| &thread.nodes) {
            there.add(node);
        }
        let has_calls = !kinds.contains(&LostKind::CallNumbers);
        let has_times = !kinds.contains(&LostKind::SelfTimes);
        let sums = [
            ("calls", has_calls, written.calls, there.calls),
            ("self times", has_times, written.self_time, there.self_time),
            (
                "hidden times",
                has_times,
                written.not_shown,
                there.not_shown,
            ),
        ];
        for (value, _, written, total) in sums.into_iter().filter(|(_, is_there, ..)| *is_there) {
            if written != total {
                return Err(ExportError::Total {
                    event: "trace".to_owned(),
                    value,
                    written,
                    total,
                });
            }
        }
        let lost = kinds.iter().map(|kind| Lost {
            kind: *kind,
            count: match kind {
                LostKind::CallNumbers | LostKind::SelfTimes | LostKind::CallMoments => there.calls,
                LostKind::OpenMarks => self.open,
                LostKind::Threads => number(self.threads.len()),
                _ => 0,
            },
        });
        Ok(ExportedTrace {
            calls: has_calls.then_some(written.calls),
            self_time: has_times.then_some(written.self_time),
            not_shown: if has_times { written.not_shown } else { 0 },
            began_before: 0,
            open: 0,
            losses: self.losses,
            lost: lost.filter(|lost| lost.count > 0).collect(),
        })
    }
}

/// Returns the nodes of a tree without its root, and a node for the hidden calls below each node that has some. The
/// numbers of sampled calls are estimates, rounded.
fn nodes(tree: &CallPathTree, is_sampled: bool) -> Vec<PathNode> {
    let mut nodes: Vec<PathNode> = Vec::with_capacity(tree.nodes().len());
    let rounded = |value: f64| value.max(0.0).round() as u64;
    for node in tree.nodes().iter().skip(1) {
        let (calls, self_time) = match is_sampled {
            true => (rounded(node.weighted_calls), rounded(node.weighted_self)),
            false => (node.calls, node.self_time),
        };
        nodes.push(PathNode {
            function: PathFunction::Shown(node.function),
            parent: (node.parent as usize).checked_sub(1),
            calls,
            self_time,
            total: node.total,
        });
    }
    // Estimates of callers and callees come from different calls, so their difference is no time of hidden calls.
    if !is_sampled {
        let mut hidden: Vec<u64> = nodes
            .iter()
            .map(|node| node.total.saturating_sub(node.self_time))
            .collect();
        for node in &nodes {
            if let Some(parent) = node.parent {
                hidden[parent] = hidden[parent].saturating_sub(node.total);
            }
        }
        for (parent, time) in hidden.into_iter().enumerate() {
            if time > 0 {
                nodes.push(PathNode {
                    function: PathFunction::NotShown,
                    parent: Some(parent),
                    calls: 0,
                    self_time: time,
                    total: time,
                });
            }
        }
    }
    sum(&mut nodes);
    nodes
}

/// Makes the total of each node the sum of the self times below it.
fn sum(nodes: &mut [PathNode]) {
    for node in nodes.iter_mut() {
        node.total = node.self_time;
    }
    for at in (0..nodes.len()).rev() {
        let PathNode { parent, total, .. } = nodes[at];
        if let Some(parent) = parent {
            nodes[parent].total = nodes[parent].total.saturating_add(total);
        }
    }
}

impl ThreadPaths {
    /// Returns the functions of the path to a node, outermost first.
    pub(super) fn functions(&self, node: usize, into: &mut Vec<PathFunction>) {
        into.clear();
        let mut at = Some(node);
        while let Some(node) = at {
            into.push(self.nodes[node].function);
            at = self.nodes[node].parent;
        }
        into.reverse();
    }

    /// Calls `visit` for each node twice: with `true` before the nodes below it, and with `false` behind them.
    pub(super) fn walk(&self, mut visit: impl FnMut(usize, bool)) {
        let mut below: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        let mut waiting = Vec::new();
        for (at, node) in self.nodes.iter().enumerate().rev() {
            match node.parent {
                Some(parent) => below[parent].push(at),
                None => waiting.push((at, true)),
            }
        }
        while let Some((at, is_first)) = waiting.pop() {
            visit(at, is_first);
            if is_first {
                waiting.push((at, false));
                waiting.extend(below[at].iter().map(|below| (*below, true)));
            }
        }
    }

    /// Returns whether a node has calls or time of its own.
    pub(super) fn has_values(&self, node: usize) -> bool {
        let node = &self.nodes[node];
        node.calls > 0 || node.self_time > 0
    }
}
