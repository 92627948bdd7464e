//! A machine, and the resources that a command used on it.

use super::{heading, line};
use dioptra_tracedata::{Host, ResourceUsage};
use std::io::{self, Write};

/// Writes the facts about a machine.
pub fn system(host: &Host, out: &mut impl Write) -> io::Result<()> {
    line("cpu info", &host.cpu, out)?;
    let cpus = match host.possible_cpus {
        0 => format!("{} (online)", host.cpus),
        possible => format!("{} / {possible} (online / possible)", host.cpus),
    };
    line("number of cpus", &cpus, out)?;
    if host.memory > 0 {
        let gibibytes = |bytes: u64| bytes as f64 / (1 << 30) as f64;
        let (free, all) = (gibibytes(host.free_memory), gibibytes(host.memory));
        line(
            "memory info",
            &format!("{free:.1} / {all:.1} GB (free / total)"),
            out,
        )?;
        let [one, five, fifteen] = host.load;
        let load = format!("{one:.2} / {five:.2} / {fifteen:.2} (1 / 5 / 15 min)");
        line("system load", &load, out)?;
    }
    line("kernel version", &host.kernel, out)?;
    line("hostname", &host.name, out)?;
    match host.distribution.as_str() {
        "" => Ok(()),
        name => line("distro", name, out),
    }
}

/// Writes the facts about this machine, and the settings that decide what can be recorded.
pub fn now(out: &mut impl Write) -> io::Result<()> {
    heading("system information", out)?;
    let version = concat!("dioptra ", env!("CARGO_PKG_VERSION"));
    line("program version", version, out)?;
    system(&dioptra_trace_recorder::host(), out)?;
    writeln!(out, "#")?;
    heading("system settings", out)?;
    for (name, path) in [
        (
            "perf_event_paranoid",
            "/proc/sys/kernel/perf_event_paranoid",
        ),
        (
            "perf_event_mlock_kb",
            "/proc/sys/kernel/perf_event_mlock_kb",
        ),
        (
            "perf_event_max_stack",
            "/proc/sys/kernel/perf_event_max_stack",
        ),
        ("kptr_restrict", "/proc/sys/kernel/kptr_restrict"),
        ("randomize_va_space", "/proc/sys/kernel/randomize_va_space"),
        (
            "clocksource",
            "/sys/devices/system/clocksource/clocksource0/current_clocksource",
        ),
    ] {
        let value = std::fs::read_to_string(path);
        let value = value.map_or_else(
            |error| format!("not known: {error}"),
            |v| v.trim().to_owned(),
        );
        line(name, &value, out)?;
    }
    writeln!(
        out,
        "# `dioptra doctor` says what works here, and what to change for the rest."
    )
}

/// Writes the resources that a command used.
pub fn used(usage: &ResourceUsage, out: &mut impl Write) -> io::Result<()> {
    let seconds = |microseconds: u64| microseconds as f64 / 1e6;
    let (system, user) = (seconds(usage.system), seconds(usage.user));
    line(
        "cpu time",
        &format!("{system:.3} / {user:.3} sec (sys / user)"),
        out,
    )?;
    let pair = |name: &str, [a, b]: [u64; 2], what: &str, out: &mut _| {
        line(name, &format!("{a} / {b} ({what})"), out)
    };
    let switches = [usage.voluntary_switches, usage.involuntary_switches];
    pair("context switch", switches, "voluntary / involuntary", out)?;
    line("max rss", &format!("{} KB", usage.max_rss / 1024), out)?;
    let faults = [usage.major_faults, usage.minor_faults];
    pair("page fault", faults, "major / minor", out)?;
    let blocks = [usage.blocks_in, usage.blocks_out];
    pair("disk iops", blocks, "read / write", out)
}
