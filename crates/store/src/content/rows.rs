//! The rows of samples.

use super::EventTotal;
use super::functions::Functions;
use crate::columns::{Rows, Value};
use crate::error::StoreError;
use crate::schema::Table;
use dioptra_export::Source;
use dioptra_profile::{FrameId, LoggedSample, SampleKeyId, StackId, Stacks, ThreadId};
use dioptra_report::unit_of;
use dioptra_tables::Unit;

/// The rows of a profile's samples, and the facts that the writer learns from them.
pub(super) struct Written {
    pub rows: Rows,
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
    thread: ThreadParts,
    comm: String,
    cpu: Option<i64>,
}

/// The thread of a sample or a window.
#[derive(Clone)]
pub(super) struct ThreadParts {
    pub pid: Option<i64>,
    pub tid: Option<i64>,
    pub process: String,
}

/// The innermost location of a stack.
#[derive(Clone, Default)]
struct Location {
    address: Option<i64>,
    source: Option<String>,
    line: Option<i64>,
}

struct Writer<'w, 'a> {
    source: &'a Source<'a>,
    functions: &'w mut Functions<'a>,
    /// Whether rows have addresses and lines.
    addresses: bool,
    rows: Rows,
    keys: Vec<KeyParts>,
    duration: Option<i64>,
}

/// Writes the rows of the source's events, with addresses and lines if these are wanted.
///
/// # Errors
/// A value is too large for a signed number, or the rows don't add up to the profile's totals.
pub(super) fn write<'a>(
    source: &'a Source<'a>,
    functions: &mut Functions<'a>,
    addresses: bool,
) -> Result<Written, StoreError> {
    let keys = source.profile.sample_keys().iter();
    let mut writer = Writer {
        source,
        functions,
        addresses,
        rows: Rows::new(Table::Samples),
        keys: keys.map(|key| key_parts(source, key)).collect(),
        duration: None,
    };
    let names = event_names(source);
    let mut totals = Vec::new();
    for (event, name) in source.events.iter().zip(&names) {
        totals.push(writer.event(*event, name)?);
    }
    Ok(Written {
        rows: writer.rows,
        totals,
        duration_ns: writer.duration,
    })
}

impl Writer<'_, '_> {
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
        let stack = self.functions.stack(row.stack);
        let location = match self.addresses {
            true => self.location(row.stack),
            false => Location::default(),
        };
        let key = &self.keys[row.key as usize];
        self.rows.push(&[
            Value::Text(event),
            Value::OptionalInteger(elapsed),
            Value::OptionalInteger(key.thread.pid),
            Value::OptionalInteger(key.thread.tid),
            Value::Text(&key.thread.process),
            Value::Text(&key.comm),
            Value::OptionalInteger(key.cpu),
            Value::Text(&stack),
            Value::Integer(signed("samples", row.samples)?),
            Value::Integer(signed("weight", row.weight)?),
            Value::Double(row.factor),
            Value::OptionalInteger(location.address),
            Value::OptionalText(location.source.as_deref()),
            Value::OptionalInteger(location.line),
        ]);
        Ok(())
    }

    /// Returns the innermost location of a stack.
    fn location(&self, stack: StackId) -> Location {
        if stack == Stacks::ROOT {
            return Location::default();
        }
        let (profile, names) = (self.source.profile, self.source.names);
        let frame: FrameId = profile.innermost_frame(stack);
        let line = names.has_lines().then(|| names.line_of(frame));
        let line = line.and_then(|line| names.lines().get(line as usize));
        Location {
            // The kernel's addresses have their highest bit set: as signed numbers they are negative.
            address: Some(profile.frames().get(frame).address.cast_signed()),
            source: line.and_then(|line| line.file.as_deref().map(str::to_owned)),
            line: line.and_then(|line| line.line.map(i64::from)),
        }
    }
}

fn key_parts(source: &Source<'_>, key: dioptra_profile::SampleKey) -> KeyParts {
    KeyParts {
        thread: thread_parts(source, key.thread),
        comm: source.profile.tasks().comm_of(key),
        cpu: key.cpu.map(i64::from),
    }
}

/// Returns what rows say of a thread.
pub(super) fn thread_parts(source: &Source<'_>, thread: Option<ThreadId>) -> ThreadParts {
    let tasks = source.profile.tasks();
    let thread = thread.and_then(|thread| tasks.threads().get(thread as usize));
    let process = thread.and_then(|thread| tasks.processes().get(thread.process as usize));
    ThreadParts {
        pid: process.map(|process| i64::from(process.pid)),
        tid: thread.map(|thread| i64::from(thread.tid)),
        process: thread.map_or_else(
            || dioptra_profile::UNKNOWN.to_owned(),
            |thread| tasks.process_name(thread.process),
        ),
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
