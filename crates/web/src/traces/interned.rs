//! Functions, modules and threads as answers have them, each once.

use super::keys::module_key;
use super::loaded::OpenTrace;
use crate::api::{FlameFunction, FlameModule};
use crate::keys::stable_hash;
use crate::texts;
use dioptra_tracelayout::FunctionKind;
use hashbrown::HashMap;

/// Functions and modules of an answer.
pub(crate) struct Interned<'o, 't> {
    open: &'o OpenTrace<'t>,
    pub functions: Vec<FlameFunction>,
    pub modules: Vec<FlameModule>,
    function_ids: HashMap<u32, u32>,
    module_ids: HashMap<String, u32>,
}

impl<'o, 't> Interned<'o, 't> {
    pub(crate) fn new(open: &'o OpenTrace<'t>) -> Self {
        Interned {
            open,
            functions: Vec::new(),
            modules: Vec::new(),
            function_ids: HashMap::new(),
            module_ids: HashMap::new(),
        }
    }

    /// Returns the index of a function.
    pub(crate) fn function(&mut self, id: u32) -> u32 {
        if let Some(known) = self.function_ids.get(&id) {
            return *known;
        }
        let (key, name) = module(self.open, id);
        let modules = &mut self.modules;
        let module = *self.module_ids.entry(key).or_insert_with_key(|key| {
            modules.push(FlameModule {
                key: key.clone(),
                name: texts::name(&name),
            });
            // No more modules than functions.
            modules.len() as u32 - 1
        });
        self.functions.push(function(self.open, id, module));
        let index = self.functions.len() as u32 - 1;
        self.function_ids.insert(id, index);
        index
    }
}

/// Returns a function as answers have it.
pub(crate) fn function(open: &OpenTrace<'_>, id: u32, module: u32) -> FlameFunction {
    FlameFunction {
        key: open.keys().key(id),
        name: texts::name(open.names.get(id)),
        module,
        inlined: false,
    }
}

/// Returns the key and the name of a function's module. Library calls belong to the module that has the function, as far as
/// it is known.
fn module(open: &OpenTrace<'_>, id: u32) -> (String, String) {
    let entry = open.trace.function(id);
    let of_name = |name: &str| {
        (
            format!("p{:016x}", stable_hash(name.as_bytes())),
            name.to_owned(),
        )
    };
    match entry.kind {
        FunctionKind::Function => match open.trace.module(entry.module) {
            Some(module) => (module_key(module), open.names.module(id).to_owned()),
            None => of_name("[unknown]"),
        },
        FunctionKind::LibraryCall => of_name(open.names.library(id).unwrap_or("[library call]")),
        // The page draws the kernel's things in grey.
        FunctionKind::Event => of_name("[kernel]"),
        FunctionKind::Address | FunctionKind::None => of_name("[unknown]"),
    }
}

/// Returns the name of a function's module.
pub(crate) fn module_name(open: &OpenTrace<'_>, id: u32) -> String {
    module(open, id).1
}
