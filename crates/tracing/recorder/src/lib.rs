//! Function tracing: starts a command with the runtime preloaded, and writes what it calls to a trace directory.
//!
//! [`record`] does it all. The recorder holds the memory into which the traced processes write
//! ([`memory`]; `dioptra_tracelayout::arena`), so that nothing is lost when they are killed. Some threads work:
//! one waits for the command and for signals, one collects full chunks ([`collect`]), one is told of context switches
//! ([`scheduling`]) if they are wanted, and one answers processes
//! that connect ([`server`]): it reads what they have mapped ([`maps`]), finds what is new ([`process`]), analyses each module
//! once ([`prepare`]), asks which functions are wanted ([`select`]), and makes pools of thunks and patches ([`plan`], [`mod@arch`]), which the
//! process's runtime applies ([`wire`]), while other threads that may run the code are stopped ([`patching`], [`stopping`]). What a debugger has written is left alone ([`debugged`]).

mod arch;
// What one processor has no use for, another has.
#[cfg_attr(target_arch = "aarch64", allow(dead_code))]
mod candidates;
mod clock;
mod collect;
mod counters;
mod debugged;
mod embedded;
mod execs;
mod glance;
mod greeting;
#[cfg_attr(target_arch = "aarch64", allow(dead_code))]
mod hooks;
mod host;
#[cfg_attr(target_arch = "aarch64", allow(dead_code))]
mod image;
mod loaded;
mod maps;
mod memory;
mod observed;
mod overhead;
mod patching;
mod patterns;
mod plan;
mod pool_file;
mod prepare;
mod process;
#[cfg_attr(target_arch = "aarch64", allow(dead_code))]
mod refused;
mod room;
mod rules;
mod sanitizers;
mod scheduling;
mod sections;
mod select;
mod server;
mod shared;
mod special;
mod start;
mod stopping;
mod untraced;
#[cfg_attr(target_arch = "aarch64", allow(dead_code))]
mod unwinding;
#[cfg_attr(target_arch = "aarch64", allow(dead_code))]
mod wanted;
mod wire;
mod written;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("tracing functions is known for x86-64 and 64-bit Arm only");
#[cfg(any(test, target_arch = "aarch64"))]
mod aarch64;

pub use clock::TraceClock;
pub use host::host;
pub use patterns::{PatchError, PatchPatterns};
pub use room::default_memory;
pub use rules::{Choice, LibraryCalls, RuleError, RuleSelector};
pub use select::{Everything, FunctionPlace, Gating, ModuleIdentity, Selector, SiteVariant};

use collect::{Collector, Ring, process_exists};
use dioptra_processes::command::{CommandError, CommandStatus, HeldCommand};
use dioptra_processes::signals::Signals;
use dioptra_tracedata::{
    ClockInfo, ClockPair, JournalEntry, PendingRules, RecordingEnd, TraceInfo, TraceWriteError,
    TraceWriter,
};
use dioptra_tracelayout::arena::{Arena, BLOCK, DROP, Processes};
use dioptra_tracelayout::message::{ASAN_LAST, FILTERS, RUNTIME, SOCKET};
use memory::{ArenaMemory, ArenaOptions};
use overhead::Overhead;
use prepare::Planner;
use server::Listener;
use shared::{Shared, State, monotonic};
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// How long the main thread waits for signals at a time.
const TICK: Duration = Duration::from_millis(50);
/// The chunks of an arena: as many threads as these can be traced at a time.
const CHUNKS: usize = 8192;

/// What a thread does when the recorder can't keep up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFull {
    /// It waits.
    Block,
    /// It goes on, and its records are lost and counted, where they are missing.
    Drop,
}

/// What is to be traced.
pub struct TraceSpec {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// The directory of the trace.
    pub folder: PathBuf,
    /// Which functions.
    pub selector: Box<dyn Selector>,
    /// What happens when memory is full.
    pub on_full: OnFull,
    /// How much memory full chunks may take, in bytes; threads' own chunks come on top.
    pub memory: usize,
    /// The size of a chunk in bytes; rounded to pages.
    pub chunk_size: usize,
    /// Keep only what happened in this last stretch of time, as far as `memory` reaches.
    pub last: Option<Duration>,
    /// Record when the threads have no CPU, too, where that is permitted.
    pub scheduling: bool,
    /// Record when threads begin, end and get names, too, where that is permitted.
    pub tasks: bool,
    /// What times are read from; none: the best.
    pub clock: Option<TraceClock>,
    /// The options as the user gave them, for `info.json`.
    pub options: Vec<String>,
    /// The share of the program's time that functions with `sample=auto` may cost, such as 0.01.
    pub overhead: f64,
    /// Chooses the executions that are sampled at random.
    pub seed: u64,
    /// Keep the records of executions that were judged at their ends and are not shown (`sample=pNN`), marked: to compare
    /// what was taken back with what would have been recorded.
    pub keep_judged: bool,
    /// Rules that the selector does not carry out, for readers.
    pub pending: Option<PendingRules>,
}

impl TraceSpec {
    /// Of a command, everything that is instrumented, without loss.
    pub fn new(command: Vec<OsString>, folder: PathBuf) -> TraceSpec {
        TraceSpec {
            command,
            folder,
            selector: Box::new(Everything {
                plain: false,
                plain_libraries: false,
                library_calls: true,
            }),
            on_full: OnFull::Block,
            memory: 32 << 20,
            chunk_size: 64 << 10,
            last: None,
            clock: None,
            scheduling: false,
            tasks: false,
            options: Vec::new(),
            overhead: 0.01,
            seed: 0,
            keep_judged: false,
            pending: None,
        }
    }
}

impl std::fmt::Debug for TraceSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TraceSpec")
            .field("command", &self.command)
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

/// How a recording went.
#[derive(Clone, Debug)]
pub struct TraceOutcome {
    /// How the command ended; `None` if it went on when the recording was ended.
    pub status: Option<CommandStatus>,
    /// What `info.json` says about the end.
    pub ending: RecordingEnd,
    /// How many process images were traced.
    pub processes: u64,
    /// What the user should know: sentences.
    pub notes: Vec<String>,
    /// What the selector said at the end: patterns that match nothing and the like.
    pub warnings: Vec<String>,
}

/// Why nothing was traced.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The command did not start.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The trace could not be written.
    #[error(transparent)]
    Write(#[from] TraceWriteError),
    /// This machine is not supported.
    #[error(
        "tracing functions is not supported on this processor or C library; it needs Linux with glibc on x86-64 or 64-bit Arm"
    )]
    Unsupported,
    /// The command ended before its program could be traced, as commands end that do not start.
    #[error("{} ended {} before it could be traced ({why}); what was recorded before stays", .program.display(), how_ended(*.status))]
    Unstarted {
        /// The program.
        program: PathBuf,
        /// How it ended.
        status: CommandStatus,
        /// What is known of the reason.
        why: &'static str,
    },
    /// The runtime could not be written to a file.
    #[error("writing the tracer's runtime to {}: {source}; set XDG_CACHE_HOME to a folder that programs can be loaded from", .path.display())]
    Runtime {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A call of the system failed.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
}

impl TraceError {
    /// The exit status for it: 126 and 127 if the command could not be executed, else 125.
    pub fn exit_code(&self) -> u8 {
        match self {
            TraceError::Command(error) => error.exit_code(),
            TraceError::Unstarted { status, .. } => status.exit_code(),
            _ => 125,
        }
    }
}

fn how_ended(status: CommandStatus) -> String {
    match status {
        CommandStatus::Exited(status) => format!("with status {status}"),
        CommandStatus::Signaled(signal) => format!("by signal {signal}"),
    }
}

/// Traces a command to its end, and writes the trace.
///
/// A program without a slash in its name is looked for in the current folder first. A command that can't be executed,
/// or that ends before its program is traced as one that did not start, leaves an older trace where it was.
///
/// The command has our standard streams. The recording goes on until all processes that it has started and that are
/// traced have ended, or a signal asks for the end.
///
/// # Errors
/// [`TraceError`]
pub fn record(mut spec: TraceSpec) -> Result<TraceOutcome, TraceError> {
    let system = |what| move |source| TraceError::System { what, source };
    let located = start::locate(spec.command)?;
    spec.command = located.command;
    let clock = spec.clock.unwrap_or_else(TraceClock::best);
    let mut signals = Signals::new().map_err(system("receiving signals"))?;
    let runtime = embedded::write()?;
    let chunk_size = spec.chunk_size.clamp(4096, 1 << 22).next_multiple_of(4096);
    let budget = (spec.memory / chunk_size).clamp(4, CHUNKS / 2);
    let too_much = (spec.memory / chunk_size > CHUNKS / 2).then(|| {
        let most = (CHUNKS / 2 * chunk_size) >> 20;
        format!("records that are not written yet take {most} MiB of memory at most, not more")
    });
    let arena = ArenaMemory::new(ArenaOptions {
        chunk_size,
        chunks: CHUNKS,
        // What is kept counts as waiting.
        budget: budget * (1 + usize::from(spec.last.is_some())),
        on_full: match spec.on_full {
            OnFull::Block => BLOCK,
            OnFull::Drop => DROP,
        },
        clock,
        gating: spec.selector.gating(),
        seed: spec.seed,
        marks: spec.keep_judged,
    })
    .map_err(|source| match source.raw_os_error() {
        Some(libc::EFBIG) => {
            system("making shared memory for the trace; raise `ulimit -f`")(source)
        }
        _ => system("making shared memory for the trace")(source),
    })?;
    let start = clock.pair();
    let mut info = describe(&spec, clock, start);
    let listener = Listener::new().map_err(system("making a socket for traced programs"))?;

    let preload = match std::env::var_os("LD_PRELOAD") {
        Some(theirs) if !theirs.is_empty() => {
            let mut both = runtime.clone().into_os_string();
            both.push(":");
            both.push(theirs);
            both
        }
        _ => runtime.clone().into_os_string(),
    };
    let mut environment = vec![
        (OsString::from("LD_PRELOAD"), preload),
        (OsString::from(SOCKET), OsString::from(&listener.name)),
        (OsString::from(RUNTIME), runtime.clone().into_os_string()),
        (OsString::from("ASAN_OPTIONS"), sanitizer_options()),
        (OsString::from(FILTERS), own_filters().to_string().into()),
    ];
    let program = spec.command.first().cloned().unwrap_or_default();
    if untraced::is_disturbed(&program) {
        environment.retain(|(name, _)| name != "LD_PRELOAD");
    }
    let mut command =
        HeldCommand::hold_with(&spec.command, &environment, signals.mask_before(), false)?;
    // This comes after the other steps that may fail, and is undone unless the command starts.
    let mut writer = TraceWriter::create_tentative(&spec.folder, &info)?;
    writer.journal(&JournalEntry::Clock(start))?;
    let shared = Arc::new(Shared {
        arena,
        clock,
        start,
        runtime,
        state: Mutex::new(State::new(writer, Planner::new(spec.selector))),
    });
    let ring = spec.last.map(|last| Ring {
        ticks: Some(ticks_in(clock, last)),
        chunks: budget,
    });

    let mut collector = Collector::new(ring, Overhead::new(spec.overhead));
    let mut lost_switches = 0;
    let status = std::thread::scope(|scope| {
        let wanted = scheduling::Wanted {
            switches: spec.scheduling,
            tasks: spec.tasks,
            last: spec.last,
        };
        let scheduling = (spec.scheduling || spec.tasks)
            .then(|| scheduling::start(scope, &shared, command.pid(), wanted));
        scope.spawn(|| listener.serve(&shared));
        let collecting = scope.spawn(|| {
            collector.run(&shared);
        });
        let status = supervise(&mut command, &mut signals, &shared);
        shared.arena.header().stop.store(1, Ordering::Relaxed);
        // Threads that wait for room see that there will be none.
        ArenaMemory::wake(&shared.arena.header().freed);
        ArenaMemory::wake(&shared.arena.header().filled);
        listener.end();
        let _ = collecting.join();
        if let Some(scheduling) = scheduling {
            lost_switches = scheduling.end(&shared);
        }
        status
    });
    // A process that still talks to us holds the state, too.
    let status = status.inspect_err(|_| shared.state().writer.abandon())?;
    if let Some(status) = status.filter(|status| start::looks_unstarted(*status))
        && shared.state().connected == 0
    {
        shared.state().writer.abandon();
        return Err(TraceError::Unstarted {
            why: untraced::why(&program),
            program: PathBuf::from(&program),
            status,
        });
    }
    keep(&shared);
    collector.finish(&shared);

    let mut state = shared.state();
    let hidden = located.hidden.map(|hidden| {
        format!(
            "{} of the current folder was traced, not {}, which PATH leads to",
            program.to_string_lossy(),
            hidden.display()
        )
    });
    let notes = [clock.note(), state.counters.note(), hidden, too_much];
    notes
        .into_iter()
        .flatten()
        .for_each(|note| state.note(note));
    let limits = limits(shared.arena.header());
    limits.into_iter().for_each(|limit| state.note(limit));
    if state.connected == 0 {
        state.note(format!(
            "{} was not traced: the runtime was not loaded into it: {}",
            program.to_string_lossy(),
            untraced::why(&program)
        ));
    }
    // The note above is about the command's own program.
    let untold = (state.connected == 0).then(|| command.pid());
    let unseen = shared
        .arena
        .header()
        .executed_unseen
        .load(Ordering::Relaxed);
    for note in state.execs.notes(unseen, untold) {
        state.note(note);
    }
    if let Some(CommandStatus::Signaled(libc::SIGSYS)) = status {
        state.note(
            "the command ended by a system call that it does not permit itself (seccomp): perhaps one of the tracer's, if it made its filter known to the kernel by code of its own, which the tracer can't see; leave out functions with -U"
                .to_owned(),
        );
    }
    let header = shared.arena.header();
    let unanswered = header.unanswered.load(Ordering::Relaxed);
    if unanswered > 0 {
        state.note_loss(format!(
            "{unanswered} times a process that had loaded or unloaded libraries gave up waiting for dioptra, which was stopped or too slow: what it loaded is traced only from the next time on that it loads or unloads one"
        ));
    }
    let ending = RecordingEnd {
        clock: clock.pair(),
        status: status.map(|status| i32::from(status.exit_code())),
        signal: match status {
            Some(CommandStatus::Signaled(signal)) => Some(signal),
            _ => None,
        },
        chunks: state.writer.chunks(),
        bytes: state.writer.records_size(),
        lost: header.lost.load(Ordering::Relaxed),
        missed_in_handlers: Some(header.missed_in_handlers()),
        missed_no_memory: header.missed_no_memory.load(Ordering::Relaxed),
        discarded_chunks: collector.discarded(),
        waits: header.waits.load(Ordering::Relaxed),
        waited: time_of(
            start,
            clock.pair(),
            header.waited.load(Ordering::Relaxed) << clock.shift(),
        ),
        memory: (budget * chunk_size) as u64,
        lost_switches,
        uncounted_threads: header.uncounted_threads.load(Ordering::Relaxed).into(),
        marked: header.marked.load(Ordering::Relaxed),
        usage: command.usage().map(host::usage),
    };
    state.journal(&JournalEntry::Clock(ending.clock));
    info.ending = Some(ending.clone());
    state.writer.info(&info)?;
    if let Some(error) = state.failure.take() {
        return Err(error.into());
    }
    let warnings = state.planner.warnings();
    for text in &warnings {
        state.journal(&JournalEntry::Note {
            time: monotonic(),
            text: text.clone(),
            is_loss: false,
        });
    }
    Ok(TraceOutcome {
        status,
        ending,
        processes: state.connected,
        notes: state.notes(),
        warnings,
    })
}

/// Returns the value of `ASAN_OPTIONS` for the command: ours, and that the sanitizer need not be loaded first.
fn sanitizer_options() -> OsString {
    let mut options = std::env::var_os("ASAN_OPTIONS").unwrap_or_default();
    if !options.is_empty() {
        options.push(":");
    }
    options.push(ASAN_LAST);
    options
}

/// Returns the number of system call filters (seccomp) under which this process runs, and each program that it
/// executes.
fn own_filters() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    // Kernels before 5.9 do not count them.
    let mode: u32 = number("Seccomp:").unwrap_or(0);
    number("Seccomp_filters:").unwrap_or(u32::from(mode == 2))
}

/// Returns the notes about processes that have made it impossible to record all of them.
fn limits(arena: &Arena) -> Vec<String> {
    let said = [
        (
            &arena.confined,
            "recorded up to where it forbade itself system calls (seccomp) that the tracer needs",
        ),
        (
            &arena.alone,
            "recorded without the modules that it loaded after it forbade itself system calls (seccomp)",
        ),
        (
            &arena.preempted,
            "recorded up to where a signal handler exchanged call stacks that had interrupted the tracer",
        ),
        (
            &arena.sharing,
            "recorded without a thread, from where that made a task that shares its thread-local memory (clone with CLONE_VM, without CLONE_SETTLS), and without that task",
        ),
    ];
    let say = |(processes, what): (&Processes, &str)| {
        let others = match processes.get()? {
            (_, 0) => String::new(),
            (_, others) => format!("; so it is of {others} more"),
        };
        Some(format!("process {} is {what}{others}", processes.get()?.0))
    };
    said.into_iter().filter_map(say).collect()
}

/// Lets the command run, and waits until it and all traced processes have ended, or a signal asks for the end.
///
/// The trace is kept once a process is traced, and of a command that ends without one unless it looks like one that
/// did not start.
fn supervise(
    command: &mut HeldCommand,
    signals: &mut Signals,
    shared: &Shared,
) -> Result<Option<CommandStatus>, TraceError> {
    command.release()?;
    let mut is_kept = false;
    let mut status = None;
    loop {
        if !is_kept && shared.state().connected > 0 {
            keep(shared);
            is_kept = true;
        }
        if status.is_none() {
            status = command.try_wait()?;
            if let Some(status) = status {
                shared.state().journal(&JournalEntry::End {
                    time: monotonic(),
                    pid: command.pid(),
                    status: i32::from(status.exit_code()),
                });
            }
        }
        if status.is_some() {
            // Copied, so that nobody waits for /proc.
            let processes: Vec<u32> = shared.state().processes.iter().copied().collect();
            if !processes.into_iter().any(process_exists) {
                // A daemon's first child has ended, too: who goes on is known by the memory that it has inherited.
                let is_used = shared.arena.is_used();
                let users = if is_used {
                    shared.arena.users()
                } else {
                    Vec::new()
                };
                if users.is_empty() {
                    return Ok(status);
                }
                shared.state().processes.extend(users);
            }
        }
        let mut ends = false;
        while let Some(received) = signals.take() {
            if received.ends_recording() {
                // What the terminal sent, the command got, too.
                if !received.from_kernel {
                    command.signal(received.signal);
                }
                ends |= status.is_some();
            }
        }
        if ends {
            return Ok(status);
        }
        signals
            .wait(if status.is_some() { TICK / 10 } else { TICK })
            .map_err(|source| TraceError::System {
                what: "waiting for signals",
                source,
            })?;
    }
}

/// Makes the trace stay, and removes the trace that was moved out of its way twice.
fn keep(shared: &Shared) {
    let older = shared.state().writer.keep();
    if let Some(older) = older {
        // No thread waits for the state meanwhile. The next recording removes the rest if this one fails to.
        let _ = std::fs::remove_dir_all(older);
    }
}

fn describe(spec: &TraceSpec, clock: TraceClock, start: ClockPair) -> TraceInfo {
    TraceInfo {
        schema: 1,
        layout: dioptra_tracelayout::VERSION,
        recorder: format!("dioptra {}", env!("CARGO_PKG_VERSION")),
        command: spec
            .command
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        folder: std::env::current_dir()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        options: spec.options.clone(),
        started_realtime: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos() as u64),
        clock: ClockInfo {
            source: clock.name().to_owned(),
            shift: clock.shift() as u8,
            start,
        },
        host: host(),
        pending: spec.pending.clone(),
        seed: Some(spec.seed),
        ending: None,
    }
}

/// Returns the time in nanoseconds that a number of ticks takes, by two readings of the clocks.
fn time_of(start: ClockPair, end: ClockPair, ticks: u64) -> u64 {
    let passed = u128::from(end.ticks.saturating_sub(start.ticks).max(1));
    let nanoseconds = u128::from(end.monotonic.saturating_sub(start.monotonic));
    u64::try_from(u128::from(ticks) * nanoseconds / passed).unwrap_or(u64::MAX)
}

/// How many shifted ticks there are in a stretch of time, measured over a moment.
fn ticks_in(clock: TraceClock, time: Duration) -> u64 {
    let first = clock.pair();
    std::thread::sleep(Duration::from_millis(10));
    let second = clock.pair();
    let nanoseconds = (second.monotonic - first.monotonic).max(1);
    let ticks = (second.ticks - first.ticks) as u128;
    let all = time.as_nanos() * ticks / u128::from(nanoseconds);
    u64::try_from(all >> clock.shift()).unwrap_or(u64::MAX)
}
