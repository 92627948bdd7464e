//! The locations of rows with the same names: a module's path or build id, a function's file or address.

use crate::Input;
use dioptra_profile::{Dimension, FunctionId, Module, ModuleId};
use std::collections::{HashMap, HashSet};

/// The number of a build id's bytes that people are shown to tell two builds apart.
const SHORT_BUILD_ID: usize = 6;

/// The locations of rows whose names other rows have too.
#[derive(Clone, Debug, Default)]
pub(crate) struct Locations {
    /// The locations of modules, by profile.
    modules: HashMap<(usize, ModuleId), String>,
    /// The locations of functions, by profile.
    functions: HashMap<(usize, FunctionId), String>,
}

/// The rows of a table, whose names may collide.
pub(crate) struct NamedRows<'a> {
    inputs: &'a [Input<'a>],
    /// Returns the number of a profile's module; modules of other profiles that are the same have the same number.
    number_of: &'a dyn Fn(usize, ModuleId) -> usize,
    modules: HashSet<(usize, ModuleId)>,
    functions: HashSet<(usize, FunctionId)>,
}

impl<'a> NamedRows<'a> {
    /// Makes an empty set of rows for these profiles; `number_of` returns the number of a profile's module.
    pub(crate) fn new(
        inputs: &'a [Input<'a>],
        number_of: &'a dyn Fn(usize, ModuleId) -> usize,
    ) -> Self {
        NamedRows {
            inputs,
            number_of,
            modules: HashSet::new(),
            functions: HashSet::new(),
        }
    }

    /// Adds the row of a dimension with this key.
    pub(crate) fn add(&mut self, input: usize, dimension: Dimension, key: u32) {
        let Input {
            profile,
            names,
            blocks,
            ..
        } = self.inputs[input];
        let index = key as usize;
        let module = match dimension {
            Dimension::Module => Some(key),
            Dimension::Function => {
                self.functions.insert((input, key));
                names.functions().get(index).map(|known| known.module)
            }
            Dimension::Block => blocks
                .and_then(|blocks| blocks.get(key))
                .map(|block| block.module),
            Dimension::Address => Some(profile.frames().get(key).module),
            Dimension::Line | Dimension::OutermostLine => {
                names.lines().get(index).map(|line| line.module)
            }
            _ => None,
        };
        self.modules.extend(module.map(|module| (input, module)));
    }

    /// Finds the locations of rows with the same names.
    pub(crate) fn locations(&self) -> Locations {
        Locations {
            modules: self.modules(),
            functions: self.functions(),
        }
    }

    /// Returns the locations of modules that share a name: their paths, with their build ids where paths are the same
    /// too.
    fn modules(&self) -> HashMap<(usize, ModuleId), String> {
        let mut locations = HashMap::new();
        let module = |row: &(usize, ModuleId)| self.inputs[row.0].profile.modules().get(row.1);
        let number = |row: &(usize, ModuleId)| (self.number_of)(row.0, row.1);
        let mut by_label: HashMap<&str, Vec<(usize, ModuleId)>> = HashMap::new();
        for row in &self.modules {
            by_label.entry(&module(row).label).or_default().push(*row);
        }
        for rows in by_label.into_values() {
            if rows.iter().all(|row| number(row) == number(&rows[0])) {
                continue;
            }
            for row in &rows {
                let own = module(row);
                let same_path = |other: &(usize, ModuleId)| {
                    number(other) != number(row) && module(other).path == own.path
                };
                let path = String::from_utf8_lossy(&own.path).into_owned();
                let location = match (&own.build_id, rows.iter().any(same_path)) {
                    (Some(build_id), true) => {
                        let short = &build_id[..build_id.len().min(SHORT_BUILD_ID)];
                        format!("{path} {}", hexadecimal(short))
                    }
                    _ => path,
                };
                locations.insert(*row, location);
            }
        }
        locations
    }

    /// Returns the locations of functions that share a name and a module: their files, or at least their addresses.
    fn functions(&self) -> HashMap<(usize, FunctionId), String> {
        let mut locations = HashMap::new();
        let mut by_name: HashMap<_, Vec<(usize, FunctionId)>> = HashMap::new();
        for row in &self.functions {
            let Some(function) = self.inputs[row.0].names.functions().get(row.1 as usize) else {
                continue;
            };
            let module = (self.number_of)(row.0, function.module);
            let name = (module, function.is_inlined, &*function.name);
            by_name.entry(name).or_default().push(*row);
        }
        let function =
            |row: &(usize, FunctionId)| &self.inputs[row.0].names.functions()[row.1 as usize];
        for rows in by_name.into_values().filter(|rows| rows.len() > 1) {
            for row in &rows {
                let own = function(row);
                let same_file =
                    |other: &(usize, FunctionId)| other != row && function(other).file == own.file;
                let location = match (&own.file, own.start) {
                    (Some(file), _) if !rows.iter().any(same_file) => file.to_string(),
                    (Some(file), Some(start)) => format!("{file} {start:#x}"),
                    (None, Some(start)) => format!("{start:#x}"),
                    (_, None) => continue,
                };
                locations.insert(*row, location);
            }
        }
        locations
    }
}

impl Locations {
    /// Returns whether no row needs a location.
    pub(crate) fn is_empty(&self) -> bool {
        self.modules.is_empty() && self.functions.is_empty()
    }

    /// Returns the location of a module's row.
    pub(crate) fn module(&self, input: usize, module: ModuleId) -> Option<&str> {
        self.modules.get(&(input, module)).map(String::as_str)
    }

    /// Returns the location of a function's row, else its module's.
    pub(crate) fn function(
        &self,
        input: usize,
        function: FunctionId,
        module: ModuleId,
    ) -> Option<&str> {
        let own = self.functions.get(&(input, function));
        own.map(String::as_str).or(self.module(input, module))
    }
}

/// Formats bytes as hexadecimal digits.
fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a key of a module that no other module has: its build id, else its path.
pub(crate) fn id_of(module: &Module) -> String {
    match &module.build_id {
        Some(build_id) if !build_id.is_empty() => hexadecimal(build_id),
        _ => String::from_utf8_lossy(&module.path).into_owned(),
    }
}
