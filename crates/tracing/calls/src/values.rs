//! The values that were recorded with calls.

use crate::Call;
use dioptra_tracedata::{Trace, Value, ValueDescription};

/// Returns the recorded arguments of a call that begins, as far as they are whole.
pub fn arguments<'t>(
    trace: &'t Trace,
    call: &Call,
) -> impl Iterator<Item = (&'t ValueDescription, Value)> {
    let values = (call.values != 0)
        .then(|| trace.values(call.function))
        .flatten();
    let payload = trace.payload(call.values);
    values
        .into_iter()
        .flat_map(move |values| values.arguments(payload))
}

/// Returns the text of the recorded arguments of a call that begins, with commas between them.
pub fn arguments_text(trace: &Trace, call: &Call) -> String {
    let texts = arguments(trace, call).map(|(described, value)| match described.name.as_str() {
        "" => value.to_string(),
        name => format!("{name}: {value}"),
    });
    texts.collect::<Vec<_>>().join(", ")
}

/// Returns the recorded value with which a call that ends returns.
pub fn returned_value(trace: &Trace, call: &Call) -> Option<Value> {
    if call.values == 0 {
        return None;
    }
    trace
        .values(call.function)?
        .returned(trace.payload(call.values))
}
