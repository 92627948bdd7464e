//! Recording windows: their source beside the session that samples for the ranking, and the file's section about them.

mod settings;
mod side_file;

pub use settings::{StartFinding, WindowSettings, WindowsOutcome};

use crate::section::{EventTotal, SectionEncoder, WindowLoss};
use dioptra_perfdata::{Feature, GroupDescription, WriteError};
use dioptra_perfevents::record::{RawRecord, Record, RecordLayout, RecordType};
use dioptra_perfevents::windows::{
    Burst, FoundSource, Length, SHORTEST_LONG, SHORTEST_LONG_OF_TWINS, SourceKind, ThreadNews,
    WindowError, WindowListener, WindowNote, WindowSource, WindowStats, WindowsSpec, find_source,
};
use dioptra_perfevents::{
    AttachNote, AttachedEvent, AttrFlags, ByteOrder, EventGroup, EventSpec, ReadFormat, SampleType,
    event_type,
};
use dioptra_recorder::counters::takes_a_counter;
use dioptra_recorder::{
    CountedEvent, ExtensionError, ExtensionTarget, RecordExtension, RecordingEnd,
};
use side_file::SideFile;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// The number of bytes of bursts that wait before they are written to the side file.
const FLUSHED: usize = 4 << 10;

/// `PERF_COUNT_SW_TASK_CLOCK`.
const TASK_CLOCK: u64 = 1;

/// The reason why a recording cannot make windows.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WindowRecordError {
    /// The source failed.
    #[error("windows: {0}")]
    Source(#[from] WindowError),
    /// The file beside the recording, which keeps bursts until the end, cannot be created.
    #[error("creating {}: {source}", .path.display())]
    SideFile {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// Returns the events of all groups, each once, to be counted over the whole run and not sampled. Groups stay together, as
/// far as an earlier group does not count their events.
fn counting(groups: &[EventGroup]) -> Vec<EventGroup> {
    let mut known: Vec<EventSpec> = Vec::new();
    let mut counted = Vec::new();
    // The clock states for how long threads ran, whatever else is counted.
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
            let identity = |event: &EventSpec| {
                let attr = &event.attr;
                (attr.kind, attr.config, attr.config1, attr.config2)
            };
            if known
                .iter()
                .any(|other| identity(other) == identity(&event))
            {
                continue;
            }
            known.push(event.clone());
            if takes_a_counter(&event.attr) {
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

/// The extension of a recording that makes windows.
pub struct WindowsRecorder<'a> {
    settings: WindowSettings,
    /// Called once the source is attached.
    on_attached: Box<dyn FnMut(&WindowsOutcome) + 'a>,
    attached: Option<AttachedWindows>,
    /// The outcome of a complete recording.
    complete: Option<WindowsOutcome>,
}

/// The windows of a recording whose events are open.
struct AttachedWindows {
    source: Box<dyn WindowSource>,
    findings: Vec<StartFinding>,
    /// Why a better source was not taken.
    instead: Option<String>,
    encoder: SectionEncoder,
    side: SideFile,
    /// The layout of the session's records.
    layout: RecordLayout,
    /// The index of the first of the windows' events among those of the file.
    first_event: u32,
    /// The number of the source's notes that were returned.
    notes_returned: usize,
    /// The diagnostics of the session: the kernel refuses the windows' events the same.
    known_diagnostics: Vec<AttachNote>,
    error: Option<WindowError>,
    side_error: Option<io::Error>,
}

impl<'a> WindowsRecorder<'a> {
    /// Makes windows by `settings`. Calls `on_attached` with the source once its events are open.
    pub fn new(
        settings: WindowSettings,
        on_attached: impl FnMut(&WindowsOutcome) + 'a,
    ) -> WindowsRecorder<'a> {
        WindowsRecorder {
            settings,
            on_attached: Box::new(on_attached),
            attached: None,
            complete: None,
        }
    }

    /// Returns the source and the windows that it has made; `None` before its events are open.
    pub fn outcome(&self) -> Option<WindowsOutcome> {
        if self.complete.is_some() {
            return self.complete.clone();
        }
        let attached = self.attached.as_ref()?;
        let groups = self.settings.groups.iter();
        let names = groups.map(|group| {
            let events = group.events.iter();
            events.map(|event| event.name.clone()).collect()
        });
        Some(WindowsOutcome {
            source: attached.source.kind(),
            schedule: self.settings.schedule,
            groups: names.collect(),
            findings: attached.findings.clone(),
            instead: attached.instead.clone(),
            stats: attached.source.stats(),
            cost: self.settings.cost,
        })
    }
}

impl AttachedWindows {
    /// Opens the events of `settings` for the target of a recording.
    fn new(
        settings: &WindowSettings,
        to: &ExtensionTarget<'_>,
    ) -> Result<AttachedWindows, WindowRecordError> {
        let session = to.session;
        let mut asked = WindowsSpec::new(
            settings.schedule,
            settings.groups.clone(),
            session.target.clone(),
        );
        // A pipe names ids only at its start: windows of threads that come later would belong to no event.
        asked.inherit = to.inherit && to.file.is_some();
        asked.start = session.start;
        asked.cpus = session.cpus.clone();
        asked.samples = to.samples;
        let FoundSource {
            source,
            findings,
            instead,
        } = find_source(&asked, settings.source)?;
        let mut findings: Vec<StartFinding> =
            findings.into_iter().map(StartFinding::Source).collect();
        if let Some(cost) = settings.cost {
            findings.push(StartFinding::Cost(cost));
        }
        let long = settings.schedule.long;
        let shortest = match source.kind() {
            SourceKind::Refresh => SHORTEST_LONG,
            SourceKind::Twin => SHORTEST_LONG_OF_TWINS,
            _ => 0,
        };
        if (1..shortest).contains(&long.number()) {
            let shortest = Length::Time(shortest);
            findings.push(StartFinding::LongTooShort { long, shortest });
        }
        let side = SideFile::create(to.file).map_err(|source| WindowRecordError::SideFile {
            path: to.file.map(side_file::beside).unwrap_or_default(),
            source,
        })?;
        let attr = to.events.first().map(|event| event.attr.clone());
        let mut attached = AttachedWindows {
            source,
            findings,
            instead: instead.map(|instead| instead.to_string()),
            encoder: SectionEncoder::new(),
            side,
            layout: RecordLayout::new(&attr.unwrap_or_default(), ByteOrder::NATIVE),
            first_event: u32::try_from(to.events.len()).unwrap_or(u32::MAX),
            notes_returned: 0,
            known_diagnostics: to.diagnostics.to_vec(),
            error: None,
            side_error: None,
        };
        attached.begin(settings);
        Ok(attached)
    }

    /// Writes the parts of the section that are known at the start.
    fn begin(&mut self, settings: &WindowSettings) {
        self.encoder.source(self.source.kind().name());
        for finding in &self.findings {
            self.encoder.finding(&finding.to_string());
        }
        if let Some(why) = &self.instead {
            self.encoder.instead(why);
        }
        self.encoder.schedule(&settings.schedule, settings.warm_up);
        for group in self.source.groups() {
            self.encoder.group(&group.behind(self.first_event));
        }
        self.flush();
    }

    fn flush(&mut self) {
        let bytes = self.encoder.take();
        if let Err(error) = self.side.append(&bytes) {
            self.side_error.get_or_insert(error);
        }
    }
}

impl RecordExtension for WindowsRecorder<'_> {
    fn counted_groups(&self) -> Vec<EventGroup> {
        counting(&self.settings.groups)
    }

    fn attach(&mut self, to: &ExtensionTarget<'_>) -> Result<(), ExtensionError> {
        self.attached = Some(AttachedWindows::new(&self.settings, to)?);
        if let Some(outcome) = self.outcome() {
            (self.on_attached)(&outcome);
        }
        Ok(())
    }

    fn events(&self) -> &[AttachedEvent] {
        let attached = self.attached.as_ref();
        attached.map_or(&[], |attached| attached.source.events())
    }

    fn group_descriptions(&self) -> Vec<GroupDescription> {
        let Some(attached) = &self.attached else {
            return Vec::new();
        };
        let groups = attached.source.groups().iter();
        groups
            .filter(|group| !group.members.is_empty())
            .map(|group| GroupDescription {
                name: String::new(),
                leader: group.leader.saturating_add(attached.first_event),
                members: u32::try_from(1 + group.members.len()).unwrap_or(u32::MAX),
            })
            .collect()
    }

    fn start(&mut self) -> Result<(), ExtensionError> {
        match &mut self.attached {
            Some(attached) => Ok(attached.source.start().map_err(WindowRecordError::Source)?),
            None => Ok(()),
        }
    }

    fn stop(&mut self) -> Result<(), ExtensionError> {
        match &mut self.attached {
            Some(attached) => Ok(attached.source.stop().map_err(WindowRecordError::Source)?),
            None => Ok(()),
        }
    }

    #[inline]
    fn see(&mut self, cpu: u32, record: &RawRecord<'_>) {
        let Some(attached) = &mut self.attached else {
            return;
        };
        match record.kind {
            RecordType::SAMPLE => {
                if let Some(tid) = attached.layout.thread(record) {
                    attached.source.see(ThreadNews::Ran { tid, cpu });
                }
            }
            RecordType::FORK => {
                if let Ok(Record::Fork(task, _)) = attached.layout.parse(record) {
                    attached.source.see(ThreadNews::Created { tid: task.tid });
                }
            }
            _ => {}
        }
    }

    fn round(
        &mut self,
        write: &mut dyn FnMut(&[u8]) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        let Some(attached) = &mut self.attached else {
            return Ok(());
        };
        let mut writer = RoundWriter {
            write,
            encoder: &mut attached.encoder,
            error: None,
        };
        let result = attached.source.round(&mut writer);
        let error = writer.error;
        if let Err(error) = result {
            attached.error.get_or_insert(error);
        }
        if attached.encoder.waiting() >= FLUSHED {
            attached.flush();
            attached.side.keep();
        }
        match error {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn new_diagnostics(&mut self) -> Vec<ExtensionError> {
        let Some(attached) = &mut self.attached else {
            return Vec::new();
        };
        let notes = attached.source.notes();
        let new = notes.get(attached.notes_returned..).unwrap_or_default();
        let is_known = |note: &WindowNote| match note {
            WindowNote::Attach(note) => attached.known_diagnostics.contains(note),
            _ => false,
        };
        let new = new.iter().filter(|note| !is_known(note)).cloned();
        let mut diagnostics: Vec<ExtensionError> = new.map(Into::into).collect();
        attached.notes_returned = notes.len();
        if let Some(error) = attached.error.take() {
            diagnostics.push(WindowRecordError::Source(error).into());
        }
        diagnostics
    }

    fn section(&mut self, end: &RecordingEnd<'_>) -> io::Result<(Feature, Vec<u8>)> {
        let Some(attached) = &mut self.attached else {
            return Ok((Feature::WINDOWS, SectionEncoder::new().take()));
        };
        let stats = attached.source.stats();
        for total in totals(&end.counted, end.of_threads) {
            attached.encoder.total(&total);
        }
        attached.encoder.span(end.span.0, end.span.1);
        for (what, count) in losses(&stats) {
            attached.encoder.loss(&WindowLoss {
                what: what.to_owned(),
                count,
            });
        }
        attached.flush();
        match attached.side_error.take() {
            Some(error) => Err(error),
            None => Ok((Feature::WINDOWS, attached.side.read()?)),
        }
    }

    fn lost(&self) -> u64 {
        let attached = self.attached.as_ref();
        attached.map_or(0, |attached| attached.source.stats().lost)
    }

    fn complete(&mut self) {
        self.complete = self.outcome();
        // The command may go on for long: the events need not stay open.
        if let Some(mut attached) = self.attached.take() {
            attached.side.remove();
        }
    }
}

/// Returns the reasons why windows were not made, and how often each occurred.
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

/// Writes records into the file, and bursts into the section.
struct RoundWriter<'a> {
    write: &'a mut dyn FnMut(&[u8]) -> Result<(), WriteError>,
    encoder: &'a mut SectionEncoder,
    error: Option<WriteError>,
}

impl WindowListener for RoundWriter<'_> {
    fn record(&mut self, bytes: &[u8], _record: &RawRecord<'_>) {
        if self.error.is_some() {
            return;
        }
        self.error = (self.write)(bytes).err();
    }

    fn burst(&mut self, burst: &Burst) {
        self.encoder.burst(burst);
    }
}

/// Returns the counts over the whole run, without scaling. A thread may have an event for each CPU, and all of them are
/// enabled wherever the thread runs. So `of_threads` takes the time for which the threads ran from a software event, which
/// is always counted.
fn totals(counted: &[CountedEvent<'_>], of_threads: bool) -> Vec<EventTotal> {
    let ran = counted
        .iter()
        .filter(|counted| counted.event.attr.kind == event_type::SOFTWARE)
        .map(|counted| counted.total.time_running)
        .max();
    counted
        .iter()
        .map(|CountedEvent { event, total }| EventTotal {
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

#[cfg(test)]
mod tests {
    use super::*;
    use dioptra_perfevents::{EventSummary, parse_events};

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
        let counted: Vec<CountedEvent<'_>> = events
            .iter()
            .zip(&summed)
            .map(|(event, total)| CountedEvent { event, total })
            .collect();
        let of = |of_threads| totals(&counted, of_threads);
        let threads: Vec<u64> = of(true).iter().map(|total| total.enabled).collect();
        assert_eq!(threads, [100, 100]);
        assert_eq!(of(false)[1].enabled, 200);
        assert_eq!((of(true)[1].value, of(true)[1].running), (7, 50));
    }
}
