//! A recording from its beginning to its end.
//!
//! [`record`] makes the shared memory and the socket, starts the command with the runtime preloaded ([`environment`]),
//! and lets four threads work: one waits for the command and for signals ([`supervise`]), one collects full chunks, one
//! reads context switches if they are wanted, and one answers the traced processes. They share [`shared::Shared`]. When
//! all traced processes have ended, the rest is written and the diagnostics are gathered in a [`TraceOutcome`].

pub mod environment;
pub mod host;
pub mod info;
pub mod limits;
pub mod memory_budget;
pub mod notes;
pub mod outcome;
pub mod shared;
pub mod spec;
pub mod supervise;

use crate::analysis::prepare::Planner;
use crate::attaching::running::RunningProcesses;
use crate::collecting::arena_memory::{ArenaMemory, ArenaOptions};
use crate::collecting::clock::{TraceClock, ticks_in, time_of};
use crate::collecting::collector::{Collector, Ring};
use crate::collecting::overhead::Overhead;
use crate::collecting::scheduling;
use crate::program::{executable, runtime_file, untraced};
use crate::serving::server::Listener;
use dioptra_perfevents::Target;
use dioptra_processes::command::{CommandStatus, HeldCommand, Streams};
use dioptra_processes::signals::Signals;
use dioptra_tracedata::{JournalEntry, RecordingEnd, TraceWriter};
use dioptra_tracelayout::arena::{BLOCK, DROP};
use dioptra_tracelayout::message::{FILTERS, RUNTIME, SOCKET};
use environment::{own_filters, sanitizer_options};
use info::describe;
use limits::limits;
use notes::TraceNote;
use outcome::{TraceError, TraceOutcome};
use shared::{Shared, State, monotonic};
use spec::{OnFull, TraceSpec};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use supervise::{keep, supervise, watch};

/// The number of chunks of an arena, and so the largest number of threads that can be traced at a time.
const CHUNKS: usize = 8192;

/// The processes that are recorded.
enum Subject {
    /// A command that the recorder starts.
    Command(HeldCommand),
    /// Processes that were running.
    Running(RunningProcesses),
}

impl Subject {
    /// Returns the processes whose context switches are recorded.
    fn target(&self) -> Target {
        match self {
            Subject::Command(command) => Target::Command(command.pid()),
            Subject::Running(processes) => Target::Processes(processes.pids.clone()),
        }
    }

    /// Returns the id of the command.
    fn command_pid(&self) -> Option<u32> {
        match self {
            Subject::Command(command) => Some(command.pid()),
            Subject::Running(_) => None,
        }
    }

    /// Returns the resources that the command has used.
    fn usage(&self) -> Option<&libc::rusage> {
        match self {
            Subject::Command(command) => command.usage(),
            Subject::Running(_) => None,
        }
    }
}

/// Returns the program and the arguments of a running process.
fn command_line(pid: u32) -> Vec<OsString> {
    let text = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = text.strip_suffix(b"\0").unwrap_or(&text);
    let words = text.split(|byte| *byte == 0);
    words
        .map(|word| OsString::from_vec(word.to_vec()))
        .collect()
}

/// Starts the command with the runtime preloaded, and holds it before it executes its program.
fn hold(
    spec: &TraceSpec,
    signals: &Signals,
    socket: &str,
    runtime: &Path,
) -> Result<HeldCommand, TraceError> {
    let preload = match std::env::var_os("LD_PRELOAD") {
        Some(theirs) if !theirs.is_empty() => {
            let mut both = runtime.as_os_str().to_owned();
            both.push(":");
            both.push(theirs);
            both
        }
        _ => runtime.as_os_str().to_owned(),
    };
    let mut environment = vec![
        (OsString::from("LD_PRELOAD"), preload),
        (OsString::from(SOCKET), OsString::from(socket)),
        (OsString::from(RUNTIME), runtime.as_os_str().to_owned()),
        (OsString::from("ASAN_OPTIONS"), sanitizer_options()),
        (OsString::from(FILTERS), own_filters().to_string().into()),
    ];
    let program = spec.command.first().cloned().unwrap_or_default();
    if untraced::is_disturbed(&program) {
        environment.retain(|(name, _)| name != "LD_PRELOAD");
    }
    let command = HeldCommand::hold_with(
        &spec.command,
        &environment,
        signals.mask_before(),
        Streams::Ours,
    )?;
    Ok(command)
}

/// Traces a command to its end, or running processes, and writes the trace.
///
/// A program without a slash in its name is looked for in the current folder first. An older trace stays where it was
/// if the command can't be executed, or ends before it is traced in a way that is typical of commands that did not
/// start.
///
/// The command has our standard streams. The recording goes on until all traced processes that the command has started
/// have ended, or a signal asks for the end.
///
/// # Errors
/// [`TraceError`]
pub fn record(mut spec: TraceSpec) -> Result<TraceOutcome, TraceError> {
    let system = |what| move |source| TraceError::System { what, source };
    let located = match spec.attach.is_empty() {
        true => executable::locate(spec.command)?,
        false => executable::Located::default(),
    };
    spec.command = located.command;
    if let Some(pid) = spec.attach.first() {
        spec.command = command_line(*pid);
    }
    let clock = spec.clock.unwrap_or_else(TraceClock::best);
    let mut signals = Signals::new().map_err(system("receiving signals"))?;
    let runtime = runtime_file::write()?;
    let chunk_size = spec.chunk_size.clamp(4096, 1 << 22).next_multiple_of(4096);
    let budget = (spec.memory / chunk_size).clamp(4, CHUNKS / 2);
    let too_much = (spec.memory / chunk_size > CHUNKS / 2).then(|| {
        let mebibytes = (CHUNKS / 2 * chunk_size) >> 20;
        TraceNote::LessMemory { mebibytes }
    });
    let arena = ArenaMemory::new(ArenaOptions {
        chunk_size,
        chunks: CHUNKS,
        // Chunks that a ring keeps count as waiting.
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

    let program = spec.command.first().cloned().unwrap_or_default();
    let mut subject = match spec.attach.as_slice() {
        [] => Subject::Command(hold(&spec, &signals, &listener.name, &runtime)?),
        pids => Subject::Running(RunningProcesses::claim(pids)?),
    };
    let mut after_start = match (spec.before_start.take(), &subject) {
        (Some(before_start), Subject::Command(command)) => {
            Some(before_start(command.pid()).map_err(system("recording samples of the command"))?)
        }
        _ => None,
    };
    // This comes after the other steps that may fail, and is undone unless the command starts.
    let mut writer = TraceWriter::create_tentative(&spec.folder, &info)?;
    writer.journal(&JournalEntry::Clock(start))?;
    let shared = Arc::new(Shared {
        arena,
        clock,
        start,
        runtime,
        attached: matches!(subject, Subject::Running(_)),
        served: AtomicUsize::new(0),
        state: Mutex::new(State::new(writer, Planner::new(spec.selector))),
    });
    let ring = spec.last.map(|last| Ring {
        ticks: Some(ticks_in(clock, last)),
        chunks: budget,
    });

    let mut collector = Collector::new(ring, Overhead::new(spec.overhead));
    let mut lost_switches = 0;
    let status = std::thread::scope(|scope| {
        let wanted = scheduling::SchedulingEvents {
            switches: spec.scheduling,
            tasks: spec.tasks,
            last: spec.last,
        };
        let scheduling = (spec.scheduling || spec.tasks)
            .then(|| scheduling::start(scope, &shared, subject.target(), wanted));
        scope.spawn(|| listener.serve(&shared));
        let collecting = scope.spawn(|| {
            collector.run(&shared);
        });
        let status = match &mut subject {
            Subject::Command(command) => {
                supervise(command, after_start.take(), &mut signals, &shared)
            }
            Subject::Running(processes) => {
                let attached = processes.attach(&listener.name, &shared);
                let watched = attached
                    .and_then(|()| watch(&processes.pids, &mut signals, spec.duration, &shared));
                processes.detach(&shared);
                watched.map(|()| None)
            }
        };
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
    // The thread that answers a process holds the state, too, while that process is connected.
    let status = status.inspect_err(|_| shared.state().writer.abandon())?;
    if let Some(status) = status.filter(|status| executable::looks_unstarted(*status))
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
    if let Subject::Running(processes) = &subject {
        processes.unload(&shared);
    }

    let mut state = shared.state();
    let hidden = located.hidden.map(|hidden| TraceNote::HiddenProgram {
        program: PathBuf::from(&program),
        hidden,
    });
    let notes = [clock.note(), state.counters.note(), hidden, too_much];
    notes
        .into_iter()
        .flatten()
        .for_each(|note| state.note(note));
    let limits = limits(shared.arena.header());
    limits.into_iter().for_each(|limit| state.note(limit));
    if state.connected == 0 && spec.attach.is_empty() {
        state.note(TraceNote::CommandUntraced {
            why: untraced::why(&program),
            program: PathBuf::from(&program),
        });
    }
    // The note above is about the command's own program.
    let untold = (state.connected == 0)
        .then(|| subject.command_pid())
        .flatten();
    let unseen = shared
        .arena
        .header()
        .executed_unseen
        .load(Ordering::Relaxed);
    for note in state.execs.notes(unseen, untold) {
        state.note(note);
    }
    if let Some(CommandStatus::Signaled(libc::SIGSYS)) = status {
        state.note(TraceNote::EndedBySeccomp);
    }
    let header = shared.arena.header();
    let unanswered = header.unanswered.load(Ordering::Relaxed);
    if unanswered > 0 {
        state.note(TraceNote::Unanswered {
            times: unanswered.into(),
        });
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
        usage: subject.usage().map(host::usage),
    };
    state.journal(&JournalEntry::Clock(ending.clock));
    info.ending = Some(ending.clone());
    state.writer.info(&info)?;
    if let Some(error) = state.failure.take() {
        return Err(error.into());
    }
    let warnings = state.planner.warnings();
    for warning in &warnings {
        state.journal(&JournalEntry::Note {
            time: monotonic(),
            text: warning.to_string(),
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
