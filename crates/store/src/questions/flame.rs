//! Collapsed stacks of many profiles, for flame graphs.

use super::{Chosen, text_column};
use crate::error::StoreError;
use crate::session::Session;
use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use std::collections::BTreeMap;
use std::io::Write;

/// The options of [`flame`].
#[derive(Clone, Debug, Default)]
pub struct FlameOptions {
    /// The samples.
    pub chosen: Chosen,
    /// Whether lines end with numbers of samples instead of weights.
    pub samples: bool,
}

/// Writes a line for each stack, `thread;outermost;…;innermost VALUE`, ordered by names. Returns the event.
///
/// # Errors
/// There are no such samples, or writing failed.
pub fn flame(
    session: &Session,
    options: &FlameOptions,
    out: &mut dyn Write,
) -> Result<String, StoreError> {
    let (conditions, event) = options.chosen.with_event(session)?;
    let value = match options.samples {
        true => "samples",
        false => "weight",
    };
    let answer = session.sql(&format!(
        "SELECT comm, CAST(sum({value}) AS BIGINT) AS value, first_value(frames) AS frames \
         FROM samples WHERE {conditions} GROUP BY comm, stack_id"
    ))?;
    // Functions of several modules may share a name, so stacks may share a line.
    let mut lines: BTreeMap<Vec<String>, i64> = BTreeMap::new();
    for batch in &answer.batches {
        let comms = text_column(batch.column(0));
        let values = batch.column(1).as_primitive::<Int64Type>();
        let frames = batch.column(2).as_list::<i32>();
        for (row, comm) in comms.into_iter().enumerate() {
            let mut line = vec![plain(&comm)];
            let names = text_column(&frames.value(row));
            line.extend(names.iter().rev().map(|name| plain(name)));
            let sum = lines.entry(line).or_default();
            *sum = sum.saturating_add(values.value(row));
        }
    }
    for (line, value) in lines {
        writeln!(out, "{} {value}", line.join(";"))?;
    }
    Ok(event)
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
