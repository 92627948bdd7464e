//! A recording of uftrace's, made ours, is shown as uftrace shows it, byte for byte.

use crate::made::{Made, Step, trace};
use dioptra_testprograms::{Language, Program, need_tool, or_skip, skip};
use std::path::Path;
use std::process::{Command, Stdio};

/// What uftrace recorded of a program, thread by thread.
fn recorded(data: &Path) -> Vec<(u32, Vec<Step>)> {
    let output = Command::new("uftrace")
        .args(["dump", "--no-pager", "-d"])
        .arg(data)
        .output()
        .expect("uftrace dumps");
    let mut threads: Vec<(u32, Vec<Step>)> = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        // `12455.909116914  12553: [entry] main(5629ecb94050) depth: 0`
        let Some((head, rest)) = line.split_once(": [") else {
            continue;
        };
        let Some((kind, rest)) = rest.split_once("] ") else {
            continue;
        };
        let (name, _) = rest.split_once('(').expect("a function");
        let mut head = head.split_whitespace();
        let time = head
            .next()
            .and_then(|time| time.split_once('.'))
            .expect("a time");
        let tid: u32 = head
            .next()
            .and_then(|tid| tid.parse().ok())
            .expect("a thread");
        let time = time.0.parse::<u64>().expect("seconds") * 1_000_000_000
            + time.1.parse::<u64>().expect("nanoseconds");
        if threads.last().is_none_or(|(last, _)| *last != tid) {
            threads.push((tid, Vec::new()));
        }
        let steps = &mut threads.last_mut().expect("a thread").1;
        steps.push(match kind {
            "entry" => Step::Enter(time, name.to_owned()),
            _ => Step::Leave(time),
        });
    }
    threads
}

fn uftrace(command: &str, data: &Path, arguments: &str) -> String {
    let output = Command::new("uftrace")
        .args([command, "--no-pager", "-d"])
        .arg(data)
        .args(arguments.split_whitespace())
        .stderr(Stdio::null())
        .output()
        .expect("uftrace runs");
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}

fn ours(made: &Made, command: &str, arguments: &str) -> String {
    let text = made.shown(command, arguments);
    text.lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}

fn record(program: &Path, folder: &Path) -> Result<(), String> {
    let recorded = Command::new("uftrace")
        .args(["record", "--no-event", "-d", "data"])
        .arg(program)
        .current_dir(folder)
        .stdout(Stdio::null())
        .output()
        .expect("uftrace starts");
    match recorded.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&recorded.stderr).into_owned()),
    }
}

#[test]
fn one_thread_is_shown_as_uftrace_shows_it() {
    or_skip!(need_tool("uftrace"));
    let program = Program::new(Language::C, "nested_calls").flags(["-pg", "-O0"]);
    let program = or_skip!(program.build());
    let folder = tempfile::tempdir().expect("a folder");
    if let Err(reason) = record(&program, folder.path()) {
        return skip(format!("uftrace does not record here: {reason}"));
    }
    let data = folder.path().join("data");
    let made = trace(&recorded(&data));
    for options in [
        "",
        "-f none",
        "-f duration,tid,time,delta,elapsed",
        "-f +elapsed",
        "-F a",
        "-N b",
        "-D 2",
        "-C b",
        "-H a",
        "-t 1ms",
        "-F d -D 2",
        "--no-merge",
        "--no-comment",
        "-T b@backtrace",
        "-F ^[ab]$",
        "--column-view",
        "--task-newline",
        "--match=glob -F [ab]",
    ] {
        let theirs = uftrace("replay", &data, options);
        assert!(!theirs.is_empty());
        assert_eq!(ours(&made, "replay", options), theirs, "replay {options}");
    }
    for options in [
        "-s func",
        "-s func -f total,self,call,total-avg,total-min,total-max,self-avg,self-min,self-max",
        "--avg-total -s func",
        "--avg-self -s func",
        "-s total",
        "-s self",
        "-F d -s func",
        "-N r -s func",
        "-H a -s func",
        "-D 2 -s func",
        "-F main -D 2 -s func",
        // Its self times contain calls that are too short to be shown, unlike those hidden otherwise.
        "-t 1ms -s func -f total,call",
    ] {
        let theirs = uftrace("report", &data, options);
        assert_eq!(ours(&made, "report", options), theirs, "report {options}");
    }
    for options in ["", "-f total,self", "-F d", "c", "r", "a"] {
        // The first line names the session and the program.
        let body = |text: String| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
        let is_place = |line: &str| line.starts_with("   [");
        let known = |lines: Vec<String>| -> Vec<String> {
            let cut = |line: String| match is_place(&line) {
                true => line.split(" (").next().unwrap_or_default().to_owned(),
                false => line.replace(" (1) program", " (1) nested_calls"),
            };
            lines.into_iter().map(cut).collect()
        };
        let theirs = known(body(uftrace("graph", &data, options)));
        let theirs: Vec<String> = theirs
            .into_iter()
            .map(|line| match line.split_once(" : (1) nested_calls") {
                Some((before, _)) => format!("{before} : (1) nested_calls"),
                None => line,
            })
            .collect();
        assert_eq!(
            known(body(ours(&made, "graph", options))),
            theirs,
            "graph {options}"
        );
    }
}

#[test]
fn threads_are_shown_as_uftrace_shows_them() {
    or_skip!(need_tool("uftrace"));
    let program = Program::new(Language::C, "threads").flags(["-pg", "-O0", "-pthread"]);
    let program = or_skip!(program.build());
    let folder = tempfile::tempdir().expect("a folder");
    if let Err(reason) = record(&program, folder.path()) {
        return skip(format!("uftrace does not record here: {reason}"));
    }
    let data = folder.path().join("data");
    let made = trace(&recorded(&data));
    for options in [
        "",
        "--column-view",
        "--task-newline",
        "--column-view --column-offset 4",
    ] {
        let theirs = uftrace("replay", &data, options);
        assert_eq!(ours(&made, "replay", options), theirs, "replay {options}");
    }
    let theirs = uftrace("report", &data, "-s func");
    assert_eq!(ours(&made, "report", "-s func"), theirs);
}
