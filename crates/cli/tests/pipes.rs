//! A recording that comes through a pipe gives the report of the same recording in a file, and takes no more memory if it is
//! longer.

use dioptra_perfdata::{
    EventToWrite, FeaturesToWrite, PerfData, WriteOptions, Writer, file_type, read_build_id,
};
use dioptra_perfrecords::record::RecordType;
use dioptra_perfrecords::{Attr, AttrFlags, SampleType};
use dioptra_testprograms::{self as programs, or_skip};
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A directory for temporary files that nothing can be written to.
const NOWHERE: &str = "/no/such/directory";

fn dioptra(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dioptra"));
    command.args(arguments);
    command
}

/// The output of a command whose standard input is a pipe with the content of a file.
struct Piped {
    output: Output,
    /// The largest amount of memory that was in use, in KiB.
    peak: i64,
}

/// Runs a command with a pipe on its standard input.
#[expect(
    clippy::zombie_processes,
    reason = "wait4 waits for the process, and tells how much memory it used"
)]
fn pipe_into(mut command: Command, file: &Path) -> Piped {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("dioptra starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let mut file = File::open(file).expect("the recording");
    let writer = std::thread::spawn(move || io::copy(&mut file, &mut stdin));
    let read = |mut stream: Box<dyn io::Read + Send>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).expect("output");
            bytes
        })
    };
    let stdout = read(Box::new(child.stdout.take().expect("a pipe")));
    let stderr = read(Box::new(child.stderr.take().expect("a pipe")));
    let (stdout, stderr) = (
        stdout.join().expect("output"),
        stderr.join().expect("output"),
    );
    // A reader that refuses its input closes the pipe.
    let _ = writer.join().expect("a writer");
    let (mut status, mut usage) = (0, std::mem::MaybeUninit::<libc::rusage>::zeroed());
    let pid = child.id().cast_signed();
    // SAFETY: the pid is that of a child nobody has waited for, and both places outlive the call, which fills them.
    let (waited, usage) = unsafe {
        let waited = libc::wait4(pid, &raw mut status, 0, usage.as_mut_ptr());
        (waited, usage.assume_init())
    };
    assert_eq!(waited, pid);
    Piped {
        output: Output {
            status: ExitStatusExt::from_raw(status),
            stdout,
            stderr,
        },
        peak: usage.ru_maxrss,
    }
}

#[track_caller]
fn text(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns what a command says of a pipe. It must not keep the pipe in a temporary file.
#[track_caller]
fn streamed(arguments: &[&str], file: &Path) -> String {
    let mut command = dioptra(arguments);
    command.args(["-i", "-"]).env("TMPDIR", NOWHERE);
    text(&pipe_into(command, file).output)
}

/// Returns what a command says of a file.
#[track_caller]
fn whole(arguments: &[&str], file: &Path) -> String {
    let mut command = dioptra(arguments);
    let output = command.arg("-i").arg(file).output();
    text(&output.expect("dioptra starts"))
}

/// The kinds of reports that need the records once.
const REPORTS: [&[&str]; 12] = [
    &["report"],
    &["report", "--children"],
    &["report", "--by", "process,module,function"],
    &["report", "--by", "thread"],
    &["report", "--by", "line"],
    &["report", "--by", "block"],
    &["report", "--by", "time", "--slices", "7"],
    &["report", "--inline"],
    &["report", "--tree", "callers"],
    &["report", "--time", "..0.05"],
    &["report", "--errors", "--format", "json"],
    &["export", "--to", "collapsed"],
];

#[track_caller]
fn assert_equal(file: &Path, reports: &[&[&str]]) {
    for &arguments in reports {
        let (pipe, file) = (streamed(arguments, file), whole(arguments, file));
        let is_empty = file.lines().all(|line| line.starts_with('#'));
        assert!(!is_empty, "{arguments:?}: {file}");
        // Formats for programs name the file that they were made of.
        assert_eq!(pipe, file, "{arguments:?}");
    }
}

#[test]
fn reports_of_our_pipes_are_those_of_the_files() {
    or_skip!(programs::need_sampling());
    let shares = or_skip!(programs::c("shares", &["-O1", "-g"]));
    let folder = tempfile::tempdir().expect("a folder");
    for (name, options) in [("plain", &["-g"][..]), ("packed", &["-g", "-z"])] {
        let path = folder.path().join(name);
        let mut command = dioptra(&["record", "-e", "cpu-clock:u", "-F", "1000", "-q", "-o", "-"]);
        command.args(options).arg(&shares).arg("100");
        let output = command.stderr(Stdio::null()).output();
        let output = output.expect("dioptra starts");
        assert!(output.status.success(), "{:?}", output.status);
        fs::write(&path, output.stdout).expect("a file");
        // The reader of compressed records differs, and nothing behind it.
        let few = if name == "packed" { 2 } else { REPORTS.len() };
        assert_equal(&path, &REPORTS[..few]);
        assert_identified(&path, &shares);
    }
}

/// Checks that the build id of a module stands before its first mapping.
#[track_caller]
fn assert_identified(file: &Path, module: &Path) {
    let data = PerfData::open(file).expect("a recording");
    let name = module.as_os_str().as_bytes();
    let (mut identified, mut mapped) = (None, None);
    data.read(|record| {
        let first = match record.raw.kind {
            file_type::BUILD_ID => {
                let id = read_build_id(&record.raw, data.byte_order()).expect("a build id");
                (id.path == name).then_some(&mut identified)
            }
            RecordType::MMAP2 => {
                let found = record.raw.body.windows(name.len()).any(|part| part == name);
                found.then_some(&mut mapped)
            }
            _ => None,
        };
        if let Some(first) = first {
            let before = first.unwrap_or(u64::MAX);
            *first = Some(before.min(record.offset));
        }
        ControlFlow::Continue(())
    });
    assert!(mapped.is_some(), "{} is not mapped", module.display());
    assert!(
        identified.is_some() && identified <= mapped,
        "{identified:?}, mapped at {mapped:?}"
    );
}

#[test]
fn reports_of_perfs_pipes_are_those_of_the_files() {
    or_skip!(programs::need_sampling());
    or_skip!(programs::need_tool("perf"));
    let shares = or_skip!(programs::c("shares", &["-O1", "-g"]));
    let folder = tempfile::tempdir().expect("a folder");
    for (name, options) in [("plain", &["-g"][..]), ("packed", &["-g", "-z"])] {
        let path = folder.path().join(name);
        let mut command = Command::new("perf");
        command.args(["record", "-e", "cpu-clock:u", "-F", "1000", "-q", "-o", "-"]);
        command.args(options).arg("--").arg(&shares).arg("100");
        let output = command.stderr(Stdio::null()).output().expect("perf starts");
        if !output.status.success() {
            return programs::skip("perf cannot record into a pipe here");
        }
        fs::write(&path, output.stdout).expect("a file");
        assert_equal(&path, &REPORTS[..2]);
        // perf itself adds build ids behind the mappings.
        let injected = folder.path().join("injected");
        let mut command = Command::new("perf");
        command
            .args(["inject", "-b", "-i"])
            .arg(&path)
            .arg("-o")
            .arg(&injected);
        let output = command.output().expect("perf starts");
        if output.status.success() {
            assert_equal(&injected, &REPORTS[..2]);
        }
    }
}

/// Copied stacks are unwound after the recording, which waits in a temporary file.
#[test]
fn copied_stacks_wait_for_the_end_of_the_pipe() {
    or_skip!(programs::need_sampling());
    let shares = or_skip!(programs::c("shares", &["-O1", "-g"]));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("stacks");
    let mut command = dioptra(&["record", "-e", "cpu-clock:u", "-F", "500", "-q", "-o", "-"]);
    command
        .args(["--call-graph", "dwarf"])
        .arg(&shares)
        .arg("100");
    let output = command.stderr(Stdio::null()).output();
    fs::write(&path, output.expect("dioptra starts").stdout).expect("a file");
    // Without callers nothing is unwound.
    assert_eq!(streamed(&["report"], &path), whole(&["report"], &path));
    let mut command = dioptra(&["report", "--children", "-i", "-"]);
    command.env("TMPDIR", folder.path());
    let piped = pipe_into(command, &path);
    assert_eq!(text(&piped.output), whole(&["report", "--children"], &path));
}

/// Code of a just-in-time compiler that is described in a file that grows while the program runs.
#[test]
fn code_made_at_run_time_has_its_names() {
    or_skip!(programs::need_sampling());
    let program = or_skip!(programs::c("jitcode", &[]));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("recorded");
    let mut record = dioptra(&["record", "-e", "cpu-clock:u", "-F", "2000", "-q", "-o", "-"]);
    record.arg(&program).arg("dump").current_dir(folder.path());
    let file = File::create(&path).expect("a file");
    let status = record.stdout(file).stderr(Stdio::null()).status();
    assert!(status.expect("dioptra starts").success());
    let report = streamed(&["report"], &path);
    assert!(
        report.contains("made_first") && report.contains("made_second"),
        "{report}"
    );
    assert_eq!(report, whole(&["report"], &path));

    // While the program runs, the file that describes its code is not complete.
    let mut record = dioptra(&["record", "-e", "cpu-clock:u", "-F", "2000", "-q", "-o", "-"]);
    record.arg(&program).arg("dump").current_dir(folder.path());
    let mut record = record
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let mut report = dioptra(&["report", "-i", "-"]);
    report.stdin(record.stdout.take().expect("a pipe"));
    let report = text(&report.output().expect("dioptra starts"));
    assert!(record.wait().expect("a process").success());
    assert!(
        report.contains("made_first") && report.contains("made_second"),
        "{report}"
    );
}

/// Writes a pipe of samples of four CPUs, whose rings are read one after the other in each round.
fn write_long(path: &Path, samples: u64) {
    const IDS: [u64; 2] = [1, 2];
    let fields = SampleType::IDENTIFIER
        | SampleType::IP
        | SampleType::TID
        | SampleType::TIME
        | SampleType::CPU
        | SampleType::CALLCHAIN;
    let mut attr = Attr {
        sample_type: fields,
        flags: AttrFlags::SAMPLE_ID_ALL | AttrFlags::MMAP | AttrFlags::COMM,
        ..Attr::default()
    };
    attr.kind = 1;
    attr.sample_period = 1000;
    let events = IDS.map(|id| EventToWrite {
        attr: attr.clone(),
        name: format!("event-{id}"),
        ids: vec![id],
    });
    let features = FeaturesToWrite::default();
    let file = BufWriter::new(File::create(path).expect("a file"));
    let mut writer =
        Writer::create_pipe(file, &events, &features, WriteOptions::default()).expect("a pipe");
    // MMAP of a file that is not there: places are known by their addresses.
    for pid in 0..50_u64 {
        let mut words = vec![(pid + 100) | (pid + 100) << 32, 0x10_0000, 0x100_0000, 0];
        let mut name = *b"/no/such/program\0\0\0\0\0\0\0\0";
        name[16] = 0;
        words.extend(
            name.chunks_exact(8)
                .map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes"))),
        );
        // pid and tid, time, cpu, id.
        words.extend([(pid + 100) | (pid + 100) << 32, 0, 0, IDS[0]]);
        writer.write(&record(1, 2, &words)).expect("a record");
    }
    let mut seed = 1_u64;
    let mut random = |end: u64| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % end
    };
    let mut written = 0;
    let mut time = 1_000_000;
    while written < samples {
        for cpu in 0..4 {
            for index in 0..500 {
                let pid = 100 + random(50);
                // Few places are hot.
                let places = if random(10) < 9 { 20 } else { 2000 };
                let ip = 0x10_0000 + 64 * random(places);
                let callers = [0x10_0000 + 64 * random(8), 0x10_0000 + 64 * random(3)];
                let id = IDS[random(2) as usize];
                let time = time + 1000 * index + cpu;
                let user = 0xffff_ffff_ffff_fe00;
                let words = [
                    id,
                    ip,
                    pid | pid << 32,
                    time,
                    cpu,
                    4,
                    user,
                    ip,
                    callers[0],
                    callers[1],
                ];
                writer.write(&record(9, 2, &words)).expect("a record");
                written += 1;
            }
        }
        time += 500_000;
        writer.finished_round().expect("a round");
    }
    writer.finish(&features).expect("a pipe");
}

fn record(kind: u32, misc: u16, words: &[u64]) -> Vec<u8> {
    let mut bytes = kind.to_ne_bytes().to_vec();
    bytes.extend(misc.to_ne_bytes());
    let size = 8 + 8 * u16::try_from(words.len()).expect("a short record");
    bytes.extend(size.to_ne_bytes());
    bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    bytes
}

/// The report of a pipe that is ten times longer takes as much memory, and no temporary file.
#[test]
fn memory_does_not_grow_with_the_pipe() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| -> PathBuf { folder.path().join(name) };
    let (short, long) = (path("short"), path("long"));
    write_long(&short, 200_000);
    write_long(&long, 2_000_000);
    let peak = |file: &Path| {
        let mut command = dioptra(&["report", "--children", "-i", "-"]);
        command.env("TMPDIR", NOWHERE);
        let piped = pipe_into(command, file);
        assert_eq!(text(&piped.output), whole(&["report", "--children"], file));
        piped.peak
    };
    let (of_short, of_long) = (peak(&short), peak(&long));
    let length = fs::metadata(&long).expect("a file").len() >> 10;
    println!("peaks of {of_short} and {of_long} KiB, for a pipe of {length} KiB");
    // The noise of an allocator is far below a tenth of the pipe.
    assert!(
        of_long < of_short + 12_000,
        "{of_short} KiB grow to {of_long} KiB"
    );
    assert!(
        u64::try_from(of_long).expect("a size") < length / 2,
        "{of_long} of {length} KiB"
    );
}
