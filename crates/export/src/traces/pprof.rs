//! Call paths as a pprof profile: numbers of calls and self times, by thread.

use super::addresses::ModulePlaces;
use super::paths::{PathFunction, ThreadPaths, TracePaths, Written};
use super::{ExportedTrace, TraceSource};
use crate::error::ExportError;
use crate::lost::{Lost, LostKind};
use crate::pprof::profile_field;
use crate::protobuf::Message;
use crate::strings::Strings;
use flate2::Compression;
use flate2::write::GzEncoder;
use hashbrown::HashMap;
use std::borrow::Cow;
use std::io::Write;

/// The kinds of data that the format has no place for.
const NO_PLACE: &[LostKind] = &[LostKind::CallMoments, LostKind::OpenMarks];

/// Writes call paths as a pprof profile, compressed with gzip. `comments` become the profile's comments.
///
/// # Errors
/// Writing failed.
pub fn write_trace_pprof(
    source: &TraceSource<'_, '_>,
    comments: &[String],
    out: &mut dyn Write,
) -> Result<ExportedTrace, ExportError> {
    let paths = TracePaths::of(source);
    let functions = paths.functions();
    let sources = source.names.sources(&functions);
    let places = ModulePlaces::of(source, &functions);
    let mut gzip = GzEncoder::new(out, Compression::default());
    let mut encoder = Encoder {
        source,
        paths: &paths,
        out: &mut gzip,
        sources: functions
            .into_iter()
            .zip(sources)
            .filter_map(|(function, place)| Some((function, place?)))
            .collect(),
        strings: Strings::default(),
        locations: HashMap::new(),
        places: &places,
        written: Written::default(),
        cut: 0,
        field: Message::default(),
        inner: Message::default(),
        room: Message::default(),
    };
    encoder.head(comments)?;
    for thread in &paths.threads {
        encoder.thread(thread)?;
    }
    encoder.mappings()?;
    let (written, cut) = (encoder.written, encoder.cut);
    encoder.finish()?;
    gzip.finish()?;
    let mut exported = paths.exported(written, NO_PLACE)?;
    if cut > 0 {
        exported.lost.push(Lost {
            kind: LostKind::LargeValues,
            count: cut,
        });
    }
    Ok(exported)
}

struct Encoder<'a, 't, 'o> {
    source: &'a TraceSource<'a, 't>,
    paths: &'a TracePaths,
    out: &'o mut dyn Write,
    /// By function: its file and line.
    sources: HashMap<u32, (String, u32)>,
    strings: Strings,
    /// By function: the number of its location, and of the function itself.
    locations: HashMap<PathFunction, u64>,
    places: &'a ModulePlaces,
    written: Written,
    cut: u64,
    field: Message,
    inner: Message,
    room: Message,
}

impl Encoder<'_, '_, '_> {
    fn write(&mut self, number: u64) -> Result<(), ExportError> {
        self.inner.clear();
        self.inner.message(number, &self.field);
        self.out.write_all(self.inner.bytes())?;
        self.field.clear();
        Ok(())
    }

    fn head(&mut self, comments: &[String]) -> Result<(), ExportError> {
        for (name, unit) in [("calls", "count"), ("time", "nanoseconds")] {
            self.field.clear();
            self.field.number(1, self.strings.id(name.as_bytes()));
            self.field.number(2, self.strings.id(unit.as_bytes()));
            self.write(profile_field::SAMPLE_TYPE)?;
        }
        let mut numbers = Message::default();
        let time = self.strings.id(b"time");
        numbers.number(profile_field::DEFAULT_SAMPLE_TYPE, time);
        let started = self.source.view.trace().info().started_realtime;
        numbers.number(profile_field::TIME_NANOS, started);
        for comment in comments {
            let id = self.strings.id(comment.as_bytes());
            numbers.number(profile_field::COMMENT, id);
        }
        self.out.write_all(numbers.bytes())?;
        Ok(())
    }

    fn thread(&mut self, thread: &ThreadPaths) -> Result<(), ExportError> {
        let stream = self.source.view.streams()[thread.place];
        let comm = self.source.thread_name(thread.place).to_owned();
        let labels = [
            ("thread", format!("{comm} ({})", stream.tid)),
            ("comm", comm),
            ("pid", stream.pid.to_string()),
            ("tid", stream.tid.to_string()),
        ];
        let mut functions = Vec::new();
        let mut locations: Vec<u64> = Vec::new();
        for (at, node) in thread.nodes.iter().enumerate() {
            if !thread.has_values(at) {
                continue;
            }
            thread.functions(at, &mut functions);
            locations.clear();
            for function in functions.iter().rev() {
                locations.push(self.location(*function)?);
            }
            let largest = i64::MAX.unsigned_abs();
            let values = [node.calls, node.self_time];
            self.cut += values
                .iter()
                .map(|value| u64::from(*value > largest))
                .sum::<u64>();
            let values = values.map(|value| value.min(largest));
            self.field.clear();
            self.field
                .packed(1, locations.iter().copied(), &mut self.room);
            self.field.packed(2, values, &mut self.room);
            for (name, text) in &labels {
                self.inner.clear();
                self.inner.number(1, self.strings.id(name.as_bytes()));
                self.inner.number(2, self.strings.id(text.as_bytes()));
                self.field.message(3, &self.inner);
            }
            self.write(profile_field::SAMPLE)?;
            self.written.add(node);
        }
        Ok(())
    }

    /// Returns the number of a function's location, which is written when it is met first.
    fn location(&mut self, function: PathFunction) -> Result<u64, ExportError> {
        if let Some(known) = self.locations.get(&function) {
            return Ok(*known);
        }
        let id = self.locations.len() as u64 + 1;
        self.locations.insert(function, id);
        let mut place = (0, 0);
        let mut line = None;
        if let PathFunction::Shown(shown) = function {
            line = self.sources.get(&shown).cloned();
            if let Some((module, address)) = self.places.function(self.source, shown) {
                place = (u64::from(module.module) + 1, address);
            }
        }
        let (file, line) = line.unwrap_or_default();
        let name = without_angles(self.paths.name(function));
        let name = self.strings.id(name.as_bytes());
        let file = self.strings.id(file.as_bytes());
        self.field.clear();
        self.field.number(1, id);
        self.field.number(2, name);
        self.field.number(3, name);
        self.field.number(4, file);
        self.field.number(5, u64::from(line));
        self.write(profile_field::FUNCTION)?;
        self.field.number(1, id);
        self.field.number(2, place.0);
        self.field.number(3, place.1);
        self.inner.clear();
        self.inner.number(1, id);
        self.inner.number(2, u64::from(line));
        self.field.message(4, &self.inner);
        self.write(profile_field::LOCATION)?;
        Ok(id)
    }

    fn mappings(&mut self) -> Result<(), ExportError> {
        for place in self.places.all() {
            let module = self.source.view.trace().module(place.module);
            let (path, build_id) = module.map_or(("", ""), |module| {
                (module.path.as_str(), module.build_id.as_str())
            });
            self.field.clear();
            self.field.number(1, u64::from(place.module) + 1);
            self.field.number(2, place.start);
            self.field.number(3, place.end);
            self.field.number(5, self.strings.id(path.as_bytes()));
            self.field.number(6, self.strings.id(build_id.as_bytes()));
            self.field.flag(7, true);
            self.write(profile_field::MAPPING)?;
        }
        Ok(())
    }

    fn finish(self) -> Result<(), ExportError> {
        let mut message = self.inner;
        for text in self.strings.in_order() {
            message.clear();
            message.text(profile_field::STRING_TABLE, &text);
            self.out.write_all(message.bytes())?;
        }
        Ok(())
    }
}

/// Returns the name of a function of which only the start is known, `<libc.so.6+0x1234>`, as `[libc.so.6]+0x1234`.
/// pprof takes whatever stands between angle brackets for arguments of a template, and leaves it out.
pub(super) fn without_angles(name: &str) -> Cow<'_, str> {
    let inner = name
        .strip_prefix('<')
        .and_then(|name| name.strip_suffix('>'));
    match inner.and_then(|inner| inner.rsplit_once("+0x")) {
        Some((module, start)) => Cow::Owned(format!("[{module}]+0x{start}")),
        None => Cow::Borrowed(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_without_names_have_no_angle_brackets() {
        assert_eq!(without_angles("<libc.so.6+0x12>"), "[libc.so.6]+0x12");
        assert_eq!(without_angles("<T as Trait>::f"), "<T as Trait>::f");
        assert_eq!(without_angles("main"), "main");
    }
}
