//! Calls as a Perfetto trace: each call is a slice on its thread's track.
//!
//! A coroutine's calls are slices of a track of their own below the thread's, since slices of one track must nest.

use super::slices::{Moment, SliceWriter, TaskMoment, argument_name, each, ending_words};
use super::{ExportedTrace, TraceSource};
use crate::error::ExportError;
use crate::lost::{Lost, LostKind};
use crate::perfetto::packets::{Clock, Packets, packet, thread_track};
use crate::protobuf::Message;
use crate::tasks::TaskNumbers;
use dioptra_calls::{Call, CallEnding, arguments, returned_value};
use dioptra_tracedata::{Digits, Value};
use dioptra_tracelayout::EventPlace;
use hashbrown::{HashMap, HashSet};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// The fields of `TrackEvent`.
mod event_field {
    pub const ANNOTATIONS: u64 = 4;
    pub const TYPE: u64 = 9;
    pub const NAME_ID: u64 = 10;
    pub const TRACK: u64 = 11;
    pub const NAME: u64 = 23;
}

/// `TrackEvent.Type`.
const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
const INSTANT: u64 = 3;

/// The number of the packet sequence, far from those of samples: a profile and a trace may be one file.
const SEQUENCE: u32 = 0x10_0000;

/// Writes calls as a Perfetto trace, with times of `CLOCK_MONOTONIC`. The bytes of [`crate::write_perfetto`] may stand
/// before or behind these: a file of both shows samples and calls on one axis.
///
/// # Errors
/// Writing failed.
pub fn write_trace_perfetto(
    source: &TraceSource<'_, '_>,
    out: &mut dyn Write,
) -> Result<ExportedTrace, ExportError> {
    let view = source.view;
    let info = view.trace().info();
    let mut packets = Packets::new(out);
    let clock = &info.clock;
    // Without a second reading of the clock, its ticks have no length.
    let is_measured = view.trace().clock().is_measured() || clock.source == "monotonic";
    if is_measured {
        let wall = (info.started_realtime > 0).then_some(info.started_realtime);
        packets.clocks(Clock::Monotonic, clock.start.monotonic, wall)?;
    }
    let host = &info.host;
    packets.system(known(&host.name), known(&host.kernel), None)?;
    let mut threads: BTreeMap<TaskNumbers, &str> = BTreeMap::new();
    let mut tracks = Vec::new();
    for (place, stream) in view.streams().iter().enumerate() {
        let numbers = TaskNumbers {
            pid: stream.pid,
            tid: stream.tid,
        };
        // A thread that executed several programs has the last one's name.
        threads.insert(numbers, source.thread_name(place));
        tracks.push(thread_track(numbers));
    }
    let mut processes: BTreeMap<u32, (&str, &[String])> = BTreeMap::new();
    for numbers in threads.keys() {
        let main = TaskNumbers {
            pid: numbers.pid,
            tid: numbers.pid,
        };
        let mut images = view.trace().processes().iter().rev();
        let image = images.find(|image| image.pid == numbers.pid);
        let executable = image.map_or("", |image| image.executable.as_str());
        let executable = executable.rsplit('/').next().unwrap_or(executable);
        let name = threads.get(&main).copied().unwrap_or(executable);
        let arguments = image.map_or(&[][..], |image| &image.arguments);
        processes.insert(numbers.pid, (name, arguments));
    }
    for (pid, (name, arguments)) in processes {
        packets.process(pid, name, arguments)?;
    }
    for (numbers, name) in threads {
        packets.thread(numbers, name)?;
    }
    let mut start = Message::default();
    if is_measured {
        let mut defaults = Message::default();
        defaults.number(packet::CLOCK_ID, Clock::Monotonic.id());
        start.message(packet::DEFAULTS, &defaults);
    }
    packets.start(SEQUENCE, &mut start)?;
    let mut writer = Writer {
        source,
        packets,
        tracks,
        stacks: HashMap::new(),
        named: HashSet::new(),
        packet: Message::default(),
        event: Message::default(),
        inner: Message::default(),
        item: Message::default(),
    };
    let slices = each(view, &mut writer)?;
    let mut lost = Vec::new();
    if view.is_sampled() && slices.calls > 0 {
        lost.push(Lost {
            kind: LostKind::CallWeights,
            count: slices.calls,
        });
    }
    Ok(ExportedTrace {
        calls: Some(slices.calls),
        began_before: slices.began_before,
        open: slices.open,
        losses: slices.losses,
        lost,
        ..ExportedTrace::default()
    })
}

fn known(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

struct Writer<'a, 't, 'o> {
    source: &'a TraceSource<'a, 't>,
    packets: Packets<'o>,
    /// By the stream's index: the thread's track.
    tracks: Vec<u64>,
    /// By track of a thread and number of a call stack: the track of a coroutine's calls.
    stacks: HashMap<(u64, u32), u64>,
    /// The functions whose names were described.
    named: HashSet<u32>,
    packet: Message,
    event: Message,
    inner: Message,
    item: Message,
}

impl Writer<'_, '_, '_> {
    /// Returns the track of a moment, which is described when it is met first.
    fn track(&mut self, at: Moment) -> io::Result<u64> {
        let thread = self.tracks[at.place];
        if at.stack == 0 {
            return Ok(thread);
        }
        if let Some(known) = self.stacks.get(&(thread, at.stack)) {
            return Ok(*known);
        }
        // Tracks of processes and threads have one of the two highest bits.
        let track = self.stacks.len() as u64 + 1;
        self.stacks.insert((thread, at.stack), track);
        let name = format!("call stack {}", at.stack);
        self.packets.track(track, thread, &name)?;
        Ok(track)
    }

    /// Makes `packet` one of a moment, and `event` one of a kind.
    fn start(&mut self, at: Moment, kind: u64) -> io::Result<()> {
        let track = self.track(at)?;
        self.packet.clear();
        self.packet.stated(packet::TIMESTAMP, at.time);
        self.event.clear();
        self.event.number(event_field::TYPE, kind);
        self.event.number(event_field::TRACK, track);
        Ok(())
    }

    /// Adds the name of a function to the event.
    fn name(&mut self, function: u32) {
        let id = u64::from(function) + 1;
        self.event.number(event_field::NAME_ID, id);
        if self.named.insert(function) {
            self.item.clear();
            self.item.number(1, id);
            self.item
                .text(2, self.source.names.get(function).as_bytes());
            self.inner.clear();
            // `event_names` of `InternedData`.
            self.inner.message(2, &self.item);
            self.packet.message(packet::INTERNED_DATA, &self.inner);
        }
    }

    fn annotate(&mut self, name: &str, value: &str) {
        self.item.clear();
        self.item.text(10, name.as_bytes());
        self.item.text(6, value.as_bytes());
        self.event.message(event_field::ANNOTATIONS, &self.item);
    }

    /// Adds a value of the call. Integers are numbers for queries; other values are texts as `replay` shows them.
    fn annotate_value(&mut self, name: &str, value: &Value) {
        let number = match value {
            Value::Integer(number, Digits::Decimal) => i64::try_from(*number).ok(),
            _ => None,
        };
        let Some(number) = number else {
            return self.annotate(name, &value.to_string());
        };
        self.item.clear();
        self.item.text(10, name.as_bytes());
        // `int_value` of `DebugAnnotation`.
        self.item.stated(4, number.cast_unsigned());
        self.event.message(event_field::ANNOTATIONS, &self.item);
    }

    fn finish(&mut self) -> io::Result<()> {
        self.packet.message(packet::TRACK_EVENT, &self.event);
        self.packets.go_on(SEQUENCE, &mut self.packet)
    }
}

impl SliceWriter for Writer<'_, '_, '_> {
    fn begin(
        &mut self,
        at: Moment,
        function: u32,
        began_before: bool,
        call: Option<&Call>,
    ) -> io::Result<()> {
        self.start(at, SLICE_BEGIN)?;
        self.name(function);
        if began_before {
            self.annotate("began", "before");
        }
        if let Some(call) = call {
            for (described, value) in arguments(self.source.view.trace(), call) {
                self.annotate_value(argument_name(described), &value);
            }
        }
        self.finish()
    }

    fn end(&mut self, at: Moment, call: &Call, ending: CallEnding) -> io::Result<()> {
        self.start(at, SLICE_END)?;
        if let Some(value) = returned_value(self.source.view.trace(), call) {
            self.annotate_value("retval", &value);
        }
        if let Some((key, word)) = ending_words(ending) {
            self.annotate(key, &word);
        }
        self.finish()
    }

    fn moment(&mut self, at: Moment, event: TaskMoment<'_>) -> io::Result<()> {
        self.start(at, INSTANT)?;
        self.event
            .text(event_field::NAME, event.event.name().as_bytes());
        if event.event == EventPlace::TaskName {
            self.annotate("comm", event.name);
        }
        self.finish()
    }

    fn lost(&mut self, at: Moment, records: u64) -> io::Result<()> {
        self.start(at, INSTANT)?;
        self.event.text(event_field::NAME, b"LOST");
        self.annotate("records", &records.to_string());
        self.finish()
    }
}
