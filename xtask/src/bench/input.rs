//! Makes the profiles that benches read: real programs under `perf record`, until the file is as large as asked for.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use super::{cpus, measure, scratch};
use crate::{root, test::cargo};

/// The kind of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// The whole machine with frame-pointer call chains, while it compiles
    SysFp,
    /// The same without call chains
    Flat,
    /// The whole machine with ten events of software, without call chains
    SysEvents,
    /// One program with deep frame-pointer call chains
    AppFp,
    /// A C++ program with copies of 8 KiB of its stack, for unwinding by DWARF
    Dwarf,
    /// The same with copies of 2 KiB, so that a file of the same size has 100,000 samples
    DwarfMany,
}

impl Kind {
    /// The kinds whose reports are compared.
    pub const ALL: [Kind; 5] = [
        Kind::SysFp,
        Kind::AppFp,
        Kind::Flat,
        Kind::Dwarf,
        Kind::DwarfMany,
    ];

    /// The usual size of such a file, in MB.
    pub fn megabytes(self) -> u64 {
        match self {
            Self::SysFp => 220,
            Self::AppFp => 80,
            Self::Flat => 150,
            Self::SysEvents => 100,
            Self::Dwarf => 230,
            Self::DwarfMany => 270,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::SysFp => "sys-fp",
            Self::Flat => "flat",
            Self::SysEvents => "sys-events",
            Self::AppFp => "app-fp",
            Self::Dwarf => "dwarf",
            Self::DwarfMany => "dwarf-many",
        }
    }

    fn options(self) -> &'static [&'static str] {
        match self {
            Self::SysFp => &["-a", "-g"],
            Self::Flat => &["-a"],
            // With the cpu-clock that all have these are ten.
            Self::SysEvents => &[
                "-a",
                "-e",
                "task-clock,page-faults,minor-faults,major-faults,context-switches,cpu-migrations,alignment-faults,emulation-faults,cgroup-switches",
            ],
            Self::AppFp => &["-g"],
            Self::Dwarf => &["--call-graph", "dwarf,8192"],
            Self::DwarfMany => &["--call-graph", "dwarf,2048"],
        }
    }

    /// Samples a second: as many as the machine bears, fewer where each copies a stack.
    fn rate(self) -> u64 {
        let most = std::fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate");
        let most = most
            .ok()
            .and_then(|s| s.trim().parse().ok())
            .unwrap_or(4000);
        most.min(match self {
            Self::Dwarf => 2000,
            Self::DwarfMany => 8000,
            _ => 20000,
        })
    }
}

/// A profile and how many samples its recorder counted in it.
pub struct Input {
    pub path: PathBuf,
    pub bytes: u64,
    pub samples: Option<u64>,
}

/// A file that somebody else has made.
pub fn given(path: &Path) -> Result<Input> {
    let bytes = path
        .metadata()
        .with_context(|| path.display().to_string())?
        .len();
    Ok(Input {
        path: path.to_path_buf(),
        bytes,
        samples: None,
    })
}

/// The profile of this kind and about `megabytes` (10^6 bytes), recorded now unless an earlier run left it.
pub fn make(perf: &Path, kind: Kind, megabytes: u64) -> Result<Input> {
    let path = scratch()?.join(format!("{}-{megabytes}MB.data", kind.name()));
    let note = path.with_extension("samples");
    if !path.exists() {
        let samples = record(perf, kind, megabytes * 1_000_000, &path)?;
        std::fs::write(&note, samples.map_or_else(String::new, |n| n.to_string()))
            .with_context(|| note.display().to_string())?;
    }
    let samples = std::fs::read_to_string(&note)
        .ok()
        .and_then(|s| s.parse().ok());
    Ok(Input {
        samples,
        ..given(&path)?
    })
}

/// The first `megabytes` of a recording, with its feature sections, as a recording of its own beside it.
pub fn cut(input: &Input, megabytes: u64) -> Result<Input> {
    let stem = input.path.file_stem().unwrap_or_default().to_string_lossy();
    let path = scratch()?.join(format!("{stem}-cut-{megabytes}MB.data"));
    if !path.exists() {
        let whole = std::fs::read(&input.path).with_context(|| input.path.display().to_string())?;
        let part = cut_bytes(&whole, megabytes * 1_000_000)
            .with_context(|| format!("{}: no file of perf record", input.path.display()))?;
        std::fs::write(&path, part).with_context(|| path.display().to_string())?;
    }
    given(&path)
}

/// The records up to about `bytes` of a file, and behind them the table of feature sections and the sections.
fn cut_bytes(whole: &[u8], bytes: u64) -> Option<Vec<u8>> {
    let word = |at: usize| Some(u64::from_ne_bytes(*whole.get(at..)?.first_chunk()?));
    // Fields of the header: the start and length of the data, and the bits of the features that the file has.
    const DATA: usize = 40;
    const FEATURES: std::ops::Range<usize> = 72..104;
    let (start, length) = (word(DATA)?, word(DATA + 8)?);
    let end = start.checked_add(length)?;
    let wanted = bytes.min(end);
    let mut at = start;
    while at < wanted {
        // The last word but the first six bytes is the record's size.
        at += word(at as usize)? >> 48;
    }
    let mut part = whole.get(..at as usize)?.to_vec();
    part[DATA + 8..DATA + 16].copy_from_slice(&(at - start).to_ne_bytes());
    let bits: u32 = whole
        .get(FEATURES)?
        .iter()
        .map(|byte| byte.count_ones())
        .sum();
    let moved = end - at;
    for section in 0..bits as usize {
        let entry = end as usize + 16 * section;
        part.extend((word(entry)? - moved).to_ne_bytes());
        part.extend(word(entry + 8)?.to_ne_bytes());
    }
    part.extend(whole.get(end as usize + 16 * bits as usize..)?);
    Some(part)
}

/// Records until the file has the size; returns the number of samples that perf names.
fn record(perf: &Path, kind: Kind, bytes: u64, path: &Path) -> Result<Option<u64>> {
    const LONGEST: Duration = Duration::from_secs(900);
    println!(
        "recording {} until it has {} MB …",
        path.display(),
        bytes / 1_000_000
    );
    let unfinished = path.with_extension("unfinished");
    let _work = Workload::start(kind)?;
    let mut command = Command::new(perf);
    command
        .args([
            "record",
            "--no-buildid-cache",
            "-e",
            "cpu-clock",
            "-m",
            "8M",
            "-F",
            &kind.rate().to_string(),
        ])
        .args(kind.options())
        .arg("-o")
        .arg(&unfinished);
    match &_work {
        Workload::Machine(_) => command.args(["--", "sleep", "1000"]),
        Workload::Program(words) => command.arg("--").args(words),
    };
    // Not through `measure`, whose time limit is for peers.
    let mut recorder = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("{command:?}"))?;
    let start = Instant::now();
    while recorder.try_wait()?.is_none() {
        let size = unfinished.metadata().map_or(0, |m| m.len());
        if size >= bytes || start.elapsed() > LONGEST {
            // SAFETY: the child has not been waited for, so the pid is still its own.
            unsafe { libc::kill(recorder.id() as libc::pid_t, libc::SIGINT) };
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let output = recorder.wait_with_output()?;
    let messages = String::from_utf8_lossy(&output.stderr);
    let size = unfinished.metadata().map_or(0, |m| m.len());
    if size == 0 || messages.contains("failed") {
        bail!(
            "{command:?}: {}\n{messages}(the kinds sys-fp, sys-events and flat need root)",
            output.status
        );
    }
    if size < bytes {
        println!("warning: the recording ended at {} MB", size / 1_000_000);
    }
    std::fs::rename(&unfinished, path)?;
    // "[ perf record: Captured and wrote 100.4 MB FILE (812345 samples) ]"
    let samples = messages
        .rsplit('(')
        .next()
        .and_then(|tail| tail.split(' ').next()?.parse().ok());
    Ok(samples)
}

/// The program that runs during a recording; it ends when this value is dropped.
enum Workload {
    /// Loops of compilers and other programs, each in a process group of its own.
    Machine(Vec<Child>),
    /// A program for the recorder to start.
    Program(Vec<String>),
}

impl Workload {
    fn start(kind: Kind) -> Result<Self> {
        if matches!(kind, Kind::Dwarf | Kind::DwarfMany) {
            let program = dioptra_testprograms::cpp("templates", &["-O2", "-fomit-frame-pointer"])
                .map_err(|skip| anyhow::anyhow!("{skip}"))?;
            let words = [&*program.to_string_lossy(), "0"].map(String::from);
            return Ok(Self::Program(words.to_vec()));
        }
        if kind == Kind::AppFp {
            let program = dioptra_testprograms::c("recursion", &[])
                .map_err(|skip| anyhow::anyhow!("{skip}"))?;
            // fib(24) again and again: chains of up to 30 frames, 150,000 of them distinct.
            let words =
                [&*program.to_string_lossy(), "1", "0", "24", "1000000000"].map(String::from);
            return Ok(Self::Program(words.to_vec()));
        }
        let folder = scratch()?.join("build");
        let cargo = cargo();
        let cargo = cargo.to_string_lossy();
        // A parallel build, over and over, and beside it a mix of other programs.
        let build = format!(
            "while :; do rm -rf '{folder}'; '{cargo}' build --quiet --offline --release -p xtask -j {} \
             --target-dir '{folder}' || sleep 1; done",
            cpus(),
            folder = folder.display()
        );
        let mix = "while :; do g++ -O2 -c tests/programs/exceptions.cpp -o /dev/null; \
                   python3 -c 'print(sum(hash(str(i)) & 1 for i in range(2000000)))'; \
                   find /usr/lib -type f | sort | md5sum; sleep 0.1; done";
        let spawn = |script: &str| {
            Command::new("sh")
                .args(["-c", script])
                .current_dir(root())
                .process_group(0)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
        };
        let children: io::Result<Vec<_>> = [build.as_str(), mix].into_iter().map(spawn).collect();
        Ok(Self::Machine(children.context("sh")?))
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        if let Self::Machine(children) = self {
            for child in children {
                // SAFETY: the child leads a group of its own and has not been waited for, so the number is still its.
                unsafe { libc::kill(-(child.id() as libc::pid_t), libc::SIGKILL) };
                // Only reaping; there is nothing to do about an error.
                let _ = child.wait();
            }
        }
    }
}

/// Reads the file once, so that all tools find it in memory.
pub fn warm(path: &Path) -> Result<()> {
    let mut file = std::fs::File::open(path).with_context(|| path.display().to_string())?;
    io::copy(&mut file, &mut io::sink())?;
    Ok(())
}

/// The longest that a peer may take, for those who print it.
pub fn time_limit() -> Duration {
    measure::TIME_LIMIT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_keeps_whole_records_and_the_sections() {
        let words =
            |words: &[u64]| -> Vec<u8> { words.iter().flat_map(|w| w.to_ne_bytes()).collect() };
        let record = words(&[(24 << 48) | 9, 1, 2]);
        let features = [0b1000_0100_u64, 0, 0, 0];
        let header = |data: u64| {
            let front = words(&[0, 104, 0, 0, 0, 104, data, 0, 0]);
            [front, words(&features)].concat()
        };
        let sections = |end: u64| {
            let table = words(&[end + 32, 8, end + 40, 8]);
            [table, b"firstoneothertwo".to_vec()].concat()
        };
        let file = |records: usize| {
            let data = 24 * records as u64;
            [header(data), record.repeat(records), sections(104 + data)].concat()
        };
        let whole = file(10);
        assert_eq!(cut_bytes(&whole, 104 + 49), Some(file(3)));
        assert_eq!(cut_bytes(&whole, 1 << 40), Some(whole));
        assert_eq!(cut_bytes(b"short", 10), None);
    }
}
