//! The text of `perf script`: a line for each sample, and one for each of its frames.
//!
//! The text is read twice: first the headers, for the events and the fields that all samples have; then the samples.
//! The text does not say where modules lie, so all locations get made-up addresses. Two frames with the same symbol,
//! offset and module are one location.

mod line;

use super::error::ImportError;
use super::names::{Location, ModuleIndex};
use super::omitted::{Omissions, OmittedKind};
use super::recording::{Event, Fields, NO_MODULE, Recording, Samples, is_time};
use super::records::Task;
use super::{ImportFormat, ImportOptions, ImportedEvent};
use dioptra_perfdata::{ImportedFrame, ImportedRole};
use hashbrown::HashMap;
use line::{Frame, Header, Source};
use std::io::{Seek, Write};

/// The first address of the kernel's half.
const KERNEL_HALF: u64 = 0xffff_8000_0000_0000;

/// Returns whether a line begins a sample.
pub(super) fn looks_right(first: &str) -> bool {
    line::header(first).is_some()
}

/// A line with its number.
type Numbered<'a> = (u64, &'a str);

/// Returns the lines of a text, without comments.
fn lines(content: &[u8]) -> impl Iterator<Item = Result<Numbered<'_>, ImportError>> {
    let lines = (1..).zip(content.split(|byte| *byte == b'\n'));
    let lines = lines.filter(|(_, line)| !line.starts_with(b"#"));
    lines.map(|(number, line)| match std::str::from_utf8(line) {
        Ok(line) => Ok((number, line.trim_end())),
        Err(error) => {
            let byte = error.valid_up_to() + 1;
            Err(ImportError::line(
                number,
                format!("byte {byte} is not UTF-8"),
            ))
        }
    })
}

/// Returns whether a line is a header: frames and their source lines are indented.
fn begins_sample(line: &str, after_empty: bool) -> bool {
    // perf aligns short names of threads to the right.
    !line.starts_with('\t') && (after_empty || !line.starts_with(' '))
}

fn header((number, line): Numbered<'_>) -> Result<Header<'_>, ImportError> {
    line::header(line).ok_or_else(|| {
        ImportError::line(
            number,
            "this is no first line of a sample as perf script prints it with the fields comm, pid, tid, cpu, time, \
             period, event",
        )
    })
}

/// The events of a text, and the fields of its samples.
struct Survey<'a> {
    events: Vec<Event>,
    ids: HashMap<&'a str, usize>,
    fields: Fields,
}

impl<'a> Survey<'a> {
    fn of(content: &'a [u8], omissions: &mut Omissions) -> Result<Survey<'a>, ImportError> {
        let mut survey = Survey {
            events: Vec::new(),
            ids: HashMap::new(),
            fields: Fields::default(),
        };
        let (mut samples, mut with_time, mut with_cpu) = (0_u64, 0_u64, 0_u64);
        // By event: the samples with a period, and all.
        let mut periods: Vec<(u64, u64)> = Vec::new();
        let mut after_empty = true;
        for line in lines(content) {
            let (number, text) = line?;
            if text.is_empty() {
                after_empty = true;
                continue;
            }
            let begins = begins_sample(text, after_empty);
            after_empty = false;
            if !begins {
                continue;
            }
            let found = header((number, text))?;
            // Samples without a stack have no empty line between them.
            after_empty = found.is_other_record || !found.rest.is_empty();
            if found.is_other_record {
                continue;
            }
            let next = survey.events.len();
            let event = *survey.ids.entry(found.event).or_insert_with(|| {
                survey.events.push(Event {
                    name: found.event.to_owned(),
                    is_time: is_time(found.event),
                    has_weights: false,
                    period: None,
                });
                periods.push((0, 0));
                next
            });
            samples += 1;
            with_time += u64::from(found.time.is_some());
            with_cpu += u64::from(found.cpu.is_some());
            periods[event].0 += u64::from(found.period.is_some());
            periods[event].1 += 1;
        }
        for (event, (with_period, all)) in survey.events.iter_mut().zip(periods) {
            event.has_weights = with_period == all;
            // Weights count for all samples of an event or for none.
            if with_period < all {
                omissions.add_many(OmittedKind::PartialFields, with_period);
            }
        }
        survey.fields = Fields {
            times: samples > 0 && with_time == samples,
            cpus: samples > 0 && with_cpu == samples,
        };
        for with in [with_time, with_cpu] {
            if with < samples {
                omissions.add_many(OmittedKind::PartialFields, with);
            }
        }
        Ok(survey)
    }
}

/// Writes the text of `perf script` as a recording.
pub(super) fn import<W: Write + Seek>(
    content: &[u8],
    options: ImportOptions,
    omissions: &mut Omissions,
    out: W,
) -> Result<Vec<ImportedEvent>, ImportError> {
    let survey = Survey::of(content, omissions)?;
    if survey.events.is_empty() {
        return Ok(Vec::new());
    }
    let mut recording = Recording::begin(&survey.events, survey.fields, omissions, out)?;
    let mut places = Places::default();
    let mut sample: Option<Header<'_>> = None;
    let mut stack: Vec<Location> = Vec::new();
    let mut after_empty = true;
    for line in lines(content) {
        let (number, text) = line?;
        let begins = !text.is_empty() && begins_sample(text, after_empty);
        if begins || text.is_empty() {
            if let Some(done) = sample.take() {
                places.end_frame(&mut recording, &mut stack);
                finish(&mut recording, &survey, &done, &mut stack)?;
            }
            after_empty = true;
        }
        if text.is_empty() {
            continue;
        }
        if !begins {
            if sample.is_none() {
                return Err(ImportError::line(number, "a frame follows no sample"));
            }
            places.line(&mut recording, (number, text), &mut stack)?;
            continue;
        }
        let found = header((number, text))?;
        after_empty = found.is_other_record || !found.rest.is_empty();
        if found.is_other_record {
            recording.omissions.add(OmittedKind::OtherRecords);
            continue;
        }
        if !found.rest.is_empty() {
            match line::frame(found.rest) {
                Some(frame) => places.add(&mut recording, frame, &mut stack),
                None => recording.omissions.add(OmittedKind::SampleTexts),
            }
        }
        sample = Some(found);
    }
    if let Some(done) = sample {
        places.end_frame(&mut recording, &mut stack);
        finish(&mut recording, &survey, &done, &mut stack)?;
    }
    let addresses = places.known.len() as u64;
    recording
        .omissions
        .add_many(OmittedKind::Addresses, addresses);
    recording.finish(ImportFormat::PerfScript.name(), options.features)
}

/// Writes a sample whose frames are complete.
fn finish<W: Write + Seek>(
    recording: &mut Recording<'_, W>,
    survey: &Survey<'_>,
    sample: &Header<'_>,
    stack: &mut Vec<Location>,
) -> Result<(), ImportError> {
    if stack.is_empty() {
        stack.push(Location::nowhere(0));
    }
    let event = survey.ids[sample.event];
    let weight = match survey.events[event].has_weights {
        true => sample.period.unwrap_or(0),
        false => 1,
    };
    let samples = Samples {
        event,
        task: Task {
            pid: sample.pid,
            tid: sample.tid,
            time: sample.time.unwrap_or(0),
            cpu: sample.cpu.unwrap_or(0),
        },
        comm: sample.comm,
        count: 1,
        weight,
    };
    recording.add(samples, stack)?;
    stack.clear();
    Ok(())
}

/// A function at the location that is being read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Function<'a> {
    symbol: &'a str,
    with_offset: &'a str,
    source: Option<Source<'a>>,
}

/// The locations of the text.
#[derive(Default)]
struct Places<'a> {
    /// By path, and whether it is the kernel's.
    modules: HashMap<(&'a str, bool), ModuleIndex>,
    known: HashMap<(ModuleIndex, Vec<Function<'a>>), Location>,
    /// The functions of the location that is being read, innermost first.
    functions: Vec<Function<'a>>,
    /// The location's address and module, once they are known.
    place: Option<(u64, &'a str)>,
}

impl<'a> Places<'a> {
    /// Reads an indented line: a frame, or the source line of the frame before it.
    fn line<W: Write + Seek>(
        &mut self,
        recording: &mut Recording<'_, W>,
        (number, text): Numbered<'a>,
        stack: &mut Vec<Location>,
    ) -> Result<(), ImportError> {
        if let Some(frame) = line::frame(text) {
            self.add(recording, frame, stack);
            return Ok(());
        }
        match (line::source(text), self.functions.last_mut()) {
            (Some(source), Some(function)) if function.source.is_none() => {
                function.source = Some(source);
                Ok(())
            }
            _ => Err(ImportError::line(
                number,
                "this is no frame as perf script prints it with the fields ip, sym, symoff, dso, srcline",
            )),
        }
    }

    /// Adds a frame. Inlined functions belong to the location of the frame that follows them.
    fn add<W: Write + Seek>(
        &mut self,
        recording: &mut Recording<'_, W>,
        frame: Frame<'a>,
        stack: &mut Vec<Location>,
    ) {
        self.end_frame(recording, stack);
        self.functions.push(Function {
            symbol: frame.symbol,
            with_offset: frame.with_offset,
            source: None,
        });
        if !frame.is_inlined {
            self.place = Some((frame.address, frame.module));
        }
    }

    /// Ends the location that is being read, if its last frame was read.
    fn end_frame<W: Write + Seek>(
        &mut self,
        recording: &mut Recording<'_, W>,
        stack: &mut Vec<Location>,
    ) {
        let Some((address, path)) = self.place.take() else {
            return;
        };
        let functions = std::mem::take(&mut self.functions);
        let is_unnamed = |function: &Function<'_>| matches!(function.symbol, "" | "[unknown]");
        if path.is_empty() && functions.iter().all(is_unnamed) {
            stack.push(Location::nowhere(address));
            return;
        }
        let is_kernel = path.starts_with("[kernel") || address >= KERNEL_HALF;
        let path = if path.is_empty() { NO_MODULE } else { path };
        let module = *self
            .modules
            .entry((path, is_kernel))
            .or_insert_with(|| recording.names.add_module(path, None, None, is_kernel));
        let location =
            self.known
                .entry((module, functions))
                .or_insert_with_key(|(module, functions)| {
                    let location = recording.names.make_up(*module);
                    let frames: Vec<ImportedFrame> = functions
                        .iter()
                        .map(|function| {
                            let name = match is_unnamed(function) {
                                true => "[unknown]",
                                false => function.symbol,
                            };
                            let (file, line) = match function.source {
                                Some(Source::Line(file, line)) => (Some(file), Some(line)),
                                _ => (None, None),
                            };
                            ImportedFrame {
                                function: recording.names.function(name, name),
                                file: file.map(|file| recording.names.text(file)),
                                line,
                            }
                        })
                        .collect();
                    recording
                        .names
                        .name(location, ImportedRole::Executes, &frames);
                    location
                });
        stack.push(*location);
    }
}
