//! Names of events, made from their attrs as perf would print them, for recordings that hold no names.

use crate::features::PmuMapping;
use dioptra_perfrecords::{Attr, AttrFlags, event_type};
use std::fmt::Write;

const HARDWARE: [&str; 10] = [
    "cycles",
    "instructions",
    "cache-references",
    "cache-misses",
    "branches",
    "branch-misses",
    "bus-cycles",
    "stalled-cycles-frontend",
    "stalled-cycles-backend",
    "ref-cycles",
];

const SOFTWARE: [&str; 12] = [
    "cpu-clock",
    "task-clock",
    "page-faults",
    "context-switches",
    "cpu-migrations",
    "minor-faults",
    "major-faults",
    "alignment-faults",
    "emulation-faults",
    "dummy",
    "bpf-output",
    "cgroup-switches",
];

const CACHES: [&str; 7] = [
    "L1-dcache",
    "L1-icache",
    "LLC",
    "dTLB",
    "iTLB",
    "branch",
    "node",
];

/// Accesses and misses of each operation.
const CACHE_OPERATIONS: [[&str; 2]; 3] = [
    ["loads", "load-misses"],
    ["stores", "store-misses"],
    ["prefetches", "prefetch-misses"],
];

/// The name of `attr`'s event with its modifiers, such as `cycles:u`.
///
/// `pmus` names dynamic PMUs; a PMU that is not among them is named by its number.
pub fn event_name(attr: &Attr, pmus: &[PmuMapping]) -> String {
    let mut name = base_name(attr, pmus);
    push_modifiers(&mut name, attr);
    name
}

fn base_name(attr: &Attr, pmus: &[PmuMapping]) -> String {
    let table = |names: &[&str]| {
        usize::try_from(attr.config)
            .ok()
            .and_then(|index| names.get(index))
            .map(|name| (*name).to_owned())
    };
    match attr.kind {
        event_type::HARDWARE => {
            // Hybrid machines put the PMU's number into the upper half.
            let event = HARDWARE.get((attr.config & 0xffff_ffff) as usize);
            event.map_or_else(
                || format!("hardware:{:#x}", attr.config),
                |name| (*name).to_owned(),
            )
        }
        event_type::SOFTWARE => {
            table(&SOFTWARE).unwrap_or_else(|| format!("software:{:#x}", attr.config))
        }
        event_type::TRACEPOINT => format!("tracepoint:{}", attr.config),
        event_type::HW_CACHE => {
            cache_name(attr.config).unwrap_or_else(|| format!("cache:{:#x}", attr.config))
        }
        event_type::RAW => format!("r{:x}", attr.config),
        event_type::BREAKPOINT => breakpoint_name(attr),
        kind => pmu_name(attr, kind, pmus),
    }
}

fn cache_name(config: u64) -> Option<String> {
    let byte = |shift: u32| ((config >> shift) & 0xff) as usize;
    let cache = CACHES.get(byte(0))?;
    let operation = CACHE_OPERATIONS.get(byte(8))?.get(byte(16))?;
    Some(format!("{cache}-{operation}"))
}

fn breakpoint_name(attr: &Attr) -> String {
    let mut name = format!("mem:{:#x}:", attr.config1);
    for (bit, letter) in [(1, 'r'), (2, 'w'), (4, 'x')] {
        if attr.bp_type & bit != 0 {
            name.push(letter);
        }
    }
    name
}

fn pmu_name(attr: &Attr, kind: u32, pmus: &[PmuMapping]) -> String {
    let mut name = match pmus.iter().find(|pmu| pmu.kind == kind) {
        Some(pmu) => pmu.name.clone(),
        None => format!("pmu{kind}"),
    };
    // Writing to a string cannot fail.
    let _ = write!(name, "/config={:#x}", attr.config);
    for (term, value) in [
        ("config1", attr.config1),
        ("config2", attr.config2),
        ("config3", attr.config3),
    ] {
        if value != 0 {
            let _ = write!(name, ",{term}={value:#x}");
        }
    }
    name.push('/');
    name
}

/// `:u`, `:k`, `:ppp` and the like: only what differs from counting everything.
fn push_modifiers(name: &mut String, attr: &Attr) {
    let has = |flag| attr.flags.contains(flag);
    let mut modifiers = String::new();
    let excluded = [
        (AttrFlags::EXCLUDE_USER, 'u'),
        (AttrFlags::EXCLUDE_KERNEL, 'k'),
        (AttrFlags::EXCLUDE_HV, 'h'),
    ];
    // The hypervisor's bit alone is a default of perf for some events, and no modifier.
    if has(AttrFlags::EXCLUDE_USER) || has(AttrFlags::EXCLUDE_KERNEL) {
        modifiers.extend(
            excluded
                .iter()
                .filter(|(flag, _)| !has(*flag))
                .map(|(_, letter)| letter),
        );
    }
    for _ in 0..attr.precise_ip() {
        modifiers.push('p');
    }
    if has(AttrFlags::EXCLUDE_HOST) {
        modifiers.push('G');
    }
    if has(AttrFlags::PINNED) {
        modifiers.push('D');
    }
    if !modifiers.is_empty() {
        if !name.ends_with('/') {
            name.push(':');
        }
        name.push_str(&modifiers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attr(kind: u32, config: u64) -> Attr {
        Attr {
            kind,
            config,
            ..Attr::default()
        }
    }

    #[test]
    fn names_are_perfs() {
        let name = |kind, config| event_name(&attr(kind, config), &[]);
        assert_eq!(name(event_type::HARDWARE, 0), "cycles");
        assert_eq!(name(event_type::SOFTWARE, 0), "cpu-clock");
        assert_eq!(name(event_type::SOFTWARE, 99), "software:0x63");
        assert_eq!(
            name(event_type::HW_CACHE, 0x1_0000),
            "L1-dcache-load-misses"
        );
        assert_eq!(name(event_type::HW_CACHE, 0x103), "dTLB-stores");
        assert_eq!(name(event_type::RAW, 0x1a8), "r1a8");
        assert_eq!(name(9, 5), "pmu9/config=0x5/");
    }

    #[test]
    fn modifiers_tell_what_is_counted() {
        let mut user = attr(event_type::SOFTWARE, 0);
        user.flags = AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
        assert_eq!(event_name(&user, &[]), "cpu-clock:u");
        user.flags = AttrFlags::EXCLUDE_HV;
        user.set_precise_ip(2);
        assert_eq!(event_name(&user, &[]), "cpu-clock:pp");
        let pmus = [PmuMapping {
            kind: 9,
            name: "cpu_atom".into(),
        }];
        let mut hybrid = attr(9, 0x3c);
        hybrid.flags = AttrFlags::EXCLUDE_USER | AttrFlags::EXCLUDE_HV;
        assert_eq!(event_name(&hybrid, &pmus), "cpu_atom/config=0x3c/k");
    }
}
