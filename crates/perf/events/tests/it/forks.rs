//! A session belongs to the process that made it: a forked child's copy controls nothing and harms nobody.

use crate::collect::{Collected, PATIENCE, STEP, Worker, read_until, spin};
use crate::skip;
use dioptra_perfevents::{
    EventSpec, RecordListener, RunError, Running, Session, SessionSpec, SideBand, Target,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Forks a child that runs `body`; its pid. The child exits with 0 if `body` returned true, with 1 if it returned
/// false, and with 2 if it panicked.
fn fork(body: impl FnOnce() -> bool) -> libc::pid_t {
    // SAFETY: the child runs the body, which takes no lock that another thread could hold but malloc's, of which the C
    // library takes care, and ends in _exit.
    match unsafe { libc::fork() } {
        0 => {
            let code = match catch_unwind(AssertUnwindSafe(body)) {
                Ok(true) => 0,
                Ok(false) => 1,
                Err(_) => 2,
            };
            // SAFETY: ends the child without the parent's destructors.
            unsafe { libc::_exit(code) }
        }
        pid => {
            assert!(pid > 0, "fork");
            pid
        }
    }
}

/// Waits for a child's end: its exit code, or -1 if a signal or the test's patience killed it.
fn exit_code(pid: libc::pid_t) -> i32 {
    let start = Instant::now();
    loop {
        let mut status = 0;
        // SAFETY: our own child; the status outlives the call.
        if unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } == pid {
            return if libc::WIFEXITED(status) {
                libc::WEXITSTATUS(status)
            } else {
                -1
            };
        }
        if start.elapsed() > PATIENCE {
            // SAFETY: our own child, not waited for yet.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Counts the rounds of its session.
struct Rounds(Arc<AtomicU64>);

impl RecordListener for Rounds {
    fn round(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Makes a session whose reader wakes for a stop only.
fn quiet(target: Target) -> SessionSpec {
    SessionSpec::new()
        .event(EventSpec::page_faults().with_period(1_000_000).user_only())
        .target(target)
        .side_band(SideBand::NONE)
        .poll_timeout(Duration::from_secs(600))
}

/// The child drops or stops its copy first; the parent's session goes on, without a spin, and ends as ever.
#[test]
fn a_forked_child_that_drops_its_copy_leaves_the_session_alone() {
    let sleeper = Worker::new(|| std::thread::sleep(Duration::from_millis(50)));
    for stops in [false, true] {
        let rounds = Arc::new(AtomicU64::new(0));
        let spec = quiet(Target::Threads(vec![sleeper.tid]));
        let running = Session::spawn(spec, Rounds(Arc::clone(&rounds))).expect("a running session");
        let mut running = Some(running);
        let child = fork(|| {
            let copy = running.take().expect("the copy");
            if stops {
                return matches!(copy.stop(), Err(RunError::OtherProcess));
            }
            drop(copy);
            true
        });
        assert_eq!(exit_code(child), 0, "stops: {stops}");
        // Nothing wakes the reader but a stop: a reader that spins makes a round each microsecond or two.
        std::thread::sleep(Duration::from_millis(300));
        let made = rounds.load(Ordering::Relaxed);
        assert!(made < 20, "{made} rounds: the reader spins");
        let (_, summary) = running
            .take()
            .expect("ours")
            .stop()
            .expect("the parent's stop ends it");
        assert_eq!(summary.rounds, rounds.load(Ordering::Relaxed));
    }
}

/// The parent stops first; the child's copy is dropped afterwards.
#[test]
fn a_child_drops_its_copy_after_the_parent_has_stopped() {
    let worker = Worker::spinning();
    let spec = SessionSpec::new()
        .event(EventSpec::cpu_clock().with_period(500_000).user_only())
        .target(Target::Threads(vec![worker.tid]));
    let running = Session::spawn(spec, Collected::default()).expect("a running session");
    let mut running = Some(running);
    let (wait, go) = std::os::unix::net::UnixStream::pair().expect("a pair of sockets");
    let child = fork(|| {
        let copy = running.take().expect("the copy");
        let mut byte = [0];
        let told = std::io::Read::read_exact(&mut &wait, &mut byte).is_ok();
        drop(copy);
        told
    });
    spin(1_000_000);
    let (seen, summary) = running.take().expect("ours").stop().expect("stop");
    assert_eq!(seen.samples, summary.samples);
    std::io::Write::write_all(&mut &go, &[1]).expect("the child waits");
    assert_eq!(exit_code(child), 0);
}

/// A child that becomes another program holds no descriptor of the session, whether it dropped its copy or not.
#[test]
fn a_child_that_executes_another_program_leaves_the_session_alone() {
    let sleeper = Worker::new(|| std::thread::sleep(Duration::from_millis(50)));
    for drops in [false, true] {
        let rounds = Arc::new(AtomicU64::new(0));
        let spec = quiet(Target::Threads(vec![sleeper.tid]));
        let running = Session::spawn(spec, Rounds(Arc::clone(&rounds))).expect("a running session");
        let mut running = Some(running);
        let child = fork(|| {
            if drops {
                drop(running.take());
            }
            let shell = c"/bin/sh";
            // No event, no eventfd: only what the harness had open itself.
            let script = c"! readlink /proc/$$/fd/* | grep -e perf_event -e eventfd";
            let arguments = [
                shell.as_ptr(),
                c"-c".as_ptr(),
                script.as_ptr(),
                std::ptr::null(),
            ];
            // SAFETY: null-terminated strings that live until the program is replaced.
            unsafe { libc::execv(shell.as_ptr(), arguments.as_ptr()) };
            false
        });
        assert_eq!(exit_code(child), 0, "drops: {drops}");
        std::thread::sleep(Duration::from_millis(100));
        let made = rounds.load(Ordering::Relaxed);
        assert!(made < 20, "{made} rounds: the reader spins");
        drop(running);
    }
}

/// The rings are not mapped in a child, and its events are the parent's: a session that is read by hand refuses there.
#[test]
fn a_childs_copy_of_a_session_refuses_and_unmaps_nothing() {
    let worker = Worker::spinning();
    let spec = SessionSpec::new()
        .event(EventSpec::cpu_clock().with_period(500_000).user_only())
        .target(Target::Threads(vec![worker.tid]));
    let session = Session::new(spec).expect("a session");
    let mut session = session.attach().expect("attach");
    let mut seen = Collected::default();
    read_until(&mut session, &mut seen, "a sample", |seen| seen.samples > 0);
    let mut session = Some(session);
    let child = fork(|| {
        let mut copy = session.take().expect("the copy");
        let mut seen = Collected::default();
        let other = |result: Result<(), RunError>| matches!(result, Err(RunError::OtherProcess));
        let refuses = other(copy.run(&mut seen))
            && other(copy.read_once(Duration::ZERO, &mut seen).map(|_| ()))
            && other(copy.finish(&mut seen))
            && other(copy.enable())
            && other(copy.disable());
        copy.stop_handle().stop();
        // The ring's pages are free in the child: what it maps itself may lie there, and has to stay.
        let length = 64 << 20;
        // SAFETY: a fresh mapping, read after the drop: a fault fails the test.
        unsafe {
            let base = libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            drop(copy);
            for page in 0..length / 4096 {
                base.cast::<u8>().add(page * 4096).write_volatile(1);
            }
        }
        refuses
    });
    assert_eq!(exit_code(child), 0);
    let before = seen.samples;
    let mut session = session.expect("ours");
    // The child disabled nothing, and stopped nothing.
    read_until(&mut session, &mut seen, "more samples", |seen| {
        seen.samples > before
    });
    let progress = session.read_once(STEP, &mut seen).expect("read");
    assert_eq!(progress.state, Running::Yes);
}

/// A child may take samples by signals itself, whatever became of its parent's session.
#[test]
fn a_child_has_signals_of_its_own() {
    let spec = || {
        SessionSpec::new()
            .event(EventSpec::cpu_clock().with_period(1_000_000))
            .watch_reader(true)
    };
    let timer = || dioptra_perfevents::TimerAttachmentStrategy;
    let ours = Session::new(spec())
        .expect("a session")
        .with_strategy(timer());
    let ours = match ours.attach() {
        Ok(session) => session,
        Err(error) => skip!("{error}"),
    };
    let mut ours = Some(ours);
    let child = fork(|| {
        let copy = Session::new(spec())
            .expect("a session")
            .with_strategy(timer());
        let attached = copy.attach();
        // The parent's session takes nothing from the child's when its copy is dropped.
        drop(ours.take());
        let second = Session::new(spec())
            .expect("a session")
            .with_strategy(timer())
            .attach();
        attached.is_ok() && second.is_err()
    });
    assert_eq!(exit_code(child), 0);
}
