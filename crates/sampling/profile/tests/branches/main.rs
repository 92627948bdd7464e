//! Branch stacks, checked against exact traces of a program and against perf.

#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod recorded;
mod recording;
#[path = "../support/mod.rs"]
mod support;
mod synthetic;
mod trace;
mod traced;
