//! The specification of a recording.

use crate::sample_options::SampleOptions;
use dioptra_perfevents::{CpuSet, EventGroup};
use dioptra_processes::command::Streams;
use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The target that a recording watches.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordTarget {
    /// The command of [`RecordSpec::command`], and all that it starts.
    Command,
    /// These processes, and all that they start.
    Processes(Vec<u32>),
    /// These threads, and all that they start.
    Threads(Vec<u32>),
    /// All that runs, on these CPUs or on all.
    Machine(Option<CpuSet>),
    /// The threads of a cgroup, on these CPUs or on all.
    Cgroup {
        /// Its path, absolute or below the root of the cgroup file system.
        path: PathBuf,
        /// The CPUs.
        cpus: Option<CpuSet>,
    },
}

/// The specification of a recording. [`RecordSpec::new`] has the defaults.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RecordSpec {
    /// The target to watch.
    pub target: RecordTarget,
    /// A command to start, the program first. With a target other than [`RecordTarget::Command`] the recording only
    /// lasts until the command ends.
    pub command: Option<Vec<OsString>>,
    /// The events.
    pub groups: Vec<EventGroup>,
    /// The contents of samples.
    pub samples: SampleOptions,
    /// Whether threads and processes that the target starts are watched as well.
    pub inherit: bool,
    /// Whether context switches are recorded.
    pub switches: bool,
    /// The CPUs to watch, for a target of tasks; `None` for all.
    pub cpus: Option<CpuSet>,
    /// The number of data pages of each CPU's ring; `None` for the session's default.
    pub ring_pages: Option<usize>,
    /// Whether the events are opened without taking samples, until they are told to ([`crate::record::Prepared`]).
    pub(crate) waits_to_begin: bool,
    /// The time before samples are taken. Mappings and tasks that appear meanwhile are recorded.
    pub delay: Duration,
    /// The longest time for which samples are taken; `None` for no limit.
    pub duration: Option<Duration>,
    /// The size of the file, in bytes, at which the recording ends. The records that wait in the rings then, and the
    /// descriptions at the file's end, come on top; `None` for no limit.
    pub most_bytes: Option<u64>,
    /// The zstd level with which the file's records are compressed; `None` for no compression.
    pub compression: Option<i32>,
    /// The file; `-` is standard output, as a pipe. An older file is renamed, see [`crate::output_file::create`].
    pub output: PathBuf,
    /// A pipe into which the recording goes instead; `output` is only its name then. Whoever reads it reads the recording
    /// while it goes on ([`dioptra_perfdata::LiveRecords`]). A reader that falls behind makes the kernel lose records, which
    /// are counted.
    pub pipe: Option<Arc<File>>,
    /// The standard input, output and error of the command.
    pub streams: Streams,
    /// The command line that the file states.
    pub command_line: Vec<OsString>,
    /// The function that a thread of the recorder's calls with a signal that asked for an end a second ago, if the
    /// recorder is busy and obeys it later. A recorder that is stuck is ended by the signal.
    pub on_slow_end: Option<fn(signal: i32)>,
}

impl RecordSpec {
    /// Returns whether the recording is written as a pipe, which has its head first and cannot be changed afterwards.
    pub fn is_pipe(&self) -> bool {
        self.pipe.is_some() || self.to_stdout()
    }

    /// Returns the command's standard input, output and error.
    pub(crate) fn streams(&self) -> Streams {
        match self.to_stdout() {
            true => Streams::OutputToError,
            false => self.streams,
        }
    }

    /// Returns whether the recording goes to standard output. The command's own output goes to standard error then.
    pub fn to_stdout(&self) -> bool {
        self.pipe.is_none() && self.output.as_os_str() == "-"
    }

    /// Specifies a recording of `target` with `groups` of events into `perf.data`, following all that it starts.
    pub fn new(target: RecordTarget, groups: Vec<EventGroup>) -> RecordSpec {
        RecordSpec {
            target,
            command: None,
            groups,
            samples: SampleOptions::default(),
            inherit: true,
            switches: false,
            cpus: None,
            ring_pages: None,
            waits_to_begin: false,
            delay: Duration::ZERO,
            duration: None,
            most_bytes: None,
            compression: None,
            output: PathBuf::from("perf.data"),
            pipe: None,
            streams: Streams::default(),
            command_line: crate::machine::command_line(),
            on_slow_end: None,
        }
    }
}
