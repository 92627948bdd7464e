//! Arguments of `dioptra record`, and the recording they ask for.

use super::off_cpu;
use crate::exit::Exit;
use crate::remedies::with_remedy;
use dioptra_perfevents::{CpuSet, SyntaxCause, limits};
use dioptra_recorder::sample_options::{
    BranchFilter, CallGraph, DEFAULT_FREQUENCY, Rate, SampleOptions,
};
use dioptra_recorder::spec::{RecordSpec, RecordTarget};
use dioptra_windows::record::WindowSettings;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

/// zstd's own default level.
const DEFAULT_LEVEL: &str = "1";

/// Arguments of `dioptra record`.
#[derive(clap::Args)]
#[command(
    args_override_self = true,
    after_help = "\
Examples:
  dioptra record ./program --its-option        a command, with all that it starts
  dioptra record -g -p 1234 --duration 10      a running process for ten seconds, with call chains
  dioptra record -a -e cycles:u,page-faults -- sleep 5
                                               the whole machine while a command runs
  dioptra record --metrics generic ./program   the events that a set of metrics needs
  dioptra record --metrics cpu,ipc ./program   this CPU's own set, and a single metric
  dioptra record --windows ./program           counters over short windows, for `dioptra metrics`
  dioptra record --flight-recorder=60 -a       the last minute, written at SIGUSR2 and at the end
  dioptra record --off-cpu ./program           where it waits, beside where it runs
  dioptra record --trace='-P . -F parse' ./program
                                               samples into perf.data, and calls into dioptra.trace

Exit status: the command's (128 + signal if one killed it), 125 if recording failed, 126 if the command
cannot be executed, 127 if there is none; 0 when Ctrl-C ends a recording without command, and when the SIGTERM
of --duration kills the command."
)]
pub struct Arguments {
    /// Events to sample, separated by commas; see `dioptra list events`. `{a,b}` is a group
    /// [default: cycles, or cpu-clock where there is no cycle counter]
    #[arg(short, long = "event", value_name = "EVENTS")]
    pub event: Vec<String>,

    /// Record what these metrics need, each event with a period of its own: a set such as generic, `cpu` for this CPU's
    /// own, a metric file, SET:METRIC or METRIC; see `dioptra list metrics`
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub metrics: Vec<String>,

    /// Count groups of events over bursts of short windows, so that their ratios belong to single functions: see
    /// `dioptra metrics`. The groups are those of -e with braces, or of --metrics [default: what can be counted here].
    /// Any of long=1ms (between bursts), short=300 (a window: events, or a time such as 50us), jitter=, batch=4
    /// (windows of a burst), warmup= (windows left out of the analysis), source=
    #[arg(long, value_name = "SPEC", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub windows: Option<String>,

    /// Folder of metrics and events as CPU makers publish them (Intel's perfmon, Arm's telemetry-solution); so does the
    /// variable DIOPTRA_PMU_DATA
    #[arg(long, value_name = "DIR")]
    pub pmu_data: Option<PathBuf>,

    /// Samples a second, or `max` for what the kernel allows [default: 4000, beside --windows 500]
    #[arg(short = 'F', long = "freq", value_name = "HZ", conflicts_with = "count", value_parser = frequency)]
    pub frequency: Option<u64>,

    /// Events between two samples
    #[arg(short, long, value_name = "PERIOD", value_parser = clap::value_parser!(u64).range(1..=i64::MAX as u64))]
    pub count: Option<u64>,

    /// Record call chains by following frame pointers (as --call-graph fp)
    #[arg(short = 'g')]
    pub chains: bool,

    /// Record call chains: fp (frame pointers), dwarf[,SIZE] (copies of the stack, for unwinding later), lbr
    #[arg(long, value_name = "METHOD", require_equals = false)]
    pub call_graph: Option<CallGraph>,

    /// Record branch stacks with any branches (as -j any)
    #[arg(short = 'b', long)]
    pub branch_any: bool,

    /// Record branch stacks with these branches, such as any_call,u
    #[arg(
        short = 'j',
        long,
        value_name = "FILTER",
        conflicts_with = "branch_any"
    )]
    pub branch_filter: Option<BranchFilter>,

    /// The whole machine
    #[arg(short, long, conflicts_with_all = ["pid", "tid", "cgroup"])]
    pub all_cpus: bool,

    /// All that runs on these CPUs, such as 0-3,8; with -p or -t those processes while they run there
    #[arg(short = 'C', long, value_name = "CPUS")]
    pub cpu: Option<CpuSet>,

    /// Running processes
    #[arg(
        short,
        long,
        value_name = "PID",
        value_delimiter = ',',
        conflicts_with = "tid"
    )]
    pub pid: Vec<u32>,

    /// Running threads
    #[arg(short, long, value_name = "TID", value_delimiter = ',')]
    pub tid: Vec<u32>,

    /// The threads of a cgroup
    #[arg(short = 'G', long, value_name = "NAME", conflicts_with_all = ["pid", "tid"])]
    pub cgroup: Option<PathBuf>,

    /// Leave out threads and processes that the target starts
    #[arg(short = 'i', long)]
    pub no_inherit: bool,

    /// Record context switches: when threads are off the CPU
    #[arg(long)]
    pub switch_events: bool,

    /// Record where threads wait, beside the other events: the call stack of each switch off the CPU, which counts with the
    /// time until the thread runs again
    #[arg(long)]
    pub off_cpu: bool,

    /// Keep only the last seconds in memory. They are written when a trigger fires (FILE.1, FILE.2, …) and at the end (FILE).
    /// SIGUSR2 is always a trigger
    #[arg(long, value_name = "S", num_args = 0..=1, require_equals = true, default_missing_value = "30", value_parser = seconds)]
    pub flight_recorder: Option<Duration>,

    /// A trigger of the flight recorder: a sample of this event, which is one of -e, such as a probe
    #[arg(long, value_name = "EVENT")]
    pub dump_on: Option<String>,

    /// A trigger of the flight recorder: a command, processes (-p) or the machine (-a) use at least this much of a CPU for a
    /// second
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub dump_above: Option<f64>,

    /// The recordings that triggers write at most
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub dumps: u32,

    /// The memory of the flight recorder, in MiB; older samples are forgotten earlier where they take more
    #[arg(long, value_name = "MIB", default_value_t = 512, value_parser = megabytes)]
    pub flight_memory: usize,

    /// Trace the command's calls, too, with these options of `dioptra trace record`. Both recordings have one clock: `dioptra web
    /// perf.data dioptra.trace` shows them on one axis
    #[arg(long, value_name = "OPTIONS", num_args = 0..=1, require_equals = true, default_missing_value = "", allow_hyphen_values = true)]
    pub trace: Option<String>,

    /// A file descriptor that gets a byte when recording has begun
    #[arg(long, hide = true, value_name = "FD", value_parser = clap::value_parser!(i32).range(3..))]
    pub ready_fd: Option<i32>,

    /// A file descriptor that gives a byte when the process has executed its command, and ends without one if it can't
    #[arg(long, hide = true, value_name = "FD", value_parser = clap::value_parser!(i32).range(3..))]
    pub started_fd: Option<i32>,

    /// Ring buffer of each CPU: pages (a power of two), or a size such as 512K or 8M
    #[arg(short, long, value_name = "PAGES", value_parser = ring_pages)]
    pub mmap_pages: Option<usize>,

    /// Milliseconds to wait before samples are taken
    #[arg(short = 'D', long, value_name = "MS", default_value_t = 0)]
    pub delay: u64,

    /// Compress the file with zstd; a higher level is smaller and slower
    #[arg(short = 'z', long, value_name = "LEVEL", num_args = 0..=1, require_equals = true,
          default_missing_value = DEFAULT_LEVEL, value_parser = clap::value_parser!(i32).range(1..=22))]
    pub compression_level: Option<i32>,

    /// Seconds to record at most; a command that still runs then is ended with SIGTERM, which is no failure
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub duration: Option<Duration>,

    /// The file; an old one becomes FILE.old. `-` is a pipe on standard output, as in
    /// `dioptra record -o - ./program | perf report -i -`; the command's own output goes to standard error then
    #[arg(short, long, value_name = "FILE", default_value = "perf.data")]
    pub output: PathBuf,

    /// No progress and no summary, only warnings
    #[arg(short, long)]
    pub quiet: bool,

    /// More notes: how events were opened
    #[arg(short, long, conflicts_with = "quiet")]
    pub verbose: bool,

    /// Show the live counter of samples even though a command shares the terminal
    #[arg(long, conflicts_with = "quiet")]
    pub progress: bool,

    /// The command and its arguments
    #[arg(value_name = "COMMAND", trailing_var_arg = true, value_parser = clap::value_parser!(OsString))]
    pub command: Vec<OsString>,
}

/// A combination of arguments that asks for no recording.
#[derive(Debug, thiserror::Error)]
pub enum ArgumentError {
    #[error("nothing to record; give a command, or -a, -p PID, -t TID, -C CPUS or --cgroup NAME")]
    NoTarget,
    #[error("`-e {text}`: {}", with_remedy(.error))]
    Events {
        text: String,
        error: dioptra_perfevents::EventSyntaxError,
    },
    #[error("--metrics: {0:#}")]
    Metrics(anyhow::Error),
    #[error("--metrics: {0}")]
    NothingToCount(String),
    #[error(
        "--off-cpu: it samples context switches itself, and the kernel confuses its samples with those of `-e {0}`; leave one out"
    )]
    SwitchesTwice(String),
    #[error("{0}")]
    Flight(&'static str),
    #[error("--windows: {0}")]
    Windows(String),
    #[error("--windows: nothing can be counted: {0}")]
    NoWindows(String),
    #[error(
        "`-o -` would write the recording to the terminal; pipe it on, or give a file with -o FILE"
    )]
    Terminal,
}

impl ArgumentError {
    /// Returns the exit: wrong arguments, unless only the machine or a permission is lacking.
    pub fn exit(&self) -> Exit {
        match self {
            ArgumentError::Events { error, .. } if error.cause == SyntaxCause::Denied => {
                Exit::RecordingFailed
            }
            ArgumentError::NothingToCount(_) | ArgumentError::NoWindows(_) => Exit::RecordingFailed,
            _ => Exit::WrongArguments,
        }
    }
}

impl Arguments {
    /// Returns the recording that the arguments ask for, and its windows. Passes notes about missing parts to `say`.
    pub fn to_spec(
        &self,
        say: &mut dyn FnMut(&str),
    ) -> Result<(RecordSpec, Option<WindowSettings>), ArgumentError> {
        if self.output.as_os_str() == "-" && io::stdout().is_terminal() {
            return Err(ArgumentError::Terminal);
        }
        let mut groups = self.groups(say)?;
        let mut samples = self.samples();
        let windows = self.windows(&mut groups, &mut samples, say)?;
        if self.off_cpu {
            groups.push(off_cpu::group(&groups, samples.call_graph)?);
        }
        let mut spec = RecordSpec::new(self.target()?, groups);
        spec.command = (!self.command.is_empty()).then(|| self.command.clone());
        // Machine and cgroup targets carry their own CPUs.
        spec.cpus = self.cpu.clone();
        spec.samples = samples;
        spec.inherit = !self.no_inherit;
        spec.switches = self.switch_events || self.off_cpu;
        spec.ring_pages = self.mmap_pages;
        spec.delay = Duration::from_millis(self.delay);
        spec.duration = self.duration;
        spec.compression = self.compression_level;
        spec.output = self.output.clone();
        spec.on_slow_end = Some(|signal| {
            // Standard error may be closed.
            let name = super::summary::signal_name(signal);
            let _ = writeln!(
                io::stderr(),
                "dioptra: {name}: the recorder is busy, and ends once it has written what came"
            );
        });
        Ok((spec, windows))
    }

    pub(super) fn target(&self) -> Result<RecordTarget, ArgumentError> {
        if let Some(path) = &self.cgroup {
            return Ok(RecordTarget::Cgroup {
                path: path.clone(),
                cpus: self.cpu.clone(),
            });
        }
        if !self.pid.is_empty() {
            return Ok(RecordTarget::Processes(self.pid.clone()));
        }
        if !self.tid.is_empty() {
            return Ok(RecordTarget::Threads(self.tid.clone()));
        }
        // As with perf, CPUs mean all that runs on them; a command only says for how long.
        if self.all_cpus || self.cpu.is_some() {
            return Ok(RecordTarget::Machine(self.cpu.clone()));
        }
        if self.command.is_empty() {
            return Err(ArgumentError::NoTarget);
        }
        Ok(RecordTarget::Command)
    }

    pub(super) fn samples(&self) -> SampleOptions {
        SampleOptions {
            kernel_entry: false,
            rate: match (self.count, self.frequency) {
                (Some(period), _) => Rate::Period(period),
                (None, Some(frequency)) => Rate::Frequency(frequency),
                (None, None) => Rate::Frequency(DEFAULT_FREQUENCY),
            },
            call_graph: self
                .call_graph
                .or(self.chains.then_some(CallGraph::FramePointer)),
            branches: self
                .branch_filter
                .or(self.branch_any.then_some(BranchFilter::ANY)),
        }
    }
}

pub fn frequency(text: &str) -> Result<u64, String> {
    if text == "max" {
        return limits::max_sample_rate().ok_or_else(|| {
            "kernel.perf_event_max_sample_rate cannot be read; give a number".into()
        });
    }
    match text.parse() {
        Ok(0) | Err(_) => Err("give a number of samples a second, or max".into()),
        Ok(hertz) => Ok(hertz),
    }
}

fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent.is_finite() => Ok(percent),
        _ => Err("give percent of one CPU, such as 80 or 250".to_owned()),
    }
}

fn megabytes(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(size) if (1..1 << 20).contains(&size) => Ok(size),
        _ => Err("give a number of MiB, such as 512".to_owned()),
    }
}

/// Parses pages, or bytes with a unit, which are rounded up to pages.
pub fn ring_pages(text: &str) -> Result<usize, String> {
    let wrong = || "give a power of two of pages, or a size such as 512K or 8M".to_owned();
    let (digits, unit) = match text.find(|c: char| !c.is_ascii_digit()) {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    let number: usize = digits.parse().map_err(|_| wrong())?;
    let shift = match unit {
        "" => {
            return if number.is_power_of_two() {
                Ok(number)
            } else {
                Err(wrong())
            };
        }
        "B" | "b" => 0,
        "K" | "k" => 10,
        "M" | "m" => 20,
        "G" | "g" => 30,
        _ => return Err(wrong()),
    };
    let bytes = number
        .checked_mul(1 << shift)
        .filter(|bytes| *bytes > 0)
        .ok_or_else(wrong)?;
    let page = rustix::param::page_size();
    bytes
        .div_ceil(page)
        .checked_next_power_of_two()
        .ok_or_else(wrong)
}

pub fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || "give a number of seconds, such as 10 or 0.5".to_owned();
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    let duration = Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?;
    if duration.is_zero() {
        Err(wrong())
    } else {
        Ok(duration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parse(words: &[&str]) -> Result<Arguments, clap::Error> {
        Line::try_parse_from(std::iter::once(&"record").chain(words)).map(|line| line.arguments)
    }

    fn spec(words: &[&str]) -> RecordSpec {
        parse(words).unwrap().to_spec(&mut |_| {}).unwrap().0
    }

    #[test]
    fn the_first_word_that_is_no_option_ends_ours() {
        let found = spec(&["-g", "ls", "-a", "--bogus"]);
        assert_eq!(found.command.unwrap(), ["ls", "-a", "--bogus"]);
        assert_eq!(found.target, RecordTarget::Command);
        assert_eq!(found.samples.call_graph, Some(CallGraph::FramePointer));
        let found = spec(&["-z", "--", "-odd", "--", "x"]);
        assert_eq!(found.command.unwrap(), ["-odd", "--", "x"]);
        assert_eq!(found.compression, Some(1));
        assert!(parse(&["--bogus", "ls"]).is_err());
    }

    #[test]
    fn optional_values_need_an_equals_sign() {
        assert_eq!(spec(&["-z=9", "ls"]).compression, Some(9));
        assert_eq!(spec(&["-z", "ls"]).command.unwrap(), ["ls"]);
        assert!(parse(&["-z=0", "ls"]).is_err());
    }

    #[test]
    fn targets() {
        let cpus: CpuSet = "0-1".parse().unwrap();
        assert_eq!(spec(&["-a"]).target, RecordTarget::Machine(None));
        assert_eq!(
            spec(&["-C", "0-1", "ls"]).target,
            RecordTarget::Machine(Some(cpus.clone()))
        );
        assert_eq!(
            spec(&["-p", "1,2", "-p", "3"]).target,
            RecordTarget::Processes(vec![1, 2, 3])
        );
        let threads = spec(&["-t", "7", "-C", "0-1"]);
        assert_eq!(
            (threads.target, threads.cpus),
            (RecordTarget::Threads(vec![7]), Some(cpus))
        );
        assert!(matches!(
            parse(&[]).unwrap().to_spec(&mut |_| {}),
            Err(ArgumentError::NoTarget)
        ));
        for clash in [
            &["-a", "-p", "1"][..],
            &["-p", "1", "-t", "2"],
            &["--cgroup", "x", "-p", "1"],
        ] {
            assert!(parse(clash).is_err(), "{clash:?}");
        }
    }

    #[test]
    fn rates_and_sizes() {
        assert_eq!(spec(&["-F", "99", "ls"]).samples.rate, Rate::Frequency(99));
        assert_eq!(spec(&["-c", "1000", "ls"]).samples.rate, Rate::Period(1000));
        assert_eq!(spec(&["ls"]).samples.rate, Rate::Frequency(4000));
        assert!(parse(&["-F", "99", "-c", "1"]).is_err());
        assert!(parse(&["-F", "0", "ls"]).is_err() && parse(&["-c", "0", "ls"]).is_err());
        assert_eq!(ring_pages("128"), Ok(128));
        assert_eq!(ring_pages("1M"), Ok((1 << 20) / rustix::param::page_size()));
        for wrong in [
            "3",
            "0",
            "1T",
            "M",
            "",
            "-1",
            "99999999999999999999",
            "18014398509481984K",
        ] {
            assert!(ring_pages(wrong).is_err(), "{wrong}");
        }
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "x", "inf", "nan", "1e99"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn events_are_parsed_and_errors_point_at_them() {
        assert_eq!(
            spec(&[
                "-e",
                "cpu-clock,page-faults",
                "-e",
                "{cpu-clock,page-faults}",
                "ls"
            ])
            .groups
            .len(),
            3
        );
        let error = parse(&["-e", "cpu-clock,,", "ls"])
            .unwrap()
            .to_spec(&mut |_| {})
            .err()
            .unwrap();
        assert!(matches!(error, ArgumentError::Events { .. }));
    }

    #[test]
    fn an_event_that_is_given_twice_is_recorded_once() {
        let mut said = Vec::new();
        let arguments = parse(&["-e", "cpu-clock,page-faults", "-e", "cpu-clock", "ls"]).unwrap();
        let groups = arguments
            .groups(&mut |note| said.push(note.to_owned()))
            .unwrap();
        assert_eq!(groups.len(), 2);
        assert_eq!(said, ["cpu-clock is given twice, and recorded once"]);
        // Modifiers make another event.
        assert_eq!(
            spec(&["-e", "cpu-clock:u,cpu-clock:k", "ls"]).groups.len(),
            2
        );
    }
}
