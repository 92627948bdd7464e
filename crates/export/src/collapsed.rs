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

/// Writes the first event as collapsed stacks. The first name of each line is the thread's. Lines are ordered by
/// thread name.
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
    let mut functions: Vec<FunctionId> = Vec::new();
    for CommPath { comm, path, count } in counted.list.iter().copied() {
        let text = plain(&counted.comms[comm as usize]);
        changed_comms[comm as usize] = matches!(text, Cow::Owned(_));
        out.write_all(text.as_bytes())?;
        counted.functions(path, &mut functions);
        for function in &functions {
            let text = plain(labels.of(source, *function));
            changed_functions[*function as usize] = matches!(text, Cow::Owned(_));
            out.write_all(b";")?;
            out.write_all(text.as_bytes())?;
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

/// Returns a name without the characters that separate names and lines.
fn plain(name: &str) -> Cow<'_, str> {
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
