//! Binding of formulas to the events of a profile: each column is compiled once, to slots instead of names.
//!
//! All columns share one list of nodes in which equal subexpressions are one node. A row therefore costs one walk over
//! the list. An input that stands in a formula twice is one variable when errors are propagated.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::bound::{BindNote, Bound, BoundColumn, Node};
use crate::cpu::CpuId;
use crate::environment::Environment;
use crate::evaluate::{binary_value, pick};
use crate::expr::{BinaryOp, Expr, Function, MAX_DEPTH, UnaryOp};
use crate::names::{EventIndex, RecordedEvent};
use crate::set::{MetricSet, Resolved};

/// The greatest depth of nesting over all references between columns.
const MAX_NESTING: usize = 2 * MAX_DEPTH;
/// The greatest number of steps of all columns together; the largest sets of makers need far fewer.
const MAX_STEPS: usize = 1_000_000;
/// The name of the missing input where a limit was met.
const TOO_LARGE: &str = "a formula of less size";

impl MetricSet {
    /// Compiles every column for a profile with these events.
    ///
    /// Rows come later as one count for each of `recorded`, in the same order.
    pub fn bind(&self, recorded: &[RecordedEvent], environment: &Environment) -> Bound {
        let mut binder = Binder {
            set: self,
            environment,
            index: EventIndex::new(recorded),
            nodes: Vec::new(),
            known: HashMap::new(),
            candidates: HashMap::new(),
            compiled: HashMap::new(),
            too_large: false,
            steps_left: MAX_STEPS,
            visited: Vec::new(),
            visits: 0,
        };
        let mut notes = Vec::new();
        // A column is compiled after the columns to which it refers.
        let order = self
            .reference_order()
            .unwrap_or_else(|_| (0..self.columns.len()).collect());
        let mut columns = vec![BoundColumn::default(); self.columns.len()];
        for c in order {
            columns[c] = binder.bind_column(c, &mut notes);
        }
        binder.note_several(&mut notes);
        let reference = self
            .reference
            .as_deref()
            .and_then(|name| binder.candidates_of(name).first().copied());
        Bound {
            columns,
            nodes: binder.nodes,
            periods: recorded.iter().map(|e| e.period).collect(),
            reference,
            min_samples: environment.min_samples,
            notes,
        }
    }
}

/// The missing and left-out inputs that compiling an expression found.
#[derive(Debug, Clone, Default)]
struct Found {
    missing: BTreeSet<String>,
    left_out: BTreeSet<String>,
}

struct Binder<'s> {
    set: &'s MetricSet,
    environment: &'s Environment,
    index: EventIndex,
    nodes: Vec<Node>,
    known: HashMap<Node, u32>,
    candidates: HashMap<String, Arc<[u32]>>,
    compiled: HashMap<(usize, Option<u32>), (Option<u32>, Found)>,
    too_large: bool,
    steps_left: usize,
    /// For each node, the number of the last walk that met it.
    visited: Vec<u32>,
    visits: u32,
}

impl Binder<'_> {
    fn bind_column(&mut self, column: usize, notes: &mut Vec<BindNote>) -> BoundColumn {
        let name = &self.set.columns[column].name;
        let group = self.common_group(column);
        self.too_large = false;
        let mut found = Found::default();
        let mut root = self.column(column, group, 0, &mut found);
        let mut order = self.order(root);
        match self.steps_left.checked_sub(order.len()) {
            Some(left) => self.steps_left = left,
            None => {
                self.too_large = true;
                found.missing.insert(TOO_LARGE.to_owned());
                (root, order) = (None, Vec::new());
            }
        }
        if self.too_large {
            notes.push(BindNote::TooLarge {
                column: name.clone(),
            });
        }
        let inputs: Vec<u32> = order
            .iter()
            .filter_map(|&n| match self.nodes[n as usize] {
                Node::Input(event) | Node::Total(event) => Some(event),
                _ => None,
            })
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        let modifiers: BTreeSet<String> = inputs.iter().map(|&i| self.level(i)).collect();
        if modifiers.len() > 1 {
            notes.push(BindNote::MixedModifiers {
                column: name.clone(),
                inputs: inputs
                    .iter()
                    .map(|&i| self.index.text(i).to_owned())
                    .collect(),
            });
        }
        let groups: BTreeSet<u32> = inputs.iter().filter_map(|&i| self.index.group(i)).collect();
        if groups.len() > 1 && self.set.columns[column].kind != crate::ColumnKind::Sum {
            notes.push(BindNote::ApartGroups {
                column: name.clone(),
            });
        }
        BoundColumn {
            missing: found.missing.into_iter().collect(),
            left_out: found.left_out.into_iter().collect(),
            inputs,
            root,
            order,
        }
    }

    /// Returns the privilege levels among an event's modifiers.
    fn level(&self, event: u32) -> String {
        let modifiers = self.index.modifiers(event);
        let mut level: Vec<char> = modifiers.chars().filter(|c| "ukhG".contains(*c)).collect();
        level.sort_unstable();
        level.dedup();
        level.into_iter().collect()
    }

    /// Returns a group that holds every recorded input of the column.
    fn common_group(&mut self, column: usize) -> Option<u32> {
        if !self.index.has_groups() {
            return None;
        }
        let mut common: Option<BTreeSet<u32>> = None;
        for name in self.set.inputs(column) {
            let candidates = self.candidates_of(&name);
            if candidates.is_empty() {
                continue;
            }
            let groups = candidates
                .iter()
                .filter_map(|&e| self.index.group(e))
                .collect();
            common = Some(match common {
                None => groups,
                Some(before) => &before & &groups,
            });
        }
        common?.into_iter().next()
    }

    fn candidates_of(&mut self, name: &str) -> Arc<[u32]> {
        if let Some(known) = self.candidates.get(name) {
            return known.clone();
        }
        let event = self.set.event(name);
        let spellings = std::iter::once(name)
            .chain(
                event
                    .into_iter()
                    .flat_map(|e| e.aka.iter().map(String::as_str)),
            )
            .chain(event.and_then(|e| e.encoding.as_deref()));
        let found: Arc<[u32]> = self.index.candidates(spellings).into();
        self.candidates.insert(name.to_owned(), found.clone());
        found
    }

    fn event(&mut self, name: &str, group: Option<u32>) -> Option<u32> {
        let candidates = self.candidates_of(name);
        let in_group = candidates
            .iter()
            .find(|&&e| group.is_some() && self.index.group(e) == group);
        in_group.or(candidates.first()).copied()
    }

    fn note_several(&self, notes: &mut Vec<BindNote>) {
        let mut several: Vec<_> = self
            .candidates
            .iter()
            .filter(|(_, found)| {
                // A multiplexed recording may have the same event once in each group: this is no ambiguity.
                let groups: BTreeSet<_> = found.iter().map(|&e| self.index.group(e)).collect();
                found.len() > 1 && (groups.len() < found.len() || groups.contains(&None))
            })
            .collect();
        several.sort();
        for (wanted, found) in several {
            let text = |&e: &u32| self.index.text(e).to_owned();
            notes.push(BindNote::Several {
                wanted: wanted.clone(),
                chosen: text(&found[0]),
                others: found[1..].iter().map(text).collect(),
            });
        }
    }

    /// Returns the nodes below `root`, operands first. A result longer than the steps that are left is too large.
    fn order(&mut self, root: Option<u32>) -> Vec<u32> {
        self.visits += 1;
        self.visited.resize(self.nodes.len(), 0);
        let mut reached = Vec::new();
        let mut open: Vec<u32> = root.into_iter().collect();
        while let Some(node) = open.pop() {
            if std::mem::replace(&mut self.visited[node as usize], self.visits) == self.visits {
                continue;
            }
            reached.push(node);
            open.extend(self.nodes[node as usize].operands());
            if reached.len() > self.steps_left {
                break;
            }
        }
        // A node's operands have smaller numbers than the node.
        reached.sort_unstable();
        reached
    }

    fn column(
        &mut self,
        column: usize,
        group: Option<u32>,
        depth: usize,
        found: &mut Found,
    ) -> Option<u32> {
        if let Some((node, known)) = self.compiled.get(&(column, group)) {
            found.missing.extend(known.missing.iter().cloned());
            found.left_out.extend(known.left_out.iter().cloned());
            return *node;
        }
        let set = self.set;
        let mut own = Found::default();
        let node = self
            .expr(&set.columns[column].formula, group, depth, &mut own)
            .map(|n| self.node(Node::Whole(n)));
        found.missing.extend(own.missing.iter().cloned());
        found.left_out.extend(own.left_out.iter().cloned());
        if !self.too_large {
            self.compiled.insert((column, group), (node, own));
        }
        node
    }

    /// Compiles an expression; `None` where an input is missing, whose name is then added to `found`.
    fn expr(
        &mut self,
        expr: &Expr,
        group: Option<u32>,
        depth: usize,
        found: &mut Found,
    ) -> Option<u32> {
        if depth > MAX_NESTING {
            self.too_large = true;
            found.missing.insert(TOO_LARGE.to_owned());
            return None;
        }
        let depth = depth + 1;
        match expr {
            Expr::Number(n) => Some(self.constant(*n)),
            Expr::Name(name) => self.name(name, group, depth, found),
            Expr::Unary(op, a) => {
                let a = self.expr(a, group, depth, found)?;
                Some(self.node(Node::Unary(*op, a)))
            }
            Expr::Binary(op, a, b) => {
                let a = self.expr(a, group, depth, found);
                let b = self.expr(b, group, depth, found);
                Some(self.node(Node::Binary(*op, a?, b?)))
            }
            Expr::If {
                condition,
                then,
                otherwise,
            } => {
                let condition = self.expr(condition, group, depth, found);
                if let Some(Node::Const(bits)) = condition.map(|c| self.nodes[c as usize]) {
                    // A condition that the machine decides needs no input of the other branch.
                    let live = if f64::from_bits(bits) == 0.0 {
                        otherwise
                    } else {
                        then
                    };
                    return self.expr(live, group, depth, found);
                }
                let then = self.expr(then, group, depth, found);
                let otherwise = self.expr(otherwise, group, depth, found);
                Some(self.node(Node::If(condition?, then?, otherwise?)))
            }
            Expr::Call(function, args) => self.call(*function, args, group, depth, found),
        }
    }

    fn name(
        &mut self,
        name: &str,
        group: Option<u32>,
        depth: usize,
        found: &mut Found,
    ) -> Option<u32> {
        match self.set.resolve(name) {
            Resolved::Column(column) => self.column(column, group, depth, found),
            Resolved::Constant => {
                let key = name.trim_start_matches('#').to_ascii_lowercase();
                let stated = self.environment.get(name);
                let own = || {
                    let constants = &self.set.constants;
                    constants
                        .get(&key)
                        .or(constants.get(&name.to_ascii_lowercase()))
                        .copied()
                };
                match stated.or_else(own) {
                    Some(value) => Some(self.constant(value)),
                    // Some makers write the duration as an event.
                    None => self.recorded(name, group, found),
                }
            }
            Resolved::Event => self.recorded(name, group, found),
        }
    }

    fn recorded(&mut self, name: &str, group: Option<u32>, found: &mut Found) -> Option<u32> {
        match self.event(name, group) {
            Some(event) => Some(self.node(Node::Input(event))),
            None => {
                found.missing.insert(name.to_owned());
                None
            }
        }
    }

    fn call(
        &mut self,
        function: Function,
        args: &[Expr],
        group: Option<u32>,
        depth: usize,
        found: &mut Found,
    ) -> Option<u32> {
        let named = |arg: &Expr| match arg {
            Expr::Name(name) => name.clone(),
            other => other.to_string(),
        };
        match function {
            Function::Sum => return self.sum(args, group, depth, found),
            Function::HasEvent => {
                let has = self.event(&named(&args[0]), group).is_some();
                return Some(self.constant(f64::from(u8::from(has))));
            }
            Function::SourceCount => {
                let name = format!("source_count({})", named(&args[0]));
                let count = self.environment.get(&name).unwrap_or(1.0);
                return Some(self.constant(count));
            }
            Function::StrcmpCpuid => {
                let Some(cpu) = &self.environment.cpu else {
                    found.missing.insert("the CPU's id".to_owned());
                    return None;
                };
                let same = match &args[0] {
                    Expr::Number(midr) => cpu.matches(&format!("{:#x}", *midr as u64)),
                    name => cpu.matches(&named(name)) || *cpu == CpuId::parse(&named(name)),
                };
                return Some(self.constant(f64::from(u8::from(same))));
            }
            Function::Total => {
                let name = named(&args[0]);
                return match self.event(&name, group) {
                    Some(event) => Some(self.node(Node::Total(event))),
                    None => {
                        found.missing.insert(name);
                        None
                    }
                };
            }
            _ => {}
        }
        let operands: Vec<Option<u32>> = args
            .iter()
            .map(|a| self.expr(a, group, depth, found))
            .collect();
        let operands: Vec<u32> = operands.into_iter().collect::<Option<_>>()?;
        let (&first, rest) = operands.split_first()?;
        Some(match function {
            Function::Min => rest.iter().fold(first, |a, &b| self.node(Node::Min(a, b))),
            Function::Max => rest.iter().fold(first, |a, &b| self.node(Node::Max(a, b))),
            Function::Ratio => self.node(Node::Ratio(first, *rest.first()?)),
            Function::Abs => self.node(Node::Abs(first)),
            _ => self.node(Node::Cycles(first)),
        })
    }

    /// Compiles a sum. Terms that lack inputs are left out, unless all terms lack some.
    fn sum(
        &mut self,
        args: &[Expr],
        group: Option<u32>,
        depth: usize,
        found: &mut Found,
    ) -> Option<u32> {
        let mut total = None;
        let mut lacking = BTreeSet::new();
        for arg in args {
            let mut own = Found::default();
            let term = self.expr(arg, group, depth, &mut own);
            found.left_out.append(&mut own.left_out);
            match (term, total) {
                (None, _) => lacking.append(&mut own.missing),
                (Some(term), None) => total = Some(term),
                (Some(term), Some(before)) => {
                    total = Some(self.node(Node::Binary(BinaryOp::Add, before, term)));
                }
            }
        }
        match total {
            Some(_) => found.left_out.append(&mut lacking),
            None => found.missing.append(&mut lacking),
        }
        total
    }

    fn constant(&mut self, value: f64) -> u32 {
        self.node(Node::Const(value.to_bits()))
    }

    /// Returns the number of a node, which is made at most once; constants are folded.
    fn node(&mut self, node: Node) -> u32 {
        let number = |n: u32| match self.nodes[n as usize] {
            Node::Const(bits) => Some(f64::from_bits(bits)),
            _ => None,
        };
        let folded = match node {
            Node::Unary(op, a) => number(a).map(|a| match op {
                UnaryOp::Neg => -a,
                UnaryOp::Not => f64::from(u8::from(a == 0.0)),
            }),
            Node::Abs(a) => number(a).map(f64::abs),
            Node::Binary(op, a, b) => number(a)
                .zip(number(b))
                .map(|(a, b)| binary_value(op, a, b)),
            Node::Min(a, b) => number(a).zip(number(b)).map(|(a, b)| pick(a, b, a <= b)),
            Node::Max(a, b) => number(a).zip(number(b)).map(|(a, b)| pick(a, b, a >= b)),
            _ => None,
        };
        let node = folded.map_or(node, |value| Node::Const(value.to_bits()));
        *self.known.entry(node).or_insert_with(|| {
            self.nodes.push(node);
            (self.nodes.len() - 1) as u32
        })
    }
}
