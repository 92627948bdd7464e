//! Windows by ordinary sampling: a session beside the one that samples for the ranking.

use super::alternate;
use super::ids::{own_id, set_id};
use super::notes::WindowNote;
use super::plan::{fallbacks, groups_of};
use super::probe::twins_of;
use super::source::{
    SourceKind, ThreadNews, WindowError, WindowGroup, WindowListener, WindowSource, WindowStats,
    WindowsSpec, is_clock,
};
use crate::ByteOrder;
use crate::SampleType;
use crate::attach::Arrangement;
use crate::attach::plan::Plan;
use crate::features::Features;
use crate::listener::RecordListener;
use crate::record::{RawRecord, RecordLayout, RecordType};
use crate::session::{AttachedEvent, AttachedSession, Session};
use crate::spec::{EventGroup, EventSpec, Inherit, SessionSpec, SideBand, Start};
use std::time::{Duration, Instant};

/// The time for which steady windows are taken: they slow the program down many times.
const STEADY: Duration = Duration::from_secs(2);

/// Samples a second of each event where there are no windows.
const FREQUENCY: u64 = 1000;

/// See the module.
#[derive(Debug)]
pub(super) struct SessionSource {
    kind: SourceKind,
    session: AttachedSession,
    /// The session's events, but for those that are its own.
    events: Vec<AttachedEvent>,
    ids_known: usize,
    groups: Vec<WindowGroup>,
    /// The layout of samples, whose counts have ids beside the one that may be another profiler's; `None` if not all samples
    /// have counts.
    layout: Option<RecordLayout>,
    /// The longest time for which windows are made.
    most: Option<Duration>,
    ends_at: Option<Instant>,
    starts_itself: bool,
    stopped: bool,
    stats: WindowStats,
    notes: Vec<WindowNote>,
}

impl SessionSource {
    pub fn attach(spec: &WindowsSpec, kind: SourceKind) -> Result<SessionSource, WindowError> {
        let session_spec = SessionSpec::new()
            .groups(groups(spec, kind))
            .target(spec.target.clone())
            .cpus(spec.cpus.clone())
            .inherit(if spec.inherit {
                Inherit::ThreadsAndChildren
            } else {
                Inherit::No
            })
            .start(spec.start)
            .fallbacks(fallbacks())
            .side_band(SideBand::NONE);
        let window_groups = match kind {
            // Each event stands for itself.
            SourceKind::Period => Vec::new(),
            _ => {
                let plan = Plan::new(&session_spec, &Features::get(), Arrangement::PerCore);
                let mut groups = groups_of(&plan);
                // Nothing is stopped, so nothing is inflated.
                groups.iter_mut().for_each(|group| group.drop_last = false);
                groups
            }
        };
        let session = Session::new(session_spec)?.attach()?;
        let attached = &session.attach_summary().notes;
        let mut notes: Vec<WindowNote> = attached.iter().cloned().map(WindowNote::Attach).collect();
        // A steady schedule that was asked for is not bounded.
        let bounded = kind == SourceKind::Steady && !spec.schedule.is_steady();
        if bounded {
            notes.push(WindowNote::SteadyForAWhile {
                seconds: STEADY.as_secs(),
            });
        }
        // A ring owner stands behind them.
        let ours = session.events().iter().filter(|event| event.spec.is_some());
        let events: Vec<AttachedEvent> = ours.cloned().collect();
        Ok(SessionSource {
            kind,
            layout: common_layout(&events),
            events,
            ids_known: session.new_ids_since(0).len(),
            session,
            groups: window_groups,
            most: bounded.then_some(STEADY),
            ends_at: None,
            starts_itself: spec.start != Start::Manual,
            stopped: false,
            stats: WindowStats::default(),
            notes,
        })
    }

    fn learn_ids(&mut self) {
        let new = self.session.new_ids_since(self.ids_known);
        self.ids_known += new.len();
        for (index, id) in new {
            if let Some(event) = self.events.get_mut(*index) {
                event.ids.push(*id);
            }
        }
    }
}

/// The layout of all samples, where they have one and read counts: which it is could not be told from an id that may be
/// another's.
fn common_layout(events: &[AttachedEvent]) -> Option<RecordLayout> {
    let mut sampled = events.iter().filter(|event| event.attr.samples());
    let first = sampled.next()?;
    let same = |event: &AttachedEvent| {
        (event.attr.sample_type, event.attr.read_format)
            == (first.attr.sample_type, first.attr.read_format)
    };
    let reads = first.attr.sample_type.contains(SampleType::READ);
    (reads && sampled.all(same)).then(|| RecordLayout::new(&first.attr, ByteOrder::NATIVE))
}

/// Returns the groups of events to sample.
fn groups(spec: &WindowsSpec, kind: SourceKind) -> Vec<EventGroup> {
    let schedule = &spec.schedule;
    let mut groups = spec.groups_with_period(schedule.short.number());
    match kind {
        SourceKind::Refresh | SourceKind::Steady => {}
        SourceKind::Twin => {
            groups = groups.iter().map(twins_of(schedule)).collect();
        }
        SourceKind::Kernel => {
            let leaders = groups.iter_mut();
            for leader in leaders.filter_map(|group| group.events.first_mut()) {
                alternate::apply(leader, schedule);
            }
        }
        SourceKind::Period => {
            let mut events: Vec<EventSpec> = Vec::new();
            for event in spec.groups.iter().flat_map(|group| &group.events) {
                if !events.iter().any(|known| known.attr == event.attr) {
                    events.push(event.clone());
                }
            }
            let alone = |mut event: EventSpec| {
                spec.complete(&mut event.attr);
                if Features::get().inherit_read || !spec.inherit {
                    // Its count tells whose the sample is, also where its id does not.
                    event.attr.sample_type |= SampleType::READ;
                }
                if is_clock(&event.attr) && !event.explicit_period {
                    event.set_default_period(1_000_000_000 / FREQUENCY);
                    // As those have whose frequency is set.
                    event.attr.sample_type |= SampleType::PERIOD;
                } else {
                    event.set_default_frequency(FREQUENCY);
                }
                EventGroup::from(event)
            };
            groups = events.into_iter().map(alone).collect();
        }
    }
    groups
}

impl WindowSource for SessionSource {
    fn kind(&self) -> SourceKind {
        self.kind
    }

    fn events(&self) -> &[AttachedEvent] {
        &self.events
    }

    fn groups(&self) -> &[WindowGroup] {
        &self.groups
    }

    fn start(&mut self) -> Result<(), WindowError> {
        self.ends_at = self.most.map(|most| Instant::now() + most);
        if !self.starts_itself {
            self.session.enable()?;
        }
        Ok(())
    }

    fn stop(&mut self) -> Result<(), WindowError> {
        self.stopped = true;
        Ok(self.session.disable()?)
    }

    fn see(&mut self, _seen: ThreadNews) {}

    fn round(&mut self, listener: &mut dyn WindowListener) -> Result<(), WindowError> {
        if self.ends_at.is_some_and(|end| Instant::now() >= end) {
            self.ends_at = None;
            self.session.disable()?;
        }
        let mut samples = Samples {
            listener,
            layout: self.layout.as_ref(),
            righted: Vec::new(),
        };
        if self.stopped {
            self.session.finish(&mut samples)?;
        } else {
            self.session.read_once(Duration::ZERO, &mut samples)?;
        }
        self.learn_ids();
        self.stats.samples = self.session.samples();
        self.stats.lost = self.session.lost_told();
        if self.stopped {
            let summary = self.session.summary();
            self.stats.lost = summary.lost;
            self.stats.throttled = summary.throttled;
            self.stats.watched = self.session.attach_summary().threads as u64;
        }
        Ok(())
    }

    fn stats(&self) -> WindowStats {
        self.stats.clone()
    }

    fn notes(&self) -> &[WindowNote] {
        &self.notes
    }
}

/// Passes on what belongs to the windows: of mappings and threads the other session tells.
struct Samples<'a> {
    listener: &'a mut dyn WindowListener,
    layout: Option<&'a RecordLayout>,
    righted: Vec<u8>,
}

impl RecordListener for Samples<'_> {
    fn raw(&mut self, _cpu: u32, bytes: &[u8], record: &RawRecord<'_>) {
        match record.kind {
            RecordType::SAMPLE => {
                let id = self.layout.and_then(|layout| own_id(layout, record));
                let Some(id) = id else {
                    self.listener.record(bytes, record);
                    return;
                };
                self.righted.clear();
                self.righted.extend_from_slice(bytes);
                set_id(id, &mut self.righted);
                if let Ok((record, _)) = RawRecord::split(&self.righted, ByteOrder::NATIVE) {
                    self.listener.record(&self.righted, &record);
                }
            }
            RecordType::LOST
            | RecordType::LOST_SAMPLES
            | RecordType::THROTTLE
            | RecordType::UNTHROTTLE => self.listener.record(bytes, record),
            _ => {}
        }
    }

    fn wants_parsed(&self) -> bool {
        false
    }
}
