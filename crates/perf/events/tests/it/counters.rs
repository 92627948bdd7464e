//! Counters and groups, sessions on threads of their own, and sessions in event loops: against counts known by
//! construction.

use crate::collect::{Collected, PATIENCE, STEP, Worker, fault, read_until, spin};
use dioptra_perfevents::record::Sample;
use dioptra_perfevents::{
    AttachedEvent, Counter, EventSpec, EventTarget, Group, Reader, RecordListener, Refusal,
    RunError, Session, SessionSpec, Target, on_sample, parse_events,
};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn faults() -> EventSpec {
    EventSpec::page_faults().user_only()
}

#[test]
fn a_counter_counts_each_fault_and_none_while_paused() {
    let counter = Counter::start(&faults()).expect("a counter");
    let before = counter.value().expect("a value");
    fault(100);
    let after = counter.value().expect("a value");
    assert!((100..150).contains(&(after - before)), "{before} {after}");
    counter.pause().expect("pause");
    let paused = counter.read().expect("a count");
    fault(100);
    assert_eq!(counter.read().expect("a count"), paused);
    counter.resume().expect("resume");
    fault(100);
    let resumed = counter.value().expect("a value");
    assert!((100..150).contains(&(resumed - paused.value)), "{resumed}");
    counter.reset().expect("reset");
    assert!(counter.value().expect("a value") < 50);
    // Software events have their counters to themselves.
    let count = counter.read().expect("a count");
    assert_eq!(count.scaled(), Some(count.value));
    assert!(!count.is_shared());
    assert!(!counter.reads_in_user_space(), "the kernel counts these");
}

#[test]
fn a_task_clock_agrees_with_the_threads_own() {
    let cpu_time = || {
        let mut now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the kernel fills our struct.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    };
    let outer = cpu_time();
    let counter = Counter::start(&EventSpec::task_clock().user_only()).expect("a counter");
    let inner = cpu_time();
    spin(1_000_000);
    let least = cpu_time() - inner;
    let counted = counter.value().expect("a value");
    let most = cpu_time() - outer;
    // The kernel rounds the two clocks apart by less than a tick's bookkeeping.
    let slack = 1_000_000;
    assert!(
        (least.saturating_sub(slack)..=most + slack).contains(&counted),
        "{least} {counted} {most}"
    );
}

/// With a PMU the two ways of reading agree; without one the event is refused with its reason.
#[test]
fn reads_in_user_space_agree_with_the_kernels() {
    let spec = &parse_events("instructions:u").expect("an event")[0].events[0];
    let counter = match Counter::start(spec) {
        Ok(counter) => Arc::new(counter),
        Err(error) => {
            assert!(
                matches!(
                    error.refusal,
                    Refusal::NotSupported | Refusal::Seccomp | Refusal::Permission { .. }
                ),
                "{error}"
            );
            assert!(dioptra_testprograms::Limit::NoCycleCounter.holds());
            return dioptra_testprograms::skip(dioptra_testprograms::Limit::NoCycleCounter);
        }
    };
    let before = counter.event().read().expect("a count").value;
    let own = counter.value().expect("a value");
    let after = counter.event().read().expect("a count").value;
    assert!((before..=after).contains(&own), "{before} {own} {after}");
    let times = counter.read().expect("a count");
    assert!(times.time_running <= times.time_enabled && times.time_enabled > Some(0));
    // The counter of the CPU is another thread's there: only the kernel knows ours.
    let elsewhere = Arc::clone(&counter);
    let (in_user_space, value) = std::thread::spawn(move || {
        let value = elsewhere.value().expect("a value");
        (elsewhere.reads_in_user_space(), value)
    })
    .join()
    .expect("a thread");
    assert!(!in_user_space && value >= after);
}

#[test]
fn the_events_of_a_group_count_at_the_same_times() {
    let minor = EventSpec::software(dioptra_perfevents::names::software::MINOR_FAULTS).user_only();
    let group =
        Group::start(&[faults(), minor, EventSpec::task_clock().user_only()]).expect("a group");
    let before = group.read().expect("counts");
    fault(200);
    let after = group.read().expect("counts");
    let passed: Vec<u64> = before
        .iter()
        .zip(&after)
        .map(|(before, after)| after.value - before.value)
        .collect();
    assert!((200..300).contains(&passed[0]), "{passed:?}");
    // Fresh memory needs no disk: every fault is a minor one.
    assert_eq!(passed[0], passed[1], "{passed:?}");
    assert!(passed[2] > 0, "{passed:?}");
    group.pause().expect("pause");
    let paused = group.read().expect("counts");
    fault(50);
    assert_eq!(group.read().expect("counts"), paused);
    group.resume().expect("resume");
    group.reset().expect("reset");
    fault(50);
    let reset = group.read().expect("counts");
    assert!((50..100).contains(&reset[0].value), "{reset:?}");
    assert_eq!(group.events().len(), 3);
    let error = Group::start(&[]).expect_err("no leader");
    assert!(error.to_string().contains("leader"), "{error}");
}

#[test]
fn a_counter_of_another_thread_counts_that_thread() {
    let worker = Worker::new(|| {
        fault(5);
        std::thread::sleep(Duration::from_millis(1));
    });
    let counter =
        Counter::start_for(&faults(), EventTarget::thread(worker.tid)).expect("a counter");
    let start = Instant::now();
    while counter.value().expect("a value") < 20 {
        fault(1);
        assert!(start.elapsed() < PATIENCE);
    }
}

/// Starts a thread that faults while `word` is true.
fn faulting_on(word: &Arc<AtomicBool>) -> Worker {
    let word = Arc::clone(word);
    Worker::new(move || {
        if word.load(Ordering::Relaxed) {
            fault(1);
        }
        std::thread::sleep(Duration::from_micros(200));
    })
}

#[test]
fn a_running_session_has_live_counts_and_can_be_paused() {
    let runs = Arc::new(AtomicBool::new(true));
    let worker = faulting_on(&runs);
    let spec = SessionSpec::new()
        .event(faults().with_period(1))
        .target(Target::Threads(vec![worker.tid]));
    let running = Session::spawn(spec, on_sample(|_, _| ())).expect("a session");
    let count = || running.summary().expect("live totals").events[0].count;
    let waits_for = |least: u64| {
        let start = Instant::now();
        while count() < least {
            std::thread::sleep(Duration::from_millis(1));
            assert!(start.elapsed() < PATIENCE, "{} of {least}", count());
        }
    };
    waits_for(10);
    running.pause().expect("pause");
    let paused = count();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(count(), paused, "the worker faults on, and nobody counts");
    running.resume().expect("resume");
    waits_for(paused + 10);
    let (_, summary) = running.stop().expect("totals");
    assert!(summary.events[0].count >= paused + 10);
    assert_eq!(
        summary.events[0].samples + summary.lost,
        summary.events[0].count
    );
}

#[test]
fn a_session_whose_targets_ended_says_so() {
    let worker = Worker::spinning();
    let spec = SessionSpec::new()
        .event(faults().with_period(1))
        .target(Target::Threads(vec![worker.tid]));
    let running = Session::spawn(spec, on_sample(|_, _| ())).expect("a session");
    running.summary().expect("live totals");
    drop(worker);
    let start = Instant::now();
    loop {
        match running.summary() {
            Err(RunError::Ended) => break,
            other => other.map(drop).expect("no other error"),
        }
        std::thread::sleep(STEP);
        assert!(start.elapsed() < PATIENCE, "the session goes on");
    }
    running.stop().expect("the totals are there all the same");
}

/// Counts the rounds and samples of a session.
#[derive(Default)]
struct Rounds {
    rounds: u64,
    samples: u64,
}

impl RecordListener for Rounds {
    fn round(&mut self) {
        self.rounds += 1;
    }

    fn sample(&mut self, _: Option<&AttachedEvent>, _: &Sample<'_>) {
        self.samples += 1;
    }
}

/// The descriptor for event loops is readable when records wait, and no longer when they are read.
#[test]
fn one_descriptor_stands_for_all_rings() {
    let runs = Arc::new(AtomicBool::new(true));
    let worker = faulting_on(&runs);
    let spec = SessionSpec::new()
        .event(faults().with_period(1))
        .target(Target::Threads(vec![worker.tid]))
        .watermark(1);
    let session = Session::new(spec).expect("a session");
    let mut session = session.attach().expect("attach");
    let wakeups = session.wakeups().expect("a descriptor");
    assert_eq!(
        session.wakeups().expect("the same").as_raw_fd(),
        wakeups.as_raw_fd()
    );
    let is_ready = |milliseconds: i32| {
        let mut fds = [libc::pollfd {
            fd: wakeups.as_fd().as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        }];
        // SAFETY: our own array of one.
        (unsafe { libc::poll(fds.as_mut_ptr(), 1, milliseconds) }) > 0
    };
    let mut seen = Rounds::default();
    let start = Instant::now();
    while seen.samples < 20 {
        is_ready(100);
        session.drain(&mut seen).expect("drain");
        assert!(start.elapsed() < PATIENCE);
    }
    runs.store(false, Ordering::Relaxed);
    let start = Instant::now();
    // The last fault and its wakeup may still be under way.
    while is_ready(50) {
        session.drain(&mut seen).expect("drain");
        assert!(start.elapsed() < PATIENCE, "ready for ever");
    }
    runs.store(true, Ordering::Relaxed);
    let start = Instant::now();
    while !is_ready(100) {
        assert!(start.elapsed() < PATIENCE, "never ready again");
    }
    // A ring whose thread ended must not make the descriptor ready for ever.
    drop(worker);
    session.stop_handle().stop();
    assert!(is_ready(1000), "a stop wakes the loop");
    session.drain(&mut seen).expect("drain");
    session.finish(&mut seen).expect("finish");
}

/// A reader that looks at intervals wakes for no ring, and loses nothing.
#[test]
fn a_reader_by_interval_wakes_for_no_record() {
    let runs = Arc::new(AtomicBool::new(true));
    let worker = faulting_on(&runs);
    let spec = |reader| {
        SessionSpec::new()
            .event(faults().with_period(1))
            .target(Target::Threads(vec![worker.tid]))
            .watermark(1)
            .poll_timeout(Duration::from_millis(100))
            .reader(reader)
    };
    let run = |reader| {
        let session = Session::new(spec(reader))
            .expect("a session")
            .with_deadline(Instant::now() + Duration::from_millis(500));
        let mut session = session.attach().expect("attach");
        let mut seen = Rounds::default();
        session.run(&mut seen).expect("run");
        assert!(seen.samples > 0);
        assert_eq!(session.summary().lost, 0);
        seen.rounds
    };
    let (by_interval, by_poll) = (run(Reader::Interval), run(Reader::FdPoll));
    // Five looks and two at the end.
    assert!(by_interval <= 8, "{by_interval}");
    assert!(by_poll > by_interval, "{by_poll} {by_interval}");
}

/// Numbers can be given as they are.
#[test]
fn optional_settings_take_values_and_none() {
    let spec = SessionSpec::new().ring_pages(64).watermark(None).clock(1);
    assert_eq!(
        (spec.ring_pages, spec.watermark, spec.clock),
        (Some(64), None, Some(1))
    );
    let worker = Worker::spinning();
    let spec = spec
        .event(EventSpec::cpu_clock().with_period(500_000).user_only())
        .target(Target::Threads(vec![worker.tid]));
    let session = Session::new(spec).expect("a session");
    let mut session = session.attach().expect("attach");
    let mut seen = Collected::default();
    read_until(&mut session, &mut seen, "a sample", |seen| seen.samples > 0);
}
