//! Dynamic PMUs, as sysfs describes them under `/sys/bus/event_source/devices`.

use crate::sys;

/// Where PMUs are listed.
pub(crate) const DEVICES: &str = "/sys/bus/event_source/devices";

/// The type number of the PMU called `name`; `None` where the machine has none of that name.
pub fn kind(name: &str) -> Option<u32> {
    if name.contains('/') || name.starts_with('.') {
        return None;
    }
    sys::read_file(&format!("{DEVICES}/{name}/type"))
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// Whether `kind` is the PMU of uprobes or of kprobes, whose every hit counts.
pub fn is_probe(kind: u32) -> bool {
    use std::sync::OnceLock;
    static PROBES: OnceLock<[Option<u32>; 2]> = OnceLock::new();
    // Numbers below 6 are the kernel's fixed types.
    kind >= 6
        && PROBES
            .get_or_init(|| [self::kind("uprobe"), self::kind("kprobe")])
            .contains(&Some(kind))
}
