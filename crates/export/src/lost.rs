//! The parts of a profile that a format has no place for.

use crate::source::Source;
use dioptra_perfrecords::SampleType;
use dioptra_profile::FrameId;
use std::fmt;

/// A kind of data that a format may have no place for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum LostKind {
    /// Events beside the exported ones.
    Events,
    /// The numbers of samples, where only weights were written.
    Samples,
    /// The weights of samples, where only their number was written.
    Weights,
    /// The paths or names of modules.
    Modules,
    /// The build ids of modules.
    BuildIds,
    /// The addresses of locations.
    Addresses,
    /// The source lines of locations.
    Lines,
    /// The marks that say which functions were inlined. The functions themselves are written.
    InlinedMarks,
    /// The numbers of processes and threads.
    Threads,
    /// The names that threads had before their last one.
    EarlierNames,
    /// The CPUs of samples.
    Cpus,
    /// The times of samples.
    Times,
    /// Branch records.
    Branches,
    /// The callers on the stacks of samples.
    Callers,
    /// Samples where debug information has no function and line, in formats that know places by them.
    Undescribed,
    /// Calls, and runs between branches, where debug information has no function and line.
    UndescribedBranches,
    /// Characters that separate names in the format, replaced in names.
    Characters,
    /// Frames that are too narrow to draw.
    NarrowFrames,
    /// The numbers of calls of a trace, where only times were written.
    CallNumbers,
    /// The self times of a trace's calls, where only their numbers were written.
    SelfTimes,
    /// The times at which a trace's calls began and ended.
    CallMoments,
    /// The numbers of calls for which recorded calls stand.
    CallWeights,
    /// The marks of calls that had not ended when their records did.
    OpenMarks,
    /// Values beyond the largest number of the format.
    LargeValues,
}

/// Things of one kind that a format has no place for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The kind.
    pub kind: LostKind,
    /// Their number, in the unit that the text names.
    pub count: u64,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.count;
        let of = |what: &str, one: &str, many: &str| {
            let unit = if count == 1 { one } else { many };
            format!("{what} {count} {unit}")
        };
        let text = match self.kind {
            LostKind::Events => of("the samples of", "more event", "more events"),
            LostKind::Samples => format!("the number of samples, {count}"),
            LostKind::Weights => of("the weights of", "sample", "samples"),
            LostKind::Modules => of("the names of", "module", "modules"),
            LostKind::BuildIds => of("the build ids of", "module", "modules"),
            LostKind::Addresses => of("the addresses of", "location", "locations"),
            LostKind::Lines => of("the source lines of", "location", "locations"),
            LostKind::InlinedMarks => of("the marks of", "inlined function", "inlined functions"),
            LostKind::Threads => of("the numbers of", "thread", "threads"),
            LostKind::EarlierNames => {
                of("", "earlier name of a thread", "earlier names of threads")
                    .trim_start()
                    .to_owned()
            }
            LostKind::Cpus => of("the CPUs of", "sample", "samples"),
            LostKind::Times => of("the times of", "sample", "samples"),
            LostKind::Branches => of("the branch records of", "sample", "samples"),
            LostKind::Callers => of("the callers of", "sample", "samples"),
            LostKind::Undescribed => format!(
                "{count} {} without a function and a line in debug information",
                if count == 1 { "sample" } else { "samples" }
            ),
            LostKind::UndescribedBranches => format!(
                "{count} {} without a function and a line in debug information",
                match count {
                    1 => "call, or run between branches,",
                    _ => "calls and runs between branches",
                }
            ),
            LostKind::Characters => of(
                "separators in",
                "name, which was changed",
                "names, which were changed",
            ),
            LostKind::NarrowFrames => {
                of("", "frame too narrow to draw", "frames too narrow to draw")
                    .trim_start()
                    .to_owned()
            }
            LostKind::CallNumbers => format!("the number of calls, {count}"),
            LostKind::SelfTimes => of("the self times of", "call", "calls"),
            LostKind::CallMoments => of("the beginnings and ends of", "call", "calls"),
            LostKind::CallWeights => of(
                "the numbers of executions for which sampling chose",
                "call",
                "calls",
            ),
            LostKind::OpenMarks => of(
                "the marks of",
                "call without an end",
                "calls without an end",
            ),
            LostKind::LargeValues => of(
                "the full size of",
                "value, which was cut",
                "values, which were cut",
            ),
        };
        f.write_str(&text)
    }
}

/// Counts the things of these kinds in a profile, of which `written` events are exported. Kinds that the profile has
/// nothing of are left out.
pub(crate) fn lost(source: &Source<'_>, written: &[usize], kinds: &[LostKind]) -> Vec<Lost> {
    let used = used_frames(source, written);
    let each = kinds.iter().map(|kind| Lost {
        kind: *kind,
        count: count(source, written, &used, *kind),
    });
    each.filter(|lost| lost.count > 0).collect()
}

/// Returns the frames of all stacks that have samples, by frame id.
fn used_frames(source: &Source<'_>, written: &[usize]) -> Vec<bool> {
    let stacks = source.profile.stacks();
    let mut used = vec![false; source.profile.frames().len()];
    let mut seen = vec![false; stacks.len()];
    for index in written {
        source.profile.counts(source.event(*index), |_, stack, _| {
            let mut at = stack;
            while at != dioptra_profile::Stacks::ROOT && !seen[at as usize] {
                seen[at as usize] = true;
                let node = stacks.get(at);
                used[node.frame as usize] = true;
                at = node.parent;
            }
        });
    }
    used
}

fn count(source: &Source<'_>, written: &[usize], used: &[bool], kind: LostKind) -> u64 {
    let profile = source.profile;
    let names = source.names;
    let frames = || {
        let ids = 0..FrameId::try_from(used.len()).unwrap_or(FrameId::MAX);
        ids.filter(|frame| used[*frame as usize])
    };
    let samples = || -> u64 {
        let each = written.iter();
        each.map(|index| source.event(*index).total().samples).sum()
    };
    let modules = |keep: &dyn Fn(&dioptra_profile::Module) -> bool| {
        let mut there = vec![false; profile.modules().len()];
        for frame in frames() {
            there[profile.frames().get(frame).module as usize] = true;
        }
        let each = profile.modules().iter().zip(there);
        number(
            each.filter(|(module, there)| *there && keep(module))
                .count(),
        )
    };
    let keys = |keep: &dyn Fn(dioptra_profile::SampleKey) -> bool| {
        let mut sum = 0;
        for index in written {
            profile.counts(source.event(*index), |key, _, count| {
                if keep(profile.sample_keys().get(key)) {
                    sum += count.samples;
                }
            });
        }
        sum
    };
    match kind {
        LostKind::Events => {
            let others = source
                .events
                .iter()
                .filter(|event| !written.contains(event));
            let others = others.filter(|event| !source.event(**event).total().is_zero());
            number(others.count())
        }
        LostKind::Samples => {
            let weighed = written.iter().map(|index| source.event(*index));
            weighed
                .filter(|event| event.weighs_events())
                .map(|event| event.total().samples)
                .sum()
        }
        LostKind::Weights => {
            let weighed = written.iter().map(|index| source.event(*index));
            let weighed = weighed.filter(|event| event.weighs_events());
            weighed.map(|event| event.total().samples).sum()
        }
        LostKind::Modules => modules(&|module| !module.is_unknown()),
        LostKind::BuildIds => modules(&|module| module.build_id.is_some()),
        LostKind::Addresses => number(frames().count()),
        LostKind::Lines if names.has_lines() => {
            let with_line = frames().filter(|frame| {
                let line = &names.lines()[names.line_of(*frame) as usize];
                line.line.is_some()
            });
            number(with_line.count())
        }
        LostKind::InlinedMarks => {
            let inlined = names.functions().iter().filter(|name| name.is_inlined);
            number(inlined.count())
        }
        LostKind::Threads => {
            let mut seen = vec![false; profile.tasks().threads().len()];
            for index in written {
                profile.counts(source.event(*index), |key, _, _| {
                    if let Some(thread) = profile.sample_keys().get(key).thread {
                        seen[thread as usize] = true;
                    }
                });
            }
            number(seen.iter().filter(|seen| **seen).count())
        }
        LostKind::Cpus => keys(&|key| key.cpu.is_some()),
        LostKind::Times if profile.has_times() => samples(),
        LostKind::Branches => {
            let with_branches = written.iter().map(|index| source.event(*index));
            with_branches
                .filter(|event| event.attr().sample_type.contains(SampleType::BRANCH_STACK))
                .map(|event| event.total().samples)
                .sum()
        }
        LostKind::Callers => {
            let stacks = profile.stacks();
            let mut sum = 0;
            for index in written {
                profile.counts(source.event(*index), |_, stack, count| {
                    let has_caller = stack != dioptra_profile::Stacks::ROOT
                        && stacks.get(stack).parent != dioptra_profile::Stacks::ROOT;
                    if has_caller {
                        sum += count.samples;
                    }
                });
            }
            sum
        }
        // Writers count these.
        LostKind::Lines
        | LostKind::Times
        | LostKind::EarlierNames
        | LostKind::Undescribed
        | LostKind::UndescribedBranches
        | LostKind::Characters
        | LostKind::NarrowFrames
        | LostKind::CallNumbers
        | LostKind::SelfTimes
        | LostKind::CallMoments
        | LostKind::CallWeights
        | LostKind::OpenMarks
        | LostKind::LargeValues => 0,
    }
}

/// Returns a length as a count.
pub(crate) fn number(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_name_the_number() {
        let text = |kind, count| Lost { kind, count }.to_string();
        assert_eq!(text(LostKind::BuildIds, 12), "the build ids of 12 modules");
        assert_eq!(text(LostKind::Events, 1), "the samples of 1 more event");
        assert_eq!(
            text(LostKind::NarrowFrames, 2),
            "2 frames too narrow to draw"
        );
        assert_eq!(
            text(LostKind::Undescribed, 1),
            "1 sample without a function and a line in debug information"
        );
    }
}
