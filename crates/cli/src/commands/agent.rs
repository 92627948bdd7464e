//! `dioptra agent`: continuous recording within bounds.
//!
//! The main thread records one segment after the other into files of the spool ([`spool`]), and adapts the sampling
//! frequency to the agent's own use of CPUs ([`budget`]). A second thread hands complete segments to the upload command and
//! deletes what that command has taken ([`upload`]).
//!
//! A segment is deleted after its upload only, so an agent that is killed at any moment uploads it again. A store that knows
//! profiles by their content keeps one of them.

mod budget;
mod segments;
mod spool;
mod upload;

use super::record;
use super::record::arguments::{ArgumentError, frequency, ring_pages, seconds};
use crate::exit::Exit;
use crate::output::say;
use crate::remedies;
use budget::Budget;
use clap::{Args, FromArgMatches};
use dioptra_recorder::RecordSpec;
use dioptra_recorder::sample_options::{CallGraph, Rate};
use segments::Segments;
use spool::Spool;
use std::path::PathBuf;
use std::time::Duration;
use upload::{UploadCommand, Uploader};

/// Arguments of `dioptra agent`.
#[derive(clap::Args)]
#[command(
    args_override_self = true,
    after_help = "\
The agent records one segment after the other. Complete segments are perf.data files in the spool, which every other
sub-command reads. An upload command takes them from there; a segment is deleted once the command has ended with status 0.
A failed upload is tried again, later each time, and a segment is uploaded twice rather than not at all. A store
(--to) knows profiles by their content, and keeps one of them.

Where the spool is full, the oldest segments are deleted, which a line says. Where the agent and its uploads use more CPU time
than --max-cpu, the sampling frequency falls, and segments begin later. The kernel's own work for a sample counts for the
sampled program and is not measured.

The next segment begins when one ends: the line about a segment says what was not recorded before it.

Examples:
  dioptra agent --to /srv/profiles --service shop        into a store
  dioptra agent --upload 'scp -B' -F 49                  with a command of your own, which gets the files as arguments
  dioptra agent --spool /var/tmp/last --max-disk 2G      no upload: the last 2 GiB stay on disk
  dioptra agent --to s3://profiles/prod --dry-run        check what would be done

Exit status: 0 when a signal or --segments ends it, 125 if it cannot record, 2 for wrong arguments."
)]
pub struct Arguments {
    /// Add complete segments to this store: a directory or s3://BUCKET/PREFIX. `dioptra store` must be installed
    #[arg(long, value_name = "STORE")]
    to: Option<String>,
    /// The service that the store notes for the profiles
    #[arg(long, value_name = "NAME", requires = "to")]
    service: Option<String>,
    /// Upload with this command: words separated by spaces, the files follow
    #[arg(long, value_name = "COMMAND", conflicts_with = "to")]
    upload: Option<String>,
    /// The directory of the segments
    #[arg(long, value_name = "DIR", default_value = "dioptra.spool")]
    spool: PathBuf,
    /// The most that all segments take on disk, such as 500M or 2G. A segment that has half of it ends early
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size)]
    max_disk: u64,
    /// The most CPU time that the agent and its uploads use, in percent of the machine's
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = percent)]
    max_cpu: f64,
    /// Seconds of a segment
    #[arg(long, value_name = "S", default_value = "60", value_parser = seconds)]
    every: Duration,
    /// End after this many segments
    #[arg(long, value_name = "N")]
    segments: Option<u64>,
    /// Seconds after which an upload that has not ended is killed, and tried again
    #[arg(long, value_name = "S", default_value = "300", value_parser = seconds)]
    upload_timeout: Duration,
    /// Check the events, the spool and the upload command, say what would be done, and end
    #[arg(long)]
    dry_run: bool,
    /// Only warnings, no line for each segment
    #[arg(short, long)]
    quiet: bool,

    /// Events to sample, separated by commas; see `dioptra list events`
    /// [default: cycles, or cpu-clock where there is no cycle counter]
    #[arg(short, long = "event", value_name = "EVENTS")]
    event: Vec<String>,
    /// Samples a second of each CPU at most
    #[arg(short = 'F', long = "freq", value_name = "HZ", default_value = "49", value_parser = frequency)]
    frequency: u64,
    /// Record call chains: fp (frame pointers), dwarf[,SIZE] (copies of the stack), lbr [default: fp]
    #[arg(long, value_name = "METHOD", conflicts_with = "no_chains")]
    call_graph: Option<CallGraph>,
    /// Record no call chains
    #[arg(long)]
    no_chains: bool,
    /// Running processes, instead of the whole machine
    #[arg(short, long, value_name = "PID", value_delimiter = ',')]
    pid: Vec<u32>,
    /// The threads of a cgroup, instead of the whole machine
    #[arg(short = 'G', long, value_name = "NAME", conflicts_with = "pid")]
    cgroup: Option<PathBuf>,
    /// Ring buffer of each CPU: pages (a power of two), or a size such as 512K or 8M
    #[arg(short, long, value_name = "PAGES", value_parser = ring_pages)]
    mmap_pages: Option<usize>,
    /// Compress segments with zstd at this level; 0 for no compression
    #[cfg(feature = "zstd")]
    #[arg(short = 'z', long, value_name = "LEVEL", default_value_t = 1, value_parser = clap::value_parser!(i32).range(0..=22))]
    compression_level: i32,
}

pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let spec = match arguments.recording()? {
        Ok(spec) => spec,
        Err(error) => {
            say!("{error}");
            return Ok(error.exit());
        }
    };
    let command = match arguments.upload_command() {
        Ok(command) => command,
        Err(error) => {
            say!("{error}");
            return Ok(Exit::RecordingFailed);
        }
    };
    let spool = Spool::open(&arguments.spool, arguments.max_disk)?;
    let budget = Budget::new(arguments.frequency, arguments.max_cpu / 100.0);
    if arguments.dry_run {
        return arguments.try_out(spec, &spool, command.as_ref());
    }
    let uploader = command
        .map(|command| Uploader::new(command, arguments.upload_timeout, budget.upload_pace()));
    let segments = Segments {
        spec,
        every: arguments.every,
        most: arguments.segments,
        spool,
        budget,
        is_quiet: arguments.quiet,
    };
    segments.record(uploader)
}

impl Arguments {
    /// Returns the recording of a segment, whose file and duration are still to be set.
    fn recording(&self) -> anyhow::Result<Result<RecordSpec, ArgumentError>> {
        let mut recorded = recording_arguments()?;
        recorded.event.clone_from(&self.event);
        recorded.frequency = Some(self.frequency);
        recorded.call_graph = match self.no_chains {
            true => None,
            false => Some(self.call_graph.unwrap_or(CallGraph::FramePointer)),
        };
        recorded.pid.clone_from(&self.pid);
        recorded.cgroup.clone_from(&self.cgroup);
        recorded.all_cpus = self.pid.is_empty() && self.cgroup.is_none();
        recorded.mmap_pages = self.mmap_pages;
        #[cfg(feature = "zstd")]
        {
            recorded.compression_level =
                (self.compression_level > 0).then_some(self.compression_level);
        }
        Ok(recorded
            .to_spec(&mut |note| say!("{note}"))
            .map(|(spec, _)| spec))
    }

    /// Returns the command that takes segments; `None` if they stay in the spool.
    fn upload_command(&self) -> anyhow::Result<Option<UploadCommand>> {
        match (&self.to, &self.upload) {
            (Some(store), _) => UploadCommand::of_store(store, self.service.as_deref()).map(Some),
            (None, Some(words)) => UploadCommand::parse(words).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Records a tenth of a second, deletes the recording, and says what would be done.
    fn try_out(
        &self,
        mut spec: RecordSpec,
        spool: &Spool,
        command: Option<&UploadCommand>,
    ) -> anyhow::Result<Exit> {
        spec.output = spool.unfinished("dry-run");
        spec.duration = Some(Duration::from_millis(100));
        let recorded = dioptra_recorder::record(&spec, &mut segments::Notes::default());
        let _ = std::fs::remove_file(&spec.output);
        let outcome = match recorded {
            Ok(outcome) => outcome,
            Err(error) => {
                say!("{}", remedies::with_remedy(&error));
                return Ok((&error).into());
            }
        };
        let names: Vec<&str> = outcome
            .events
            .iter()
            .map(|event| event.name.as_str())
            .collect();
        let rate = match spec.samples.rate {
            Rate::Frequency(hertz) => hertz,
            Rate::Period(_) => self.frequency,
        };
        say!(
            "would record {} at up to {rate} Hz, in segments of {} s; a try of 0.1 s had {} samples",
            names.join(", "),
            self.every.as_secs_f64(),
            outcome.samples(),
        );
        say!(
            "would keep up to {} MiB in {}, which holds {} segments now",
            self.max_disk >> 20,
            self.spool.display(),
            spool.complete()?.len(),
        );
        match command {
            Some(command) => say!("would upload with `{command} FILE…`"),
            None => say!("would upload nothing: segments stay until the spool is full"),
        }
        say!(
            "would use up to {} % of the machine's CPU time",
            self.max_cpu
        );
        Ok(Exit::Done)
    }
}

/// Returns the arguments of `dioptra record` as they are where nobody gave any.
fn recording_arguments() -> anyhow::Result<record::Arguments> {
    let command = record::Arguments::augment_args(clap::Command::new("record"));
    let matches = command.try_get_matches_from(["record"])?;
    Ok(record::Arguments::from_arg_matches(&matches)?)
}

/// Reads a number of bytes with a unit.
pub fn size(text: &str) -> Result<u64, String> {
    let wrong = || "give a size such as 500M or 2G".to_owned();
    let split = text
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let shift = match unit {
        "" => 0,
        "K" | "k" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    match number.checked_mul(1 << shift) {
        Some(bytes) if bytes > 0 => Ok(bytes),
        _ => Err(wrong()),
    }
}

fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(percent),
        _ => Err("give percent of the machine's CPU time, such as 1 or 0.5".to_owned()),
    }
}
