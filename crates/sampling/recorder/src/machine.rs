//! The facts about the machine that a recording states.

use std::ffi::{CStr, OsString};
use std::fs;

/// The machine and its kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Host name.
    pub hostname: String,
    /// Kernel release, as `uname -r`.
    pub os_release: String,
    /// Architecture, as `uname -m`.
    pub architecture: String,
    /// The number of CPUs online.
    pub cpus_online: u32,
    /// The number of CPUs that there could be.
    pub cpus_available: u32,
    /// The CPU's name, if it is known.
    pub cpu_description: Option<String>,
    /// The CPU's model as perf writes it (`GenuineIntel,6,85,7`, or Arm's MIDR), if it is known.
    pub cpuid: Option<String>,
    /// Memory in KiB, if it is known.
    pub total_memory: Option<u64>,
}

impl Machine {
    /// Reads the facts of the running machine.
    pub fn running() -> Machine {
        let names = rustix::system::uname();
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| cpuinfo_field(&cpuinfo, name).map(str::to_owned);
        let midr = fs::read_to_string("/sys/devices/system/cpu/cpu0/regs/identification/midr_el1");
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        Machine {
            hostname: text(names.nodename()),
            os_release: text(names.release()),
            architecture: text(names.machine()),
            cpus_online: count(libc::_SC_NPROCESSORS_ONLN),
            cpus_available: count(libc::_SC_NPROCESSORS_CONF),
            cpu_description: field("model name").or_else(|| field("Processor")),
            cpuid: x86_cpuid(&cpuinfo).or_else(|| Some(midr.ok()?.trim().to_owned())),
            total_memory: meminfo.lines().find_map(|line| {
                line.strip_prefix("MemTotal:")?
                    .split_whitespace()
                    .next()?
                    .parse()
                    .ok()
            }),
        }
    }
}

/// Returns our own command line, as a recording states it.
pub fn command_line() -> Vec<OsString> {
    std::env::args_os().collect()
}

fn text(field: &CStr) -> String {
    field.to_string_lossy().into_owned()
}

fn count(which: libc::c_int) -> u32 {
    // SAFETY: takes and returns numbers.
    u32::try_from(unsafe { libc::sysconf(which) })
        .unwrap_or(1)
        .max(1)
}

/// Returns the value of the first `name : value` of `/proc/cpuinfo`.
fn cpuinfo_field<'a>(cpuinfo: &'a str, name: &str) -> Option<&'a str> {
    cpuinfo.lines().find_map(|line| {
        let (field, value) = line.split_once(':')?;
        (field.trim() == name).then(|| value.trim())
    })
}

fn x86_cpuid(cpuinfo: &str) -> Option<String> {
    let field = |name| cpuinfo_field(cpuinfo, name);
    Some(format!(
        "{},{},{},{}",
        field("vendor_id")?,
        field("cpu family")?,
        field("model")?,
        field("stepping")?
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn names_are_those_of_uname() {
        let machine = Machine::running();
        for (flag, name) in [
            ("-r", &machine.os_release),
            ("-m", &machine.architecture),
            ("-n", &machine.hostname),
        ] {
            let output = Command::new("uname").arg(flag).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), name);
        }
        assert!(machine.cpus_online <= machine.cpus_available);
        assert!(machine.total_memory.is_some_and(|kib| kib > 1024));
    }

    #[test]
    fn cpuid_as_perf_writes_it() {
        let cpuinfo = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\nstepping\t: 1\n";
        assert_eq!(x86_cpuid(cpuinfo).as_deref(), Some("AuthenticAMD,26,2,1"));
        assert_eq!(x86_cpuid("Processor: x"), None);
    }
}
