//! The windows that a recording makes, and what came of them.

use dioptra_perfevents::EventGroup;
use dioptra_perfevents::windows::{BurstCost, Schedule, SourceKind, WindowStats};

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

/// The windows that a recording made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowsOutcome {
    /// Their source.
    pub source: SourceKind,
    /// Their schedule, as it was asked for.
    pub schedule: Schedule,
    /// Names of the events that were counted together, for each group.
    pub groups: Vec<Vec<String>>,
    /// The findings about this source and about better ones that could not be used: a sentence each.
    pub findings: Vec<String>,
    /// Why a better source was not taken; `None` where this one was asked for or is the best.
    pub instead: Option<String>,
    /// The counts of bursts and windows.
    pub stats: WindowStats,
    /// The time that a burst was found to take from a program before the recording, if it was measured.
    pub cost: Option<BurstCost>,
}
