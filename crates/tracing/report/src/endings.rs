//! Words for the ways in which calls end.

use dioptra_calls::CallEnding;
use dioptra_tracelayout::record::UnwindCause;

/// Returns the remark on a call that did not return.
pub fn ending_text(ending: CallEnding) -> Option<&'static str> {
    match ending {
        CallEnding::Returned => None,
        CallEnding::Unwound(UnwindCause::Jump) => Some("jumped out of"),
        CallEnding::Unwound(UnwindCause::Exception) => Some("left by an exception"),
        CallEnding::Unwound(UnwindCause::ThreadEnd) => Some("its thread ended"),
        CallEnding::Unwound(UnwindCause::Unknown) => Some("did not return"),
        _ => Some("its end is missing"),
    }
}
