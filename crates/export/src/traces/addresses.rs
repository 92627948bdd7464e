//! Addresses of functions, for formats with one address space. A trace may have many processes, so they are made up.

use super::TraceSource;
use dioptra_tracelayout::FunctionKind;
use std::collections::BTreeMap;

/// The distance between the made-up addresses of two modules.
const MODULE_SPACE: u64 = 1 << 40;

/// The made-up places of modules.
pub(super) struct ModulePlaces {
    /// By module: the end of the highest function in its file.
    ends: BTreeMap<u32, u64>,
}

/// A module's made-up place in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ModulePlace {
    pub module: u32,
    pub start: u64,
    pub end: u64,
}

impl ModulePlace {
    fn of(module: u32, length: u64) -> ModulePlace {
        let start = (u64::from(module) + 1).saturating_mul(MODULE_SPACE);
        ModulePlace {
            module,
            start,
            end: start.saturating_add(length),
        }
    }
}

/// Returns the module and the offset in its file of a function that is code of a file.
fn offset(source: &TraceSource<'_, '_>, function: u32) -> Option<(u32, u64)> {
    let entry = source.view.trace().function(function);
    let is_code = entry.kind == FunctionKind::Function && entry.place < MODULE_SPACE;
    is_code.then_some((entry.module, entry.place))
}

impl ModulePlaces {
    /// Finds places for the modules of some functions.
    pub(super) fn of(source: &TraceSource<'_, '_>, functions: &[u32]) -> ModulePlaces {
        let mut ends: BTreeMap<u32, u64> = BTreeMap::new();
        for function in functions {
            if let Some((module, offset)) = offset(source, *function) {
                let size = source.view.trace().function(*function).size;
                let end = ends.entry(module).or_default();
                *end = (*end).max(offset + u64::from(size.max(1)));
            }
        }
        ModulePlaces { ends }
    }

    /// Returns all places.
    pub(super) fn all(&self) -> impl Iterator<Item = ModulePlace> {
        let ends = self.ends.iter();
        ends.map(|(module, end)| ModulePlace::of(*module, *end))
    }

    /// Returns the place of a function's module, and the function's address; `None` for functions that are no code of a
    /// file.
    pub(super) fn function(
        &self,
        source: &TraceSource<'_, '_>,
        function: u32,
    ) -> Option<(ModulePlace, u64)> {
        let (module, offset) = offset(source, function)?;
        let length = self.ends.get(&module).copied().unwrap_or(0);
        let place = ModulePlace::of(module, length);
        Some((place, place.start.saturating_add(offset)))
    }
}
