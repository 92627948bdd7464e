//! Function tracing: starts a command with the runtime preloaded, and writes its calls to a trace directory.
//!
//! [`record`] does everything. The folders tell the story of a trace in its order:
//!
//! - `recording`: one recording from its beginning to its end, its options and its outcome;
//! - `program`: the programs that are executed, and the reasons why some are not traced;
//! - `selection`: the functions that the user wants;
//! - `analysis`: the modules, read and analysed once each;
//! - `processor`: the processor of this machine, for which `dioptra_trace_patch` makes the code that runs for a call;
//! - `attaching`: running processes, to which the recorder attaches and from which it detaches;
//! - `serving`: the service that tells a traced process which pools to load and which patches to write;
//! - `collecting`: the memory that traced processes fill, and the thread that writes it to the trace directory.

mod analysis;
mod attaching;
mod collecting;
mod processor;
mod program;
mod recording;
mod selection;
mod serving;

pub use analysis::left_alone::{LeftAlone, Unread};
pub use attaching::AttachError;
pub use collecting::clock::TraceClock;
pub use program::untraced::UntracedReason;
pub use recording::host::host;
pub use recording::memory_budget::default_memory;
pub use recording::notes::{PartLimit, TraceNote};
pub use recording::outcome::{TraceError, TraceOutcome};
pub use recording::record;
pub use recording::spec::{AfterStart, BeforeStart, OnFull, TraceSpec};
pub use selection::patterns::{PatchError, PatchPatterns};
pub use selection::rules::{Choice, LibraryCalls, RuleError, RuleSelector};
pub use selection::selector::{Everything, FunctionPlace, Gating, ModuleIdentity, Selector};
pub use selection::warnings::{SelectionWarning, UnpatchedFunction};
pub use serving::debugged::BreakpointTrouble;
pub use serving::greeting::{GreetingFault, PeerRefusal};
pub use serving::patching::PatchObstacle;
pub use serving::server::FailedStep;
