//! The state of the server's profiles.

use super::ErrorBody;
use serde::Serialize;
use ts_rs::TS;

/// The answer of `/api/status`.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct Status {
    /// The version of dioptra.
    pub version: String,
    /// A number that rises whenever anything below changes.
    pub revision: u64,
    /// The profiles in the order of the command line.
    pub profiles: Vec<ProfileStatus>,
}

/// The state of one profile.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct ProfileStatus {
    /// The index by which requests name the profile.
    pub index: usize,
    /// The file's name without its folder.
    pub label: String,
    /// The file as it was given.
    pub path: String,
    /// Whether the file is a profile or a trace.
    pub kind: FileKind,
    /// The number of times the file was loaded; 0 before the first time is over.
    pub generation: u64,
    /// The state of the generation that answers.
    pub state: State,
    /// Whether the file has changed and is being loaded again.
    pub reloading: bool,
    /// The progress of loading, as far as it is known.
    pub progress: Option<Progress>,
    /// The milliseconds that loading has taken so far, or took.
    pub elapsed_ms: u64,
    /// Why the file could not be loaded the last time.
    pub error: Option<ErrorBody>,
}

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, TS)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    /// Samples, which `dioptra record` writes.
    Profile,
    /// Calls, which `dioptra trace record` writes.
    Trace,
}

/// The state of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, TS)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Other profiles are loaded first.
    Waiting,
    /// Its records are being read.
    Reading,
    /// Its functions are being named.
    Naming,
    /// The profile answers.
    Ready,
    /// The file could not be loaded.
    Failed,
}

/// The progress of a piece of work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct Progress {
    /// The part that is done.
    pub done: u64,
    /// All there is to do.
    pub total: u64,
    /// The unit of both numbers.
    pub unit: String,
}
