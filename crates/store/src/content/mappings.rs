//! The rows of mappings: where the modules of samples lay in the memory of processes.

use super::functions::Functions;
use crate::columns::{Rows, Value};
use crate::schema::Table;
use dioptra_export::Source;
use dioptra_profile::ModuleId;
use std::collections::BTreeSet;

/// Writes a row for each mapping of a module with samples in a process with samples.
pub(super) fn write(source: &Source<'_>, functions: &mut Functions<'_>) -> Rows {
    let mut rows = Rows::new(Table::Mappings);
    let profile = source.profile;
    let tasks = profile.tasks();
    let first = profile.first_time().unwrap_or(0);
    let elapsed = |time: u64| {
        let since = i128::from(time) - i128::from(first);
        i64::try_from(since).unwrap_or(i64::MAX)
    };
    let sampled: BTreeSet<u32> = profile
        .sample_keys()
        .iter()
        .filter_map(|key| tasks.threads().get(key.thread? as usize))
        .map(|thread| thread.process)
        .collect();
    for process in sampled {
        let Some(known) = tasks.processes().get(process as usize) else {
            continue;
        };
        let name = tasks.process_name(process);
        for span in profile.mappings(process) {
            let module: ModuleId = span.module;
            // Other modules of the process have no samples in the profile.
            if !functions.has_module(module) {
                continue;
            }
            let module = functions.module(module);
            rows.push(&[
                Value::Integer(i64::from(known.pid)),
                Value::Text(&name),
                Value::Text(&module.id),
                Value::Text(&module.name),
                Value::Integer(span.start.cast_signed()),
                Value::Integer(span.end.cast_signed()),
                Value::Integer(span.offset.cast_signed()),
                Value::OptionalInteger(span.from.map(elapsed)),
                Value::OptionalInteger(span.until.map(elapsed)),
            ]);
        }
    }
    rows
}
