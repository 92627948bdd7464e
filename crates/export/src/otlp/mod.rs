//! OpenTelemetry's profiles (`v1development`): a protocol buffer that a collector takes as it is.
//!
//! The file is an `ExportProfilesServiceRequest`, which has the same fields as `ProfilesData`. A profile of the format has
//! one kind of value. Where the wall clock is known, an event is one profile, in which each sample states its weight
//! and its time. Elsewhere an event is two profiles of sums: numbers of samples and weights.
//!
//! A file has no limit. Collectors take requests of some MiB, so [`otlp_requests`] divides a profile into several.

mod dictionary;
#[cfg(feature = "push")]
pub(crate) mod push;
pub(crate) mod requests;
pub(crate) mod tables;

use crate::error::ExportError;
use crate::exported::{EventTotal, Exported};
use crate::lost::{Lost, LostKind, lost, number};
use crate::sample_values::{SampleValue, sample_values};
use crate::source::Source;
use dictionary::Dictionary;
use dioptra_profile::{SampleKeyId, StackId};
use requests::{ProfileHead, Requests, TakeRequest, TimedValue, architecture, resource};
use std::io::Write;

/// The kinds of data that the format has no place for.
const NO_PLACE: &[LostKind] = &[LostKind::Branches];

/// Writes all events as OpenTelemetry's profiles. `service` is the value of the attribute `service.name`.
///
/// # Errors
/// There is no event, the profile has no stacks, or writing failed.
pub fn write_otlp(
    source: &Source<'_>,
    service: Option<&str>,
    out: &mut dyn Write,
) -> Result<Exported, ExportError> {
    otlp_requests(source, service, usize::MAX, &mut |request| {
        out.write_all(&request.body)?;
        Ok(())
    })
}

/// Hands all events to `take`, in requests of at most `limit` bytes. A request with a single value may be larger, if its
/// stack needs more.
///
/// # Errors
/// There is no event, the profile has no stacks, or `take` failed.
pub fn otlp_requests<'a>(
    source: &'a Source<'a>,
    service: Option<&str>,
    limit: usize,
    take: &'a mut TakeRequest<'a>,
) -> Result<Exported, ExportError> {
    source.first_event()?;
    let origin = source.origin;
    let resource = resource(&[
        ("service.name", service),
        ("host.name", origin.hostname.as_deref()),
        ("host.arch", origin.arch.as_deref().map(architecture)),
        ("os.type", Some("linux")),
        ("os.version", origin.os_release.as_deref()),
    ]);
    let has_times = source.profile.has_times() && source.wall_clock(0).is_some();
    let requests = Requests::new(Dictionary::new(source), resource, has_times, limit, take);
    let mut writer = Writer {
        source,
        has_times,
        requests,
    };
    let totals = writer.profiles()?;
    let cut = writer.requests.finish()?;
    let mut lost = lost(source, source.events, NO_PLACE);
    if source.profile.has_times() && !has_times {
        lost.extend(crate::lost::lost(source, source.events, &[LostKind::Times]));
    }
    if cut > 0 {
        lost.push(Lost {
            kind: LostKind::LargeValues,
            count: cut,
        });
    }
    Ok(Exported { totals, lost })
}

/// A sample with its time on the wall clock, or the sum of all samples of a stack and a sample key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Observation {
    stack: StackId,
    sample_key: SampleKeyId,
    /// Nanoseconds since 1970; 0 in sums.
    time: u64,
    value: u64,
}

struct Writer<'a> {
    source: &'a Source<'a>,
    /// Whether samples have a time on the wall clock.
    has_times: bool,
    requests: Requests<'a, Dictionary<'a>>,
}

impl Writer<'_> {
    /// Writes the profiles of all events.
    fn profiles(&mut self) -> Result<Vec<EventTotal>, ExportError> {
        let values = sample_values(self.source);
        let mut totals = Vec::new();
        for (event, index) in (0_u32..).zip(self.source.events) {
            let of_event = || values.iter().filter(|value| value.event == event);
            let mut total = EventTotal {
                event: *index,
                ..EventTotal::default()
            };
            if self.has_times {
                // The weight is last, if the event has one.
                if let Some(value) = of_event().next_back() {
                    let observations = self.timed(*index);
                    total.samples = Some(number(observations.len()));
                    if value.is_weight {
                        total.weight = Some(sum(&observations));
                    }
                    self.profile(*index, value, &observations)?;
                }
            } else {
                for value in of_event() {
                    let observations = self.sums(*index, value);
                    match value.is_weight {
                        true => total.weight = Some(sum(&observations)),
                        false => total.samples = Some(sum(&observations)),
                    }
                    self.profile(*index, value, &observations)?;
                }
            }
            totals.push(total);
        }
        Ok(totals)
    }

    /// Returns the samples of an event in the order of stacks, sample keys and times.
    fn timed(&self, index: usize) -> Vec<Observation> {
        let source = self.source;
        let mut all = Vec::new();
        source.event(index).samples(|sample| {
            let time = source.wall_clock(sample.elapsed.unwrap_or(0));
            all.push(Observation {
                stack: sample.place,
                sample_key: sample.sample_key,
                time: time.unwrap_or(0),
                value: sample.weight,
            });
        });
        all.sort_unstable();
        all
    }

    /// Returns the sums of one value of an event in the order of stacks and sample keys.
    fn sums(&self, index: usize, value: &SampleValue) -> Vec<Observation> {
        let counts = self.source.stack_counts(&[index]);
        let sums = counts.iter().map(|count| Observation {
            stack: count.stack,
            sample_key: count.sample_key,
            time: 0,
            value: value.of(count),
        });
        sums.collect()
    }

    /// Writes a profile, whose observations are in the order of stacks and sample keys.
    fn profile(
        &mut self,
        index: usize,
        value: &SampleValue,
        observations: &[Observation],
    ) -> Result<(), ExportError> {
        let span = self.source.span(&[index]);
        let period = self.source.period(index).map(|(period, unit)| {
            let name = self.source.event(index).name().to_owned();
            (name, unit, period)
        });
        self.requests.begin(ProfileHead {
            name: value.name.clone(),
            unit: value.unit,
            start: span.start,
            duration: match observations.is_empty() {
                true => 0,
                // The last sample's time lies within the duration.
                false => span.duration.saturating_add(1),
            },
            period,
        });
        let mut values = Vec::new();
        for same in observations
            .chunk_by(|one, other| (one.stack, one.sample_key) == (other.stack, other.sample_key))
        {
            values.clear();
            values.extend(same.iter().map(|observation| TimedValue {
                value: observation.value,
                time: observation.time,
            }));
            let (stack, key) = (same[0].stack, same[0].sample_key);
            self.requests
                .sample(stack as usize, key as usize, &values)?;
        }
        Ok(())
    }
}

fn sum(observations: &[Observation]) -> u64 {
    let values = observations.iter().map(|observation| observation.value);
    values.fold(0, u64::saturating_add)
}
