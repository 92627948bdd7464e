//! The functions and modules of a profile with their ids.

use crate::columns::{Rows, Value};
use crate::ids::{Hasher, hexadecimal};
use crate::schema::Table;
use dioptra_profile::{FunctionId, Module, ModuleId, Names, Profile};
use dioptra_symbols::ModuleKind;
use std::collections::HashSet;

/// The name of all code that was made at run time. The process's number would make another module of each run.
const RUN_TIME: &str = "[JIT]";

/// The names and ids of a profile's functions; only those that were asked for have rows.
pub(super) struct Functions<'a> {
    profile: &'a Profile,
    names: &'a Names,
    modules: Vec<Option<KnownModule>>,
    functions: Vec<Option<String>>,
    written: HashSet<String>,
    function_rows: Rows,
    module_rows: Rows,
}

struct KnownModule {
    id: String,
    name: String,
}

impl<'a> Functions<'a> {
    pub(super) fn new(profile: &'a Profile, names: &'a Names) -> Functions<'a> {
        Functions {
            profile,
            names,
            modules: (0..profile.modules().len()).map(|_| None).collect(),
            functions: vec![None; names.functions().len()],
            written: HashSet::new(),
            function_rows: Rows::new(Table::Functions),
            module_rows: Rows::new(Table::Modules),
        }
    }

    /// Gives a function its id and its row, unless it has them.
    pub(super) fn know(&mut self, function: FunctionId) {
        let place = function as usize;
        if self.functions[place].is_some() {
            return;
        }
        let name = &self.names.functions()[place];
        self.know_module(name.module);
        let Some(module) = &self.modules[name.module as usize] else {
            return;
        };
        let file = name.file.as_deref();
        let mut hash = Hasher::new("function");
        hash.text(&module.id);
        hash.text(&name.name);
        hash.optional(file);
        let id = hash.short_id();
        // Where a function was inlined and where it was not, it is the same function.
        if self.written.insert(id.clone()) {
            self.function_rows.push(&[
                Value::Text(&id),
                Value::Text(&name.name),
                Value::OptionalText(file),
                Value::Text(&module.id),
                Value::Text(&module.name),
            ]);
        }
        self.functions[place] = Some(id);
    }

    /// Returns the id of a known function.
    pub(super) fn id(&self, function: FunctionId) -> &str {
        self.functions[function as usize].as_deref().unwrap_or("")
    }

    /// Returns the name of a function.
    pub(super) fn name(&self, function: FunctionId) -> &str {
        &self.names.functions()[function as usize].name
    }

    /// Returns the name of the module of a known function.
    pub(super) fn module(&self, function: FunctionId) -> &str {
        let module = self.names.functions()[function as usize].module;
        self.modules[module as usize]
            .as_ref()
            .map_or("", |module| &module.name)
    }

    /// Returns the rows of the modules and functions that are known.
    pub(super) fn into_rows(self) -> (Rows, Rows) {
        (self.module_rows, self.function_rows)
    }

    fn know_module(&mut self, id: ModuleId) {
        if self.modules[id as usize].is_some() {
            return;
        }
        let module = self.profile.modules().get(id);
        let made_at_run_time = is_made_at_run_time(module);
        let path = String::from_utf8_lossy(&module.path).into_owned();
        let build_id = module.build_id.as_deref().map(hexadecimal);
        let mut hash = Hasher::new("module");
        match &build_id {
            _ if made_at_run_time => hash.text("run time"),
            Some(build_id) => {
                hash.text("build id");
                hash.text(build_id);
                // The kernel and its modules may share a build id where only the kernel's is recorded.
                hash.text(&module.label);
            }
            None => {
                hash.text("path");
                hash.bytes(&module.path);
            }
        }
        let known = KnownModule {
            id: hash.short_id(),
            name: match made_at_run_time {
                true => RUN_TIME.to_owned(),
                false => module.label.clone(),
            },
        };
        let path = (!made_at_run_time && !path.is_empty()).then_some(path);
        if self.written.insert(known.id.clone()) {
            self.module_rows.push(&[
                Value::Text(&known.id),
                Value::Text(&known.name),
                Value::OptionalText(path.as_deref()),
                Value::OptionalText(build_id.as_deref()),
                Value::Text(match module.kind {
                    _ if made_at_run_time => "run time",
                    ModuleKind::File => "file",
                    ModuleKind::Kernel => "kernel",
                    ModuleKind::Vdso => "vdso",
                    _ => "memory",
                }),
            ]);
        }
        self.modules[id as usize] = Some(known);
    }
}

/// Returns whether the module is code that a compiler made at run time, whose path holds the process's number.
fn is_made_at_run_time(module: &Module) -> bool {
    module.kind == ModuleKind::NotAFile
        && module.path.starts_with(b"/tmp/perf-")
        && module.path.ends_with(b".map")
}
