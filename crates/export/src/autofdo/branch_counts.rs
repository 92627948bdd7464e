//! Counts of lines, calls and heads from branch records.

use super::function_counts::{CodePlace, FunctionCounts};
use super::lines_of;
use crate::source::Source;
use dioptra_profile::FrameId;
use dioptra_profile::branches::{BranchAnalysis, CallKind, SymbolCode};
use dioptra_symbols::{RelativeAddress, Symbolizer};
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::ops::Range;

/// A run of code from a branch's target to the next branch, with the number of times it was seen.
struct Run {
    first: u64,
    last: u64,
    seen: u64,
}

/// Adds the executions that an event's branches show. Returns the number of runs and calls without a function and a line.
pub(super) fn count_branches(
    source: &Source<'_>,
    event: usize,
    symbolizer: &Symbolizer,
    functions: &mut FunctionCounts,
) -> u64 {
    let profile = source.profile;
    let Some(branches) = profile.branches(event) else {
        return 0;
    };
    let code = SymbolCode::new(profile.modules(), symbolizer);
    let calls = BranchAnalysis::new(profile, event, &code).map(|analysis| analysis.calls().calls);
    let calls = calls.unwrap_or_default();
    let mut runs: Vec<Vec<Run>> = Vec::new();
    runs.resize_with(profile.modules().len(), Vec::new);
    for run in branches.runs() {
        let (start, end) = (
            profile.frames().get(run.start),
            profile.frames().get(run.end),
        );
        runs[start.module as usize].push(Run {
            first: start.address,
            last: end.address,
            seen: run.executions.seen,
        });
    }
    let mut ends: Vec<Vec<FrameId>> = vec![Vec::new(); profile.modules().len()];
    for frame in calls.iter().flat_map(|call| [call.site, call.target]) {
        ends[profile.frames().get(frame).module as usize].push(frame);
    }
    let mut undescribed = 0_u64;
    let mut places: HashMap<FrameId, CodePlace> = HashMap::new();
    let each = profile.modules().iter().zip(runs).zip(ends);
    for ((module, runs), ends) in each {
        if runs.is_empty() && ends.is_empty() {
            continue;
        }
        let lines = lines_of(module, symbolizer);
        let reader = lines.reader();
        for run in &runs {
            if CodePlace::at(&reader, run.first).is_none() {
                undescribed = undescribed.saturating_add(run.seen);
            }
        }
        for (addresses, seen) in executions(&runs) {
            let addresses = RelativeAddress(addresses.start)..RelativeAddress(addresses.end);
            for of_line in reader.lines(addresses) {
                // A run may go on into code without a line; its other lines count.
                if let Some(place) = CodePlace::at(&reader, of_line.addresses.start.0) {
                    functions.raise(&place, seen);
                }
            }
        }
        for frame in ends {
            let address = profile.frames().get(frame).address;
            if let Some(place) = CodePlace::at(&reader, address) {
                places.insert(frame, place);
            }
        }
    }
    for call in calls {
        let seen = call.count.seen;
        let (site, target) = (places.get(&call.site), places.get(&call.target));
        let Some(target) = target else {
            undescribed = undescribed.saturating_add(seen);
            continue;
        };
        let callee = target.outermost();
        let stays = site.is_some_and(|site| site.outermost() == callee);
        // A jump to a part of the function that lies elsewhere is no call.
        if stays && call.kind == CallKind::Tail {
            continue;
        }
        functions.add_head(callee, seen);
        if let Some(site) = site {
            functions.add_calls(site, callee, seen);
        }
    }
    undescribed
}

/// Returns how often each stretch of code ran, by rising address.
fn executions(runs: &[Run]) -> Vec<(Range<u64>, u64)> {
    let mut changes: BTreeMap<u64, i128> = BTreeMap::new();
    for run in runs {
        *changes.entry(run.first).or_default() += i128::from(run.seen);
        // The first byte of the last instruction belongs to its line.
        let end = run.last.saturating_add(1);
        *changes.entry(end).or_default() -= i128::from(run.seen);
    }
    let mut stretches = Vec::new();
    let mut before: Option<(u64, i128)> = None;
    for (address, change) in changes {
        let mut seen = 0;
        if let Some((start, count)) = before {
            seen = count;
            if count > 0 {
                stretches.push((start..address, u64::try_from(count).unwrap_or(u64::MAX)));
            }
        }
        before = Some((address, seen + change));
    }
    stretches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_runs_add_up() {
        let run = |first, last, seen| Run { first, last, seen };
        let found = executions(&[run(0x10, 0x1f, 3), run(0x18, 0x27, 2), run(0x40, 0x40, 1)]);
        let expected = [
            (0x10..0x18, 3),
            (0x18..0x20, 5),
            (0x20..0x28, 2),
            (0x40..0x41, 1),
        ];
        assert_eq!(found, expected);
    }
}
