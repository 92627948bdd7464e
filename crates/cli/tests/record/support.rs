//! Recording with the built `dioptra` and reading the file; shared by the tests of `record`.

#![allow(dead_code, reason = "each test binary uses its part")]

use dioptra_perfdata::{PerfData, ReadSummary};
use dioptra_perfevents::record::{Record, RecordType};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The longest time that anything may take on a machine that does much else.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A folder with a recording in it.
pub struct Recording {
    folder: TempDir,
}

/// A recording's content, as far as the tests need it.
#[derive(Debug, Default)]
pub struct Content {
    pub summary: ReadSummary,
    pub salvaged: bool,
    /// Pid, tid and name of COMM records.
    pub comms: Vec<(u32, u32, String)>,
    /// Pid and tid of FORK records.
    pub forks: Vec<(u32, u32)>,
    /// Pid and tid of EXIT records.
    pub exits: Vec<(u32, u32)>,
    /// Pid, tid, and instruction pointer of samples.
    pub samples: Vec<(u32, u32, u64)>,
    /// The number of samples that have the event, thread and time of another sample: a thread that is watched twice is
    /// sampled twice.
    pub twice: usize,
    /// Pid and name of mappings.
    pub mappings: Vec<(u32, String)>,
    /// The length of the longest call chain.
    pub longest_chain: usize,
    /// The number of samples with a copy of the stack.
    pub stacks: usize,
}

impl Content {
    pub fn count(&self, kind: RecordType) -> u64 {
        self.summary.records.get(kind)
    }

    /// Returns the number of lost records, of all kinds that the file counts.
    pub fn lost(&self) -> u64 {
        self.summary.lost + self.summary.lost_samples
    }

    pub fn has_comm(&self, name: &str) -> bool {
        self.comms.iter().any(|(_, _, comm)| comm == name)
    }

    pub fn has_mapping(&self, end: &str) -> bool {
        self.mappings.iter().any(|(_, name)| name.ends_with(end))
    }
}

impl Recording {
    pub fn new() -> Recording {
        Recording {
            folder: tempfile::tempdir().expect("a temporary folder"),
        }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("perf.data")
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns `dioptra record -o FILE`, to be continued.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dioptra"));
        command
            .arg("record")
            .arg("-o")
            .arg(self.path())
            .stdin(Stdio::null());
        command
    }

    /// Records with these arguments; the recording must succeed.
    pub fn record<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Output {
        let output = self.run(arguments);
        assert!(output.status.success(), "{output:?}");
        output
    }

    /// Records with these arguments.
    pub fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Output {
        self.command()
            .args(arguments)
            .output()
            .expect("dioptra runs")
    }

    /// Returns the times of all samples, in nanoseconds.
    pub fn times(&self) -> Vec<u64> {
        let data = PerfData::open(&self.path()).expect("a recording");
        let mut times = Vec::new();
        data.read(|record| {
            let layout = data.layout(record.event);
            let parsed = layout.map(|layout| layout.parse(&record.raw));
            if let Some(Ok(Record::Sample(sample))) = parsed {
                times.extend(sample.time);
            }
            ControlFlow::Continue(())
        });
        times
    }

    /// Reads the recording.
    pub fn content(&self) -> Content {
        let data = PerfData::open(&self.path()).expect("a recording");
        let mut content = Content {
            salvaged: data.salvaged(),
            ..Content::default()
        };
        let mut seen = BTreeSet::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        content.summary = data.read(|record| {
            // Records of perf's own have no layout.
            let layout = data.layout(record.event).filter(|_| record.raw.kind.0 < 64);
            match layout.map(|layout| layout.parse(&record.raw)) {
                Some(Ok(Record::Comm(comm, _))) => {
                    content.comms.push((comm.pid, comm.tid, text(comm.name)));
                }
                Some(Ok(Record::Fork(task, _))) => content.forks.push((task.pid, task.tid)),
                Some(Ok(Record::Exit(task, _))) => content.exits.push((task.pid, task.tid)),
                Some(Ok(Record::Mmap(mmap, _))) => {
                    content.mappings.push((mmap.pid, text(mmap.name)))
                }
                Some(Ok(Record::Sample(sample))) => {
                    let id = |id: Option<u32>| id.expect("samples have pid and tid");
                    let ip = sample.ip.expect("samples have an address");
                    content.samples.push((id(sample.pid), id(sample.tid), ip));
                    let new = seen.insert((record.event, sample.tid, sample.time));
                    content.twice += usize::from(!new);
                    let chain = sample.callchain.map_or(0, |chain| chain.len());
                    content.longest_chain = content.longest_chain.max(chain);
                    content.stacks += usize::from(sample.stack_user.is_some());
                }
                Some(Err(error)) => panic!("at {:#x}: {error}", record.offset),
                _ => {}
            }
            ControlFlow::Continue(())
        });
        assert_eq!(content.summary.damaged, [], "the file is whole");
        content
    }
}

/// Returns the number before `word` in the summary that `dioptra record` printed.
pub fn figure(output: &Output, word: &str) -> u64 {
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text
        .lines()
        .find(|line| line.contains(" throttled: "))
        .unwrap_or_else(|| panic!("no figures in {text}"));
    let mut words = line.split([' ', ',', ':']).filter(|word| !word.is_empty());
    let mut before = "";
    loop {
        let next = words
            .next()
            .unwrap_or_else(|| panic!("no {word} in {line}"));
        if next == word {
            return before
                .parse()
                .unwrap_or_else(|_| panic!("{before} before {word} in {line}"));
        }
        before = next;
    }
}

/// Checks that the summary, the file and perf's count of the file agree; perf only where it is installed.
pub fn check_counts(recording: &Recording, output: &Output) -> Content {
    let content = recording.content();
    assert!(!content.salvaged);
    assert_eq!(figure(output, "samples"), content.count(RecordType::SAMPLE));
    assert_eq!(figure(output, "lost"), content.lost());
    assert_eq!(
        figure(output, "throttled"),
        content.count(RecordType::THROTTLE)
    );
    match dioptra_testprograms::need_tool("perf") {
        Ok(perf) => {
            let stats = Command::new(perf)
                .args(["report", "--stats", "-i"])
                .arg(recording.path())
                .stdin(Stdio::null())
                .output()
                .expect("perf runs");
            let text = String::from_utf8_lossy(&stats.stdout).into_owned();
            assert!(stats.status.success(), "{stats:?}");
            for kind in [
                RecordType::SAMPLE,
                RecordType::COMM,
                RecordType::MMAP2,
                RecordType::FORK,
                RecordType::EXIT,
            ] {
                assert_eq!(
                    perf_count(&text, kind),
                    content.count(kind),
                    "{kind} in {text}"
                );
            }
        }
        Err(skip) => skip.print(),
    }
    content
}

/// Returns the number in a line such as `          SAMPLE events:         16`, the first of which is for the whole
/// file.
fn perf_count(stats: &str, kind: RecordType) -> u64 {
    let wanted = format!("{kind} events:");
    stats
        .lines()
        .find_map(|line| {
            line.trim()
                .strip_prefix(&wanted)?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        })
        .unwrap_or(0)
}

/// Waits until `done`, and ends `child` and the test if that takes too long.
pub fn wait_until(child: &mut Child, what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        if let Ok(Some(status)) = child.try_wait() {
            panic!("dioptra ended with {status} before {what}");
        }
        if Instant::now() > end {
            let _ = child.kill();
            panic!("{what} took more than {PATIENCE:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Sends a signal to a child that has not been waited for yet.
pub fn kill(child: &Child, signal: i32) {
    dioptra_testprograms::send_signal(child.id(), signal).expect("a child of ours");
}
