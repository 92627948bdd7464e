//! The specs of the shipped events are texts that `record -e` understands. The recorder's own parser, with the PMU of
//! another machine, gives the register value of each event's encoding.

use std::fs;
use std::path::Path;

use dioptra_metrics::{CpuId, Environment, NeededEvent, RecordedEvent, builtin};
use dioptra_perfevents::names::pmu::PmuDirectory;
use dioptra_perfevents::parse_events_with;

/// The format files of an x86 core's PMU, as the kernel documents them.
fn x86_pmu(folder: &Path) {
    let cpu = folder.join("cpu");
    fs::create_dir_all(cpu.join("format")).expect("a folder");
    fs::create_dir_all(cpu.join("events")).expect("a folder");
    fs::write(cpu.join("type"), "4\n").expect("a file");
    for (term, bits) in [
        ("event", "config:0-7,32-35"),
        ("umask", "config:8-15"),
        ("edge", "config:18"),
        ("any", "config:21"),
        ("inv", "config:23"),
        ("cmask", "config:24-31"),
    ] {
        fs::write(cpu.join("format").join(term), format!("{bits}\n")).expect("a file");
    }
}

/// Returns the register value that an encoding's terms mean, by the documented layout.
fn config_of(encoding: &str) -> Option<u64> {
    if let Some(hex) = encoding.strip_prefix('r') {
        return u64::from_str_radix(hex, 16).ok();
    }
    let terms = encoding.strip_prefix("cpu/")?.strip_suffix('/')?;
    let mut config = 0;
    for term in terms.split(',') {
        let (field, value) = term.split_once('=')?;
        let value = match value.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok()?,
            None => value.parse().ok()?,
        };
        config |= match field {
            "event" => (value & 0xff) | (value >> 8) << 32,
            "umask" => value << 8,
            "edge" => value << 18,
            "any" => value << 21,
            "inv" => value << 23,
            "cmask" => value << 24,
            other => panic!("{encoding}: {other}"),
        };
    }
    Some(config)
}

#[test]
fn every_shipped_event_can_be_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    x86_pmu(folder.path());
    let pmus = PmuDirectory::at(folder.path());
    for b in builtin() {
        let set = b.set();
        let needed: Vec<NeededEvent> = set
            .needed_events()
            .into_iter()
            .filter(|e| e.encoding.is_some())
            .collect();
        let mut recorded = Vec::new();
        for event in &needed {
            let text = event.spec().expect("has an encoding");
            let groups = parse_events_with(&text, &pmus)
                .unwrap_or_else(|e| panic!("{}: {text}: {e}", b.name));
            assert_eq!(groups.len(), 1, "{text}");
            let parsed = &groups[0].events[0];
            if let Some(config) = event.encoding.as_deref().and_then(config_of) {
                assert_eq!(parsed.attr.config, config, "{text}");
            }
            if !event.read_only {
                assert_eq!(Some(parsed.attr.sample_period), event.period, "{text}");
            }
            recorded.push(RecordedEvent::named(&parsed.name));
        }
        // A profile of these events feeds every column that the set can feed.
        let cpu = Environment::new().with_cpu(CpuId::parse("0x00000000410fd490"));
        let bound = set.bind(&recorded, &cpu);
        assert_eq!(bound.notes(), [], "{}", b.name);
        let unknown: Vec<String> = set
            .needed_events()
            .into_iter()
            .filter(|e| e.encoding.is_none())
            .map(|e| e.name)
            .collect();
        for (column, bound) in set.columns().iter().zip(bound.columns()) {
            for name in bound.missing.iter().chain(bound.left_out.iter()) {
                assert!(
                    unknown.contains(name),
                    "{}: {}: {name}",
                    b.name,
                    column.name
                );
            }
        }
    }
}

#[test]
fn specs() {
    let event = |encoding: &str, name: &str, precise, read_only| NeededEvent {
        name: name.to_owned(),
        encoding: Some(encoding.to_owned()),
        period: Some(1009),
        precise,
        read_only,
        ..NeededEvent::default()
    };
    let spec = |e: NeededEvent| e.spec().expect("has an encoding");
    assert_eq!(
        spec(event("cpu/event=0xd3,umask=0x01/", "m:local", 2, false)),
        "cpu/event=0xd3,umask=0x01,period=1009,name=m:local/pp"
    );
    assert_eq!(
        spec(event("cycles", "cycles", 0, false)),
        "cycles/period=1009/"
    );
    assert_eq!(
        spec(event("r11", "CPU_CYCLES", 0, false)),
        "r11/period=1009,name=CPU_CYCLES/"
    );
    assert_eq!(
        spec(event("cpu/event=0xc4/k", "x", 0, true)),
        "cpu/event=0xc4,name=x/k"
    );
    assert_eq!(NeededEvent::default().spec(), None);
}
