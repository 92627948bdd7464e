//! `dioptra top`: where time goes now.
//!
//! Three threads share the work. The recorder writes a recording into a pipe, as `record -o -` does. The follower reads it into
//! a live profile ([`follow`]). The third one asks for snapshots and shows them, on the terminal ([`browse`]) or as
//! tables one after the other ([`batch`]). With `-i` there is no recorder: the pipe comes from elsewhere.

mod app;
mod batch;
mod browse;
mod follow;
mod status;
mod tables;

use super::profiles::is_stdin;
use super::record;
use super::record::arguments::{ArgumentError, frequency, ring_pages, seconds};
use crate::exit::Exit;
use crate::formats::TableFormat;
use crate::output::say;
use crate::remedies;
use crate::symbol_sources::ProfileSource;
use anyhow::Context;
use clap::{Args, FromArgMatches, ValueEnum};
use dioptra_perfevents::{AttachSummary, CpuSet};
use dioptra_processes::command::Streams;
use dioptra_profile::{Dimension, LoadOptions, LoadPlan};
use dioptra_recorder::outcome::{Ending, Progress};
use dioptra_recorder::sample_options::CallGraph;
use dioptra_recorder::{Observer, RecordError, RecordNote, RecordSpec};
use follow::{Follower, Limits, Origin, Requests, Update};
use signal_hook::consts::SIGINT;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal, PipeReader, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tables::{Tables, UnknownColumn};

/// Arguments of `dioptra top`.
#[derive(clap::Args)]
#[command(
    args_override_self = true,
    after_help = "\
Two shares stand beside each other: `now`, of the last seconds (--span), and `all`, since the start. In the terminal Enter
leads from a row to what is in it, c to the callers of a function, a to its code; h shows all keys.

Memory is bounded. Where a table is full (--max-stacks), the counts since the start begin anew, which a line says. Records that
come faster than they are read are lost in the kernel, and counted.

Examples:
  dioptra top                                the whole machine
  dioptra top -p 1234 -e cycles:u            a running process
  dioptra top -- ./program                   a command; its output is not shown
  dioptra top --batch -n 3 -d 2 -a           three tables, one every two seconds
  dioptra top --batch --by process --format ndjson -a | head -1
  ssh HOST dioptra record -a -g -o - | dioptra top -i -
                                             another machine, whose files are here, too

Exit status: that of `dioptra record`; 0 when its user ends it; with -i, 1 where the recording cannot be read."
)]
pub struct Arguments {
    /// Events to sample, separated by commas; see `dioptra list events`
    /// [default: cycles, or cpu-clock where there is no cycle counter]
    #[arg(short, long = "event", value_name = "EVENTS")]
    event: Vec<String>,
    /// Samples a second, or `max` for what the kernel allows [default: 4000]
    #[arg(short = 'F', long = "freq", value_name = "HZ", conflicts_with = "count", value_parser = frequency)]
    frequency: Option<u64>,
    /// Events between two samples
    #[arg(short, long, value_name = "PERIOD", value_parser = clap::value_parser!(u64).range(1..=i64::MAX as u64))]
    count: Option<u64>,
    /// Record call chains: fp (frame pointers), dwarf[,SIZE] (copies of the stack), lbr [default: fp]
    #[arg(long, value_name = "METHOD", conflicts_with = "no_chains")]
    call_graph: Option<CallGraph>,
    /// Record no call chains: that costs less, and shows no callers
    #[arg(long)]
    no_chains: bool,
    /// The whole machine, which is the default without another target
    #[arg(short, long, conflicts_with_all = ["pid", "tid", "cgroup"])]
    all_cpus: bool,
    /// All that runs on these CPUs, such as 0-3,8; with -p or -t those processes while they run there
    #[arg(short = 'C', long, value_name = "CPUS")]
    cpu: Option<CpuSet>,
    /// Running processes
    #[arg(
        short,
        long,
        value_name = "PID",
        value_delimiter = ',',
        conflicts_with = "tid"
    )]
    pid: Vec<u32>,
    /// Running threads
    #[arg(short, long, value_name = "TID", value_delimiter = ',')]
    tid: Vec<u32>,
    /// The threads of a cgroup
    #[arg(short = 'G', long, value_name = "NAME", conflicts_with_all = ["pid", "tid"])]
    cgroup: Option<PathBuf>,
    /// Ring buffer of each CPU: pages (a power of two), or a size such as 512K or 8M
    #[arg(short, long, value_name = "PAGES", value_parser = ring_pages)]
    mmap_pages: Option<usize>,
    /// Show a recording that comes through a pipe, as `dioptra record -o -` and `perf record -o -` write it; `-` is
    /// standard input
    #[arg(short, long, value_name = "PIPE", conflicts_with_all = ["event", "frequency", "count", "call_graph", "all_cpus",
          "cpu", "pid", "tid", "cgroup", "mmap_pages", "duration", "command"])]
    input: Option<PathBuf>,
    /// Seconds between two looks
    #[arg(short = 'd', long, value_name = "S", default_value = "1", value_parser = seconds)]
    interval: Duration,
    /// Seconds that `now` looks back
    #[arg(long, value_name = "S", default_value = "5", value_parser = seconds)]
    span: Duration,
    /// Seconds to run at most
    #[arg(long, value_name = "S", value_parser = seconds)]
    duration: Option<Duration>,
    /// The rows to begin with
    #[arg(long, value_enum, default_value_t = Rows::Function)]
    by: Rows,
    /// Show rows only whose names hold this text; capitals count if there are some
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Sort by this column, by its id, such as `samples[all]` or `function` [default: the share of now]
    #[arg(long, value_name = "COLUMN")]
    sort: Option<String>,
    /// Write a table at every interval instead of drawing on the terminal
    #[arg(short, long)]
    batch: bool,
    /// With --batch: end after this many tables
    #[arg(short = 'n', long, value_name = "N", requires = "batch")]
    iterations: Option<u64>,
    /// With --batch: show this many rows at most
    #[arg(long, value_name = "N", default_value_t = 20, requires = "batch")]
    limit: usize,
    /// With --batch: output format; each table of `json` is a document of its own
    #[arg(long, value_enum, default_value_t = TableFormat::Text, requires = "batch")]
    format: TableFormat,
    /// Hold this many call stacks at most
    #[arg(long, value_name = "N", default_value_t = follow::MOST_STACKS, hide_short_help = true)]
    max_stacks: usize,
    #[command(flatten)]
    origin: ProfileSource,
    /// The command and its arguments
    #[arg(value_name = "COMMAND", trailing_var_arg = true, value_parser = clap::value_parser!(OsString),
          value_hint = clap::ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

/// The rows of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Rows {
    /// Functions
    Function,
    /// Processes
    Process,
    /// Threads
    Thread,
    /// Modules: programs, libraries, the kernel
    Module,
}

impl Rows {
    fn dimension(self) -> Dimension {
        match self {
            Rows::Function => Dimension::Function,
            Rows::Process => Dimension::Process,
            Rows::Thread => Dimension::Thread,
            Rows::Module => Dimension::Module,
        }
    }
}

/// The way in which snapshots are shown.
#[derive(Clone)]
struct Shown {
    interval: Duration,
    rows: Rows,
    filter: String,
    sort: Option<String>,
    iterations: Option<u64>,
    limit: usize,
    format: TableFormat,
}

pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let is_batch = arguments.batch;
    if !is_batch && !io::stdout().is_terminal() {
        say!("standard output is no terminal; --batch writes tables");
        return Ok(Exit::WrongArguments);
    }
    let symbols = arguments.origin.symbols.options()?;
    let (spec, reader): (_, Box<dyn Read + Send>) = match &arguments.input {
        Some(input) => (None, Box::new(open_pipe(input)?)),
        None => match arguments.recording(is_batch) {
            Ok(recording) => {
                let (spec, reader) = recording?;
                (Some(spec), Box::new(reader))
            }
            Err(error) => {
                say!("{error}");
                return Ok(error.exit());
            }
        },
    };
    let origin = match spec {
        Some(_) => Origin::Here,
        None => Origin::Elsewhere,
    };
    let plan = LoadPlan {
        options: LoadOptions {
            call_chains: !arguments.no_chains,
            threads: true,
        },
        log: true,
        symbols: symbols.clone(),
        ..LoadPlan::default()
    };
    let (updates, received) = channel();
    let requests = Requests::default();
    let notes = Notes::default();
    let follower = Follower {
        pipe: reader,
        origin,
        plan,
        limits: Limits {
            stacks: arguments.max_stacks,
            ..Limits::default()
        },
        span: arguments.span,
        requests: requests.clone(),
        updates: updates.clone(),
    };
    let tables = Tables::new(symbols, arguments.origin.files(), arguments.span);
    let shown = Shown {
        interval: arguments.interval,
        rows: arguments.by,
        filter: arguments.filter.unwrap_or_default(),
        sort: arguments.sort,
        iterations: arguments.iterations,
        limit: arguments.limit,
        format: arguments.format,
    };
    let shower = Shower {
        received,
        requests,
        tables,
        shown,
        notes: notes.clone(),
        is_batch,
        origin,
    };
    let Some(spec) = spec else {
        return show_pipe(follower, shower);
    };
    let mut threads = Threads {
        waiting: Some((follower, shower)),
        running: None,
        notes,
        is_batch,
        failure: None,
    };
    // The signal by which a view ends the recording may come when the recorder has just ended, and does not wait for it.
    let interrupted = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGINT, interrupted).context("receiving signals")?;
    let recorded = dioptra_recorder::record(&spec, &mut threads);
    // The pipe ends when its last writer is gone, and with it the follower.
    drop(spec);
    let ended = match &recorded {
        Ok(outcome) if !matches!(outcome.ending, Ending::Signal(_) | Ending::Duration) => {
            Update::TargetsEnded
        }
        _ => Update::Stop,
    };
    // The thread that shows may have ended by itself.
    let _ = updates.send(ended);
    let shown = match threads.join() {
        Err(error) if error.is::<UnknownColumn>() => {
            say!("{error}");
            return Ok(Exit::WrongArguments);
        }
        shown => shown?,
    };
    match recorded {
        Ok(_) if shown == EndedBy::User => Ok(Exit::Done),
        Ok(outcome) if matches!(outcome.ending, Ending::Signal(_)) => Ok(Exit::Done),
        Ok(outcome) => Ok(Exit::of_recording(&outcome)),
        Err(error) => {
            say!("{}", remedies::with_remedy(&error));
            Ok((&error).into())
        }
    }
}

/// Opens a pipe; `-` is standard input.
fn open_pipe(path: &Path) -> anyhow::Result<File> {
    if is_stdin(path) {
        let stdin = rustix::io::dup(io::stdin()).context("standard input")?;
        return Ok(File::from(stdin));
    }
    File::open(path).with_context(|| format!("opening {}", path.display()))
}

/// Shows a recording that comes through a pipe.
fn show_pipe(follower: Follower, shower: Shower) -> anyhow::Result<Exit> {
    std::thread::Builder::new()
        .name("follower".to_owned())
        .spawn(move || follower.run())
        .context("starting a thread")?;
    // The follower is not waited for: its pipe may have no end.
    match shower.run() {
        Ok(_) => Ok(Exit::Done),
        Err(error) if error.is::<UnknownColumn>() => {
            say!("{error}");
            Ok(Exit::WrongArguments)
        }
        Err(error) => {
            say!("{error:#}");
            Ok(Exit::Failed)
        }
    }
}

impl Arguments {
    /// Returns the recording to follow, and the pipe that it goes into.
    fn recording(
        &self,
        is_batch: bool,
    ) -> Result<anyhow::Result<(RecordSpec, PipeReader)>, ArgumentError> {
        let mut recorded = match recording_arguments() {
            Ok(recorded) => recorded,
            Err(error) => return Ok(Err(error)),
        };
        recorded.event.clone_from(&self.event);
        recorded.frequency = self.frequency;
        recorded.count = self.count;
        recorded.call_graph = match self.no_chains {
            true => None,
            false => Some(self.call_graph.unwrap_or(CallGraph::FramePointer)),
        };
        recorded.cpu.clone_from(&self.cpu);
        recorded.pid.clone_from(&self.pid);
        recorded.tid.clone_from(&self.tid);
        recorded.cgroup.clone_from(&self.cgroup);
        recorded.mmap_pages = self.mmap_pages;
        recorded.duration = self.duration;
        recorded.command.clone_from(&self.command);
        let has_target = !(self.pid.is_empty() && self.tid.is_empty() && self.command.is_empty())
            || self.cgroup.is_some();
        recorded.all_cpus = self.all_cpus || !has_target;
        let (mut spec, _) = recorded.to_spec(&mut |note| say!("{note}"))?;
        // Tables go to standard output, and a browser draws on the whole terminal.
        spec.streams = match is_batch {
            true => Streams::OutputToError,
            false => Streams::Nothing,
        };
        let pipe = io::pipe().context("making a pipe");
        Ok(pipe.map(|(reader, writer)| {
            spec.pipe = Some(Arc::new(File::from(OwnedFd::from(writer))));
            (spec, reader)
        }))
    }
}

/// Returns the arguments of `dioptra record` as they are where nobody gave any.
fn recording_arguments() -> anyhow::Result<record::Arguments> {
    let command = record::Arguments::augment_args(clap::Command::new("record"));
    let matches = command.try_get_matches_from(["record"])?;
    Ok(record::Arguments::from_arg_matches(&matches)?)
}

/// The notes of the recorder, which the thread that shows takes.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    fn push(&self, note: String) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.push(note);
    }

    fn all(&self) -> Vec<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// The cause of the end of showing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndedBy {
    /// Its user, or as many tables as were wanted.
    User,
    /// The recording's end.
    Recording,
}

/// The thread that asks for snapshots and shows them.
struct Shower {
    received: Receiver<Update>,
    requests: Requests,
    tables: Tables,
    shown: Shown,
    notes: Notes,
    is_batch: bool,
    origin: Origin,
}

impl Shower {
    fn run(self) -> anyhow::Result<EndedBy> {
        let requests = self.requests.clone();
        let result = match self.is_batch {
            true => batch::run(self),
            false => browse::run(self),
        };
        requests.end();
        result
    }
}

/// The observer of the recording, which starts the two other threads.
///
/// They are started once the recorder has blocked its signals, so that they have them blocked, too: the recorder alone
/// receives signals.
struct Threads {
    waiting: Option<(Follower, Shower)>,
    running: Option<(JoinHandle<()>, JoinHandle<anyhow::Result<EndedBy>>)>,
    notes: Notes,
    is_batch: bool,
    failure: Option<io::Error>,
}

impl Threads {
    fn start(&mut self) -> io::Result<()> {
        if let Some((follower, shower)) = self.waiting.take() {
            let follower = std::thread::Builder::new()
                .name("follower".to_owned())
                .spawn(move || follower.run())?;
            let shower = std::thread::Builder::new()
                .name("view".to_owned())
                .spawn(move || shower.run())?;
            self.running = Some((follower, shower));
        }
        Ok(())
    }

    /// Waits for the ends of the threads.
    fn join(mut self) -> anyhow::Result<EndedBy> {
        if let Some(failure) = self.failure.take() {
            return Err(failure).context("starting a thread");
        }
        let Some((follower, shower)) = self.running.take() else {
            return Ok(EndedBy::Recording);
        };
        // The panic hook has reported a panic of a thread.
        let _ = follower.join();
        shower.join().unwrap_or(Ok(EndedBy::Recording))
    }
}

impl Observer for Threads {
    fn note(&mut self, note: &RecordNote) {
        let note = remedies::of_record_note(note);
        if self.is_batch {
            say!("{note}");
        }
        self.notes.push(note);
    }

    fn attached(&mut self, _summary: &AttachSummary) {
        self.failure = self.start().err();
    }

    fn progress(&mut self, _progress: Progress) {}

    fn waiting(&mut self, _failure: Option<&RecordError>) {
        if self.is_batch {
            say!("waiting for the command to end (Ctrl-C kills it)");
        }
    }
}

/// The sender of updates to the thread that shows.
type Updates = Sender<Update>;
