//! Recordings that go to a pipe, carriers beside events with stacks, and reports of losses.

use super::support::Recording;
use dioptra_perfdata::PerfData;
use dioptra_profile::{GapsOf, LoadOptions, LoadPlan, Profile, TimeSlices};
use dioptra_testprograms as programs;
use programs::or_skip;
use std::process::{Command, Stdio};

/// Returns `dioptra record -o -`, to be continued.
fn to_pipe(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dioptra"));
    command
        .args(["record", "-q", "-o", "-"])
        .args(arguments)
        .stdin(Stdio::null());
    command
}

#[test]
fn serial_perf_reads_the_samples_of_a_pipe() {
    or_skip!(programs::need_sampling());
    or_skip!(programs::need_tool("perf"));
    let spin = or_skip!(programs::c("spin", &[]));
    let script = format!("echo words; {} 0.2", spin.display());
    let mut recorder = to_pipe(&["-e", "cpu-clock:u", "--", "sh", "-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stream = recorder.stdout.take().unwrap();
    let perf = Command::new("perf")
        .args(["script", "-i", "-", "-F", "comm,event,ip"])
        .stdin(stream)
        .output()
        .unwrap();
    let recorder = recorder.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&recorder.stderr);
    assert!(recorder.status.success(), "{said}");
    assert!(said.contains("words"), "the command's own output: {said}");
    let found = String::from_utf8_lossy(&perf.stdout);
    let samples = found
        .lines()
        .filter(|line| line.contains("spin") && line.contains("cpu-clock:u:"));
    assert!(samples.count() > 0, "{found} {perf:?}");
}

#[test]
fn serial_stacks_are_recorded_beside_an_event_that_tells_of_mappings() {
    or_skip!(programs::need_sampling());
    or_skip!(programs::need_root());
    let spin = or_skip!(programs::c("spin", &[]));
    let spin = spin.to_str().unwrap();
    for wait in [&["-D", "1"][..], &["-a"]] {
        let recording = Recording::new();
        let options = ["-e", "cpu-clock:u", "--call-graph", "dwarf,4096"];
        let words = [wait, &options, &["--", spin, "0.3"]].concat();
        recording.record(words);
        let content = recording.content();
        assert!(content.stacks > 0, "{wait:?}: {:?}", content.summary);
    }
}

/// perf finds the unwind tables of a module by its data mappings only.
#[test]
fn serial_perf_unwinds_copied_stacks() {
    or_skip!(programs::need_sampling());
    or_skip!(programs::need_tool("perf"));
    let spin = or_skip!(programs::c("spin", &["-fomit-frame-pointer"]));
    let spin = spin.to_str().unwrap();
    let options = ["-e", "cpu-clock:u", "--call-graph", "dwarf,4096"];
    let started = Recording::new();
    started.record(options.iter().chain(&[spin, "0.3"]));
    let mut running = Command::new(spin).arg("20").spawn().unwrap();
    let attached = Recording::new();
    let pid = running.id().to_string();
    let outcome = attached.run(options.iter().chain(&["-p", &pid, "--duration", "0.3"]));
    running.kill().unwrap();
    running.wait().unwrap();
    assert!(outcome.status.success(), "{outcome:?}");
    for recording in [started, attached] {
        let perf = Command::new("perf")
            .args(["script", "--no-inline", "-F", "ip,sym", "-i"])
            .arg(recording.path())
            .output()
            .unwrap();
        let found = String::from_utf8_lossy(&perf.stdout);
        let samples = recording.content().stacks;
        let whole = found.lines().filter(|line| line.ends_with(" main")).count();
        assert!(
            samples > 20 && whole > samples / 2,
            "{whole} of {samples} stacks lead to main: {found}"
        );
    }
}

#[test]
fn serial_a_term_names_the_event() {
    or_skip!(programs::need_sampling());
    let spin = or_skip!(programs::c("spin", &[]));
    let recording = Recording::new();
    let event = "cpu-clock/freq=100,name=heartbeat/u";
    let output = recording.record(["-e", event, spin.to_str().unwrap(), "0.1"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("of heartbeat in"), "{said}");
}

#[test]
fn serial_quiet_recordings_tell_of_losses_and_only_of_these() {
    or_skip!(programs::need_sampling());
    or_skip!(programs::need_root());
    let spin = or_skip!(programs::c("spin", &[]));
    let spin = spin.to_str().unwrap();
    let recording = Recording::new();
    let event = ["-q", "-e", "cpu-clock:u"];
    let output = recording.record(event.iter().chain(&[spin, "0.1"]));
    let content = recording.content();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(content.lost() > 0 || !said.contains("lost"), "{said}");
    // One page holds no sample with a stack of this size.
    let deep = ["-F", "4000", "-m", "1", "--call-graph", "dwarf,8192"];
    let output = recording.record(event.iter().chain(&deep).chain(&[spin, "0.3"]));
    let said = String::from_utf8_lossy(&output.stderr);
    let content = recording.content();
    assert_eq!(content.lost() > 0, said.contains("were lost"), "{said}");
}

#[test]
fn serial_no_sample_is_outside_of_the_time_that_is_stated() {
    or_skip!(programs::need_sampling());
    or_skip!(programs::need_root());
    for options in [&["-z=22"][..], &["-g"]] {
        let recording = Recording::new();
        let all = ["-a", "-e", "cpu-clock", "--duration", "0.2"];
        let output = recording.record(all.iter().chain(options));
        let said = String::from_utf8_lossy(&output.stderr);
        let stated = said
            .split_once(" of cpu-clock in ")
            .and_then(|(_, rest)| rest.split(' ').next()?.parse::<f64>().ok());
        let times = recording.times();
        let span = times.iter().max().unwrap_or(&0) - times.iter().min().unwrap_or(&0);
        // The summary states two decimals.
        assert!(
            span as f64 / 1e9 <= stated.expect("a time") + 0.01,
            "{span} ns: {said}"
        );
    }
}

/// A parent and a child on one CPU: each thread's counters of an inherited group count for themselves. No sample is
/// lost where the kernel switches between the two.
#[test]
fn serial_groups_of_several_processes_count_what_each_did() {
    or_skip!(programs::need_sampling());
    let program = or_skip!(programs::c("sharecpu", &[]));
    let recording = Recording::new();
    let arguments = ["-e", "{page-faults:u,task-clock:u}:S", "-c", "10"];
    let output =
        recording.record(
            arguments
                .iter()
                .chain(&[program.to_str().unwrap(), "3000", "2000"]),
        );
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report = Command::new(env!("CARGO_BIN_EXE_dioptra"))
        .args(["report", "--format", "json", "-i"])
        .arg(recording.path())
        .output()
        .unwrap();
    let table: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    let columns: Vec<&str> = table["columns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| column["id"].as_str().unwrap())
        .collect();
    let at = |id: &str| columns.iter().position(|column| *column == id).unwrap();
    for (function, pages) in [
        ("touch_before", 3000),
        ("touch_in_parent", 2000),
        ("touch_in_child", 2000),
    ] {
        let row = table["rows"]
            .as_array()
            .unwrap()
            .iter()
            .find(|row| row["cells"][at("function")] == function)
            .unwrap_or_else(|| panic!("{function}: {table}"));
        let weight = row["cells"][at("weight[page-faults:u:S]")]
            .as_u64()
            .unwrap();
        // A period of faults at a function's borders may count at its neighbour.
        assert!(weight.abs_diff(pages) <= 40, "{function}: {weight}");
    }
}

/// The members of a group take no samples. Neither the summary nor `info` calls that a lack of samples.
#[test]
fn members_of_a_group_are_counted_with_their_leader() {
    or_skip!(programs::need_sampling());
    let recording = Recording::new();
    let output = recording.record([
        "--no-inherit",
        "-e",
        "{page-faults:u,task-clock:u}:S",
        "-c",
        "1",
        "true",
    ]);
    let said = String::from_utf8_lossy(&output.stderr);
    let member = "task-clock:u:S counted with page-faults:u:S)";
    assert!(said.contains(member), "{said}");
    let info = |format: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_dioptra"))
            .args(["info", "--format", format, "-i"])
            .arg(recording.path())
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let json: serde_json::Value = serde_json::from_str(&info("json")).unwrap();
    let counted_with = |event: usize| &json["events"][event]["counted_with"];
    assert!(counted_with(0).is_null(), "{json}");
    assert_eq!(counted_with(1), "page-faults:u:S", "{json}");
    let text = info("text");
    let member = "task-clock:u:S: counted with its leader, page-faults:u:S\n";
    assert!(text.contains(member), "{text}");
}

#[test]
fn serial_time_off_the_cpu_is_recorded_when_asked_for() {
    or_skip!(programs::need_sampling());
    let sleeps = or_skip!(programs::c("sleeps", &[]));
    let sleeps = sleeps.to_str().unwrap();
    let recording = Recording::new();
    let output = recording
        .command()
        .args([
            "-q",
            "-e",
            "cpu-clock:u",
            "--switch-events",
            "--",
            sleeps,
            "200",
            "2",
        ])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    // The program prints its switches and its CPU time in microseconds.
    let said = String::from_utf8_lossy(&output.stdout);
    let cpu_us: u64 = said.split_whitespace().last().unwrap().parse().unwrap();
    let data = PerfData::open(&recording.path()).unwrap();
    let plan = LoadPlan {
        options: LoadOptions {
            threads: true,
            ..LoadOptions::default()
        },
        log: true,
        switches: true,
        ..LoadPlan::default()
    };
    let profile = Profile::load_with(&data, &plan);
    let threads = profile.tasks().threads().iter().zip(0_u32..);
    let (thread, id) = threads
        .filter(|(thread, _)| thread.comm.as_deref() == Some("sleeps"))
        .last()
        .unwrap();
    let life = thread.end.unwrap() - profile.first_time().unwrap();
    let slices = TimeSlices {
        start: 0,
        width: std::num::NonZeroU64::new(life).unwrap(),
        number: 1,
    };
    let off = profile.gaps(GapsOf::Thread(id), &slices).unwrap()[0];
    // The thread sleeps a millisecond 200 times. The rest of its life is its CPU time, whatever else the machine did.
    assert!(off >= 190_000_000, "{off} of {life} ns");
    let on = (life - off) / 1000;
    let about = cpu_us * 85 / 100..cpu_us * 115 / 100 + 20_000;
    assert!(about.contains(&on), "{on} of {life} ns, {cpu_us} µs of CPU");
    // Without the flag there are none.
    let recording = Recording::new();
    recording.record(["-e", "cpu-clock:u", "--", sleeps, "5"]);
    let data = PerfData::open(&recording.path()).unwrap();
    assert_eq!(Profile::load_with(&data, &plan).switches(), 0);
}
