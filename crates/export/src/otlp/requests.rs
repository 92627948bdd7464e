//! Requests: profiles with the tables that they refer to, each of a bounded size.
//!
//! Tables belong to a request, so a profile that is too large for one becomes several profiles, each with its own tables.

use super::tables::{Mark, Tables, any_text};
use crate::error::ExportError;
use crate::protobuf::Message;
use sha2::{Digest, Sha256};

/// The fields of `Profile`.
mod profile_field {
    pub const SAMPLE_TYPE: u64 = 1;
    pub const SAMPLES: u64 = 2;
    pub const TIME: u64 = 3;
    pub const DURATION: u64 = 4;
    pub const PERIOD_TYPE: u64 = 5;
    pub const PERIOD: u64 = 6;
    pub const PROFILE_ID: u64 = 7;
}

/// The number of bytes of a profile's id.
const ID_SIZE: usize = 16;

/// The most bytes of a sample beside its attributes, values and times, with the tags and lengths of its fields.
const SAMPLE_SIZE: usize = 40;
/// The most bytes of an attribute's number.
const ATTRIBUTE_SIZE: usize = 5;
/// The most bytes of a value and its time. Values have 63 bits.
const VALUE_SIZE: usize = 9 + 8;
/// The most bytes of a profile beside its samples, and of the messages around profiles.
const HEAD_SIZE: usize = 256;

/// An `ExportProfilesServiceRequest`, which has the same fields as `ProfilesData`.
#[derive(Clone, Debug)]
pub struct OtlpRequest {
    /// The encoded message.
    pub body: Vec<u8>,
    /// The number of values in all profiles: of samples with their times, or of sums.
    pub values: u64,
    /// The number of profiles.
    pub profiles: u64,
}

/// The receiver of requests.
pub type TakeRequest<'a> = dyn FnMut(OtlpRequest) -> Result<(), ExportError> + 'a;

/// The source of a request's table entries. It remembers their numbers.
pub(crate) trait Descriptions {
    /// Returns the number of a stack.
    fn stack(&mut self, tables: &mut Tables, stack: usize) -> u64;
    /// Returns the numbers of a sample's attributes.
    fn attributes(&mut self, tables: &mut Tables, key: usize) -> Vec<u64>;
    /// Forgets all numbers, because the tables are new ones.
    fn forget(&mut self);
}

/// A profile's kind of values, and its time.
#[derive(Clone, Debug)]
pub(crate) struct ProfileHead {
    pub name: String,
    pub unit: &'static str,
    /// Nanoseconds since 1970, if known.
    pub start: Option<u64>,
    /// Nanoseconds.
    pub duration: u64,
    /// The name, unit and size of the period.
    pub period: Option<(String, &'static str, u64)>,
}

/// A value, and its time in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimedValue {
    pub value: u64,
    pub time: u64,
}

/// The writer of requests.
pub(crate) struct Requests<'a, D> {
    descriptions: D,
    tables: Tables,
    resource: Message,
    /// Whether samples have times.
    has_times: bool,
    /// The most bytes of a request. Only one with a single value may be larger.
    limit: usize,
    take: &'a mut TakeRequest<'a>,
    /// The ended profiles of this request.
    ended: Vec<Message>,
    ended_size: usize,
    /// The profile that goes on.
    head: Option<ProfileHead>,
    profile: Message,
    /// The number of values in this request.
    values: u64,
    /// The number of values beyond the largest one of the format.
    cut: u64,
    /// Messages that are used again and again.
    field: Message,
    room: Message,
}

/// Returns a resource with these attributes.
pub(crate) fn resource(attributes: &[(&str, Option<&str>)]) -> Message {
    let mut resource = Message::default();
    let mut field = Message::default();
    for (key, value) in attributes {
        let Some(value) = value else {
            continue;
        };
        field.clear();
        field.text(1, key.as_bytes());
        field.message(2, &any_text(value));
        resource.message(1, &field);
    }
    resource
}

/// Returns OpenTelemetry's name of an architecture.
pub(crate) fn architecture(name: &str) -> &str {
    match name {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

impl<'a, D: Descriptions> Requests<'a, D> {
    pub(crate) fn new(
        descriptions: D,
        resource: Message,
        has_times: bool,
        limit: usize,
        take: &'a mut TakeRequest<'a>,
    ) -> Requests<'a, D> {
        Requests {
            descriptions,
            tables: Tables::default(),
            resource,
            has_times,
            limit,
            take,
            ended: Vec::new(),
            ended_size: 0,
            head: None,
            profile: Message::default(),
            values: 0,
            cut: 0,
            field: Message::default(),
            room: Message::default(),
        }
    }

    /// Begins a profile, and ends the one before.
    pub(crate) fn begin(&mut self, head: ProfileHead) {
        self.end();
        self.write_head(&head);
        self.head = Some(head);
    }

    /// Makes `field` the pair of a name and its unit.
    fn value_type(&mut self, name: &str, unit: &str) {
        self.field.clear();
        let name = self.tables.string(name);
        let unit = self.tables.string(unit);
        self.field.number(1, name);
        self.field.number(2, unit);
    }

    fn write_head(&mut self, head: &ProfileHead) {
        self.value_type(&head.name, head.unit);
        self.profile
            .message(profile_field::SAMPLE_TYPE, &self.field);
        if let Some(start) = head.start {
            self.profile.fixed(profile_field::TIME, start);
        }
        self.profile.number(profile_field::DURATION, head.duration);
        if let Some((name, unit, period)) = &head.period {
            self.value_type(name, unit);
            self.profile
                .message(profile_field::PERIOD_TYPE, &self.field);
            let period = (*period).min(i64::MAX.unsigned_abs());
            self.profile.number(profile_field::PERIOD, period);
        }
    }

    /// Ends the profile that goes on.
    fn end(&mut self) {
        if self.head.take().is_some() {
            let profile = std::mem::take(&mut self.profile);
            self.ended_size += profile.bytes().len() + HEAD_SIZE;
            self.ended.push(profile);
        }
    }

    /// Returns the number of bytes that this request has, at most.
    fn size(&self) -> usize {
        HEAD_SIZE * 2
            + self.resource.bytes().len()
            + self.ended_size
            + self.profile.bytes().len()
            + self.tables.encoded()
    }

    /// Adds the values of a stack with its attributes. They are divided between requests where they are too many for one.
    pub(crate) fn sample(
        &mut self,
        stack: usize,
        key: usize,
        values: &[TimedValue],
    ) -> Result<(), ExportError> {
        let mut rest = values;
        while !rest.is_empty() {
            let mark = self.tables.mark();
            let stack_id = self.descriptions.stack(&mut self.tables, stack);
            let attributes = self.descriptions.attributes(&mut self.tables, key);
            let used = self.size() + SAMPLE_SIZE + attributes.len() * ATTRIBUTE_SIZE;
            let room = self.limit.saturating_sub(used) / VALUE_SIZE;
            if room == 0 && self.values > 0 {
                self.send(mark)?;
                continue;
            }
            let (now, later) = rest.split_at(room.clamp(1, rest.len()));
            self.write_sample(stack_id, &attributes, now);
            rest = later;
            if !rest.is_empty() {
                // Samples of one stack with the same attributes must be one in a profile.
                self.send(self.tables.mark())?;
            }
        }
        Ok(())
    }

    fn write_sample(&mut self, stack: u64, attributes: &[u64], values: &[TimedValue]) {
        let largest = i64::MAX.unsigned_abs();
        let cut = values.iter().filter(|value| value.value > largest);
        self.cut += cut.count() as u64;
        self.values += values.len() as u64;
        let (field, room) = (&mut self.field, &mut self.room);
        field.clear();
        field.number(1, stack);
        field.packed(2, attributes.iter().copied(), room);
        let numbers = values.iter().map(|value| value.value.min(largest));
        field.packed(4, numbers, room);
        if self.has_times {
            let times: Vec<u64> = values.iter().map(|value| value.time).collect();
            field.packed_fixed(5, &times);
        }
        self.profile.message(profile_field::SAMPLES, field);
    }

    /// Hands this request over with the table entries before the mark, and begins the next one.
    fn send(&mut self, mark: Mark) -> Result<(), ExportError> {
        let head = self.head.clone();
        self.end();
        self.hand_over(mark)?;
        if let Some(head) = head {
            self.begin(head);
        }
        Ok(())
    }

    fn hand_over(&mut self, mark: Mark) -> Result<(), ExportError> {
        let dictionary = std::mem::take(&mut self.tables).encode(mark);
        self.descriptions.forget();
        self.field.clear();
        self.field.text(1, b"dioptra");
        self.field.text(2, env!("CARGO_PKG_VERSION").as_bytes());
        let mut scope = Message::default();
        scope.message(1, &self.field);
        let of_request = Sha256::new()
            .chain_update(self.resource.bytes())
            .chain_update(dictionary.bytes());
        let profiles = self.ended.len() as u64;
        for (place, mut profile) in (0_u64..).zip(std::mem::take(&mut self.ended)) {
            // A receiver that gets a request twice, since an answer was lost, knows its profiles by their ids.
            let id = of_request.clone().chain_update(place.to_le_bytes());
            let id = id.chain_update(profile.bytes()).finalize();
            profile.text(profile_field::PROFILE_ID, &id[..ID_SIZE]);
            scope.message(2, &profile);
        }
        self.ended_size = 0;
        let mut of_resource = Message::default();
        of_resource.message(1, &self.resource);
        of_resource.message(2, &scope);
        drop(scope);
        let mut body = Message::default();
        body.message(1, &of_resource);
        drop(of_resource);
        body.message(2, &dictionary);
        (self.take)(OtlpRequest {
            body: body.into_bytes(),
            values: std::mem::take(&mut self.values),
            profiles,
        })
    }

    /// Hands the last request over. Returns the number of values that were cut.
    pub(crate) fn finish(mut self) -> Result<u64, ExportError> {
        self.end();
        if !self.ended.is_empty() {
            self.hand_over(self.tables.mark())?;
        }
        Ok(self.cut)
    }
}
