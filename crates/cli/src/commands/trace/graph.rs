//! `dioptra trace graph`: the calls by call path.

mod lines;
mod tasks;

pub use lines::{FIELDS, Field, Lines, outermost, program};

use super::fields;
use super::render::{Output, Sources, Style, title};
use super::selected::{Data, Naming, Selected, spelled};
use super::usage;
use crate::exit::Exit;
use dioptra_calls::{CallPathTree, FunctionNames, View, call_tree};
use dioptra_filters::MatchStyle;
use dioptra_tables::{Facts, Severity, escape};
use dioptra_tracedata::Trace;
use std::io;

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
    /// Columns before each line [default: total]
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
    /// Arguments of the traced program, which may follow its name as in uftrace
    #[arg(num_args = 0.., trailing_var_arg = true, hide = true, requires = "function")]
    program_arguments: Vec<String>,
}

pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
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
    let mut facts = Facts::new();
    let command = program(&view);
    let mut lines = Lines::new(&names, &view, fields);
    lines.sources = arguments.srcline.then(|| Sources::new(&names));
    let mut graph = Graph {
        lines,
        out: Output::page(&title(&trace), arguments.format == Style::Html)?,
    };
    // uftrace's users give the program's name; most programs have no function of that name.
    let names_program = |text: &&String| {
        is_program(&trace, text) && !names.matching(text, MatchStyle::Simple).contains(&true)
    };
    if let Some(extra) = arguments.program_arguments.first()
        && !arguments
            .function
            .as_deref()
            .is_some_and(|word| is_program(&trace, word))
    {
        return Err(usage(format_args!(
            "graph shows one function, and there is a second word: {extra}"
        )));
    }
    match arguments
        .function
        .as_ref()
        .filter(|text| !names_program(text))
    {
        None => {
            let line = format!("# Function Call Graph for '{}'", escape(&command));
            graph.out.line(&line);
            graph.draw(&tree, Some(&command))?;
        }
        Some(function) => graph.around(&tree, function, &names, &mut facts)?,
    }
    graph.out.finish()?;
    // Missing names are known only after the graph is written.
    let mut known = graph_facts(&view, &names, &tree);
    known.append(facts);
    known.write_text(&mut io::stderr().lock())?;
    Ok(Exit::Done)
}

/// Returns whether a word of a command line is the traced program: as it was started, or its path or name.
fn is_program(trace: &Trace, word: &str) -> bool {
    let Some(program) = trace.info().command.first() else {
        return false;
    };
    let name = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    word == program || (word == name(word) || word.contains('/')) && name(word) == name(program)
}

/// Returns the diagnostics of a call graph, with their remedies.
pub fn graph_facts(view: &View<'_>, names: &FunctionNames<'_>, tree: &CallPathTree) -> Facts {
    spelled(dioptra_trace_report::graph_facts(view, names, tree))
}

struct Graph<'n, 't> {
    lines: Lines<'n, 't>,
    out: Output,
}

impl Graph<'_, '_> {
    /// Draws the tree below the root, under a line for the program if there is one.
    fn draw(&mut self, tree: &CallPathTree, program: Option<&str>) -> io::Result<()> {
        self.out.line("========== FUNCTION CALL GRAPH ==========");
        let heading = self.lines.heading();
        self.out.line(&heading);
        let children = tree.children();
        if let Some(program) = program {
            self.lines.push_program(tree, &mut self.out.text);
            let line = format!(" (1) {}", escape(program));
            self.out.line(&line);
        }
        // Nodes still to be drawn, the next one last. Each has its indentation, its branch, and the gap line behind it.
        // There is no recursion, since paths may be as deep as the traced program's were.
        let mut open: Vec<Item> = Vec::new();
        self.below(&children, 0, " ", &mut open);
        if program.is_none() {
            // The wanted functions are the roots.
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
                    self.lines.push_fields(None, &mut self.out.text);
                    self.out.line(&format!("{indent} | "));
                }
                Item::Node {
                    node,
                    indent,
                    branch,
                    under,
                } => {
                    let known = &tree.nodes()[node as usize];
                    self.lines.push_fields(Some(known), &mut self.out.text);
                    let text = format!("{indent}{branch}{}", self.lines.node(known));
                    self.out.line(&text);
                    self.below(&children, node, &under, &mut open);
                }
            }
            self.out.flush_some()?;
        }
        self.out.line("");
        Ok(())
    }

    /// Adds the children of a node: a single child continues in the same column, several branch off.
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

    /// Draws the callers of the functions of this name, and the functions that they called.
    fn around(
        &mut self,
        tree: &CallPathTree,
        wanted: &str,
        names: &FunctionNames<'_>,
        facts: &mut Facts,
    ) -> anyhow::Result<()> {
        let is_wanted = names.matching(wanted, MatchStyle::Simple);
        let line = format!("# Function Call Graph for '{}'", escape(wanted));
        self.out.line(&line);
        let found = outermost(tree, &is_wanted);
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
        self.out.line("=============== BACKTRACE ===============");
        for (number, node) in found.iter().enumerate() {
            let line = self.lines.backtrace(number, &tree.nodes()[*node as usize]);
            self.out.line(&line);
            for (level, function) in tree.path(*node).into_iter().enumerate() {
                let line = self.lines.step(level, function);
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
