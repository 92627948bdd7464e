//! The modules, functions and stacks of a profile or a trace: an id and a row for each.

use crate::columns::{Rows, Value};
use crate::ids::{Hasher, hexadecimal};
use crate::schema::Table;
use std::collections::HashSet;

/// The name of all code that was made at run time. The process's number would make another module of each run.
const RUN_TIME: &str = "[JIT]";

/// The source of a module's id.
#[derive(Clone, Copy, Debug)]
pub(super) enum ModuleOrigin<'a> {
    /// A file, the kernel, the vdso or memory without a file.
    Mapped {
        kind: &'static str,
        path: &'a [u8],
        build_id: Option<&'a [u8]>,
        label: &'a str,
    },
    /// Code that was made at run time.
    RunTime,
    /// No module, but a group of functions that a trace knows by name only.
    Group { kind: &'static str, name: &'a str },
}

/// A module that has its id.
#[derive(Clone, Debug)]
pub(super) struct KnownModule {
    pub id: String,
    pub name: String,
}

/// A function that has its id.
#[derive(Clone, Debug)]
pub(super) struct KnownFunction {
    pub id: String,
    pub name: String,
    pub module: String,
}

/// Gives modules, functions and stacks their ids, and writes the row of each once.
pub(super) struct Identities {
    written: HashSet<String>,
    modules: Rows,
    functions: Rows,
    stacks: Rows,
}

impl Identities {
    pub(super) fn new() -> Identities {
        Identities {
            written: HashSet::new(),
            modules: Rows::new(Table::Modules),
            functions: Rows::new(Table::Functions),
            stacks: Rows::new(Table::Stacks),
        }
    }

    pub(super) fn module(&mut self, origin: ModuleOrigin<'_>) -> KnownModule {
        let mut hash = Hasher::new("module");
        let mut path = None;
        let mut build_id_text = None;
        let (kind, name) = match origin {
            ModuleOrigin::RunTime => {
                hash.text("run time");
                ("run time", RUN_TIME)
            }
            ModuleOrigin::Group { kind, name } => {
                hash.text("group");
                hash.text(name);
                (kind, name)
            }
            ModuleOrigin::Mapped {
                kind,
                path: own_path,
                build_id,
                label,
            } => {
                build_id_text = build_id.map(hexadecimal);
                match &build_id_text {
                    Some(build_id) => {
                        hash.text("build id");
                        hash.text(build_id);
                        // The kernel and its modules may share a build id where only the kernel's is recorded.
                        hash.text(label);
                    }
                    None => {
                        hash.text("path");
                        hash.bytes(own_path);
                    }
                }
                let own_path = String::from_utf8_lossy(own_path).into_owned();
                path = Some(own_path).filter(|path| !path.is_empty());
                (kind, label)
            }
        };
        let known = KnownModule {
            id: hash.short_id(),
            name: name.to_owned(),
        };
        if self.written.insert(known.id.clone()) {
            self.modules.push(&[
                Value::Text(&known.id),
                Value::Text(name),
                Value::OptionalText(path.as_deref()),
                Value::OptionalText(build_id_text.as_deref()),
                Value::Text(kind),
            ]);
        }
        known
    }

    pub(super) fn function(
        &mut self,
        module: &KnownModule,
        name: &str,
        file: Option<&str>,
    ) -> KnownFunction {
        let mut hash = Hasher::new("function");
        hash.text(&module.id);
        hash.text(name);
        hash.optional(file);
        let id = hash.short_id();
        // Where a function was inlined and where it was not, it is the same function.
        if self.written.insert(id.clone()) {
            self.functions.push(&[
                Value::Text(&id),
                Value::Text(name),
                Value::OptionalText(file),
                Value::Text(&module.id),
                Value::Text(&module.name),
            ]);
        }
        KnownFunction {
            id,
            name: name.to_owned(),
            module: module.name.clone(),
        }
    }

    /// Returns the id of the stack of these functions, innermost first.
    pub(super) fn stack(&mut self, functions: &[&KnownFunction]) -> String {
        let ids: Vec<&str> = functions.iter().map(|function| &*function.id).collect();
        let mut hash = Hasher::new("stack");
        ids.iter().for_each(|id| hash.text(id));
        let id = hash.short_id();
        // Paths that differ only in whether a function was inlined are one stack.
        if !self.written.insert(id.clone()) {
            return id;
        }
        let names: Vec<&str> = functions.iter().map(|function| &*function.name).collect();
        let innermost = functions.first();
        self.stacks.push(&[
            Value::Text(&id),
            Value::Integer(i64::try_from(functions.len()).unwrap_or(i64::MAX)),
            Value::OptionalText(ids.first().copied()),
            Value::OptionalText(names.first().copied()),
            Value::OptionalText(innermost.map(|function| &*function.module)),
            Value::Texts(&ids),
            Value::Texts(&names),
        ]);
        id
    }

    /// Returns the rows of modules, functions and stacks.
    pub(super) fn into_rows(self) -> [Rows; 3] {
        [self.modules, self.functions, self.stacks]
    }
}
