//! The values of selection parameters that select a table's rows.

use crate::api::RowKeys;
use crate::keys::Keys;
use crate::loaded::Named;
use crate::selected::Selected;
use crate::tables::KeyedTable;
use dioptra_profile::{Dimension, Profile};
use dioptra_report::RowKey;
use dioptra_tables::Cell;

/// Where the keys of a table's rows come from.
#[derive(Clone, Copy)]
pub(crate) struct KeySource<'a> {
    pub keys: &'a Keys,
    pub profile: &'a Profile,
    pub named: &'a Named,
}

/// The values of selection parameters of a row and those above it.
pub(crate) fn row_keys(selected: &Selected, keyed: &KeyedTable, row: u32) -> RowKeys {
    if let Some(made) = &keyed.made {
        return made.get(row as usize).cloned().unwrap_or_default();
    }
    let source = KeySource {
        keys: &selected.loaded.keys,
        profile: &selected.profile,
        named: keyed.named.as_deref().unwrap_or_else(|| selected.named()),
    };
    let mut found = RowKeys::default();
    let mut at = Some(row);
    while let Some(id) = at {
        // Keys of another profile select nothing of this one.
        if let Some(key) = keyed.keys.get(id as usize).filter(|key| key.input == 0)
            && let Some(dimension) = keyed.by.get(usize::from(key.level))
        {
            match dimension {
                Dimension::Time => found.time = time_of(keyed, id),
                Dimension::Block => {
                    let blocks = keyed.blocks.as_deref();
                    if let Some(block) = blocks.and_then(|blocks| blocks.place(key.key)) {
                        let function = RowKey {
                            key: block.function,
                            ..*key
                        };
                        source.add(Dimension::Function, function, &mut found);
                    }
                }
                other => source.add(*other, *key, &mut found),
            }
        }
        at = keyed.table.row(id).parent();
    }
    found
}

impl KeySource<'_> {
    /// Adds the keys of one thing, where there are none of its kind.
    pub(crate) fn add(self, dimension: Dimension, row: RowKey, found: &mut RowKeys) {
        let KeySource {
            keys,
            profile,
            named,
        } = self;
        let tasks = profile.tasks();
        let put = |slot: &mut Option<String>, key: String| {
            slot.get_or_insert(key);
        };
        let module = |function: u32| {
            let function = named.names.functions().get(function as usize);
            function.map(|function| keys.module(function.module))
        };
        match dimension {
            Dimension::Program if (row.key as usize) < tasks.programs().len() => {
                put(&mut found.program, keys.program(row.key));
            }
            Dimension::Process if (row.key as usize) < tasks.processes().len() => {
                put(&mut found.process, keys.process(row.key));
            }
            Dimension::Thread => {
                if let Some(thread) = tasks.threads().get(row.key as usize) {
                    put(&mut found.thread, keys.thread(row.key));
                    put(&mut found.process, keys.process(thread.process));
                }
            }
            Dimension::Comm => {
                if let Some(comm) = tasks.comms().get(row.key as usize) {
                    put(&mut found.comm, comm.clone());
                }
            }
            Dimension::Cpu if row.key != u32::MAX => put(&mut found.cpu, row.key.to_string()),
            Dimension::Module => put(&mut found.module, keys.module(row.key)),
            Dimension::Function => {
                put(&mut found.function, named.function_key(keys, row.key));
                found.module = found.module.take().or_else(|| module(row.key));
            }
            Dimension::Line => {
                let line = named.names.lines().get(row.key as usize);
                let module = line.map(|line| keys.module(line.module));
                found.module = found.module.take().or(module);
            }
            Dimension::Address if (row.key as usize) < profile.frames().len() => {
                let function = named.names.of_frame(row.key);
                put(&mut found.function, named.function_key(keys, function));
                let module = profile.frames().get(row.key).module;
                put(&mut found.module, keys.module(module));
            }
            _ => {}
        }
    }
}

/// The slice of time of a row.
fn time_of(keyed: &KeyedTable, row: u32) -> Option<(u64, u64)> {
    let cell = |id: &str| match keyed.table.row(row).cell(keyed.table.column_index(id)?) {
        Cell::Count(time) => Some(time),
        _ => None,
    };
    Some((cell("start")?, cell("end")?))
}
