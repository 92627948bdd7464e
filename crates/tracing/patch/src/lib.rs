//! Which functions of a module can be traced, and the code that runs for their calls.
//!
//! The crate is pure: bytes go in (an ELF file, and what rules want of each function), and values come out (candidates,
//! refusals, and the pool with hooks, thunks and unwind tables). It makes no system call and opens no file. A scan may
//! share its work among threads.
//!
//! - [`Arch`] is a processor, and a folder of `arch` has all code for one: [`X86_64`] and [`Aarch64`]. All are always
//!   compiled, tested and fuzzed.
//! - `analysis` finds the functions of a module as [`Candidate`]s, or a [`Refused`] for each that can't be patched.
//! - `pools` makes the [`Pool`]: an ELF file with the hooks and thunks of a module, to be loaded near it.

mod analysis;
mod arch;
mod pools;
mod values;

pub use analysis::candidates::{
    Candidate, CandidateBody, ImportSite, ImportUse, ModuleCode, ScanOptions,
};
pub use analysis::image::{Segment, segments};
pub use analysis::observed::{FunctionHook, HookWork, has_hooks, hooked_code};
pub use analysis::refusal::Refused;
pub use analysis::sanitizers::{
    is_hidden as has_hidden_sanitizer, is_library as is_sanitizers_library,
};
pub use analysis::special::seeks_generated_code;
pub use arch::{Aarch64, Arch, Code, Prologue, Registers, X86_64};
pub use pools::hooks::{HookKind, HookOptions};
pub use pools::thunks::{Body, Pool, PoolError, ThunkRequest, Work};
pub use pools::unwinding::finds_frames_by_stack_pointer;
pub use values::Fetches;
