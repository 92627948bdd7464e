//! Findings about the kernel's settings, the user's limits and the installed files.

use super::check::{Check, Status};
use super::sampling::Sampling;
use dioptra_perfevents::{CpuSet, limits};
use dioptra_recorder::kernel;
use dioptra_recorder::machine::Machine;
use dioptra_recorder::sample_options::DEFAULT_FREQUENCY;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// The folder of separate debug files.
const DEBUG_FOLDER: &str = "/usr/lib/debug";

/// Returns the finding about the kernel and the machine.
pub fn kernel() -> Check {
    let machine = Machine::running();
    let cpu = machine.cpu_description.as_deref().unwrap_or("unknown CPU");
    let found = format!(
        "Linux {} on {}, {} of {} CPUs online ({cpu})",
        machine.os_release, machine.architecture, machine.cpus_online, machine.cpus_available
    );
    Check::ok("kernel", "kernel", found).value(machine.os_release)
}

/// Returns all other findings about the machine.
pub fn checks(sampling: &Sampling) -> Vec<Check> {
    let all = [
        Some(capabilities()),
        Some(pmus()),
        rate(),
        cpu_time(),
        Some(rings()),
        descriptors(),
        Some(kernel_symbols(sampling)),
        Some(tracepoints()),
        Some(debug_files()),
        Some(debuginfod()),
        watchdog(sampling),
        Some(hazards()),
        Some(perf()),
    ];
    all.into_iter().flatten().collect()
}

/// Capabilities that matter here, by their bit numbers.
const CAPABILITIES: [(u32, &str); 6] = [
    (14, "ipc_lock"),
    (19, "sys_ptrace"),
    (21, "sys_admin"),
    (24, "sys_resource"),
    (34, "syslog"),
    (38, "perfmon"),
];

fn capabilities() -> Check {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let names = effective_capabilities(&status);
    let found = match names.as_slice() {
        [] => "none that matter to profiling".to_owned(),
        names => names
            .iter()
            .map(|name| format!("cap_{name}"))
            .collect::<Vec<_>>()
            .join(" "),
    };
    let check = Check::ok("capabilities", "capabilities", found).value(names.clone());
    if names.contains(&"perfmon") || names.contains(&"sys_admin") {
        return check;
    }
    check
        .but(
            Status::Limited,
            "what kernel.perf_event_paranoid forbids stays forbidden",
        )
        .remedy("sudo setcap cap_perfmon,cap_sys_ptrace,cap_syslog+ep \"$(command -v dioptra)\"")
}

fn effective_capabilities(status: &str) -> Vec<&'static str> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = line
        .and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
        .unwrap_or(0);
    CAPABILITIES
        .iter()
        .filter(|(bit, _)| bits >> bit & 1 == 1)
        .map(|(_, name)| *name)
        .collect()
}

fn pmus() -> Check {
    let mut names: Vec<String> = fs::read_dir("/sys/bus/event_source/devices")
        .map(|entries| {
            entries
                .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
                .collect()
        })
        .unwrap_or_default();
    names.sort();
    let check = |found: String| Check::ok("pmus", "event sources", found).value(names.clone());
    if names.is_empty() {
        return check("none: /sys/bus/event_source/devices is not there".into())
            .but(
                Status::Limited,
                "events of PMUs cannot be named (pmu/event/)",
            )
            .remedy("mount -t sysfs sysfs /sys");
    }
    check(names.join(" "))
}

fn rate() -> Option<Check> {
    let rate = limits::max_sample_rate()?;
    let check = Check::ok(
        "max_sample_rate",
        "highest rate",
        format!("{rate} samples a second"),
    )
    .value(rate);
    if rate >= DEFAULT_FREQUENCY {
        return Some(check);
    }
    Some(
        check
            .but(
                Status::Limited,
                format!("the default of {DEFAULT_FREQUENCY} Hz is lowered to {rate} Hz"),
            )
            .remedy("sudo sysctl kernel.perf_event_max_sample_rate=100000"),
    )
}

fn cpu_time() -> Option<Check> {
    let percent = limits::cpu_time_max_percent()?;
    let found = match percent {
        0 | 100 => "sampling may take any share of the CPU's time".to_owned(),
        percent => format!(
            "sampling may take {percent} % of the CPU's time before the kernel lowers the rate"
        ),
    };
    Some(Check::ok("cpu_time_max_percent", "CPU time", found).value(percent))
}

fn rings() -> Check {
    let mlock = limits::mlock_kb();
    let locked = limits::locked_memory();
    let cpus = CpuSet::online().len() as u64;
    let kib = |bytes: u64| {
        if bytes == u64::MAX {
            "unlimited".into()
        } else {
            format!("{} KiB", bytes / 1024)
        }
    };
    let found = format!(
        "kernel.perf_event_mlock_kb is {} for each of {cpus} CPUs; RLIMIT_MEMLOCK is {}",
        mlock.map_or("unknown".into(), |kb| format!("{kb} KiB")),
        locked.map_or("unknown".into(), |(soft, _)| kib(soft)),
    );
    let check = Check::ok("ring_memory", "ring buffers", found).value(mlock);
    let privileged = fs::read_to_string("/proc/self/status")
        .is_ok_and(|status| effective_capabilities(&status).contains(&"ipc_lock"));
    // A ring buffer has one page more than its data, and a session asks for 512 KiB of data.
    let enough =
        mlock.is_none_or(|kb| kb >= 516) || locked.is_some_and(|(soft, _)| soft >= 528_384 * cpus);
    if privileged || enough {
        return check;
    }
    check
        .but(
            Status::Limited,
            "rings are smaller, so that bursts of records may be lost",
        )
        .remedy("sudo sysctl kernel.perf_event_mlock_kb=516, or raise `ulimit -l`")
}

fn descriptors() -> Option<Check> {
    /// The number of descriptors that a larger program needs: threads times CPUs times events.
    const COMFORTABLE: u64 = 16_384;
    let (soft, hard) = limits::descriptors()?;
    let check = Check::ok(
        "descriptors",
        "open files",
        format!("RLIMIT_NOFILE is {soft}, and may be raised to {hard}"),
    )
    .value(hard);
    if hard >= COMFORTABLE {
        return Some(check);
    }
    let cpus = CpuSet::online().len() as u64;
    Some(
        check
            .but(
                Status::Limited,
                format!("an attached process can have about {} threads (one event takes a descriptor for each thread and CPU)", hard / cpus.max(1)),
            )
            .remedy("raise the hard limit: ulimit -Hn, or LimitNOFILE= and /etc/security/limits.conf"),
    )
}

fn kernel_symbols(sampling: &Sampling) -> Check {
    let level: Option<i32> = fs::read_to_string("/proc/sys/kernel/kptr_restrict")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    let setting = level.map_or_else(|| "unknown".to_owned(), |level| level.to_string());
    let check = |found: &str| {
        Check::ok(
            "kptr_restrict",
            "kernel symbols",
            format!("{found} (kernel.kptr_restrict is {setting})"),
        )
        .value(level)
    };
    if kernel::text().is_some() {
        return check("/proc/kallsyms shows addresses");
    }
    let cost = if sampling.sees_kernel() {
        "samples of the kernel have no function names"
    } else {
        "none now: the kernel cannot be sampled either"
    };
    check("/proc/kallsyms hides addresses")
        .but(Status::Limited, cost)
        .remedy("sudo sysctl kernel.kptr_restrict=0, and kernel.perf_event_paranoid=1 or less; or run as root")
}

fn tracepoints() -> Check {
    let check = |found: &str| Check::ok("tracepoints", "tracepoints", found);
    let found = [
        "/sys/kernel/tracing/events",
        "/sys/kernel/debug/tracing/events",
    ]
    .into_iter()
    .find(|folder| fs::read_dir(folder).is_ok());
    match found {
        Some(folder) => check(&format!("events are described in {folder}")),
        None => check("tracefs cannot be read")
            .but(Status::Limited, "tracepoints cannot be named (sched:sched_switch)")
            .remedy("sudo mount -t tracefs tracefs /sys/kernel/tracing; sudo chmod -R a+rX /sys/kernel/tracing"),
    }
}

fn debug_files() -> Check {
    let by_build_id = Path::new(DEBUG_FOLDER).join(".build-id").is_dir();
    let check = |found: String| Check::ok("debug_files", "debug files", found);
    if by_build_id {
        return check(format!(
            "looked for in {DEBUG_FOLDER}, which has files by build id"
        ));
    }
    check(format!("looked for in {DEBUG_FOLDER}, which has none"))
        .but(Status::Limited, "stripped programs and libraries show exported functions only")
        .remedy("install debug packages (Debian: libc6-dbg and NAME-dbgsym; Fedora: dnf debuginfo-install NAME)")
}

fn debuginfod() -> Check {
    let check = |found: String| Check::ok("debuginfod", "debuginfod", found);
    match std::env::var("DEBUGINFOD_URLS") {
        Ok(urls) if !urls.trim().is_empty() => check(format!(
            "DEBUGINFOD_URLS is {urls}; debug files are fetched with --debuginfod, or if DIOPTRA_DEBUGINFOD is 1, and read from this machine otherwise"
        )),
        _ => check(
            "DEBUGINFOD_URLS is not set; debug files are fetched with --debuginfod=https://SERVER, and read from this machine otherwise"
                .into(),
        ),
    }
}

fn watchdog(sampling: &Sampling) -> Option<Check> {
    let on = fs::read_to_string("/proc/sys/kernel/nmi_watchdog")
        .ok()?
        .trim()
        == "1";
    (on && sampling.has_cycles()).then(|| {
        Check::ok("nmi_watchdog", "NMI watchdog", "may take one hardware counter")
            .but(
                Status::Limited,
                "with one counter fewer larger groups of events take turns; a kernel whose CPUs watch each other (buddy detector) takes none",
            )
            .remedy("sudo sysctl kernel.nmi_watchdog=0")
    })
}

fn hazards() -> Check {
    let check = |found: &str| Check::ok("hazards", "kernel hazards", found);
    if limits::refresh_of_clocks_is_unsafe() {
        return check(
            "this kernel (6.16 or 6.17) may hang when a clock event is re-armed (IOC_REFRESH)",
        )
        .but(Status::Limited, "bursts of clock samples are not used")
        .remedy("use Linux 6.18 or later");
    }
    check("none known for this kernel")
}

fn perf() -> Check {
    let check = |found: String| Check::ok("perf", "perf", found);
    let output = Command::new("perf")
        .arg("--version")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => {
            let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            check(format!(
                "{version} is installed; it reads dioptra's recordings from 6.0 on"
            ))
        }
        _ => check("not installed, and not needed".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::effective_capabilities;

    #[test]
    fn capabilities_of_a_status_file() {
        let status = "Name:\tx\nCapEff:\t0000004000080000\nCapBnd:\tffffffffffffffff\n";
        assert_eq!(effective_capabilities(status), ["sys_ptrace", "perfmon"]);
        assert!(effective_capabilities("CapEff:\t0000000000000000\n").is_empty());
        assert!(effective_capabilities("").is_empty());
    }
}
