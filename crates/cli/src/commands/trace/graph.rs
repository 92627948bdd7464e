//! `dioptra trace graph`: who called whom.

mod tasks;

use super::fields;
use super::render::{Labels, Output, Sources, Style, address, push_duration, push_right, title};
use super::selected::{Data, Naming, Selected, facts};
use dioptra_calls::{CallNode, CallTree, FunctionNames, View, call_tree};
use dioptra_filters::MatchStyle;
use dioptra_report::{Facts, Severity, escape};
use dioptra_tracelayout::FunctionKind;
use std::io;
use std::process::ExitCode;

/// Arguments of `dioptra trace graph`.
#[derive(clap::Args)]
#[command(after_help = "\
Fields: total, self, addr (place in the module's file), total-avg, total-min, total-max, self-avg, self-min, self-max; with --task: total, self, tid. A number in parentheses says how many calls there were.

Examples:
  dioptra trace graph           all calls
  dioptra trace graph parse     who called parse, and what parse called")]
pub struct Arguments {
    #[command(flatten)]
    data: Data,
    #[command(flatten)]
    selected: Selected,
    #[command(flatten)]
    naming: Naming,
    /// What stands before each line [default: total]
    #[arg(short = 'f', long, value_name = "FIELDS")]
    output_fields: Option<String>,
    /// Processes and threads instead of functions
    #[arg(long)]
    task: bool,
    /// Show where functions are written
    #[arg(long)]
    srcline: bool,
    /// Text, or a page
    #[arg(long, value_name = "normal|html", default_value = "normal")]
    format: Style,
    /// Show this function's callers, and what it calls
    #[arg(value_name = "FUNC")]
    function: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
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

const FIELDS: [(&str, Field, &str); 9] = [
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

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    if arguments.task {
        return tasks::run(&arguments);
    }
    let fields = fields::parse(
        arguments.output_fields.as_deref(),
        &[Field::Total],
        FIELDS.map(|(name, field, _)| (name, field)),
    )?;
    let trace = arguments.data.open()?;
    let names = arguments.naming.names(&trace)?;
    let view = arguments.selected.view(&names)?;
    let tree = call_tree(&view);
    let mut facts = facts(&trace, &names, &tree.losses);
    if tree.open > 0 {
        let text = format!(
            "{} calls had not ended: their durations reach to the end",
            tree.open
        );
        facts.add(Severity::Info, "open_calls", text, tree.open);
    }
    let command = program(&view);
    let mut graph = Graph {
        labels: Labels::new(&names, false),
        sources: arguments.srcline.then(|| Sources::new(&names)),
        fields,
        sampled: view.is_sampled(),
        view: &view,
        out: Output::page(&title(&trace), arguments.format == Style::Html)?,
    };
    if graph.sampled {
        let text = "numbers are scaled from sampled calls (marked ~); `dioptra trace report` shows their errors";
        facts.add(Severity::Info, "sampled", text, true);
    }
    match &arguments.function {
        None => {
            let line = format!("# Function Call Graph for '{}'", escape(&command));
            graph.out.line(&line);
            graph.draw(&tree, Some(&command))?;
        }
        Some(function) => graph.around(&tree, function, &names, &mut facts)?,
    }
    graph.out.finish()?;
    facts.write_text(&mut io::stderr().lock())?;
    Ok(ExitCode::SUCCESS)
}

/// The traced program's file name.
fn program(view: &View<'_>) -> String {
    let trace = view.trace();
    let executable = trace.processes().first().map(|process| &process.executable);
    let command = executable.or(trace.info().command.first());
    let command = command.map_or("the trace", String::as_str);
    command.rsplit('/').next().unwrap_or(command).to_owned()
}

struct Graph<'v, 'n, 't> {
    labels: Labels<'n, 't>,
    sources: Option<Sources<'n, 't>>,
    fields: Vec<Field>,
    sampled: bool,
    view: &'v View<'t>,
    out: Output,
}

impl Graph<'_, '_, '_> {
    fn heading(&mut self) {
        self.out.line("========== FUNCTION CALL GRAPH ==========");
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
        self.out.line(&line);
    }

    /// The fields of a node, or blanks.
    fn prefix(&mut self, node: Option<&CallNode>) {
        let sampled = self.sampled;
        let out = &mut self.out.text;
        for field in &self.fields {
            out.extend_from_slice(b"  ");
            let Some(node) = node else {
                out.extend_from_slice(b"          ");
                continue;
            };
            let estimate = |exact: u64, weighted: f64| match sampled {
                true => Some(weighted.max(0.0).round() as u64),
                false => Some(exact),
            };
            let called = |time: u64| (node.calls > 0).then_some(time);
            let time = match field {
                Field::Total => estimate(node.total, node.weighted_total),
                Field::Self_ => estimate(node.self_time, node.weighted_self),
                Field::TotalAverage => node.total.checked_div(node.calls),
                Field::SelfAverage => node.self_time.checked_div(node.calls),
                Field::TotalMin => called(node.totals.0),
                Field::TotalMax => called(node.totals.1),
                Field::SelfMin => called(node.selves.0),
                Field::SelfMax => called(node.selves.1),
                Field::Address => {
                    let entry = self.view.trace().function(node.function);
                    push_right(out, &address(&entry), 10);
                    continue;
                }
            };
            match time {
                Some(time) => push_duration(out, time),
                None => out.extend_from_slice(b"          "),
            }
        }
        if !self.fields.is_empty() {
            out.extend_from_slice(b" :");
        }
    }

    fn node(&mut self, node: &CallNode, indent: &str, branch: &str) {
        self.prefix(Some(node));
        let mut text = format!("{indent}{branch}({}) ", self.count(node));
        text.push_str(self.labels.get(node.function));
        if let Some(sources) = &mut self.sources
            && let Some(source) = sources.get(node.function)
        {
            text.push_str(&format!(" [{source}]"));
        }
        self.out.line(&text);
    }

    fn count(&self, node: &CallNode) -> String {
        let estimated = node.weighted_calls.round() as u64;
        match self.sampled && estimated != node.calls {
            true => format!("~{estimated}"),
            false => node.calls.to_string(),
        }
    }

    /// The tree below the root, under a line for the program if there is one.
    fn draw(&mut self, tree: &CallTree, program: Option<&str>) -> io::Result<()> {
        self.heading();
        let children = tree.children();
        if let Some(program) = program {
            let nodes = tree.nodes();
            let tops: Vec<&CallNode> = children[0]
                .iter()
                .map(|top| &nodes[*top as usize])
                .collect();
            let mut root = nodes[0];
            root.total = tops.iter().map(|top| top.total).sum();
            root.weighted_total = tops.iter().map(|top| top.weighted_total).sum();
            let start = self.out.text.len();
            self.prefix(Some(&root));
            // The program's own time is not known: only the total stands.
            let mut at = start;
            for field in &self.fields {
                if *field != Field::Total
                    && let Some(cell) = self.out.text.get_mut(at..at + 12)
                {
                    cell.fill(b' ');
                }
                at += 12;
            }
            let line = format!(" (1) {}", escape(program));
            self.out.line(&line);
        }
        // Nodes still to be drawn, the next one last: with the indentation and the branch in front, and whether an empty
        // line comes behind. Not a recursion: paths may be as deep as the traced program's were.
        let mut open: Vec<Item> = Vec::new();
        self.below(&children, 0, " ", &mut open);
        if program.is_none() {
            // The functions that were asked for are the roots.
            for item in &mut open {
                if let Item::Node { branch, under, .. } = item {
                    *branch = "";
                    under.clone_from(&" ".to_owned());
                }
            }
            open.retain(|item| matches!(item, Item::Node { .. }));
        }
        while let Some(item) = open.pop() {
            match item {
                Item::Gap(indent) => {
                    self.prefix(None);
                    self.out.line(&format!("{indent} | "));
                }
                Item::Node {
                    node,
                    indent,
                    branch,
                    under,
                } => {
                    self.node(&tree.nodes()[node as usize], &indent, branch);
                    self.below(&children, node, &under, &mut open);
                }
            }
            self.out.flush_some()?;
        }
        self.out.line("");
        Ok(())
    }

    /// Adds the children of a node: a single one continues in the same column, more branch off.
    fn below(&self, children: &[Vec<u32>], node: u32, indent: &str, open: &mut Vec<Item>) {
        let list = &children[node as usize];
        if let [only] = list[..] {
            open.push(Item::Node {
                node: only,
                indent: indent.to_owned(),
                branch: "",
                under: indent.to_owned(),
            });
            return;
        }
        for (index, child) in list.iter().enumerate().rev() {
            let last = index + 1 == list.len();
            if !last {
                open.push(Item::Gap(indent.to_owned()));
            }
            open.push(Item::Node {
                node: *child,
                indent: indent.to_owned(),
                branch: " +-",
                under: format!("{indent}{}", if last { "   " } else { " | " }),
            });
        }
    }

    /// Who called the functions of this name, and what they called.
    fn around(
        &mut self,
        tree: &CallTree,
        wanted: &str,
        names: &FunctionNames<'_>,
        facts: &mut Facts,
    ) -> anyhow::Result<()> {
        let is_wanted = names.matching(wanted, MatchStyle::Simple);
        let line = format!("# Function Call Graph for '{}'", escape(wanted));
        self.out.line(&line);
        let mut inside = vec![false; tree.nodes().len()];
        let mut found = Vec::new();
        for (index, node) in tree.nodes().iter().enumerate().skip(1) {
            let around = inside[node.parent as usize];
            let here = is_wanted.get(node.function as usize) == Some(&true);
            inside[index] = around || here;
            // A call within a call of the same function belongs to that one.
            if here && !around {
                found.push(index as u32);
            }
        }
        if found.is_empty() {
            let nearest = names.nearest(wanted);
            let nearest = match nearest.is_empty() {
                true => String::new(),
                false => format!("; the nearest names are {}", nearest.join(", ")),
            };
            let text = format!("no shown call of `{wanted}`{nearest}");
            facts.add(Severity::Fallback, "not_called", text, wanted);
            return Ok(());
        }
        // The path that was found last comes first, as in uftrace.
        found.sort_by_key(|node| std::cmp::Reverse((tree.nodes()[*node as usize].first, *node)));
        self.out.line("=============== BACKTRACE ===============");
        for (number, node) in found.iter().enumerate() {
            let known = tree.nodes()[*node as usize];
            let mut time = Vec::new();
            let total = match self.sampled {
                true => known.weighted_total.round() as u64,
                false => known.total,
            };
            push_duration(&mut time, total);
            let line = format!(
                " backtrace #{number}: hit {}, time {}",
                self.count(&known),
                String::from_utf8_lossy(&time)
            );
            self.out.line(&line);
            for (level, function) in tree.path(*node).into_iter().enumerate() {
                let entry = self.view.trace().function(function);
                let module = escape(names.module(function));
                let name = self.labels.get(function);
                let line = match entry.kind {
                    FunctionKind::Event => format!("   [{level}] {name}"),
                    _ if module.is_empty() => format!("   [{level}] {name}"),
                    FunctionKind::LibraryCall => format!("   [{level}] {name} ({module})"),
                    _ => format!("   [{level}] {name} ({module}+{:#x})", entry.place),
                };
                self.out.line(&line);
            }
            self.out.line("");
            self.out.flush_some()?;
        }
        let below = tree.below(|function| is_wanted.get(function as usize) == Some(&true));
        self.draw(&below, None)?;
        Ok(())
    }
}

enum Item {
    Node {
        node: u32,
        indent: String,
        branch: &'static str,
        under: String,
    },
    Gap(String),
}
