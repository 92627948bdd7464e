//! Limits of the kernel and the system: the sysctls and limits that decide about events. A missing file is `None`.

use crate::errors::Refusal;
use crate::sys;
use std::str::FromStr;
use std::sync::OnceLock;

/// Reads one number from a file of procfs or sysfs.
fn number<T: FromStr>(path: &str) -> Option<T> {
    sys::read_file(path).ok()?.trim().parse().ok()
}

/// Reads `kernel.perf_event_paranoid`; `None` where procfs hides it or the kernel has no events.
pub fn paranoid() -> Option<i32> {
    number("/proc/sys/kernel/perf_event_paranoid")
}

/// Reads `kernel.perf_event_max_sample_rate`: the highest frequency that is accepted, in Hz.
pub fn max_sample_rate() -> Option<u64> {
    number("/proc/sys/kernel/perf_event_max_sample_rate")
}

/// Reads `kernel.perf_cpu_time_max_percent`: percent of a CPU's time that sampling may take; 0 or 100 for no limit.
pub fn cpu_time_max_percent() -> Option<u64> {
    number("/proc/sys/kernel/perf_cpu_time_max_percent")
}

/// Reads `kernel.perf_event_mlock_kb`: KiB of ring buffers per CPU that an unprivileged user may map, over all processes.
pub fn mlock_kb() -> Option<u64> {
    number("/proc/sys/kernel/perf_event_mlock_kb")
}

/// Reads `kernel.perf_event_max_stack`: frames in a call chain at most.
pub fn max_stack() -> Option<u64> {
    number("/proc/sys/kernel/perf_event_max_stack")
}

/// Reads the soft and the hard limit of open descriptors.
pub fn descriptors() -> Option<(u64, u64)> {
    sys::descriptor_limit().ok()
}

/// Reads the soft and the hard limit of locked memory, in bytes.
pub fn locked_memory() -> Option<(u64, u64)> {
    sys::locked_memory_limit().ok()
}

/// Reads the bits of the process's effective capabilities (`CAP_*` numbers); `None` where procfs hides them.
pub fn effective_capabilities() -> Option<u64> {
    let status = sys::read_file("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// Number of the capability that lifts all limits of locked memory.
const CAP_IPC_LOCK: u32 = 14;

/// Returns true if ring buffers of any size may be mapped.
pub fn may_lock_freely() -> bool {
    let capable = effective_capabilities().is_some_and(|bits| bits >> CAP_IPC_LOCK & 1 != 0);
    capable || paranoid().is_some_and(|level| level < 0)
}

/// Counts the descriptors that the process has open.
pub fn open_descriptors() -> u64 {
    // The directory's own descriptor is one of them.
    std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count().saturating_sub(1) as u64)
}

/// Raises the limit of open descriptors to at least `wanted`: the soft limit first, then, where the process may, the
/// hard one. Returns the soft limit that holds afterwards.
pub(crate) fn raise_descriptors(wanted: u64) -> u64 {
    let Some((soft, hard)) = descriptors() else {
        return 0;
    };
    if soft >= wanted {
        return soft;
    }
    if wanted > hard {
        let most = number::<u64>("/proc/sys/fs/nr_open").unwrap_or(hard);
        let raised = wanted.min(most);
        if raised > hard && sys::set_descriptor_limit(raised, raised).is_ok() {
            return raised;
        }
    }
    match sys::set_descriptor_limit(hard, hard) {
        Ok(()) => hard,
        Err(_) => soft,
    }
}

/// Returns the refusal of a filter or sandbox where `perf_event_open` never reaches the kernel; `None` where it does.
///
/// An attr of one byte is answered with `E2BIG` by every kernel, before it looks at permissions.
pub(crate) fn call_is_filtered() -> Option<Refusal> {
    let error = sys::attr_size_of_kernel().err()?;
    match error.raw_os_error() {
        Some(libc::ENOSYS) => Some(Refusal::NoSyscall),
        Some(libc::EPERM) => Some(Refusal::Seccomp),
        // Debian and Android refuse everything at a high paranoid level, with EACCES and before the attr is read.
        _ => None,
    }
}

/// Reads the kernel's release, such as `6.1.0-50-amd64`.
pub fn kernel_release() -> String {
    sys::read_file("/proc/sys/kernel/osrelease")
        .map_or_else(|_| String::new(), |text| text.trim().to_owned())
}

/// Returns the first two numbers of a kernel's release.
fn version_of(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Returns true if `IOC_REFRESH` on a clock event may hang this kernel: 6.16 and 6.17 (the fix is in 6.18 and in late stable
/// releases of 6.17, which can't be told apart safely). The only decision of this crate by version: trying it out
/// would hang the machine.
pub fn refresh_of_clocks_is_unsafe() -> bool {
    // Asked each time that a burst is armed, where opening a file would cost the program more than a sample.
    static IS_UNSAFE: OnceLock<bool> = OnceLock::new();
    *IS_UNSAFE.get_or_init(|| refresh_is_unsafe_in(&kernel_release()))
}

fn refresh_is_unsafe_in(release: &str) -> bool {
    matches!(version_of(release), Some((6, 16 | 17)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_two_kernels_with_the_hazard_are_unsafe() {
        for (release, unsafe_) in [
            ("6.15.9", false),
            ("6.16.0-rc1", true),
            ("6.17.8-arch1", true),
            ("6.18.44-fc", false),
            ("6.1.0-50-amd64", false),
            ("5.16.1", false),
            ("", false),
        ] {
            assert_eq!(refresh_is_unsafe_in(release), unsafe_, "{release}");
        }
    }

    #[test]
    fn open_descriptors_are_counted() {
        let before = open_descriptors();
        assert!(before > 0);
    }
}
