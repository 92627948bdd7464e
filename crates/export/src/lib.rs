//! Profiles and traces in the formats of other tools.
//!
//! A [`Source`] is a profile with its names and the events to export. Each format has a function that writes it:
//! [`write_collapsed`], [`write_pprof`], [`write_firefox`], [`write_callgrind`], [`write_flamegraph`],
//! [`write_speedscope`], [`write_autofdo`], [`write_chrome`], [`write_perfetto`],
//! [`write_otlp`]. The result, [`Exported`], holds the sums of the written
//! values and a list of the things that the format cannot hold, with their numbers.
//!
//! A [`TraceSource`] is a part of a trace of calls; functions such as [`write_trace_perfetto`] write it.
//!
//! Writers read the counts of the profile, which are exact sums. They write while they walk through the stacks; only
//! tables of names wait until the end.
//!
//! [`otlp_requests`] divides a profile into requests that OpenTelemetry's collectors take. With the feature `push`, a
//! [`Collector`] sends them.
//!
//! [`write_uftrace`] writes a trace of calls as a directory of uftrace's, and [`read_uftrace`] makes a trace of one.
//!
//! **Invariant:** the written values of an event add up to the profile's total ([`Exported::check`]).

mod autofdo;
mod callgrind;
mod chrome;
mod collapsed;
mod comm_paths;
mod error;
mod exported;
mod firefox;
mod flamegraph;
mod import;
mod labels;
mod lost;
mod mappings;
mod origin;
mod otlp;
mod paths;
mod perfetto;
mod periods;
mod pprof;
mod protobuf;
mod sample_values;
mod source;
mod speedscope;
mod stack_calls;
mod strings;
mod tasks;
mod timed_samples;
mod traces;
mod uftrace;
mod wire;

pub use autofdo::write_autofdo;
pub use callgrind::write_callgrind;
pub use chrome::write_chrome;
pub use collapsed::write_collapsed;
pub use error::ExportError;
pub use exported::{EventTotal, Exported};
pub use firefox::write_firefox;
pub use flamegraph::{write_flamegraph, write_stacks_flamegraph};
pub use import::{
    ImportError, ImportFormat, ImportOptions, Imported, ImportedEvent, Omitted, OmittedKind, import,
};
pub use lost::{Lost, LostKind};
pub use origin::Origin;
#[cfg(feature = "push")]
pub use otlp::push::{Accepted, Collector, Protocol, PushError, PushOptions, Waiting};
pub use otlp::requests::{OtlpRequest, TakeRequest};
pub use otlp::{otlp_requests, write_otlp};
pub use paths::{PathId, PathNode, Paths};
pub use perfetto::write_perfetto;
pub use pprof::write_pprof;
pub use source::{Source, Value};
pub use speedscope::write_speedscope;
pub use traces::{
    ExportedTrace, NOT_SHOWN, TraceSource, trace_otlp_requests, write_trace_callgrind,
    write_trace_chrome, write_trace_collapsed, write_trace_firefox, write_trace_flamegraph,
    write_trace_otlp, write_trace_perfetto, write_trace_pprof, write_trace_speedscope,
};
pub use uftrace::{
    UftraceExportError, UftraceExported, UftraceImportError, UftraceImported, UftraceLoss,
    UftraceLossKind, function_addresses, is_uftrace, read_uftrace, write_uftrace,
};
