//! Whole sessions: targets, inheritance, start and stop.

use crate::collect::{Collected, Held, STEP, Worker, as_nobody, fault, own_tid, read_until, spin};
use crate::skip;
use dioptra_perfevents::{
    AttachError, AttachNote, AttachedSession, CpuSet, EventSpec, Features, Inherit, Refusal,
    Session, SessionSpec, Start, Target,
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
    let session = Session::new(SessionSpec::new().event(clock())).expect("a session");
    let mut session = session.attach().expect("attach to this process");
    let summary = session.attach_summary().clone();
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
    let session = Session::new(spec).expect("a session");
    let mut session = session.attach().expect("attach");
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
        let session = Session::new(spec).expect("a session");
        let mut session = session.attach().expect("attach");
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

#[test]
fn events_that_are_not_open_can_be_neither_enabled_nor_disabled() {
    let worker = Worker::spinning();
    let spec = SessionSpec::new()
        .event(clock())
        .target(Target::Threads(vec![worker.tid]))
        .start(Start::Manual);
    let session = Session::new(spec).expect("a session");
    let mut session = session.attach().expect("attach");
    session.enable().expect("enable");
    session.disable().expect("disable");
    // A detached session has no such methods: the compiler refuses them, as `Session`'s documentation shows.
    let (session, summary) = session.detach();
    assert_eq!(summary.events.len(), 2, "the clock and a carrier");
    let mut session = session.attach().expect("attach again");
    session.enable().expect("enable");
}

/// The reader is all that a process of one thread has, and it is not watched.
#[test]
fn a_session_that_watches_nothing_says_so() {
    if as_nobody("sessions::a_session_that_watches_nothing_says_so") {
        return;
    }
    // A forked child has one thread.
    // SAFETY: the child ends in _exit; malloc is in order after a fork.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let says = |watches: bool| {
            let spec = SessionSpec::new().event(faults()).watch_reader(watches);
            let session = Session::new(spec).expect("a session");
            let session = session.attach().expect("attach");
            let notes = &session.attach_summary().notes;
            notes.contains(&AttachNote::NothingWatched)
                && notes
                    .iter()
                    .any(|note| note.to_string().starts_with("nothing is watched: "))
        };
        let right = says(false) && !says(true);
        // SAFETY: ends the child without destructors.
        unsafe { libc::_exit(i32::from(!right)) };
    }
    let mut status = -1;
    // SAFETY: our own child; the status outlives the call.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0);
}

/// Threads that end before their first period are counted, and no thread's samples tell of them.
#[test]
fn threads_that_end_before_their_first_period_are_told() {
    const THREADS: u64 = 200;
    const PAGES: u64 = 50;
    for short in [true, false] {
        let (tell, told) = std::sync::mpsc::channel();
        let (go, gone) = std::sync::mpsc::channel::<()>();
        let worker = std::thread::spawn(move || {
            tell.send(own_tid()).expect("a listener");
            gone.recv().expect("the word to go");
            let all = usize::try_from(THREADS * PAGES).expect("a small number");
            if short {
                for _ in 0..THREADS {
                    let thread = std::thread::spawn(move || fault(PAGES as usize));
                    thread.join().expect("a thread");
                }
            } else {
                fault(all);
            }
        });
        let tid = told.recv().expect("the thread's id");
        let spec = SessionSpec::new()
            .event(EventSpec::page_faults().with_period(100).user_only())
            .target(Target::Threads(vec![tid]));
        let session = Session::new(spec).expect("a session");
        let mut session = session.attach().expect("attach");
        go.send(()).expect("the thread");
        let mut seen = Collected::default();
        session.run(&mut seen).expect("run until the thread ends");
        worker.join().expect("the thread");
        let summary = session.summary().clone();
        let event = &summary.events[0];
        assert!(event.count >= THREADS * PAGES, "{summary:?}");
        assert_eq!(event.sampled, 100 * event.samples);
        let unsampled = summary.unsampled();
        if short {
            assert_eq!(unsampled.len(), 1, "{summary:?}");
            assert_eq!(
                (
                    unsampled[0].counted,
                    unsampled[0].period,
                    unsampled[0].threads
                ),
                (event.count, 100, THREADS + 1)
            );
        } else {
            assert_eq!(summary.threads, 1);
            assert_eq!(unsampled, [], "{summary:?}");
        }
    }
}

/// B14: stop is legal before the run, counts once, and the session can be run again.
#[test]
fn b14_a_session_stops_before_its_run_and_runs_again() {
    let worker = Worker::spinning();
    let spec = SessionSpec::new()
        .event(clock())
        .target(Target::Threads(vec![worker.tid]));
    let session = Session::new(spec).expect("a session");
    let mut session = session.attach().expect("attach");
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
    let (session, summary) = session.detach();
    assert_eq!(summary.samples, seen.samples);
    session.attach().expect("attach again");
}

fn read_until_some(session: &mut AttachedSession, seen: &mut Collected) {
    session.enable().expect("enable");
    let before = seen.samples;
    read_until(session, seen, "a sample", |seen| seen.samples > before);
}

#[test]
fn a_deadline_ends_a_run() {
    let spec = SessionSpec::new().event(clock());
    let session = Session::new(spec)
        .expect("a session")
        .with_deadline(Instant::now() + Duration::from_millis(50));
    let mut session = session.attach().expect("attach");
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
    let session = Session::new(spec).expect("a session");
    let mut session = session.attach().expect("attach");
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
    let session = Session::new(spec).expect("a session");
    let mut session = match session.attach() {
        Err(AttachError::Open(error))
            if matches!(error.refusal, Refusal::Permission { cpu_wide: true, .. }) =>
        {
            skip!("{error}")
        }
        other => other.expect("attach"),
    };
    assert_eq!(session.attach_summary().cpus, CpuSet::online().as_slice());
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
        .cpus(CpuSet::new([cpu]));
    let session = Session::new(spec).expect("a session");
    let mut session = session.attach().expect("attach");
    let summary = session.attach_summary().clone();
    assert_eq!(summary.cpus, [cpu]);
    let mut seen = Collected::default();
    read_until(&mut session, &mut seen, "samples", |seen| seen.samples > 3);
    assert!(seen.of_cpu.keys().all(|seen| *seen == cpu));
    let none = SessionSpec::new()
        .event(clock())
        .cpus(CpuSet::new([100_000]));
    let error = Session::new(none)
        .expect("a session")
        .attach()
        .expect_err("no such CPU");
    assert!(
        matches!(error, AttachError::NoCpus { .. }) && error.to_string().contains("100000"),
        "{error}"
    );
}
