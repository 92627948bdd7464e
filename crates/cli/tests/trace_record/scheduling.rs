//! Scheduling, against what the kernel counts of a program that sleeps.

use super::{calls, dioptra, text};
use dioptra_testprograms::{Language, Program, or_skip, skip};

/// Numbers of functions by name, of a column of a report.
fn column(csv: &str, wanted: &str) -> std::collections::BTreeMap<String, u64> {
    let mut lines = csv.lines();
    let columns: Vec<&str> = lines.next().unwrap().split(',').collect();
    let place = |name: &str| columns.iter().position(|column| *column == name).unwrap();
    let (value, function) = (place(wanted), place("function"));
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        (cells[function].to_owned(), cells[value].parse().unwrap())
    };
    lines.map(row).collect()
}

#[test]
fn sleeps_are_as_many_and_as_long_as_they_are() {
    const TIMES: u64 = 100;
    let program = Program::new(Language::C, "sleeps").no_flags();
    let program = or_skip!(program.flags(["-O1", "-pg"]).build());
    let program = program.to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let recorded = dioptra(&["record", program, "100", "2"], folder.path());
    let told = text(&recorded.stderr);
    if told.contains("when threads had no CPU is not recorded") {
        return skip(told);
    }
    // Voluntary and involuntary switches, and microseconds of CPU time.
    let printed: Vec<u64> = text(&recorded.stdout)
        .split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect();
    let report = |arguments: &[&str]| {
        let shown = dioptra(
            &[&["report", "--format", "csv"], arguments].concat(),
            folder.path(),
        );
        assert!(shown.status.success());
        text(&shown.stdout)
    };
    let inside = report(&["-F", "burn", "-F", "doze"]);
    let counts = calls(&inside);
    assert_eq!(counts["doze"], TIMES);
    let count = |name: &str| counts.get(name).copied().unwrap_or(0);
    // A switch may fall between the calls, of which there are a few hundred.
    for (name, expected) in [
        ("linux:schedule", printed[0]),
        ("linux:schedule (pre-empted)", printed[1]),
    ] {
        let found = count(name);
        assert!(
            found <= expected && found + 3 + expected / 20 >= expected,
            "{name}: {found} of {expected}"
        );
    }
    let totals = column(&inside, "total");
    let slept = totals["linux:schedule"];
    let (dozed, burnt) = (totals["doze"], totals["burn"]);
    // Few of the sleeps may have been over before the thread was kept from running.
    assert!(slept >= (TIMES - 5) * 1_000_000, "{slept}");
    assert!(slept <= dozed + burnt, "{slept} of {dozed} and {burnt}");
    // What is left of the functions' time is time on a CPU.
    let preempted = totals.get("linux:schedule (pre-empted)").copied();
    let running = dozed + burnt - slept - preempted.unwrap_or(0);
    let cpu = printed[2] * 1000;
    assert!(
        running.abs_diff(cpu) < cpu / 10 + 5_000_000,
        "{running} ns on a CPU, {cpu} as the kernel counts"
    );
    let without = calls(&report(&["--no-sched"]));
    assert!(without.keys().all(|name| !name.starts_with("linux:")));
    assert_eq!(without["burn"], TIMES);
}

#[test]
fn who_wants_no_scheduling_has_none() {
    let program = Program::new(Language::C, "sleeps").no_flags();
    let program = or_skip!(program.flags(["-O1", "-pg"]).build());
    let program = program.to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let switches = folder.path().join("dioptra.trace/switches");
    for (options, expected) in [
        (&["--no-sched"][..], false),
        (&["--no-event"], false),
        (&["--no-event", "-E", "linux:schedule"], true),
        (&[], true),
    ] {
        let command = [&["record"], options, &[program, "10"]].concat();
        let recorded = dioptra(&command, folder.path());
        assert!(recorded.status.success());
        let told = text(&recorded.stderr);
        let refused = told.contains("when threads had no CPU is not recorded");
        assert_eq!(
            switches.exists(),
            expected && !refused,
            "{options:?}: {told}"
        );
    }
    let wrong = dioptra(&["record", "-E", "linux:shedule", program], folder.path());
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("linux:schedule"));
}
