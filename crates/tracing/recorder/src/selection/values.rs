//! The values that are recorded with a function's calls: places of the processor's calling convention, and the forms
//! of the values.

use dioptra_filters::{ValueFormat, ValuePlace, ValueRequest};
use dioptra_trace_patch::Fetches;
use dioptra_tracedata::{RecordedValues, ValueDescription, ValueForm};
use dioptra_tracelayout::values::{
    FLOAT_REGISTER, Fetch, INTEGER_REGISTER, INTEGER_REGISTERS, MOST_TEXT, RETURN_REGISTER,
    STACK_WORD, STRING, TEXT, USUAL_TEXT,
};
use std::sync::Arc;

/// The values that are recorded with the calls of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionValues {
    /// The values for the runtime.
    pub fetches: Arc<Fetches>,
    /// The values for readers; the functions are not known here.
    pub described: RecordedValues,
}

impl FunctionValues {
    /// Returns the values that rules ask for; `None` if there are none.
    pub fn of(requests: &[ValueRequest]) -> Option<FunctionValues> {
        let mut fetched = Fetches::default();
        let mut described = RecordedValues::default();
        for request in requests {
            let (fetch, form) = fetch_of(*request);
            let (name, fetches) = match request.place {
                ValuePlace::Argument(number) => (format!("arg{number}"), &mut fetched.entry),
                ValuePlace::FloatArgument(number) => (format!("fparg{number}"), &mut fetched.entry),
                ValuePlace::Returned => ("retval".to_owned(), &mut fetched.exit),
            };
            fetches.push(fetch);
            let value = ValueDescription {
                fetches: vec![fetch.kind],
                ..ValueDescription::word(name, form)
            };
            match request.place {
                ValuePlace::Returned => described.returned = Some(value),
                _ => described.arguments.push(value),
            }
        }
        (!requests.is_empty()).then(|| FunctionValues {
            fetches: Arc::new(fetched),
            described,
        })
    }
}

/// Returns the fetch and the form of a value that a rule asks for.
fn fetch_of(request: ValueRequest) -> (Fetch, ValueForm) {
    let is_returned = request.place == ValuePlace::Returned;
    let place = match (request.place, request.format) {
        (ValuePlace::Argument(number), _) => match number - 1 {
            number @ ..INTEGER_REGISTERS => INTEGER_REGISTER + number,
            number => STACK_WORD + number - INTEGER_REGISTERS,
        },
        (ValuePlace::FloatArgument(number), _) => FLOAT_REGISTER + number - 1,
        (ValuePlace::Returned, ValueFormat::Float(_)) => FLOAT_REGISTER,
        (ValuePlace::Returned, _) => RETURN_REGISTER,
    };
    debug_assert!(is_returned || place != RETURN_REGISTER);
    let text = |kind, limit| Fetch {
        kind,
        limit: match limit {
            0 => USUAL_TEXT,
            limit => limit.min(MOST_TEXT),
        },
        ..Fetch::word(place)
    };
    let word = Fetch::word(place);
    match request.format {
        ValueFormat::Word => (word, ValueForm::Word),
        ValueFormat::Signed(size) => (word, ValueForm::Signed(size)),
        ValueFormat::Unsigned(size) => (word, ValueForm::Unsigned(size)),
        ValueFormat::Hexadecimal(size) => (word, ValueForm::Hexadecimal(size)),
        ValueFormat::Octal(size) => (word, ValueForm::Octal(size)),
        ValueFormat::Character => (word, ValueForm::Character),
        ValueFormat::Float(size) => (word, ValueForm::Float(size)),
        ValueFormat::Pointer => (word, ValueForm::Pointer),
        ValueFormat::Text(limit) => (text(TEXT, limit), ValueForm::Text),
        ValueFormat::String(limit) => (text(STRING, limit), ValueForm::Text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(places: &[ValuePlace]) -> Fetches {
        let request = |place: &ValuePlace| ValueRequest {
            place: *place,
            format: match place {
                ValuePlace::FloatArgument(_) => ValueFormat::Float(8),
                _ => ValueFormat::Word,
            },
        };
        let requests: Vec<_> = places.iter().map(request).collect();
        let values = FunctionValues::of(&requests).unwrap_or_default();
        Arc::unwrap_or_clone(values.fetches)
    }

    #[test]
    fn only_registers_in_rising_order_are_left_to_a_hook() {
        use ValuePlace::{Argument, FloatArgument, Returned};
        assert_eq!(values(&[Argument(1), Argument(3)]).registers(), Some(5));
        assert_eq!(values(&[Argument(6), Returned]).registers(), Some(32));
        assert_eq!(values(&[Argument(2), Argument(1)]).registers(), None);
        assert_eq!(values(&[Argument(1), Argument(7)]).registers(), None);
        assert_eq!(values(&[Argument(1), FloatArgument(1)]).registers(), None);
    }
}
