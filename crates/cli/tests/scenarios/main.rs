//! Recordings of demanding programs: many threads, many processes, many of both at once. On a busy machine records may
//! be lost; these tests demand that the recording counts every loss.

#[path = "../record/support.rs"]
mod support;

use dioptra_perfevents::record::RecordType;
use dioptra_testprograms as programs;
use programs::or_skip;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use support::{Content, Recording, check_counts};

/// Returns the pid of the process that was recorded under `name`.
fn pid_of(content: &Content, name: &str) -> u32 {
    let found = content.comms.iter().find(|(_, _, comm)| comm == name);
    found
        .unwrap_or_else(|| panic!("no {name} among {:?}", content.comms))
        .0
}

/// Checks that every sampled thread was introduced: by a FORK, a COMM, or by being the command. Where records were
/// lost, the introductions of as many threads may be among them.
fn check_introduced(content: &Content) {
    let mut known: BTreeSet<u32> = content.forks.iter().map(|(_, tid)| *tid).collect();
    known.extend(content.comms.iter().map(|(_, tid, _)| *tid));
    // The kernel gives no ids to code that runs between a thread's end and its removal.
    known.insert(u32::MAX);
    let strangers: BTreeSet<u32> = content
        .samples
        .iter()
        .map(|(_, tid, _)| *tid)
        .filter(|tid| !known.contains(tid))
        .collect();
    assert!(
        strangers.len() as u64 <= content.lost(),
        "{strangers:?} not introduced, {} lost",
        content.lost()
    );
}

/// Checks that `found` of `expected` records are there and that all others are counted as lost.
fn check_all_or_lost(what: &str, found: usize, expected: usize, content: &Content) {
    let told = found as u64 + content.lost();
    assert!(found <= expected, "{found} {what}, more than {expected}");
    assert!(
        told >= expected as u64,
        "{found} {what} of {expected}, {} lost",
        content.lost()
    );
}

fn record(arguments: &[&str]) -> Content {
    let recording = Recording::new();
    let output = recording.record(arguments);
    let content = check_counts(&recording, &output);
    assert!(content.count(RecordType::SAMPLE) > 0, "{output:?}");
    check_introduced(&content);
    assert_eq!(content.twice, 0, "nothing is watched twice");
    content
}

#[test]
fn python() {
    or_skip!(programs::need_sampling());
    let python = or_skip!(programs::need_tool("python3"));
    let content = record(&[
        "-g",
        "-e",
        "cpu-clock:u",
        python.to_str().unwrap(),
        "-c",
        "import json\nfor i in range(300): json.loads(json.dumps(list(range(1000))))",
    ]);
    assert!(
        content
            .mappings
            .iter()
            .any(|(_, name)| name.contains("python")),
        "{:?}",
        content.mappings
    );
}

#[test]
fn gcc() {
    or_skip!(programs::need_sampling());
    let gcc = or_skip!(programs::need_tool("gcc"));
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("many.c");
    let functions: String = (0..500)
        .map(|i| format!("int f{i}(int x) {{ return x * {i} + (x >> 3); }}\n"))
        .collect();
    fs::write(&source, functions).unwrap();
    let object = folder.path().join("many.o");
    let content = record(&[
        "-e",
        "cpu-clock:u",
        gcc.to_str().unwrap(),
        "-O2",
        "-c",
        "-o",
        object.to_str().unwrap(),
        source.to_str().unwrap(),
    ]);
    assert!(object.exists());
    // The driver starts the compiler proper and the assembler.
    assert!(
        content.has_comm("cc1") && content.has_mapping("/cc1"),
        "{:?}",
        content.comms
    );
    assert!(content.has_comm("as"), "{:?}", content.comms);
}

#[test]
fn ten_thousand_short_threads() {
    or_skip!(programs::need_sampling());
    let program = or_skip!(programs::c("manythreads", &[]));
    let content = record(&["-e", "cpu-clock:u", program.to_str().unwrap(), "10000"]);
    let pid = pid_of(&content, "manythreads");
    let started = content
        .forks
        .iter()
        .filter(|(parent, tid)| *parent == pid && *tid != pid)
        .count();
    check_all_or_lost("threads", started, 10_000, &content);
    let ended = content
        .exits
        .iter()
        .filter(|(of, tid)| *of == pid && *tid != pid)
        .count();
    check_all_or_lost("ends of threads", ended, 10_000, &content);
    assert!(content.samples.iter().all(|(of, _, _)| *of == pid));
}

#[test]
fn a_thousand_forks() {
    or_skip!(programs::need_sampling());
    let program = or_skip!(programs::c("forks", &[]));
    let content = record(&["-e", "cpu-clock:u", program.to_str().unwrap(), "1000"]);
    let parent = pid_of(&content, "forks");
    let children: Vec<u32> = content
        .forks
        .iter()
        .filter(|(pid, _)| *pid != parent)
        .map(|(pid, _)| *pid)
        .collect();
    check_all_or_lost("forks", children.len(), 1000, &content);
    let sampled: BTreeSet<u32> = content.samples.iter().map(|(pid, _, _)| *pid).collect();
    assert!(
        sampled.iter().any(|pid| *pid != parent),
        "children are followed"
    );
}

#[test]
fn every_page_fault_is_a_sample_or_told_as_lost() {
    or_skip!(programs::need_sampling());
    let program = or_skip!(programs::c("faults", &[]));
    // Each fault is a sample: the kernel's own count is known by construction.
    for pages in [1000_u64, 40_000] {
        let argument = pages.to_string();
        let content = record(&[
            "-e",
            "page-faults:u",
            "-c",
            "1",
            program.to_str().unwrap(),
            &argument,
        ]);
        // All faults of the loop happen at one instruction.
        let mut addresses: Vec<u64> = content.samples.iter().map(|(_, _, ip)| *ip).collect();
        addresses.sort_unstable();
        let most = addresses
            .chunk_by(|a, b| a == b)
            .map(<[u64]>::len)
            .max()
            .unwrap_or(0);
        assert!(
            most as u64 + content.lost() >= pages,
            "{most} of {pages} faults, {} lost",
            content.lost()
        );
        assert!(
            (most as u64) < 2 * pages,
            "{most} samples of {pages} faults"
        );
    }
}

#[test]
fn five_hundred_live_threads() {
    or_skip!(programs::need_sampling());
    let program = or_skip!(programs::c("livethreads", &[]));
    let mut target = Command::new(program)
        .args(["500", "one"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = target.stdin.take().unwrap();
    let mut lines = BufReader::new(target.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let pid = target.id();
    let recording = Recording::new();
    // More threads start while the recorder attaches and records.
    input.write_all(b"create 2000\n").unwrap();
    let output = recording.run([
        "-e",
        "cpu-clock:u",
        "--duration",
        "1",
        "-p",
        &pid.to_string(),
    ]);
    drop(input);
    drop(lines);
    target.wait().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() && text.contains("descriptors") {
        programs::skip(format!("too few descriptors here: {text}"));
        return;
    }
    assert!(output.status.success(), "{text}");
    let content = check_counts(&recording, &output);
    assert!(content.count(RecordType::SAMPLE) > 0, "{text}");
    assert!(content.samples.iter().all(|(of, _, _)| *of == pid));
    check_introduced(&content);
    let live: BTreeSet<&str> = content
        .comms
        .iter()
        .filter(|(_, _, name)| name.starts_with("live-"))
        .map(|(_, _, name)| name.as_str())
        .collect();
    assert_eq!(live.len(), 500, "every live thread is described");
    assert_eq!(content.twice, 0, "no thread is watched twice");
}

#[test]
fn the_whole_machine_under_load() {
    or_skip!(programs::need_root());
    or_skip!(programs::need_sampling());
    let threads = or_skip!(programs::c("threads", &[]));
    let content = record(&[
        "-a",
        "-g",
        "-e",
        "cpu-clock,context-switches",
        threads.to_str().unwrap(),
    ]);
    // The recording describes programs that run already: ourselves at least, and the first process.
    assert!(
        content.comms.iter().any(|(pid, _, _)| *pid == 1),
        "{:?}",
        content.comms
    );
    let pid = pid_of(&content, "threads");
    assert!(content.samples.iter().any(|(of, _, _)| *of == pid));
    assert!(
        content
            .mappings
            .iter()
            .any(|(of, name)| *of == u32::MAX && name.starts_with("[kernel.kallsyms]"))
    );
}

/// Takes CPU 1 away and brings it back. The test runs only on request, since it disturbs everything that runs there.
#[test]
fn a_cpu_that_goes_and_comes_back() {
    if programs::Limit::HotplugNotAsked.holds() {
        return programs::skip(programs::Limit::HotplugNotAsked);
    }
    or_skip!(programs::need_root());
    let switch = "/sys/devices/system/cpu/cpu1/online";
    if fs::read_to_string(switch).is_err() {
        programs::skip(format!("{switch} cannot be read"));
        return;
    }
    let threads = or_skip!(programs::c("threads", &[]));
    let script = format!(
        "{threads} & sleep 1; echo 0 > {switch}; sleep 2; echo 1 > {switch}; sleep 3; {threads}; wait",
        threads = threads.display()
    );
    let recording = Recording::new();
    let output = recording.record(["-a", "-e", "cpu-clock", "sh", "-c", &script]);
    // No record introduces a thread that lives only while the CPU is back but not yet watched again.
    let content = check_counts(&recording, &output);
    assert_eq!(content.twice, 0, "nothing is watched twice");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("offline"), "{text}");
    assert!(content.has_comm("threads"));
}
