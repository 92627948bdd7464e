//! Thunks that are wanted, and the pool that holds them.

use super::hooks::{HookKind, HookOptions};
use crate::arch::Prologue;
use dioptra_filters::Sampling;
use dioptra_tracelayout::message::thread::kind;
use dioptra_tracelayout::message::{Observed, notified};

/// The code that a probe site's thunk goes on with.
#[derive(Clone, Debug)]
pub enum Body {
    /// The code at an address.
    At(u64),
    /// Displaced instructions, followed by the rest of the function.
    Displaced(Prologue),
    /// The function whose address is in the pointer at this address.
    Pointer(u64),
}

/// The work of a thunk.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// Traces the function with this id, with hooks of this kind.
    Trace(u32, HookKind),
    /// Traces the chosen calls of the function with this id, with hooks of this kind. Chosen calls of a filter
    /// ([`HookKind::Chosen`]) are traced together with the calls below them.
    Sample(u32, HookKind, Sampling),
    /// Traces all calls of the function with this id and the calls below them, and judges each call at its end.
    Judge(u32, Sampling),
    /// Reports a call to the runtime.
    Observe(Observed),
    /// Reports a call of the function with this id to the runtime, with hooks of this kind. The end of the call is not
    /// seen.
    Tell(u32, HookKind),
    /// Leads to the function at this address; the body is not called.
    Replace(u64),
}

impl Work {
    /// Returns the operand of a thunk that reports calls to the runtime; `None` for other thunks, and for ids that do
    /// not fit.
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

    /// Returns the number of thunks that the work takes. The numbers behind a thunk count as a thunk, too.
    pub fn thunks(self) -> u64 {
        match self {
            // A thunk for chosen calls and one for calls that the runtime counts, each followed by the slot; and a
            // muting thunk.
            Work::Sample(_, HookKind::Chosen, _) => 5,
            Work::Sample(..) => 4,
            // A thunk for calls within an execution, a thunk for executions that are judged, and the numbers behind it.
            Work::Judge(..) => 3,
            _ => 1,
        }
    }
}

/// A thunk to be made.
#[derive(Clone, Debug)]
pub struct ThunkRequest {
    /// The work of the thunk.
    pub work: Work,
    /// The code that the thunk goes on with.
    pub body: Body,
    /// Whether the function surely calls nothing.
    pub is_leaf: bool,
    /// Addresses of instructions that call the function. Where a later thunk displaces one of them, the copy calls this
    /// thunk.
    pub places: Vec<u64>,
}

/// A finished pool.
#[derive(Debug)]
pub struct Pool {
    /// The bytes of the pool's file.
    pub file: Vec<u8>,
    /// The size of the pool in memory, in bytes.
    pub size: u64,
    /// The address to which each site jumps: the thunk, or a gate or stub in front of it. `None` if the body is out of
    /// reach.
    pub thunks: Vec<Option<u64>>,
}
