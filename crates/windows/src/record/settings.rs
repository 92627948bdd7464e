//! The windows that a recording makes, and what came of them.

use dioptra_perfevents::EventGroup;
use dioptra_perfevents::windows::{
    BurstCost, Length, Schedule, SourceFinding, SourceKind, WindowStats,
};
use std::fmt;

/// The windows that a recording makes beside its samples.
#[derive(Clone, Debug)]
pub struct WindowSettings {
    /// The schedule of windows.
    pub schedule: Schedule,
    /// The number of windows at the start of each burst that the analysis leaves out.
    pub warm_up: u32,
    /// The source of the windows; `None` for the best that works.
    pub source: Option<SourceKind>,
    /// The events that are counted over windows, in groups that take turns. They are counted over the whole run as well.
    pub groups: Vec<EventGroup>,
    /// The time that a burst takes from a program, if it was measured.
    pub cost: Option<BurstCost>,
}

/// A finding at the start of a recording of windows. Its text form is a sentence for users.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartFinding {
    /// A finding about a source.
    Source(SourceFinding),
    /// The cost of a burst, as it was tried out.
    Cost(BurstCost),
    /// The source cannot begin bursts as often as the schedule says.
    LongTooShort {
        /// The time between bursts that was asked for.
        long: Length,
        /// The shortest time that the source keeps.
        shortest: Length,
    },
}

impl fmt::Display for StartFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartFinding::Source(finding) => finding.fmt(f),
            StartFinding::Cost(cost) => write!(
                f,
                "cost: a burst takes {:.0} us from a program that computes, as tried out at the start",
                cost.burst as f64 / 1000.0
            ),
            StartFinding::LongTooShort { long, shortest } => write!(
                f,
                "long={long} cannot be kept: bursts of a CPU begin {shortest} apart or more"
            ),
        }
    }
}

/// The windows that a recording made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowsOutcome {
    /// Their source.
    pub source: SourceKind,
    /// Their schedule, as it was asked for.
    pub schedule: Schedule,
    /// Names of the events that were counted together, for each group.
    pub groups: Vec<Vec<String>>,
    /// The findings about this source and about better ones that could not be used.
    pub findings: Vec<StartFinding>,
    /// Why a better source was not taken; `None` where this one was asked for or is the best.
    pub instead: Option<String>,
    /// The counts of bursts and windows.
    pub stats: WindowStats,
    /// The time that a burst was found to take from a program before the recording, if it was measured.
    pub cost: Option<BurstCost>,
}
