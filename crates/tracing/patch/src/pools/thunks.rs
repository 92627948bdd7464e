//! Thunks that are wanted, and the pool that holds them.

use super::hooks::{HookKind, HookOptions};
use crate::arch::Code;
use crate::values::Fetches;
use dioptra_filters::Probe;
use dioptra_tracelayout::message::thread::{THUNK_SIZE, kind};
use dioptra_tracelayout::message::{Observed, notified};
use iced_x86::IcedError;
use std::sync::Arc;
use thiserror::Error;

/// The code that a probe site's thunk goes on with.
#[derive(Clone, Debug)]
pub enum Body<A: Code> {
    /// The code at an address.
    At(u64),
    /// Displaced instructions, followed by the rest of the function.
    Displaced(A::Prologue),
    /// The function whose address is in the pointer at this address.
    Pointer(u64),
}

/// The work of a thunk.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// Traces the function with this id as its probe asks.
    Trace(u32, Probe),
    /// Reports a call to the runtime.
    Observe(Observed),
    /// Reports a call of the function with this id to the runtime. The end of the call is not seen.
    Tell(u32, Probe),
    /// Leads to the function at this address; the body is not called.
    Replace(u64),
}

/// A part of a function's code in a pool, of the size of a thunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThunkPart {
    /// A thunk with hooks of this kind.
    Thunk(HookKind),
    /// The number of the function's sampling slot, which follows a thunk.
    Slot,
    /// The numbers behind the thunk of a function that is judged.
    JudgeNumbers,
}

impl ThunkPart {
    /// Returns the parts of a probe's code, and the number of the thunk that leaves all choices to the runtime. Where
    /// values are recorded, the numbers of the function's values are in the part behind a thunk.
    pub fn all(probe: Probe, with_values: bool) -> (&'static [ThunkPart], u64) {
        use HookKind::{Chosen, CountCall, CountTree, Filter, JudgeTree, Mute, Record, Timed};
        use ThunkPart::{JudgeNumbers, Slot, Thunk};
        match probe {
            Probe::Skip | Probe::Record if with_values => (&[Thunk(Record), Slot], 0),
            Probe::Timed if with_values => (&[Thunk(Timed), Slot], 0),
            Probe::Filter if with_values => (&[Thunk(Filter), Slot], 0),
            Probe::Skip | Probe::Record => (&[Thunk(Record)], 0),
            Probe::Timed => (&[Thunk(Timed)], 0),
            Probe::Mute => (&[Thunk(Mute)], 0),
            Probe::Filter => (&[Thunk(Filter)], 0),
            // Chosen calls, counted calls; and calls that are not chosen.
            Probe::Sample(_) => (&[Thunk(Record), Slot, Thunk(CountCall), Slot], 2),
            Probe::SampleFilter(_) => (
                &[Thunk(Chosen), Slot, Thunk(CountTree), Slot, Thunk(Mute)],
                2,
            ),
            // Calls within an execution, executions that are judged.
            Probe::JudgeFilter(_) => (&[Thunk(Filter), Thunk(JudgeTree), JudgeNumbers], 1),
        }
    }
}

impl Work {
    /// Returns the operand of a thunk that reports calls to the runtime; `None` for other thunks, and for ids that do
    /// not fit.
    pub fn told(self, options: &HookOptions) -> Option<u32> {
        match self {
            Work::Observe(function) => Some(function as u32),
            Work::Tell(id, probe) => {
                let bits = HookKind::of(probe).bits(options);
                let bit = |asked, bit| if bits & asked != 0 { bit } else { 0 };
                let flags = bit(kind::GATED, notified::GATED) | bit(kind::FILTER, notified::FILTER);
                (id <= notified::ID).then_some(notified::MARK | flags | id)
            }
            _ => None,
        }
    }

    /// Returns whether executions are chosen or judged.
    pub fn is_sampled(self) -> bool {
        matches!(self, Work::Trace(_, probe) if probe.sampling().is_some())
    }
}

impl<A: Code> ThunkRequest<A> {
    /// Returns the number of thunks that the work takes, and the number of the one that calls come to unless code in
    /// front of the thunks decides. The list of a function's values takes the place of thunks, too.
    pub fn thunks(&self) -> (u64, u64) {
        match self.work {
            Work::Trace(_, probe) => {
                let (parts, first) = ThunkPart::all(probe, self.values.is_some());
                let list = self.values.as_ref().map_or(0, |values| values.list_size());
                let lists = list.div_ceil(THUNK_SIZE as usize);
                ((parts.len() + lists) as u64, first)
            }
            _ => (1, 0),
        }
    }
}

/// A thunk to be made.
#[derive(Clone, Debug)]
pub struct ThunkRequest<A: Code> {
    /// The work of the thunk.
    pub work: Work,
    /// The code that the thunk goes on with.
    pub body: Body<A>,
    /// Whether the function surely calls nothing.
    pub is_leaf: bool,
    /// The values that are recorded with calls of a traced function.
    pub values: Option<Arc<Fetches>>,
    /// Addresses of instructions that call the function. Where a later thunk displaces one of them, the copy calls this
    /// thunk.
    pub places: Vec<u64>,
}

/// The reason why a pool could not be made.
#[derive(Debug, Error)]
pub enum PoolError {
    /// The hooks could not be assembled.
    #[error("generating the tracer's hooks: {0}")]
    Hooks(#[from] IcedError),
    /// The unwind tables could not be written.
    #[error("generating the tracer's unwind tables: {0}")]
    Tables(#[from] gimli::write::Error),
    /// The file could not be written.
    #[error("generating the tracer's file: {0}")]
    File(#[from] object::write::Error),
    /// The runtime's thread-local memory lies too far from the thread pointer.
    #[error("generating the tracer's hooks: the program has too much thread-local memory")]
    Block,
    /// The hooks are larger than expected.
    #[error("generating the tracer's hooks: they are not as large as they should be")]
    Size,
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
