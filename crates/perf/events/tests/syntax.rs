//! The events' text form, on a directory of PMUs like that of an Intel machine.

use dioptra_perfevents::names::pmu::PmuDirectory;
use dioptra_perfevents::{AttrFlags, EventGroup, EventSyntaxError, event_type, parse_events_with};
use std::path::{Path, PathBuf};

/// A directory of PMUs, removed when dropped.
struct Machine(PathBuf);

impl Machine {
    fn new(name: &str) -> Machine {
        let root = std::env::temp_dir().join(format!("perfevents-{name}-{}", std::process::id()));
        for (path, text) in [
            ("cpu/type", "4\n"),
            ("cpu/format/event", "config:0-7\n"),
            ("cpu/format/umask", "config:8-15\n"),
            ("cpu/format/edge", "config:18\n"),
            ("cpu/format/ldat", "config1:0-15\n"),
            ("cpu/events/cpu-cycles", "event=0x3c\n"),
            ("cpu/events/mem-loads", "event=0xcd,umask=0x1,ldat=3\n"),
            ("cpu/events/mem-stores", "event=0xd0,umask=0x82\n"),
            ("uncore_imc_0/type", "18\n"),
            ("uncore_imc_0/cpumask", "0\n"),
            ("uncore_imc_0/format/event", "config:0-7\n"),
            (
                "uncore_imc_0/events/cas_count_read",
                "event=0x04,umask=0x03\n",
            ),
            (
                "uncore_imc_0/events/cas_count_read.scale",
                "6.103515625e-5\n",
            ),
            ("uprobe/type", "8\n"),
            ("uprobe/format/retprobe", "config:0\n"),
            ("odd/type", "30\n"),
            ("odd/format/split", "config:0-3,60-63\n"),
            ("odd/events/open", "split=?\n"),
        ] {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
            std::fs::write(path, text).expect("a file");
        }
        Machine(root)
    }

    fn parse(&self, text: &str) -> Result<Vec<EventGroup>, EventSyntaxError> {
        parse_events_with(text, &PmuDirectory::at(Path::new(&self.0)))
    }

    fn one(&self, text: &str) -> dioptra_perfevents::EventSpec {
        let groups = self.parse(text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((groups.len(), groups[0].events.len()), (1, 1), "{text}");
        groups[0].events[0].clone()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn lists_groups_and_modifiers() {
    let machine = Machine::new("lists");
    let groups = machine
        .parse("cycles:u, {instructions,cache-misses:k}:S,cpu-clock")
        .expect("three groups");
    assert_eq!(groups.len(), 3);
    assert!(groups[1].sample_group && !groups[0].sample_group);
    let names: Vec<&str> = groups
        .iter()
        .flat_map(|group| &group.events)
        .map(|event| event.name.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "cycles:u",
            "instructions:S",
            "cache-misses:k:S",
            "cpu-clock"
        ]
    );
    let flags = groups[0].events[0].attr.flags;
    assert!(
        flags.contains(AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV)
            && !flags.contains(AttrFlags::EXCLUDE_USER)
    );
    assert_eq!(machine.one("cycles:upp").attr.precise_ip(), 2);
    assert_eq!(machine.one("cycles:P").attr.precise_ip(), 3);
    assert!(
        machine
            .one("cycles:D")
            .attr
            .flags
            .contains(AttrFlags::PINNED)
    );
    assert!(
        machine
            .one("cycles:G")
            .attr
            .flags
            .contains(AttrFlags::EXCLUDE_HOST)
    );
}

#[test]
fn terms_fill_the_bits_that_sysfs_names() {
    let machine = Machine::new("terms");
    let event = machine.one("cpu/event=0x3c,umask=1,edge/u");
    assert_eq!((event.attr.kind, event.attr.config), (4, 0x4_013c));
    assert!(event.attr.flags.contains(AttrFlags::EXCLUDE_KERNEL));
    let event = machine.one("cpu/mem-loads,ldat=30,period=1000/:p");
    assert_eq!((event.attr.config, event.attr.config1), (0x1cd, 30));
    assert_eq!(
        (event.attr.sample_period, event.explicit_period),
        (1000, true)
    );
    assert_eq!(event.attr.precise_ip(), 1);
    let event = machine.one("odd/split=0xAB/");
    assert_eq!(
        (event.attr.kind, event.attr.config),
        (30, 0xA000_0000_0000_000B)
    );
    assert_eq!(machine.one("odd/config=0x123,config2=7/").attr.config2, 7);
    // An event of the CPU's PMU needs no PMU.
    assert_eq!(machine.one("mem-stores").attr.config, 0x82d0);
    assert_eq!(machine.one("cpu-clock/freq=99,name=beat/u").name, "beat");
    assert_eq!(
        machine.one("cpu-clock/freq=99/u").name,
        "cpu-clock/freq=99/u"
    );
    let event = machine.one("cpu-clock/freq=99/");
    assert!(event.attr.flags.contains(AttrFlags::FREQ) && event.attr.sample_period == 99);
    let mut event = machine.one("cpu-clock/period=5/");
    event.set_default_frequency(4000);
    assert_eq!(event.attr.sample_period, 5, "what was typed stands");
}

#[test]
fn forms_without_names() {
    let machine = Machine::new("forms");
    let raw = machine.one("r1a8:u");
    assert_eq!((raw.attr.kind, raw.attr.config), (event_type::RAW, 0x1a8));
    let mut watch = machine.one("mem:0x1000/8:rw:u");
    assert_eq!(
        (
            watch.attr.kind,
            watch.attr.bp_type,
            watch.attr.config1,
            watch.attr.config2
        ),
        (5, 3, 0x1000, 8)
    );
    watch.set_default_frequency(4000);
    assert_eq!(
        (
            watch.attr.sample_period,
            watch.attr.flags.contains(AttrFlags::FREQ)
        ),
        (1, false)
    );
    let watch = machine.one("mem:4096:x");
    assert_eq!(
        (watch.attr.bp_type, watch.attr.config2),
        (4, size_of::<usize>() as u64)
    );
    let groups = machine
        .parse("uretprobe:/usr/lib/a,b.so+0x1230:u")
        .expect_err("a comma ends an event");
    assert!(groups.to_string().contains("offset"), "{groups}");
    let probe = machine.one("uretprobe:/usr/lib/libc.so.6+0x1230:u");
    assert_eq!(
        (probe.attr.kind, probe.attr.config, probe.attr.config2),
        (8, 1, 0x1230)
    );
    assert_eq!(
        probe
            .probed_file
            .as_deref()
            .and_then(|file| file.to_str().ok()),
        Some("/usr/lib/libc.so.6")
    );
}

#[test]
fn faults_point_at_their_column() {
    let machine = Machine::new("faults");
    for (text, column, says) in [
        ("", 1, "missing"),
        ("cycles,", 8, "missing"),
        ("cycels", 1, "did you mean cycles?"),
        ("cycles,instrutions", 8, "instructions"),
        ("cycles:z", 8, "modifier"),
        ("cycles:", 8, "modifier"),
        ("cycles:pppp", 11, "three"),
        ("cpu-clock,cpu/evnt=1/", 15, "event"),
        ("cpu/event=x/", 11, "number"),
        ("cpu/event=0x100/", 5, "8 bits"),
        ("cpu/event=1", 4, "closed"),
        ("gpu/event=1/", 1, "uncore_imc_0"),
        ("odd/open/", 5, "split=VALUE"),
        ("cpu-clock/freq=0/", 16, "zero"),
        ("cpu-clock/umask=1/", 11, "term"),
        ("cpu-clock/name=/", 11, "name=NAME"),
        ("{cycles,instructions", 1, "closed"),
        ("cycles}", 7, "opened"),
        ("{a,{b}}", 4, "nest"),
        ("{cycles}x", 9, "modifiers"),
        ("mem:zz", 5, "address"),
        ("mem:0x10/3", 10, "length"),
        ("uprobe:/bin/ls", 8, "offset"),
        ("nosuch:tracepoint", 1, "nosuch:tracepoint"),
    ] {
        let error = machine.parse(text).expect_err(text);
        assert_eq!(error.column, column, "{error}");
        assert!(error.to_string().contains(says), "{text}: {error}");
    }
}

#[test]
fn a_directory_of_pmus_is_listed() {
    let machine = Machine::new("list");
    let pmus = PmuDirectory::at(machine.0.clone());
    assert_eq!(pmus.names(), ["cpu", "odd", "uncore_imc_0", "uprobe"]);
    assert_eq!(pmus.events("uncore_imc_0"), ["cas_count_read"]);
    assert_eq!(
        pmus.cpumask("uncore_imc_0").expect("a mask").as_slice(),
        [0]
    );
    assert_eq!(pmus.kind("../cpu"), None);
}

proptest::proptest! {
    #[test]
    fn any_text_is_events_or_an_error_within_the_text(text in "[a-z0-9:/,{}+= µ-]{0,40}") {
        if let Err(error) = dioptra_perfevents::parse_events(&text) {
            proptest::prop_assert!(error.column >= 1 && error.column <= text.chars().count() + 1, "{error}");
        }
    }
}
