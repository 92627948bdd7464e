//! Processes as a recorder needs them: a command that is held until it may run, the files of `/proc`, and signals.

pub mod command;
pub mod procfs;
pub mod signals;
