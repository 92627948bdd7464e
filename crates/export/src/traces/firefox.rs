//! Calls as a file of the Firefox Profiler: a track for each thread, whose stack chart shows each call.
//!
//! A stretch of time in which the calls of a thread stay the same becomes a sample. Its weight is the stretch's length, so
//! the call tree has the times of the calls. A coroutine's calls have a track of their own, since calls of one track must
//! nest.

use super::slices::{Moment, SliceWriter, TaskMoment, each, ending_words};
use super::{ExportedTrace, TraceSource};
use crate::error::ExportError;
use crate::firefox::markers::{self, moment};
use crate::firefox::weights::DurationWeights;
use crate::lost::{Lost, LostKind};
use dioptra_calls::{Call, CallEnding};
use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CpuDelta, Frame, FrameFlags, FrameInfo, MarkerTiming,
    ProcessHandle, Profile, ReferenceTimestamp, SamplingInterval, StackHandle, StringHandle,
    ThreadHandle, WeightType,
};
use hashbrown::HashMap;
use std::io::{self, Write};
use std::time::Duration;

/// The longest stretch of one sample, whose weight has 31 bits.
const LONGEST: u64 = i32::MAX.unsigned_abs() as u64;

/// The interval between samples that the file states. Samples of calls come when calls begin and end.
const SOME_INTERVAL: u64 = 1_000_000;

/// Writes all calls as a file of the Firefox Profiler.
///
/// # Errors
/// Writing failed.
pub fn write_trace_firefox(
    source: &TraceSource<'_, '_>,
    out: &mut dyn Write,
) -> Result<ExportedTrace, ExportError> {
    let view = source.view;
    let info = view.trace().info();
    let first = view.first();
    let began = first.saturating_sub(info.clock.start.monotonic);
    let began = info.started_realtime.saturating_add(began);
    let product = match info.command.is_empty() {
        true => "dioptra".to_owned(),
        false => info.command.join(" "),
    };
    let mut file = Profile::new(
        &product,
        ReferenceTimestamp::from_duration_since_unix_epoch(Duration::from_nanos(began)),
        SamplingInterval::from_nanos(SOME_INTERVAL),
    );
    file.set_os_name(&format!("Linux {}", info.host.kernel));
    // All names are there; nobody need look for symbols.
    file.set_symbolicated(true);
    let category = file.add_category("Calls", CategoryColor::Yellow);
    let mut writer = Writer {
        source,
        file,
        category,
        first,
        processes: HashMap::new(),
        tracks: HashMap::new(),
        names: HashMap::new(),
    };
    let slices = each(view, &mut writer)?;
    let mut text = DurationWeights::new(&mut *out);
    serde_json::to_writer(&mut text, &writer.file).map_err(io::Error::from)?;
    text.flush()?;
    drop(text);
    out.write_all(b"\n")?;
    let mut lost = Vec::new();
    if view.is_sampled() && slices.calls > 0 {
        lost.push(Lost {
            kind: LostKind::CallWeights,
            count: slices.calls,
        });
    }
    Ok(ExportedTrace {
        calls: None,
        began_before: slices.began_before,
        open: slices.open,
        losses: slices.losses,
        lost,
        ..ExportedTrace::default()
    })
}

/// The track of a thread's calls, or of a coroutine's.
struct Track {
    handle: ThreadHandle,
    /// The stacks of the open calls, outermost first.
    open: Vec<StackHandle>,
    /// The time from which on these calls are the open ones.
    since: u64,
    /// Nanoseconds within calls since the last sample.
    busy: u64,
}

struct Writer<'a, 't> {
    source: &'a TraceSource<'a, 't>,
    file: Profile,
    category: CategoryHandle,
    /// The time of the file's beginning.
    first: u64,
    processes: HashMap<u32, ProcessHandle>,
    /// By the stream's index, and the number of the call stack.
    tracks: HashMap<(usize, u32), Track>,
    /// By function.
    names: HashMap<u32, StringHandle>,
}

impl Writer<'_, '_> {
    fn since_first(&self, time: u64) -> u64 {
        time.saturating_sub(self.first)
    }

    /// Returns the track of a moment.
    fn track(&mut self, at: Moment) -> &mut Track {
        let key = (at.place, at.stack);
        if !self.tracks.contains_key(&key) {
            let handle = self.new_track(at);
            let track = Track {
                handle,
                open: Vec::new(),
                since: at.time,
                busy: 0,
            };
            self.tracks.insert(key, track);
        }
        self.tracks.get_mut(&key).expect("it was inserted")
    }

    fn new_track(&mut self, at: Moment) -> ThreadHandle {
        let view = self.source.view;
        let stream = view.streams()[at.place];
        let begin = moment(self.since_first(at.time));
        let name = self.source.thread_name(at.place);
        let process = match self.processes.get(&stream.pid) {
            Some(process) => *process,
            None => {
                let main = view.streams().iter().position(|of| of.tid == stream.pid);
                let name = main.map_or(name, |place| self.source.thread_name(place));
                let process = self.file.add_process(name, stream.pid, begin);
                self.processes.insert(stream.pid, process);
                process
            }
        };
        let is_main = stream.tid == stream.pid && at.stack == 0;
        let handle = self.file.add_thread(process, stream.tid, begin, is_main);
        let title = match at.stack {
            0 => name.to_owned(),
            number => format!("{name}, coroutine {number}"),
        };
        self.file.set_thread_name(handle, &title);
        self.file
            .set_thread_samples_weight_type(handle, WeightType::TracingMs);
        handle
    }

    /// Writes a sample.
    fn sample(&mut self, at: Moment, begin: u64, stack: Option<StackHandle>, length: u64) {
        let time = moment(self.since_first(begin));
        let track = self.track(at);
        let handle = track.handle;
        let busy = std::mem::replace(&mut track.busy, length);
        let weight = i32::try_from(length).unwrap_or(i32::MAX);
        self.file
            .add_sample(handle, time, stack, CpuDelta::from_nanos(busy), weight);
    }

    /// Writes the stretch that ends now, if it lies within calls.
    fn end_stretch(&mut self, at: Moment) {
        let track = self.track(at);
        let mut since = track.since;
        track.since = at.time.max(since);
        let Some(stack) = track.open.last().copied() else {
            return;
        };
        while since < at.time {
            let length = (at.time - since).min(LONGEST);
            self.sample(at, since, Some(stack), length);
            since += length;
        }
    }

    /// Ends the innermost call of a track. The stack chart ends a call where the next sample begins, so the end of the
    /// outermost call is a sample without a stack.
    fn pop(&mut self, at: Moment) {
        self.end_stretch(at);
        let track = self.track(at);
        track.open.pop();
        if track.open.is_empty() {
            self.sample(at, at.time, None, 0);
        }
    }

    fn marker(&mut self, at: Moment, name: &str, text: &str) {
        let handle = self.track(at).handle;
        let timing = MarkerTiming::Instant(moment(self.since_first(at.time)));
        markers::add(&mut self.file, handle, timing, name, text);
    }
}

impl SliceWriter for Writer<'_, '_> {
    fn begin(
        &mut self,
        at: Moment,
        function: u32,
        began_before: bool,
        _: Option<&Call>,
    ) -> io::Result<()> {
        self.end_stretch(at);
        let name = self.source.names.get(function);
        let label = match self.names.get(&function) {
            Some(label) => *label,
            None => {
                let label = self.file.intern_string(name);
                self.names.insert(function, label);
                label
            }
        };
        let frame = FrameInfo {
            frame: Frame::Label(label),
            category_pair: self.category.into(),
            flags: FrameFlags::empty(),
        };
        let track = self.track(at);
        let (handle, parent) = (track.handle, track.open.last().copied());
        let frame = self.file.intern_frame(handle, frame);
        let stack = self.file.intern_stack(handle, parent, frame);
        self.track(at).open.push(stack);
        if began_before {
            self.marker(at, "began before", name);
        }
        Ok(())
    }

    fn end(&mut self, at: Moment, call: &Call, ending: CallEnding) -> io::Result<()> {
        let function = call.function;
        self.pop(at);
        if let Some((key, word)) = ending_words(ending) {
            let text = format!("{}: {key} {word}", self.source.names.get(function));
            self.marker(at, key, &text);
        }
        Ok(())
    }

    fn open(&mut self, at: Moment, function: u32) -> io::Result<()> {
        self.pop(at);
        let name = self.source.names.get(function);
        self.marker(at, "no end", name);
        Ok(())
    }

    fn moment(&mut self, at: Moment, event: TaskMoment<'_>) -> io::Result<()> {
        self.marker(at, event.event.name(), event.name);
        Ok(())
    }

    fn lost(&mut self, at: Moment, records: u64) -> io::Result<()> {
        let text = match records {
            0 => "an unknown number of records".to_owned(),
            1 => "1 record".to_owned(),
            number => format!("{number} records"),
        };
        self.marker(at, "LOST", &text);
        Ok(())
    }
}
