//! The rows of samples and stacks.

use super::EventTotal;
use super::functions::Functions;
use crate::columns::{Rows, Value};
use crate::error::StoreError;
use crate::ids::Hasher;
use crate::schema::Table;
use dioptra_export::{PathId, Paths, Source};
use dioptra_profile::{FunctionId, LoggedSample, SampleKeyId, StackId, Stacks};
use dioptra_report::unit_of;
use dioptra_tables::Unit;
use std::collections::{HashMap, HashSet};

/// The rows of a profile, and what is known of them.
pub(super) struct Written {
    pub rows: Vec<Rows>,
    pub totals: Vec<EventTotal>,
    /// Nanoseconds from the first sample to the last one.
    pub duration_ns: Option<i64>,
}

/// A sample, or several equal ones.
struct SampleRow {
    elapsed: Option<u64>,
    key: SampleKeyId,
    stack: StackId,
    samples: u64,
    weight: u64,
    factor: f64,
}

impl From<LoggedSample> for SampleRow {
    fn from(sample: LoggedSample) -> SampleRow {
        SampleRow {
            elapsed: sample.elapsed,
            key: sample.sample_key,
            stack: sample.place,
            samples: 1,
            weight: sample.weight,
            factor: sample.factor,
        }
    }
}

/// The parts of a sample's row that its key tells.
#[derive(Clone)]
struct KeyParts {
    pid: Option<i64>,
    tid: Option<i64>,
    process: String,
    comm: String,
    cpu: Option<i64>,
}

struct Writer<'a> {
    source: &'a Source<'a>,
    paths: Paths,
    functions: Functions<'a>,
    /// By path: the id of the written stack.
    stack_ids: HashMap<PathId, String>,
    /// The ids of written stacks. Paths that differ only in whether a function was inlined are one stack.
    written: HashSet<String>,
    stack_rows: Rows,
    sample_rows: Rows,
    keys: Vec<KeyParts>,
    duration: Option<i64>,
}

/// Writes the rows of the source's events.
///
/// # Errors
/// A value is too large for a signed number, or the rows don't add up to the profile's totals.
pub(super) fn write(source: &Source<'_>) -> Result<Written, StoreError> {
    let keys = source.profile.sample_keys().iter();
    let mut writer = Writer {
        source,
        paths: Paths::of(source),
        functions: Functions::new(source.profile, source.names),
        stack_ids: HashMap::new(),
        written: HashSet::new(),
        stack_rows: Rows::new(Table::Stacks),
        sample_rows: Rows::new(Table::Samples),
        keys: keys.map(|key| key_parts(source, key)).collect(),
        duration: None,
    };
    let names = event_names(source);
    let mut totals = Vec::new();
    for (event, name) in source.events.iter().zip(&names) {
        totals.push(writer.event(*event, name)?);
    }
    let (modules, functions) = writer.functions.into_rows();
    Ok(Written {
        rows: vec![modules, functions, writer.stack_rows, writer.sample_rows],
        totals,
        duration_ns: writer.duration,
    })
}

impl Writer<'_> {
    fn event(&mut self, index: usize, name: &str) -> Result<EventTotal, StoreError> {
        let profile = self.source.profile;
        let event = &profile.events()[index];
        let (mut samples, mut weight) = (0_u64, 0_u64);
        let mut failed = None;
        let mut add = |row: SampleRow| {
            samples = samples.saturating_add(row.samples);
            weight = weight.saturating_add(row.weight);
            if failed.is_none() {
                failed = self.sample(name, &row).err();
            }
        };
        if profile.has_times() {
            event.samples(|sample| add(sample.into()));
        } else {
            let mut rows = Vec::new();
            profile.counts(event, |key, stack, count| {
                rows.push((key, stack, count.samples, count.weight));
            });
            rows.sort_unstable();
            for (key, stack, samples, weight) in rows {
                add(SampleRow {
                    elapsed: None,
                    key,
                    stack,
                    samples,
                    weight,
                    factor: 1.0,
                });
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let total = event.total();
        for (value, written, total) in [
            ("samples", samples, total.samples),
            ("weight", weight, total.weight),
        ] {
            if written != total {
                return Err(StoreError::Total {
                    event: name.to_owned(),
                    value,
                    written,
                    total,
                });
            }
        }
        let unit = match unit_of(event) {
            Some(Unit::Nanoseconds) => "ns",
            Some(_) => "events",
            None => "samples",
        };
        Ok(EventTotal {
            event: name.to_owned(),
            unit: unit.to_owned(),
            samples: signed("samples", samples)?,
            weight: signed("weight", weight)?,
        })
    }

    fn sample(&mut self, event: &str, row: &SampleRow) -> Result<(), StoreError> {
        let elapsed = row.elapsed;
        let elapsed = elapsed.map(|elapsed| signed("elapsed_ns", elapsed));
        let elapsed = elapsed.transpose()?;
        self.duration = self.duration.max(elapsed);
        let path = match row.stack {
            Stacks::ROOT => 0,
            stack => self.paths.of_stack(stack),
        };
        if !self.stack_ids.contains_key(&path) {
            let id = self.stack(path);
            self.stack_ids.insert(path, id);
        }
        let key = &self.keys[row.key as usize];
        self.sample_rows.push(&[
            Value::Text(event),
            Value::OptionalInteger(elapsed),
            Value::OptionalInteger(key.pid),
            Value::OptionalInteger(key.tid),
            Value::Text(&key.process),
            Value::Text(&key.comm),
            Value::OptionalInteger(key.cpu),
            Value::Text(&self.stack_ids[&path]),
            Value::Integer(signed("samples", row.samples)?),
            Value::Integer(signed("weight", row.weight)?),
            Value::Double(row.factor),
        ]);
        Ok(())
    }

    /// Writes a stack unless it is there, and returns its id.
    fn stack(&mut self, path: PathId) -> String {
        let mut functions: Vec<FunctionId> = Vec::new();
        self.paths.functions(path, &mut functions);
        // Innermost first.
        functions.reverse();
        functions
            .iter()
            .for_each(|function| self.functions.know(*function));
        let known = &self.functions;
        let ids: Vec<&str> = functions.iter().map(|id| known.id(*id)).collect();
        let names: Vec<&str> = functions.iter().map(|id| known.name(*id)).collect();
        let mut hash = Hasher::new("stack");
        ids.iter().for_each(|id| hash.text(id));
        let id = hash.short_id();
        if !self.written.insert(id.clone()) {
            return id;
        }
        let innermost = functions.first();
        self.stack_rows.push(&[
            Value::Text(&id),
            Value::Integer(i64::try_from(functions.len()).unwrap_or(i64::MAX)),
            Value::OptionalText(ids.first().copied()),
            Value::OptionalText(names.first().copied()),
            Value::OptionalText(innermost.map(|function| known.module(*function))),
            Value::Texts(&ids),
            Value::Texts(&names),
        ]);
        id
    }
}

fn key_parts(source: &Source<'_>, key: dioptra_profile::SampleKey) -> KeyParts {
    let tasks = source.profile.tasks();
    let thread = key
        .thread
        .and_then(|thread| tasks.threads().get(thread as usize));
    let process = thread.and_then(|thread| tasks.processes().get(thread.process as usize));
    KeyParts {
        pid: process.map(|process| i64::from(process.pid)),
        tid: thread.map(|thread| i64::from(thread.tid)),
        process: thread.map_or_else(
            || dioptra_profile::UNKNOWN.to_owned(),
            |thread| tasks.process_name(thread.process),
        ),
        comm: tasks.comm_of(key),
        cpu: key.cpu.map(i64::from),
    }
}

/// Returns names for the events that differ from each other.
fn event_names(source: &Source<'_>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for index in source.events {
        let own = source.profile.events()[*index].name();
        let mut name = own.to_owned();
        let mut number = 1;
        while names.contains(&name) {
            number += 1;
            name = format!("{own}#{number}");
        }
        names.push(name);
    }
    names
}

/// Returns a number as the store holds it.
pub(super) fn signed(column: &'static str, value: u64) -> Result<i64, StoreError> {
    i64::try_from(value).map_err(|_| StoreError::LargeValue { column, value })
}

#[cfg(test)]
mod tests {
    use super::signed;

    #[test]
    fn numbers_that_do_not_fit_are_refused() {
        assert_eq!(signed("weight", 7).unwrap(), 7);
        let error = signed("weight", u64::MAX).unwrap_err().to_string();
        assert!(error.contains("18446744073709551615"), "{error}");
    }
}
