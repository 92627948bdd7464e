//! The same recording, filtered by uftrace and by this crate.
//!
//! Only rules that both understand alike: the crate's documentation lists the differences.

mod calls;

use calls::{Call, Step, assemble, text, walk};
use dioptra_filters::{
    Compiler, Event, FunctionDescription, Lane, PlanOptions, Rules, TraceSwitch,
};
use dioptra_testprograms::{Language, Program, need_tool, or_skip, skip};
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn filters_leave_the_calls_that_uftrace_leaves() {
    or_skip!(need_tool("uftrace"));
    let program = Program::new(Language::C, "nested_calls").flags(["-pg", "-O0"]);
    let program = or_skip!(program.build());
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let recorded = Command::new("uftrace")
        .args(["record", "--no-event", "-d"])
        .arg(&data)
        .arg(&program)
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .output()
        .expect("uftrace starts");
    if !recorded.status.success() {
        return skip(format!(
            "uftrace does not record here: {}",
            String::from_utf8_lossy(&recorded.stderr)
        ));
    }
    let recorded = recorded_calls(&data);
    let all = text(&recorded);
    assert!(
        all.contains("main(a(b(c)) d(c a(b(c))) r(r(r(r)))"),
        "{all}"
    );

    // A duration that occurs, so that its own calls are on the edge; uftrace takes three digits.
    let mut durations = Vec::new();
    fn collect(calls: &[Call], durations: &mut Vec<u64>) {
        for call in calls {
            durations.push(call.end - call.start);
            collect(&call.below, durations);
        }
    }
    collect(&recorded, &mut durations);
    durations.sort_unstable();
    let short: Vec<u64> = durations.into_iter().filter(|time| *time < 1_000).collect();
    let edge = short
        .get(short.len() / 2)
        .map(|time| format!("-t {time}ns"));

    let options = [
        "",
        "-F a",
        "-F b -F d",
        "-F d -N b",
        "-N b",
        "-N d -F c",
        "-F c -N a",
        "-D 1",
        "-D 2",
        "-D 3",
        "-F b -D 1",
        "-F d -D 2",
        "-F d -F b -D 2",
        "-F r -D 2",
        "-T d@depth=1",
        "-T d@depth=2",
        "-F d@depth=2",
        "-T d@depth=2 -T a@depth=1",
        "-C b",
        "-C c",
        "-C slow",
        "-T b@hide",
        "-T a@hide",
        "-t 1ms",
        "-t 1.5ms",
        "-F ^[ab]$",
        "-N ^[bd]$",
        "-T r@filter,depth=2",
        "-F main -N c",
        "-F a;d",
        "-F !a",
        "-D 2 -T a@hide",
        "-D 2 -T d@hide",
        "-T d@trace_on",
        "-C b -C r",
        "-C b -t 1ms",
        "-F r -D 1",
        "-t 1ms -T c@trace",
        "-t 1ms -T b@trace",
        "-T a@time=1ms",
        "-T d@time=1ms -T b@time=0",
        "-T main@time=1ms -T d@time=1ns",
        "-D 1 -T b@depth=1",
        "-F a -F b@depth=1",
        "-F main@depth=2 -N a",
        "-F r@depth=1",
        "-F c -H c",
        "-F main -T d@filter -D 1",
        "-F d -N d",
        "-N d -F d",
        "-T d@filter,hide",
        "-F a@caller",
        "-T b@filter,time=1ms",
    ];
    let mut compared = 0;
    for options in options.into_iter().chain(edge.as_deref()) {
        let ours = text(&filtered(options, &recorded));
        let theirs = replayed(&data, options);
        assert_eq!(ours, theirs, "{options}");
        compared += 1;
    }
    assert!(compared >= 50);
}

/// Returns all calls that uftrace recorded, as a tree.
fn recorded_calls(data: &Path) -> Vec<Call> {
    let output = Command::new("uftrace")
        .args(["dump", "--no-pager", "-d"])
        .arg(data)
        .output()
        .expect("uftrace dumps");
    let mut open: Vec<Call> = Vec::new();
    let mut roots = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        // `12455.909116914  12553: [entry] main(5629ecb94050) depth: 0`
        let Some((head, rest)) = line.split_once(": [") else {
            continue;
        };
        let Some((kind, rest)) = rest.split_once("] ") else {
            continue;
        };
        let (name, _) = rest.split_once('(').expect("a function");
        let (seconds, nanoseconds) = head
            .split_whitespace()
            .next()
            .and_then(|t| t.split_once('.'))
            .expect("a time");
        let time = seconds.parse::<u64>().expect("seconds") * 1_000_000_000
            + nanoseconds.parse::<u64>().expect("nanoseconds");
        if kind == "entry" {
            open.push(Call {
                name: name.to_owned(),
                start: time,
                end: 0,
                below: Vec::new(),
            });
        } else {
            let mut call = open.pop().expect("an open call");
            assert_eq!(call.name, name);
            call.end = time;
            open.last_mut()
                .map_or(&mut roots, |caller| &mut caller.below)
                .push(call);
        }
    }
    assert!(open.is_empty());
    roots
}

fn filtered(options: &str, recorded: &[Call]) -> Vec<Call> {
    let names = calls::names(recorded);
    let rules: Rules = calls::rules(options);
    let replay = PlanOptions {
        replay: true,
        ..PlanOptions::default()
    };
    let mut compiler = Compiler::new(rules, replay).expect("rules");
    for name in &names {
        compiler.add(&FunctionDescription {
            name,
            ..FunctionDescription::default()
        });
    }
    let plan = compiler.plan();
    let mut lane = Lane::new(&plan, 0);
    let mut told: Vec<Event<u32>> = Vec::new();
    let tell = &mut |event| told.push(event);
    let mut switch = TraceSwitch::On;
    walk(recorded, &names, &mut |step| match step {
        Step::Enter(id, time) => {
            switch = switch.after(lane.enter(&plan, plan.action_of(id), switch, id, time, tell));
        }
        Step::Exit(_, time) => lane.exit(&plan, time, tell),
    });
    assemble(&told, &names)
}

/// Returns the calls that uftrace shows, in the notation of trees.
fn replayed(data: &Path, options: &str) -> String {
    let output = Command::new("uftrace")
        .args(["replay", "--no-pager", "-f", "none", "-d"])
        .arg(data)
        .args(options.split_whitespace())
        .output()
        .expect("uftrace replays");
    let mut tree = String::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let line = line.trim();
        let part = if let Some((name, _)) = line.split_once("();") {
            name.to_owned()
        } else if let Some((name, _)) = line.split_once("() {") {
            format!("{name}(")
        } else if line.starts_with('}') {
            ")".to_owned()
        } else {
            continue;
        };
        if !(tree.is_empty() || tree.ends_with('(') || part == ")") {
            tree.push(' ');
        }
        tree.push_str(&part);
    }
    // A call whose callees are hidden has an empty block.
    tree.replace("()", "")
}
