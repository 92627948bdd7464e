//! Descriptions of tracepoints, without which perf cannot open a recording that has some.
//!
//! The content is the same as perf and trace-cmd write: the kernel's own format files, one after the other. Source:
//! `trace-cmd.dat.v6(5)`; perf's variant states version 0.6 and needs no list of kernel symbols.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The folders at which the tracing file system is mounted: today, and on older systems.
const MOUNTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

const MAGIC: &[u8] = b"\x17\x08Dtracing0.6\0";

/// Describes the tracepoints of these ids, as the kernel numbers them.
///
/// # Errors
/// If the tracing file system is not mounted, or this user may not read it.
pub fn describe(ids: &BTreeSet<u64>) -> io::Result<Vec<u8>> {
    let mount = MOUNTS
        .map(PathBuf::from)
        .into_iter()
        .find(|mount| mount.join("events").is_dir());
    let mount = mount.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            "the tracing file system is not mounted",
        )
    })?;
    describe_in(&mount, ids)
}

fn describe_in(mount: &Path, ids: &BTreeSet<u64>) -> io::Result<Vec<u8>> {
    let events = mount.join("events");
    let mut out = MAGIC.to_vec();
    out.push(u8::from(cfg!(target_endian = "big")));
    out.push(size_of::<libc::c_long>() as u8);
    out.extend(page_size().to_ne_bytes());
    for name in ["header_page", "header_event"] {
        out.extend(name.as_bytes());
        out.push(0);
        put_file(&mut out, &read(&events.join(name))?);
    }
    // There are no format files of the kernel's own record types (ftrace), which perf does without.
    put_count(&mut out, 0);
    let systems = find(&events, ids)?;
    put_count(&mut out, systems.len());
    for (system, formats) in systems {
        out.extend(system.as_bytes());
        out.push(0);
        put_count(&mut out, formats.len());
        for format in formats {
            put_file(&mut out, &read(&format)?);
        }
    }
    // There are no kernel symbols, but the texts to which printk's tracepoints refer by address.
    put_count(&mut out, 0);
    let texts = read(&mount.join("printk_formats")).unwrap_or_default();
    put_count(&mut out, texts.len());
    out.extend(texts);
    // There are no names of threads, since the recording has its own.
    out.extend(0_u64.to_ne_bytes());
    Ok(out)
}

/// Returns the format files of the events with these ids, by system.
fn find(events: &Path, ids: &BTreeSet<u64>) -> io::Result<BTreeMap<OsString, Vec<PathBuf>>> {
    let mut systems: BTreeMap<OsString, Vec<PathBuf>> = BTreeMap::new();
    for system in fs::read_dir(events)? {
        let system = system?;
        // Control files lie among the folders.
        let Ok(events) = fs::read_dir(system.path()) else {
            continue;
        };
        for event in events {
            let event = event?.path();
            let id = fs::read_to_string(event.join("id"))
                .ok()
                .and_then(|id| id.trim().parse().ok());
            if id.is_some_and(|id| ids.contains(&id)) {
                systems
                    .entry(system.file_name())
                    .or_default()
                    .push(event.join("format"));
            }
        }
    }
    Ok(systems)
}

/// Reads a file of the tracing file system in large pieces: some files give all that fits the first piece, and no
/// second one.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let mut bytes = Vec::new();
    let mut piece = vec![0; 1 << 16];
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok(bytes),
            Ok(length) => bytes.extend_from_slice(&piece[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn put_file(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u64).to_ne_bytes());
    out.extend(bytes);
}

/// Appends a count or size. The kernel's are far below 32 bits.
fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend(u32::try_from(count).unwrap_or(u32::MAX).to_ne_bytes());
}

fn page_size() -> u32 {
    u32::try_from(rustix::param::page_size()).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_follow_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("events/header_page", "page");
        put("events/header_event", "event");
        put("events/sched/sched_switch/id", "7\n");
        put("events/sched/sched_switch/format", "name: sched_switch");
        put("events/sched/sched_wakeup/id", "8\n");
        put("events/sched/sched_wakeup/format", "name: sched_wakeup");
        put("events/sched/enable", "0");
        put("printk_formats", "texts");
        let bytes = describe_in(folder.path(), &BTreeSet::from([7, 99])).unwrap();
        let mut expected = MAGIC.to_vec();
        expected.extend([
            u8::from(cfg!(target_endian = "big")),
            size_of::<libc::c_long>() as u8,
        ]);
        expected.extend(page_size().to_ne_bytes());
        expected.extend(b"header_page\0");
        expected.extend(4_u64.to_ne_bytes());
        expected.extend(b"page");
        expected.extend(b"header_event\0");
        expected.extend(5_u64.to_ne_bytes());
        expected.extend(b"event");
        expected.extend([0; 4]);
        expected.extend(1_u32.to_ne_bytes());
        expected.extend(b"sched\0");
        expected.extend(1_u32.to_ne_bytes());
        expected.extend(18_u64.to_ne_bytes());
        expected.extend(b"name: sched_switch");
        expected.extend([0; 4]);
        expected.extend(5_u32.to_ne_bytes());
        expected.extend(b"texts");
        expected.extend([0; 8]);
        assert_eq!(bytes, expected);
    }
}
