//! The lower rungs of the ladder: one event per thread, signals, a timer.

use crate::collect::{
    Collected, PATIENCE, STEP, Worker, as_nobody, fault, is_nobody, own_tid, read_until, spin,
};
use crate::skip;
use dioptra_perfevents::{
    AttachError, AttrFlags, EventSpec, Fallbacks, Features, PerThreadAttachmentStrategy, Session,
    SessionSpec, SignalAttachmentStrategy, Target, TimerAttachmentStrategy, names::software,
};
use dioptra_testprograms::{Limit, skip};
use std::time::{Duration, Instant};

fn faults() -> EventSpec {
    EventSpec::page_faults().with_period(1).user_only()
}

#[test]
fn per_thread_finds_threads_that_come_later() {
    let first = Worker::new(|| {
        fault(1);
        std::thread::sleep(Duration::from_millis(1));
    });
    let spec = SessionSpec::new()
        .event(faults())
        .event(EventSpec::cpu_clock().with_period(1_000_000).user_only());
    let session = Session::new(spec)
        .expect("a session")
        .with_strategy(PerThreadAttachmentStrategy);
    let mut session = session.attach().expect("attach");
    let summary = session.attach_summary().clone();
    assert_eq!(summary.strategy, "per thread");
    assert!(
        summary
            .notes
            .iter()
            .any(|note| note.to_string().contains("100 ms")),
        "{:?}",
        summary.notes
    );
    let later = Worker::new(|| {
        fault(1);
        std::thread::sleep(Duration::from_millis(1));
    });
    let mut seen = Collected::default();
    read_until(&mut session, &mut seen, "samples of both", |seen| {
        seen.of_thread.contains_key(&first.tid) && seen.of_thread.contains_key(&later.tid)
    });
    let gone = later.tid;
    drop(later);
    // The end of a thread closes its ring, and the rest goes on.
    read_until(&mut session, &mut seen, "the end", |seen| {
        seen.exits.contains(&gone)
    });
    let before = seen.of_thread[&first.tid];
    read_until(&mut session, &mut seen, "more samples", |seen| {
        seen.of_thread[&first.tid] > before + 5
    });
    session.finish(&mut seen).expect("finish");
    assert!(!seen.of_thread.contains_key(&own_tid()));
    assert_eq!(session.summary().samples, seen.samples);
    assert!(seen.malformed.is_empty());
}

#[test]
fn per_thread_refuses_what_it_cannot_do() {
    let spec = SessionSpec::new()
        .event(faults())
        .target(Target::Cpus(None));
    let session = Session::new(spec)
        .expect("a session")
        .with_strategy(PerThreadAttachmentStrategy);
    let error = session.attach().expect_err("CPU-wide");
    assert!(matches!(error, AttachError::Strategy { .. }), "{error}");
}

/// The ladder itself: too few descriptors for every thread on every core, enough for every thread.
#[test]
fn the_ladder_attaches_per_thread_where_descriptors_run_out() {
    if as_nobody("ladder::the_ladder_attaches_per_thread_where_descriptors_run_out") {
        return;
    }
    if !is_nobody() {
        skip!("limits are lowered in a process of its own only");
    }
    if dioptra_perfevents::CpuSet::online().len() < 2 {
        return skip(Limit::OneCpu);
    }
    let workers: Vec<Worker> = (0..30)
        .map(|_| {
            Worker::new(|| {
                fault(1);
                std::thread::sleep(Duration::from_millis(5));
            })
        })
        .collect();
    let limit = libc::rlimit {
        rlim_cur: 115,
        rlim_max: 115,
    };
    // SAFETY: our own struct.
    let done = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    assert_eq!(done, 0);
    let spec = SessionSpec::new().event(faults()).event(
        EventSpec::software(software::MINOR_FAULTS)
            .with_period(1)
            .user_only(),
    );
    let session = Session::new(spec).expect("a session");
    let mut session = session.attach().expect("attach");
    let summary = session.attach_summary().clone();
    assert_eq!(summary.strategy, "per thread", "{summary:?}");
    assert!(
        summary
            .notes
            .iter()
            .any(|note| note.to_string().contains("descriptors")),
        "{:?}",
        summary.notes
    );
    let mut seen = Collected::default();
    read_until(&mut session, &mut seen, "samples of all", |seen| {
        workers
            .iter()
            .all(|worker| seen.of_thread.contains_key(&worker.tid))
    });
}

/// 2.6: signals need neither rings nor a descriptor per CPU, and later threads inherit them.
#[test]
fn signals_sample_existing_and_later_threads() {
    if as_nobody("ladder::signals_sample_existing_and_later_threads") {
        return;
    }
    if !Features::get().flags.contains(AttrFlags::SIGTRAP) {
        skip!("this kernel sends no signals for samples");
    }
    let (tell, told) = std::sync::mpsc::channel();
    let mut child: Option<Worker> = None;
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let first = Worker::new(move || {
        fault(1);
        std::thread::sleep(Duration::from_millis(1));
        if child.is_none() && gone.try_recv().is_ok() {
            let worker = Worker::new(|| {
                fault(1);
                std::thread::sleep(Duration::from_millis(1));
            });
            tell.send(worker.tid).expect("a listener");
            child = Some(worker);
        }
    });
    let spec = SessionSpec::new().event(faults());
    let session = Session::new(spec.clone())
        .expect("a session")
        .with_strategy(SignalAttachmentStrategy);
    let mut session = session.attach().expect("attach");
    let summary = session.attach_summary().clone();
    assert_eq!(summary.strategy, "signals");
    // One session at a time takes the signal.
    let second = Session::new(spec)
        .expect("a session")
        .with_strategy(SignalAttachmentStrategy);
    assert!(matches!(second.attach(), Err(AttachError::Signals(_))));
    go.send(()).expect("the thread");
    let later = told.recv().expect("the later thread");
    let mut seen = Collected::default();
    read_until(&mut session, &mut seen, "signals of both", |seen| {
        seen.of_thread.contains_key(&first.tid) && seen.of_thread.contains_key(&later)
    });
    session.finish(&mut seen).expect("finish");
    assert!(seen.addresses.iter().all(|address| *address != 0));
    assert!(!seen.of_thread.contains_key(&own_tid()));
    assert_eq!(seen.unknown_events, 0);
    assert_eq!(session.summary().samples, seen.samples);
}

/// The last rung works without any event.
#[test]
fn a_timer_samples_where_nothing_else_does() {
    // In a process of its own: a timer is the whole process's.
    if as_nobody("ladder::a_timer_samples_where_nothing_else_does") {
        return;
    }
    let worker = Worker::new(|| {
        spin(200_000);
    });
    let spec = SessionSpec::new().event(EventSpec::cpu_clock().with_frequency(500).user_only());
    let session = Session::new(spec)
        .expect("a session")
        .with_strategy(TimerAttachmentStrategy);
    let mut session = session.attach().expect("attach");
    let summary = session.attach_summary().clone();
    assert_eq!(summary.strategy, "timer");
    let mut seen = Collected::default();
    let start = Instant::now();
    while seen.samples < 5 {
        session.read_once(STEP, &mut seen).expect("read");
        assert!(start.elapsed() < PATIENCE, "{seen:?}");
    }
    session.finish(&mut seen).expect("finish");
    assert!(
        seen.of_thread.contains_key(&worker.tid),
        "{:?}",
        seen.of_thread
    );
    assert_eq!(seen.of_event.get("cpu-clock"), Some(&seen.samples));
    let spec = SessionSpec::new().event(faults());
    let session = Session::new(spec)
        .expect("a session")
        .with_strategy(TimerAttachmentStrategy);
    assert!(matches!(
        session.attach(),
        Err(AttachError::Strategy { .. })
    ));
}

/// A timer comes at the kernel's ticks only: what that leaves out of a thousand samples a second is counted and said.
#[test]
fn the_share_of_samples_that_a_timer_does_not_give_is_told() {
    if as_nobody("ladder::the_share_of_samples_that_a_timer_does_not_give_is_told") {
        return;
    }
    if !is_nobody() {
        skip!("the timer is tried in a process of its own only");
    }
    let _worker = Worker::new(|| {
        spin(200_000);
    });
    // Far above any kernel's ticks.
    let spec = SessionSpec::new().event(EventSpec::cpu_clock().with_frequency(20_000).user_only());
    let session = Session::new(spec)
        .expect("a session")
        .with_strategy(TimerAttachmentStrategy);
    let mut session = session.attach().expect("attach");
    let mut seen = Collected::default();
    read_until(&mut session, &mut seen, "samples", |seen| seen.samples > 50);
    session.finish(&mut seen).expect("finish");
    let summary = session.summary().clone();
    let expected = summary.events[0].count / 50_000;
    assert!(expected > 2 * summary.samples, "{summary:?}");
    assert_eq!(summary.events[0].sampled, summary.samples * 50_000);
    let notes = session.attach_summary().notes.clone();
    let told = format!("gave {} of the {expected} samples", summary.samples);
    assert!(
        notes.iter().any(|note| note.to_string().contains(&told)),
        "{notes:?}"
    );
}

/// Rings and signals of threads are on no CPU: nothing is said of CPUs that come or go.
#[test]
fn threads_that_have_events_of_their_own_tell_nothing_of_cpus() {
    let worker = Worker::new(|| {
        fault(1);
        std::thread::sleep(Duration::from_millis(1));
    });
    let target = dioptra_perfevents::Target::Threads(vec![worker.tid]);
    let spec = SessionSpec::new().event(faults()).target(target);
    let session = Session::new(spec)
        .expect("a session")
        .with_strategy(dioptra_perfevents::PerThreadAttachmentStrategy);
    let mut session = session.attach().expect("attach");
    let notes = session.attach_summary().notes.clone();
    let mut seen = Collected::default();
    // CPUs are looked at once a second.
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(1300) {
        session.read_once(STEP, &mut seen).expect("read");
    }
    assert_eq!(session.attach_summary().notes, notes);
}

#[test]
fn signals_and_timers_are_taken_only_when_asked_for() {
    assert!(!Fallbacks::default().intersects(Fallbacks::SIGNALS | Fallbacks::TIMER));
}

/// A container's filter: the refusal is told apart from the kernel's, and a timer stands in where that is allowed.
#[test]
fn seccomp_is_named_and_a_timer_can_stand_in() {
    if as_nobody("ladder::seccomp_is_named_and_a_timer_can_stand_in") {
        return;
    }
    if !is_nobody() {
        skip!("the timer is tried in a process of its own only");
    }
    let worker = Worker::new(|| {
        spin(200_000);
    });
    // The filter is for this thread and those it creates.
    let statement = |code: u32, jump: (u8, u8), k: u32| libc::sock_filter {
        code: u16::try_from(code).expect("a short code"),
        jt: jump.0,
        jf: jump.1,
        k,
    };
    let number = u32::try_from(libc::SYS_perf_event_open).expect("a system call");
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();
    let mut program = [
        // The system call's number is the first word.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, (0, 0), 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, (0, 1), number),
        statement(libc::BPF_RET | libc::BPF_K, (0, 0), refuse),
        statement(libc::BPF_RET | libc::BPF_K, (0, 0), libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog {
        len: 4,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the program lives through the calls, which concern this thread only.
    let installed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const filter,
            ) == 0
    };
    if !installed {
        skip!("no filter can be installed");
    }
    let spec = SessionSpec::new().event(EventSpec::cpu_clock().with_frequency(500).user_only());
    let error = Session::new(spec.clone())
        .expect("a session")
        .attach()
        .expect_err("filtered");
    let AttachError::Open(open) = &error else {
        panic!("{error}")
    };
    assert!(
        matches!(open.refusal, dioptra_perfevents::Refusal::Seccomp),
        "{error}"
    );
    assert!(error.to_string().contains("seccomp profile"), "{error}");
    let allowed = spec.fallbacks(Fallbacks::default() | Fallbacks::TIMER);
    let session = Session::new(allowed).expect("a session");
    let mut session = session.attach().expect("attach by a timer");
    let summary = session.attach_summary().clone();
    assert_eq!(summary.strategy, "timer");
    assert!(
        summary
            .notes
            .iter()
            .any(|note| note.to_string().contains("seccomp")),
        "{:?}",
        summary.notes
    );
    let mut seen = Collected::default();
    read_until(&mut session, &mut seen, "samples", |seen| {
        seen.of_thread.contains_key(&worker.tid)
    });
}
