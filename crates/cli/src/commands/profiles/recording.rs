//! The opening of recordings, and checks that they hold what a command needs.

use anyhow::bail;
use dioptra_perfdata::{LiveRecords, PerfData, Streamed};
use dioptra_perfevents::{ReadFormat, SampleType};
use dioptra_windows::section::WindowsSection;
use std::io;
use std::path::{Path, PathBuf};

/// Returns whether the path stands for standard input.
pub fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

/// Checks that standard input is named once at most.
pub fn check_stdin(paths: &[PathBuf]) -> anyhow::Result<()> {
    if paths.iter().filter(|path| is_stdin(path)).count() > 1 {
        bail!("standard input (`-`) can be read once only; give files");
    }
    Ok(())
}

/// Opens a profile; `-` is standard input, which is read to its end.
pub fn open(path: &Path) -> anyhow::Result<Recording> {
    let (data, file) = if is_stdin(path) {
        (PerfData::from_reader(io::stdin().lock())?, None)
    } else {
        (PerfData::open(path)?, Some(path))
    };
    Ok(Recording::new(data, file))
}

/// A recording whose records are still to be read.
pub enum Opened {
    /// The records can be read again and again.
    Whole(Box<Recording>),
    /// The records come from standard input, once.
    Piped(Box<PerfData>, Box<LiveRecords>),
}

impl Opened {
    /// Opens a profile. Of one that comes as a pipe on standard input (`-`) only the head is read.
    pub fn open(path: &Path) -> anyhow::Result<Opened> {
        if !is_stdin(path) {
            return Ok(Opened::Whole(Box::new(open(path)?)));
        }
        Ok(match Streamed::open(&mut io::stdin().lock())? {
            Streamed::Whole(data) => Opened::Whole(Box::new(Recording::new(*data, None))),
            Streamed::Pipe(data, records) => Opened::Piped(data, records),
        })
    }

    /// Reads the rest of standard input, so that its records can be read again and again.
    pub fn into_whole(self) -> anyhow::Result<Recording> {
        match self {
            Opened::Whole(recording) => Ok(*recording),
            Opened::Piped(data, records) => {
                let whole = records.into_whole(&data, io::stdin().lock())?;
                Ok(Recording::new(whole, None))
            }
        }
    }

    /// Returns the recording's events and its description, as far as it was read.
    pub fn data(&self) -> &PerfData {
        match self {
            Opened::Whole(recording) => &recording.data,
            Opened::Piped(data, _) => data,
        }
    }
}

/// A recording, and its section about windows.
pub struct Recording {
    pub data: PerfData,
    pub windows: Option<WindowsSection>,
}

impl Recording {
    fn new(mut data: PerfData, file: Option<&Path>) -> Recording {
        let windows = WindowsSection::of(&mut data, file);
        Recording { data, windows }
    }

    /// Returns the events whose samples mark bursts of windows; these samples do not show where time went.
    pub fn set_aside(&self) -> Vec<usize> {
        let windows = self.windows.as_ref();
        windows.map_or_else(Vec::new, |windows| windows.events(&self.data))
    }
}

/// Returns whether any event records the sample field of `bit`.
pub(super) fn samples_tell(data: &PerfData, bit: SampleType) -> bool {
    let mut samplers = data.events().iter().filter(|event| event.attr.samples());
    samplers.any(|event| event.attr.sample_type.contains(bit))
}

/// Returns whether samples that read groups of counters have call chains.
pub(super) fn groups_have_chains(data: &PerfData) -> bool {
    let mut samplers = data.events().iter().filter(|event| event.attr.samples());
    samplers.any(|event| {
        event
            .attr
            .sample_type
            .contains(SampleType::READ | SampleType::CALLCHAIN)
            && event.attr.read_format.contains(ReadFormat::GROUP)
    })
}

/// Fails if no event records the CPU of its samples.
pub(super) fn check_cpus(data: &PerfData) -> anyhow::Result<()> {
    if samples_tell(data, SampleType::CPU) {
        return Ok(());
    }
    bail!(
        "the profile's samples do not tell their CPU; record the whole machine (-a), or with perf's --sample-cpu"
    );
}

/// Fails if no event records the time of its samples.
pub(super) fn check_times(data: &PerfData) -> anyhow::Result<()> {
    if samples_tell(data, SampleType::TIME) {
        return Ok(());
    }
    bail!("the profile's samples do not tell their time; record with perf's --timestamp");
}
