//! The memory that records may take before they are written.

use std::fs;
use std::path::Path;

/// The least memory that is taken by default, in bytes.
const LEAST: u64 = 32 << 20;
/// The most memory that is taken by default, in bytes.
const MOST: u64 = 256 << 20;

/// Returns the memory for records in bytes, unless the user says another number: an eighth of what is available to this
/// process, from 32 to 256 MiB. Many threads fill 32 MiB faster than one recorder writes them, and then wait for it.
/// Memory that no record needs is never touched.
pub fn default_memory() -> usize {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let in_group = group_room(Path::new("/sys/fs/cgroup"), &groups);
    let available = available(&meminfo).into_iter().chain(in_group).min();
    (available.unwrap_or(0) / 8).clamp(LEAST, MOST) as usize
}

/// Returns the bytes that `/proc/meminfo` says are available.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// Returns the bytes that are left in a control group (version 2) and in those around it, as far as these have a limit.
fn group_room(root: &Path, groups: &str) -> Option<u64> {
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let number = |folder: &Path, name: &str| -> Option<u64> {
        fs::read_to_string(folder.join(name))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    let folder = root.join(path);
    let folders = folder
        .ancestors()
        .take_while(|folder| folder.starts_with(root));
    folders
        .filter_map(|folder| {
            let limit = number(folder, "memory.max")?;
            Some(limit.saturating_sub(number(folder, "memory.current")?))
        })
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_group_counts() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("a/b");
        fs::create_dir_all(&inner).unwrap();
        assert_eq!(group_room(root.path(), "0::/a/b\n"), None);
        let write = |name: &str, text: &str| fs::write(root.path().join(name), text).unwrap();
        write("a/b/memory.max", "max\n");
        write("a/b/memory.current", "5\n");
        write("a/memory.max", "1000\n");
        write("a/memory.current", "400\n");
        assert_eq!(group_room(root.path(), "1:x:/y\n0::/a/b\n"), Some(600));
        assert_eq!(
            available("MemFree: 1 kB\nMemAvailable:  3 kB\n"),
            Some(3072)
        );
        assert!((LEAST..=MOST).contains(&(default_memory() as u64)));
    }
}
