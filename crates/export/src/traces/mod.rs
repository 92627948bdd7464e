//! Traces of calls in the formats of other tools.
//!
//! Formats of sums hold call paths: the number of calls on a path, and their self time. [`write_trace_collapsed`],
//! [`write_trace_flamegraph`], [`write_trace_pprof`], [`write_trace_otlp`], [`write_trace_speedscope`] and
//! [`write_trace_callgrind`] write them. Formats of time hold each call: [`write_trace_chrome`], [`write_trace_perfetto`]
//! and [`write_trace_firefox`].
//!
//! The self time of a call leaves out recorded calls below it, shown or not. The time of calls that filters hide
//! therefore stands in a path of its own, [`NOT_SHOWN`], so that sums of paths are total times.

mod addresses;
mod callgrind;
mod chrome;
mod collapsed;
mod firefox;
mod otlp;
mod paths;
mod perfetto;
mod pprof;
mod slices;
mod speedscope;

pub use callgrind::write_trace_callgrind;
pub use chrome::write_trace_chrome;
pub use collapsed::{write_trace_collapsed, write_trace_flamegraph};
pub use firefox::write_trace_firefox;
pub use otlp::{trace_otlp_requests, write_trace_otlp};
pub use paths::NOT_SHOWN;
pub use perfetto::write_trace_perfetto;
pub use pprof::write_trace_pprof;
pub use speedscope::write_trace_speedscope;

use crate::lost::Lost;
use dioptra_calls::{FunctionNames, View, ViewLosses};

/// A trace to export.
#[derive(Clone, Copy)]
pub struct TraceSource<'a, 't> {
    /// The part of the trace that is exported.
    pub view: &'a View<'t>,
    /// The names of its functions.
    pub names: &'a FunctionNames<'t>,
}

impl<'t> TraceSource<'_, 't> {
    /// Returns the last name of the thread with this index in the view.
    fn thread_name(&self, place: usize) -> &'t str {
        self.view.task_name_at(place, u64::MAX)
    }
}

/// The result of an export of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "show what was lost"]
pub struct ExportedTrace {
    /// The number of written calls; `None` where the format does not hold it.
    pub calls: Option<u64>,
    /// The sum of the written self times in nanoseconds, without [`NOT_SHOWN`]; `None` where the format does not
    /// hold them.
    pub self_time: Option<u64>,
    /// The time in nanoseconds of calls that filters hide, as far as it was written as [`NOT_SHOWN`].
    pub not_shown: u64,
    /// The number of calls that were written one by one, and whose beginning is not known or lies before the view's
    /// time.
    pub began_before: u64,
    /// The number of calls that were written one by one without an end, because the trace has none.
    pub open: u64,
    /// The records that the trace itself lacks.
    pub losses: ViewLosses,
    /// The parts of the trace that the format has no place for.
    pub lost: Vec<Lost>,
}
