#![doc = include_str!("../README.md")]
//!
//! # Where to look
//! [`PerfData`] opens a recording (a file, a pipe, bytes, a directory of `perf record --threads`) of either byte order
//! and any perf, and passes its records on in the order of time, borrowed from the mapped file. Damage never makes
//! reading fail: [`ReadSummary`] says what was read and where it stopped. [`LiveRecords`] reads a pipe while its recording
//! goes on, and [`Streamed`] tells a pipe from a file that comes as a stream. [`Writer`] writes files that perf reads.
//!
//! This crate knows records as bytes with a type, a time and an event; their fields are parsed by
//! [`dioptra_perfrecords::record`]. It knows nothing of symbols or tables.
//!
//! Source of the format: perf's documents `perf.data-file-format.txt` and `perf_event_open(2)`.

mod error;
mod events;
mod features;
mod header;
mod kind;
mod name;
mod pipe;
mod read;
mod recording;
mod source;
mod summary;
mod walk;
mod write;
mod zstd_stream;

pub use error::{DAMAGE_LIMIT, Damage, OpenError, WriteError};
pub use events::EventDescription;
pub use features::{
    BuildId, CacheLevel, ClockData, Compression, CpuTopology, Feature, Features, GroupDescription,
    ImportedFrame, ImportedFunction, ImportedModule, ImportedNames, ImportedRole, MemoryNode,
    NumaNode, PmuMapping, read_build_id,
};
pub use kind::{FIRST_FILE_TYPE, file_type, is_file_type, record_name};
pub use name::event_name;
pub use read::{FileRecord, LiveRecords, Streamed};
pub use recording::{Format, PerfData};
pub use summary::{ReadSummary, RecordCounts};
pub use write::{EventToWrite, FeaturesToWrite, WriteOptions, Writer, build_id_records};
