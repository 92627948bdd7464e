//! Windows of a recording: their source beside the session that samples for the ranking, and the section in which the
//! file tells of them.

use crate::error::RecordError;
use crate::outcome::WindowsOutcome;
use crate::side_file::SideFile;
use crate::spec::{RecordSpec, WindowOptions};
use dioptra_perfdata::{
    Burst, BurstOutcome, EventToWrite, EventTotal, GroupDescription, WindowGroup, WindowLoss,
    WindowsEncoder, WriteError, Writer,
};
use dioptra_perfevents::record::{RawRecord, Record, RecordLayout, RecordType};
use dioptra_perfevents::windows::{
    self, FoundSource, Length, SHORTEST_LONG, Seen, SourceKind, WindowError, WindowListener,
    WindowSource, WindowStats, WindowsSpec, find_source,
};
use dioptra_perfevents::{
    AttachedEvent, AttrFlags, ByteOrder, EventGroup, EventSpec, EventSummary, ReadFormat,
    SampleType, SessionSpec, event_type,
};
use std::fs::File;

/// Bytes of bursts that wait before they are written to the side file.
const FLUSHED: usize = 4 << 10;

/// `PERF_COUNT_SW_TASK_CLOCK`.
const TASK_CLOCK: u64 = 1;

/// The events of all groups, each once, counted and not sampled: what the whole target's totals are made of. Groups
/// stay together, as far as their events were not counted before.
pub(crate) fn counting(groups: &[EventGroup]) -> Vec<EventGroup> {
    let mut known: Vec<EventSpec> = Vec::new();
    let mut counted = Vec::new();
    // It tells for how long threads ran, whatever else is counted.
    let clock = EventGroup::from(EventSpec::software(TASK_CLOCK));
    for group in groups.iter().chain([&clock]) {
        let mut alone = Vec::new();
        let mut together = Vec::new();
        for event in &group.events {
            let mut event = event.clone();
            event.attr.sample_period = 0;
            event.attr.flags.remove(AttrFlags::FREQ | AttrFlags::PINNED);
            event.attr.sample_type = SampleType::empty();
            event.attr.read_format = ReadFormat::empty();
            event.attr.branch_sample_type = 0;
            event.attr.set_precise_ip(0);
            event.clock_can_replace = false;
            let what = |event: &EventSpec| {
                let attr = &event.attr;
                (attr.kind, attr.config, attr.config1, attr.config2)
            };
            if known.iter().any(|other| what(other) == what(&event)) {
                continue;
            }
            known.push(event.clone());
            if crate::counters::takes_a_counter(&event.attr) {
                together.push(event);
            } else {
                alone.push(EventGroup::from(event));
            }
        }
        if !together.is_empty() {
            counted.push(EventGroup::new(together));
        }
        counted.extend(alone);
    }
    counted
}

/// The windows of a recording that runs.
pub(crate) struct Windowed {
    source: Box<dyn WindowSource>,
    findings: Vec<String>,
    /// Why a better source was not taken.
    instead: Option<String>,
    options: WindowOptions,
    encoder: WindowsEncoder,
    side: SideFile,
    /// By which the session's records are read.
    layout: RecordLayout,
    /// Where the windows' events stand among those of the file.
    first_event: usize,
    notes_told: usize,
    /// Notes that the session has told: the windows' events are refused what its own are.
    known_notes: Vec<String>,
    error: Option<WindowError>,
    side_error: Option<std::io::Error>,
}

impl Windowed {
    /// Opens the events of the windows of `spec`, if it has any, for the target of the session. In the file they stand
    /// behind `events`.
    pub fn attach(
        spec: &RecordSpec,
        session: &SessionSpec,
        events: &[AttachedEvent],
        known_notes: &[String],
    ) -> Result<Option<Windowed>, RecordError> {
        let Some(options) = &spec.windows else {
            return Ok(None);
        };
        let mut asked = WindowsSpec::new(
            options.schedule,
            options.groups.clone(),
            session.target.clone(),
        );
        // A pipe names ids only at its start: threads that come later would have windows of nobody.
        asked.inherit = spec.inherit && !spec.to_stdout();
        asked.start = session.start;
        asked.cpus = session.cpus.clone();
        asked.samples = spec.samples.of_windows();
        let FoundSource {
            source,
            mut findings,
            instead,
        } = find_source(&asked, options.source)?;
        if let Some(cost) = options.cost {
            findings.push(format!(
                "cost: a burst takes {:.0} us from a program that computes, as tried out at the start",
                cost.burst as f64 / 1000.0
            ));
        }
        let long = options.schedule.long;
        if source.kind() == SourceKind::Refresh && (1..SHORTEST_LONG).contains(&long.number()) {
            findings.push(format!(
                "long={long} cannot be kept: bursts of a CPU begin {} apart or more",
                Length::Time(SHORTEST_LONG)
            ));
        }
        let output = (!spec.to_stdout()).then_some(spec.output.as_path());
        let side = SideFile::create(output).map_err(|source| RecordError::Create {
            path: crate::side_file::beside(&spec.output),
            source,
        })?;
        let attr = events.first().map(|event| event.attr.clone());
        let mut windowed = Windowed {
            source,
            findings,
            instead,
            options: options.clone(),
            encoder: WindowsEncoder::new(),
            side,
            layout: RecordLayout::new(&attr.unwrap_or_default(), ByteOrder::NATIVE),
            first_event: events.len(),
            notes_told: 0,
            known_notes: known_notes.to_vec(),
            error: None,
            side_error: None,
        };
        windowed.begin();
        Ok(Some(windowed))
    }

    /// Writes what is known at the start.
    fn begin(&mut self) {
        let index = |event: usize| u32::try_from(self.first_event + event).unwrap_or(u32::MAX);
        self.encoder.source(self.source.kind().name());
        for finding in &self.findings {
            self.encoder.finding(finding);
        }
        if let Some(why) = &self.instead {
            self.encoder.instead(why);
        }
        self.encoder
            .schedule(&self.options.schedule, self.options.settle);
        for group in self.source.groups() {
            self.encoder.group(&WindowGroup {
                leader: index(group.leader),
                members: group.members.iter().copied().map(index).collect(),
                drop_last: group.drop_last,
            });
        }
        self.flush();
    }

    /// The events, as the file describes them.
    pub fn events(&self) -> &[AttachedEvent] {
        self.source.events()
    }

    /// The same with the ids known so far.
    pub fn events_to_write(&self) -> impl Iterator<Item = EventToWrite> + '_ {
        self.source.events().iter().map(|event| EventToWrite {
            attr: event.attr.clone(),
            name: event.name.clone(),
            ids: event.ids.clone(),
        })
    }

    /// Descriptions of the groups.
    pub fn group_descriptions(&self) -> impl Iterator<Item = GroupDescription> + '_ {
        let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let groups = self.source.groups().iter();
        groups
            .filter(|group| !group.members.is_empty())
            .map(move |group| GroupDescription {
                name: String::new(),
                leader: number(self.first_event + group.leader),
                members: number(1 + group.members.len()),
            })
    }

    /// What was found, and what there is to know of it at the start.
    pub fn outcome(&self) -> WindowsOutcome {
        WindowsOutcome {
            source: self.source.kind(),
            schedule: self.options.schedule,
            groups: self
                .options
                .groups
                .iter()
                .map(|group| {
                    group
                        .events
                        .iter()
                        .map(|event| event.name.clone())
                        .collect()
                })
                .collect(),
            findings: self.findings.clone(),
            instead: self.instead.clone(),
            stats: self.source.stats(),
            cost: self.options.cost,
        }
    }

    /// Notes that nobody was told yet.
    pub fn new_notes(&mut self) -> Vec<String> {
        let notes = self.source.notes();
        let new = notes.get(self.notes_told..).unwrap_or_default();
        self.notes_told = notes.len();
        let is_new = |note: &&String| !self.known_notes.contains(note);
        new.iter().filter(is_new).cloned().collect()
    }

    /// Lets windows be made.
    pub fn start(&mut self) -> Result<(), RecordError> {
        Ok(self.source.start()?)
    }

    /// Makes no more of them; what there is comes with the next round.
    pub fn stop(&mut self) -> Result<(), RecordError> {
        Ok(self.source.stop()?)
    }

    /// Takes note of a record of the session.
    #[inline]
    pub fn see(&mut self, cpu: u32, record: &RawRecord<'_>) {
        match record.kind {
            RecordType::SAMPLE => {
                if let Some(tid) = self.layout.thread(record) {
                    self.source.see(Seen::Ran { tid, cpu });
                }
            }
            RecordType::FORK => {
                if let Ok(Record::Fork(task, _)) = self.layout.parse(record) {
                    self.source.see(Seen::Created { tid: task.tid });
                }
            }
            _ => {}
        }
    }

    /// Writes what was made since the last time.
    pub fn round(&mut self, writer: &mut Writer<File>) -> Result<u64, WriteError> {
        let mut taken = Taken {
            writer,
            encoder: &mut self.encoder,
            bytes: 0,
            error: None,
        };
        let result = self.source.round(&mut taken);
        let (bytes, error) = (taken.bytes, taken.error);
        if let Err(error) = result {
            self.error.get_or_insert(error);
        }
        if self.encoder.waiting() >= FLUSHED {
            self.flush();
            self.side.keep();
        }
        match error {
            Some(error) => Err(error),
            None => Ok(bytes),
        }
    }

    fn flush(&mut self) {
        let bytes = self.encoder.take();
        if let Err(error) = self.side.append(&bytes) {
            self.side_error.get_or_insert(error);
        }
    }

    /// What kept windows from being made, if something did.
    pub fn take_error(&mut self) -> Option<WindowError> {
        self.error.take()
    }

    /// Ends the section, with the totals of what was counted from one time to another.
    pub fn section(
        &mut self,
        totals: &[EventTotal],
        span: (u64, u64),
    ) -> Result<Vec<u8>, std::io::Error> {
        let stats = self.source.stats();
        for total in totals {
            self.encoder.total(total);
        }
        self.encoder.span(span.0, span.1);
        for (what, count) in losses(&stats) {
            self.encoder.loss(&WindowLoss {
                what: what.to_owned(),
                count,
            });
        }
        self.flush();
        match self.side_error.take() {
            Some(error) => Err(error),
            None => self.side.read(),
        }
    }

    /// The file is complete without the side file.
    pub fn done(self) {
        self.side.remove();
    }
}

/// What got no windows, and how often.
fn losses(stats: &WindowStats) -> impl Iterator<Item = (&'static str, u64)> {
    [
        (
            "threads had no windows: too many at once, or too short-lived",
            stats.unwatched,
        ),
        (
            "bursts were not armed, since the one before was not over",
            stats.busy,
        ),
        (
            "bursts were not armed, since the recorder was behind",
            stats.held_back,
        ),
        ("bursts were refused by the kernel", stats.refused),
        ("samples of windows found their ring full", stats.lost),
    ]
    .into_iter()
    .filter(|(_, count)| *count > 0)
}

/// Writes records, and bursts into the section.
struct Taken<'a> {
    writer: &'a mut Writer<File>,
    encoder: &'a mut WindowsEncoder,
    bytes: u64,
    error: Option<WriteError>,
}

impl WindowListener for Taken<'_> {
    fn record(&mut self, bytes: &[u8], _record: &RawRecord<'_>) {
        if self.error.is_some() {
            return;
        }
        self.bytes += bytes.len() as u64;
        self.error = self.writer.write(bytes).err();
    }

    fn burst(&mut self, burst: &windows::Burst) {
        self.encoder.burst(&Burst {
            group: burst.group,
            cpu: burst.cpu,
            tid: burst.tid,
            armed: burst.armed,
            ended: burst.ended,
            period: burst.period,
            expected: burst.expected,
            seen: burst.seen,
            outcome: BurstOutcome(burst.outcome.bits()),
        });
    }
}

/// The totals of what was counted, without scaling. Where a thread has an event for each CPU, all of them are enabled
/// wherever it runs, so that `of_threads` takes for how long the threads ran from a software event, which is always
/// counted.
pub(crate) fn totals(counted: &[Counted<'_>], of_threads: bool) -> Vec<EventTotal> {
    let ran = counted
        .iter()
        .filter(|counted| counted.event.attr.kind == event_type::SOFTWARE)
        .map(|counted| counted.total.time_running)
        .max();
    counted
        .iter()
        .map(|Counted { event, total }| EventTotal {
            event: event.name.clone(),
            value: total.count,
            enabled: match ran {
                Some(ran) if of_threads => ran.max(total.time_running),
                _ => total.time_enabled,
            },
            running: total.time_running,
        })
        .collect()
}

/// An event that was only counted.
pub(crate) struct Counted<'a> {
    pub event: &'a AttachedEvent,
    pub total: &'a EventSummary,
}

#[cfg(test)]
mod tests {
    use super::*;
    use dioptra_perfevents::parse_events;

    #[test]
    fn each_event_is_counted_once() {
        let groups = parse_events("{task-clock,page-faults},{r1,r2},{r1,r3,page-faults}").unwrap();
        let counted = counting(&groups);
        let names: Vec<Vec<&str>> = counted
            .iter()
            .map(|group| group.events.iter().map(|e| e.name.as_str()).collect())
            .collect();
        assert_eq!(
            names,
            [
                vec!["task-clock"],
                vec!["page-faults"],
                vec!["r1", "r2"],
                vec!["r3"]
            ]
        );
        assert!(
            counted
                .iter()
                .flat_map(|group| &group.events)
                .all(|event| !event.attr.samples())
        );
        let clock = counting(&parse_events("{page-faults}").unwrap());
        assert_eq!(clock.len(), 2, "for how long threads ran is always counted");
    }

    #[test]
    fn threads_are_enabled_for_as_long_as_they_ran() {
        let event = |text: &str| {
            let parsed = parse_events(text).unwrap();
            AttachedEvent::new(&parsed[0].events[0])
        };
        let total = |count, enabled, running| {
            let mut total = EventSummary::default();
            (total.count, total.time_enabled, total.time_running) = (count, enabled, running);
            total
        };
        let events = [event("task-clock"), event("r1")];
        // Two CPUs, one of which it used; the counter had half of the time.
        let summed = [total(100, 200, 100), total(7, 200, 50)];
        let counted: Vec<Counted<'_>> = events
            .iter()
            .zip(&summed)
            .map(|(event, total)| Counted { event, total })
            .collect();
        let of = |of_threads| totals(&counted, of_threads);
        let threads: Vec<u64> = of(true).iter().map(|total| total.enabled).collect();
        assert_eq!(threads, [100, 100]);
        assert_eq!(of(false)[1].enabled, 200);
        assert_eq!((of(true)[1].value, of(true)[1].running), (7, 50));
    }
}
