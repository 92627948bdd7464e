//! Scheduling, compared with the kernel's counts for a program that sleeps.

use super::{calls, dioptra, text};
use dioptra_testprograms::{Language, Program, or_skip, skip};

/// Returns the numbers of functions by name, of a column of a report.
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

/// Threads that never wait, and call short functions all the time.
const CALLERS: &str = r#"#include <pthread.h>
static __attribute__((noinline)) void tiny(void) { __asm__ volatile(""); }
static void *work(void *arg) {
  for (int i = 0; i < 500000; i++) tiny();
  return arg;
}
int main(void) {
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, work, 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
  return 0;
}
"#;

#[test]
fn serial_waits_for_the_tracer_are_not_the_programs() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("callers.c");
    std::fs::write(&source, CALLERS).unwrap();
    let program = Program::from_source(Language::C, source).no_flags();
    let program = or_skip!(
        program
            .flags(["-O1", "-pg", "-mfentry", "-pthread"])
            .build()
    );
    let program = program.to_str().unwrap();
    let record = ["record", "--memory", "256k", program];
    let recorded = dioptra(&record, folder.path());
    let told = text(&recorded.stderr);
    assert!(recorded.status.success(), "{told}");
    assert!(told.contains("waited for the tracer"), "{told}");
    let shown = |arguments: &[&str]| {
        let shown = dioptra(arguments, folder.path());
        assert!(shown.status.success(), "{}", text(&shown.stderr));
        (text(&shown.stdout), text(&shown.stderr))
    };
    let (info, _) = shown(&["info", "--format", "json"]);
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    let ending = &info["info"]["ending"];
    assert!(ending["waits"].as_u64() > Some(0), "{ending}");
    assert!(ending["waited"].as_u64() > Some(0), "{ending}");
    assert_eq!(ending["memory"], 4 * 65536);
    let (text, _) = shown(&["info"]);
    assert!(text.contains("waited for the tracer"), "{text}");
    if told.contains("when threads had no CPU is not recorded") {
        return skip(told);
    }
    let (report, told) = shown(&["report", "--format", "csv", "-N", "pthread_join"]);
    assert!(told.contains("--memory"), "{told}");
    let counts = calls(&report);
    let count = |name: &str| counts.get(name).copied().unwrap_or(0);
    let (own, tracers) = (count("linux:schedule"), count("linux:schedule (tracer)"));
    // A thread may wait for another one in the C library while it begins.
    assert!(
        tracers > 10 * own.max(1),
        "{tracers} of the tracer, {own} of the program"
    );
    let (replay, _) = shown(&["replay", "-f", "none", "-F", "work"]);
    assert!(replay.contains("/* linux:schedule (tracer) */"));
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
    // The program prints voluntary and involuntary switches, and microseconds of CPU time.
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
    // A few of the sleeps may have been over before the thread was kept from running.
    assert!(slept >= (TIMES - 5) * 1_000_000, "{slept}");
    assert!(slept <= dozed + burnt, "{slept} of {dozed} and {burnt}");
    // The remaining time of the functions is time on a CPU.
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
fn cpus_and_names_are_those_of_the_program() {
    let program = Program::new(Language::C, "tasks").no_flags();
    let program = program.flags(["-O1", "-pg", "-pthread"]);
    let program = or_skip!(program.build());
    let program = program.to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let recorded = dioptra(&["record", program, "fork"], folder.path());
    let told = text(&recorded.stderr);
    if told.contains("when threads had no CPU is not recorded") {
        return skip(told);
    }
    let printed = text(&recorded.stdout);
    let (first, last) = printed.trim().split_once(' ').unwrap();
    let both = match (first.parse::<u32>().unwrap(), last.parse::<u32>().unwrap()) {
        (first, last) if first == last => format!("{first}"),
        (first, last) if first + 1 == last => format!("{first}-{last}"),
        (first, last) => format!("{first},{last}"),
    };
    let shown = dioptra(&["report", "-f", "cpu-list"], folder.path());
    let shown = text(&shown.stdout);
    let cpus: std::collections::BTreeMap<&str, &str> = shown
        .lines()
        .filter_map(|line| line.trim().split_once("  "))
        .map(|(cpus, name)| (name, cpus))
        .collect();
    assert_eq!(cpus["on_first"], first);
    assert_eq!(cpus["on_last"], last);
    assert_eq!(cpus["on_both"], both);
    let replay = |options: &[&str]| {
        let command = [&["replay", "-f", "none"], options].concat();
        text(&dioptra(&command, folder.path()).stdout)
    };
    let shown = replay(&[]);
    for line in [
        "/* linux:task-name (comm=\"worker\") */",
        "/* linux:task-name (comm=\"kid\") */",
    ] {
        assert_eq!(shown.matches(line).count(), 1, "{shown}");
    }
    let shown = replay(&["--event-full"]);
    // The thread and the child each begin; the program's own beginning is nobody's event.
    assert_eq!(shown.matches("linux:task-new").count(), 2, "{shown}");
    assert_eq!(shown.matches("linux:task-exit").count(), 3, "{shown}");
    assert!(
        shown.contains("/* linux:task-name (comm=\"tasks"),
        "{shown}"
    );
    assert!(!replay(&["--event-full", "--no-event"]).contains("linux:"));
}

#[test]
fn who_wants_no_scheduling_has_none() {
    let program = Program::new(Language::C, "sleeps").no_flags();
    let program = or_skip!(program.flags(["-O1", "-pg"]).build());
    let program = program.to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let switches = folder.path().join("dioptra.trace/switches");
    let journal = folder.path().join("dioptra.trace/journal.jsonl");
    for (options, expected, tasks) in [
        (&["--no-sched"][..], false, true),
        (&["--no-event"], false, false),
        (&["--no-event", "-E", "linux:schedule"], true, false),
        (&["--no-event", "-E", "linux:task-name"], false, true),
        (&[], true, true),
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
        let refused = refused || told.contains("got names is not recorded");
        let journal = std::fs::read_to_string(&journal).unwrap();
        let is_there = journal.contains("{\"task\":");
        assert_eq!(is_there, tasks && !refused, "{options:?}: {told}");
    }
    let wrong = dioptra(&["record", "-E", "linux:shedule", program], folder.path());
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("linux:schedule"));
}
