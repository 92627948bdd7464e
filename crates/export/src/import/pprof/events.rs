//! The events behind a profile's types of values.
//!
//! A recording's event has a number of samples and a weight. In a profile both are values of their own: Go writes
//! `samples` and `cpu`, dioptra `samples` and `cpu-clock`, or `samples:cycles` and `cycles` of several events.

use super::tables::{Tables, ValueType};
use crate::import::error::ImportError;
use crate::import::omitted::{Omissions, OmittedKind};
use crate::import::recording::Event;

/// An event with the places of its values in a sample.
#[derive(Clone, Debug)]
pub(super) struct Values {
    pub event: Event,
    /// The place of the number of samples, if it is known.
    pub samples: Option<usize>,
    /// The place of the weight, and the number of units of the event in one of the value.
    pub weight: Option<(usize, u64)>,
}

/// The name of the values that are numbers of samples, and the prefix of those where there are several events.
const SAMPLES: &str = "samples";

/// Returns the events of a profile.
pub(super) fn events(
    tables: &Tables<'_>,
    omissions: &mut Omissions,
) -> Result<Vec<Values>, ImportError> {
    let types: Vec<ValueType<'_>> = tables
        .types
        .iter()
        .map(|pair| tables.value_type(*pair))
        .collect::<Result<_, _>>()?;
    let counts_samples = |kind: &ValueType<'_>| kind.unit == "count" || kind.unit.is_empty();
    // The place of the weight that belongs to a number of samples.
    let partner = |place: usize| -> Option<usize> {
        let kind = types.get(place).filter(|kind| counts_samples(kind))?;
        if let Some(event) = kind.name.strip_prefix("samples:") {
            return types.iter().position(|other| other.name == event);
        }
        let is_pair = kind.name == SAMPLES && types.len() == 2;
        is_pair.then(|| 1 - place)
    };
    let mut samples_of = vec![None; types.len()];
    for place in 0..types.len() {
        if let Some(weight) = partner(place) {
            samples_of[weight] = Some(place);
        }
    }
    let period_type = tables.period_type.map(|pair| tables.value_type(pair));
    let period_type = period_type.transpose()?;
    let mut period_is_used = tables.period == 0;
    let mut found = Vec::new();
    for (place, kind) in types.iter().enumerate() {
        if partner(place).is_some_and(|weight| samples_of[weight] == Some(place)) {
            continue;
        }
        let is_lone_count = samples_of[place].is_none()
            && counts_samples(kind)
            && (kind.name == SAMPLES || kind.name.starts_with("samples:"));
        let nanoseconds = nanoseconds(kind.unit);
        let has_period = period_type.as_ref().is_some_and(|period| period == kind);
        let factor = nanoseconds.unwrap_or(1);
        let period = has_period.then(|| tables.period.saturating_mul(factor));
        period_is_used |= has_period;
        if nanoseconds.is_none() && !counts_samples(kind) {
            omissions.add(OmittedKind::Unit(format!("{}, {}", kind.name, kind.unit)));
        }
        let name = match is_lone_count {
            true => kind.name.strip_prefix("samples:").unwrap_or(kind.name),
            false => kind.name,
        };
        found.push(Values {
            event: Event {
                name: name.to_owned(),
                is_time: nanoseconds.is_some(),
                has_weights: !is_lone_count,
                period: period.filter(|period| *period > 0),
            },
            samples: match is_lone_count {
                true => Some(place),
                false => samples_of[place],
            },
            weight: (!is_lone_count).then_some((place, factor)),
        });
    }
    omissions.add_many(OmittedKind::Period, u64::from(!period_is_used));
    Ok(found)
}

/// Returns the nanoseconds in a unit of time.
fn nanoseconds(unit: &str) -> Option<u64> {
    match unit {
        "nanoseconds" | "nanosecond" | "ns" => Some(1),
        "microseconds" | "microsecond" | "us" => Some(1_000),
        "milliseconds" | "millisecond" | "ms" => Some(1_000_000),
        "seconds" | "second" | "s" => Some(1_000_000_000),
        _ => None,
    }
}
