//! Tracepoints, as tracefs lists them.

use std::io;
use std::path::{Path, PathBuf};

/// Where tracefs may be mounted.
const MOUNTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Returns the directory of tracepoints, or the reason for which none can be read: `NotFound` where tracefs is not mounted,
/// `PermissionDenied` for users other than root.
///
/// # Errors
/// `NotFound` and `PermissionDenied`, as above.
pub fn directory() -> io::Result<PathBuf> {
    let mut error = io::Error::from(io::ErrorKind::NotFound);
    for mount in MOUNTS {
        let events = Path::new(mount).join("events");
        match std::fs::read_dir(&events) {
            Ok(_) => return Ok(events),
            Err(why) if why.kind() == io::ErrorKind::PermissionDenied => error = why,
            Err(_) => {}
        }
    }
    Err(error)
}

/// Returns the number of the tracepoint `system:name`, which is an event's `config`.
///
/// # Errors
/// `NotFound` for no such tracepoint or no tracefs, `PermissionDenied` without the right to read it.
pub fn config(system: &str, name: &str) -> io::Result<u64> {
    let plain = |part: &str| !part.is_empty() && !part.contains('/') && !part.starts_with('.');
    if !plain(system) || !plain(name) {
        return Err(io::ErrorKind::NotFound.into());
    }
    let text = std::fs::read_to_string(directory()?.join(system).join(name).join("id"))?;
    text.trim()
        .parse()
        .map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Lists all tracepoints as `system:name`, sorted; none where tracefs can't be read.
pub fn all() -> Vec<String> {
    let mut names = Vec::new();
    let subdirectories = |path: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        directories
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect()
    };
    let Ok(events) = directory() else {
        return names;
    };
    for system in subdirectories(&events) {
        // These are controls of ftrace, which perf_event_open refuses.
        if system == "ftrace" {
            continue;
        }
        for name in subdirectories(&events.join(&system)) {
            if events.join(&system).join(&name).join("id").exists() {
                names.push(format!("{system}:{name}"));
            }
        }
    }
    names.sort_unstable();
    names
}
