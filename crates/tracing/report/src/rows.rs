//! A row for each function.

use dioptra_calls::{FunctionNames, FunctionTimes, Statistics, View};
use dioptra_filters::SampleKind;
use dioptra_tracelayout::FunctionKind;
use std::collections::HashMap;

/// A row of the table: a function, or several of one name.
#[derive(Clone, Debug)]
pub struct Row {
    /// The function's name.
    pub name: String,
    /// The function's size in bytes, if it is known.
    pub size: Option<u64>,
    /// The place in the source, if the caller looked for it.
    pub source: Option<String>,
    /// The sums of the calls.
    pub times: FunctionTimes,
    /// The way in which executions were sampled, if they were.
    pub sampling: Option<SampleKind>,
}

impl Row {
    /// Adds the numbers of another function of the same name.
    pub fn merge(&mut self, other: &Row) {
        self.times.merge(&other.times);
        self.size = self.size.max(other.size);
    }
}

/// Makes a row for each function. Functions of one name, such as local copies of an inline function, stay apart by
/// their ids. Library calls of several modules share a row. No row has a source.
pub fn function_rows(sums: &Statistics, names: &FunctionNames<'_>, view: &View<'_>) -> Vec<Row> {
    let rows = sums.functions.iter().map(|times| {
        let id = times.function;
        Row {
            name: names.get(id).to_owned(),
            size: names.size(id),
            source: None,
            times: times.clone(),
            sampling: view.sampling(id),
        }
    });
    rows.collect()
}

/// Merges rows of equal names.
pub fn folded(rows: Vec<Row>) -> Vec<Row> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut folded: Vec<Row> = Vec::with_capacity(rows.len());
    for row in rows {
        match places
            .get(&row.name)
            .and_then(|place| folded.get_mut(*place))
        {
            Some(first) => first.merge(&row),
            None => {
                places.insert(row.name.clone(), folded.len());
                folded.push(row);
            }
        }
    }
    folded
}

/// Gives functions whose shown names are equal longer names: with template arguments, in full, or with their modules.
pub fn tell_apart(rows: &mut [Row], names: &FunctionNames<'_>) {
    let mut shown: Vec<(u32, String)> = rows
        .iter_mut()
        .map(|row| (row.times.function, std::mem::take(&mut row.name)))
        .collect();
    lengthen(&mut shown, names);
    for (row, (_, name)) in rows.iter_mut().zip(shown) {
        row.name = name;
    }
}

/// Returns the names of functions as [`tell_apart`] gives them to rows. `functions` are ids in ascending order. Library
/// calls of several modules have one name.
pub fn distinct_names(functions: &[u32], names: &FunctionNames<'_>) -> Vec<String> {
    let mut shown: Vec<(u32, String)> = Vec::new();
    let mut libraries: HashMap<&str, usize> = HashMap::new();
    let mut places = Vec::with_capacity(functions.len());
    for function in functions {
        let name = names.get(*function);
        let mut place = shown.len();
        if names.trace().function(*function).kind == FunctionKind::LibraryCall {
            place = *libraries.entry(name).or_insert(place);
        }
        if place == shown.len() {
            shown.push((*function, name.to_owned()));
        }
        places.push(place);
    }
    lengthen(&mut shown, names);
    let names = places.into_iter().map(|place| shown[place].1.clone());
    names.collect()
}

/// Makes equal names longer until they differ, as far as functions have longer ones.
fn lengthen(shown: &mut [(u32, String)], names: &FunctionNames<'_>) {
    for detail in 1..4 {
        let mut counts: HashMap<String, usize> = HashMap::new();
        for (_, name) in shown.iter() {
            *counts.entry(name.clone()).or_default() += 1;
        }
        for (id, name) in shown.iter_mut().filter(|(_, name)| counts[name] > 1) {
            let longer = names.detailed(*id).into_iter().nth(detail);
            *name = match longer {
                Some(name) => name,
                None if names.module(*id).is_empty() => continue,
                None => format!("{name}@{}", names.module(*id)),
            };
        }
    }
}

/// Returns whether a row's numbers come only from calls that were slower than others.
pub fn is_slowest(row: &Row) -> bool {
    row.sampling == Some(SampleKind::Tail)
}

/// Returns a row's sums as they are shown: total, self, calls, each with its standard error if it is known. Returns
/// `None` for a row that is not sampled, and for a row of slow calls alone, which say nothing about other calls.
pub fn estimates(row: &Row) -> Option<[(f64, Option<f64>); 3]> {
    let sampled = row.times.sampled.as_ref()?;
    if is_slowest(row) && sampled.calls.value == row.times.calls as f64 {
        return None;
    }
    let parts = [sampled.total, sampled.self_time, sampled.calls];
    Some(parts.map(|estimate| (estimate.value, estimate.standard_error)))
}
