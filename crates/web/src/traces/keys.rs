//! Keys by which addresses name a trace's functions. A function that a profile has, too, has the same key there.

use crate::failure::Failure;
use crate::keys::stable_hash;
use dioptra_tracedata::{Trace, TracedModule};
use dioptra_tracelayout::FunctionKind;
use hashbrown::HashMap;

/// The keys of a trace's functions, by id, and the ids of each key.
pub(crate) struct FunctionKeys {
    keys: Vec<Box<str>>,
    ids: HashMap<Box<str>, Vec<u32>>,
}

/// Returns the key of a module, as profiles have it.
pub(crate) fn module_key(module: &TracedModule) -> String {
    match module.build_id.as_str() {
        "" => format!("p{:016x}", stable_hash(module.path.as_bytes())),
        build_id => format!("m{build_id}"),
    }
}

/// Returns the key of a function: its module and place. Library calls are named by their names, whatever module makes
/// them.
fn function_key(trace: &Trace, id: u32) -> String {
    let entry = trace.function(id);
    match entry.kind {
        FunctionKind::Function => match trace.module(entry.module) {
            Some(module) => format!("{}@{:x}", module_key(module), entry.place),
            None => format!("u@{:x}", entry.place),
        },
        FunctionKind::LibraryCall => {
            let name = trace.library_call_name(&entry).unwrap_or_default();
            format!("l~{:016x}", stable_hash(name))
        }
        FunctionKind::Address => format!("a{}@{:x}", entry.module, entry.place),
        FunctionKind::Event => format!("e{}~{}", entry.place, entry.size),
        FunctionKind::None => "u~0".to_owned(),
    }
}

impl FunctionKeys {
    pub(crate) fn of(trace: &Trace) -> FunctionKeys {
        let count = u32::try_from(trace.function_count()).unwrap_or(u32::MAX);
        let keys: Vec<Box<str>> = (0..count)
            .map(|id| function_key(trace, id).into())
            .collect();
        let mut ids: HashMap<Box<str>, Vec<u32>> = HashMap::new();
        for (key, id) in keys.iter().zip(0_u32..) {
            ids.entry(key.clone()).or_default().push(id);
        }
        FunctionKeys { keys, ids }
    }

    /// Returns the key of a function; damaged records name functions that there are not.
    pub(crate) fn key(&self, id: u32) -> String {
        let key = self.keys.get(id as usize);
        key.map_or_else(|| "u~0".to_owned(), |key| key.to_string())
    }

    /// Returns the ids of the functions with a key, rising; several for a function that several modules call.
    pub(crate) fn find(&self, key: &str) -> Result<&[u32], Failure> {
        let ids = self.ids.get(key);
        let ids = ids.ok_or_else(|| Failure::no_key("function", key))?;
        Ok(ids)
    }
}
