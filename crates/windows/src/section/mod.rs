//! The section of a recording about its windows.
//!
//! Section [`Feature::WINDOWS`] is this program's own, and perf skips it. The samples of the windows stand among the
//! records as those of any event. The section adds facts that no record states: how the windows were made, each burst,
//! and the counts of the same events over the whole run.
//!
//! ```text
//!   magic "dioptraW" │ version 1 │ part │ part │ …        part:  tag │ length of the content │ content
//! ```
//!
//! Integers are LEB128, so that the byte order does not matter. Parts come in any order and most of them several times;
//! unknown ones are skipped, tag 0 is padding. Bursts lie in blocks: each holds differences to the burst before it in
//! the same block. So a file to which blocks were appended while recording is a whole section at any time.

mod decode;
mod encode;

pub use decode::SectionError;
pub use encode::SectionEncoder;

pub use dioptra_perfevents::windows::{Burst, BurstOutcome};

use dioptra_perfdata::{Feature, PerfData};
use dioptra_perfevents::windows::Schedule;
use dioptra_perfrecords::SampleType;
use std::fs;
use std::path::Path;

/// The first bytes of the section.
const MAGIC: &[u8; 8] = b"dioptraW";
/// The version that is written and read.
const VERSION: u8 = 1;

/// Parts of the section.
mod part {
    pub const PADDING: u64 = 0;
    pub const SOURCE: u64 = 1;
    pub const FINDING: u64 = 2;
    pub const SCHEDULE: u64 = 3;
    pub const GROUP: u64 = 4;
    pub const TOTAL: u64 = 5;
    pub const SPAN: u64 = 6;
    pub const LOSS: u64 = 7;
    pub const BURSTS: u64 = 8;
    pub const INSTEAD: u64 = 9;
}

/// The fields of a burst that differ from those of the burst before it.
mod changed {
    pub const GROUP: u64 = 1;
    pub const CPU: u64 = 2;
    pub const TID: u64 = 4;
    pub const EXPECTED: u64 = 8;
    /// Not as many windows came as were expected.
    pub const SEEN: u64 = 16;
}

/// The windows of a recording: how they were made, all bursts, and the counts of the whole run.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct WindowsSection {
    /// The name of the windows' source: `refresh`, `twin`, `kernel`, `steady` or `period`.
    pub source: String,
    /// The findings of the probe at the start, also about sources that were not taken: a sentence each.
    pub findings: Vec<String>,
    /// Why a better source did not make the windows, such as `period instead of refresh (…)`; `None` where the source was
    /// asked for or is the best.
    pub instead: Option<String>,
    /// The schedule that was asked for; `None` where that part is missing.
    pub schedule: Option<Schedule>,
    /// The number of windows at the start of each burst that the analysis leaves out.
    pub warm_up: u32,
    /// Groups of counters, of which one is read in each burst. [`Burst::group`] is an index.
    pub groups: Vec<WindowGroup>,
    /// Bursts in the order in which they were written: of each thread or CPU, in that of time.
    pub bursts: Vec<Burst>,
    /// The counts of the windows' events over the whole target and run.
    pub totals: Vec<EventTotal>,
    /// The times at which these counts began and ended, in nanoseconds of the recording's clock.
    pub span: Option<(u64, u64)>,
    /// The windows that were not made, by reason, such as too few descriptors for all threads.
    pub losses: Vec<WindowLoss>,
}

/// Counters that were read together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WindowGroup {
    /// Index of the event whose samples bound the windows, among [`PerfData::events`].
    pub leader: u32,
    /// Indices of the other events, in the order of their values in the leader's samples.
    pub members: Vec<u32>,
    /// The last window of each burst is longer than the others, and is left out.
    pub drop_last: bool,
}

/// The count of an event over the whole run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventTotal {
    /// Name, as that of the windows' event.
    pub event: String,
    /// The count, not scaled.
    pub value: u64,
    /// Nanoseconds in which it was enabled.
    pub enabled: u64,
    /// Nanoseconds in which it was counted.
    pub running: u64,
}

/// A reason why windows were not made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WindowLoss {
    /// The reason.
    pub what: String,
    /// The number of times that it occurred.
    pub count: u64,
}

/// The end of the name of the file that keeps bursts beside a recording until it is complete.
pub(crate) const SIDE_FILE: &str = ".windows";

impl WindowsSection {
    /// Reads the section of a recording; `None` where it has none. Damage becomes part of the damage that
    /// [`PerfData::read`] reports. `path` is the recording's file: a recorder that was killed left its bursts beside it.
    pub fn of(data: &mut PerfData, path: Option<&Path>) -> Option<WindowsSection> {
        if let Some(bytes) = data.features().unparsed.get(&Feature::WINDOWS) {
            let mut section = WindowsSection::default();
            if let Err(error) = section.decode(bytes) {
                data.report_damage(Feature::WINDOWS, error.offset as u64, error.to_string());
            }
            return Some(section);
        }
        path.filter(|_| data.salvaged())
            .and_then(|path| WindowsSection::beside(data, path))
    }

    /// Reads the bursts that a recorder which was killed left in a file beside the recording.
    fn beside(data: &PerfData, path: &Path) -> Option<WindowsSection> {
        let mut name = path.as_os_str().to_owned();
        name.push(SIDE_FILE);
        let bytes = fs::read(Path::new(&name)).ok()?;
        let mut section = WindowsSection::default();
        // The section ends where the recorder was killed.
        let _ = section.decode(&bytes);
        // A file of an older recording of this name may be left: its leaders do not fit this recording's events.
        let fits = |group: &WindowGroup| {
            let event = data.events().get(group.leader as usize);
            event.is_some_and(|event| event.attr.sample_type.contains(SampleType::READ))
        };
        (!section.groups.is_empty() && section.groups.iter().all(fits)).then_some(section)
    }

    /// Returns the events that exist for windows only, as indices of [`PerfData::events`]: their samples lie where bursts
    /// were, not where time went.
    pub fn events(&self, data: &PerfData) -> Vec<usize> {
        let count = data.events().len();
        let mut events: Vec<usize> = self
            .groups
            .iter()
            .flat_map(|group| std::iter::once(&group.leader).chain(&group.members))
            .map(|event| *event as usize)
            .filter(|event| *event < count)
            .collect();
        events.sort_unstable();
        events.dedup();
        events
    }

    /// Returns the number of bursts that ended with all of `outcome`.
    pub fn bursts_with(&self, outcome: BurstOutcome) -> u64 {
        let with = self.bursts.iter();
        with.filter(|burst| burst.outcome.contains(outcome)).count() as u64
    }

    /// Returns the number of windows in all bursts.
    pub fn windows_seen(&self) -> u64 {
        self.bursts.iter().map(|burst| u64::from(burst.seen)).sum()
    }

    /// Returns a copy without the bursts.
    pub fn without_bursts(&self) -> WindowsSection {
        WindowsSection {
            source: self.source.clone(),
            findings: self.findings.clone(),
            instead: self.instead.clone(),
            schedule: self.schedule,
            warm_up: self.warm_up,
            groups: self.groups.clone(),
            bursts: Vec::new(),
            totals: self.totals.clone(),
            span: self.span,
            losses: self.losses.clone(),
        }
    }

    /// Returns the bytes of the whole section.
    pub fn encode(&self) -> Vec<u8> {
        let mut encoder = SectionEncoder::new();
        encoder.source(&self.source);
        self.findings.iter().for_each(|text| encoder.finding(text));
        self.instead.iter().for_each(|text| encoder.instead(text));
        if let Some(schedule) = &self.schedule {
            encoder.schedule(schedule, self.warm_up);
        }
        self.groups.iter().for_each(|group| encoder.group(group));
        self.bursts.iter().for_each(|burst| encoder.burst(burst));
        self.totals.iter().for_each(|total| encoder.total(total));
        if let Some((began, ended)) = self.span {
            encoder.span(began, ended);
        }
        self.losses.iter().for_each(|loss| encoder.loss(loss));
        encoder.take()
    }

    /// Reads a section, and adds what it holds to what is here.
    ///
    /// # Errors
    /// [`SectionError`] where the bytes are not what they should be; what came before is kept.
    pub fn decode(&mut self, bytes: &[u8]) -> Result<(), SectionError> {
        decode::decode(self, bytes)
    }
}
