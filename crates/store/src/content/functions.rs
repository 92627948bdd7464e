//! The functions and modules of a profile with their ids.

use super::identities::{Identities, KnownFunction, KnownModule, ModuleOrigin};
use dioptra_export::{PathId, Paths, Source};
use dioptra_profile::{FunctionId, Module, ModuleId, StackId, Stacks};
use dioptra_symbols::ModuleKind;
use std::collections::HashMap;

/// The names and ids of a profile's functions and stacks; only those that were asked for have rows.
pub(super) struct Functions<'a> {
    source: &'a Source<'a>,
    paths: Paths,
    identities: Identities,
    modules: Vec<Option<KnownModule>>,
    functions: Vec<Option<KnownFunction>>,
    stacks: HashMap<PathId, String>,
}

impl<'a> Functions<'a> {
    pub(super) fn new(source: &'a Source<'a>) -> Functions<'a> {
        Functions {
            source,
            paths: Paths::of(source),
            identities: Identities::new(),
            modules: vec![None; source.profile.modules().len()],
            functions: vec![None; source.names.functions().len()],
            stacks: HashMap::new(),
        }
    }

    /// Returns the id of a stack, whose row is written once.
    pub(super) fn stack(&mut self, stack: StackId) -> String {
        let path = match stack {
            Stacks::ROOT => 0,
            stack => self.paths.of_stack(stack),
        };
        if let Some(id) = self.stacks.get(&path) {
            return id.clone();
        }
        let mut functions: Vec<FunctionId> = Vec::new();
        self.paths.functions(path, &mut functions);
        // Innermost first.
        functions.reverse();
        functions.iter().for_each(|function| self.know(*function));
        let known = functions
            .iter()
            .filter_map(|function| self.functions[*function as usize].as_ref());
        let known: Vec<&KnownFunction> = known.collect();
        let id = self.identities.stack(&known);
        self.stacks.insert(path, id.clone());
        id
    }

    /// Returns a module, whose row is written once.
    pub(super) fn module(&mut self, id: ModuleId) -> KnownModule {
        if let Some(known) = &self.modules[id as usize] {
            return known.clone();
        }
        let module = self.source.profile.modules().get(id);
        let origin = match is_made_at_run_time(module) {
            true => ModuleOrigin::RunTime,
            false => ModuleOrigin::Mapped {
                kind: kind_word(module.kind),
                path: &module.path,
                build_id: module.build_id.as_deref(),
                label: &module.label,
            },
        };
        let known = self.identities.module(origin);
        self.modules[id as usize] = Some(known.clone());
        known
    }

    /// Returns whether a module has a row.
    pub(super) fn has_module(&self, id: ModuleId) -> bool {
        self.modules[id as usize].is_some()
    }

    pub(super) fn into_identities(self) -> Identities {
        self.identities
    }

    /// Gives a function its id and its row, unless it has them.
    fn know(&mut self, function: FunctionId) {
        let place = function as usize;
        if self.functions[place].is_some() {
            return;
        }
        let name = &self.source.names.functions()[place];
        let module = self.module(name.module);
        let known = self
            .identities
            .function(&module, &name.name, name.file.as_deref());
        self.functions[place] = Some(known);
    }
}

/// Returns the word for a kind of module.
pub(super) fn kind_word(kind: ModuleKind) -> &'static str {
    match kind {
        ModuleKind::File => "file",
        ModuleKind::Kernel => "kernel",
        ModuleKind::Vdso => "vdso",
        _ => "memory",
    }
}

/// Returns whether the module is code that a compiler made at run time, whose path holds the process's number.
fn is_made_at_run_time(module: &Module) -> bool {
    module.kind == ModuleKind::NotAFile
        && module.path.starts_with(b"/tmp/perf-")
        && module.path.ends_with(b".map")
}
