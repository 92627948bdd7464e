//! The lines of `info`: the machine, the command and its end.

use super::super::info::{InfoLines, date};
use super::addresses::Addresses;
use dioptra_tracedata::{Host, ResourceUsage, Trace};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Returns the lines about a trace. `cpus` is the number of CPUs that have files of events.
pub(super) fn about(
    trace: &Trace,
    addresses: &Addresses,
    tids: &BTreeSet<u32>,
    cpus: u32,
) -> Vec<InfoLines> {
    let info = trace.info();
    let mut lines = Vec::new();
    let mut add = |bit, text| lines.push(InfoLines { bit, text });
    let executable = trace.processes().first().map(|process| &process.executable);
    if let Some(path) = executable {
        add(0, line("exename", path));
        let build_id = addresses.build_id(path);
        if !build_id.is_empty() {
            add(1, line("build_id", build_id));
        }
    }
    if let Some(ending) = &info.ending {
        // As `wait` returns it: the exit status in the second byte, or a signal in the first.
        let status = match (ending.signal, ending.status) {
            (Some(signal), _) => Some(signal & 0x7f),
            (None, status) => status.map(|status| (status & 0xff) << 8),
        };
        if let Some(status) = status {
            add(2, line("exit_status", &status.to_string()));
        }
    }
    add(3, line("cmdline", &info.command.join(" ")));
    let host = &info.host;
    let possible = host.possible_cpus.max(host.cpus).max(cpus);
    add(
        4,
        format!(
            "cpuinfo:lines=2\ncpuinfo:nr_cpus={} / {possible} (online/possible)\n{}",
            host.cpus,
            line("cpuinfo:desc", &host.cpu).replacen("desc:", "desc=", 1)
        ),
    );
    if host.memory > 0 {
        let gibibytes = |bytes: u64| bytes as f64 / (1_u64 << 30) as f64;
        let (free, all) = (gibibytes(host.free_memory), gibibytes(host.memory));
        add(
            5,
            format!("meminfo:{free:.1} / {all:.1} GB (free / total)\n"),
        );
    }
    add(6, system(host));
    let ids: Vec<String> = tids.iter().map(ToString::to_string).collect();
    add(
        7,
        format!(
            "taskinfo:lines=2\ntaskinfo:nr_tid={}\ntaskinfo:tids={}\n",
            ids.len(),
            ids.join(",")
        ),
    );
    if let Some(usage) = info.ending.as_ref().and_then(|ending| ending.usage) {
        add(8, used(&usage));
    }
    if host.memory > 0 {
        let [one, five, fifteen] = host.load;
        add(9, format!("loadinfo:{one:.2} / {five:.2} / {fifteen:.2}\n"));
    }
    if let Some(ending) = &info.ending {
        let begun = info.clock.start.monotonic;
        let passed = ending.clock.monotonic.saturating_sub(begun);
        let (seconds, rest) = (passed / 1_000_000_000, passed % 1_000_000_000);
        add(
            11,
            format!(
                "record_date:{}\nelapsed_time:{seconds}.{rest:09} sec\n",
                date(info.started_realtime / 1_000_000_000)
            ),
        );
    }
    add(12, "pattern_type:regex\n".to_owned());
    add(13, line("uftrace_version", &info.recorder));
    lines
}

/// Returns a line; characters that would end it become blanks.
fn line(key: &str, value: &str) -> String {
    let value = value.replace(|c: char| c.is_control(), " ");
    format!("{key}:{value}\n")
}

fn system(host: &Host) -> String {
    let clean = |text: &str| text.replace(|c: char| c.is_control() || c == '"', " ");
    let mut text = "osinfo:lines=3\n".to_owned();
    let _ = writeln!(
        text,
        "osinfo:kernel=Linux {}",
        clean(host.kernel.trim_start_matches("Linux "))
    );
    let _ = writeln!(text, "osinfo:hostname={}", clean(&host.name));
    let _ = writeln!(text, "osinfo:distro=\"{}\"", clean(&host.distribution));
    text
}

fn used(usage: &ResourceUsage) -> String {
    let mut text = "usageinfo:lines=6\n".to_owned();
    let mut add = |line: String| {
        let _ = writeln!(text, "usageinfo:{line}");
    };
    let time = |time: u64| format!("{}.{:06}", time / 1_000_000, time % 1_000_000);
    let pair =
        |name: &str, one: u64, other: u64, names: &str| format!("{name}={one} / {other} ({names})");
    add(format!("systime={}", time(usage.system)));
    add(format!("usrtime={}", time(usage.user)));
    let (voluntary, involuntary) = (usage.voluntary_switches, usage.involuntary_switches);
    add(pair(
        "ctxsw",
        voluntary,
        involuntary,
        "voluntary / involuntary",
    ));
    add(format!("maxrss={}", usage.max_rss >> 10));
    add(pair(
        "pagefault",
        usage.major_faults,
        usage.minor_faults,
        "major / minor",
    ));
    add(pair(
        "iops",
        usage.blocks_in,
        usage.blocks_out,
        "read / write",
    ));
    text
}
