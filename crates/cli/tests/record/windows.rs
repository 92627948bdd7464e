//! `record --windows`: rates over windows are those of programs known by construction, the file describes every burst,
//! and other tools read the file.

use super::support::{PATIENCE, Recording, kill, wait_until};
use dioptra_perfdata::PerfData;
use dioptra_perfevents::limits;
use dioptra_perfevents::record::Record;
use dioptra_testprograms as programs;
use dioptra_windows::section::{Burst, BurstOutcome, WindowsSection};
use programs::or_skip;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

/// A sample of a group's leader.
#[derive(Debug, Clone)]
struct Bound {
    time: u64,
    tid: u32,
    cpu: u32,
    ip: u64,
    values: Vec<u64>,
}

/// The windows of a recording, with the samples that bound them.
struct Made {
    windows: WindowsSection,
    /// Samples of each group's leader, by group, in order of time.
    bounds: Vec<Vec<Bound>>,
    /// Names of all events.
    events: Vec<String>,
}

impl Made {
    fn of(path: &Path) -> Made {
        let mut data = PerfData::open(path).expect("a recording");
        let windows = WindowsSection::of(&mut data, None).expect("windows");
        let events = data.events().iter();
        let events = events.map(|event| event.name.clone()).collect();
        let mut bounds = vec![Vec::new(); windows.groups.len()];
        let read = data.read(|record| {
            let group = windows
                .groups
                .iter()
                .position(|group| Some(group.leader as usize) == record.event);
            let layout = data.layout(record.event);
            if let (Some(group), Some(layout)) = (group, layout)
                && let Ok(Record::Sample(sample)) = layout.parse(&record.raw)
            {
                let values = sample.read.expect("the group's counts");
                bounds[group].push(Bound {
                    time: sample.time.unwrap(),
                    tid: sample.tid.unwrap(),
                    cpu: sample.cpu.unwrap(),
                    ip: sample.ip.unwrap(),
                    values: values.iter().map(|value| value.value).collect(),
                });
            }
            ControlFlow::Continue(())
        });
        assert_eq!(read.damaged, []);
        Made {
            windows,
            bounds,
            events,
        }
    }

    /// Returns the samples of a burst, including the samples that mark its start and its end.
    fn of_burst(&self, burst: &Burst) -> Vec<&Bound> {
        let bounds = self.bounds[usize::from(burst.group)].iter();
        bounds
            .filter(|bound| (burst.armed..=burst.ended).contains(&bound.time))
            .filter(|bound| burst.tid.is_none_or(|tid| bound.tid == tid))
            .filter(|bound| burst.cpu.is_none_or(|cpu| bound.cpu == cpu))
            .collect()
    }

    fn total(&self, event: &str) -> u64 {
        let mut totals = self.windows.totals.iter();
        let found = totals.find(|total| total.event == event);
        let total = found.unwrap_or_else(|| panic!("no {event} in {:?}", self.windows.totals));
        assert!(total.running <= total.enabled, "{total:?}");
        total.value
    }
}

/// Windows of ten page faults.
const FAULTS: [&str; 3] = ["--windows=short=10", "-e", "{page-faults,task-clock}"];

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the numbers that the program printed: faults while touching, faults while computing, and calls.
fn printed(output: &Output) -> Vec<u64> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace()
        .map(|number| number.parse().expect("a number"))
        .collect()
}

fn program() -> Result<PathBuf, programs::Skip> {
    programs::need_sampling()?;
    // The addresses of the program's functions do not depend on its place in memory.
    programs::c("windows", &["-no-pie"])
}

/// Returns the range of addresses of a function's code.
fn code_of(program: &Path, function: &str) -> Result<std::ops::Range<u64>, programs::Skip> {
    let nm = programs::need_tool("nm")?;
    let output = Command::new(nm).arg("-S").arg(program).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text
        .lines()
        .find(|line| line.ends_with(&format!(" {function}")));
    let mut words = line.expect("the function").split(' ');
    let mut number = || u64::from_str_radix(words.next().unwrap(), 16).unwrap();
    let (start, size) = (number(), number());
    Ok(start..start + size)
}

/// Checks that perf finds nothing wrong with the file, and reads the parts that it knows.
fn perf_reads(path: &Path) {
    let perf = match programs::need_tool("perf") {
        Ok(perf) => perf,
        Err(skip) => return skip.print(),
    };
    for arguments in [&["report", "--stdio"][..], &["script"], &["evlist"]] {
        let output = Command::new(&perf)
            .args(arguments)
            .arg("-i")
            .arg(path)
            .stdin(Stdio::null())
            .output()
            .expect("perf runs");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        let text = String::from_utf8_lossy(&output.stdout);
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        assert!(lines.count() > 2, "{arguments:?}: {output:?}");
    }
}

#[test]
fn serial_faults_and_calls_come_in_the_rates_of_their_function() {
    let program = or_skip!(program());
    let recording = Recording::new();
    let group = "{page-faults,task-clock,minor-faults}";
    let output = recording.record([
        "--windows=long=1ms,short=10,jitter=3,batch=3",
        "-e",
        group,
        program.to_str().unwrap(),
        "200",
    ]);
    let made = Made::of(&recording.path());
    let windows = &made.windows;
    assert_eq!(windows.source, "refresh", "{:?}", windows.findings);
    let schedule = windows.schedule.expect("a schedule");
    assert_eq!(schedule.numbers(), [1_000_000, 10, 3, 3]);
    let names = |indices: &[u32]| -> Vec<&str> {
        indices
            .iter()
            .map(|index| made.events[*index as usize].as_str())
            .collect()
    };
    assert_eq!(names(&[windows.groups[0].leader]), ["page-faults"]);
    assert_eq!(
        names(&windows.groups[0].members),
        ["task-clock", "minor-faults"]
    );
    assert!(windows.groups[0].drop_last);
    assert!(windows.bursts.len() > 20, "{}", said(&output));
    let mut periods = BTreeSet::new();
    let mut complete = 0;
    for burst in &windows.bursts {
        assert_eq!(burst.expected, 4, "the last one is left out");
        assert!((7..=13).contains(&burst.period), "{burst:?}");
        periods.insert(burst.period);
        let bounds = made.of_burst(burst);
        match burst.seen {
            // A lone reading bounds no window.
            0 => assert!(bounds.len() <= 1, "{burst:?}"),
            seen => assert_eq!(bounds.len(), usize::from(seen) + 1, "{burst:?}"),
        }
        if !burst.outcome.contains(BurstOutcome::COMPLETE) {
            continue;
        }
        complete += 1;
        for pair in bounds.windows(2).take(3) {
            let count = |event: usize| pair[1].values[event] - pair[0].values[event];
            assert_eq!(count(0), burst.period, "a window is as long as its period");
            assert!(
                (burst.period - 1..=burst.period).contains(&count(2)),
                "minor but for files'"
            );
            assert!(count(1) > 0);
        }
    }
    assert!(periods.len() > 3, "drawn anew for each burst: {periods:?}");
    assert!(complete > windows.bursts.len() / 2, "{}", said(&output));
    // The plain counts cover the whole run.
    let faults = printed(&output)[0];
    let counted = made.total("page-faults");
    assert!(
        (faults..faults + 2000).contains(&counted),
        "{counted} {faults}"
    );
    assert!((faults..=counted).contains(&made.total("minor-faults")));
    assert!(made.total("task-clock") > 0);
    let (began, ended) = windows.span.expect("when it was counted");
    assert!(
        windows
            .bursts
            .iter()
            .all(|burst| (began..=ended + 1_000_000).contains(&burst.armed))
    );
    perf_reads(&recording.path());
    assert!(!recording.folder().join("perf.data.windows").exists());
}

#[test]
fn serial_calls_for_each_fault_are_counted() {
    let program = or_skip!(program());
    or_skip!(programs::need_root());
    let recording = Recording::new();
    let output = recording.run([
        "--windows=short=10",
        "-e",
        "{page-faults:u,syscalls:sys_enter_getppid}",
        program.to_str().unwrap(),
        "200",
    ]);
    if !output.status.success() && programs::Limit::NoTracepoints.holds() {
        return programs::skip(programs::Limit::NoTracepoints);
    }
    assert!(output.status.success(), "{}", said(&output));
    let made = Made::of(&recording.path());
    let touch = or_skip!(code_of(&program, "touch_and_call"));
    let mut seen = 0;
    for burst in &made.windows.bursts {
        if !burst.outcome.contains(BurstOutcome::COMPLETE) {
            continue;
        }
        let bounds = made.of_burst(burst);
        for pair in bounds.windows(2).take(4) {
            if pair.iter().all(|bound| touch.contains(&bound.ip)) {
                // Two calls follow each page but the one whose fault ends the window. A round's end adds another page,
                // and the kernel's own.
                assert_eq!(
                    pair[1].values[1] - pair[0].values[1],
                    2 * burst.period,
                    "{burst:?}"
                );
                seen += 1;
            }
        }
    }
    assert!(seen > 20, "{seen}: {}", said(&output));
    let calls = printed(&output)[2];
    let counted = made.total("syscalls:sys_enter_getppid");
    assert!((calls..=calls + 10).contains(&counted), "{counted} {calls}");
}

#[test]
fn serial_windows_alone_need_no_counters() {
    let program = or_skip!(program());
    if limits::refresh_of_clocks_is_unsafe() {
        return programs::skip("on this kernel clocks must not be armed");
    }
    let recording = Recording::new();
    let output = recording.record(["--windows", program.to_str().unwrap(), "200"]);
    let made = Made::of(&recording.path());
    assert!(
        made.windows.findings[0].starts_with("version gate"),
        "{:?}",
        made.windows.findings
    );
    let told = said(&output);
    assert!(told.contains("windows by refresh: "), "{told}");
    assert!(
        made.windows.bursts_with(BurstOutcome::COMPLETE) > 20,
        "{told}"
    );
    let leader = made.windows.groups[0].leader as usize;
    if made.events[leader] != "task-clock" {
        return programs::skip(programs::Limit::CycleCounter);
    }
    assert!(
        told.contains("no hardware counters") && told.contains("shortest that are useful"),
        "{told}"
    );
    let compute = or_skip!(code_of(&program, "compute"));
    let mut computing = 0;
    for burst in &made.windows.bursts {
        for pair in made.of_burst(burst).windows(2) {
            let faults = pair[1].values[1] - pair[0].values[1];
            let both =
                |code: &std::ops::Range<u64>| pair.iter().all(|bound| code.contains(&bound.ip));
            if both(&compute) && pair[1].time - pair[0].time < 200_000 {
                assert_eq!(faults, 0, "who computes does not fault");
                computing += 1;
            }
        }
    }
    assert!(computing > 20, "{told}");
    // The ordinary samples for the ranking go on beside the windows.
    let content = recording.content();
    let samples = content.samples.len() - made.bounds[0].len();
    assert!(samples > 50, "{told}");
    perf_reads(&recording.path());
}

#[test]
fn serial_every_thread_has_its_bursts() {
    let program = or_skip!(program());
    let recording = Recording::new();
    let output = recording.record([
        "--windows=long=500us,short=10",
        "-e",
        "{page-faults,task-clock}",
        program.to_str().unwrap(),
        "100",
        "4",
    ]);
    let made = Made::of(&recording.path());
    let mut of_thread: BTreeMap<u32, u64> = BTreeMap::new();
    for burst in &made.windows.bursts {
        let tid = burst.tid.expect("bursts are of threads");
        *of_thread.entry(tid).or_default() += 1;
        assert!(made.of_burst(burst).iter().all(|bound| bound.tid == tid));
    }
    assert_eq!(of_thread.len(), 4, "{of_thread:?} {}", said(&output));
    let faults = printed(&output)[0];
    let counted = made.total("page-faults");
    assert!(
        (faults..faults + 3000).contains(&counted),
        "{counted} {faults}"
    );
}

#[test]
fn serial_a_running_process_and_whole_cpus_have_bursts() {
    let program = or_skip!(program());
    let mut target = Command::new(&program)
        .args(["1000000", "2"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = target.id().to_string();
    let attached = Recording::new();
    let output = attached.run([&FAULTS[..], &["--duration", "1", "-p", &pid]].concat());
    let wide = Recording::new();
    let of_machine = wide.run([&FAULTS[..], &["--duration", "1", "-a"]].concat());
    target.kill().unwrap();
    target.wait().unwrap();
    assert!(output.status.success(), "{output:?}");
    let made = Made::of(&attached.path());
    let threads: BTreeSet<u32> = made
        .windows
        .bursts
        .iter()
        .filter_map(|burst| burst.tid)
        .collect();
    assert_eq!(threads.len(), 2, "{}", said(&output));
    or_skip!(programs::need_root());
    assert!(of_machine.status.success(), "{of_machine:?}");
    let made = Made::of(&wide.path());
    assert!(made.windows.bursts.len() > 20, "{}", said(&of_machine));
    for burst in &made.windows.bursts {
        let cpu = burst.cpu.expect("bursts are of CPUs");
        assert!(burst.tid.is_none());
        assert!(made.of_burst(burst).iter().all(|bound| bound.cpu == cpu));
    }
    perf_reads(&wide.path());
}

#[test]
fn serial_processes_that_fork_and_execute_are_followed() {
    let program = or_skip!(program());
    let recording = Recording::new();
    let script = format!("{0} 100 & {0} 100; wait; exec {0} 100", program.display());
    let output = recording.record([&FAULTS[..], &["sh", "-c", &script]].concat());
    let made = Made::of(&recording.path());
    let tids: BTreeSet<u32> = made
        .windows
        .bursts
        .iter()
        .filter_map(|burst| burst.tid)
        .collect();
    assert!(tids.len() >= 3, "{tids:?} {}", said(&output));
    let faults: u64 = printed(&output).chunks(3).map(|one| one[0]).sum();
    assert!(made.total("page-faults") >= faults, "{}", said(&output));
    perf_reads(&recording.path());
}

#[test]
fn serial_a_killed_target_leaves_a_whole_file() {
    let program = or_skip!(program());
    let recording = Recording::new();
    let script = format!(
        "{} 1000000 & sleep 1; kill -KILL $!; wait",
        program.display()
    );
    let output = recording.run([&FAULTS[..], &["sh", "-c", &script]].concat());
    let made = Made::of(&recording.path());
    assert!(made.windows.bursts.len() > 20, "{}", said(&output));
    for burst in &made.windows.bursts {
        let whole = burst.outcome.contains(BurstOutcome::COMPLETE);
        assert_ne!(
            whole,
            burst.outcome.contains(BurstOutcome::CUT),
            "{burst:?}"
        );
        assert_eq!(whole, burst.seen == burst.expected, "{burst:?}");
    }
    perf_reads(&recording.path());
}

#[test]
fn serial_a_killed_recorder_leaves_its_bursts_beside() {
    let program = or_skip!(program());
    let recording = Recording::new();
    let mut child = recording
        .command()
        .args([
            "--windows=long=200us,short=5",
            "-e",
            "{page-faults,task-clock}",
        ])
        .args([program.to_str().unwrap(), "1000000"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let beside = recording.folder().join("perf.data.windows");
    let begun = fs::metadata(&beside).map_or(0, |file| file.len());
    wait_until(&mut child, "bursts beside the file", || {
        fs::metadata(&beside).is_ok_and(|file| file.len() > begun + 8000)
    });
    let target =
        fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap_or_default();
    child.kill().unwrap();
    child.wait().unwrap();
    for pid in target.split_whitespace() {
        let _ = programs::send_signal(pid.parse().unwrap(), libc::SIGKILL);
    }
    let mut windows = WindowsSection::default();
    windows
        .decode(&fs::read(&beside).unwrap())
        .expect("a whole section");
    assert!(windows.bursts.len() > 100, "{}", windows.bursts.len());
    assert!(windows.schedule.is_some() && windows.groups.len() == 1);
}

#[test]
fn serial_pipes_have_windows_too() {
    let program = or_skip!(program());
    let recording = Recording::new();
    let output = Command::new(env!("CARGO_BIN_EXE_dioptra"))
        .args(["record", "-o", "-"])
        .args(FAULTS)
        .args([program.to_str().unwrap(), "200"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    fs::write(recording.path(), &output.stdout).unwrap();
    let mut data = PerfData::open(&recording.path()).unwrap();
    let mut bursts = 0;
    data.read(|_| ControlFlow::Continue(()));
    if let Some(windows) = WindowsSection::of(&mut data, None) {
        bursts = windows.bursts.len();
    }
    assert!(bursts > 20, "{bursts}: {}", said(&output));
}

#[test]
fn serial_other_sources_make_windows_too() {
    let program = or_skip!(program());
    for source in ["twin", "steady", "period"] {
        let recording = Recording::new();
        let output = recording.run([
            &format!("--windows=short=100us,source={source}"),
            "-e",
            "{task-clock,page-faults}",
            program.to_str().unwrap(),
            "100",
        ]);
        if !output.status.success() {
            if programs::Limit::BusyMachine.holds() {
                programs::skip(programs::Limit::BusyMachine);
            } else {
                programs::skip(said(&output));
            }
            continue;
        }
        let made = Made::of(&recording.path());
        assert_eq!(made.windows.source, source);
        assert!(made.windows.bursts.is_empty());
        assert!(made.total("page-faults") >= printed(&output)[0]);
        if source == "period" {
            assert!(made.windows.groups.is_empty());
        } else {
            assert!(made.bounds[0].len() > 50, "{}", said(&output));
            // A thread has a counter for each CPU.
            let rises = |pair: &[Bound]| {
                (pair[1].tid, pair[1].cpu) != (pair[0].tid, pair[0].cpu)
                    || pair[1].values[0] >= pair[0].values[0]
            };
            assert!(made.bounds[0].windows(2).all(rises));
        }
        perf_reads(&recording.path());
    }
}

#[test]
fn what_makes_no_windows_is_told() {
    or_skip!(programs::need_sampling());
    for (windows, group, code, word) in [
        (
            "--windows=shrt=3",
            "{page-faults,task-clock}",
            2,
            "column 1",
        ),
        (
            "--windows=source=magic",
            "{page-faults,task-clock}",
            2,
            "there are refresh",
        ),
        (
            "--windows=short=50us",
            "{page-faults,task-clock}",
            125,
            "short=300",
        ),
        (
            "--windows=short=3",
            "{task-clock,page-faults}",
            125,
            "short=50us",
        ),
        (
            "--windows=source=kernel",
            "{page-faults,task-clock}",
            125,
            "alternat",
        ),
    ] {
        let recording = Recording::new();
        let output = recording.run([windows, "-e", group, "true"]);
        let told = said(&output);
        if windows.contains("kernel") && output.status.success() {
            continue;
        }
        assert_eq!(output.status.code(), Some(code), "{windows}: {told}");
        assert!(told.contains(word), "{windows}: {told}");
        let left: Vec<_> = fs::read_dir(recording.folder()).unwrap().collect();
        assert!(left.is_empty(), "{windows}: {left:?}");
    }
    let recording = Recording::new();
    let output = recording.run([
        "--windows=short=3",
        "-e",
        "{page-faults,task-clock}",
        "/no/such/command",
    ]);
    assert_eq!(output.status.code(), Some(127));
    assert_eq!(
        fs::read_dir(recording.folder()).unwrap().count(),
        0,
        "nothing is left"
    );
}

#[test]
fn serial_a_signal_ends_the_windows_with_the_rest() {
    let program = or_skip!(program());
    let recording = Recording::new();
    let mut child = recording
        .command()
        .args(FAULTS)
        .args([program.to_str().unwrap(), "1000000"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until(&mut child, "samples", || {
        fs::metadata(recording.path()).is_ok_and(|file| file.len() > 20_000)
    });
    kill(&child, libc::SIGINT);
    let end = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < end, "it ends");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(!Made::of(&recording.path()).windows.bursts.is_empty());
}
