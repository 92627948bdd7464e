//! Starts or attaches to targets and writes what they did to a perf.data file.

pub mod command;
pub mod existing;
pub mod kernel;
pub mod machine;
pub mod procfs;
pub mod sample_options;
pub mod signals;
