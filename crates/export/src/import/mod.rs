//! Profiles of other tools, written as recordings.
//!
//! [`import`] reads collapsed stacks, pprof's profiles and the text of `perf script`, and writes a perf.data file. Each
//! format has a reader of its own, which hands stacks to a [`recording::Recording`]. Names of functions go to the file's
//! section of imported names ([`dioptra_perfdata::ImportedNames`]): a location whose address is known keeps it, and every
//! other location gets an address in a part of its module that no file has.
//!
//! **Invariant:** the values of the samples in the file add up to those of the profile. Whatever a recording has no place
//! for is counted ([`Omitted`]).

mod collapsed;
mod detect;
mod error;
mod gzip;
mod names;
mod omitted;
mod pprof;
mod recording;
mod records;
mod script;

pub use error::ImportError;
pub use omitted::{Omitted, OmittedKind};

use dioptra_perfdata::FeaturesToWrite;
use omitted::Omissions;
use std::borrow::Cow;
use std::io::{Seek, Write};

/// A format that can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportFormat {
    /// A line for each stack: `thread;outermost;…;innermost VALUE`.
    Collapsed,
    /// pprof's protocol buffer, compressed with gzip or not.
    Pprof,
    /// The text that `perf script` prints.
    PerfScript,
}

impl ImportFormat {
    /// Returns the format's name.
    pub fn name(self) -> &'static str {
        match self {
            ImportFormat::Collapsed => "collapsed stacks",
            ImportFormat::Pprof => "pprof",
            ImportFormat::PerfScript => "perf script",
        }
    }
}

/// Options of importing a profile.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// The format; found out by the content if it is `None`.
    pub format: Option<ImportFormat>,
    /// The name of the event, for formats that do not name it. The values of `cpu-clock` and `task-clock` are
    /// nanoseconds. `value` if it is empty.
    pub event: String,
    /// Whether the first name of a collapsed stack is a function's. Otherwise it is the thread's.
    pub first_is_function: bool,
    /// The name of threads whose names the profile does not state.
    pub thread_name: String,
    /// The description of the recording, as far as the caller knows it.
    pub features: FeaturesToWrite,
}

/// An event of an imported profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedEvent {
    /// The name.
    pub name: String,
    /// The number of samples in the file.
    pub samples: u64,
    /// The sum of their weights.
    pub weight: u64,
}

/// A profile that was imported.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The format that it had.
    pub format: ImportFormat,
    /// The events.
    pub events: Vec<ImportedEvent>,
    /// The things that a recording has no place for.
    pub omitted: Vec<Omitted>,
}

/// Writes a profile of another tool as a perf.data file into `out`, which must be empty.
///
/// # Errors
/// The format is unknown, the profile is damaged or has no samples, or writing failed.
pub fn import<W: Write + Seek>(
    profile: &[u8],
    options: ImportOptions,
    out: W,
) -> Result<Imported, ImportError> {
    let content: Cow<'_, [u8]> = match gzip::is_compressed(profile) {
        true => Cow::Owned(gzip::decompress(profile)?),
        false => Cow::Borrowed(profile),
    };
    let format = match options.format {
        Some(format) => format,
        None => detect::detect(&content)?,
    };
    let mut omissions = Omissions::default();
    let events = match format {
        ImportFormat::Collapsed => collapsed::import(&content, options, &mut omissions, out)?,
        ImportFormat::Pprof => pprof::import(&content, options, &mut omissions, out)?,
        ImportFormat::PerfScript => script::import(&content, options, &mut omissions, out)?,
    };
    if events.iter().all(|event| event.samples == 0) {
        return Err(ImportError::NoSamples {
            format: format.name(),
        });
    }
    Ok(Imported {
        format,
        events,
        omitted: omissions.list(),
    })
}
