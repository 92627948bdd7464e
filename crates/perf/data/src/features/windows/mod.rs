//! Windows: the section of a recording whose counters were read over bursts of short windows.
//!
//! Section [`Feature::WINDOWS`](super::Feature::WINDOWS) is this program's own, and perf skips it. The samples of the
//! windows stand among the records as those of any event; what the section adds is what no record can tell: how the
//! windows were made, each burst, and the plain counts of the same events over the same time.
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

pub use decode::WindowsError;
pub use encode::WindowsEncoder;

pub(crate) use encode::split;

use dioptra_perfevents::windows::Schedule;

/// The first bytes of the section.
pub(crate) const MAGIC: &[u8; 8] = b"dioptraW";
/// The version that is written and read.
pub(crate) const VERSION: u8 = 1;

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

/// Which fields of a burst differ from the one before it.
mod changed {
    pub const GROUP: u64 = 1;
    pub const CPU: u64 = 2;
    pub const TID: u64 = 4;
    pub const EXPECTED: u64 = 8;
    /// Not as many windows came as were expected.
    pub const SEEN: u64 = 16;
}

/// How the windows of a recording were made, all bursts, and what was counted beside them.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Windows {
    /// What made the windows: `refresh`, `twin`, `kernel`, `steady` or `period`.
    pub source: String,
    /// What the probe found at the start, and why other sources were not taken: a sentence each.
    pub findings: Vec<String>,
    /// Why a better source did not make the windows, such as `period instead of refresh (…)`; `None` where the source was
    /// asked for or is the best.
    pub instead: Option<String>,
    /// The schedule that was asked for; `None` where that part is missing.
    pub schedule: Option<Schedule>,
    /// How many windows at the start of each burst are left out of the analysis.
    pub settle: u32,
    /// Groups of counters, of which one is read in each burst. [`Burst::group`] is an index.
    pub groups: Vec<WindowGroup>,
    /// Bursts in the order in which they were written: of each thread or CPU, in that of time.
    pub bursts: Vec<Burst>,
    /// The plain counts of the windows' events over the whole target and run.
    pub totals: Vec<EventTotal>,
    /// When the plain counting began and ended, in nanoseconds of the recording's clock.
    pub span: Option<(u64, u64)>,
    /// What got no windows and why, such as threads for which there were no descriptors.
    pub losses: Vec<WindowLoss>,
}

/// Counters that were read together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WindowGroup {
    /// Index of the event whose samples bound the windows, among [`crate::PerfData::events`].
    pub leader: u32,
    /// Indices of the other events, in the order of their values in the leader's samples.
    pub members: Vec<u32>,
    /// The last window of each burst is longer than the others, and is left out.
    pub drop_last: bool,
}

/// One burst: a sample that marks the start, and windows back to back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Burst {
    /// Index of its group.
    pub group: u16,
    /// The CPU to which it was bound, if it was.
    pub cpu: Option<u32>,
    /// The thread to which it was bound, if it was.
    pub tid: Option<u32>,
    /// When the events were armed, in nanoseconds of the recording's clock.
    pub armed: u64,
    /// When the burst was over, or given up.
    pub ended: u64,
    /// The leader's period: the length of each window.
    pub period: u64,
    /// Windows that were asked for.
    pub expected: u16,
    /// Windows that came.
    pub seen: u16,
    /// How it ended.
    pub outcome: BurstOutcome,
}

/// How a burst ended: several may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BurstOutcome(pub u8);

impl BurstOutcome {
    /// All windows came.
    pub const COMPLETE: BurstOutcome = BurstOutcome(1);
    /// The first sample came late: the thread slept when the burst was armed.
    pub const LATE: BurstOutcome = BurstOutcome(2);
    /// It was stopped before all windows came.
    pub const CUT: BurstOutcome = BurstOutcome(4);
    /// The kernel throttled its events.
    pub const THROTTLED: BurstOutcome = BurstOutcome(8);

    /// The words for each outcome.
    pub const NAMES: [(BurstOutcome, &'static str); 4] = [
        (BurstOutcome::COMPLETE, "complete"),
        (BurstOutcome::LATE, "late"),
        (BurstOutcome::CUT, "cut"),
        (BurstOutcome::THROTTLED, "throttled"),
    ];

    /// Whether all of `other` holds.
    pub fn contains(self, other: BurstOutcome) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for BurstOutcome {
    type Output = BurstOutcome;

    fn bitor(self, other: BurstOutcome) -> BurstOutcome {
        BurstOutcome(self.0 | other.0)
    }
}

impl std::ops::BitOrAssign for BurstOutcome {
    fn bitor_assign(&mut self, other: BurstOutcome) {
        *self = *self | other;
    }
}

/// The plain count of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventTotal {
    /// Name, as that of the windows' event.
    pub event: String,
    /// What was counted, not scaled.
    pub value: u64,
    /// Nanoseconds in which it was enabled.
    pub enabled: u64,
    /// Nanoseconds in which it was counted.
    pub running: u64,
}

/// Something that got no windows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WindowLoss {
    /// What and why.
    pub what: String,
    /// How many.
    pub count: u64,
}

impl Windows {
    /// How many bursts ended with all of `outcome`.
    pub fn bursts_with(&self, outcome: BurstOutcome) -> u64 {
        let with = self.bursts.iter();
        with.filter(|burst| burst.outcome.contains(outcome)).count() as u64
    }

    /// Windows that came, in all bursts.
    pub fn windows_seen(&self) -> u64 {
        self.bursts.iter().map(|burst| u64::from(burst.seen)).sum()
    }

    /// All but the bursts.
    pub fn without_bursts(&self) -> Windows {
        Windows {
            source: self.source.clone(),
            findings: self.findings.clone(),
            instead: self.instead.clone(),
            schedule: self.schedule,
            settle: self.settle,
            groups: self.groups.clone(),
            bursts: Vec::new(),
            totals: self.totals.clone(),
            span: self.span,
            losses: self.losses.clone(),
        }
    }

    /// The whole section.
    pub fn encode(&self) -> Vec<u8> {
        let mut encoder = WindowsEncoder::new();
        encoder.source(&self.source);
        self.findings.iter().for_each(|text| encoder.finding(text));
        self.instead.iter().for_each(|text| encoder.instead(text));
        if let Some(schedule) = &self.schedule {
            encoder.schedule(schedule, self.settle);
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
    /// [`WindowsError`] where the bytes are not what they should be; what came before is kept.
    pub fn decode(&mut self, bytes: &[u8]) -> Result<(), WindowsError> {
        decode::decode(self, bytes)
    }
}
