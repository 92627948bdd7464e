//! Whole sessions: targets, inheritance, start and stop.

use crate::collect::{Collected, Held, STEP, Worker, fault, own_tid, read_until, spin};
use crate::skip;
use dioptra_perfevents::{
    AttachError, CpuSet, EventGroup, EventSpec, Features, Inherit, OpenError, Refusal, RunError,
    Running, SampleType, Session, SessionSpec, SideBand, Start, Target, names::software, on_sample,
};
use std::process::Command;
use std::time::{Duration, Instant};

fn clock() -> EventSpec {
    EventSpec::cpu_clock().with_period(500_000).user_only()
}

fn faults() -> EventSpec {
    EventSpec::page_faults().with_period(1).user_only()
}

#[test]
fn existing_and_later_threads_of_this_process_are_sampled_and_the_reader_is_not() {
    let (tell, told) = std::sync::mpsc::channel();
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let mut later = None;
    let existing = Worker::new(move || {
        spin(100_000);
        if later.is_none() && gone.try_recv().is_ok() {
            let worker = Worker::spinning();
            tell.send(worker.tid).expect("a listener");
            later = Some(worker);
        }
        std::thread::sleep(Duration::from_micros(200));
    });
    let mut session = Session::new(SessionSpec::new().event(clock())).expect("a session");
    let summary = session.attach().expect("attach to this process");
    assert!(
        summary.threads >= 1 && summary.failed.is_empty(),
        "{summary:?}"
    );
    go.send(()).expect("the thread");
    let second = told.recv().expect("the later thread's id");
    let mut seen = Collected::default();
    let first = existing.tid;
    read_until(&mut session, &mut seen, "samples of both threads", |seen| {
        spin(10_000);
        seen.of_thread.contains_key(&first) && seen.of_thread.contains_key(&second)
    });
    session.finish(&mut seen).expect("finish");
    assert!(
        !seen.of_thread.contains_key(&own_tid()),
        "the reader is not watched"
    );
    assert!(
        seen.forks.iter().any(|fork| fork.tid == second),
        "{:?}",
        seen.forks
    );
    assert!(seen.malformed.is_empty(), "{:?}", seen.malformed);
    let summary = session.summary();
    assert_eq!(summary.samples, seen.samples);
    assert_eq!(
        summary.events[0].samples + summary.unknown_samples,
        seen.samples
    );
}

#[test]
fn a_command_is_sampled_from_its_exec_on() {
    let mut held = Held::new("dd if=/dev/zero of=/dev/null bs=65536 count=20000");
    let spec = SessionSpec::new()
        .event(EventSpec::cpu_clock().with_period(200_000))
        .target(Target::Command(held.pid()))
        .inherit(Inherit::ThreadsAndChildren)
        .start(Start::OnExec);
    let mut session = Session::new(spec).expect("a session");
    session.attach().expect("attach");
    let mut seen = Collected::default();
    session.read_once(STEP, &mut seen).expect("read");
    assert_eq!(seen.samples, 0, "nothing before the exec");
    held.go();
    session.run(&mut seen).expect("run until the command ends");
    assert_eq!((seen.started, seen.stopped), (1, 1));
    assert!(seen.samples > 0);
    assert!(
        seen.comms
            .iter()
            .any(|(tid, name, exec)| (*tid, name.as_str(), *exec) == (held.pid(), "dd", true)),
        "{:?}",
        seen.comms
    );
    assert!(
        seen.maps.iter().any(|name| name.contains("libc")),
        "{:?}",
        seen.maps
    );
    assert!(seen.exits.contains(&held.pid()));
    assert!(seen.of_thread.keys().all(|tid| *tid == held.pid()));
}

/// B11, T3: a forked child goes on sampling only where that was asked for.
#[test]
fn b11_children_are_followed_only_when_asked() {
    if !Features::get()
        .flags
        .contains(dioptra_perfevents::AttrFlags::INHERIT_THREAD)
    {
        skip!("this kernel can't tell threads from children");
    }
    for (inherit, follows) in [
        (Inherit::Threads, false),
        (Inherit::ThreadsAndChildren, true),
    ] {
        let mut held = Held::new("sh -c '(exit 0); exec sleep 0'");
        let spec = SessionSpec::new()
            .event(faults())
            .target(Target::Processes(vec![held.pid()]))
            .inherit(inherit);
        let mut session = Session::new(spec).expect("a session");
        session.attach().expect("attach");
        held.go();
        let mut seen = Collected::default();
        session.run(&mut seen).expect("run");
        let others = seen
            .of_thread
            .keys()
            .filter(|tid| **tid != held.pid())
            .count();
        assert_eq!(others > 0, follows, "{inherit:?}: {:?}", seen.of_thread);
    }
}

/// B14: stop is legal before the run, counts once, and the session can be run again.
#[test]
fn b14_a_session_stops_before_its_run_and_runs_again() {
    let worker = Worker::spinning();
    let spec = SessionSpec::new()
        .event(clock())
        .target(Target::Threads(vec![worker.tid]));
    let mut session = Session::new(spec).expect("a session");
    assert!(matches!(
        session.run(&mut Collected::default()),
        Err(RunError::NotAttached)
    ));
    session.attach().expect("attach");
    assert!(matches!(session.attach(), Err(AttachError::Attached)));
    let stop = session.stop_handle();
    stop.stop();
    stop.stop();
    let mut seen = Collected::default();
    session.run(&mut seen).expect("a run that ends at once");
    assert_eq!((seen.started, seen.stopped), (1, 1));
    let before = seen.samples;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            stop.stop();
        });
        session.run(&mut seen).expect("a second run");
    });
    let mut tries = 0;
    while seen.samples == before && tries < 100 {
        // A machine too busy to run the worker for 300 ms.
        read_until_some(&mut session, &mut seen);
        tries += 1;
    }
    assert!(seen.samples > before, "the second run sampled");
    session.detach();
    assert_eq!(session.summary().samples, seen.samples);
    session.attach().expect("attach again");
}

fn read_until_some(session: &mut Session, seen: &mut Collected) {
    session.enable().expect("enable");
    let before = seen.samples;
    read_until(session, seen, "a sample", |seen| seen.samples > before);
}

#[test]
fn a_deadline_ends_a_run() {
    let spec = SessionSpec::new().event(clock());
    let mut session = Session::new(spec)
        .expect("a session")
        .with_deadline(Instant::now() + Duration::from_millis(50));
    session.attach().expect("attach");
    session.run(&mut Collected::default()).expect("run");
}

#[test]
fn with_a_manual_start_names_come_at_once_and_samples_when_enabled() {
    let mut held = Held::new("dd if=/dev/zero of=/dev/null bs=4096");
    let spec = SessionSpec::new()
        .event(EventSpec::cpu_clock().with_period(500_000))
        .target(Target::Command(held.pid()))
        .inherit(Inherit::ThreadsAndChildren)
        .start(Start::Manual);
    let mut session = Session::new(spec).expect("a session");
    session.attach().expect("attach");
    held.go();
    let mut seen = Collected::default();
    read_until(&mut session, &mut seen, "the exec", |seen| {
        seen.comms.iter().any(|(_, name, _)| name == "dd")
    });
    for _ in 0..5 {
        session.read_once(STEP, &mut seen).expect("read");
    }
    assert_eq!(seen.samples, 0);
    session.enable().expect("enable");
    read_until(&mut session, &mut seen, "samples", |seen| seen.samples > 3);
    assert!(
        session.events().iter().any(|event| event.spec.is_none()),
        "a carrier of its own"
    );
    session.disable().expect("disable");
    session.read_once(Duration::ZERO, &mut seen).expect("read");
    let before = seen.samples;
    for _ in 0..5 {
        session.read_once(STEP, &mut seen).expect("read");
    }
    assert_eq!(seen.samples, before, "disabled");
}

#[test]
fn the_whole_system_is_watched_with_privilege() {
    let spec = SessionSpec::new()
        .event(EventSpec::cpu_clock().with_period(1_000_000))
        .target(Target::Cpus(None));
    let mut session = Session::new(spec).expect("a session");
    match session.attach() {
        Err(AttachError::Open(error))
            if matches!(error.refusal, Refusal::Permission { cpu_wide: true, .. }) =>
        {
            skip!("{error}")
        }
        other => {
            let summary = other.expect("attach");
            assert_eq!(summary.cpus, CpuSet::online().as_slice());
        }
    }
    let mut seen = Collected::default();
    // A process that starts after attaching is seen with name and mappings.
    let mut child = Command::new("/bin/sh")
        .args(["-c", "i=0; while :; do i=$((i+1)); done"])
        .spawn()
        .expect("a shell");
    let pid = child.id();
    read_until(&mut session, &mut seen, "samples of the child", |seen| {
        seen.of_thread.contains_key(&pid)
    });
    child.kill().expect("kill");
    child.wait().expect("wait");
    read_until(&mut session, &mut seen, "its end", |seen| {
        seen.exits.contains(&pid)
    });
    session.finish(&mut seen).expect("finish");
    assert!(seen.comms.iter().any(|(tid, _, exec)| *tid == pid && *exec));
    assert!(!seen.maps.is_empty());
    let carrier = session
        .events()
        .iter()
        .find(|event| event.spec.is_none())
        .expect("the carrier");
    assert_eq!(carrier.ids.len(), CpuSet::online().len());
    let known = session.new_ids_since(0).len();
    assert_eq!(known, 2 * CpuSet::online().len());
    assert!(session.new_ids_since(known).is_empty());
}

#[test]
fn a_chosen_cpu_is_the_only_one() {
    let cpu = CpuSet::affinity().as_slice()[0];
    let worker = Worker::spinning();
    let spec = SessionSpec::new()
        .event(clock())
        .target(Target::Threads(vec![worker.tid]))
        .cpus(Some(CpuSet::new([cpu])));
    let mut session = Session::new(spec).expect("a session");
    let summary = session.attach().expect("attach");
    assert_eq!(summary.cpus, [cpu]);
    let mut seen = Collected::default();
    read_until(&mut session, &mut seen, "samples", |seen| seen.samples > 3);
    assert!(seen.of_cpu.keys().all(|seen| *seen == cpu));
    let none = SessionSpec::new()
        .event(clock())
        .cpus(Some(CpuSet::new([100_000])));
    let error = Session::new(none)
        .expect("a session")
        .attach()
        .expect_err("no such CPU");
    assert!(
        matches!(error, AttachError::NoCpus { .. }) && error.to_string().contains("100000"),
        "{error}"
    );
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
    let mut session = Session::new(spec).expect("a session");
    session.attach().expect("attach");
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
    let mut session = Session::new(spec).expect("a session");
    let summary = session.attach().expect("attach");
    assert_eq!(
        summary.notes.iter().any(|note| note.contains("inherited")),
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
    let mut session = Session::new(spec).expect("a session");
    session.attach().expect("attach");
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
    let mut session = Session::new(spec).expect("a session");
    session.attach().expect("attach");
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
    let mut session = Session::new(
        SessionSpec::new()
            .event(event.clone())
            .target(target.clone()),
    )
    .expect("a session");
    let summary = session.attach().expect("attach");
    let opened = &session.events()[0];
    let fell_back = opened.name.starts_with("cpu-clock");
    assert_eq!(
        summary.notes.iter().any(|note| note.contains("cpu-clock")),
        fell_back,
        "{:?}",
        summary.notes
    );
    if !fell_back {
        skip!("this machine has a cycle counter");
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
    let mut session = Session::new(spec).expect("a session");
    session.attach().expect("attach");
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
    let mut side_band = SideBand::NONE;
    side_band.switch = true;
    let dummy = EventSpec::software(software::DUMMY).user_only();
    let spec = SessionSpec::new()
        .event(dummy)
        .target(Target::Threads(vec![worker.tid]))
        .side_band(side_band);
    let mut session = Session::new(spec).expect("a session");
    session.attach().expect("attach");
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
    let mut side_band = SideBand::default();
    side_band.build_id = true;
    let spec = SessionSpec::new()
        .event(clock())
        .target(Target::Command(held.pid()))
        .start(Start::OnExec)
        .inherit(Inherit::ThreadsAndChildren)
        .side_band(side_band);
    let mut session = Session::new(spec).expect("a session");
    session.attach().expect("attach");
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
    let mut session = Session::new(spec).expect("a session");
    session.attach().expect("attach");
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
        let mut session = Session::new(spec).expect("a session");
        session.attach().expect("attach");
        session
    };
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
        assert_eq!(summary.unknown_samples, seen.unknown_events);
        assert!(seen.malformed.is_empty());
    }
    drop(go);
    worker.join().expect("the thread");
}
