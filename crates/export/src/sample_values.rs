//! The values of samples in formats that have room for several.

use crate::source::{Source, StackCount};

/// One of the values that each sample has: the number of samples, or the weight, of one event.
pub(crate) struct SampleValue {
    /// The event's place in the exported ones.
    pub event: u32,
    pub is_weight: bool,
    /// The event's name; of numbers of samples `samples`, with the event's name where there are several.
    pub name: String,
    pub unit: &'static str,
}

impl SampleValue {
    /// Returns this value of a count, which is the event's.
    pub(crate) fn of(&self, count: &StackCount) -> u64 {
        match self.is_weight {
            true => count.weight,
            false => count.samples,
        }
    }
}

/// Returns the values of each sample: for each event the number of samples and, where samples state it, the weight.
pub(crate) fn sample_values(source: &Source<'_>) -> Vec<SampleValue> {
    let names = source.event_names();
    let single = names.len() == 1;
    let mut values = Vec::new();
    for ((event, name), index) in (0_u32..).zip(names).zip(source.events) {
        values.push(SampleValue {
            event,
            is_weight: false,
            name: match single {
                true => "samples".to_owned(),
                false => format!("samples:{name}"),
            },
            unit: "count",
        });
        if source.event(*index).weighs_events() {
            values.push(SampleValue {
                event,
                is_weight: true,
                name,
                unit: match source.is_clock(*index) {
                    true => "nanoseconds",
                    false => "count",
                },
            });
        }
    }
    values
}
