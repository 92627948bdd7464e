//! The matching of rows of several profiles.

use super::functions::{MatchNotes, SameFunctions};
use crate::Input;
use dioptra_profile::{Dimension, FunctionId, Module, ModuleId};
use std::collections::HashMap;

/// The rule by which modules and tasks of two profiles are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Match {
    /// Equal ones: modules of one build id, else of one path; processes and threads of the same numbers and name.
    Equal,
    /// Versions of each other too: modules of one path or one name although their build ids differ; processes and
    /// threads of one name.
    Versions,
}

/// The key of a row below its parent, which is equal in all profiles.
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct RowKey {
    module: usize,
    numbers: (u64, u64),
    text: String,
}

/// The number that stands for no module at all.
const NONE: usize = usize::MAX;

/// The modules of all profiles, matched.
pub(crate) struct Same<'a> {
    inputs: &'a [Input<'a>],
    matching: Match,
    /// For each profile and module, its number among the modules of all profiles.
    modules: Vec<Vec<usize>>,
    functions: SameFunctions<'a>,
}

impl<'a> Same<'a> {
    /// Matches the modules of `inputs` and, where `levels` need them, their functions.
    pub(crate) fn new(inputs: &'a [Input<'a>], matching: Match, levels: &[Dimension]) -> Self {
        let modules = match_modules(inputs, matching);
        let of_functions = [Dimension::Function, Dimension::Block];
        let functions = match levels.iter().any(|level| of_functions.contains(level)) {
            true => SameFunctions::new(inputs, &modules, matching),
            false => SameFunctions::default(),
        };
        Same {
            inputs,
            matching,
            modules,
            functions,
        }
    }

    /// Returns notes on the matching of the functions for which `has_row` holds.
    pub(crate) fn notes(&self, has_row: impl Fn(usize, FunctionId) -> bool) -> MatchNotes {
        self.functions.notes(self.inputs, has_row)
    }

    /// Returns the number of each module, by profile.
    pub(crate) fn into_modules(self) -> Vec<Vec<usize>> {
        self.modules
    }

    fn module(&self, input: usize, id: ModuleId) -> usize {
        let known = self.modules[input].get(id as usize);
        known.copied().unwrap_or(NONE)
    }

    /// Returns the key of a row of a profile.
    pub(crate) fn key(&self, input: usize, dimension: Dimension, key: u32) -> RowKey {
        let Input {
            profile,
            names,
            blocks,
            shapes,
            ..
        } = self.inputs[input];
        let tasks = profile.tasks();
        let index = key as usize;
        let by_number = self.matching == Match::Equal;
        let mut row = RowKey {
            module: NONE,
            numbers: (0, 0),
            text: String::new(),
        };
        match dimension {
            Dimension::Function => {
                if let Some(function) = names.functions().get(index) {
                    row.module = self.module(input, function.module);
                    row.numbers.0 = function.is_inlined.into();
                    match shapes.and_then(|shapes| shapes.of(key)) {
                        Some(shape) => row.numbers.1 = shape,
                        None => {
                            row.numbers.1 = self.functions.of(input, key).into();
                            row.text.clone_from(&function.name);
                        }
                    }
                }
            }
            Dimension::Module => row.module = self.module(input, key),
            Dimension::Program => {
                if let Some(program) = tasks.programs().get(index) {
                    match program.executable {
                        Some(module) => row.module = self.module(input, module),
                        None => row.text.clone_from(&program.name),
                    }
                }
            }
            Dimension::Process => {
                let process = tasks.processes().get(index).filter(|_| by_number);
                row.numbers.0 = process.map_or(0, |process| process.pid.into());
                row.text = tasks.process_name(key);
            }
            Dimension::Thread => {
                if let Some(thread) = tasks.threads().get(index).filter(|_| by_number) {
                    let process = tasks.processes().get(thread.process as usize);
                    let pid = process.map_or(0, |process| process.pid.into());
                    row.numbers = (pid, thread.tid.into());
                }
                row.text = tasks.thread_name(key);
            }
            Dimension::Comm => {
                if let Some(comm) = tasks.comms().get(index) {
                    row.text.clone_from(comm);
                }
            }
            Dimension::Block => {
                if let Some(block) = blocks.and_then(|blocks| blocks.get(key)) {
                    row.module = self.module(input, block.module);
                    match &block.addresses {
                        Some(range) => row.numbers = (range.start, range.end),
                        None => {
                            let function = names.functions().get(block.function as usize);
                            row.text = function.map_or(String::new(), |known| known.name.clone());
                            // No block begins and ends at one address, so this key is no block's.
                            let number = self.functions.of(input, block.function).into();
                            row.numbers = (number, number);
                        }
                    }
                }
            }
            Dimension::Address => {
                let frame = profile.frames().get(key);
                row.module = self.module(input, frame.module);
                row.numbers.0 = frame.address;
            }
            Dimension::Line | Dimension::OutermostLine => {
                if let Some(line) = names.lines().get(index) {
                    row.module = self.module(input, line.module);
                    row.numbers.0 = line.line.map_or(0, |line| u64::from(line) + 1);
                    row.text = line.file.as_deref().unwrap_or_default().to_owned();
                }
            }
            // CPUs, sockets and slices of time are matched by their numbers.
            _ => row.numbers.0 = key.into(),
        }
        row
    }
}

/// A module of one or several of the profiles.
#[derive(Default)]
struct Matched<'a> {
    build_ids: Vec<&'a [u8]>,
    paths: Vec<&'a [u8]>,
    /// The name in tables; code made at run time is named without its process's number.
    name: &'a str,
    /// The index of the last profile that has it.
    last: Option<usize>,
}

fn name(module: &Module) -> &str {
    match module.label.strip_prefix("[JIT]") {
        Some(_) => "[JIT]",
        None => &module.label,
    }
}

/// Returns for each profile and module its number among the modules of all profiles. Modules match by their build id;
/// else by their path, unless both have build ids, which then differ. Versions also match by path in spite of that,
/// and last by name where only one module of each profile has it.
fn match_modules(inputs: &[Input<'_>], matching: Match) -> Vec<Vec<usize>> {
    let mut all: Vec<Matched<'_>> = Vec::new();
    let mut by_build_id: HashMap<&[u8], usize> = HashMap::new();
    let mut by_path: HashMap<&[u8], Vec<usize>> = HashMap::new();
    let mut by_name: HashMap<&str, Vec<usize>> = HashMap::new();
    let mut result = Vec::new();
    for (place, input) in inputs.iter().enumerate() {
        let modules = input.profile.modules();
        let mut own: Vec<usize> = vec![NONE; modules.len()];
        let mut namesakes: HashMap<&str, usize> = HashMap::new();
        modules
            .iter()
            .for_each(|module| *namesakes.entry(name(module)).or_default() += 1);
        let versions = matching == Match::Versions;
        for pass in 0..4 {
            for (id, module) in modules.iter().enumerate() {
                if own[id] != NONE {
                    continue;
                }
                let build_id = module.build_id.as_deref();
                let of_path = || by_path.get(&*module.path).into_iter().flatten().copied();
                let free = |index: &usize| all[*index].last != Some(place);
                let found = match pass {
                    0 => build_id.and_then(|id| by_build_id.get(id).copied()),
                    1 => {
                        // One module has no build id, or neither has.
                        let fits =
                            |index: &usize| build_id.is_none() || all[*index].build_ids.is_empty();
                        let mut fitting = of_path().filter(fits);
                        fitting.next().filter(|_| fitting.next().is_none())
                    }
                    2 if versions => of_path().find(free),
                    3 if versions && namesakes[name(module)] == 1 => {
                        let known = by_name.get(name(module)).into_iter().flatten().copied();
                        let mut fitting = known.filter(free);
                        fitting.next().filter(|_| fitting.next().is_none())
                    }
                    _ => None,
                };
                if let Some(index) = found {
                    own[id] = index;
                    let matched = &mut all[index];
                    matched.last = Some(place);
                    matched.build_ids.extend(build_id);
                    matched.paths.push(&module.path);
                }
            }
        }
        // All other modules are new. Within one profile modules are different unless their build ids are the same.
        for (id, module) in modules.iter().enumerate() {
            if own[id] != NONE {
                continue;
            }
            let build_id = module.build_id.as_deref();
            let known = build_id.and_then(|id| by_build_id.get(id).copied());
            let index = known.unwrap_or_else(|| {
                all.push(Matched {
                    name: name(module),
                    ..Matched::default()
                });
                all.len() - 1
            });
            own[id] = index;
            all[index].last = Some(place);
            all[index].build_ids.extend(build_id);
            all[index].paths.push(&module.path);
            if let Some(build_id) = build_id {
                by_build_id.insert(build_id, index);
            }
        }
        for index in &own {
            let matched = &all[*index];
            for build_id in &matched.build_ids {
                by_build_id.insert(build_id, *index);
            }
            for path in &matched.paths {
                let of_path = by_path.entry(path).or_default();
                if !of_path.contains(index) {
                    of_path.push(*index);
                }
            }
            let of_name = by_name.entry(matched.name).or_default();
            if !of_name.contains(index) {
                of_name.push(*index);
            }
        }
        result.push(own);
    }
    result
}

/// Returns the functions of the second input that [`crate::diff()`] compares with a function of the first one: those of
/// the same name in the same module, told apart by their addresses or source files where several have the name.
pub fn same_functions_of(inputs: &[Input<'_>; 2], function: FunctionId) -> Vec<FunctionId> {
    let same = Same::new(inputs, Match::Versions, &[Dimension::Function]);
    let wanted = same.key(0, Dimension::Function, function);
    let Some(known) = inputs[0].names.functions().get(function as usize) else {
        return Vec::new();
    };
    let others = inputs[1].names.functions().iter().zip(0_u32..);
    others
        .filter(|(other, _)| inputs[1].shapes.is_some() || other.name == known.name)
        .map(|(_, id)| id)
        .filter(|id| same.key(1, Dimension::Function, *id) == wanted)
        .collect()
}
