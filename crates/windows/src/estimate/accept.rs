//! The rules by which windows are kept or discarded.

use super::stream::{WindowFlags, WindowView};

/// The rules by which windows are judged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rules {
    /// The number of windows at a burst's start that are left out, because they still show the interrupt that started it.
    pub warm_up: u16,
    /// The least discard ratio, or share of windows in which the function was left, of rows of low trust.
    pub low_trust: f64,
    /// The least of either for unreliable rows.
    pub no_trust: f64,
    /// The least share of pairs of windows that start and end in a function, with the thread elsewhere in the middle
    /// ([`Runs::away`](super::Runs::away)), of rows of low trust.
    pub low_trust_away: f64,
    /// The least such share of unreliable rows.
    pub no_trust_away: f64,
}

impl Default for Rules {
    /// One window of warm-up. The bounds of trust are from simulated programs: with a quarter of the windows discarded the
    /// rest is about 2 % off, with a third 10 %, with half 40 %. Functions of two and a half windows are away in the middle
    /// of two windows in 7 % of the cases (4.4 to 9.6 % in nine of ten recordings of 1000 bursts), ones of five windows
    /// in 2 to 3 % (1.2 to 4.3 %), ones of ten in 1 %.
    fn default() -> Self {
        Self {
            warm_up: 1,
            low_trust: 0.25,
            no_trust: 0.45,
            low_trust_away: 0.04,
            no_trust_away: 0.2,
        }
    }
}

/// The reason why a window is not used. A window with several reasons is counted under the first of this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Discard {
    /// Its counts make no sense.
    Broken,
    /// The kernel throttled the leader.
    Throttled,
    /// Records were lost in it.
    Lost,
    /// The thread left the CPU in it.
    Switched,
    /// The thread changed CPUs in it.
    Migrated,
    /// Its burst started late.
    Late,
    /// The group was not counting for all of it.
    PartlyCounted,
    /// The window is part of its burst's warm-up.
    Settling,
    /// The window is the last of its burst, and longer than the others.
    Last,
    /// The function at its start or its end is not known.
    NoFunction,
    /// The window starts in one function and ends in another.
    OtherFunction,
    /// The window starts and ends in one function, with different callers.
    OtherPath,
}

impl Discard {
    /// All reasons, in order.
    pub const ALL: [Self; 12] = [
        Self::Broken,
        Self::Throttled,
        Self::Lost,
        Self::Switched,
        Self::Migrated,
        Self::Late,
        Self::PartlyCounted,
        Self::Settling,
        Self::Last,
        Self::NoFunction,
        Self::OtherFunction,
        Self::OtherPath,
    ];

    /// Returns the word for it in facts and columns: `other-function`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Broken => "broken",
            Self::Throttled => "throttled",
            Self::Lost => "lost",
            Self::Switched => "switched",
            Self::Migrated => "migrated",
            Self::Late => "late",
            Self::PartlyCounted => "partly-counted",
            Self::Settling => "settling",
            Self::Last => "last",
            Self::NoFunction => "no-function",
            Self::OtherFunction => "other-function",
            Self::OtherPath => "other-path",
        }
    }

    /// Whether the program made the window unusable by leaving the function. Only such windows count against a row's
    /// trust: the schedule and the kernel cause the other reasons, whatever the program does.
    pub fn is_crossing(self) -> bool {
        matches!(self, Self::OtherFunction | Self::OtherPath)
    }
}

/// Returns why a window is discarded; `None` if it is kept.
pub(super) fn judge(window: &WindowView<'_>, drop_last: bool, rules: &Rules) -> Option<Discard> {
    const CAUSES: [(WindowFlags, Discard); 7] = [
        (WindowFlags::BROKEN, Discard::Broken),
        (WindowFlags::THROTTLED, Discard::Throttled),
        (WindowFlags::LOST, Discard::Lost),
        (WindowFlags::SWITCHED, Discard::Switched),
        (WindowFlags::MIGRATED, Discard::Migrated),
        (WindowFlags::LATE, Discard::Late),
        (WindowFlags::PARTLY_COUNTED, Discard::PartlyCounted),
    ];
    if let Some((_, cause)) = CAUSES.iter().find(|(f, _)| window.flags.intersects(*f)) {
        return Some(*cause);
    }
    if window.index < rules.warm_up {
        return Some(Discard::Settling);
    }
    if window.flags.contains(WindowFlags::INFLATED) || (drop_last && window.last) {
        return Some(Discard::Last);
    }
    let (Some(start), Some(end)) = (window.start.function, window.end.function) else {
        return Some(Discard::NoFunction);
    };
    if start != end {
        return Some(Discard::OtherFunction);
    }
    match (window.start.path, window.end.path) {
        (Some(start), Some(end)) if start != end => Some(Discard::OtherPath),
        _ => None,
    }
}

/// The numbers of windows kept, and discarded for each reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Acceptance {
    kept: u64,
    discarded: [u64; Discard::ALL.len()],
}

impl Acceptance {
    pub(super) fn add(&mut self, verdict: Option<Discard>) {
        match verdict {
            None => self.kept += 1,
            Some(cause) => self.discarded[cause as usize] += 1,
        }
    }

    /// Windows whose counts are used.
    pub fn kept(&self) -> u64 {
        self.kept
    }

    /// Windows discarded for one cause.
    pub fn discarded(&self, cause: Discard) -> u64 {
        self.discarded[cause as usize]
    }

    /// All windows, kept or not.
    pub fn total(&self) -> u64 {
        self.kept + self.discarded.iter().sum::<u64>()
    }

    /// Windows that were good in all else but left the function or its path.
    pub fn crossing(&self) -> u64 {
        self.discarded(Discard::OtherFunction) + self.discarded(Discard::OtherPath)
    }

    /// The discard ratio: crossing ÷ (kept + crossing). What the schedule drops (settling, last), what the kernel spoilt
    /// and what has no function is neither above nor below the line, so that the ratio is about the program. A crossing
    /// window counts at the row of its end, as its sample does in the ranking. `None` without such windows.
    pub fn discard_ratio(&self) -> Option<f64> {
        let all = self.kept + self.crossing();
        (all > 0).then(|| self.crossing() as f64 / all as f64)
    }
}

/// The degree to which a row's metrics are about its function alone; the worst comes last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Trust {
    /// Its runs are long enough.
    High,
    /// Its runs are so short that the windows hold others' work too: off by some percent.
    Low,
    /// Its runs are shorter than windows: the numbers are about it and its neighbours together.
    Unreliable,
}

impl Trust {
    /// Returns the word for it: `high`, `low`, `unreliable`.
    pub fn name(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Low => "low",
            Self::Unreliable => "unreliable",
        }
    }

    pub(super) fn of(ratio: f64, rules: &Rules) -> Self {
        match ratio {
            r if r > rules.no_trust => Self::Unreliable,
            r if r > rules.low_trust => Self::Low,
            _ => Self::High,
        }
    }
}
