//! Events as `perf` understands them: the same text gives the same attr.

use crate::skip;
use dioptra_perfevents::{AttrFlags, parse_events};
use std::collections::HashMap;
use std::process::Command;

/// Returns the fields of the first attr that `perf stat -vv` shows for an event.
fn perf_attr(event: &str) -> Option<HashMap<String, String>> {
    let output = Command::new("perf")
        .args(["stat", "-vv", "-e", event, "true"])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let start = text.find("perf_event_attr:")?;
    let fields = text[start..]
        .lines()
        .skip(1)
        .take_while(|line| !line.starts_with("---"))
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            // Values may carry a comment or quotes: the first word is the value; names may hold spaces.
            let key = words.next()?;
            let value = words.find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
            Some((key.to_owned(), value.to_owned()))
        })
        .collect();
    Some(fields)
}

fn number(text: Option<&String>) -> u64 {
    let text = text.map_or("0", String::as_str);
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).expect("a number"),
        None => text.parse().expect("a number"),
    }
}

#[test]
fn perf_makes_the_same_attr_of_the_same_text() {
    if Command::new("perf").arg("--version").output().is_err() {
        skip!("perf is not installed");
    }
    let mut compared = 0;
    for event in [
        "cpu-clock",
        "cpu-clock:u",
        "cpu-clock:k",
        "task-clock:uk",
        "page-faults",
        "faults:u",
        "minor-faults",
        "major-faults",
        "context-switches",
        "cs",
        "cpu-migrations",
        "migrations",
        "alignment-faults",
        "emulation-faults",
        "dummy:u",
        "cgroup-switches",
        "mem:0x1000:w",
        "mem:0x1000/8:rw:u",
        "mem:0x1000:x:u",
        "msr/tsc/",
        "sched:sched_switch",
        "cycles:u",
        "instructions:k",
        "L1-dcache-load-misses",
        "LLC-stores",
        "dTLB-loads",
        "iTLB-load-misses",
        "branch-misses",
        "r1a8",
        "stalled-cycles-frontend",
    ] {
        let Ok(groups) = parse_events(event) else {
            // A tracepoint or PMU that this machine or user does not have.
            continue;
        };
        let attr = &groups[0].events[0].attr;
        let Some(theirs) = perf_attr(event) else {
            continue;
        };
        compared += 1;
        assert_eq!(
            u64::from(attr.kind),
            number(theirs.get("type")),
            "{event}: {theirs:?}"
        );
        assert_eq!(
            attr.config,
            number(theirs.get("config")),
            "{event}: {theirs:?}"
        );
        assert_eq!(
            u64::from(attr.bp_type),
            number(theirs.get("bp_type")),
            "{event}: {theirs:?}"
        );
        for (name, flag) in [
            ("exclude_user", AttrFlags::EXCLUDE_USER),
            ("exclude_kernel", AttrFlags::EXCLUDE_KERNEL),
            ("exclude_hv", AttrFlags::EXCLUDE_HV),
        ] {
            assert_eq!(
                u64::from(attr.flags.contains(flag)),
                number(theirs.get(name)),
                "{event} {name}: {theirs:?}"
            );
        }
    }
    println!("compared {compared} events");
}

#[test]
fn every_event_that_perf_lists_is_an_event_here() {
    let Ok(output) = Command::new("perf")
        .args(["list", "--no-desc", "sw", "hw", "cache", "tracepoint"])
        .output()
    else {
        skip!("perf is not installed");
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut known = 0;
    for line in text.lines() {
        let Some((names, kind)) = line.trim().split_once('[') else {
            continue;
        };
        if kind.starts_with("Tool") || kind.starts_with("Kernel PMU") {
            continue;
        }
        for name in names.trim().split(" OR ") {
            if let Err(error) = parse_events(name) {
                panic!("{name}: {error}");
            }
            known += 1;
        }
    }
    println!("{known} names");
}
