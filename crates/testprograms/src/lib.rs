//! Builds the programs under `tests/programs` whose counts are known by construction, and answers what tests
//! ask of the machine they run on: is there a `perf`, may we sample, who are we.
//!
//! A test that the machine cannot run says why and passes:
//!
//! ```no_run
//! use dioptra_testprograms::{self as programs, or_skip};
//!
//! fn shares_are_found() {
//!     or_skip!(programs::need_sampling());
//!     let shares = or_skip!(programs::c("shares", &[]));
//!     let perf = or_skip!(programs::need_tool("perf"));
//!     // …
//! }
//! ```
//!
//! With `DIOPTRA_NO_SKIP=1` in the environment a skip is a failure, except for a [`Limit`] that the machine has.

mod build;
mod limit;
mod machine;
mod npm;
mod perf;
mod python;
mod skip;

pub use build::{KERNEL_LINKED, Language, Program, c, cpp, kernel, rust, shared_library};
pub use limit::Limit;
pub use machine::{
    as_nobody, is_root, need_root, need_sampling, need_shared_data, need_tool, paranoid,
    repository_root, send_signal, shared_data, tool,
};
pub use npm::npm_package;
pub use perf::{Recorded, perf_record};
pub use python::python_with;
pub use skip::{NO_SKIP, SKIPS_FILE, Skip, output_of, skip, skips_are_forbidden};
