//! What hooks do for calls.

use dioptra_tracelayout::message::thread::kind;

/// What hooks do for the rules of a recording.
#[derive(Clone, Copy, Debug, Default)]
pub struct HookOptions {
    /// How many bits of the clock's readings are left out.
    pub shift: u32,
    /// Calls may be hidden by their place ([`kind`]).
    pub hides: bool,
    /// So many levels are recorded.
    pub levels: Option<u16>,
    /// Timed calls that took less, in shifted ticks, are taken back.
    pub at_least: Option<u64>,
    /// Calls of some functions are counted, and not all are recorded.
    pub samples: bool,
    /// Times are not those of the processor's counter: the runtime keeps rates.
    pub other_clock: bool,
    /// Executions that were judged not to be shown are marked, and not taken back.
    pub marks: bool,
}

/// Which hooks a call has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookKind {
    /// It is recorded.
    Record,
    /// It is recorded if it was not too short.
    Timed,
    /// It is recorded, and what it calls.
    Filter,
    /// It is not recorded, and neither is what it calls.
    Mute,
    /// A chosen execution of a sampled filter: recorded, and what it calls.
    Chosen,
    /// The runtime counts it: it is recorded or not.
    CountCall,
    /// The runtime counts it: it is recorded with what it calls, or hidden with that.
    CountTree,
    /// It is recorded, and judged when it ends, with what it called.
    JudgeTree,
}

impl HookKind {
    /// All of them.
    pub const ALL: [HookKind; 8] = [
        HookKind::Record,
        HookKind::Timed,
        HookKind::Filter,
        HookKind::Mute,
        HookKind::Chosen,
        HookKind::CountCall,
        HookKind::CountTree,
        HookKind::JudgeTree,
    ];
    /// How many of them there are without sampling.
    pub const UNSAMPLED: usize = 4;

    /// Whether the runtime does all the work.
    pub fn is_counted(self) -> bool {
        matches!(self, HookKind::CountCall | HookKind::CountTree)
    }

    /// Whether it keeps what was hidden before.
    pub fn saves(self, options: &HookOptions) -> bool {
        matches!(
            self,
            HookKind::Mute | HookKind::Filter | HookKind::Chosen | HookKind::JudgeTree
        ) || options.levels.is_some()
    }

    /// The bits that tell the runtime.
    pub fn bits(self, options: &HookOptions) -> u64 {
        let gated = if options.hides { kind::GATED } else { 0 };
        let levels = if options.levels.is_some() {
            kind::LEVELS
        } else {
            0
        };
        match self {
            HookKind::Record => gated | levels,
            HookKind::Timed => gated | levels | kind::TIMED,
            HookKind::Filter => gated | levels | kind::FILTER,
            HookKind::Mute => gated | kind::MUTE,
            HookKind::Chosen => gated | levels | kind::FILTER | kind::CHOSEN,
            HookKind::CountCall => gated | levels | kind::COUNTED,
            HookKind::CountTree => gated | levels | kind::FILTER | kind::COUNTED,
            HookKind::JudgeTree => gated | levels | kind::FILTER | kind::JUDGED,
        }
    }
}
