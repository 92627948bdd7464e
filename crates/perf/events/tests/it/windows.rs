//! Windows on this machine: armed bursts arrive, their windows have the wanted length, and all bursts are reported.

use crate::collect::{PATIENCE, fault};
use crate::skip;
use dioptra_perfevents::names::software;
use dioptra_perfevents::record::{RawRecord, RecordLayout, RecordType};
use dioptra_perfevents::windows::{
    Burst, BurstOutcome, FoundSource, Length, Schedule, SourceKind, WindowError, WindowListener,
    WindowsSpec, find_source,
};
use dioptra_perfevents::{
    ByteOrder, CpuSet, Event, EventGroup, EventSpec, EventTarget, SampleType, Target, limits,
};
use dioptra_testprograms::{Limit, skip};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A thread that touches fresh pages until it is dropped.
struct Faulting {
    tid: u32,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Faulting {
    fn start() -> Faulting {
        let stop = Arc::new(AtomicBool::new(false));
        let (send, receive) = std::sync::mpsc::channel();
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            // SAFETY: no arguments.
            send.send(unsafe { libc::gettid() }.unsigned_abs())
                .expect("the test listens");
            while !stopped.load(Ordering::Relaxed) {
                fault(256);
            }
        });
        Faulting {
            tid: receive.recv().expect("its id"),
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Faulting {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A sample: time, thread, and the values of its group.
type Sampled = (u64, u32, Vec<u64>);

#[derive(Default)]
struct Kept {
    layout: Option<RecordLayout>,
    samples: Vec<Sampled>,
    ids: BTreeSet<u64>,
    bursts: Vec<Burst>,
}

impl WindowListener for Kept {
    fn record(&mut self, bytes: &[u8], record: &RawRecord<'_>) {
        assert_eq!(bytes.len(), record.body.len() + 8);
        if record.kind != RecordType::SAMPLE {
            return;
        }
        let layout = self.layout.as_ref().expect("the layout is known");
        // As it was handed over: the record's parts are those that the kernel wrote.
        let (record, _) = RawRecord::split(bytes, ByteOrder::NATIVE).expect("a record");
        let sample = layout.sample(&record).expect("a whole sample");
        self.ids.extend(sample.id);
        let values = sample.read.map(|read| read.iter().map(|v| v.value));
        self.samples.push((
            sample.time.expect("a time"),
            sample.tid.expect("a thread"),
            values.map(Iterator::collect).unwrap_or_default(),
        ));
    }

    fn burst(&mut self, burst: &Burst) {
        self.bursts.push(*burst);
    }
}

fn task_clock() -> EventSpec {
    EventSpec::software(software::TASK_CLOCK).user_only()
}

fn faults_first() -> EventGroup {
    EventGroup::new([EventSpec::page_faults().user_only(), task_clock()])
}

fn schedule(short: Length, jitter: Length) -> Schedule {
    Schedule {
        long: Length::Time(1_000_000),
        short,
        jitter,
        batch: 4,
    }
}

fn of_thread(tid: u32, group: EventGroup, schedule: Schedule) -> WindowsSpec {
    WindowsSpec::new(schedule, vec![group], Target::Threads(vec![tid]))
}

/// A source that is not started, and a listener for what will come; `None` where events are refused.
fn source(spec: &WindowsSpec, kind: Option<SourceKind>) -> Option<(FoundSource, Kept)> {
    const TRIES: usize = 5;
    // A source that samples throughout is tried out, which fails where the thread is kept from its CPU.
    let found = (0..TRIES)
        .map(|_| find_source(spec, kind))
        .find(|found| !matches!(found, Err(WindowError::Forced { .. })))
        .unwrap_or_else(|| find_source(spec, kind));
    let found = match found {
        Ok(found) => found,
        Err(WindowError::Forced { .. }) if Limit::BusyMachine.holds() => {
            skip(Limit::BusyMachine);
            return None;
        }
        Err(error) => {
            dioptra_testprograms::skip(error.to_string());
            return None;
        }
    };
    let layout = found.source.events().first().map(|event| {
        assert!(!event.ids.is_empty());
        RecordLayout::new(&event.attr, ByteOrder::NATIVE)
    });
    let kept = Kept {
        layout,
        ..Kept::default()
    };
    Some((found, kept))
}

/// Starts it, and makes rounds until it is enough or patience is over.
fn rounds(
    found: &mut FoundSource,
    kept: &mut Kept,
    patience: Duration,
    enough: impl Fn(&Kept) -> bool,
) {
    found.source.start().expect("start");
    let end = Instant::now() + patience;
    while !enough(kept) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
        found.source.round(kept).expect("round");
    }
}

/// Makes windows until there are so many bursts; `None` where events are refused.
fn make(
    spec: &WindowsSpec,
    kind: Option<SourceKind>,
    bursts: usize,
) -> Option<(FoundSource, Kept)> {
    let (mut found, mut kept) = source(spec, kind)?;
    let armed = matches!(kind, None | Some(SourceKind::Refresh));
    rounds(&mut found, &mut kept, PATIENCE, |kept| match armed {
        true => kept.bursts.len() >= bursts,
        false => kept.samples.len() >= bursts,
    });
    found.source.stop().expect("stop");
    found.source.round(&mut kept).expect("the last round");
    Some((found, kept))
}

#[test]
fn bursts_of_a_counted_event_are_exact() {
    let thread = Faulting::start();
    let group = faults_first();
    let spec = of_thread(
        thread.tid,
        group,
        schedule(Length::Count(9), Length::Count(3)),
    );
    let Some((found, kept)) = make(&spec, Some(SourceKind::Refresh), 100) else {
        return;
    };
    let stats = found.source.stats();
    assert!(kept.bursts.len() >= 100, "{stats:?}");
    assert!(found.source.groups()[0].drop_last);
    let mut periods = BTreeSet::new();
    let mut samples = kept.samples.iter();
    for burst in &kept.bursts {
        assert_eq!((burst.expected, burst.tid), (5, Some(thread.tid)));
        assert!((6..=12).contains(&burst.period), "{burst:?}");
        periods.insert(burst.period);
        let ours: Vec<&Sampled> = samples
            .by_ref()
            .take(usize::from(burst.seen) + usize::from(burst.seen > 0))
            .collect();
        if !burst.outcome.contains(BurstOutcome::COMPLETE) {
            continue;
        }
        assert_eq!(burst.seen, 5);
        // Exactly the period apart, but for the last.
        for pair in ours.windows(2).take(4) {
            assert_eq!(pair[1].2[0] - pair[0].2[0], burst.period, "{burst:?}");
            assert!(pair[1].2[1] > pair[0].2[1], "the task's clock goes on");
        }
        assert!(ours[0].0 >= burst.armed && ours[5].0 <= burst.ended);
    }
    assert!(periods.len() > 4, "drawn anew for each: {periods:?}");
    assert_eq!(stats.armed, kept.bursts.len() as u64);
    assert!(stats.complete > stats.armed / 2, "{stats:?}");
    assert_eq!(stats.samples, kept.samples.len() as u64);
    assert_eq!(
        stats.median_count.map(|count| (6..=12).contains(&count)),
        Some(true)
    );
}

#[test]
fn bursts_of_a_clock_are_as_long_as_asked_or_longer() {
    let thread = Faulting::start();
    let group = EventGroup::new([task_clock(), EventSpec::page_faults().user_only()]);
    let spec = of_thread(
        thread.tid,
        group,
        schedule(Length::Time(100_000), Length::Time(0)),
    );
    if limits::refresh_of_clocks_is_unsafe() {
        skip!("on this kernel clocks must not be armed");
    }
    let Some((found, kept)) = make(&spec, None, 100) else {
        return;
    };
    assert_eq!(
        found.source.kind(),
        SourceKind::Refresh,
        "{:?}",
        found.findings
    );
    let stats = found.source.stats();
    assert!(
        stats.complete > 0 && !found.source.groups()[0].drop_last,
        "{stats:?}"
    );
    for burst in &kept.bursts {
        assert_eq!((burst.expected, burst.period), (4, 100_000));
        assert!(burst.seen <= 4);
        assert!(burst.ended > burst.armed);
    }
    // Timers expire late, never early; faults come at the rate of the whole run.
    assert!(stats.median_count >= Some(99_000), "{stats:?}");
    assert!(kept.samples.iter().all(|(_, tid, _)| *tid == thread.tid));
}

#[test]
fn threads_that_end_are_let_go() {
    let spec = {
        let thread = Faulting::start();
        let group = EventGroup::new([EventSpec::page_faults().user_only()]);
        let spec = of_thread(
            thread.tid,
            group,
            schedule(Length::Count(5), Length::Count(0)),
        );
        let Some((mut found, mut kept)) = source(&spec, Some(SourceKind::Refresh)) else {
            return;
        };
        rounds(&mut found, &mut kept, PATIENCE, |kept| {
            !kept.bursts.is_empty()
        });
        drop(thread);
        found.source.round(&mut kept).expect("round");
        let armed = found.source.stats().armed;
        std::thread::sleep(Duration::from_millis(30));
        found.source.round(&mut kept).expect("round");
        assert_eq!(
            found.source.stats().armed,
            armed,
            "nobody is left to be armed"
        );
        spec
    };
    assert!(find_source(&spec, Some(SourceKind::Refresh)).is_err());
}

#[test]
fn no_kernel_alternates_unless_its_periods_do() {
    let group = EventGroup::new([EventSpec::page_faults().user_only()]);
    let spec = WindowsSpec::new(
        schedule(Length::Count(10), Length::Count(0)),
        vec![group],
        Target::SelfProcess,
    );
    match find_source(&spec, Some(SourceKind::Kernel)) {
        Err(WindowError::Forced { kind, why }) => {
            assert_eq!(kind, SourceKind::Kernel);
            assert!(why.to_string().contains("alternat"), "{why}");
        }
        Ok(found) => assert!(
            found
                .findings
                .iter()
                .any(|f| f.to_string().contains("alternate"))
        ),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn sources_that_sample_throughout_make_windows_too() {
    let thread = Faulting::start();
    for kind in [SourceKind::Twin, SourceKind::Steady, SourceKind::Period] {
        let group = EventGroup::new([task_clock(), EventSpec::page_faults().user_only()]);
        let spec = of_thread(
            thread.tid,
            group,
            schedule(Length::Time(200_000), Length::Time(0)),
        );
        let Some((found, kept)) = make(&spec, Some(kind), 10) else {
            continue;
        };
        assert_eq!(found.source.kind(), kind);
        assert!(kept.bursts.is_empty(), "none are armed");
        assert_eq!(found.source.stats().samples, kept.samples.len() as u64);
        assert_eq!(found.source.groups().is_empty(), kind == SourceKind::Period);
    }
}

#[test]
fn threads_for_which_there_is_no_room_take_turns() {
    let threads: Vec<Faulting> = (0..4).map(|_| Faulting::start()).collect();
    let tids: BTreeSet<u32> = threads.iter().map(|thread| thread.tid).collect();
    let mut spec = WindowsSpec::new(
        schedule(Length::Count(5), Length::Count(0)),
        vec![EventGroup::new([EventSpec::page_faults().user_only()])],
        Target::Threads(tids.iter().copied().collect()),
    );
    spec.most_threads = 2;
    let Some((mut found, mut kept)) = source(&spec, Some(SourceKind::Refresh)) else {
        return;
    };
    let seen = |kept: &Kept| -> BTreeSet<u32> {
        kept.bursts.iter().filter_map(|burst| burst.tid).collect()
    };
    rounds(&mut found, &mut kept, PATIENCE, |kept| seen(kept) == tids);
    found.source.stop().expect("stop");
    found.source.round(&mut kept).expect("the last round");
    assert_eq!(seen(&kept), tids);
    let stats = found.source.stats();
    assert_eq!((stats.watched, stats.unwatched), (4, 0), "{stats:?}");
}

/// T9: the kernel writes another profiler's id into samples of the same software event.
#[test]
fn t9_samples_have_their_own_ids_beside_another_profiler() {
    own_ids_beside_another_profiler(SourceKind::Refresh);
}

/// The same where windows come from ordinary sampling.
#[test]
fn t9_steady_samples_have_their_own_ids_beside_another_profiler() {
    own_ids_beside_another_profiler(SourceKind::Steady);
}

/// And where each event is sampled for itself.
#[test]
fn t9_samples_of_single_events_have_their_own_ids_beside_another_profiler() {
    own_ids_beside_another_profiler(SourceKind::Period);
}

fn own_ids_beside_another_profiler(kind: SourceKind) {
    let thread = Faulting::start();
    let group = faults_first();
    let spec = of_thread(
        thread.tid,
        group,
        schedule(Length::Count(5), Length::Count(0)),
    );
    let Some((mut found, mut kept)) = source(&spec, Some(kind)) else {
        return;
    };
    // Opened after ours, so that it comes first and its id is there when ours is written.
    let mut other = EventSpec::page_faults().with_period(1).user_only();
    other.attr.sample_type |= SampleType::IP | SampleType::TID | SampleType::IDENTIFIER;
    let place = EventTarget::Thread(thread.tid, None);
    let other = Event::open(&other, place).expect("another event");
    let _ring = other.mmap(8).expect("a ring");
    rounds(&mut found, &mut kept, PATIENCE, |kept| {
        kept.samples.len() >= 250
    });
    assert!(kept.samples.len() > 50);
    let sampled = found.source.events().iter();
    let sampled = sampled.filter(|event| event.attr.samples());
    let own: BTreeSet<u64> = sampled
        .flat_map(|event| event.ids.iter().copied())
        .collect();
    let strange: Vec<_> = kept.ids.iter().filter(|id| !own.contains(id)).collect();
    assert_eq!(strange, Vec::<&u64>::new());
}

/// Where CPUs are named, threads have windows only while they run there.
#[test]
fn bursts_begin_on_the_cpus_that_were_named() {
    let online = CpuSet::online();
    let mut cpus = online.iter();
    let (Some(home), Some(other)) = (cpus.next(), cpus.next()) else {
        return skip(Limit::OneCpu);
    };
    let thread = Faulting::start();
    // SAFETY: a set of CPUs is plain bits, and the kernel only reads it.
    let bound = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(home as usize, &mut set);
        libc::sched_setaffinity(
            thread.tid.cast_signed(),
            std::mem::size_of_val(&set),
            &raw const set,
        )
    };
    if bound != 0 {
        skip!("threads cannot be bound to a CPU here");
    }
    for (cpu, expected) in [(other, false), (home, true)] {
        let group = faults_first();
        let mut spec = of_thread(
            thread.tid,
            group,
            schedule(Length::Count(5), Length::Count(0)),
        );
        spec.cpus = Some(CpuSet::new([cpu]));
        let Some((mut found, mut kept)) = source(&spec, Some(SourceKind::Refresh)) else {
            return;
        };
        let patience = if expected {
            PATIENCE
        } else {
            Duration::from_millis(200)
        };
        rounds(&mut found, &mut kept, patience, |kept| {
            !kept.bursts.is_empty()
        });
        assert_eq!(
            !kept.bursts.is_empty(),
            expected,
            "on {cpu}, bound to {home}"
        );
    }
}
