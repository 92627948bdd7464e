//! OpenTelemetry's profiles (`v1development`): a protocol buffer that a collector takes as it is.
//!
//! The file is an `ExportProfilesServiceRequest`, which has the same fields as `ProfilesData`. A profile of the format has
//! one kind of value. Where the wall clock is known, an event is one profile, in which each sample states its weight
//! and its time. Elsewhere an event is two profiles of sums: numbers of samples and weights.

mod dictionary;

use crate::error::ExportError;
use crate::exported::{EventTotal, Exported};
use crate::lost::{Lost, LostKind, lost, number};
use crate::protobuf::Message;
use crate::sample_values::{SampleValue, sample_values};
use crate::source::Source;
use dictionary::{Dictionary, any_text};
use dioptra_profile::{SampleKeyId, StackId};
use std::io::Write;

/// The kinds of data that the format has no place for.
const NO_PLACE: &[LostKind] = &[LostKind::Branches];

/// The fields of `Profile`.
mod profile_field {
    pub const SAMPLE_TYPE: u64 = 1;
    pub const SAMPLES: u64 = 2;
    pub const TIME: u64 = 3;
    pub const DURATION: u64 = 4;
    pub const PERIOD_TYPE: u64 = 5;
    pub const PERIOD: u64 = 6;
}

/// Writes all events as OpenTelemetry's profiles.
///
/// # Errors
/// There is no event, the profile has no stacks, or writing failed.
pub fn write_otlp(source: &Source<'_>, out: &mut dyn Write) -> Result<Exported, ExportError> {
    source.first_event()?;
    let mut encoder = Encoder {
        source,
        dictionary: Dictionary::new(source),
        has_times: source.profile.has_times() && source.wall_clock(0).is_some(),
        scope: Message::default(),
        profile: Message::default(),
        field: Message::default(),
        room: Message::default(),
        cut: 0,
    };
    let totals = encoder.profiles();
    let (has_times, cut) = (encoder.has_times, encoder.cut);
    encoder.write(out)?;
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

struct Encoder<'a> {
    source: &'a Source<'a>,
    dictionary: Dictionary<'a>,
    /// Whether samples have a time on the wall clock.
    has_times: bool,
    /// `ScopeProfiles`.
    scope: Message,
    profile: Message,
    /// Messages that are used again and again.
    field: Message,
    room: Message,
    /// The number of values beyond the largest one of the format.
    cut: u64,
}

impl Encoder<'_> {
    /// Encodes the profiles of all events.
    fn profiles(&mut self) -> Vec<EventTotal> {
        self.field.clear();
        self.field.text(1, b"dioptra");
        self.field.text(2, env!("CARGO_PKG_VERSION").as_bytes());
        self.scope.message(1, &self.field);
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
                    self.profile(*index, value, &observations);
                }
            } else {
                for value in of_event() {
                    let observations = self.sums(*index, value);
                    match value.is_weight {
                        true => total.weight = Some(sum(&observations)),
                        false => total.samples = Some(sum(&observations)),
                    }
                    self.profile(*index, value, &observations);
                }
            }
            totals.push(total);
        }
        totals
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

    /// Makes `field` the pair of a name and its unit.
    fn value_type(&mut self, name: &str, unit: &str) {
        self.field.clear();
        let name = self.dictionary.string(name);
        let unit = self.dictionary.string(unit);
        self.field.number(1, name);
        self.field.number(2, unit);
    }

    /// Encodes a profile, whose observations are in the order of stacks and sample keys.
    fn profile(&mut self, index: usize, value: &SampleValue, observations: &[Observation]) {
        self.profile.clear();
        self.value_type(&value.name, value.unit);
        self.profile
            .message(profile_field::SAMPLE_TYPE, &self.field);
        let mut values = Vec::new();
        let mut times = Vec::new();
        for same in observations
            .chunk_by(|one, other| (one.stack, one.sample_key) == (other.stack, other.sample_key))
        {
            values.clear();
            times.clear();
            for observation in same {
                let largest = i64::MAX.unsigned_abs();
                self.cut += u64::from(observation.value > largest);
                values.push(observation.value.min(largest));
                if self.has_times {
                    times.push(observation.time);
                }
            }
            let stack = self.dictionary.stack(same[0].stack);
            let attributes = self.dictionary.sample_key(same[0].sample_key);
            let field = &mut self.field;
            field.clear();
            field.number(1, stack);
            field.packed(2, attributes.iter().copied(), &mut self.room);
            field.packed(4, values.iter().copied(), &mut self.room);
            field.packed_fixed(5, &times);
            self.profile.message(profile_field::SAMPLES, field);
        }
        let span = self.source.span(&[index]);
        if let Some(start) = span.start {
            self.profile.fixed(profile_field::TIME, start);
        }
        if !observations.is_empty() {
            // The last sample's time lies within the duration.
            let duration = span.duration.saturating_add(1);
            self.profile.number(profile_field::DURATION, duration);
        }
        if let Some((period, unit)) = self.source.period(index) {
            let name = self.source.event(index).name();
            self.value_type(name, unit);
            self.profile
                .message(profile_field::PERIOD_TYPE, &self.field);
            let period = period.min(i64::MAX.unsigned_abs());
            self.profile.number(profile_field::PERIOD, period);
        }
        self.scope.message(2, &self.profile);
    }

    /// Writes the resource with its profiles, then the dictionary.
    fn write(mut self, out: &mut dyn Write) -> Result<(), ExportError> {
        let origin = self.source.origin;
        let arch = origin.arch.as_deref().map(|arch| match arch {
            // The names of OpenTelemetry's conventions.
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        });
        let attributes = [
            ("host.name", origin.hostname.as_deref()),
            ("host.arch", arch),
            ("os.type", Some("linux")),
            ("os.version", origin.os_release.as_deref()),
        ];
        let mut resource = Message::default();
        for (key, value) in attributes {
            let Some(value) = value else {
                continue;
            };
            self.field.clear();
            self.field.text(1, key.as_bytes());
            self.field.message(2, &any_text(value));
            resource.message(1, &self.field);
        }
        let mut profiles = self.profile;
        profiles.clear();
        profiles.message(1, &resource);
        profiles.message(2, &self.scope);
        drop(self.scope);
        let mut file = Message::default();
        file.message(1, &profiles);
        out.write_all(file.bytes())?;
        file.clear();
        file.message(2, &self.dictionary.encode());
        out.write_all(file.bytes())?;
        Ok(())
    }
}

fn sum(observations: &[Observation]) -> u64 {
    let values = observations.iter().map(|observation| observation.value);
    values.fold(0, u64::saturating_add)
}
