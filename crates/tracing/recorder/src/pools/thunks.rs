//! Thunks that are wanted, and the pool that holds them.

use super::hooks::{HookKind, HookOptions};
use crate::arch::Prologue;
use dioptra_filters::Sampling;
use dioptra_tracelayout::message::thread::kind;
use dioptra_tracelayout::message::{Observed, notified};

/// What a probe site's thunk goes on with.
#[derive(Clone, Debug)]
pub enum Body {
    /// The code at an address.
    At(u64),
    /// Displaced instructions, and then the rest of the function.
    Displaced(Prologue),
    /// What the pointer at an address leads to.
    Pointer(u64),
}

/// What a thunk does.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// It traces the function with this id, with hooks of this kind.
    Trace(u32, HookKind),
    /// It traces chosen calls of the function with this id, with hooks of this kind; those of a filter
    /// ([`HookKind::Chosen`]) with what they call.
    Sample(u32, HookKind, Sampling),
    /// It traces calls of the function with this id, with what they call; they are judged at their ends.
    Judge(u32, Sampling),
    /// It tells the runtime of a call.
    Observe(Observed),
    /// It tells the runtime of a call of the function with this id, of which the end is not seen; hooks of this kind.
    Tell(u32, HookKind),
    /// It leads to another function, and the body is not called.
    Replace(u64),
}

impl Work {
    /// Returns the operand of the thunk that tells the runtime of a call; `None` if it does not tell.
    pub fn told(self, options: &HookOptions) -> Option<u32> {
        match self {
            Work::Observe(function) => Some(function as u32),
            Work::Tell(id, kind) => {
                let bits = kind.bits(options);
                let bit = |asked, bit| if bits & asked != 0 { bit } else { 0 };
                let flags = bit(kind::GATED, notified::GATED) | bit(kind::FILTER, notified::FILTER);
                (id <= notified::ID).then_some(notified::MARK | flags | id)
            }
            _ => None,
        }
    }

    /// How many thunks it takes, those that hold a slot's number behind others included.
    pub fn thunks(self) -> u64 {
        match self {
            // What is chosen, and what the runtime counts, each followed by the slot; and what is muted.
            Work::Sample(_, HookKind::Chosen, _) => 5,
            Work::Sample(..) => 4,
            // What belongs to an execution around it; what is judged, followed by its numbers.
            Work::Judge(..) => 3,
            _ => 1,
        }
    }
}

/// A thunk that is wanted.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// What it does.
    pub work: Work,
    /// What it calls.
    pub body: Body,
    /// The function surely calls nothing.
    pub is_leaf: bool,
    /// Places from which it is called: those of them that are displaced behind this one call it, too.
    pub places: Vec<u64>,
}

/// A pool.
#[derive(Debug)]
pub struct Pool {
    /// The file.
    pub file: Vec<u8>,
    /// Its size in memory.
    pub size: u64,
    /// Where the sites jump to: the thunks' addresses or those of gates in front of them; `None` where the body could not be reached.
    pub thunks: Vec<Option<u64>>,
}
