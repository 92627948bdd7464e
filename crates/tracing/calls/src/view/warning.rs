//! Warnings about a view's selection and rules.

use super::rules::PendingError;
use std::fmt;

/// A condition or rule of a view that has no effect, or another effect than the user may expect. Its text form is a
/// sentence for users.
#[derive(Debug)]
#[non_exhaustive]
pub enum ViewWarning {
    /// The trace has no thread of this number.
    NoThread(u32),
    /// The recording's rules that were left to readers cannot be applied.
    PendingRules(PendingError),
    /// A rule matches nothing, or does not act as written.
    Rule(dioptra_filters::Warning),
    /// Tracing is off at the start, and no rule switches it on.
    NeverOn,
}

impl fmt::Display for ViewWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ViewWarning::NoThread(tid) => write!(f, "the trace has no thread {tid}"),
            ViewWarning::PendingRules(error) => write!(
                f,
                "the filters of the recording can't be applied, so more is shown than was asked for then: {error}"
            ),
            ViewWarning::Rule(warning) => warning.fmt(f),
            ViewWarning::NeverOn => f.write_str(
                "tracing is off at the start and no rule switches it on, so nothing is shown; add the action trace_on to a \
                 function",
            ),
        }
    }
}
