//! Collapsed stacks: a line for each stack, `thread;outermost;…;innermost VALUE`, as `flamegraph.pl`, speedscope and
//! inferno read them.

use crate::comm_paths::{CommPath, CommPaths};
use crate::error::ExportError;
use crate::exported::{EventTotal, Exported};
use crate::labels::Labels;
use crate::lost::{Lost, LostKind, lost, number};
use crate::source::{Source, Value};
use dioptra_profile::FunctionId;
use std::borrow::Cow;
use std::cmp::Ordering;
use std::io::Write;

/// The kinds of data that the format has no place for, beside either samples or weights.
const NO_PLACE: &[LostKind] = &[
    LostKind::Events,
    LostKind::Modules,
    LostKind::BuildIds,
    LostKind::Addresses,
    LostKind::Lines,
    LostKind::InlinedMarks,
    LostKind::Threads,
    LostKind::Cpus,
    LostKind::Times,
    LostKind::Branches,
];

/// Writes the first event as collapsed stacks. The first name of each line is the thread's. Lines are ordered by their
/// names, so that the same profile always gives the same text.
///
/// # Errors
/// There is no event, the profile has no stacks, or writing failed.
pub fn write_collapsed(
    source: &Source<'_>,
    value: Value,
    out: &mut dyn Write,
) -> Result<Exported, ExportError> {
    let event = source.first_event()?;
    let counted = CommPaths::of(source, event);
    let mut labels = Labels::new(source);
    let mut total = EventTotal {
        event,
        ..EventTotal::default()
    };
    // Names that hold separators, by function and by comm.
    let mut changed_functions = vec![false; source.names.functions().len()];
    let mut changed_comms = vec![false; counted.comms.len()];
    let mut names: Vec<String> = vec![String::new(); source.names.functions().len()];
    let mut functions: Vec<FunctionId> = Vec::new();
    for CommPath { comm, path, .. } in &counted.list {
        let text = plain(&counted.comms[*comm as usize]);
        changed_comms[*comm as usize] = matches!(text, Cow::Owned(_));
        counted.functions(*path, &mut functions);
        for function in functions.iter().map(|function| *function as usize) {
            if names[function].is_empty() {
                let text = plain(labels.of(
                    source,
                    FunctionId::try_from(function).unwrap_or(FunctionId::MAX),
                ));
                changed_functions[function] = matches!(text, Cow::Owned(_));
                names[function] = text.into_owned();
            }
        }
    }
    let ranks = ranks(&names);
    let mut lines = counted.list.clone();
    let mut other: Vec<FunctionId> = Vec::new();
    let mut compare = |one: &CommPath, two: &CommPath| {
        let comms = (
            &counted.comms[one.comm as usize],
            &counted.comms[two.comm as usize],
        );
        counted.functions(one.path, &mut functions);
        counted.functions(two.path, &mut other);
        let rank = |function: &FunctionId| ranks[*function as usize];
        let by_functions = functions.iter().map(rank).cmp(other.iter().map(rank));
        comms.0.cmp(comms.1).then(by_functions)
    };
    lines.sort_by(&mut compare);
    // Functions of several modules may share a name.
    lines.dedup_by(|next, kept| {
        let same = compare(next, kept) == Ordering::Equal;
        if same {
            kept.count.add(next.count);
        }
        same
    });
    for CommPath { comm, path, count } in lines {
        out.write_all(plain(&counted.comms[comm as usize]).as_bytes())?;
        counted.functions(path, &mut functions);
        for function in &functions {
            out.write_all(b";")?;
            out.write_all(names[*function as usize].as_bytes())?;
        }
        writeln!(out, " {}", value.of(count))?;
        total.add(value, count);
    }
    let mut kinds = NO_PLACE.to_vec();
    kinds.insert(
        1,
        match value {
            Value::Weight => LostKind::Samples,
            Value::Samples => LostKind::Weights,
        },
    );
    let mut lost = lost(source, &[event], &kinds);
    let changed = changed_functions.iter().chain(&changed_comms);
    let changed = changed.filter(|changed| **changed).count();
    if changed > 0 {
        lost.push(Lost {
            kind: LostKind::Characters,
            count: number(changed),
        });
    }
    Ok(Exported {
        totals: vec![total],
        lost,
    })
}

/// Returns for each name the number of smaller names. Equal names have one rank.
fn ranks(names: &[String]) -> Vec<u32> {
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_unstable_by_key(|function| &names[*function]);
    let mut ranks = vec![0; names.len()];
    let mut rank = 0;
    for pair in order.windows(2) {
        rank += u32::from(names[pair[0]] != names[pair[1]]);
        ranks[pair[1]] = rank;
    }
    ranks
}

/// Returns a name without the characters that separate names and lines.
pub(crate) fn plain(name: &str) -> Cow<'_, str> {
    let separates = |character: char| character == ';' || character.is_control();
    if !name.contains(separates) {
        return Cow::Borrowed(name);
    }
    let replaced = name.chars().map(|character| match character {
        ';' => ':',
        control if control.is_control() => ' ',
        other => other,
    });
    Cow::Owned(replaced.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_are_replaced() {
        assert!(matches!(plain("std::vector<a, b>"), Cow::Borrowed(_)));
        assert_eq!(plain("LFoo;bar\n"), "LFoo:bar ");
    }
}
