//! Selections of a loaded profile: a range of time, threads or CPUs, counted again from memory.

pub(crate) mod bins;
pub(crate) mod sample_log;
pub(crate) mod selection;
pub(crate) mod through;
