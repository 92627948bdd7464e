//! A recording of uftrace's, made ours, is shown as uftrace shows it, byte for byte.

use crate::made::{Made, Step, trace};
use dioptra_testprograms::{Language, Program, Skip, need_tool, or_skip};
use dioptra_tracedata::TaskChange;
use dioptra_tracelayout::SwitchKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Threads, each with its steps; context switches: thread, time, kind; and changes of threads: thread, time, change.
type Recorded = (
    Vec<(u32, Vec<Step>)>,
    Vec<(u32, u64, SwitchKind)>,
    Vec<(u32, u64, TaskChange)>,
);

/// Returns the content of uftrace's recording of a program.
fn recorded(data: &Path) -> Recorded {
    let output = Command::new("uftrace")
        .args(["dump", "--no-pager", "-d"])
        .arg(data)
        .output()
        .expect("uftrace dumps");
    let mut threads: Vec<(u32, Vec<Step>)> = Vec::new();
    let mut switches = Vec::new();
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
        if kind == "event" {
            let kind = match rest.trim() {
                "linux:sched-in(200001)" => SwitchKind::In,
                "linux:sched-out(200002)" => SwitchKind::Wait,
                "linux:sched-out (pre-empted)(200007)" => SwitchKind::Preempted,
                _ => continue,
            };
            switches.push((tid, time, kind));
            continue;
        }
        if threads.last().is_none_or(|(last, _)| *last != tid) {
            threads.push((tid, Vec::new()));
        }
        let steps = &mut threads.last_mut().expect("a thread").1;
        steps.push(match kind {
            "entry" => Step::Enter(time, name.to_owned()),
            _ => Step::Leave(time),
        });
    }
    switches.sort_by_key(|(_, time, _)| *time);
    (threads, switches, changes(data))
}

/// Returns the changes of threads, from the flat view, whose lines are the only ones with the threads' names.
fn changes(data: &Path) -> Vec<(u32, u64, TaskChange)> {
    let flat = uftrace("replay", data, "--flat --event-full");
    let change = |line: &str| {
        // `[41] !!! 23731: linux:task-name (comm="worker") time (47298349951260)`
        let (tid, rest) = line.split_once(" !!! ")?.1.split_once(": linux:task-")?;
        let (what, time) = rest.strip_suffix(')')?.rsplit_once(" time (")?;
        let change = match what {
            "new" => TaskChange::New,
            "exit" => TaskChange::Exit,
            name => {
                let name = name.strip_prefix("name (comm=\"")?.strip_suffix("\")")?;
                TaskChange::Name(name.to_owned())
            }
        };
        Some((tid.parse().ok()?, time.parse().ok()?, change))
    };
    flat.lines().filter_map(change).collect()
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

/// uftrace's recording of a program, and the same as ours.
struct Recording {
    _folder: tempfile::TempDir,
    data: PathBuf,
    made: Made,
}

impl Recording {
    /// Checks that a command shows the same for both recordings; in long texts the first different line is printed.
    /// Returns the text.
    fn compare(&self, command: &str, options: &str) -> String {
        let theirs = uftrace(command, &self.data, options);
        let ours = ours(&self.made, command, options);
        let what = format!("{command} {options}");
        assert!(!theirs.is_empty(), "{what}");
        for (ours, theirs) in ours.lines().zip(theirs.lines()) {
            assert_eq!(ours, theirs, "{what}");
        }
        assert_eq!(ours.lines().count(), theirs.lines().count(), "{what}");
        theirs
    }
}

fn recording(program: &[&str], flags: &[&str], options: &[&str]) -> Result<Recording, Skip> {
    need_tool("uftrace")?;
    let built = Program::new(Language::C, program[0]).flags(["-pg", "-O0"]);
    let built = built.flags(flags.iter().copied()).build()?;
    let folder = tempfile::tempdir().expect("a folder");
    let recorded_it = Command::new("uftrace")
        .args(["record", "-d", "data"])
        .args(options)
        .arg(built)
        .args(&program[1..])
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .output()
        .expect("uftrace starts");
    if !recorded_it.status.success() {
        let reason = String::from_utf8_lossy(&recorded_it.stderr);
        return Err(Skip::new(format!("uftrace does not record here: {reason}")));
    }
    let data = folder.path().join("data");
    let (threads, switches, changes) = recorded(&data);
    let mut made = trace(&threads).with_tasks(&changes);
    if !switches.is_empty() {
        made = made.with_switches(&switches);
    }
    Ok(Recording {
        _folder: folder,
        data,
        made,
    })
}

#[test]
fn one_thread_is_shown_as_uftrace_shows_it() {
    let recording = or_skip!(recording(&["nested_calls"], &[], &["--no-event"]));
    let Recording { data, made, .. } = &recording;
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
        recording.compare("replay", options);
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
        // uftrace's self times contain calls that are too short to be shown, unlike calls hidden otherwise.
        "-t 1ms -s func -f total,call",
    ] {
        recording.compare("report", options);
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
        let theirs = known(body(uftrace("graph", data, options)));
        let theirs: Vec<String> = theirs
            .into_iter()
            .map(|line| match line.split_once(" : (1) nested_calls") {
                Some((before, _)) => format!("{before} : (1) nested_calls"),
                None => line,
            })
            .collect();
        assert_eq!(
            known(body(ours(made, "graph", options))),
            theirs,
            "graph {options}"
        );
    }
}

#[test]
fn threads_are_shown_as_uftrace_shows_them() {
    let recording = or_skip!(recording(&["threads"], &["-pthread"], &["--no-event"]));
    for options in [
        "",
        "--column-view",
        "--task-newline",
        "--column-view --column-offset 4",
    ] {
        recording.compare("replay", options);
    }
    recording.compare("report", "-s func");
}

#[test]
fn scheduling_is_shown_as_uftrace_shows_it() {
    let recording = or_skip!(recording(&["sleeps", "40"], &[], &[]));
    // Where scheduling is hidden, uftrace shows a call around it in two lines.
    for options in ["", "--no-merge", "-F doze", "--no-merge --no-sched"] {
        let theirs = recording.compare("replay", options);
        let is_there = theirs.contains("linux:sched");
        assert!(
            is_there || !options.is_empty(),
            "uftrace recorded no scheduling"
        );
    }
    for options in ["-s func", "-s func --no-sched-preempt", "-F doze -s func"] {
        recording.compare("report", options);
    }
}

#[test]
fn what_becomes_of_threads_is_shown_as_uftrace_shows_it() {
    let recording = or_skip!(recording(&["tasks"], &["-pthread"], &["--no-sched"]));
    for options in [
        "",
        "--event-full",
        "--event-full -f +time",
        "--no-event --no-merge",
        "--no-sched",
        "--no-merge",
        "-F work",
        "-N work",
        "-D 2",
        "-H pthread_setname_np",
    ] {
        recording.compare("replay", options);
    }
    let shown = recording.compare("replay", "");
    assert!(shown.contains("linux:task-name (comm=\"worker\")"));
    recording.compare("report", "-s func");
}
