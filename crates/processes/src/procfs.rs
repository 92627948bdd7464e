//! Processes and threads that exist already, as `/proc` lists them.
//!
//! Everything here may vanish between two reads. A process that is gone gives `None` or an empty list, never an
//! error: its end is in the recording, since events are opened before `/proc` is read.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// An executable mapping, a line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapsLine {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// `PROT_*`.
    pub protection: u32,
    /// `MAP_SHARED` or `MAP_PRIVATE`.
    pub flags: u32,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Device, major and minor.
    pub device: (u32, u32),
    /// Inode, 0 without a file.
    pub inode: u64,
    /// Path, or a name in brackets, or `//anon` as the kernel's own records have it.
    pub name: Vec<u8>,
}

impl MapsLine {
    /// Whether code may run in it.
    pub fn is_executable(&self) -> bool {
        self.protection & libc::PROT_EXEC.unsigned_abs() != 0
    }
}

/// Process and parent of a task, from `/proc/TID/status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parents {
    /// Process id (thread group).
    pub pid: u32,
    /// The parent's process id.
    pub parent: u32,
}

/// All processes, in the order of their ids.
///
/// # Errors
/// If `/proc` can't be listed: it isn't mounted.
pub fn processes() -> io::Result<Vec<u32>> {
    Ok(numbers(fs::read_dir("/proc")?))
}

/// The threads of a process, in the order of their ids; empty if it is gone.
pub fn threads(pid: u32) -> Vec<u32> {
    fs::read_dir(format!("/proc/{pid}/task"))
        .map(numbers)
        .unwrap_or_default()
}

fn numbers(folder: fs::ReadDir) -> Vec<u32> {
    let mut all: Vec<u32> = folder
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    all.sort_unstable();
    all
}

/// The process and parent of a task, a process or a thread; `None` if it is gone.
pub fn parents(tid: u32) -> Option<Parents> {
    parse_parents(&fs::read(format!("/proc/{tid}/status")).ok()?)
}

fn parse_parents(status: &[u8]) -> Option<Parents> {
    let field = |name: &[u8]| {
        let line = status
            .split(|byte| *byte == b'\n')
            .find_map(|line| line.strip_prefix(name))?;
        str::from_utf8(line).ok()?.trim().parse().ok()
    };
    Some(Parents {
        pid: field(b"Tgid:")?,
        parent: field(b"PPid:")?,
    })
}

/// When a process began, in clock ticks since the machine did; `None` if it is gone.
pub fn started(pid: u32) -> Option<u64> {
    parse_started(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_started(stat: &[u8]) -> Option<u64> {
    // The name, the second field, is in parentheses and may hold some.
    let name_ends = stat.iter().rposition(|byte| *byte == b')')?;
    let mut fields = stat.get(name_ends + 1..)?.split(|byte| *byte == b' ');
    str::from_utf8(fields.nth(20)?).ok()?.parse().ok()
}

/// Whether a process is stopped, by a signal or a debugger.
pub fn is_stopped(pid: u32) -> bool {
    let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let name_ends = stat.iter().rposition(|byte| *byte == b')');
    let state = name_ends.and_then(|at| stat.get(at + 2));
    matches!(state, Some(b'T' | b't'))
}

/// The name of a thread; `None` if it is gone.
pub fn comm(pid: u32, tid: u32) -> Option<Vec<u8>> {
    let mut name = fs::read(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
    // The kernel ends it with a newline; a name may hold others.
    name.pop_if(|byte| *byte == b'\n');
    Some(name)
}

/// The mappings of a process, or only the executable ones; empty for kernel threads and processes that are gone.
pub fn maps(pid: u32, data_too: bool) -> Vec<MapsLine> {
    let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    parse_maps(&maps)
        .filter(|line| data_too || line.is_executable())
        .collect()
}

/// Parses the lines of a `maps` file; a line that is none is left out.
fn parse_maps(maps: &[u8]) -> impl Iterator<Item = MapsLine> {
    maps.split(|byte| *byte == b'\n')
        .filter_map(parse_maps_line)
}

/// `55d0c2a00000-55d0c2a02000 r-xp 00001000 fe:00 247497    /usr/bin/true`
fn parse_maps_line(line: &[u8]) -> Option<MapsLine> {
    let (range, rest) = word(line)?;
    let (access, rest) = word(rest)?;
    let (offset, rest) = word(rest)?;
    let (device, rest) = word(rest)?;
    let (inode, rest) = word(rest)?;
    let (start, end) = range.split_once('-')?;
    let (major, minor) = device.split_once(':')?;
    let access = access.as_bytes();
    let bit = |at: usize, letter: u8, value: i32| {
        if access.get(at) == Some(&letter) {
            value.unsigned_abs()
        } else {
            0
        }
    };
    let name = unescape(rest.trim_ascii_start());
    Some(MapsLine {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        protection: bit(0, b'r', libc::PROT_READ)
            | bit(1, b'w', libc::PROT_WRITE)
            | bit(2, b'x', libc::PROT_EXEC),
        flags: bit(3, b's', libc::MAP_SHARED) | bit(3, b'p', libc::MAP_PRIVATE),
        offset: u64::from_str_radix(offset, 16).ok()?,
        device: (
            u32::from_str_radix(major, 16).ok()?,
            u32::from_str_radix(minor, 16).ok()?,
        ),
        inode: inode.parse().ok()?,
        name: if name.is_empty() {
            b"//anon".to_vec()
        } else {
            name
        },
    })
}

/// Splits the next word off, which is text.
fn word(line: &[u8]) -> Option<(&str, &[u8])> {
    let line = line.trim_ascii_start();
    let end = line
        .iter()
        .position(|byte| *byte == b' ')
        .unwrap_or(line.len());
    let (word, rest) = line.split_at(end);
    (!word.is_empty()).then_some((str::from_utf8(word).ok()?, rest))
}

/// Undoes the one escape of `maps`: a newline in a path is `\012` there.
fn unescape(name: &[u8]) -> Vec<u8> {
    const NEWLINE: &[u8] = b"\\012";
    let mut plain = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((byte, after)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(NEWLINE) {
            plain.push(b'\n');
            rest = after;
        } else {
            plain.push(*byte);
            rest = after;
        }
    }
    plain
}

/// The path of a mapped file as this process can open it: the path itself, or the one through the root folder of
/// `pid`, which may live in another mount namespace.
pub fn path_for(pid: u32, name: &[u8]) -> [PathBuf; 2] {
    let path = Path::new(std::ffi::OsStr::from_bytes(name));
    let inside = path.strip_prefix("/").unwrap_or(path);
    [
        path.to_path_buf(),
        Path::new(&format!("/proc/{pid}/root")).join(inside),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_maps() {
        let line = b"7f1877d8b000-7f1877db1000 r-xp 00001000 fe:0a 325843                     /tmp/a b\\012c";
        let parsed = parse_maps_line(line).unwrap();
        assert_eq!(
            (parsed.start, parsed.end),
            (0x7f18_77d8_b000, 0x7f18_77db_1000)
        );
        assert_eq!((parsed.protection, parsed.flags), (5, 2));
        assert_eq!(
            (parsed.offset, parsed.device, parsed.inode),
            (0x1000, (0xfe, 10), 325_843)
        );
        assert_eq!(parsed.name, b"/tmp/a b\nc");
        let anonymous = parse_maps_line(b"7f00-7f01 rwxp 00000000 00:00 0 ").unwrap();
        assert_eq!(anonymous.name, b"//anon");
        for broken in [
            &b""[..],
            b"7f00",
            b"7f00-7f01 r-xp 0 00:00",
            b"x-y r-xp 0 0:0 0 n",
        ] {
            assert_eq!(parse_maps_line(broken), None);
        }
    }

    #[test]
    fn when_a_process_began() {
        let stat = b"7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 9 10";
        assert_eq!(parse_started(stat), Some(4711));
        assert_eq!(parse_started(b"7 (a) S 1 2"), None);
        assert_eq!(parse_started(b""), None);
        assert!(started(std::process::id()) >= started(1));
    }

    #[test]
    fn our_own_process() {
        let pid = std::process::id();
        assert!(processes().unwrap().contains(&pid));
        assert!(threads(pid).contains(&pid));
        assert_eq!(parents(pid).map(|found| found.pid), Some(pid));
        assert_eq!(
            parents(pid).map(|found| found.parent),
            Some(std::os::unix::process::parent_id())
        );
        let exe = std::env::current_exe().unwrap();
        let maps = maps(pid, false);
        assert!(
            maps.iter()
                .any(|line| line.name == exe.as_os_str().as_bytes()),
            "{maps:?}"
        );
        assert!(comm(pid, pid).is_some_and(|name| !name.is_empty() && name.len() < 16));
    }

    #[test]
    fn a_process_that_is_not_there() {
        // Larger than any process id (`/proc/sys/kernel/pid_max` is at most 2^22).
        let pid = 1 << 23;
        assert_eq!((parents(pid), comm(pid, pid)), (None, None));
        assert!(threads(pid).is_empty() && maps(pid, true).is_empty());
    }
}
