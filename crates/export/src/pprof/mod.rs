//! pprof's profile: a protocol buffer, compressed with gzip.
//!
//! Each event has two sample types: the number of samples and, where samples state it, the weight. A sample of the
//! format is a stack and a sample key (thread, name, CPU) with the values of all events.

use crate::error::ExportError;
use crate::exported::{EventTotal, Exported};
use crate::labels::Labels;
use crate::lost::{Lost, LostKind, lost};
use crate::mappings::{Mappings, file_name};
use crate::protobuf::Message;
use crate::sample_values::{SampleValue, sample_values};
use crate::source::Source;
use crate::stack_calls::StackFrame;
use crate::strings::Strings;
use dioptra_profile::{FrameId, FunctionId, SampleKeyId};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;

/// The kinds of data that the format has no place for.
const NO_PLACE: &[LostKind] = &[LostKind::Times, LostKind::Branches];

/// The numbers of the fields of `perftools.profiles.Profile`.
pub(crate) mod profile_field {
    pub const SAMPLE_TYPE: u64 = 1;
    pub const SAMPLE: u64 = 2;
    pub const MAPPING: u64 = 3;
    pub const LOCATION: u64 = 4;
    pub const FUNCTION: u64 = 5;
    pub const STRING_TABLE: u64 = 6;
    pub const TIME_NANOS: u64 = 9;
    pub const DURATION_NANOS: u64 = 10;
    pub const PERIOD_TYPE: u64 = 11;
    pub const PERIOD: u64 = 12;
    pub const COMMENT: u64 = 13;
    pub const DEFAULT_SAMPLE_TYPE: u64 = 14;
}

/// Writes all events as a pprof profile, compressed with gzip. `comments` become the profile's comments, which
/// `pprof -comments` shows.
///
/// # Errors
/// There is no event, the profile has no stacks, or writing failed.
pub fn write_pprof(
    source: &Source<'_>,
    comments: &[String],
    out: &mut dyn Write,
) -> Result<Exported, ExportError> {
    source.first_event()?;
    let mut gzip = GzEncoder::new(out, Compression::default());
    let exported = Encoder::new(source, &mut gzip).encode(comments)?;
    gzip.finish()?;
    Ok(exported)
}

struct Encoder<'a, 'o> {
    source: &'a Source<'a>,
    out: &'o mut dyn Write,
    strings: Strings,
    labels: Labels,
    types: Vec<SampleValue>,
    /// By frame, for frames that executed and for frames that called: the location's id, or 0.
    locations: [Vec<u64>; 2],
    next_location: u64,
    /// By function: the function's id, or 0.
    functions: Vec<u64>,
    next_function: u64,
    mappings: Mappings,
    cut: u64,
    /// Messages that are used again and again.
    field: Message,
    inner: Message,
    room: Message,
}

impl<'a, 'o> Encoder<'a, 'o> {
    fn new(source: &'a Source<'a>, out: &'o mut dyn Write) -> Self {
        let frames = source.profile.frames().len();
        Encoder {
            source,
            out,
            strings: Strings::default(),
            labels: Labels::new(source),
            types: sample_values(source),
            locations: [vec![0; frames], vec![0; frames]],
            next_location: 1,
            functions: vec![0; source.names.functions().len()],
            next_function: 1,
            mappings: Mappings::of(source),
            cut: 0,
            field: Message::default(),
            inner: Message::default(),
            room: Message::default(),
        }
    }

    fn encode(mut self, comments: &[String]) -> Result<Exported, ExportError> {
        self.head(comments)?;
        let totals = self.samples()?;
        self.modules()?;
        self.string_table()?;
        let mut lost = lost(self.source, self.source.events, NO_PLACE);
        if self.cut > 0 {
            lost.push(Lost {
                kind: LostKind::LargeValues,
                count: self.cut,
            });
        }
        Ok(Exported { totals, lost })
    }

    /// Writes a field of the profile that is a message: `field` is the message.
    fn write(&mut self, number: u64) -> Result<(), ExportError> {
        self.inner.clear();
        self.inner.message(number, &self.field);
        self.out.write_all(self.inner.bytes())?;
        self.field.clear();
        Ok(())
    }

    /// Makes `field` the pair of a type and its unit.
    fn value_type(&mut self, name: &str, unit: &str) {
        self.field.clear();
        let name = self.strings.id(name.as_bytes());
        let unit = self.strings.id(unit.as_bytes());
        self.field.number(1, name);
        self.field.number(2, unit);
    }

    fn head(&mut self, comments: &[String]) -> Result<(), ExportError> {
        let types = std::mem::take(&mut self.types);
        for sample_type in &types {
            self.value_type(&sample_type.name, sample_type.unit);
            self.write(profile_field::SAMPLE_TYPE)?;
        }
        let mut numbers = Message::default();
        // The first event's weight, or its samples.
        let default = match types.get(1) {
            Some(second) if second.event == 0 => second,
            _ => &types[0],
        };
        let id = self.strings.id(default.name.as_bytes());
        numbers.number(profile_field::DEFAULT_SAMPLE_TYPE, id);
        let first = self.source.events.first();
        if let Some((period, unit)) = first.and_then(|first| self.source.period(*first)) {
            let name = self.source.event_names().swap_remove(0);
            self.value_type(&name, unit);
            self.write(profile_field::PERIOD_TYPE)?;
            numbers.number(profile_field::PERIOD, period);
        }
        let span = self.source.span(self.source.events);
        numbers.number(profile_field::TIME_NANOS, span.start.unwrap_or(0));
        numbers.number(profile_field::DURATION_NANOS, span.duration);
        for comment in comments {
            let id = self.strings.id(comment.as_bytes());
            numbers.number(profile_field::COMMENT, id);
        }
        self.out.write_all(numbers.bytes())?;
        self.types = types;
        Ok(())
    }

    /// Writes all samples, and the locations and functions that they meet.
    fn samples(&mut self) -> Result<Vec<EventTotal>, ExportError> {
        let source = self.source;
        let events = source.events.iter();
        let mut totals: Vec<EventTotal> = events
            .map(|event| EventTotal {
                event: *event,
                ..EventTotal::default()
            })
            .collect();
        for sample_type in &self.types {
            let total = &mut totals[sample_type.event as usize];
            match sample_type.is_weight {
                true => total.weight = Some(0),
                false => total.samples = Some(0),
            }
        }
        let counts = source.stack_counts(source.events);
        let mut locations: Vec<u64> = Vec::new();
        let mut values = vec![0; self.types.len()];
        for same in counts
            .chunk_by(|one, other| (one.stack, one.sample_key) == (other.stack, other.sample_key))
        {
            locations.clear();
            for frame in source.stack_frames(same[0].stack) {
                locations.push(self.location(&frame)?);
            }
            for (value, sample_type) in values.iter_mut().zip(&self.types) {
                let of_event = same.iter().filter(|count| count.event == sample_type.event);
                *value = of_event.map(|count| sample_type.of(count)).sum();
                let total = &mut totals[sample_type.event as usize];
                match sample_type.is_weight {
                    true => total.add_weight(*value),
                    false => total.add_samples(*value),
                }
                if i64::try_from(*value).is_err() {
                    *value = i64::MAX.unsigned_abs();
                    self.cut += 1;
                }
            }
            self.field.clear();
            self.field
                .packed(1, locations.iter().copied(), &mut self.room);
            self.field.packed(2, values.iter().copied(), &mut self.room);
            self.sample_labels(same[0].sample_key);
            self.write(profile_field::SAMPLE)?;
        }
        Ok(totals)
    }

    /// Adds the labels of a sample key to `field`. All are texts: pprof's tools drop a number that is zero.
    fn sample_labels(&mut self, sample_key: SampleKeyId) {
        let source = self.source;
        let key = source.profile.sample_keys().get(sample_key);
        let mut labels: Vec<(&str, String)> = Vec::new();
        if let Some(thread) = key.thread {
            let tasks = source.profile.tasks();
            let thread = &tasks.threads()[thread as usize];
            let comm = tasks.comm_of(key);
            labels.push(("thread", format!("{comm} ({})", thread.tid)));
            labels.push(("comm", comm));
            let pid = tasks.processes()[thread.process as usize].pid;
            if pid != u32::MAX {
                labels.push(("pid", pid.to_string()));
            }
            labels.push(("tid", thread.tid.to_string()));
        }
        if let Some(cpu) = key.cpu {
            labels.push(("cpu", cpu.to_string()));
        }
        for (name, text) in labels {
            self.inner.clear();
            self.inner.number(1, self.strings.id(name.as_bytes()));
            self.inner.number(2, self.strings.id(text.as_bytes()));
            self.field.message(3, &self.inner);
        }
    }

    /// Returns the id of a location, which is written when it is met first.
    fn location(&mut self, frame: &StackFrame<'_>) -> Result<u64, ExportError> {
        let role = usize::from(frame.is_caller);
        let known = self.locations[role][frame.frame as usize];
        if known != 0 {
            return Ok(known);
        }
        let id = self.next_location;
        self.next_location += 1;
        self.locations[role][frame.frame as usize] = id;
        let source = self.source;
        let mut lines = Vec::with_capacity(frame.functions.len());
        for (place, function) in frame.functions.iter().enumerate() {
            let line = frame.line(source, place);
            let file = line.map_or("", |(file, _)| file);
            let number = line.and_then(|(_, number)| number).unwrap_or(0);
            lines.push((self.function(*function, file)?, number));
        }
        let (mapping, address) = self.mapped(frame.frame);
        self.field.clear();
        self.field.number(1, id);
        self.field.number(2, mapping);
        self.field.number(3, address);
        for (function, line) in lines {
            self.inner.clear();
            self.inner.number(1, function);
            self.inner.number(2, u64::from(line));
            self.field.message(4, &self.inner);
        }
        self.write(profile_field::LOCATION)?;
        Ok(id)
    }

    /// Returns the id of a frame's mapping and the frame's address.
    fn mapped(&mut self, frame: FrameId) -> (u64, u64) {
        let frame = self.source.profile.frames().get(frame);
        self.mappings.address(frame)
    }

    /// Returns the id of a function, which is written when it is met first, with the file in which it was met.
    fn function(&mut self, function: FunctionId, file: &str) -> Result<u64, ExportError> {
        let known = self.functions[function as usize];
        if known != 0 {
            return Ok(known);
        }
        let id = self.next_function;
        self.next_function += 1;
        self.functions[function as usize] = id;
        let name = self.labels.of(self.source, function);
        let name = self.strings.id(name.as_bytes());
        let file = self.strings.id(file.as_bytes());
        self.field.clear();
        self.field.number(1, id);
        self.field.number(2, name);
        self.field.number(3, name);
        self.field.number(4, file);
        self.write(profile_field::FUNCTION)?;
        Ok(id)
    }

    /// Writes the mappings of all modules that locations lie in.
    fn modules(&mut self) -> Result<(), ExportError> {
        let source = self.source;
        let has_lines = source.names.has_lines();
        for mapping in self.mappings.used() {
            let module = source.profile.modules().get(mapping.module);
            let build_id = module.build_id.iter().flatten();
            let build_id: String = build_id.map(|byte| format!("{byte:02x}")).collect();
            self.field.clear();
            self.field.number(1, mapping.id);
            self.field.number(2, mapping.start);
            self.field.number(3, mapping.end);
            self.field.number(4, mapping.offset);
            self.field.number(5, self.strings.id(file_name(module)));
            self.field.number(6, self.strings.id(build_id.as_bytes()));
            // Names were looked for already, with more sources than pprof has.
            self.field.flag(7, true);
            self.field.flag(8, has_lines);
            self.field.flag(9, has_lines);
            self.field.flag(10, source.names.has_inlined());
            self.write(profile_field::MAPPING)?;
        }
        Ok(())
    }

    fn string_table(&mut self) -> Result<(), ExportError> {
        let strings = std::mem::take(&mut self.strings);
        for text in strings.in_order() {
            self.inner.clear();
            self.inner.text(profile_field::STRING_TABLE, &text);
            self.out.write_all(self.inner.bytes())?;
        }
        Ok(())
    }
}
