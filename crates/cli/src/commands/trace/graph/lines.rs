//! The lines of a call graph.

use super::super::render::{Labels, Sources, address, push_duration, push_right};
use dioptra_calls::{CallNode, CallPathTree, FunctionNames, View};
use dioptra_tables::escape;
use dioptra_tracedata::Trace;
use dioptra_tracelayout::FunctionKind;

/// The columns that may stand before a line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Field {
    Total,
    Self_,
    Address,
    TotalAverage,
    TotalMin,
    TotalMax,
    SelfAverage,
    SelfMin,
    SelfMax,
}

/// The name, field and heading of each column.
pub const FIELDS: [(&str, Field, &str); 9] = [
    ("total", Field::Total, "TOTAL TIME"),
    ("self", Field::Self_, "SELF TIME"),
    ("addr", Field::Address, "ADDRESS"),
    ("total-avg", Field::TotalAverage, "TOTAL AVG"),
    ("total-min", Field::TotalMin, "TOTAL MIN"),
    ("total-max", Field::TotalMax, "TOTAL MAX"),
    ("self-avg", Field::SelfAverage, "SELF AVG"),
    ("self-min", Field::SelfMin, "SELF MIN"),
    ("self-max", Field::SelfMax, "SELF MAX"),
];

/// Returns the traced program's file name.
pub fn program(view: &View<'_>) -> String {
    let trace = view.trace();
    let executable = trace.processes().first().map(|process| &process.executable);
    let command = executable.or(trace.info().command.first());
    let command = command.map_or("the trace", String::as_str);
    command.rsplit('/').next().unwrap_or(command).to_owned()
}

/// The writer of a graph's lines.
pub struct Lines<'n, 't> {
    trace: &'t Trace,
    pub labels: Labels<'n, 't>,
    /// The source lines of functions, if the user asked for them.
    pub sources: Option<Sources<'n, 't>>,
    pub fields: Vec<Field>,
    /// Whether numbers are scaled up from sampled calls.
    pub sampled: bool,
}

impl<'n, 't> Lines<'n, 't> {
    /// Makes lines with these fields, without source lines.
    pub fn new(names: &'n FunctionNames<'t>, view: &View<'t>, fields: Vec<Field>) -> Lines<'n, 't> {
        Lines {
            trace: view.trace(),
            labels: Labels::new(names, false),
            sources: None,
            fields,
            sampled: view.is_sampled(),
        }
    }

    /// Returns the headings of the fields.
    pub fn heading(&self) -> String {
        let mut line = String::from("#");
        for (index, field) in self.fields.iter().enumerate() {
            let known = FIELDS.iter().find(|(_, known, _)| known == field);
            let heading = known.map_or("", |(.., heading)| heading);
            let width = if index == 0 { 11 } else { 12 };
            line.push_str(&format!("{heading:>width$}"));
        }
        line.push_str("   FUNCTION");
        if self.sources.is_some() {
            line.push_str(" [SOURCE]");
        }
        line
    }

    /// Adds the fields of a node, or blanks.
    pub fn push_fields(&self, node: Option<&CallNode>, out: &mut Vec<u8>) {
        for field in &self.fields {
            out.extend_from_slice(b"  ");
            match node {
                Some(node) => self.push_field(*field, node, out),
                None => out.extend_from_slice(b"          "),
            }
        }
        if !self.fields.is_empty() {
            out.extend_from_slice(b" :");
        }
    }

    fn push_field(&self, field: Field, node: &CallNode, out: &mut Vec<u8>) {
        let estimate = |exact: u64, weighted: f64| match self.sampled {
            true => Some(weighted.max(0.0).round() as u64),
            false => Some(exact),
        };
        let called = |time: u64| (node.calls > 0).then_some(time);
        let time = match field {
            Field::Total => Some(self.total(node)),
            Field::Self_ => estimate(node.self_time, node.weighted_self),
            Field::TotalAverage => node.total.checked_div(node.calls),
            Field::SelfAverage => node.self_time.checked_div(node.calls),
            Field::TotalMin => called(node.totals.0),
            Field::TotalMax => called(node.totals.1),
            Field::SelfMin => called(node.selves.0),
            Field::SelfMax => called(node.selves.1),
            Field::Address => {
                let entry = self.trace.function(node.function);
                push_right(out, &address(&entry), 10);
                return;
            }
        };
        match time {
            Some(time) => push_duration(out, time),
            None => out.extend_from_slice(b"          "),
        }
    }

    /// Returns the time in a node's calls, scaled if they are sampled.
    pub fn total(&self, node: &CallNode) -> u64 {
        match self.sampled {
            true => node.weighted_total.max(0.0).round() as u64,
            false => node.total,
        }
    }

    /// Adds the fields of the program. Only the total is known: the time of the calls at the top.
    pub fn push_program(&self, tree: &CallPathTree, out: &mut Vec<u8>) {
        let nodes = tree.nodes();
        let mut root = nodes[0];
        for top in nodes.iter().skip(1).filter(|node| node.parent == 0) {
            root.total = root.total.saturating_add(top.total);
            root.weighted_total += top.weighted_total;
        }
        for field in &self.fields {
            out.extend_from_slice(b"  ");
            match field {
                Field::Total => push_duration(out, self.total(&root)),
                _ => out.extend_from_slice(b"          "),
            }
        }
        if !self.fields.is_empty() {
            out.extend_from_slice(b" :");
        }
    }

    /// Returns a node's text: number of calls, function and source line.
    pub fn node(&mut self, node: &CallNode) -> String {
        let mut text = format!("({}) ", self.count(node));
        text.push_str(self.labels.get(node.function));
        if let Some(sources) = &mut self.sources
            && let Some(source) = sources.get(node.function)
        {
            text.push_str(&format!(" [{source}]"));
        }
        text
    }

    fn count(&self, node: &CallNode) -> String {
        let estimated = node.weighted_calls.round() as u64;
        match self.sampled && estimated != node.calls {
            true => format!("~{estimated}"),
            false => node.calls.to_string(),
        }
    }

    /// Returns the heading of a path to a node.
    pub fn backtrace(&self, number: usize, node: &CallNode) -> String {
        let mut time = Vec::new();
        push_duration(&mut time, self.total(node));
        format!(
            " backtrace #{number}: hit {}, time {}",
            self.count(node),
            String::from_utf8_lossy(&time)
        )
    }

    /// Returns the line of one function of a path.
    pub fn step(&mut self, level: usize, function: u32) -> String {
        let entry = self.trace.function(function);
        let module = escape(self.labels.module(function));
        let name = self.labels.get(function);
        match entry.kind {
            FunctionKind::Event => format!("   [{level}] {name}"),
            _ if module.is_empty() => format!("   [{level}] {name}"),
            FunctionKind::LibraryCall => format!("   [{level}] {name} ({module})"),
            _ => format!("   [{level}] {name} ({module}+{:#x})", entry.place),
        }
    }
}

/// Returns the nodes of wanted functions that are not below other wanted ones. The path that was found last comes
/// first, as in uftrace.
pub fn outermost(tree: &CallPathTree, is_wanted: &[bool]) -> Vec<u32> {
    let mut inside = vec![false; tree.nodes().len()];
    let mut found = Vec::new();
    for (index, node) in tree.nodes().iter().enumerate().skip(1) {
        let around = inside[node.parent as usize];
        let here = is_wanted.get(node.function as usize) == Some(&true);
        inside[index] = around || here;
        // A call within a call of the same function belongs to the outer call.
        if here && !around {
            found.push(index as u32);
        }
    }
    found.sort_by_key(|node| std::cmp::Reverse((tree.nodes()[*node as usize].first, *node)));
    found
}
