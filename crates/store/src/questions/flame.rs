//! Stacks of many profiles, for flame graphs.

use super::{Chosen, SAMPLES, quoted, text_column};
use crate::content::EventTotal;
use crate::error::StoreError;
use crate::session::{Answer, Session};
use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Int64Type};
use dioptra_export::write_stacks_flamegraph;
use std::collections::BTreeMap;
use std::io::Write;

/// The options of [`flame`].
#[derive(Clone, Debug, Default)]
pub struct FlameOptions {
    /// The samples.
    pub chosen: Chosen,
    /// Whether values are numbers of samples instead of weights.
    pub samples: bool,
}

/// The stacks of many profiles with their values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackValues {
    /// The name of the values: an event, or a column of a query.
    pub name: String,
    /// The unit of the values.
    pub unit: &'static str,
    /// The names of each stack, outermost first, and its value.
    pub stacks: Vec<(Vec<String>, u64)>,
}

/// The columns of a query's answer that are the values of stacks, the best first.
const VALUES: [&str; 6] = ["value", "weight", "self_ns", "samples", "calls", "total_ns"];

/// Returns the stacks of the chosen samples, ordered by names; the first name of each is that of the thread.
///
/// # Errors
/// There are no such samples.
pub fn flame(session: &Session, options: &FlameOptions) -> Result<StackValues, StoreError> {
    let (conditions, event) = options.chosen.with_event(session)?;
    let value = match options.samples {
        true => "samples",
        false => "weight",
    };
    let stacks = options.chosen.stacks("any_value(frames) AS frames", None);
    let answer = session.sql(&format!(
        "SELECT s.comm AS comm, s.value AS value, k.frames AS frames FROM (\
           SELECT comm, stack_id, CAST(sum({value}) AS BIGINT) AS value FROM {SAMPLES} a WHERE {conditions} \
           GROUP BY comm, stack_id) s \
         JOIN {stacks} k ON s.stack_id = k.stack_id"
    ))?;
    let unit = match options.samples {
        true => "samples",
        false => match &event.unit {
            Some(unit) => unit_of_text(unit),
            None => unit_of(session, &event.event)?,
        },
    };
    StackValues::of(&answer, event.event, unit)
}

/// Returns the unit of an event's weights.
fn unit_of(session: &Session, event: &str) -> Result<&'static str, StoreError> {
    let pattern = quoted(&format!("%{event}%"));
    let answer = session.sql(&format!(
        "SELECT DISTINCT totals FROM profiles WHERE totals LIKE {pattern} LIMIT 100"
    ))?;
    let texts = answer
        .batches
        .iter()
        .flat_map(|batch| text_column(batch.column(0)));
    for text in texts {
        let totals: Vec<EventTotal> = serde_json::from_str(&text).unwrap_or_default();
        if let Some(total) = totals.iter().find(|total| total.event == event) {
            return Ok(unit_of_text(&total.unit));
        }
    }
    Ok("events")
}

/// Returns the unit that a profile's totals state.
fn unit_of_text(unit: &str) -> &'static str {
    match unit {
        "ns" => "ns",
        "samples" => "samples",
        _ => "events",
    }
}

impl StackValues {
    /// Returns the stacks of a query's answer: its lists `frames`, with `comm` before them where there is one, and the
    /// first of the columns `value`, `weight`, `self_ns`, `samples`, `calls` and `total_ns`.
    ///
    /// # Errors
    /// The answer has no such columns, or a value is negative.
    pub fn of_answer(answer: &Answer) -> Result<StackValues, StoreError> {
        let has = |column: &&str| answer.schema.column_with_name(column).is_some();
        let Some(value) = VALUES.into_iter().find(|column| has(column)) else {
            return Err(StoreError::Question(format!(
                "a flame graph needs a column of values: {}",
                VALUES.join(", ")
            )));
        };
        let unit = match value {
            "self_ns" | "total_ns" => "ns",
            "samples" => "samples",
            "calls" => "calls",
            _ => "events",
        };
        StackValues::of(answer, value.to_owned(), unit)
    }

    fn of(answer: &Answer, name: String, unit: &'static str) -> Result<StackValues, StoreError> {
        // Functions of several modules may share a name, so stacks may share a line.
        let mut stacks: BTreeMap<Vec<String>, u64> = BTreeMap::new();
        let column = match answer.schema.column_with_name("value") {
            Some(_) => "value",
            None => &*name,
        };
        for batch in &answer.batches {
            let comms = batch.column_by_name("comm").map(text_column);
            let missing =
                |what: &str| StoreError::Question(format!("a flame graph needs the column {what}"));
            let values = batch
                .column_by_name(column)
                .ok_or_else(|| missing(column))?;
            let values = arrow::compute::cast(values, &DataType::Int64)?;
            let values = values.as_primitive::<Int64Type>();
            let frames = batch.column_by_name("frames");
            let frames = frames.and_then(|frames| frames.as_list_opt::<i32>());
            let frames = frames.ok_or_else(|| missing("frames, a list of names"))?;
            for row in 0..batch.num_rows() {
                let mut line: Vec<String> = Vec::new();
                line.extend(comms.as_ref().map(|comms| plain(&comms[row])));
                if frames.is_valid(row) {
                    let names = text_column(&frames.value(row));
                    line.extend(names.iter().rev().map(|name| plain(name)));
                }
                let value = match values.is_valid(row) {
                    true => values.value(row),
                    false => 0,
                };
                let value = u64::try_from(value).map_err(|_| {
                    StoreError::Question(format!("a flame graph has no place for {value}"))
                })?;
                let sum = stacks.entry(line).or_default();
                *sum = sum.saturating_add(value);
            }
        }
        Ok(StackValues {
            name,
            unit,
            stacks: stacks.into_iter().collect(),
        })
    }

    /// Writes a line for each stack, `thread;outermost;…;innermost VALUE`.
    ///
    /// # Errors
    /// Writing failed.
    pub fn write_collapsed(&self, out: &mut dyn Write) -> Result<(), StoreError> {
        for (names, value) in &self.stacks {
            writeln!(out, "{} {value}", names.join(";"))?;
        }
        Ok(())
    }

    /// Writes a flame graph: an SVG file that stands alone. Returns the number of frames that are too narrow to draw.
    ///
    /// # Errors
    /// Writing failed.
    pub fn write_svg(&self, out: &mut dyn Write) -> Result<u64, StoreError> {
        let stacks = self.stacks.iter();
        let stacks = stacks.map(|(names, value)| (&**names, *value));
        let (_, narrow) = write_stacks_flamegraph(&self.name, self.unit, stacks, out)?;
        Ok(narrow)
    }
}

/// Returns a name without the characters that separate names and lines.
fn plain(name: &str) -> String {
    let replaced = name.chars().map(|character| match character {
        ';' => ':',
        control if control.is_control() => ' ',
        other => other,
    });
    replaced.collect()
}
