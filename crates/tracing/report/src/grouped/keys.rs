//! The keys by which calls are grouped, and the names of the groups.

use super::{Level, TraceInput};
use crate::rows::distinct_names;
use dioptra_calls::{CallGroup, FunctionNames};
use dioptra_tables::Cell;
use dioptra_tracelayout::FunctionKind;
use std::collections::{BTreeSet, HashMap};
use std::sync::OnceLock;

/// The name of code of which no module is known.
const UNKNOWN: &str = "[unknown]";

/// The way in which rows of several traces are matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    /// Every group of a trace has a row of its own; there is one trace.
    Apart,
    /// Rows are the same where modules and places in them are, and processes and threads with their numbers and names.
    Equal,
    /// Rows are the same where their names are.
    Versions,
}

/// A module as rows have it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ModuleName {
    label: String,
    /// The build id, else the path.
    id: String,
}

/// The keys of a trace's calls at each level.
pub(super) struct Keys<'a, 't> {
    input: TraceInput<'a, 't>,
    /// By the stream's index: the index of the first stream of the same program, thread and thread name.
    programs: Vec<u32>,
    threads: Vec<u32>,
    comms: Vec<u32>,
    /// By function: the id that stands for it.
    functions: Vec<u32>,
    modules: OnceLock<Modules>,
}

/// The modules, and the index of each function's module by its id.
struct Modules {
    names: Vec<ModuleName>,
    of_function: Vec<u32>,
}

/// The names of a group in its level.
#[derive(Clone, Debug)]
pub(super) struct GroupNames {
    /// The text that is equal in rows that are matched.
    pub identity: String,
    /// The cells of the columns of [`heads`].
    pub cells: Vec<Cell<'static>>,
}

/// The names of a trace's functions, each told apart from the others.
pub(super) struct FunctionLabels(HashMap<u32, String>);

impl<'a, 't> Keys<'a, 't> {
    pub fn new(input: TraceInput<'a, 't>) -> Keys<'a, 't> {
        let view = input.view;
        let streams = view.streams();
        let places = 0..streams.len();
        let task = |place: usize| (streams[place].pid, streams[place].tid);
        Keys {
            input,
            programs: firsts(places.clone().map(|place| view.program(place))),
            threads: firsts(places.clone().map(task)),
            comms: firsts(places.map(|place| view.task_name(place))),
            functions: representatives(input),
            modules: OnceLock::new(),
        }
    }

    /// Returns the key of calls of a function in a stream.
    pub fn key(&self, level: Level, place: usize, function: u32) -> u32 {
        match level {
            Level::Program => self.programs[place],
            Level::Process => self.input.view.streams()[place].pid,
            Level::Thread => self.threads[place],
            Level::Comm => self.comms[place],
            Level::Module => self.module_key(function),
            Level::Function => self.functions.get(function as usize).copied().unwrap_or(0),
        }
    }

    /// Returns the key of a function's module.
    pub fn module_key(&self, function: u32) -> u32 {
        let modules = self.modules();
        let known = modules.of_function.get(function as usize);
        known.copied().unwrap_or(0)
    }

    fn modules(&self) -> &Modules {
        self.modules
            .get_or_init(|| Modules::of(self.input.names, &self.functions))
    }

    /// Returns the names of the functions among these groups.
    pub fn labels<'g>(
        &self,
        groups: impl Iterator<Item = &'g CallGroup>,
        levels: &[Level],
    ) -> FunctionLabels {
        let of_functions = groups.filter(|group| levels.get(group.level) == Some(&Level::Function));
        self.labels_of(of_functions.map(|group| group.key))
    }

    /// Returns the names of functions.
    pub fn labels_of(&self, functions: impl Iterator<Item = u32>) -> FunctionLabels {
        let ids: BTreeSet<u32> = functions.collect();
        let ids: Vec<u32> = ids.into_iter().collect();
        let names = distinct_names(&ids, self.input.names);
        FunctionLabels(ids.into_iter().zip(names).collect())
    }

    /// Returns the names of a group.
    pub fn names(
        &self,
        level: Level,
        key: u32,
        labels: &FunctionLabels,
        matching: Match,
    ) -> GroupNames {
        let view = self.input.view;
        let streams = view.streams();
        let stream = || streams.get(key as usize);
        let count = |number: u32| Cell::Count(u64::from(number));
        let by_name = matching == Match::Versions;
        let (identity, cells) = match level {
            Level::Program => {
                let path = view.program(key as usize).unwrap_or(UNKNOWN);
                let name = path.rsplit('/').next().unwrap_or(path);
                let own = self.programs.iter().zip(streams);
                let own = own.filter(|(program, _)| **program == key);
                let pids: BTreeSet<u32> = own.map(|(_, stream)| stream.pid).collect();
                let identity = if by_name { name } else { path };
                let cells = vec![Cell::Count(pids.len() as u64), name_cell(name)];
                (identity.to_owned(), cells)
            }
            Level::Process => {
                let name = self.process_name(key);
                match by_name {
                    true => (name.to_owned(), vec![name_cell(name)]),
                    false => (format!("{key} {name}"), vec![count(key), name_cell(name)]),
                }
            }
            Level::Thread => {
                let (pid, tid) = stream().map_or((0, 0), |stream| (stream.pid, stream.tid));
                let name = self.last_name(|place| self.threads[place] == key);
                match by_name {
                    true => (name.to_owned(), vec![name_cell(name)]),
                    false => {
                        let cells = vec![count(pid), count(tid), name_cell(name)];
                        (format!("{pid} {tid} {name}"), cells)
                    }
                }
            }
            Level::Comm => {
                let name = view.task_name(key as usize);
                (name.to_owned(), vec![name_cell(name)])
            }
            Level::Module => {
                let module = &self.modules().names[key as usize];
                let identity = if by_name { &module.label } else { &module.id };
                let cells = vec![name_cell(&module.label), name_cell(&module.id)];
                (identity.clone(), cells)
            }
            Level::Function => return self.function_names(key, labels, by_name),
        };
        GroupNames { identity, cells }
    }

    fn function_names(&self, function: u32, labels: &FunctionLabels, by_name: bool) -> GroupNames {
        let names = self.input.names;
        let entry = names.trace().function(function);
        let module = &self.modules().names[self.module_key(function) as usize];
        let [_, _, full] = names.detailed(function);
        let identity = match entry.kind {
            FunctionKind::Function if !by_name => format!("{} {:x}", module.id, entry.place),
            _ if by_name => format!("{} {full}", module.label),
            // Sampled calls of library functions are apart by their callers' modules.
            _ if self.input.view.is_sampled() => {
                format!("{} {full} {}", module.id, names.module(function))
            }
            _ => format!("{} {full}", module.id),
        };
        let shown = labels.0.get(&function).cloned();
        let address = match entry.kind {
            FunctionKind::Function => Cell::Address(entry.place),
            _ => Cell::Empty,
        };
        GroupNames {
            identity,
            cells: vec![
                name_cell(&module.label),
                Cell::name(shown.unwrap_or(full)),
                name_cell(&module.id),
                address,
                Cell::Count(u64::from(function)),
            ],
        }
    }

    /// Returns the name of a process: the last one of its main thread, else the first one of another thread.
    fn process_name(&self, pid: u32) -> &'t str {
        let streams = self.input.view.streams();
        let main = self.last_name(|place| (streams[place].pid, streams[place].tid) == (pid, pid));
        match main.is_empty() {
            false => main,
            true => self.last_name(|place| streams[place].pid == pid),
        }
    }

    /// Returns the name of the last stream for which `is_wanted` returns true.
    fn last_name(&self, is_wanted: impl Fn(usize) -> bool) -> &'t str {
        let view = self.input.view;
        let place = (0..view.streams().len()).rfind(|place| is_wanted(*place));
        place.map_or("", |place| view.task_name(place))
    }
}

impl Modules {
    fn of(names: &FunctionNames<'_>, functions: &[u32]) -> Modules {
        let trace = names.trace();
        let mut by_name: HashMap<ModuleName, u32> = HashMap::new();
        let mut modules = Modules {
            names: Vec::new(),
            of_function: Vec::with_capacity(functions.len()),
        };
        let by_path: HashMap<&str, &str> = trace
            .modules()
            .map(|module| (module.path.as_str(), module.build_id.as_str()))
            .collect();
        let named = |label: &str, build_id: &str, path: &str| ModuleName {
            label: label.to_owned(),
            id: if build_id.is_empty() { path } else { build_id }.to_owned(),
        };
        for id in 0..functions.len() as u32 {
            let entry = trace.function(id);
            let module = match entry.kind {
                FunctionKind::Function => match trace.module(entry.module) {
                    Some(module) => named(names.module(id), &module.build_id, &module.path),
                    None => named(UNKNOWN, "", UNKNOWN),
                },
                FunctionKind::LibraryCall => match names.library_path(id) {
                    Some(path) => {
                        let build_id = by_path.get(path).copied().unwrap_or_default();
                        named(&module_name(names, id), build_id, path)
                    }
                    None => named(&module_name(names, id), "", &module_name(names, id)),
                },
                _ => named(&module_name(names, id), "", &module_name(names, id)),
            };
            let next = modules.names.len() as u32;
            let key = *by_name.entry(module).or_insert_with_key(|module| {
                modules.names.push(module.clone());
                next
            });
            modules.of_function.push(key);
        }
        if modules.names.is_empty() {
            modules.names.push(named(UNKNOWN, "", UNKNOWN));
        }
        modules
    }
}

/// Returns the name of the module whose code a function is. Library calls belong to the library that has the function, as
/// far as it is known.
pub fn module_name(names: &FunctionNames<'_>, id: u32) -> String {
    let entry = names.trace().function(id);
    let name = match entry.kind {
        FunctionKind::Function if names.trace().module(entry.module).is_some() => names.module(id),
        FunctionKind::LibraryCall => names.library(id).unwrap_or("[library call]"),
        FunctionKind::Event => "[kernel]",
        _ => UNKNOWN,
    };
    name.to_owned()
}

/// Returns the ids of the columns that name a group, and whether only programs read them.
pub(super) fn heads(level: Level, matching: Match) -> &'static [(&'static str, bool)] {
    let by_name = matching == Match::Versions;
    match level {
        Level::Program => &[("processes", false), ("program", false)],
        Level::Process if by_name => &[("process", false)],
        Level::Process => &[("pid", false), ("process", false)],
        Level::Thread if by_name => &[("thread", false)],
        Level::Thread => &[("pid", false), ("tid", false), ("thread", false)],
        Level::Comm => &[("comm", false)],
        Level::Module => &[("module", false), ("module_id", true)],
        Level::Function => &[
            ("module", false),
            ("function", false),
            ("module_id", true),
            ("function_address", true),
            ("function_id", true),
        ],
    }
}

/// Returns one text for a group with these cells, below groups of the levels `above`, whose names it need not repeat.
pub(super) fn text(level: Level, cells: &[Cell<'static>], above: &[Level]) -> String {
    let cell = |index: usize| match cells.get(index) {
        Some(Cell::Name(name)) => name.to_string(),
        Some(Cell::Count(count)) => count.to_string(),
        _ => String::new(),
    };
    let with = |text: String, more: String| match more.is_empty() {
        true => text,
        false => format!("{text} ({more})"),
    };
    match level {
        Level::Program => match cell(0).as_str() {
            "1" => cell(1),
            count => format!("{} ({count} processes)", cell(1)),
        },
        Level::Process | Level::Thread if cells.len() == 1 => cell(0),
        Level::Process => with(cell(1), cell(0)),
        Level::Thread => with(cell(2), cell(1)),
        Level::Comm | Level::Module => cell(0),
        Level::Function if above.contains(&Level::Module) => cell(1),
        Level::Function => with(cell(1), cell(0)),
    }
}

fn name_cell(name: &str) -> Cell<'static> {
    Cell::name(name.to_owned())
}

/// Returns for each value the index of the first equal one.
fn firsts<T: std::hash::Hash + Eq>(values: impl Iterator<Item = T>) -> Vec<u32> {
    let mut known: HashMap<T, u32> = HashMap::new();
    let values = values.zip(0..);
    values
        .map(|(value, index)| *known.entry(value).or_insert(index))
        .collect()
}

/// Returns for each function the id that stands for it. A library call is one function, whichever module makes it, unless
/// calls are sampled: samples of different modules are apart.
fn representatives(input: TraceInput<'_, '_>) -> Vec<u32> {
    let trace = input.names.trace();
    let mut libraries: HashMap<&[u8], u32> = HashMap::new();
    let functions = 0..trace.function_count() as u32;
    let each = functions.map(|id| {
        let entry = trace.function(id);
        match trace.library_call_name(&entry) {
            Some(name) if !input.view.is_sampled() => *libraries.entry(name).or_insert(id),
            _ => id,
        }
    });
    each.collect()
}
