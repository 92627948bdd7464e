//! Names of functions for tools that show no module beside them.

use crate::source::Source;
use dioptra_profile::{FunctionId, UNKNOWN};

/// The names of functions, each made once.
pub(crate) struct Labels {
    names: Vec<Option<String>>,
}

impl Labels {
    pub(crate) fn new(source: &Source<'_>) -> Labels {
        Labels {
            names: vec![None; source.names.functions().len()],
        }
    }

    /// Returns a function's name. A location without a name is called after its module, as perf's scripts do it:
    /// `[libc.so.6]`; a function of which only the start is known is `[libc.so.6]+0x1234`.
    pub(crate) fn of(&mut self, source: &Source<'_>, function: FunctionId) -> &str {
        let name = &mut self.names[function as usize];
        name.get_or_insert_with(|| label(source, function))
    }
}

fn label(source: &Source<'_>, function: FunctionId) -> String {
    let function = &source.names.functions()[function as usize];
    if !function.is_nameless() {
        return function.name.clone();
    }
    let module = &source.profile.modules().get(function.module).label;
    let module = match module.starts_with('[') {
        true => module.clone(),
        false => format!("[{module}]"),
    };
    match function.start {
        Some(start) => format!("{module}+{start:#x}"),
        // A range of addresses may follow the word.
        None => match function.name.strip_prefix(UNKNOWN) {
            Some(range) => format!("{module}{range}"),
            None => module,
        },
    }
}
