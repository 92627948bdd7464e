//! Perfetto's trace: a stream of packets in protocol buffers, each sample with its time, stack and counter.
//!
//! Each event is a packet sequence of its own, because the format states the event of samples once for a sequence. A
//! sample states the counter's value, not its period: the value is the sum of the periods on that CPU until then.

mod interning;
pub(crate) mod packets;

use crate::error::ExportError;
use crate::exported::{EventTotal, Exported};
use crate::lost::{Lost, LostKind, lost};
use crate::protobuf::Message;
use crate::source::Source;
use crate::tasks::TaskNumbers;
use crate::timed_samples::TimedSample;
use dioptra_perfrecords::AttrFlags;
use hashbrown::HashMap;
use interning::{Interner, Sequence};
use packets::{Clock, Packets, packet};
use std::io::Write;

/// The kinds of data that the format has no place for.
const NO_PLACE: &[LostKind] = &[LostKind::InlinedMarks, LostKind::Branches];

/// The fields of `PerfSample`.
mod sample_field {
    pub const CPU: u64 = 1;
    pub const PID: u64 = 2;
    pub const TID: u64 = 3;
    pub const CALLSTACK: u64 = 4;
    pub const CPU_MODE: u64 = 5;
    pub const COUNTER: u64 = 6;
}

/// The fields of `PerfEvents.Timebase`.
mod timebase_field {
    pub const PERIOD: u64 = 1;
    pub const FREQUENCY: u64 = 2;
    pub const RAW_EVENT: u64 = 5;
    pub const NAME: u64 = 10;
    pub const CLOCK: u64 = 11;
}

/// `Profiling.CpuMode`.
const MODE_KERNEL: u64 = 1;
const MODE_USER: u64 = 2;

/// Writes all events as a Perfetto trace, with times of the recording's clock.
///
/// # Errors
/// There is no event, the profile has no stacks or no times, or writing failed.
pub fn write_perfetto(source: &Source<'_>, out: &mut dyn Write) -> Result<Exported, ExportError> {
    source.first_event()?;
    let samples = source.timed_samples()?;
    let tasks = source.task_names(&samples);
    let clock = clock_of(source);
    let mut writer = Writer {
        source,
        packets: Packets::new(out),
        clock,
        interner: Interner::new(source),
        sequences: Vec::new(),
        counters: HashMap::new(),
        packet: Message::default(),
        field: Message::default(),
        inner: Message::default(),
    };
    writer.clocks()?;
    writer.system()?;
    for (pid, name) in &tasks.processes {
        writer.packets.process(*pid, name, &[])?;
    }
    for (numbers, name) in &tasks.threads {
        writer.packets.thread(*numbers, name)?;
    }
    writer.events()?;
    let totals = writer.samples(&samples)?;
    let mut lost = lost(source, source.events, NO_PLACE);
    if tasks.earlier > 0 {
        lost.push(Lost {
            kind: LostKind::EarlierNames,
            count: tasks.earlier,
        });
    }
    Ok(Exported { totals, lost })
}

/// Returns the clock of the samples' times, if all events name the same and Perfetto knows it.
fn clock_of(source: &Source<'_>) -> Option<Clock> {
    let mut clocks = source.events.iter().map(|index| {
        let attr = source.event(*index).attr();
        let states = attr.flags.contains(AttrFlags::USE_CLOCKID);
        states.then_some(attr.clockid)
    });
    let first = clocks.next()??;
    let same = clocks.all(|clock| clock == Some(first));
    same.then(|| Clock::of(first)).flatten()
}

struct Writer<'a, 'o> {
    source: &'a Source<'a>,
    packets: Packets<'o>,
    /// The clock of the times, where it is known.
    clock: Option<Clock>,
    interner: Interner<'a>,
    /// By exported event: the things that its sequence has described.
    sequences: Vec<Sequence>,
    /// By exported event and CPU: the sum of the weights until now.
    counters: HashMap<(usize, Option<u32>), u64>,
    /// Messages that are used again and again.
    packet: Message,
    field: Message,
    inner: Message,
}

impl Writer<'_, '_> {
    /// Writes which clock times are of, and its relation to the wall clock.
    fn clocks(&mut self) -> Result<(), ExportError> {
        let Some(clock) = self.clock else {
            return Ok(());
        };
        let (now, wall) = match self.source.origin.clocks {
            Some((now, wall)) => (now, Some(wall)),
            None => (self.source.profile.first_time().unwrap_or(0), None),
        };
        self.packets.clocks(clock, now, wall)?;
        Ok(())
    }

    /// Writes the machine's name and kernel.
    fn system(&mut self) -> Result<(), ExportError> {
        let origin = self.source.origin;
        self.packets.system(
            origin.hostname.as_deref(),
            origin.os_release.as_deref(),
            origin.arch.as_deref(),
        )?;
        Ok(())
    }

    /// Starts a sequence for each event, which describes the event.
    fn events(&mut self) -> Result<(), ExportError> {
        let names = self.source.event_names();
        for ((event, index), name) in self.source.events.iter().enumerate().zip(names) {
            let sequence = Sequence::new(event, &self.interner);
            let attr = self.source.event(*index).attr();
            let timebase = &mut self.field;
            timebase.clear();
            match attr.flags.contains(AttrFlags::FREQ) {
                true => timebase.stated(timebase_field::FREQUENCY, attr.sample_period),
                false => timebase.stated(timebase_field::PERIOD, attr.sample_period),
            }
            self.inner.clear();
            self.inner.stated(1, u64::from(attr.kind));
            self.inner.stated(2, attr.config);
            self.inner.number(3, attr.config1);
            self.inner.number(4, attr.config2);
            timebase.message(timebase_field::RAW_EVENT, &self.inner);
            timebase.text(timebase_field::NAME, name.as_bytes());
            if let Some(clock) = self.clock {
                timebase.number(timebase_field::CLOCK, clock.perf_clock());
            }
            // PerfSampleDefaults within TracePacketDefaults.
            self.inner.clear();
            self.inner.message(1, timebase);
            self.field.clear();
            if let Some(clock) = self.clock {
                self.field.number(packet::CLOCK_ID, clock.id());
            }
            self.field.message(12, &self.inner);
            self.packet.clear();
            self.packet.message(packet::DEFAULTS, &self.field);
            self.packets.start(sequence.id, &mut self.packet)?;
            self.sequences.push(sequence);
        }
        Ok(())
    }

    /// Writes samples, which are in the order of time, and describes the stacks that each sequence meets.
    fn samples(&mut self, samples: &[TimedSample]) -> Result<Vec<EventTotal>, ExportError> {
        let profile = self.source.profile;
        let mut totals: Vec<EventTotal> = Vec::new();
        totals.extend(self.source.events.iter().map(|event| EventTotal {
            event: *event,
            samples: Some(0),
            weight: Some(0),
        }));
        let start = profile.first_time().unwrap_or(0);
        for TimedSample { event, sample } in samples {
            let key = profile.sample_keys().get(sample.sample_key);
            let TaskNumbers { pid, tid } = self.source.numbers(sample.sample_key);
            let sequence = &mut self.sequences[*event];
            self.packet.clear();
            let time = start.saturating_add(sample.elapsed.unwrap_or(0));
            self.packet.stated(packet::TIMESTAMP, time);
            let described = self
                .interner
                .describe(sequence, sample.place, &mut self.inner);
            if described {
                self.packet.message(packet::INTERNED_DATA, &self.inner);
            }
            let counter = self.counters.entry((*event, key.cpu)).or_default();
            *counter = counter.saturating_add(sample.weight);
            let field = &mut self.field;
            field.clear();
            if let Some(cpu) = key.cpu {
                field.stated(sample_field::CPU, u64::from(cpu));
            }
            field.stated(sample_field::PID, u64::from(pid));
            field.stated(sample_field::TID, u64::from(tid));
            if let Some(is_kernel) = self.interner.is_in_kernel(sample.place) {
                field.number(sample_field::CALLSTACK, u64::from(sample.place));
                let mode = if is_kernel { MODE_KERNEL } else { MODE_USER };
                field.number(sample_field::CPU_MODE, mode);
            }
            field.stated(sample_field::COUNTER, *counter);
            self.packet.message(packet::PERF_SAMPLE, field);
            self.packets.go_on(sequence.id, &mut self.packet)?;
            totals[*event].add_samples(1);
            totals[*event].add_weight(sample.weight);
        }
        Ok(totals)
    }
}
