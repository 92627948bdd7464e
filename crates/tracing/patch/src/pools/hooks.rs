//! The kinds of hooks, and the options that all hooks of a recording share.

use crate::values::Fetches;
use dioptra_filters::Probe;
use dioptra_tracelayout::message::RuntimeAddresses;
use dioptra_tracelayout::message::thread::{BLOCK_HIDDEN, BLOCK_MUTED, kind};
use dioptra_tracelayout::values::{Fetch, RETURN_REGISTER};
use gimli::write::CallFrameInstruction;

/// The options of a recording that change the code of its hooks.
#[derive(Clone, Copy, Debug, Default)]
pub struct HookOptions {
    /// The number of low bits that the clock's readings lose.
    pub shift: u32,
    /// Whether calls may be hidden by their place on the stack ([`kind`]).
    pub hides: bool,
    /// The number of levels of calls that are recorded; `None` if all are.
    pub levels: Option<u16>,
    /// The duration in shifted ticks below which the records of a timed call are taken back.
    pub at_least: Option<u64>,
    /// Whether calls of some functions are counted, and not all of them recorded.
    pub samples: bool,
    /// Whether times come from another clock than the processor's counter. Then the runtime keeps rates.
    pub other_clock: bool,
    /// Whether executions that are judged and not kept are marked rather than taken back.
    pub marks: bool,
    /// Whether values of some functions' calls are recorded.
    pub values: bool,
}

/// The kind of the hooks of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookKind {
    /// The call is recorded.
    Record,
    /// The call is recorded, and taken back if it was too short.
    Timed,
    /// The call and the calls below it are recorded.
    Filter,
    /// Neither the call nor the calls below it are recorded.
    Mute,
    /// The call is a chosen execution of a sampled filter. The call and the calls below it are recorded.
    Chosen,
    /// The runtime counts the call, and records it if it is chosen.
    CountCall,
    /// The runtime counts the call. It records the call and the calls below it, or hides all of them.
    CountTree,
    /// The call and the calls below it are recorded, and judged when the call ends.
    JudgeTree,
}

impl HookKind {
    /// All kinds.
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
    /// The number of kinds that a recording without sampling needs, the first ones of [`HookKind::ALL`].
    pub const UNSAMPLED: usize = 4;

    /// Returns the hooks to which calls of a probe come first.
    pub fn of(probe: Probe) -> HookKind {
        match probe {
            Probe::Skip | Probe::Record => HookKind::Record,
            Probe::Timed => HookKind::Timed,
            Probe::Mute => HookKind::Mute,
            Probe::Filter => HookKind::Filter,
            Probe::Sample(_) => HookKind::CountCall,
            Probe::SampleFilter(_) => HookKind::CountTree,
            Probe::JudgeFilter(_) => HookKind::JudgeTree,
        }
    }

    /// Returns whether the runtime does all the work.
    pub fn is_counted(self) -> bool {
        matches!(self, HookKind::CountCall | HookKind::CountTree)
    }

    /// Returns the word of the thread's block below whose address calls are hidden.
    pub fn gate(self) -> i64 {
        match self {
            HookKind::Record | HookKind::Timed | HookKind::CountCall => BLOCK_HIDDEN,
            _ => BLOCK_MUTED,
        }
    }

    /// Returns whether the hook of an entry saves the words of the thread's block that hide calls.
    pub fn saves(self, options: &HookOptions) -> bool {
        matches!(
            self,
            HookKind::Mute | HookKind::Filter | HookKind::Chosen | HookKind::JudgeTree
        ) || options.levels.is_some()
    }

    /// Returns the bits of [`kind`] that state the hook's duties to the runtime.
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

/// The parameters of the hooks' code.
#[derive(Clone, Copy, Debug)]
pub struct Parameters {
    /// The address at which the code will lie.
    pub address: u64,
    /// The addresses in the traced process that the code refers to.
    pub runtime: RuntimeAddresses,
    /// The first address of the pool's thunks, and the first address behind them. A return address there belongs to a
    /// traced function that ended in a jump.
    pub thunks: (u64, u64),
    /// The options of the hooks.
    pub options: HookOptions,
}

/// The part of a call at which a hook works.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The entry of a function whose id fits 16 bits. The operand is the id shifted left by 16.
    Enter,
    /// The entry of a function with a larger id. The operand is the id itself, whose lower 16 bits are not 0.
    EnterLarge,
    /// The exit.
    Exit,
}

/// The hooks of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct HookSet {
    /// The address of the hook for [`Part::Enter`].
    pub enter: u64,
    /// The address of the hook for [`Part::EnterLarge`].
    pub enter_large: u64,
    /// The address of the hook for exits.
    pub exit: u64,
}

impl HookSet {
    /// Returns the address of the hook of an entry for a function id.
    pub fn enter_for(&self, id: u32) -> u64 {
        if id <= 0xffff {
            self.enter
        } else {
            self.enter_large
        }
    }
}

/// A hook's code, as far as unwinders have to know it.
#[derive(Clone, Debug)]
pub struct Hook {
    /// The address of the first byte.
    pub start: u64,
    /// The address of the first byte behind the hook.
    pub end: u64,
    /// The rows of the unwind tables behind the first one, by offset.
    pub rows: Vec<(u32, CallFrameInstruction)>,
}

/// The code of the hooks, and the addresses of its parts.
#[derive(Clone, Debug)]
pub struct HotCode {
    /// The bytes, to be placed at [`Parameters::address`].
    pub bytes: Vec<u8>,
    /// The hooks by [`HookKind`].
    pub sets: [HookSet; HookKind::ALL.len()],
    /// The hooks for functions whose values are recorded.
    pub values: ValueHooks,
    /// All hooks.
    pub hooks: Vec<Hook>,
    /// The address of code that leads to the runtime's function that observes calls.
    pub observe: u64,
}

/// The hooks for functions whose values are recorded. All addresses are 0 if there are none.
#[derive(Clone, Copy, Debug, Default)]
pub struct ValueHooks {
    /// The hooks that leave a call with values to the runtime, by [`HookKind`].
    pub slow: [HookSet; HookKind::ALL.len()],
    /// The hooks of [`HookKind::Record`] that record registers by themselves.
    pub fast: HookSet,
}

impl HotCode {
    /// Returns the hooks of a kind.
    pub fn set(&self, kind: HookKind) -> HookSet {
        self.sets[kind as usize]
    }

    /// Returns the hooks of a kind for a function whose values are recorded.
    pub fn with_values(&self, kind: HookKind, values: &Fetches) -> HookSet {
        let plain = self.set(kind);
        if kind.is_counted() || kind == HookKind::Mute {
            return plain;
        }
        let (fast, slow) = (self.values.fast, self.values.slow[kind as usize]);
        let is_fast = kind == HookKind::Record;
        let entry = match values.registers() {
            _ if values.entry.is_empty() => plain,
            Some(_) if is_fast => fast,
            _ => slow,
        };
        let exit = match values.exit.as_slice() {
            [] => plain,
            [fetch] if is_fast && *fetch == Fetch::word(RETURN_REGISTER) => fast,
            _ => slow,
        };
        HookSet {
            exit: exit.exit,
            ..entry
        }
    }
}
