//! Call paths in Callgrind's format: self times of functions, and calls between functions with their true numbers.
//!
//! A call's time counts once for the total of each function: the outermost call to a function carries the time, and
//! recursive calls carry none.

use super::paths::{PathFunction, TracePaths, Written};
use super::{ExportedTrace, TraceSource};
use crate::callgrind::{UNKNOWN_FILE, one_line};
use crate::error::ExportError;
use crate::lost::LostKind;
use dioptra_tracelayout::FunctionKind;
use hashbrown::{HashMap, HashSet};
use std::collections::BTreeMap;
use std::io::Write;

/// The kinds of data that the format has no place for.
const NO_PLACE: &[LostKind] = &[
    LostKind::CallMoments,
    LostKind::Threads,
    LostKind::OpenMarks,
];

/// The sums of a function, or of the calls of a function by another one.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    calls: u64,
    /// Nanoseconds.
    time: u64,
}

impl Sums {
    fn add(&mut self, calls: u64, time: u64) {
        self.calls = self.calls.saturating_add(calls);
        self.time = self.time.saturating_add(time);
    }
}

/// Writes call paths in Callgrind's format.
///
/// # Errors
/// Writing failed.
pub fn write_trace_callgrind(
    source: &TraceSource<'_, '_>,
    out: &mut dyn Write,
) -> Result<ExportedTrace, ExportError> {
    let paths = TracePaths::of(source);
    let mut written = Written::default();
    let mut own: BTreeMap<PathFunction, Sums> = BTreeMap::new();
    let mut edges: BTreeMap<(PathFunction, PathFunction), Sums> = BTreeMap::new();
    for thread in &paths.threads {
        // The number of open calls of each function.
        let mut open: HashMap<PathFunction, u64> = HashMap::new();
        thread.walk(|at, begins| {
            let node = &thread.nodes[at];
            let open = open.entry(node.function).or_default();
            if !begins {
                *open -= 1;
                return;
            }
            let is_recursion = *open > 0;
            *open += 1;
            written.add(node);
            own.entry(node.function)
                .or_default()
                .add(node.calls, node.self_time);
            let Some(parent) = node.parent else {
                return;
            };
            let time = if is_recursion { 0 } else { node.total };
            edges
                .entry((thread.nodes[parent].function, node.function))
                .or_default()
                .add(node.calls, time);
        });
    }
    let mut names = Names::new(source, &paths);
    let command = source.view.trace().info().command.join(" ");
    writeln!(out, "# callgrind format\nversion: 1\ncreator: dioptra")?;
    if !command.is_empty() {
        writeln!(out, "cmd: {}", one_line(&command))?;
    }
    writeln!(
        out,
        "positions: line\nevent: self_time : self time (nanoseconds)\nevent: calls : calls\nevents: self_time calls"
    )?;
    let sums = own.values().fold(Sums::default(), |mut sums, own| {
        sums.add(own.calls, own.time);
        sums
    });
    writeln!(out, "summary: {} {}", sums.time, sums.calls)?;
    for (function, sums) in &own {
        writeln!(out)?;
        names.function(*function, "", out)?;
        let line = names.line(*function);
        writeln!(out, "{line} {} {}", sums.time, sums.calls)?;
        let first = (*function, PathFunction::Shown(0));
        let of_function = edges
            .range(first..)
            .take_while(|((from, _), _)| from == function);
        for ((_, to), sums) in of_function {
            names.function(*to, "c", out)?;
            // callgrind_annotate takes the time of 0 calls for the caller's own. Hidden calls, and calls whose beginning
            // is not known, are not counted.
            writeln!(out, "calls={} {}", sums.calls.max(1), names.line(*to))?;
            writeln!(out, "{line} {} 0", sums.time)?;
        }
    }
    paths.exported(written, NO_PLACE)
}

/// The names of modules, files and functions, each written once in full.
struct Names<'a, 't> {
    source: &'a TraceSource<'a, 't>,
    paths: &'a TracePaths,
    /// By function: its file and line.
    sources: HashMap<u32, (String, u32)>,
    /// The numbers of names by kind of name.
    known: HashSet<(&'static str, usize)>,
    files: HashMap<String, usize>,
    objects: HashMap<String, usize>,
}

impl<'a, 't> Names<'a, 't> {
    fn new(source: &'a TraceSource<'a, 't>, paths: &'a TracePaths) -> Self {
        let functions = paths.functions();
        let sources = source.names.sources(&functions);
        let found = functions.into_iter().zip(sources);
        Names {
            source,
            paths,
            sources: found
                .filter_map(|(function, place)| Some((function, place?)))
                .collect(),
            known: HashSet::new(),
            files: HashMap::new(),
            objects: HashMap::new(),
        }
    }

    /// Returns the line at which a function begins; 0 where it is not known.
    fn line(&self, function: PathFunction) -> u32 {
        match function {
            PathFunction::Shown(function) => {
                self.sources.get(&function).map_or(0, |(_, line)| *line)
            }
            PathFunction::NotShown => 0,
        }
    }

    /// Writes the module, the file and the name of a function; `role` is `c` for those of a called function.
    fn function(
        &mut self,
        function: PathFunction,
        role: &str,
        out: &mut dyn Write,
    ) -> Result<(), ExportError> {
        let (module, file, id) = match function {
            PathFunction::Shown(id) => {
                let trace = self.source.view.trace();
                let entry = trace.function(id);
                let is_code = entry.kind == FunctionKind::Function;
                let module = trace.module(entry.module).filter(|_| is_code);
                let file = self.sources.get(&id).map(|(file, _)| file.clone());
                (
                    module.map_or(String::new(), |module| module.path.clone()),
                    file.unwrap_or_else(|| UNKNOWN_FILE.to_owned()),
                    id as usize + 1,
                )
            }
            PathFunction::NotShown => (String::new(), UNKNOWN_FILE.to_owned(), 0),
        };
        let module = if module.is_empty() {
            UNKNOWN_FILE.to_owned()
        } else {
            module
        };
        let next = self.objects.len();
        let object = *self.objects.entry(module.clone()).or_insert(next);
        let next = self.files.len();
        let file_id = *self.files.entry(file.clone()).or_insert(next);
        let name = self.paths.name(function).to_owned();
        let file_key = if role.is_empty() { "fl" } else { "cfi" };
        self.one(&format!("{role}ob"), "ob", object, &module, out)?;
        self.one(file_key, "fl", file_id, &file, out)?;
        self.one(&format!("{role}fn"), "fn", id, &name, out)
    }

    fn one(
        &mut self,
        key: &str,
        kind: &'static str,
        id: usize,
        name: &str,
        out: &mut dyn Write,
    ) -> Result<(), ExportError> {
        let id = id + 1;
        match self.known.insert((kind, id)) {
            true => writeln!(out, "{key}=({id}) {}", one_line(name))?,
            false => writeln!(out, "{key}=({id})")?,
        }
        Ok(())
    }
}
