//! Descriptions of tracepoints, without which perf refuses a recording of their events.
//!
//! Source: the man page `trace-cmd.dat.v6(5)`, whose header perf's TRACING_DATA is.

use std::fs;
use std::io;
use std::path::Path;

/// The first bytes, and the version.
const MAGIC: &[u8] = b"\x17\x08\x44tracing0.6\0";

/// Describes tracepoints for [`crate::FeaturesToWrite::tracing_data`].
///
/// `tracefs` is where the kernel's tracing files are (`/sys/kernel/tracing`). `names` are events' names,
/// `system:name` with or without modifiers behind; those that name no tracepoint are left out.
///
/// # Errors
/// Where the files cannot be read: they are root's on most machines.
pub fn tracing_data<S: AsRef<str>>(tracefs: &Path, names: &[S]) -> io::Result<Vec<u8>> {
    let events = tracefs.join("events");
    let mut data = MAGIC.to_vec();
    data.push(u8::from(cfg!(target_endian = "big")));
    data.push(size_of::<std::ffi::c_long>() as u8);
    data.extend(page_size().to_ne_bytes());
    for header in ["header_page", "header_event"] {
        data.extend(header.as_bytes());
        data.push(0);
        put(&mut data, &fs::read(events.join(header))?);
    }
    // No formats of ftrace's own records: perf.data holds none of them.
    data.extend(0_u32.to_ne_bytes());
    let mut wanted: Vec<(&str, &str)> = names
        .iter()
        .filter_map(|name| tracepoint(name.as_ref()))
        .filter(|(system, name)| events.join(system).join(name).join("format").exists())
        .collect();
    wanted.sort_unstable();
    wanted.dedup();
    let systems: Vec<_> = wanted.chunk_by(|a, b| a.0 == b.0).collect();
    put_count(&mut data, systems.len());
    for system in systems {
        let [(name, _), ..] = system else { continue };
        data.extend(name.as_bytes());
        data.push(0);
        put_count(&mut data, system.len());
        for (system, name) in system {
            let format = events.join(system).join(name).join("format");
            put(&mut data, &fs::read(format)?);
        }
    }
    // Kernel symbols come from elsewhere; texts of printk are there for what prints by address.
    data.extend(0_u32.to_ne_bytes());
    let formats = fs::read(tracefs.join("printk_formats")).unwrap_or_default();
    put_count(&mut data, formats.len());
    data.extend(formats);
    // No names of threads either: COMM records tell them.
    data.extend(0_u64.to_ne_bytes());
    Ok(data)
}

/// The system and name in an event's name; nothing in them leads out of the folder of events.
fn tracepoint(name: &str) -> Option<(&str, &str)> {
    let mut parts = name.split(':');
    let (system, name) = (parts.next()?, parts.next()?);
    let plain = |part: &str| {
        let letter = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
        !part.is_empty() && !part.starts_with('.') && part.chars().all(letter)
    };
    (plain(system) && plain(name)).then_some((system, name))
}

/// A file's content, with its length before it.
fn put(data: &mut Vec<u8>, content: &[u8]) {
    data.extend((content.len() as u64).to_ne_bytes());
    data.extend(content);
}

/// A count or length; none of them comes near to what does not fit.
fn put_count(data: &mut Vec<u8>, count: usize) {
    data.extend(u32::try_from(count).unwrap_or(u32::MAX).to_ne_bytes());
}

/// Bytes of a page of memory.
fn page_size() -> u32 {
    // SAFETY: sysconf only reads its argument and returns a number.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u32::try_from(size).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tracepoints_are_described() {
        assert_eq!(
            tracepoint("sched:sched_switch:u"),
            Some(("sched", "sched_switch"))
        );
        assert_eq!(tracepoint("cpu-clock"), None);
        assert_eq!(tracepoint("../x:y"), None);
        assert_eq!(tracepoint("a:../y"), None);
        assert_eq!(tracepoint("a:"), None);
    }
}
