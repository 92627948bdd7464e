//! A metric set: the columns for one family of CPUs, as a tree, and the events they need.

use std::collections::{BTreeMap, HashMap};

use crate::expr::{Expr, Function};
use crate::unit::Unit;

/// An event that a set's formulas use.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NeededEvent {
    /// The event's name in the formulas.
    pub name: String,
    /// The event in perf's words, for the kernel: `cpu/event=0xd3,umask=0x1/`, `cycles`. `None`: not known.
    pub encoding: Option<String>,
    /// Other spellings by which a recorded event is known to be this one.
    pub aka: Vec<String>,
    /// The period of sampling, in events.
    pub period: Option<u64>,
    /// The exactness that the sampled address needs: perf's number of `p`s.
    pub precise: u8,
    /// Whether the event takes no place in a group: it has a counter of its own, or none (software events).
    pub fixed: bool,
    /// Whether the event cannot be sampled, only read beside a leader.
    pub read_only: bool,
    /// The event's meaning, for people.
    pub description: String,
}

impl NeededEvent {
    /// Returns the event's text for `record -e`, in perf's words: with its period, its precision, and its name, under
    /// which the profile is then read. `None` if the encoding is not known.
    pub fn spec(&self) -> Option<String> {
        let encoding = self.encoding.as_deref()?;
        let (unit, terms, modifiers) = match encoding
            .split_once('/')
            .and_then(|(unit, rest)| Some((unit, rest.rsplit_once('/')?)))
        {
            Some((unit, (terms, modifiers))) => (unit, terms, modifiers),
            None => (encoding, "", ""),
        };
        let mut all: Vec<String> = terms
            .split(',')
            .filter(|t| !t.is_empty())
            .map(str::to_owned)
            .collect();
        if let Some(period) = self.period.filter(|_| !self.read_only) {
            all.push(format!("period={period}"));
        }
        // A name that cannot stand in a term is left out; its encoding identifies the event.
        if self.name != encoding && !self.name.contains([',', '/', '{', '}']) {
            all.push(format!("name={}", self.name));
        }
        let precise = if self.read_only { 0 } else { self.precise };
        let modifiers = format!("{modifiers}{}", "p".repeat(usize::from(precise.min(3))));
        Some(match (all.is_empty(), modifiers.is_empty()) {
            (true, true) => unit.to_owned(),
            (true, false) => format!("{unit}:{modifiers}"),
            (false, _) => format!("{unit}/{}/{modifiers}", all.join(",")),
        })
    }
}

/// The origin of a column's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnKind {
    /// One event, as it is or at its penalty.
    Event,
    /// The sum of the columns that add to it: a branch or sub-branch.
    Sum,
    /// A formula.
    Formula,
}

/// A derived column.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// The column's name, unique in the set.
    pub name: String,
    /// The heading; the name where the maker gives no other title.
    pub title: String,
    /// The unit of the value.
    pub unit: Unit,
    /// The origin of the value.
    pub kind: ColumnKind,
    /// The column's expression.
    pub formula: Expr,
    /// The column under which it folds.
    pub parent: Option<usize>,
    /// The columns that fold under it, in order.
    pub children: Vec<usize>,
    /// The event, for a column of kind [`ColumnKind::Event`].
    pub event: Option<String>,
    /// The cost of one occurrence of the event, in cycles.
    pub penalty: Option<f64>,
    /// The maker's group, where there is one.
    pub group: String,
    /// The column's meaning, for people.
    pub description: String,
}

/// Columns and the events they need.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MetricSet {
    /// The short name, for `--metrics NAME`.
    pub name: String,
    /// The title, in one line.
    pub title: String,
    /// The description, in one or more sentences.
    pub description: String,
    /// The origins of formulas and numbers.
    pub sources: Vec<String>,
    /// Patterns of CPUs, see [`CpuId::matches`](crate::CpuId::matches). An empty list means any CPU.
    pub cpus: Vec<String>,
    /// The gaps in the knowledge of the set's writer, as sentences to show.
    pub unknown: Vec<String>,
    /// The number of general counters that the CPU has for one hardware thread, where the set states it.
    pub counters: Option<usize>,
    /// The event whose samples are the unit of Gooda's mode.
    pub reference: Option<String>,
    pub(crate) events: Vec<NeededEvent>,
    pub(crate) columns: Vec<Column>,
    pub(crate) constants: BTreeMap<String, f64>,
    pub(crate) event_index: HashMap<String, usize>,
    pub(crate) column_index: HashMap<String, usize>,
}

impl MetricSet {
    /// Returns all columns; a parent stands before its children.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Returns the columns without parent.
    pub fn roots(&self) -> impl Iterator<Item = usize> {
        self.columns
            .iter()
            .enumerate()
            .filter(|(_, c)| c.parent.is_none())
            .map(|(i, _)| i)
    }

    /// Returns the column of this name, in any case of letters.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.column_index.get(&name.to_ascii_lowercase()).copied()
    }

    /// Returns the columns that a name chooses, in any case of letters: a column with all that folds under it, or the
    /// columns of a maker's group (`TopdownL1`). `None` if there is neither.
    pub fn columns_named(&self, name: &str) -> Option<Vec<usize>> {
        if let Some(column) = self.column(name) {
            let mut chosen = vec![column];
            let mut next = 0;
            while let Some(column) = chosen.get(next) {
                chosen.extend(&self.columns[*column].children);
                next += 1;
            }
            return Some(chosen);
        }
        let is_in = |group: &str| {
            let mut parts = group.split(';').chain([group]);
            parts.any(|part| !part.is_empty() && part.trim().eq_ignore_ascii_case(name))
        };
        let chosen: Vec<usize> = (0..self.columns.len())
            .filter(|&c| is_in(&self.columns[c].group))
            .collect();
        (!chosen.is_empty()).then_some(chosen)
    }

    /// Returns the event that the set declares under this name.
    pub fn event(&self, name: &str) -> Option<&NeededEvent> {
        let i = *self.event_index.get(&name.to_ascii_lowercase())?;
        self.events.get(i)
    }

    /// Returns the events to record for all columns: each event once, in the file's order. An event that a formula
    /// names and the set does not declare comes last, without encoding.
    pub fn needed_events(&self) -> Vec<NeededEvent> {
        let all: Vec<usize> = (0..self.columns.len()).collect();
        self.needed_events_of(&all)
    }

    /// Returns the events to record for some columns.
    pub fn needed_events_of(&self, columns: &[usize]) -> Vec<NeededEvent> {
        let mut declared = vec![false; self.events.len()];
        let mut others = Vec::new();
        for &column in columns {
            for name in self.inputs(column) {
                match self.event_index.get(&name.to_ascii_lowercase()) {
                    Some(&i) => declared[i] = true,
                    None if !others.contains(&name) => others.push(name),
                    None => {}
                }
            }
        }
        let known = self.events.iter().zip(declared).filter(|(_, d)| *d);
        known
            .map(|(e, _)| e.clone())
            .chain(others.into_iter().map(|name| NeededEvent {
                name,
                ..NeededEvent::default()
            }))
            .collect()
    }

    /// Returns the names of the events behind a column, through the columns to which it refers; each once.
    pub fn inputs(&self, column: usize) -> Vec<String> {
        let mut names = Vec::new();
        let mut seen = vec![false; self.columns.len()];
        let mut open = vec![column];
        while let Some(c) = open.pop() {
            let Some(column) = self.columns.get(c) else {
                continue;
            };
            if std::mem::replace(&mut seen[c], true) {
                continue;
            }
            let mut found = Vec::new();
            column.formula.visit_names(&mut |name| found.push(name));
            for name in found {
                match self.resolve(name) {
                    Resolved::Column(i) => open.push(i),
                    Resolved::Constant => {}
                    Resolved::Event => {
                        if !names.iter().any(|n| n == name) {
                            names.push(name.to_owned());
                        }
                    }
                }
            }
        }
        names
    }

    /// Returns the meaning of a name in a formula: a declared event, a constant, another column, else an event.
    pub(crate) fn resolve(&self, name: &str) -> Resolved {
        let lower = name.to_ascii_lowercase();
        if self.event_index.contains_key(&lower) {
            Resolved::Event
        } else if name.starts_with('#')
            || self.constants.contains_key(&lower)
            || is_constant(&lower)
        {
            Resolved::Constant
        } else if let Some(&column) = self.column_index.get(&lower) {
            Resolved::Column(column)
        } else {
            Resolved::Event
        }
    }

    /// Returns all columns, each after the columns that its formula names; or, as an error, a column that needs its own
    /// value. The search does not recurse, since a chain of references may be as long as the set.
    pub(crate) fn reference_order(&self) -> Result<Vec<usize>, usize> {
        let refers = |column: usize| {
            let mut to = Vec::new();
            self.columns[column].formula.visit_names(&mut |name| {
                if let Resolved::Column(i) = self.resolve(name) {
                    to.push(i);
                }
            });
            to
        };
        #[derive(Clone, Copy, PartialEq)]
        enum State {
            New,
            OnTheWay,
            Done,
        }
        let mut state = vec![State::New; self.columns.len()];
        let mut order = Vec::with_capacity(state.len());
        for start in 0..state.len() {
            let mut way = vec![(start, false)];
            while let Some((column, leaving)) = way.pop() {
                if leaving {
                    state[column] = State::Done;
                    order.push(column);
                } else if state[column] == State::New {
                    state[column] = State::OnTheWay;
                    way.push((column, true));
                    for to in refers(column) {
                        match state[to] {
                            State::New => way.push((to, false)),
                            State::OnTheWay => return Err(to),
                            State::Done => {}
                        }
                    }
                }
            }
        }
        Ok(order)
    }

    pub(crate) fn push_event(&mut self, event: NeededEvent) {
        let i = self.events.len();
        self.event_index
            .entry(event.name.to_ascii_lowercase())
            .or_insert(i);
        self.events.push(event);
    }

    /// Adds a column; returns `false` if the name is taken.
    pub(crate) fn push_column(&mut self, column: Column) -> bool {
        let i = self.columns.len();
        let key = column.name.to_ascii_lowercase();
        if self.column_index.contains_key(&key) {
            return false;
        }
        self.column_index.insert(key, i);
        if let Some(parent) = column.parent.and_then(|p| self.columns.get_mut(p)) {
            parent.children.push(i);
        }
        self.columns.push(column);
        true
    }
}

/// The meaning of a name in a set.
pub(crate) enum Resolved {
    Event,
    Constant,
    Column(usize),
}

/// Returns true for names that makers use for properties of the machine, not for events.
fn is_constant(lower: &str) -> bool {
    matches!(
        lower,
        "duration_time" | "system_tsc_freq" | "threads_per_core" | "smt_on" | "num_packages"
    )
}

/// Returns the expression of a column that shows one event: the count, or its cost.
pub(crate) fn event_formula(event: &str, penalty: Option<f64>) -> Expr {
    match penalty {
        Some(penalty) if penalty > 0.0 => {
            let cost = if penalty == 1.0 {
                Expr::name(event)
            } else {
                Expr::Binary(
                    crate::expr::BinaryOp::Mul,
                    Box::new(Expr::Number(penalty)),
                    Box::new(Expr::name(event)),
                )
            };
            Expr::Call(Function::Cycles, vec![cost])
        }
        _ => Expr::name(event),
    }
}
