//! AutoFDO's text profile, with which clang optimizes (`-fprofile-sample-use`): counts by line of each function, counted
//! from the function's declaration, with inlined functions nested in the lines of their calls.
//!
//! Branch records say how often code ran: a line counts as often as its most frequent instruction, a function's head as
//! often as it was called. Without them the counts are the samples at the line, and heads are not known.

mod branch_counts;
mod function_counts;

use crate::error::ExportError;
use crate::exported::{EventTotal, Exported};
use crate::lost::{Lost, LostKind, lost};
use crate::source::{Source, Value};
use branch_counts::count_branches;
use dioptra_profile::{FrameId, Module, Stacks};
use dioptra_symbols::{
    LineReader, ModuleLines, ModuleRequest, RelativeAddress, SymbolOptions, Symbolizer,
};
use function_counts::{CodePlace, FunctionCounts};
use hashbrown::HashMap;
use std::io::Write;

/// The kinds of data that the format has no place for.
const NO_PLACE: &[LostKind] = &[
    LostKind::Events,
    LostKind::Callers,
    LostKind::Modules,
    LostKind::BuildIds,
    LostKind::Addresses,
    LostKind::Threads,
    LostKind::Cpus,
    LostKind::Times,
];

/// Writes the first event in AutoFDO's text format, which `llvm-profdata` reads. If straight runs between its branches
/// were recorded, the counts are theirs, and otherwise those of the samples.
///
/// # Errors
/// There is no event, the profile has no stacks, or writing failed.
pub fn write_autofdo(
    source: &Source<'_>,
    value: Value,
    mut symbols: SymbolOptions,
    out: &mut dyn Write,
) -> Result<Exported, ExportError> {
    let event = source.first_event()?;
    let profile = source.profile;
    symbols
        .recorded_kernel
        .get_or_insert_with(|| profile.recorded_kernel().clone());
    let symbolizer = Symbolizer::new(symbols);
    let mut functions = FunctionCounts::default();
    let mut kinds = NO_PLACE.to_vec();
    let mut more = Vec::new();
    let mut totals = Vec::new();
    let branches = profile.branches(event);
    if branches.is_some_and(|branches| branches.runs().len() > 0) {
        let undescribed = count_branches(source, event, &symbolizer, &mut functions);
        kinds.extend([LostKind::Samples, LostKind::Weights]);
        more.push(Lost {
            kind: LostKind::UndescribedBranches,
            count: undescribed,
        });
    } else {
        let counted = count_samples(source, event, value, &symbolizer, &mut functions);
        kinds.push(LostKind::Branches);
        kinds.push(match value {
            Value::Weight => LostKind::Samples,
            Value::Samples => LostKind::Weights,
        });
        more.push(Lost {
            kind: LostKind::Undescribed,
            count: counted.undescribed_samples,
        });
        totals.push(counted.total);
    }
    functions.write(out)?;
    let mut lost = lost(source, &[event], &kinds);
    lost.extend(more.into_iter().filter(|lost| lost.count > 0));
    Ok(Exported { totals, lost })
}

/// The result of [`count_samples`].
struct Counted {
    /// The sum of what was written and of what has no place.
    total: EventTotal,
    /// Samples without a function and a line.
    undescribed_samples: u64,
}

/// Adds the samples of an event, each at its innermost place.
fn count_samples(
    source: &Source<'_>,
    event: usize,
    value: Value,
    symbolizer: &Symbolizer,
    functions: &mut FunctionCounts,
) -> Counted {
    let profile = source.profile;
    let mut at: HashMap<FrameId, (u64, u64)> = HashMap::new();
    let mut undescribed = (0_u64, 0_u64);
    let mut add = |sums: Option<&mut (u64, u64)>, (samples, of_value): (u64, u64)| {
        let sums = sums.unwrap_or(&mut undescribed);
        sums.0 = sums.0.saturating_add(samples);
        sums.1 = sums.1.saturating_add(of_value);
    };
    profile.counts(source.event(event), |_, stack, count| {
        let added = (count.samples, value.of(count));
        match stack == Stacks::ROOT {
            true => add(None, added),
            false => {
                let frame = profile.innermost_frame(stack);
                add(Some(at.entry(frame).or_default()), added);
            }
        }
    });
    let mut by_module: Vec<Vec<(u64, (u64, u64))>> = vec![Vec::new(); profile.modules().len()];
    for (frame, sums) in at {
        let frame = profile.frames().get(frame);
        by_module[frame.module as usize].push((frame.address, sums));
    }
    for (module, mut places) in profile.modules().iter().zip(by_module) {
        if places.is_empty() {
            continue;
        }
        // Neighbours share units of the debug information.
        places.sort_unstable();
        let lines = lines_of(module, symbolizer);
        let reader = lines.reader();
        for (address, sums) in places {
            match CodePlace::at(&reader, address) {
                Some(place) => {
                    functions.add(&place, sums.1);
                }
                None => add(None, sums),
            }
        }
    }
    let mut total = EventTotal {
        event,
        ..EventTotal::default()
    };
    let all = functions.total().saturating_add(undescribed.1);
    match value {
        Value::Samples => total.add_samples(all),
        Value::Weight => total.add_weight(all),
    }
    Counted {
        total,
        undescribed_samples: undescribed.0,
    }
}

/// Returns a module's debug information.
fn lines_of(module: &Module, symbolizer: &Symbolizer) -> ModuleLines {
    symbolizer.lines(&ModuleRequest {
        kind: module.kind,
        path: module.path(),
        build_id: module.build_id.as_deref(),
    })
}

impl CodePlace {
    /// Returns the place of an address; `None` where a function's name, its first line or the line is not known.
    fn at(reader: &LineReader<'_>, address: u64) -> Option<CodePlace> {
        CodePlace::of(&reader.source_frames(RelativeAddress(address)))
    }
}
