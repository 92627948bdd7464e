//! The result of an export.

use crate::error::ExportError;
use crate::lost::Lost;
use dioptra_profile::{Count, Profile};

/// The sums of the values that were written for one event, or counted as [`crate::LostKind::Undescribed`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventTotal {
    /// The event, as an index of [`Profile::events`].
    pub event: usize,
    /// The sum of the written numbers of samples; `None` where the format does not hold them.
    pub samples: Option<u64>,
    /// The sum of the written weights; `None` where the format does not hold them.
    pub weight: Option<u64>,
}

/// The result of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "show what was lost, and check the totals"]
pub struct Exported {
    /// The sums of the written values, for each written event.
    pub totals: Vec<EventTotal>,
    /// The parts of the profile that the format has no place for.
    pub lost: Vec<Lost>,
}

impl EventTotal {
    /// Adds a written number of samples.
    pub(crate) fn add_samples(&mut self, samples: u64) {
        let sum = self.samples.unwrap_or(0);
        self.samples = Some(sum.saturating_add(samples));
    }

    /// Adds a written weight.
    pub(crate) fn add_weight(&mut self, weight: u64) {
        let sum = self.weight.unwrap_or(0);
        self.weight = Some(sum.saturating_add(weight));
    }

    /// Adds the value of a count that was written.
    pub(crate) fn add(&mut self, value: crate::Value, count: Count) {
        match value {
            crate::Value::Samples => self.add_samples(count.samples),
            crate::Value::Weight => self.add_weight(count.weight),
        }
    }
}

impl Exported {
    /// Checks that the written values add up to the profile's totals.
    ///
    /// # Errors
    /// [`ExportError::Total`] for the first sum that differs.
    pub fn check(&self, profile: &Profile) -> Result<(), ExportError> {
        for total in &self.totals {
            let event = &profile.events()[total.event];
            let sums = [
                ("samples", total.samples, event.total().samples),
                ("weights", total.weight, event.total().weight),
            ];
            for (value, written, total) in sums {
                if let Some(written) = written
                    && written != total
                {
                    return Err(ExportError::Total {
                        event: event.name().to_owned(),
                        value,
                        written,
                        total,
                    });
                }
            }
        }
        Ok(())
    }
}
