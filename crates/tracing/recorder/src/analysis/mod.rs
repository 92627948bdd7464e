//! The analysis of a module: which of its functions can be patched, and where.
//!
//! [`prepare`] analyses each file once. [`partial_file`] and [`module_file`] read it. `dioptra_trace_patch` finds its
//! functions. Some modules are [`left_alone`] as a whole.

pub mod left_alone;
pub mod module_file;
pub mod partial_file;
pub mod prepare;
