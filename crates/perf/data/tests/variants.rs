//! Recordings that perf's other commands and rarer options make here, and what is left of killed ones: we read what
//! perf reads.

mod support;

use dioptra_perfdata::{Format, PerfData};
use dioptra_perfrecords::record::RecordType;
use dioptra_testprograms::{Limit, skip};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::compare::{
    CLOCK, assert_lines, compare, compare_counts, compare_order, folder, variant, variant_with,
};
use support::{BUSY, has_perf, our_counts, our_samples, perf, perf_counts, record, text};

/// Runs `perf BEFORE -o FILE -- COMMAND` and compares.
#[track_caller]
fn subcommand(before: &[&str], command: &[&str]) {
    if !has_perf() {
        return;
    }
    let folder = folder();
    let path = folder.path().join("perf.data");
    let output = perf(&[before, &["-o", text(&path), "--"], command].concat());
    if !output.status.success() || !path.exists() {
        let why = String::from_utf8_lossy(&output.stderr);
        return skip(format!("perf {before:?} does not work here: {why}"));
    }
    compare(&path, &before.join(" "));
}

const SHORT: &[&str] = &["sh", "-c", "ls /usr/bin >/dev/null; sleep 0.01"];

#[test]
fn serial_physical_addresses() {
    variant(&["-d", "-W", "--phys-data"]);
}

#[test]
fn serial_page_sizes() {
    variant(&["-d", "--data-page-size", "--code-page-size"]);
}

#[test]
fn serial_everything_at_once() {
    // Readers that take fields in a wrong order, or by a fixed size, go astray here.
    variant_with(
        &[
            "-a",
            "-g",
            "-d",
            "-W",
            "--phys-data",
            "--data-page-size",
            "--code-page-size",
            "--all-cgroups",
            "--switch-events",
            "--namespaces",
            "--sample-identifier",
            "-R",
            "-k",
            "CLOCK_MONOTONIC_RAW",
        ],
        compare_order,
    );
}

#[test]
fn serial_end_by_size() {
    variant(&["-g", "-m", "4", "--max-size", "64K"]);
}

#[test]
fn serial_one_cgroup() {
    variant(&["-a", "-G", "/"]);
}

#[test]
fn serial_counts_of_threads() {
    // A READ record for each thread.
    variant(&["-s", "-T"]);
}

#[test]
fn serial_no_inheritance_and_no_time() {
    variant(&["--no-inherit", "-N"]);
}

#[test]
fn serial_build_ids_of_all() {
    variant(&["--buildid-all"]);
}

#[test]
fn serial_time_off_the_cpu() {
    // A perf without BPF says so and records without.
    variant(&["--off-cpu"]);
}

#[test]
fn serial_group_of_samplers() {
    subcommand(&["record", "-e", "{cpu-clock,page-faults}"], BUSY);
}

#[test]
fn serial_scheduler() {
    subcommand(&["sched", "record"], SHORT);
}

#[test]
fn serial_system_calls() {
    subcommand(&["trace", "record"], SHORT);
}

#[test]
fn serial_locks() {
    subcommand(&["lock", "record"], SHORT);
}

#[test]
fn serial_kernel_memory() {
    subcommand(&["kmem", "record"], &["true"]);
    subcommand(&["kmem", "--page", "record"], &["true"]);
}

#[test]
fn serial_memory_accesses() {
    if Limit::NoMemoryEvents.holds() {
        return skip(Limit::NoMemoryEvents);
    }
    subcommand(&["mem", "record"], SHORT);
}

#[test]
fn serial_branches() {
    if Limit::NoBranchRecords.holds() {
        return skip(Limit::NoBranchRecords);
    }
    subcommand(&["record", "-b"], BUSY);
}

/// perf makes a sample for each member of the group that counted something since the leader's last sample.
#[test]
fn serial_group_read_by_its_leader() {
    if !has_perf() {
        return;
    }
    let folder = folder();
    let path = folder.path().join("perf.data");
    if record(&path, &["-e", "{cpu-clock,page-faults}:S"], BUSY).is_none() {
        return;
    }
    compare_counts(&path, "a group");
    let recording = PerfData::open(&path).expect("a recording");
    let mut before: HashMap<u64, u64> = HashMap::new();
    let mut ours = Vec::new();
    recording.read(|record| {
        if record.raw.kind != RecordType::SAMPLE {
            return ControlFlow::Continue(());
        }
        let layout = recording.layout(record.event).expect("a layout");
        let sample = layout.sample(&record.raw).expect("a sample");
        for value in sample.read.expect("the group's counts").iter() {
            let id = value.id.expect("an id");
            let counted = value.value - before.insert(id, value.value).unwrap_or(0);
            let mut events = recording.events().iter();
            let event = events.find(|event| event.ids.contains(&id));
            let event = event.expect("an event").name.trim_end_matches(':');
            if counted > 0 {
                let ip = sample.ip.expect("an address");
                let time = sample.time.expect("a time");
                let (seconds, rest) = (time / 1_000_000_000, time % 1_000_000_000);
                ours.push(format!("{seconds}.{rest:09}: {counted} {event}: {ip:x}"));
            }
        }
        ControlFlow::Continue(())
    });
    let fields = "time,event,period,ip";
    let output = perf(&["script", "--ns", "-G", "-F", fields, "-i", text(&path)]);
    let perfs: Vec<String> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    assert_lines(&ours, &perfs, "a group");
    assert!(perfs.iter().any(|line| line.contains("page-faults")));
}

/// Several files of one recording: the last may be in the middle of something, each stands alone.
#[test]
fn serial_switched_output() {
    if !has_perf() {
        return;
    }
    let folder = folder();
    let path = folder.path().join("perf.data");
    let options = [&CLOCK[..], &["-g", "-m", "4", "--switch-output=24K"]].concat();
    if record(&path, &options, BUSY).is_none() {
        return;
    }
    let mut parts: Vec<PathBuf> = std::fs::read_dir(folder.path())
        .expect("the folder")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    parts.sort();
    for part in &parts {
        compare(part, "--switch-output");
    }
    assert!(!parts.is_empty());
}

/// Samples through two pipes: `perf record | perf inject -b`.
#[test]
fn serial_injected_pipe() {
    if !has_perf() {
        return;
    }
    let folder = folder();
    let path = folder.path().join("pipe.data");
    let status = Command::new("sh")
        .args([
            "-c",
            "perf record -e cpu-clock -g -o - -- ls /usr/bin 2>/dev/null | perf inject -b -o \"$0\"",
        ])
        .arg(&path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .expect("a shell runs");
    if !status.success() {
        return skip("perf inject of a pipe does not work here");
    }
    let recording = PerfData::open(&path).expect("a recording");
    assert_ne!(recording.format(), Format::Directory);
    compare(&path, "perf inject -b of a pipe");
}

/// Where the records start, and how far whole ones reach.
fn whole_records(bytes: &[u8]) -> (usize, usize) {
    let word = |at: usize| u64::from_ne_bytes(*bytes[at..].first_chunk().expect("a word"));
    let start = usize::try_from(word(40)).expect("a place");
    let claimed = usize::try_from(word(48)).expect("a size");
    let limit = match claimed {
        0 => bytes.len(),
        size => bytes.len().min(start + size),
    };
    let mut end = start;
    while let Some(size) = bytes[end..limit].get(6..8) {
        let size = usize::from(u16::from_ne_bytes([size[0], size[1]]));
        if size < 8 || end + size > limit {
            break;
        }
        end += size;
    }
    (start, end)
}

/// A copy whose header tells of the whole records that are there and of nothing behind them: perf reads that.
fn mend(bytes: &[u8], path: &Path) {
    let (start, end) = whole_records(bytes);
    let mut mended = bytes[..end].to_vec();
    mended[48..56].copy_from_slice(&((end - start) as u64).to_ne_bytes());
    mended[72..104].fill(0);
    std::fs::write(path, mended).expect("the copy");
}

/// Compares the rest of a damaged recording with perf's reading of a mended copy.
#[track_caller]
fn compare_left(bytes: &[u8], folder: &Path, what: &str) {
    let (left, mended) = (folder.join("left.data"), folder.join("mended.data"));
    std::fs::write(&left, bytes).expect("the file");
    mend(bytes, &mended);
    let recording = PerfData::open(&left).expect(what);
    let summary = recording.read(|_| ControlFlow::Continue(()));
    assert!(recording.salvaged() || summary.salvaged, "{what}");
    assert_eq!(our_counts(&recording), perf_counts(&mended), "{what}");
    let of_copy = PerfData::open(&mended).expect(what);
    let ours = our_samples(&recording);
    assert!(!ours.is_empty(), "{what}");
    assert_lines(&ours, &support::perf_samples(&mended, &of_copy), what);
}

/// Ends the process at the end of the test, also of one that fails.
struct Recorder(Child);

impl Drop for Recorder {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Some seconds of work, which go on behind a killed recorder.
const LONG: &str = "i=0; while [ $i -lt 2000000 ]; do i=$((i+1)); done";

#[test]
fn serial_killed_recorder() {
    if !has_perf() {
        return;
    }
    let folder = folder();
    let path = folder.path().join("perf.data");
    // Small rings, so that perf writes often.
    let options = ["-g", "-m", "4", "-o", text(&path)];
    let arguments = [&["record"], &CLOCK[..], &options, &["--"]].concat();
    let mut recorder = Recorder(
        Command::new("perf")
            .args(arguments)
            .args(["sh", "-c", LONG])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("perf runs"),
    );
    let written = || std::fs::metadata(&path).map_or(0, |data| data.len());
    let start = Instant::now();
    while written() < 48 * 1024 && start.elapsed() < Duration::from_secs(10) {
        if recorder.0.try_wait().expect("a state").is_some() {
            return skip("perf record does not work here");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    recorder.0.kill().expect("perf is killed");
    recorder.0.wait().expect("perf ends");
    let bytes = std::fs::read(&path).expect("what it wrote");
    // The header is written at the end.
    assert_eq!(bytes[48..56], [0; 8]);
    compare_left(&bytes, folder.path(), "killed");
}

#[test]
fn serial_cut_files() {
    if !has_perf() {
        return;
    }
    let folder = folder();
    let path = folder.path().join("perf.data");
    if record(&path, &[&CLOCK[..], &["-g"]].concat(), BUSY).is_none() {
        return;
    }
    let bytes = std::fs::read(&path).expect("the file");
    let (start, end) = whole_records(&bytes);
    for (part, of) in [(1, 3), (1, 2), (3, 4), (9, 10)] {
        for more in [0, 1, 5] {
            let cut = start + (end - start) * part / of + more;
            compare_left(&bytes[..cut], folder.path(), &format!("cut at {cut}"));
        }
    }
}
