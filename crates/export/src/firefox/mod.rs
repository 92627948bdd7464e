//! The Firefox Profiler's processed profile: a track for each thread, each sample with its stack and its time.
//!
//! Markers hold what is no sample: the spans in which threads were off the CPU, and the numbers of events in short spans
//! of time, which the Firefox Profiler draws as a graph. The format's own counters are not used.
//!
//! The crate `fxprof-processed-profile`, which samply writes its profiles with, knows the format.

pub(crate) mod markers;
pub(crate) mod weights;

use crate::error::ExportError;
use crate::exported::{EventTotal, Exported};
use crate::labels::Labels;
use crate::lost::{Lost, LostKind, lost};
use crate::paths::{PathId, Paths};
use crate::source::Source;
use dioptra_profile::{FunctionId, ThreadId};
use dioptra_symbols::ModuleKind;
use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CpuDelta, Frame, FrameFlags, FrameInfo, MarkerTiming,
    ProcessHandle, Profile, ReferenceTimestamp, SamplingInterval, StackHandle, ThreadHandle,
    Timestamp, WeightType,
};
use hashbrown::HashMap;
use markers::moment;
use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;
use weights::DurationWeights;

/// The kinds of data that the format, as it is written here, has no place for.
const NO_PLACE: &[LostKind] = &[
    LostKind::Modules,
    LostKind::BuildIds,
    LostKind::Addresses,
    LostKind::Lines,
    LostKind::InlinedMarks,
    LostKind::Cpus,
    LostKind::Branches,
];

/// The number of spans that the recording's time is divided into for graphs.
const SPANS: u64 = 500;
/// The shortest of these spans, in nanoseconds.
const SHORTEST_SPAN: u64 = 100_000;

/// The longest wait of one sample, whose weight has 31 bits.
const LONGEST: u64 = i32::MAX.unsigned_abs() as u64;

/// The interval that the file states for events that no clock makes.
const SOME_INTERVAL: u64 = 1_000_000;

/// Writes all events as a file of the Firefox Profiler. Threads have a track for each event. The weights of samples are 1,
/// and of waits ([`dioptra_profile::EventProfile::is_off_cpu`]) their lengths.
///
/// # Errors
/// There is no event, the profile has no stacks, or writing failed.
pub fn write_firefox(source: &Source<'_>, out: &mut dyn Write) -> Result<Exported, ExportError> {
    let first = source.first_event()?;
    let mut writer = Writer::new(source, first);
    let mut totals = Vec::new();
    for (index, name) in source.events.iter().zip(source.event_names()) {
        totals.push(writer.event(*index, &name));
    }
    writer.spans_off_cpu();
    let mut text = DurationWeights::new(&mut *out);
    serde_json::to_writer(&mut text, &writer.file).map_err(std::io::Error::from)?;
    text.flush()?;
    drop(text);
    out.write_all(b"\n")?;
    let mut lost = lost(source, source.events, NO_PLACE);
    // Weights are there as waits, or as sums of spans.
    let without = totals.iter().filter(|total| total.weight.is_none());
    let without: Vec<usize> = without.map(|total| total.event).collect();
    lost.extend(crate::lost::lost(source, &without, &[LostKind::Weights]));
    if writer.cut > 0 {
        lost.push(Lost {
            kind: LostKind::LargeValues,
            count: writer.cut,
        });
    }
    Ok(Exported { totals, lost })
}

/// The categories of functions, by which the Firefox Profiler colours them.
struct Categories {
    user: CategoryHandle,
    kernel: CategoryHandle,
    runtime: CategoryHandle,
}

struct Writer<'a> {
    source: &'a Source<'a>,
    file: Profile,
    categories: Categories,
    paths: Paths,
    labels: Labels,
    processes: HashMap<Option<u32>, ProcessHandle>,
    /// The tracks, by thread and the event's index.
    threads: HashMap<(Option<ThreadId>, usize), ThreadHandle>,
    stacks: HashMap<(ThreadHandle, PathId), Option<StackHandle>>,
    /// The number of sums that are no exact numbers of the format.
    cut: u64,
    /// The times of the first and of the last sample.
    range: Option<(u64, u64)>,
}

impl<'a> Writer<'a> {
    fn new(source: &'a Source<'a>, first: usize) -> Writer<'a> {
        let total = source.event(first).total();
        let interval = match source.is_clock(first) {
            true => total.weight.checked_div(total.samples),
            false => None,
        };
        let begin = source.profile.first_time();
        let begin = begin.and_then(|time| source.origin.wall_clock(time));
        let product = source.origin.command_line.first();
        let mut file = Profile::new(
            product.map_or("dioptra", String::as_str),
            ReferenceTimestamp::from_duration_since_unix_epoch(Duration::from_nanos(
                begin.unwrap_or(0),
            )),
            SamplingInterval::from_nanos(interval.unwrap_or(SOME_INTERVAL).max(1)),
        );
        if let Some(release) = &source.origin.os_release {
            file.set_os_name(&format!("Linux {release}"));
        }
        // All names are there; nobody need look for symbols.
        file.set_symbolicated(true);
        let categories = Categories {
            user: file.add_category("User", CategoryColor::Yellow),
            kernel: file.add_category("Kernel", CategoryColor::Orange),
            runtime: file.add_category("JIT and other memory", CategoryColor::Green),
        };
        Writer {
            source,
            file,
            categories,
            paths: Paths::of(source),
            labels: Labels::new(source),
            processes: HashMap::new(),
            threads: HashMap::new(),
            stacks: HashMap::new(),
            cut: 0,
            range: None,
        }
    }

    /// Adds the samples of an event.
    fn event(&mut self, index: usize, name: &str) -> EventTotal {
        let source = self.source;
        let event = source.event(index);
        let is_clock = source.is_clock(index);
        let mut total = EventTotal {
            event: index,
            samples: Some(0),
            weight: None,
        };
        let thread = |key| source.profile.sample_keys().get(key).thread;
        let is_wait = event.is_off_cpu();
        if source.profile.has_times() {
            event.samples(|sample| {
                let track = self.track(thread(sample.sample_key), index, name);
                let stack = self.stack(track, self.paths.of_stack(sample.place));
                let time = sample.elapsed.unwrap_or(0);
                total.add_samples(1);
                let (from, to) = self.range.unwrap_or((time, time));
                // The record of a switch follows its sample.
                let end = time.saturating_add(if is_wait { sample.weight } else { 0 });
                self.range = Some((from.min(time), to.max(end)));
                if is_wait {
                    self.wait(track, time, stack, sample.weight);
                    total.add_weight(sample.weight);
                    return;
                }
                let busy = match is_clock {
                    true => CpuDelta::from_nanos(sample.weight),
                    false => CpuDelta::ZERO,
                };
                self.file.add_sample(track, moment(time), stack, busy, 1);
            });
            if !is_clock && event.weighs_events() {
                total.weight = Some(self.sums(index, name));
            }
        } else {
            source.profile.counts(event, |key, stack, count| {
                let track = self.track(thread(key), index, name);
                let stack = self.stack(track, self.paths.of_stack(stack));
                let time = Timestamp::from_nanos_since_reference(0);
                let mut left = count.samples;
                while left > 0 {
                    let part = i32::try_from(left).unwrap_or(i32::MAX);
                    self.file
                        .add_sample(track, time, stack, CpuDelta::ZERO, part);
                    left -= u64::from(part.unsigned_abs());
                }
                total.add_samples(count.samples);
            });
        }
        total
    }

    /// Adds the sample of a wait, whose weight is its length.
    fn wait(&mut self, track: ThreadHandle, time: u64, stack: Option<StackHandle>, length: u64) {
        self.file
            .set_thread_samples_weight_type(track, WeightType::TracingMs);
        let mut left = length;
        loop {
            let part = left.min(LONGEST);
            let weight = i32::try_from(part).unwrap_or(i32::MAX);
            self.file
                .add_sample(track, moment(time), stack, CpuDelta::ZERO, weight);
            left -= part;
            if left == 0 {
                return;
            }
        }
    }

    /// Adds the sums of an event's weights in spans of time as markers, and returns their sum.
    fn sums(&mut self, index: usize, name: &str) -> u64 {
        let source = self.source;
        let event = source.event(index);
        let width = (source.span(source.events).duration / SPANS).max(SHORTEST_SPAN);
        let mut sums: BTreeMap<(Option<ThreadId>, u64), u64> = BTreeMap::new();
        event.samples(|sample| {
            let thread = source.profile.sample_keys().get(sample.sample_key).thread;
            let span = sample.elapsed.unwrap_or(0) / width;
            let sum = sums.entry((thread, span)).or_default();
            *sum = sum.saturating_add(sample.weight);
        });
        let mut total: u64 = 0;
        for ((thread, span), sum) in sums {
            let track = self.track(thread, index, name);
            let from = span.saturating_mul(width);
            markers::add_count(&mut self.file, track, (from, from + width), name, sum);
            // The format's numbers have 53 bits.
            self.cut += u64::from(sum > 1 << 53);
            total = total.saturating_add(sum);
        }
        total
    }

    /// Adds the spans in which threads were off the CPU as markers of their first tracks. Spans before the first sample
    /// and behind the last one are left out, since the samples may be those of a chosen time.
    fn spans_off_cpu(&mut self) {
        let Some((first, last)) = self.range else {
            return;
        };
        let mut tracks: BTreeMap<ThreadId, (usize, ThreadHandle)> = BTreeMap::new();
        for ((thread, index), track) in &self.threads {
            let Some(thread) = thread else { continue };
            let place = self.source.events.iter().position(|of| of == index);
            let found = (place.unwrap_or(usize::MAX), *track);
            let first = tracks.entry(*thread).or_insert(found);
            if found.0 < first.0 {
                *first = found;
            }
        }
        for (thread, (_, track)) in tracks {
            for (from, to) in self.source.profile.spans_off_cpu(thread) {
                if to < first || from > last {
                    continue;
                }
                let timing = MarkerTiming::Interval(moment(from), moment(to));
                markers::add(&mut self.file, track, timing, "off CPU", "");
            }
        }
    }

    /// Returns the track of a thread and event.
    fn track(&mut self, thread: Option<ThreadId>, index: usize, event: &str) -> ThreadHandle {
        if let Some(track) = self.threads.get(&(thread, index)) {
            return *track;
        }
        let begin = Timestamp::from_nanos_since_reference(0);
        let tasks = self.source.profile.tasks();
        let known = thread.map(|thread| &tasks.threads()[thread as usize]);
        let process = known.map(|known| known.process);
        let pid = process.map_or(0, |process| tasks.processes()[process as usize].pid);
        let tid = known.map_or(0, |known| known.tid);
        let comm = known.and_then(|known| known.comm.as_deref());
        let comm = comm.unwrap_or(dioptra_profile::UNKNOWN);
        let handle = match self.processes.get(&process) {
            Some(handle) => *handle,
            None => {
                let handle = self.file.add_process(comm, pid, begin);
                self.processes.insert(process, handle);
                handle
            }
        };
        // A main thread is shown by its process's name, which does not say the event.
        let is_main = tid == pid && self.source.events.len() == 1;
        let track = self.file.add_thread(handle, tid, begin, is_main);
        let title = match self.source.events.len() {
            1 => comm.to_owned(),
            _ => format!("{comm}, {event}"),
        };
        self.file.set_thread_name(track, &title);
        self.threads.insert((thread, index), track);
        track
    }

    /// Returns the stack of a path in a track; none for an empty one.
    fn stack(&mut self, track: ThreadHandle, path: PathId) -> Option<StackHandle> {
        if let Some(stack) = self.stacks.get(&(track, path)) {
            return *stack;
        }
        let mut functions = Vec::new();
        self.paths.functions(path, &mut functions);
        let frames: Vec<FrameInfo> = functions
            .iter()
            .map(|function| self.frame(*function))
            .collect();
        let stack = self.file.intern_stack_frames(track, frames.into_iter());
        self.stacks.insert((track, path), stack);
        stack
    }

    fn frame(&mut self, function: FunctionId) -> FrameInfo {
        let name = self.labels.of(self.source, function);
        let label = self.file.intern_string(name);
        let module = self.source.names.functions()[function as usize].module;
        let category = match self.source.profile.modules().get(module).kind {
            ModuleKind::Kernel => self.categories.kernel,
            ModuleKind::File | ModuleKind::Vdso => self.categories.user,
            _ => self.categories.runtime,
        };
        FrameInfo {
            frame: Frame::Label(label),
            category_pair: category.into(),
            flags: FrameFlags::empty(),
        }
    }
}
