//! The environment variables with which the command starts.

use dioptra_tracelayout::message::ASAN_LAST;
use std::ffi::OsString;

/// Returns the value of `ASAN_OPTIONS` for the command: the user's own, and the option that lets the tracer be loaded
/// before the sanitizer.
pub fn sanitizer_options() -> OsString {
    let mut options = std::env::var_os("ASAN_OPTIONS").unwrap_or_default();
    if !options.is_empty() {
        options.push(":");
    }
    options.push(ASAN_LAST);
    options
}

/// Returns the number of system call filters (seccomp) under which this process runs, and each program that it
/// executes.
pub fn own_filters() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    // Kernels before 5.9 do not count them.
    let mode: u32 = number("Seccomp:").unwrap_or(0);
    number("Seccomp_filters:").unwrap_or(u32::from(mode == 2))
}
