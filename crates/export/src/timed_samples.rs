//! The samples of all exported events in the order of time.

use crate::error::ExportError;
use crate::source::Source;
use dioptra_profile::LoggedSample;

/// A sample of an exported event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimedSample {
    /// The event's place in [`Source::events`].
    pub event: usize,
    pub sample: LoggedSample,
}

impl Source<'_> {
    /// Returns the samples of all exported events in the order of time. Samples of the same time keep the order of
    /// their events.
    ///
    /// # Errors
    /// The profile's samples have no times.
    pub(crate) fn timed_samples(&self) -> Result<Vec<TimedSample>, ExportError> {
        if !self.profile.has_times() {
            return Err(ExportError::NoTimes);
        }
        let mut samples = Vec::new();
        for (event, index) in self.events.iter().enumerate() {
            self.event(*index)
                .samples(|sample| samples.push(TimedSample { event, sample }));
        }
        samples.sort_by_key(|timed| timed.sample.elapsed);
        Ok(samples)
    }
}
