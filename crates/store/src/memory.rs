//! The memory that a query may take: what the machine, the control group and the process's own limits leave.

use std::fs;
use std::path::Path;

/// The part of the available memory that the engine may reserve. The engine holds the rows of a join twice while it
/// makes them one table, and reserves nothing for the pages that it decodes.
const PART: u64 = 3;

/// The least memory that is taken for a limit; less would refuse the smallest queries.
const LEAST: u64 = 64 << 20;

/// Returns the bytes that a query may reserve unless the user names another number: a third of the available memory.
pub(crate) fn default_limit() -> u64 {
    let available = available(Path::new("/"));
    available.map_or(1 << 30, |available| (available / PART).max(LEAST))
}

/// Returns the bytes that this process may still take: the least of what the machine has, what the limits of its control
/// groups leave, and what its limits of address space and of data leave. `None` where none of these is known.
///
/// `root` is the folder that holds `proc` and `sys`.
fn available(root: &Path) -> Option<u64> {
    let read = |name: &str| fs::read_to_string(root.join(name)).unwrap_or_default();
    let status = read("proc/self/status");
    let limits = read("proc/self/limits");
    let machine = kilobytes(&read("proc/meminfo"), "MemAvailable:");
    let space = left(&limits, "Max address space", &status, "VmSize:");
    let data = left(&limits, "Max data size", &status, "VmData:");
    let groups = read("proc/self/cgroup");
    let groups = groups.lines().filter_map(|line| group(root, line));
    [machine, space, data]
        .into_iter()
        .flatten()
        .chain(groups)
        .min()
}

/// Returns the value in bytes of a line such as `VmSize:   1234 kB`.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let number: u64 = line.split_whitespace().next()?.parse().ok()?;
    number.checked_mul(1024)
}

/// Returns what a soft limit of the process leaves of what it has; `None` where it is unlimited.
fn left(limits: &str, limit: &str, status: &str, used: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(limit))?;
    let soft: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(soft.saturating_sub(kilobytes(status, used).unwrap_or(0)))
}

/// Returns what the limits of a control group and of all groups above it leave. The line is one of `/proc/self/cgroup`.
fn group(root: &Path, line: &str) -> Option<u64> {
    let mut parts = line.splitn(3, ':');
    let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let is_second = controllers.is_empty();
    let (folder, limit, used) = match is_second {
        true => ("sys/fs/cgroup", "memory.max", "memory.current"),
        false if controllers.split(',').any(|name| name == "memory") => (
            "sys/fs/cgroup/memory",
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
        ),
        false => return None,
    };
    let mounted = root.join(folder);
    let own = mounted.join(path.trim_start_matches('/'));
    let number =
        |path: &Path| -> Option<u64> { fs::read_to_string(path).ok()?.trim().parse().ok() };
    let levels = own
        .ancestors()
        .take_while(|level| level.starts_with(&mounted));
    let left = levels.filter_map(|level| {
        let limit = number(&level.join(limit))?;
        let used = number(&level.join(used)).unwrap_or(0);
        // Pages of files count as used, and the kernel drops them when memory is short.
        let stat = fs::read_to_string(level.join("memory.stat")).unwrap_or_default();
        let files = stat
            .lines()
            .find_map(|line| line.strip_prefix("inactive_file "));
        let files = files.and_then(|files| files.trim().parse::<u64>().ok());
        Some(limit.saturating_sub(used.saturating_sub(files.unwrap_or(0))))
    });
    left.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a folder with these files.
    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const MEMORY: (&str, &str) = ("proc/meminfo", "MemTotal: 9 kB\nMemAvailable:    8000 kB\n");
    const STATUS: (&str, &str) = (
        "proc/self/status",
        "VmSize:\t    1000 kB\nVmData:\t 500 kB\n",
    );

    #[test]
    fn the_least_of_all_limits_counts() {
        let unlimited =
            "Max data size             unlimited            unlimited            bytes\n";
        let root = machine(&[MEMORY, STATUS, ("proc/self/limits", unlimited)]);
        assert_eq!(available(root.path()), Some(8000 * 1024));
        let space = "Max address space         4096000              8192000              bytes\n";
        let root = machine(&[MEMORY, STATUS, ("proc/self/limits", space)]);
        assert_eq!(available(root.path()), Some(4_096_000 - 1000 * 1024));
        assert_eq!(available(machine(&[]).path()), None);
    }

    #[test]
    fn groups_above_count_and_pages_of_files_do_not() {
        let own = ("proc/self/cgroup", "0::/user/shell\n");
        let root = machine(&[
            MEMORY,
            own,
            ("sys/fs/cgroup/user/shell/memory.max", "max\n"),
            ("sys/fs/cgroup/user/memory.max", "5000000\n"),
            ("sys/fs/cgroup/user/memory.current", "4000000\n"),
            (
                "sys/fs/cgroup/user/memory.stat",
                "anon 1\ninactive_file 3000000\n",
            ),
        ]);
        assert_eq!(available(root.path()), Some(4_000_000));
        let first = ("proc/self/cgroup", "5:cpu:/a\n4:memory:/a\n");
        let root = machine(&[
            MEMORY,
            first,
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "700000\n"),
            ("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "100000\n"),
        ]);
        assert_eq!(available(root.path()), Some(600_000));
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(default_limit() >= LEAST);
    }
}
