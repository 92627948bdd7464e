//! Records of sessions: times, counts in samples, several events at once, switches, build ids.

use crate::collect::{Collected, Held, STEP, Worker, fault, own_tid, read_until, spin};
use crate::skip;
use dioptra_perfevents::{
    AttachError, EventGroup, EventSpec, Features, Inherit, OpenError, Refusal, Running, SampleType,
    Session, SessionSpec, SideBand, Start, Target, names::software, on_sample,
};
use dioptra_testprograms::{Limit, skip};
use std::process::Command;
use std::time::{Duration, Instant};

fn clock() -> EventSpec {
    EventSpec::cpu_clock().with_period(500_000).user_only()
}

fn faults() -> EventSpec {
    EventSpec::page_faults().with_period(1).user_only()
}

/// Clocks of 2.4: no offset is needed, times are those of CLOCK_MONOTONIC.
#[test]
fn times_lie_between_two_readings_of_the_clock() {
    let now = || {
        let mut now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: our own struct.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
        now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
    };
    let before = now();
    let worker = Worker::new(|| fault(10));
    let spec = SessionSpec::new()
        .event(faults())
        .target(Target::Threads(vec![worker.tid]));
    let session = Session::new(spec).expect("a session");
    let mut session = session.attach().expect("attach");
    let mut seen = Collected::default();
    read_until(&mut session, &mut seen, "samples", |seen| {
        seen.samples > 100
    });
    let after = now();
    assert!(
        seen.times
            .iter()
            .all(|time| (before..=after).contains(time))
    );
}

/// B2: counter values in samples, inherited, where the kernel can; else without inheriting, aloud.
#[test]
fn b2_samples_hold_the_group_counts_of_their_own_thread() {
    let group = EventGroup::new([
        EventSpec::software(software::TASK_CLOCK)
            .with_period(1_000_000)
            .user_only(),
        EventSpec::page_faults().user_only(),
    ])
    .sampled_together();
    let features = Features::get();
    let worker = Worker::new(|| {
        fault(4);
        spin(50_000);
    });
    let spec = SessionSpec::new()
        .event(group)
        .target(Target::Threads(vec![worker.tid]));
    let session = Session::new(spec).expect("a session");
    let mut session = session.attach().expect("attach");
    let summary = session.attach_summary().clone();
    assert_eq!(
        summary
            .notes
            .iter()
            .any(|note| note.to_string().contains("inherited")),
        !features.inherit_group_read,
        "{:?}",
        summary.notes
    );
    let mut seen = Collected::default();
    read_until(&mut session, &mut seen, "samples", |seen| {
        seen.reads.len() > 5
    });
    for (tid, values) in &seen.reads {
        assert_eq!(*tid, worker.tid);
        assert_eq!(values.len(), 2, "{values:?}");
    }
    // Faults are rarer than samples at times, but never go back on one CPU.
    assert!(seen.reads.iter().any(|(_, values)| values[1] > 0));
    assert!(seen.malformed.is_empty(), "{:?}", seen.malformed);
}

#[test]
fn events_of_different_kinds_share_the_rings() {
    let worker = Worker::new(|| {
        fault(2);
        spin(100_000);
    });
    let spec = SessionSpec::new()
        .event(clock().with_sample(SampleType::IP | SampleType::CALLCHAIN))
        .event(
            EventSpec::software(software::MINOR_FAULTS)
                .with_period(1)
                .user_only()
                .with_sample(SampleType::ADDR),
        )
        .target(Target::Threads(vec![worker.tid]));
    let session = Session::new(spec).expect("a session");
    let mut session = session.attach().expect("attach");
    let mut seen = Collected::default();
    read_until(&mut session, &mut seen, "samples of both", |seen| {
        seen.of_event.len() == 2 && seen.chains > 0
    });
    assert_eq!((seen.malformed.len(), seen.unknown_events), (0, 0));
}

#[test]
fn one_event_may_be_for_one_thread_only() {
    let (one, other) = (Worker::new(|| fault(1)), Worker::new(|| fault(1)));
    let spec = SessionSpec::new()
        .event(clock())
        .event(faults().on_thread(one.tid));
    let session = Session::new(spec).expect("a session");
    let mut session = session.attach().expect("attach");
    let mut seen = Collected::default();
    read_until(&mut session, &mut seen, "samples of both events", |seen| {
        seen.of_event.len() == 2
    });
    let faulting: u64 = seen.of_event["page-faults"];
    assert!(faulting > 0);
    // Faults came from one thread; the other has clock samples at most.
    let clocks = seen.of_event["cpu-clock"];
    assert!(seen.of_thread.get(&other.tid).copied().unwrap_or(0) <= clocks);
}

#[test]
fn cycles_fall_back_to_a_clock_aloud_or_not_at_all() {
    let worker = Worker::spinning();
    let event = EventSpec::new(
        "cycles:u",
        dioptra_perfevents::Attr {
            sample_period: 1_000_000,
            ..Default::default()
        },
    )
    .user_only();
    let target = Target::Threads(vec![worker.tid]);
    let session = Session::new(
        SessionSpec::new()
            .event(event.clone())
            .target(target.clone()),
    )
    .expect("a session");
    let session = session.attach().expect("attach");
    let summary = session.attach_summary().clone();
    let opened = &session.events()[0];
    let fell_back = opened.name.starts_with("cpu-clock");
    assert_eq!(
        summary
            .notes
            .iter()
            .any(|note| note.to_string().contains("cpu-clock")),
        fell_back,
        "{:?}",
        summary.notes
    );
    if !fell_back {
        return skip(Limit::CycleCounter);
    }
    assert_eq!(opened.name, "cpu-clock:u");
    let strict = SessionSpec::new()
        .event(event)
        .target(target)
        .fallbacks(dioptra_perfevents::Fallbacks::empty());
    let error = Session::new(strict)
        .expect("a session")
        .attach()
        .expect_err("no fallback");
    assert!(
        matches!(
            error,
            AttachError::Open(OpenError {
                refusal: Refusal::NotSupported | Refusal::CannotSample,
                ..
            })
        ),
        "{error}"
    );
}

#[test]
fn a_session_needs_events_and_targets() {
    assert!(matches!(
        Session::new(SessionSpec::new()),
        Err(AttachError::NoEvents)
    ));
    let spec = SessionSpec::new()
        .event(clock())
        .target(Target::Processes(vec![0x3fff_ffff]));
    let error = Session::new(spec)
        .expect("a session")
        .attach()
        .expect_err("no such process");
    assert!(
        matches!(error, AttachError::NoTarget { id: 0x3fff_ffff }),
        "{error}"
    );
}

#[test]
fn a_session_ends_with_its_targets() {
    let mut child = Command::new("sleep").arg("0.2").spawn().expect("sleep");
    let spec = SessionSpec::new()
        .event(clock())
        .target(Target::Processes(vec![child.id()]));
    let session = Session::new(spec).expect("a session");
    let mut session = session.attach().expect("attach");
    let mut seen = Collected::default();
    let start = Instant::now();
    loop {
        let progress = session.read_once(STEP, &mut seen).expect("read");
        if progress.state == Running::TargetsEnded {
            break;
        }
        assert!(start.elapsed() < crate::collect::PATIENCE);
        let _ = child.try_wait();
    }
}

#[test]
fn switches_are_told_without_the_counter() {
    let worker = Worker::new(|| std::thread::sleep(Duration::from_millis(1)));
    let side_band = SideBand::SWITCH;
    let dummy = EventSpec::software(software::DUMMY).user_only();
    let spec = SessionSpec::new()
        .event(dummy)
        .target(Target::Threads(vec![worker.tid]))
        .side_band(side_band);
    let session = Session::new(spec).expect("a session");
    let mut session = session.attach().expect("attach");
    let mut seen = Collected::default();
    read_until(&mut session, &mut seen, "switches", |seen| {
        seen.switches > 10
    });
    assert_eq!(seen.samples, 0);
}

#[test]
fn mappings_carry_build_ids_where_the_kernel_can() {
    if !Features::get()
        .flags
        .contains(dioptra_perfevents::AttrFlags::BUILD_ID)
    {
        skip!("this kernel tells no build ids");
    }
    let mut held = Held::new("true");
    let side_band = SideBand::default() | SideBand::BUILD_ID;
    let spec = SessionSpec::new()
        .event(clock())
        .target(Target::Command(held.pid()))
        .start(Start::OnExec)
        .inherit(Inherit::ThreadsAndChildren)
        .side_band(side_band);
    let session = Session::new(spec).expect("a session");
    let mut session = session.attach().expect("attach");
    held.go();
    let mut seen = Collected::default();
    session.run(&mut seen).expect("run");
    assert!(seen.build_ids > 0, "{:?}", seen.maps);
}

#[test]
fn a_thread_of_its_own_runs_a_session() {
    let worker = Worker::spinning();
    let spec = SessionSpec::new()
        .event(clock())
        .target(Target::Threads(vec![worker.tid]));
    let (tell, told) = std::sync::mpsc::channel();
    let listener = on_sample(move |_, sample| {
        let _ = tell.send(sample.tid);
    });
    let session = Session::spawn(spec, listener).expect("spawn");
    assert_eq!(session.attached().threads, 1);
    let tid = told
        .recv_timeout(crate::collect::PATIENCE)
        .expect("a sample");
    assert_eq!(tid, Some(worker.tid));
    let (_, summary) = session.stop().expect("stop");
    assert!(summary.samples > 0);
    let refused = SessionSpec::new()
        .event(clock())
        .target(Target::Processes(vec![0x3fff_ffff]));
    assert!(Session::spawn(refused, Collected::default()).is_err());
}

#[test]
fn a_caller_s_own_descriptor_ends_a_wait() {
    use std::io::Write;
    use std::os::fd::AsFd;
    let (wake, mut tell) = std::io::pipe().expect("a pipe");
    let spec = SessionSpec::new().event(faults()).side_band(SideBand::NONE);
    let session = Session::new(spec).expect("a session");
    let mut session = session.attach().expect("attach");
    tell.write_all(b"x").expect("a byte");
    let start = Instant::now();
    session
        .read_once_with(
            crate::collect::PATIENCE,
            &[wake.as_fd()],
            &mut Collected::default(),
        )
        .expect("read");
    assert!(start.elapsed() < crate::collect::PATIENCE);
}

/// T9: where two sessions watch the same software event, the kernel gives one's samples the other's ids. None is lost.
#[test]
fn two_sessions_on_one_thread_lose_no_sample() {
    let (go, gone) = std::sync::mpsc::channel::<usize>();
    let (tell, told) = std::sync::mpsc::channel();
    let worker = std::thread::spawn(move || {
        tell.send(own_tid()).expect("a listener");
        for pages in gone {
            fault(pages);
            tell.send(0).expect("a listener");
        }
    });
    let tid = told.recv().expect("the thread's id");
    let session = || {
        let spec = SessionSpec::new()
            .event(faults())
            .target(Target::Threads(vec![tid]))
            .side_band(SideBand::NONE);
        let session = Session::new(spec).expect("a session");
        session.attach().expect("attach")
    };
    /// Counts samples that do not carry an id of their event.
    #[derive(Default)]
    struct Ids(u64);
    impl dioptra_perfevents::RecordListener for Ids {
        fn sample(
            &mut self,
            event: Option<&dioptra_perfevents::AttachedEvent>,
            sample: &dioptra_perfevents::record::Sample<'_>,
        ) {
            let is_own =
                event.is_some_and(|event| event.ids.iter().any(|id| sample.id == Some(*id)));
            self.0 += u64::from(!is_own);
        }
    }
    let mut foreign = 0;
    for _ in 0..2 {
        let (mut first, mut second) = (session(), session());
        go.send(300).expect("the thread");
        told.recv().expect("done");
        for session in [&mut first, &mut second] {
            let mut ids = Ids::default();
            session.finish(&mut ids).expect("finish");
            assert_eq!(ids.0, 0, "every sample has an id of its event");
            foreign += session.summary().foreign_ids;
        }
    }
    assert!(
        foreign >= 600,
        "the kernel gave one session the other's ids"
    );
    let (mut first, mut second) = (session(), session());
    go.send(300).expect("the thread");
    told.recv().expect("done");
    for session in [&mut first, &mut second] {
        let mut seen = Collected::default();
        session.finish(&mut seen).expect("finish");
        let summary = session.summary();
        assert!(seen.samples >= 300, "{summary:?}");
        assert_eq!(
            summary.samples + summary.lost,
            summary.events[0].count,
            "{summary:?}"
        );
        // The kernel gives both sessions' samples one id. A session with one event knows whose they are.
        assert_eq!(summary.unknown_samples, 0);
        assert_eq!(seen.unknown_events, 0);
        assert_eq!(summary.events[0].samples, seen.samples);
        assert!(seen.malformed.is_empty());
    }
    drop(go);
    worker.join().expect("the thread");
}
