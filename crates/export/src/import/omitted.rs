//! The parts of an imported profile that a recording has no place for.

use std::collections::BTreeMap;
use std::fmt;

/// A kind of data that a recording has no place for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum OmittedKind {
    /// Frames beyond the deepest stack that a record holds, the outermost ones.
    OuterFrames,
    /// Names that are longer than a record holds, which were cut.
    LongNames,
    /// The numbers of samples behind values of this event: each value became one sample.
    SampleNumbers(String),
    /// The unit of this event's values, which a recording states for times only.
    Unit(String),
    /// Labels of samples with this key.
    Labels(String),
    /// Remarks about the profile.
    Comments,
    /// The date of the profile, which a recording states through the times of samples.
    Date,
    /// The duration of the profile.
    Duration,
    /// The period of an event that is none of the profile's.
    Period,
    /// Expressions for functions that should not be shown.
    FunctionFilters,
    /// The address of documentation.
    DocumentationLink,
    /// The choice of the event to show first.
    DefaultEvent,
    /// Lines where functions begin, and columns.
    FunctionLines,
    /// The marks of locations that stand for several.
    FoldedMarks,
    /// Build ids that are no hexadecimal numbers of up to 20 bytes.
    BuildIds,
    /// Line numbers beyond 32 bits.
    LineNumbers,
    /// Fields of a message that the format's definition does not have.
    UnknownFields,
    /// Addresses that are not relative to a module.
    Addresses,
    /// Texts about samples, such as a tracepoint's fields.
    SampleTexts,
    /// Records that are no samples.
    OtherRecords,
    /// CPUs or times that only some of the samples state.
    PartialFields,
}

/// Things of one kind that a recording has no place for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Omitted {
    /// The kind.
    pub kind: OmittedKind,
    /// Their number, in the unit that the text names.
    pub count: u64,
}

impl fmt::Display for Omitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.count;
        let many = |one: &str, many: &str| match count {
            1 => format!("1 {one}"),
            _ => format!("{count} {many}"),
        };
        let text = match &self.kind {
            OmittedKind::OuterFrames => format!(
                "the outermost frames of {}",
                many("stack, which is too deep", "stacks, which are too deep")
            ),
            OmittedKind::LongNames => format!(
                "the full length of {}",
                many("name, which was cut", "names, which were cut")
            ),
            OmittedKind::SampleNumbers(event) => format!(
                "the numbers of samples behind {} of {event}",
                many("value", "values")
            ),
            OmittedKind::Unit(event) => format!("the unit of {event}"),
            OmittedKind::Labels(key) => {
                format!("the label {key:?} of {}", many("sample", "samples"))
            }
            OmittedKind::Comments => many("comment", "comments"),
            OmittedKind::Date => "the date".to_owned(),
            OmittedKind::Duration => "the duration".to_owned(),
            OmittedKind::Period => "the period of an event that has no values".to_owned(),
            OmittedKind::FunctionFilters => many("filter of functions", "filters of functions"),
            OmittedKind::DocumentationLink => "the link to documentation".to_owned(),
            OmittedKind::DefaultEvent => "the choice of the first event".to_owned(),
            OmittedKind::FunctionLines => format!(
                "the first line or the column of {}",
                many("function", "functions")
            ),
            OmittedKind::FoldedMarks => {
                format!("the mark \"folded\" of {}", many("location", "locations"))
            }
            OmittedKind::BuildIds => many(
                "build id that is no hexadecimal number",
                "build ids that are no hexadecimal numbers",
            ),
            OmittedKind::LineNumbers => many("line number", "line numbers"),
            OmittedKind::UnknownFields => many("unknown field", "unknown fields"),
            OmittedKind::Addresses => {
                format!("the addresses of {}", many("location", "locations"))
            }
            OmittedKind::SampleTexts => {
                format!("the text behind {}", many("sample", "samples"))
            }
            OmittedKind::OtherRecords => {
                many("record that is no sample", "records that are no samples")
            }
            OmittedKind::PartialFields => format!(
                "the CPU or time of {}, since others have none",
                many("sample", "samples")
            ),
        };
        f.write_str(&text)
    }
}

/// Counts omitted things while a profile is read.
#[derive(Debug, Default)]
pub(super) struct Omissions {
    counts: BTreeMap<OmittedKind, u64>,
}

/// The largest number of different labels that are counted apart; a hostile file could have one for each sample.
const MOST_LABELS: usize = 64;

impl Omissions {
    /// Counts one more thing.
    pub(super) fn add(&mut self, kind: OmittedKind) {
        self.add_many(kind, 1);
    }

    /// Counts some more things.
    pub(super) fn add_many(&mut self, kind: OmittedKind, count: u64) {
        if count == 0 {
            return;
        }
        let is_new = !self.counts.contains_key(&kind);
        let kind = match kind {
            OmittedKind::Labels(_) if is_new && self.counts.len() >= MOST_LABELS => {
                OmittedKind::Labels("…".to_owned())
            }
            kind => kind,
        };
        let sum = self.counts.entry(kind).or_default();
        *sum = sum.saturating_add(count);
    }

    /// Returns all counts.
    pub(super) fn list(self) -> Vec<Omitted> {
        let each = self.counts.into_iter();
        each.map(|(kind, count)| Omitted { kind, count }).collect()
    }
}
