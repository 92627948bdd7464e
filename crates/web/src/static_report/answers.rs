//! The answers that a static report stores, the most wanted first, until it is full.

use super::store::{Question, Share, Store};
use super::traces::TracePart;
use crate::api::{
    FileKind, FlameAnswer, FunctionAnswer, ProfileAnswer, RowKeys, TableAnswer, TimelineAnswer,
};
use crate::failure::Failure;
use crate::jobs::Ticket;
use crate::parameters::Parameters;
use crate::{flames, functions, overview, tables, timelines};
use std::collections::HashSet;

/// The tables above the functions of Hotspots.
const UPPER: [&str; 7] = [
    "process,module",
    "program,module",
    "process,thread",
    "module",
    "thread",
    "comm",
    "cpu",
];
/// The numbers of rows that tables are cut to, the first that fits.
const FUNCTION_ROWS: [usize; 6] = [5000, 2000, 800, 300, 100, 30];
const OTHER_ROWS: [usize; 4] = [1000, 300, 100, 30];
/// The numbers of nodes that trees are cut to.
const NODES: [usize; 5] = [20_000, 8000, 3000, 1000, 300];
const FOCUS_NODES: [usize; 3] = [3000, 1000, 300];
/// The number of lanes that the page shows, and smaller numbers of them.
const LANES: [usize; 3] = [120, 40, 10];
/// The bins of timelines: no more than the page draws on a wide screen.
const BINS: &str = "1000";
/// The number of events that can stand first.
const MOST_FIRST: usize = 4;
/// The number of rows for which a selection is stored, of each kind.
const SELECTIONS: usize = 4;
/// The number of functions whose source, assembly and graph are stored at most.
const MOST_FUNCTIONS: usize = 120;
/// The number of functions whose callers and callees are stored.
const MOST_FOCUSED: usize = 15;

/// Sentences about what a report holds, and about what it leaves out.
type Sentences = (Vec<String>, Vec<String>);

/// Stores answers of all profiles.
pub(super) fn collect(store: &mut Store, has_source: bool) -> Result<Sentences, Failure> {
    store.keep(&Question::new("status"), usize::MAX)?;
    let profiles = store.shared.profiles.status().profiles;
    let (mut holds, mut lacks) = (Vec::new(), Vec::new());
    for (done, profile) in profiles.iter().enumerate() {
        // Each one leaves room for those behind it.
        let share = Share::of(store, profiles.len() - done - 1);
        let (held, lacked) = match profile.kind {
            FileKind::Profile => Part::new(store, profile.index, share, has_source)?.collect()?,
            FileKind::Trace => TracePart::new(store, profile.index, share).collect()?,
        };
        let label = match profiles.len() {
            1 => String::new(),
            _ => format!("{}: ", profile.label),
        };
        holds.extend(held.into_iter().map(|text| format!("{label}{text}")));
        lacks.extend(lacked.into_iter().map(|text| format!("{label}{text}")));
    }
    lacks.push(
        "Other selections, ranges of time, inlined functions as functions of their own, and Intel syntax are not in this \
         report: open the recording with dioptra web."
            .to_owned(),
    );
    Ok((holds, lacks))
}

/// The answers of one profile.
struct Part<'a> {
    store: &'a mut Store,
    profile: ProfileAnswer,
    share: Share,
    has_source: bool,
    /// The events that sampled, in the order of columns.
    events: Vec<String>,
    /// The functions whose code is stored.
    codes: HashSet<String>,
}

impl Part<'_> {
    fn new(
        store: &mut Store,
        index: usize,
        share: Share,
        has_source: bool,
    ) -> Result<Part<'_>, Failure> {
        let loaded = store.shared.profiles.get(Some(index), None)?;
        let profile = overview::answer(&loaded);
        let sampled = profile.events.iter().filter(|event| event.sampled);
        Ok(Part {
            events: sampled.map(|event| event.key.clone()).collect(),
            share,
            store,
            profile,
            has_source,
            codes: HashSet::new(),
        })
    }

    /// The bytes that an answer may take: a part of all the room, or what is left of it.
    fn most(&self, parts: usize) -> usize {
        self.share.most(self.store, parts)
    }

    /// A question about all samples, with one event first.
    fn question(&self, endpoint: &'static str, first: usize) -> Question {
        let mut events = self.events.clone();
        if first < events.len() {
            let event = events.remove(first);
            events.insert(0, event);
        }
        Question::new(endpoint)
            .with("profile", self.profile.profile.to_string())
            .with_all("event", &events)
    }

    fn collect(&mut self) -> Result<Sentences, Failure> {
        let question = Question::new("profile").with("profile", self.profile.profile.to_string());
        self.store.keep(&question, usize::MAX)?;
        let (mut holds, mut lacks) = (Vec::new(), Vec::new());
        let whole = self.question("table", 0);
        let functions = self.functions(&whole, 6)?;
        for by in ["process", "thread", "module"] {
            self.table(&whole, by, &OTHER_ROWS, 16)?;
        }
        let upper = self.table(&whole, UPPER[0], &OTHER_ROWS, 16)?;
        if let Some(table) = &functions {
            say_rows(table, "hottest", &mut holds, &mut lacks);
        }
        if self.profile.has.chains {
            let tree = self.tree(&whole, "callees", None, &NODES, 8)?;
            self.tree(&whole, "callers", None, &NODES, 8)?;
            if let Some(tree) = &tree {
                say_nodes(tree, &mut holds, &mut lacks);
            }
        }
        if self.profile.has.times {
            self.timelines(&whole)?;
            holds.push(
                "The timeline of threads, processes and CPUs in bins of one width.".to_owned(),
            );
        }
        let names = functions
            .as_ref()
            .map(keys_of_functions)
            .unwrap_or_default();
        let (most, rest) = names.split_at(names.len().min(10));
        self.codes(0, most)?;
        for first in 1..self.events.len().min(MOST_FIRST) {
            let question = self.question("table", first);
            let table = self.functions(&question, 10)?;
            for by in ["process", "thread", "module", UPPER[0]] {
                self.table(&question, by, &OTHER_ROWS, 30)?;
            }
            if self.profile.has.chains {
                self.tree(&question, "callees", None, &NODES, 12)?;
                self.tree(&question, "callers", None, &NODES, 12)?;
            }
            if self.profile.has.times {
                self.timelines(&question)?;
            }
            let hottest = table.as_ref().map(keys_of_functions).unwrap_or_default();
            self.codes(first, &hottest[..hottest.len().min(10)])?;
        }
        for by in &UPPER[1..] {
            self.table(&whole, by, &OTHER_ROWS, 30)?;
        }
        self.selections(&whole, upper.as_ref())?;
        if self.profile.has.chains {
            for function in names.iter().take(MOST_FOCUSED) {
                for direction in ["callees", "callers"] {
                    self.tree(&whole, direction, Some(function), &FOCUS_NODES, 60)?;
                }
            }
        }
        self.codes(0, &rest[..rest.len().min(MOST_FUNCTIONS)])?;
        self.say_codes(functions.as_ref(), &mut holds, &mut lacks);
        Ok((holds, lacks))
    }

    /// Stores a table, all levels of it, with standard errors.
    fn table(
        &mut self,
        of: &Question,
        by: &str,
        rows: &[usize],
        parts: usize,
    ) -> Result<Option<TableAnswer>, Failure> {
        self.rows(&of.of("table").with("by", by), rows, parts)
    }

    fn rows(
        &mut self,
        question: &Question,
        rows: &[usize],
        parts: usize,
    ) -> Result<Option<TableAnswer>, Failure> {
        // The page asks with standard errors or without, and leaves them out itself.
        let asked = question.clone().with("errors", "1");
        let most = self.most(parts);
        self.store.fit(question, rows, most, |store, rows| {
            table(store, &asked, rows)
        })
    }

    /// Stores the tables of functions, and returns the one by samples of their own.
    fn functions(&mut self, of: &Question, parts: usize) -> Result<Option<TableAnswer>, Failure> {
        let question = of.of("table").with("by", "function");
        let own = self.rows(&question, &FUNCTION_ROWS, parts)?;
        if self.profile.has.chains {
            self.rows(&question.with("children", "1"), &FUNCTION_ROWS, parts)?;
        }
        Ok(own)
    }

    fn tree(
        &mut self,
        of: &Question,
        direction: &'static str,
        focus: Option<&str>,
        nodes: &[usize],
        parts: usize,
    ) -> Result<Option<FlameAnswer>, Failure> {
        let mut question = of.of("flame").with("direction", direction);
        if let Some(focus) = focus {
            question = question.with("focus", focus);
        }
        let most = self.most(parts);
        self.store.fit(&question, nodes, most, |store, nodes| {
            let asked = question.clone().with("count", nodes.to_string());
            let request = Parameters::of(&asked.query()).flame()?;
            flames::answer(&store.shared, &request, &Ticket::default())
        })
    }

    fn timelines(&mut self, of: &Question) -> Result<(), Failure> {
        for rows in ["all", "thread", "process", "cpu"] {
            if rows == "cpu" && !self.profile.has.cpus {
                continue;
            }
            let question = of.of("timeline").with("rows", rows);
            let most = self.most(16);
            self.store.fit(&question, &LANES, most, |store, lanes| {
                timeline(store, &question, lanes)
            })?;
        }
        Ok(())
    }

    /// Stores what the page shows when one of the heaviest processes, modules or threads is selected.
    fn selections(&mut self, of: &Question, upper: Option<&TableAnswer>) -> Result<(), Failure> {
        let mut selections: Vec<Question> = Vec::new();
        let mut add = |key: &RowKeys| {
            let mut question = of.clone();
            let keys = [
                ("process", &key.process),
                ("thread", &key.thread),
                ("module", &key.module),
            ];
            for (name, value) in keys {
                if let Some(value) = value {
                    question = question.with(name, value);
                }
            }
            selections.push(question);
        };
        let rows = upper.map(|table| &table.rows[..]).unwrap_or_default();
        let processes = rows.iter().filter(|row| row.depth == 0).take(SELECTIONS);
        for process in processes {
            add(&process.key);
            let modules = rows.iter().filter(|row| row.parent == Some(process.id));
            modules.take(3).for_each(|row| add(&row.key));
        }
        for by in ["module", "thread"] {
            let asked = of.of("table").with("by", by);
            let top = table(self.store, &asked, SELECTIONS);
            top.iter().flat_map(|table| &table.rows).for_each(|row| {
                // A click on a thread selects its process, too.
                add(&row.key);
            });
        }
        for question in selections {
            self.functions(&question, 40)?;
            for by in ["process", "thread", "module"] {
                self.table(&question, by, &[5], 200)?;
            }
            if self.profile.has.times {
                let all = question.of("timeline").with("rows", "all");
                let most = self.most(100);
                self.store.fit(&all, &[1], most, |store, lanes| {
                    timeline(store, &all, lanes)
                })?;
            }
            if self.profile.has.chains {
                self.tree(&question, "callees", None, &NODES, 40)?;
            }
        }
        Ok(())
    }

    /// Stores functions with their code and source, with one event first, while there is room.
    fn codes(&mut self, first: usize, functions: &[String]) -> Result<(), Failure> {
        for function in functions {
            if self.most(1) < 1000 {
                break;
            }
            let question = self.question("function", first).with("function", function);
            let request = Parameters::of(&question.query()).function()?;
            let answer = functions::answer(&self.store.shared, &request, &Ticket::default());
            let answer = match answer {
                Ok(answer) => answer,
                Err(failure) => {
                    self.store.keep_answer(&question, Err(failure), 2000)?;
                    continue;
                }
            };
            let most = self.most(8);
            let json = serde_json::to_vec(&*answer)?;
            if self.store.keep_answer(&question, Ok(json), most)? {
                self.codes.insert(function.clone());
                self.sources(&answer)?;
            }
        }
        Ok(())
    }

    /// Stores the source files in which the function's samples or its own code lie.
    fn sources(&mut self, answer: &FunctionAnswer) -> Result<(), Failure> {
        if !self.has_source {
            return Ok(());
        }
        let sampled = answer.lines.iter().filter(|line| {
            let counts = line.samples.iter().chain(&line.outer_samples);
            counts.copied().any(|samples| samples > 0)
        });
        let mut wanted: HashSet<i32> = sampled.map(|line| line.file).collect();
        // The function's own file: that of the outermost frames.
        let outermost = answer.stacks.iter().filter_map(|stack| stack.last());
        let own = outermost.filter_map(|frame| answer.frames.file.get(*frame as usize));
        wanted.extend(own);
        for (index, file) in (0..).zip(&answer.files) {
            if file.found && wanted.contains(&index) {
                let question = Question::new("source")
                    .with("profile", self.profile.profile.to_string())
                    .with("file", &file.id);
                let most = self.most(10);
                self.store.keep(&question, most)?;
            }
        }
        Ok(())
    }

    fn say_codes(
        &self,
        functions: Option<&TableAnswer>,
        holds: &mut Vec<String>,
        lacks: &mut Vec<String>,
    ) {
        let shown = self.codes.len();
        let all = functions.map_or(0, |table| table.total_rows);
        let source = match self.has_source {
            true => "Source, assembly and graph",
            false => "Assembly and graph",
        };
        if shown > 0 {
            holds.push(format!("{source} of {shown} of the hottest functions."));
        }
        if shown < all {
            let others = all - shown;
            lacks.push(format!("{source} of {others} other functions."));
        }
        if !self.has_source {
            lacks.push("Source text, which was left out on request.".to_owned());
        }
    }
}

/// The first rows of a table.
fn table(store: &Store, question: &Question, rows: usize) -> Result<TableAnswer, Failure> {
    let mut parameters = Parameters::of(&question.query());
    let mut request = parameters.table()?;
    parameters.finish()?;
    request.count = Some(rows);
    let ticket = Ticket::default();
    let mut whole = tables::answer(&store.shared, &request, &ticket)?;
    while whole.rows.len() < rows.min(whole.matching_rows) {
        request.from = Some(whole.rows.len());
        request.count = Some(rows - whole.rows.len());
        let more = tables::answer(&store.shared, &request, &ticket)?;
        if more.rows.is_empty() {
            break;
        }
        whole.rows.extend(more.rows);
    }
    Ok(whole)
}

fn timeline(store: &Store, question: &Question, lanes: usize) -> Result<TimelineAnswer, Failure> {
    let asked = question
        .clone()
        .with("bins", BINS)
        .with("count", lanes.to_string());
    let request = Parameters::of(&asked.query()).timeline()?;
    timelines::answer(&store.shared, &request, &Ticket::default())
}

/// The keys of the functions of a table, in its order.
fn keys_of_functions(table: &TableAnswer) -> Vec<String> {
    let keys = table.rows.iter();
    keys.filter_map(|row| row.key.function.clone()).collect()
}

pub(super) fn say_rows(
    table: &TableAnswer,
    kind: &str,
    holds: &mut Vec<String>,
    lacks: &mut Vec<String>,
) {
    let (stored, all) = (table.rows.len(), table.total_rows);
    match stored < all {
        true => {
            holds.push(format!("The {stored} {kind} of {all} functions."));
            lacks.push(format!(
                "The other {} functions, in tables and searches.",
                all - stored
            ));
        }
        false => holds.push(format!("All {all} functions.")),
    }
}

pub(super) fn say_nodes(tree: &FlameAnswer, holds: &mut Vec<String>, lacks: &mut Vec<String>) {
    let (stored, all) = (tree.nodes.id.len(), tree.total_nodes);
    match stored < all {
        true => {
            holds.push(format!(
                "The {stored} heaviest of {all} nodes of the call tree."
            ));
            lacks.push(format!("{} lighter nodes of the call tree.", all - stored));
        }
        false => holds.push(format!("The whole call tree, {all} nodes.")),
    }
}
