//! The machine, and the resources that a command has used.

use super::shared::cpus;
use crate::collecting::clock::first_processor;
use dioptra_tracedata::{Host, ResourceUsage};
use std::fs;

/// Describes this machine as it is now.
pub fn host() -> Host {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpu = first_processor();
    let cpu = field(&cpu, "model name", ':').unwrap_or_default();
    let memory = read("/proc/meminfo");
    let memory = |name| {
        let kibibytes = field(&memory, name, ':')?.strip_suffix("kB")?.trim();
        kibibytes.parse::<u64>().ok()?.checked_mul(1024)
    };
    let load = read("/proc/loadavg");
    let load: Vec<f64> = load
        .split_whitespace()
        .take(3)
        .filter_map(|word| word.parse().ok())
        .collect();
    let release = read("/etc/os-release");
    let distribution = field(&release, "PRETTY_NAME", '=').unwrap_or_default();
    Host {
        name: read("/proc/sys/kernel/hostname").trim().to_owned(),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        cpu: cpu.to_owned(),
        cpus: cpus() as u32,
        possible_cpus: count(&read("/sys/devices/system/cpu/possible")),
        memory: memory("MemTotal").unwrap_or(0),
        free_memory: memory("MemFree").unwrap_or(0),
        load: load.try_into().unwrap_or_default(),
        distribution: distribution.trim_matches('"').to_owned(),
    }
}

/// Returns the value behind a name and a separator, in lines such as `model name : value`.
fn field<'t>(text: &'t str, name: &str, separator: char) -> Option<&'t str> {
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(separator)?;
        (found.trim() == name).then_some(value.trim())
    })
}

/// Returns how many numbers a list such as `0-3,8` has; 0 if the text is no list.
fn count(list: &str) -> u32 {
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    let parts = list.trim().split(',').map(part);
    parts.sum::<Option<u32>>().unwrap_or(0)
}

/// Converts the kernel's account of an ended command and of the children that the command waited for.
pub fn usage(usage: &libc::rusage) -> ResourceUsage {
    let microseconds = |time: libc::timeval| {
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let rest = u64::try_from(time.tv_usec).unwrap_or(0);
        seconds.saturating_mul(1_000_000).saturating_add(rest)
    };
    let count = |value: libc::c_long| u64::try_from(value).unwrap_or(0);
    ResourceUsage {
        user: microseconds(usage.ru_utime),
        system: microseconds(usage.ru_stime),
        voluntary_switches: count(usage.ru_nvcsw),
        involuntary_switches: count(usage.ru_nivcsw),
        max_rss: count(usage.ru_maxrss).saturating_mul(1024),
        major_faults: count(usage.ru_majflt),
        minor_faults: count(usage.ru_minflt),
        blocks_in: count(usage.ru_inblock),
        blocks_out: count(usage.ru_oublock),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_counted() {
        for (list, expected) in [("0-3,8\n", 5), ("0", 1), ("", 0), ("3-1", 0), ("x", 0)] {
            assert_eq!(count(list), expected, "{list}");
        }
    }

    #[test]
    fn the_machine_is_as_the_system_says() {
        let host = host();
        // SAFETY: no memory is involved.
        let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) } as u64;
        // SAFETY: no memory is involved.
        let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
        assert_eq!(host.memory, pages * size);
        assert!(host.free_memory <= host.memory);
        assert!(host.possible_cpus >= host.cpus);
    }
}
