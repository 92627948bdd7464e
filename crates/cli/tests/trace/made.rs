//! Traces made for a test, and runs of the program on them.

use dioptra_tracedata::{
    ClockInfo, ClockPair, JournalEntry, ProcessCause, RecordingEnd, TaskChange, TraceInfo,
    TraceWriter,
};
use dioptra_tracelayout::record::UnwindCause;
use dioptra_tracelayout::switches::{BlockHeader, ContextSwitch, SwitchKind};
use dioptra_tracelayout::{
    ChunkHeader, Encoder, FunctionEntry, FunctionKind, VERSION, chunk, directory,
};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The path of the program, for tests that run it as a whole.
pub const PROGRAM: Option<&str> = option_env!("CARGO_BIN_EXE_dioptra");

/// A step of a thread; times are in nanoseconds.
#[derive(Clone, Debug)]
pub enum Step {
    Enter(u64, String),
    Leave(u64),
    Unwound(u64, UnwindCause, u32),
    Lost(u64),
    Stack(u64, u32),
}

/// Returns the steps of a text such as `main( a( b ) )`: a word begins a call, which `)` ends; without `(` the call
/// ends at once. Each beginning and end is `tick` nanoseconds after the one before, the first at `start`.
pub fn script(text: &str, start: u64, tick: u64) -> Vec<Step> {
    let mut time = start;
    let mut steps = Vec::new();
    let mut step = |make: &dyn Fn(u64) -> Step| {
        steps.push(make(time));
        time += tick;
    };
    for word in text.split_whitespace() {
        if word == ")" {
            step(&Step::Leave);
            continue;
        }
        let name = word.trim_end_matches('(');
        step(&|time| Step::Enter(time, name.to_owned()));
        if name == word {
            step(&Step::Leave);
        }
    }
    steps
}

/// A trace in a folder of its own.
pub struct Made {
    _parent: tempfile::TempDir,
    folder: PathBuf,
    pid: u32,
}

/// Makes a trace of threads, each with its id and steps. Functions are library calls of `program`, so that their names
/// need no file. A chunk has `most` steps at most.
pub fn trace_in_chunks(threads: &[(u32, Vec<Step>)], most: usize) -> Made {
    let parent = tempfile::tempdir().expect("a folder");
    let folder = parent.path().join("trace");
    let pair = |time| ClockPair {
        ticks: time,
        monotonic: time,
    };
    let mut info = TraceInfo::new(ClockInfo::monotonic(0));
    info.recorder = "dioptra 0".into();
    info.command = vec!["/bin/program".into()];
    info.folder = "/".into();
    let mut writer = TraceWriter::create(&folder, &info).expect("a trace");
    let mut names: Vec<&str> = Vec::new();
    for (_, steps) in threads {
        for step in steps {
            if let Step::Enter(_, name) = step
                && !names.contains(&name.as_str())
            {
                names.push(name);
            }
        }
    }
    for name in &names {
        let entry = FunctionEntry {
            module: 1,
            kind: FunctionKind::LibraryCall,
            method: 7,
            place: writer.names(name.as_bytes()).expect("a name"),
            size: name.len() as u32,
        };
        writer.functions(&[entry]).expect("a function");
    }
    let process = JournalEntry::Process {
        time: 0,
        pid: threads.first().map_or(1, |(tid, _)| *tid),
        parent: 1,
        cause: ProcessCause::Exec,
        executable: "/bin/program".into(),
        arguments: Vec::new(),
    };
    writer.journal(&process).expect("a line");
    let mut chunks = 0;
    for (index, (tid, steps)) in threads.iter().enumerate() {
        let stream = index as u32 + 1;
        let thread = JournalEntry::Thread {
            stream,
            pid: threads[0].0,
            tid: *tid,
            name: "program".into(),
            parent: 0,
        };
        writer.journal(&thread).expect("a line");
        chunks += write_steps(&mut writer, stream, *tid, steps, &names, most);
    }
    info.ending = Some(RecordingEnd {
        waits: 0,
        waited: 0,
        memory: 0,
        clock: pair(1 << 62),
        status: Some(0),
        signal: None,
        chunks,
        bytes: writer.records_size(),
        lost: 0,
        missed_in_handlers: Some(0),
        missed_no_memory: 0,
        discarded_chunks: 0,
        lost_switches: 0,
        uncounted_threads: 0,
        marked: 0,
        usage: None,
    });
    writer.info(&info).expect("the end");
    Made {
        _parent: parent,
        folder,
        pid: threads.first().map_or(1, |(tid, _)| *tid),
    }
}

/// Makes a trace as [`trace_in_chunks`] does, with large chunks.
pub fn trace(threads: &[(u32, Vec<Step>)]) -> Made {
    trace_in_chunks(threads, 5_000)
}

/// Makes a trace of one thread, 7, with the steps of a [`script`], a microsecond apart.
pub fn scripted(text: &str) -> Made {
    trace(&[(7, script(text, 1_000_000, 1_000))])
}

fn write_steps(
    writer: &mut TraceWriter,
    stream: u32,
    tid: u32,
    steps: &[Step],
    names: &[&str],
    most: usize,
) -> u64 {
    let id = |name: &str| {
        names
            .iter()
            .position(|known| *known == name)
            .expect("a name") as u32
            + 1
    };
    let mut open: Vec<u32> = Vec::new();
    let mut last = 0;
    let mut sequence = 0;
    for part in steps.chunks(most) {
        let header = ChunkHeader {
            magic: chunk::MAGIC,
            version: VERSION,
            stream,
            sequence,
            pid: tid,
            tid,
            base: last,
            depth: open.len() as u32,
            open: open.len() as u32,
            ..ChunkHeader::default()
        };
        let mut body: Vec<u8> = open.iter().flat_map(|id| id.to_le_bytes()).collect();
        body.resize(body.len().next_multiple_of(8), 0);
        let listed = body.len();
        body.resize(listed + part.len() * 28, 0);
        let mut encoder = Encoder::new(&mut body[listed..], 0, last);
        for step in part {
            let done = match step {
                Step::Enter(time, name) => {
                    open.push(id(name));
                    encoder.entry(*time, id(name))
                }
                Step::Leave(time) => {
                    open.pop();
                    encoder.exit(*time)
                }
                Step::Unwound(time, cause, calls) => {
                    open.truncate(open.len() - *calls as usize);
                    encoder.unwound(*time, *cause, *calls)
                }
                Step::Lost(records) => encoder.lost(*records),
                Step::Stack(time, stack) => encoder.stack(*time, *stack),
            };
            done.expect("room");
        }
        last = encoder.time();
        let used = encoder.used();
        body.truncate(listed + used);
        writer.chunk(header, &body).expect("a chunk");
        sequence += 1;
    }
    u64::from(sequence)
}

impl Made {
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Adds context switches of the trace's threads: thread, time, kind. All are on CPU 3.
    pub fn with_switches(self, switches: &[(u32, u64, SwitchKind)]) -> Made {
        let switches = switches.iter();
        let switches = switches.map(|(tid, time, kind)| (*tid, *time, *kind, 3));
        self.with_switches_on(&switches.collect::<Vec<_>>())
    }

    /// Adds context switches as [`Made::with_switches`] does, each with its CPU.
    pub fn with_switches_on(self, switches: &[(u32, u64, SwitchKind, u32)]) -> Made {
        let mut bytes = Vec::new();
        for &(tid, time, kind, cpu) in switches {
            let (pid, count) = (self.pid, 1);
            bytes.extend(BlockHeader { count, pid, tid }.to_bytes());
            bytes.extend(ContextSwitch { time, cpu, kind }.to_bytes());
        }
        std::fs::write(self.folder.join(directory::SWITCHES), bytes).expect("a file");
        self
    }

    /// Adds changes of the trace's threads: thread, time, change.
    pub fn with_tasks(self, changes: &[(u32, u64, TaskChange)]) -> Made {
        let path = self.folder.join(directory::JOURNAL);
        let mut journal = std::fs::read(&path).expect("a journal");
        for (tid, time, change) in changes {
            let entry = JournalEntry::Task {
                time: *time,
                pid: self.pid,
                tid: *tid,
                change: change.clone(),
            };
            journal.extend(serde_json::to_vec(&entry).expect("a line"));
            journal.push(b'\n');
        }
        std::fs::write(path, journal).expect("a file");
        self
    }

    /// Runs `dioptra trace COMMAND ARGUMENTS` on the trace.
    pub fn run(&self, command: &str, arguments: &str) -> Output {
        dioptra(command, &self.folder, arguments)
    }

    /// Returns the command's standard output.
    pub fn shown(&self, command: &str, arguments: &str) -> String {
        let output = self.run(command, arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command} {arguments}: {errors}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Returns the calls that `replay` shows with these arguments.
    pub fn calls(&self, arguments: &str) -> String {
        self.shown("replay", &format!("-f none {arguments}"))
    }
}

/// Runs `dioptra trace COMMAND -d FOLDER ARGUMENTS`.
pub fn dioptra(command: &str, folder: &Path, arguments: &str) -> Output {
    Command::new(PROGRAM.expect("known to integration tests"))
        .args(["trace", command, "-d"])
        .arg(folder)
        .args(arguments.split_whitespace())
        .stdin(Stdio::null())
        .output()
        .expect("dioptra runs")
}
