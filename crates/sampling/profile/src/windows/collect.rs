//! From the samples of groups to bursts and windows.

use super::counter::{Counter, Open, Reading, Stretch};
use super::groups::WindowPlan;
use super::{ProfileWindows, WindowBurst, WindowFacts, WindowMarks, WindowSource};
use crate::hash::FxBuildHasher;
use crate::processes::tasks::ThreadId;
use dioptra_perfdata::{Burst, BurstOutcome, PerfData};
use dioptra_perfevents::windows::Length;
use dioptra_perfrecords::record::{RawRecord, RecordLayout};
use dioptra_perfrecords::{AttrFlags, Cursor};
use hashbrown::HashMap;

/// Into how many slices of time steady sampling is cut: windows of one slice and counter stand for a burst, so that
/// what changes slowly widens the intervals as it should.
const SLICES: u64 = 100;

/// No group, by event.
const NONE: u16 = u16::MAX;

/// To what a burst was bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Bound {
    Thread(u32),
    Cpu(u32),
    Nothing,
}

/// Windows while a recording is read.
#[derive(Debug)]
pub(crate) struct Collector<'a> {
    plan: WindowPlan,
    bursts: &'a [Burst],
    /// The bursts of each target and group, in the order of time.
    armed: HashMap<(u16, Bound), Vec<u32>, FxBuildHasher>,
    /// By event.
    group_of: Vec<u16>,
    event_of: HashMap<u64, u32, FxBuildHasher>,
    inherited: Vec<bool>,
    counters: HashMap<(u64, u32), Counter, FxBuildHasher>,
    done: Vec<(u16, Open)>,
    values: Vec<u64>,
    facts: WindowFacts,
}

/// The sample of a window.
pub(crate) struct WindowSample<'r, 'l> {
    pub event: usize,
    pub thread: ThreadId,
    pub raw: &'r RawRecord<'r>,
    pub layout: &'l RecordLayout,
    /// The stack or frame where it lies; `None` where it did not pass the filter.
    pub place: Option<u32>,
}

impl<'a> Collector<'a> {
    /// For a recording whose samples read groups.
    pub fn new(data: &'a PerfData) -> Option<Box<Self>> {
        let plan = WindowPlan::of(data)?;
        let bursts = data
            .features()
            .windows
            .as_ref()
            .map_or(&[][..], |windows| &windows.bursts);
        let mut armed: HashMap<_, Vec<u32>, _> = HashMap::default();
        for (number, burst) in (0_u32..).zip(bursts) {
            let bound = match (burst.tid, burst.cpu) {
                (Some(tid), _) => Bound::Thread(tid),
                (None, Some(cpu)) => Bound::Cpu(cpu),
                (None, None) => Bound::Nothing,
            };
            armed.entry((burst.group, bound)).or_default().push(number);
        }
        for numbers in armed.values_mut() {
            numbers.sort_by_key(|number| bursts[*number as usize].armed);
        }
        let mut group_of = vec![NONE; data.events().len()];
        for (number, group) in (0_u16..NONE).zip(&plan.groups) {
            for event in &group.events {
                group_of[*event as usize] = number;
            }
        }
        let ids = (0_u32..).zip(data.events());
        let event_of = ids.flat_map(|(index, event)| event.ids.iter().map(move |id| (*id, index)));
        Some(Box::new(Collector {
            bursts,
            armed,
            group_of,
            event_of: event_of.collect(),
            inherited: data
                .events()
                .iter()
                .map(|event| event.attr.flags.contains(AttrFlags::INHERIT))
                .collect(),
            counters: HashMap::default(),
            done: Vec::new(),
            values: Vec::new(),
            facts: WindowFacts::default(),
            plan,
        }))
    }

    /// The kernel throttled an event: what its counters tell next is no window. `body` is that of THROTTLE.
    pub fn throttled(&mut self, raw: &RawRecord<'_>, data: &PerfData) {
        let mut at = Cursor::new(raw.body, data.byte_order());
        let (Some(_), Some(id)) = (at.u64(), at.u64()) else {
            return;
        };
        for ((counter, _), state) in &mut self.counters {
            if *counter == id {
                state.pending |= WindowMarks::THROTTLED;
            }
        }
    }

    /// Records are missing, whose is not known.
    pub fn lost(&mut self) {
        for counter in self.counters.values_mut() {
            counter.pending |= WindowMarks::LOST;
        }
    }

    /// Takes a sample of an event that reads its group.
    pub fn sample(&mut self, sample: &WindowSample<'_, '_>) {
        let number = self.group_of.get(sample.event).copied().unwrap_or(NONE);
        if number == NONE {
            return;
        }
        self.facts.samples += 1;
        let group = &self.plan.groups[usize::from(number)];
        let parsed = sample.layout.sample(sample.raw).ok();
        let Some(parsed) = parsed else {
            self.facts.malformed += 1;
            return;
        };
        let Some(read) = parsed.read else {
            self.facts.malformed += 1;
            return;
        };
        let mut now = Reading {
            time: parsed.time.unwrap_or(0),
            cpu: parsed.cpu.unwrap_or(0),
            thread: sample.thread,
            place: sample.place,
            enabled: read.time_enabled,
            running: read.time_running,
            lost: 0,
            incomplete: false,
        };
        let mut values = std::mem::take(&mut self.values);
        values.clear();
        values.resize(group.events.len(), 0);
        let mut found = 0;
        for (place, value) in read.iter().enumerate() {
            now.lost = now.lost.saturating_add(value.lost.unwrap_or(0));
            let event = value.id.and_then(|id| self.event_of.get(&id));
            let at = match (value.id, event) {
                (Some(_), Some(event)) => group.events.iter().position(|member| member == event),
                (Some(_), None) => None,
                (None, _) => Some(place),
            };
            if let Some(slot) = at.and_then(|at| values.get_mut(at)) {
                *slot = value.value;
                found += 1;
            }
        }
        now.incomplete = found != group.events.len();
        let leader = read.get(0).and_then(|leader| leader.id);
        let inherited = self.inherited.get(sample.event) == Some(&true);
        let key = (
            leader.unwrap_or(u64::from(number)),
            if inherited {
                parsed.tid.unwrap_or(0)
            } else {
                0
            },
        );
        let bound = [
            parsed.tid.map(Bound::Thread),
            parsed.cpu.map(Bound::Cpu),
            Some(Bound::Nothing),
        ];
        self.place(key, number, bound, now, &mut values);
        self.values = values;
    }

    fn place(
        &mut self,
        key: (u64, u32),
        number: u16,
        bound: [Option<Bound>; 3],
        now: Reading,
        values: &mut [u64],
    ) {
        let counter = self
            .counters
            .entry(key)
            .or_insert_with(|| Counter::new(number));
        let before = counter.last().map(|last| (last.time, last.place));
        let group = &self.plan.groups[usize::from(number)];
        let stretch = counter.take(group, now, values);
        match self.plan.source {
            WindowSource::Bursts => {
                let burst = bound.into_iter().flatten().find_map(|bound| {
                    let numbers = self.armed.get(&(number, bound))?;
                    let after = numbers
                        .partition_point(|burst| self.bursts[*burst as usize].armed <= now.time);
                    Some(numbers[after.checked_sub(1)?] as usize)
                });
                let Some(burst) = burst else {
                    self.facts.stray += 1;
                    self.done
                        .extend(counter.open.take().map(|open| (number, open)));
                    return;
                };
                let armed = &self.bursts[burst];
                if counter
                    .open
                    .as_ref()
                    .is_none_or(|open| open.number != burst)
                {
                    let next = Open::begin(burst, armed.armed, &now);
                    let ended = counter.open.replace(next);
                    self.done.extend(ended.map(|open| (number, open)));
                    return;
                }
                let Some(open) = counter.open.as_mut() else {
                    return;
                };
                if open.seen >= armed.expected {
                    self.facts.stray += 1;
                    return;
                }
                match (stretch, before) {
                    (Stretch::Window(mut marks), Some((_, Some(start)))) => {
                        if armed.outcome.contains(BurstOutcome::LATE) {
                            marks |= WindowMarks::LATE;
                        }
                        if armed.outcome.contains(BurstOutcome::THROTTLED) {
                            marks |= WindowMarks::THROTTLED;
                        }
                        open.push((start, now.place.unwrap_or(start)), &now, marks, values);
                    }
                    _ => {
                        self.facts.filtered += 1;
                        open.seen = open.seen.saturating_add(1);
                    }
                }
            }
            WindowSource::Pairs { least, most } => {
                let length = match least {
                    Length::Time(_) => now.time.saturating_sub(before.map_or(0, |(time, _)| time)),
                    Length::Count(_) => values.first().copied().unwrap_or(0),
                };
                let is_window = (least.number()..=most.number()).contains(&length);
                match (stretch, before) {
                    (Stretch::Window(marks), Some((time, Some(start)))) if is_window => {
                        let open = counter.open.get_or_insert_with(|| {
                            let mut first = now;
                            first.time = time;
                            Open::begin(0, time, &first)
                        });
                        open.push((start, now.place.unwrap_or(start)), &now, marks, values);
                    }
                    (stretch, _) => {
                        self.done
                            .extend(counter.open.take().map(|open| (number, open)));
                        match stretch {
                            Stretch::Filtered => self.facts.filtered += 1,
                            Stretch::Window(_) => self.facts.other_lengths += 1,
                            Stretch::None => {}
                        }
                    }
                }
            }
            WindowSource::Steady => match (stretch, before) {
                (Stretch::Window(marks), Some((time, Some(start)))) => {
                    let open = counter
                        .open
                        .get_or_insert_with(|| Open::begin(0, time, &now));
                    // Indices start over in each slice.
                    open.push((start, now.place.unwrap_or(start)), &now, marks, values);
                }
                (Stretch::Filtered, _) => self.facts.filtered += 1,
                _ => {}
            },
        }
    }

    /// All windows.
    pub fn finish(mut self) -> ProfileWindows {
        let mut counters: Vec<_> = self.counters.drain().collect();
        counters.sort_unstable_by_key(|(key, _)| *key);
        for (_, counter) in counters {
            self.done
                .extend(counter.open.map(|open| (counter.group, open)));
        }
        let mut all = ProfileWindows {
            facts: self.facts,
            ..ProfileWindows::default()
        };
        if self.plan.source == WindowSource::Steady {
            let starts = self.done.iter().map(|(_, open)| open.time);
            let first = starts.min().unwrap_or(0);
            let ends = self.done.iter().filter_map(|(_, open)| open.ends.last());
            let last = ends.copied().max().unwrap_or(first);
            let slice = (last.saturating_sub(first) / SLICES).max(1);
            for (number, open) in std::mem::take(&mut self.done) {
                let width = self.plan.groups[usize::from(number)].events.len();
                all.push_slices(number, &open, width, |end| {
                    end.saturating_sub(first) / slice
                });
            }
        } else {
            for (number, open) in std::mem::take(&mut self.done) {
                let period = match self.plan.source {
                    WindowSource::Bursts => self.bursts.get(open.number).map(|burst| burst.period),
                    _ => None,
                };
                let width = self.plan.groups[usize::from(number)].events.len();
                all.push_burst(number, &open, 0..open.windows.len(), width, period);
            }
        }
        all.plan = self.plan;
        all
    }
}

impl ProfileWindows {
    /// Adds windows that follow on each other, those of a slice of time as one burst.
    fn push_slices(&mut self, group: u16, open: &Open, width: usize, slice: impl Fn(u64) -> u64) {
        let mut start = 0;
        while start < open.windows.len() {
            let this = slice(open.ends[start]);
            let length = open.ends[start..]
                .iter()
                .take_while(|end| slice(**end) == this)
                .count();
            self.push_burst(group, open, start..start + length, width, None);
            start += length;
        }
    }

    fn push_burst(
        &mut self,
        group: u16,
        open: &Open,
        range: std::ops::Range<usize>,
        width: usize,
        period: Option<u64>,
    ) {
        if range.is_empty() {
            return;
        }
        let counts = &open.counts[range.start * width..range.end * width];
        let leader: u64 = counts
            .iter()
            .step_by(width.max(1))
            .fold(0, |sum, one| sum.saturating_add(*one));
        let first = &open.windows[range.start];
        self.bursts.push(WindowBurst {
            group,
            thread: first.thread,
            cpu: open.cpu,
            time: if range.start == 0 {
                open.time
            } else {
                open.ends[range.start - 1]
            },
            period: period.unwrap_or(leader / range.len() as u64),
            first_window: self.windows.len(),
            first_count: self.counts.len(),
        });
        let windows = open.windows[range.clone()].iter().enumerate();
        self.windows.extend(windows.map(|(place, window)| {
            let mut window = *window;
            if period.is_none() {
                window.index = u16::try_from(place).unwrap_or(u16::MAX);
            }
            window
        }));
        self.counts.extend_from_slice(counts);
    }
}
