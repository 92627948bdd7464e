//! The collection of records: from the memory that traced processes fill to the trace directory.
//!
//! [`arena_memory`] is that memory. It belongs to the recorder, so that nothing is lost when a traced process is
//! killed. [`collector`] writes the full chunks. [`clock`] is the clock of the records. [`counters`] and [`overhead`]
//! count and steer sampled functions, and [`scheduling`] adds the context switches that the kernel reports.

pub mod arena_memory;
pub mod clock;
pub mod collector;
pub mod counters;
pub mod overhead;
pub mod scheduling;
