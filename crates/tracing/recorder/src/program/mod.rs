//! The programs that are executed: the command's own, and those that traced processes execute.
//!
//! [`executable`] finds the command's file and checks it before anything is started. [`runtime_file`] writes the
//! runtime to where the dynamic linker can load it from. [`untraced`] finds the reason why the runtime is not loaded
//! into a program, and [`execs`] counts the executed programs that never connected.

pub mod execs;
pub mod executable;
pub mod runtime_file;
pub mod untraced;
