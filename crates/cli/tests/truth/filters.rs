//! Filters: our filters keep the same samples as perf's.

use crate::compare::assert_equal_with;
use crate::{BOTH, Recorder, record};
use dioptra_testprograms::{self as programs, or_skip};
use std::collections::BTreeMap;

#[test]
fn names_modules_and_times() {
    or_skip!(programs::need_tool("gcc"));
    let script =
        "for i in 1 2 3; do printf 'int main(void){return 0;}\\n' | gcc -O2 -x c -o out -; done";
    for recorder in BOTH {
        let recorded = or_skip!(record(
            recorder,
            &["-F", "4000", "-g"],
            &["sh", "-c", script]
        ));
        let recording = &recorded.recording;
        for (key, perfs, ours) in [
            (Some("comm"), "--comms=cc1", ["--comm", "cc1"]),
            (Some("comm"), "--comms=sh", ["--comm", "sh"]),
            // With a single module perf does not print its name.
            (
                None,
                "--dsos=cc1,[kernel.kallsyms]",
                ["--dso", "cc1,[kernel.kallsyms]"],
            ),
        ] {
            let options = [perfs, "--percentage", "relative"];
            // perf also takes the callers in other modules out of its table, but not their samples.
            let children: &[bool] = if key.is_none() {
                &[false]
            } else {
                &[true, false]
            };
            assert_equal_with(recording, children, key, &options, &ours);
        }
        let times = recording.times();
        let (first, from, to) = (times[0], times[times.len() / 4], times[times.len() * 3 / 4]);
        let seconds = |time: u64| format!("{}.{:09}", time / 1_000_000_000, time % 1_000_000_000);
        // perf's end of the range is inclusive, ours is not.
        let perfs = format!("--time={},{}", seconds(from), seconds(to));
        let ours = format!("{}..{}", seconds(from - first), seconds(to + 1 - first));
        let left = assert_equal_with(
            recording,
            &[true, false],
            None,
            &[&perfs],
            &["--time", &ours],
        );
        let samples: u64 = left.values().flatten().map(|row| row.samples).sum();
        let within = times.iter().filter(|time| (from..=to).contains(*time));
        assert_eq!(samples, within.count() as u64);
        // The report states the number of samples before the filter.
        let json = recording.ours_json(&["--time", &ours]);
        let fact = &json["facts"]["filtered"]["value"];
        assert_eq!(fact["samples"], times.len() as u64, "{fact}");
    }
}

#[test]
fn threads_and_cpus() {
    let threaded = or_skip!(programs::rust("threaded", &[]));
    let command = [threaded.to_str().expect("a path"), "4", "20"];
    let recorded = or_skip!(record(
        Recorder::Perf,
        &["-F", "2000", "--sample-cpu"],
        &command
    ));
    let recording = &recorded.recording;
    let cpus = recording.ours_by("cpu", |cells| cells["cpu"].clone());
    let perfs: BTreeMap<String, u64> = recording
        .perfs_by("cpu")
        .into_iter()
        .map(|(cpu, weight)| {
            let number: u32 = cpu.parse().expect("a number");
            (number.to_string(), weight)
        })
        .collect();
    assert_eq!(perfs, cpus);
    for cpu in cpus.keys() {
        let perfs = format!("--cpu={cpu}");
        assert_equal_with(recording, &[false], None, &[&perfs], &["--cpu", cpu]);
    }
    let threads = recording.ours_by("thread", |cells| cells["tid"].clone());
    for tid in threads.keys() {
        let perfs = format!("--tid={tid}");
        let left = assert_equal_with(
            recording,
            &[false],
            Some("pid"),
            &[&perfs, "--percentage", "relative"],
            &["--tid", tid],
        );
        let weight: u64 = left.values().flatten().map(|row| row.weight).sum();
        assert_eq!(weight, threads[tid]);
    }
}

#[test]
fn one_function() {
    let shares = or_skip!(programs::c("shares", &[]));
    let recorded = or_skip!(record(
        Recorder::Perf,
        &["-F", "2000"],
        &[shares.as_os_str()]
    ));
    let all = recorded.recording.ours(false, &[]);
    let one = recorded.recording.ours(false, &["--symbol", "sixty"]);
    let expected: Vec<u64> = all["cpu-clock"]
        .iter()
        .filter(|row| row.name == "sixty")
        .map(|row| row.weight)
        .collect();
    let found: Vec<u64> = one["cpu-clock"].iter().map(|row| row.weight).collect();
    assert_eq!(found, expected);
}
