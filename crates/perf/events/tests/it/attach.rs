//! Attaching under churn, descriptor limits, hang-ups: the traps of 2.2 and the reference's defects.

use crate::collect::{Collected, PATIENCE, STEP, Worker, fault, own_tid, read_until};
use dioptra_perfevents::{AttachError, EventSpec, Session, SessionSpec, SideBand, Target};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// T4, T6, B5: under churn every fault of every thread is sampled once, whether its thread was found or inherited.
#[test]
fn t4_threads_that_come_and_go_while_attaching_are_watched_once() {
    // Each thread counts its own faults by an event of its own and tells how many there were once all is attached.
    let stop = Arc::new(AtomicBool::new(false));
    let churn = Arc::clone(&stop);
    let creator = std::thread::spawn(move || {
        while !churn.load(Ordering::Relaxed) {
            let children: Vec<_> = (0..4).map(|_| std::thread::spawn(|| fault(3))).collect();
            for child in children {
                child.join().expect("a child");
            }
        }
    });
    let workers: Vec<Worker> = (0..20)
        .map(|_| Worker::new(|| std::thread::sleep(Duration::from_millis(5))))
        .collect();
    for _ in 0..10 {
        let spec = SessionSpec::new().event(EventSpec::page_faults().with_period(1).user_only());
        let session = Session::new(spec).expect("a session");
        let mut session = session.attach().expect("attach under churn");
        let summary = session.attach_summary().clone();
        assert!(summary.threads >= workers.len(), "{summary:?}");
        // From here on every thread is covered: each new thread's faults are counted by hand and by the session.
        let mut seen = Collected::default();
        let (tell, told) = std::sync::mpsc::channel();
        let careful = std::thread::spawn(move || {
            // Created by the reader, which is not watched: it inherits nothing, and is not to be seen.
            fault(50);
            tell.send(own_tid()).expect("a listener");
        });
        let unseen = told.recv().expect("the thread");
        careful.join().expect("the thread");
        read_until(
            &mut session,
            &mut seen,
            "samples of churned threads",
            |seen| seen.of_thread.len() > 8,
        );
        session.finish(&mut seen).expect("finish");
        assert!(!seen.of_thread.contains_key(&unseen));
        assert!(seen.malformed.is_empty());
    }
    stop.store(true, Ordering::Relaxed);
    creator.join().expect("the creator");
}

/// T6: samples of a thread found late are not doubled: each of its faults has one sample.
#[test]
fn t6_no_fault_is_sampled_twice_by_two_events_of_the_session() {
    let creator = Worker::new(|| {
        std::thread::spawn(|| {
            fault(40);
            std::thread::sleep(Duration::from_millis(2));
            fault(40);
        })
        .join()
        .expect("a child");
    });
    for _ in 0..20 {
        let event = EventSpec::page_faults()
            .with_period(1)
            .user_only()
            .with_sample(dioptra_perfevents::SampleType::ADDR);
        let spec = SessionSpec::new().event(event).side_band(SideBand::NONE);
        let session = Session::new(spec).expect("a session");
        let mut session = session.attach().expect("attach");
        let mut seen = Times::default();
        let start = Instant::now();
        while seen.threads.len() < 3 {
            session.read_once(STEP, &mut seen).expect("read");
            assert!(start.elapsed() < PATIENCE);
        }
        session.finish(&mut seen).expect("finish");
        // One fault's two samples would have the same thread, address and time: the kernel copies the first to the second.
        for (tid, faults) in &seen.threads {
            if *tid == creator.tid {
                continue;
            }
            let doubled = faults.windows(2).filter(|pair| pair[0] == pair[1]).count();
            assert_eq!(
                doubled,
                0,
                "thread {tid}: {doubled} of {} are doubled",
                faults.len()
            );
        }
    }
}

/// Time and address of each sample, by thread.
#[derive(Default)]
struct Times {
    threads: HashMap<u32, Vec<(u64, u64)>>,
}

impl dioptra_perfevents::RecordListener for Times {
    fn sample(
        &mut self,
        _: Option<&dioptra_perfevents::AttachedEvent>,
        sample: &dioptra_perfevents::record::Sample<'_>,
    ) {
        if let (Some(tid), Some(time), Some(addr)) = (sample.tid, sample.time, sample.addr) {
            self.threads.entry(tid).or_default().push((time, addr));
        }
    }
}

/// B4, T15: the reader waits in vain for nothing: a thread that ends does not hang up the rings.
#[test]
fn b4_the_end_of_a_watched_thread_does_not_make_the_reader_spin() {
    let keep = Worker::new(|| {
        fault(1);
        std::thread::sleep(Duration::from_millis(2));
    });
    let short: Vec<Worker> = (0..3)
        .map(|_| Worker::new(|| std::thread::sleep(Duration::from_millis(1))))
        .collect();
    let tids = short
        .iter()
        .map(|worker| worker.tid)
        .chain([keep.tid])
        .collect();
    let spec = SessionSpec::new()
        .event(EventSpec::page_faults().with_period(1).user_only())
        .target(Target::Threads(tids));
    let session = Session::new(spec).expect("a session");
    let mut session = session.attach().expect("attach");
    drop(short);
    let mut seen = Collected::default();
    for _ in 0..20 {
        session.read_once(STEP, &mut seen).expect("read");
    }
    let (rounds, start) = (seen.rounds, Instant::now());
    while start.elapsed() < Duration::from_millis(500) {
        session
            .read_once(Duration::from_millis(50), &mut seen)
            .expect("read");
    }
    let rounds = seen.rounds - rounds;
    assert!(
        rounds < 200,
        "{rounds} rounds in half a second: the reader spins"
    );
    read_until(&mut session, &mut seen, "samples of the living", |seen| {
        seen.of_thread.contains_key(&keep.tid)
    });
}

/// B6, T5: a process whose main thread has ended lives on, and its other threads are watched.
#[test]
fn b6_a_zombie_main_thread_is_skipped() {
    // The child's main thread ends by itself; its second thread goes on.
    // SAFETY: between fork and exit the child makes system calls and one thread, from a process whose other threads
    // hold no lock that the child takes: pthread_create allocates by mmap.
    let pid = unsafe {
        match libc::fork() {
            0 => {
                extern "C" fn go_on(_: *mut libc::c_void) -> *mut libc::c_void {
                    loop {
                        fault(1);
                        // SAFETY: a sleep.
                        unsafe { libc::usleep(1000) };
                    }
                }
                let mut thread = 0;
                libc::pthread_create(
                    &raw mut thread,
                    std::ptr::null(),
                    go_on,
                    std::ptr::null_mut(),
                );
                libc::syscall(libc::SYS_exit, 0);
                libc::_exit(1)
            }
            pid => pid.cast_unsigned(),
        }
    };
    let zombie = || {
        std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/stat"))
            .is_ok_and(|stat| stat.contains(") Z"))
    };
    let start = Instant::now();
    while !zombie() {
        std::thread::sleep(Duration::from_millis(1));
        assert!(start.elapsed() < PATIENCE, "no zombie");
    }
    let spec = SessionSpec::new()
        .event(EventSpec::page_faults().with_period(1).user_only())
        .target(Target::Processes(vec![pid]));
    let session = Session::new(spec).expect("a session");
    let mut attached = session.attach();
    let mut seen = Collected::default();
    if let Ok(session) = &mut attached {
        read_until(session, &mut seen, "samples", |seen| seen.samples > 5);
    }
    // SAFETY: our own child.
    unsafe {
        libc::kill(pid.cast_signed(), libc::SIGKILL);
        libc::waitpid(pid.cast_signed(), std::ptr::null_mut(), 0);
    }
    let session = attached.expect("attach to the living thread");
    let summary = session.attach_summary();
    assert_eq!(summary.threads, 1, "{summary:?}");
    assert!(!seen.of_thread.contains_key(&pid));
}

/// B12 and the descriptor ladder: too few descriptors are an error of their own, and nothing stays open.
#[test]
fn b12_a_session_that_needs_too_many_descriptors_says_how_many_and_closes_all() {
    let _workers: Vec<Worker> = (0..10)
        .map(|_| Worker::new(|| std::thread::sleep(Duration::from_millis(5))))
        .collect();
    let mut fallbacks = dioptra_perfevents::Fallbacks::default();
    fallbacks.remove(
        dioptra_perfevents::Fallbacks::RAISE_DESCRIPTORS
            | dioptra_perfevents::Fallbacks::PER_THREAD,
    );
    let spec = SessionSpec::new()
        .event(EventSpec::page_faults().with_period(1).user_only())
        .fallbacks(fallbacks)
        .fd_ratio(0.0001);
    let session = Session::new(spec).expect("a session");
    let error = session.attach().expect_err("too many");
    assert!(matches!(error, AttachError::Descriptors { .. }), "{error}");
}

/// B15, B16: whatever fails leaves no descriptor behind; sessions that succeed leave none either.
#[test]
fn b15_descriptors_are_closed_whatever_happens() {
    // Other tests of this process open descriptors meanwhile: only those of events are counted.
    let events = || {
        std::fs::read_dir("/proc/self/fd")
            .expect("descriptors")
            .flatten()
            .filter(|entry| {
                std::fs::read_link(entry.path())
                    .is_ok_and(|to| to.to_string_lossy().contains("perf_event"))
            })
            .count()
    };
    // Under a runner that gives each test its own process nothing else is open.
    let before = events();
    for _ in 0..3 {
        let spec = SessionSpec::new().event(EventSpec::page_faults().with_period(1).user_only());
        let session = Session::new(spec).expect("a session");
        let session = session.attach().expect("attach");
        session.detach();
        let mut attr = EventSpec::page_faults().user_only();
        attr.attr.config = 4000;
        let bad = SessionSpec::new()
            .event(EventSpec::page_faults().with_period(1).user_only())
            .event(attr);
        Session::new(bad)
            .expect("a session")
            .attach()
            .expect_err("no such event");
    }
    if std::env::var_os("NEXTEST").is_some() {
        assert_eq!(events(), before);
    }
}

/// B10: one copy of each mapping, name and fork, however many events there are.
#[test]
fn b10_side_band_records_come_once() {
    let mut held = crate::collect::Held::new("true");
    let mut spec = SessionSpec::new()
        .target(Target::Command(held.pid()))
        .start(dioptra_perfevents::Start::OnExec)
        .inherit(dioptra_perfevents::Inherit::ThreadsAndChildren);
    for config in [2, 5, 6, 3] {
        spec = spec.event(EventSpec::software(config).with_period(1000).user_only());
    }
    let session = Session::new(spec).expect("a session");
    let mut session = session.attach().expect("attach");
    held.go();
    let mut seen = Collected::default();
    session.run(&mut seen).expect("run");
    let execs = seen
        .comms
        .iter()
        .filter(|(_, name, exec)| name == "true" && *exec)
        .count();
    assert_eq!(execs, 1, "{:?}", seen.comms);
    assert_eq!(
        seen.exits.iter().filter(|tid| **tid == held.pid()).count(),
        1
    );
}

/// T20: rings shrink until they fit.
#[test]
fn t20_rings_are_halved_until_the_kernel_maps_them() {
    let spec = SessionSpec::new()
        .event(EventSpec::page_faults().with_period(1).user_only())
        .ring_pages(1 << 20);
    let session = Session::new(spec).expect("a session");
    match session.attach() {
        Ok(session) => {
            let summary = session.attach_summary();
            assert!(summary.ring_pages.is_power_of_two());
            let shrunk = summary.ring_pages < 1 << 20;
            assert_eq!(
                summary
                    .notes
                    .iter()
                    .any(|note| note.to_string().contains("ring buffers")),
                shrunk,
                "{summary:?}"
            );
        }
        Err(error) => panic!("{error}"),
    }
}
