//! The same at the default paranoid level without privileges: these run again as the user nobody.

use crate::collect::{Collected, Worker, as_nobody, fault, is_nobody, read_until};
use crate::skip;
use dioptra_perfevents::{
    AttachError, Capabilities, EventSpec, Fallbacks, Refusal, Session, SessionSpec, SideBand,
    Target, limits, names::software, parse_events,
};
use dioptra_testprograms::{Limit, skip};
use std::time::Duration;

/// Returns true if the kernel keeps users out of its own part; the tests below are about that.
fn paranoid() -> bool {
    is_nobody() && limits::paranoid().is_some_and(|level| level >= 2)
}

/// B3: the kernel's part is left out, aloud, rather than the attach refused.
#[test]
fn b3_the_kernels_part_is_left_out_aloud() {
    if as_nobody("unprivileged::b3_the_kernels_part_is_left_out_aloud") {
        return;
    }
    if !paranoid() {
        return skip(Limit::OtherParanoid);
    }
    let worker = Worker::spinning();
    let spec = SessionSpec::new().event(EventSpec::cpu_clock().with_period(500_000));
    let session = Session::new(spec.clone()).expect("a session");
    let mut session = session.attach().expect("attach");
    let summary = session.attach_summary().clone();
    assert!(
        summary
            .notes
            .iter()
            .any(|note| note.to_string().contains("user space")),
        "{:?}",
        summary.notes
    );
    let mut seen = Collected::default();
    read_until(&mut session, &mut seen, "samples", |seen| {
        seen.of_thread.contains_key(&worker.tid)
    });
    let strict = spec.fallbacks(Fallbacks::default().difference(Fallbacks::EXCLUDE_KERNEL));
    let error = Session::new(strict)
        .expect("a session")
        .attach()
        .expect_err("refused");
    let text = error.to_string();
    assert!(
        text.contains("perf_event_paranoid") && text.contains(":u") && text.contains("cap_perfmon"),
        "{text}"
    );
}

#[test]
fn cpu_wide_is_refused_with_a_remedy() {
    if as_nobody("unprivileged::cpu_wide_is_refused_with_a_remedy") {
        return;
    }
    if !paranoid() {
        return skip(Limit::OtherParanoid);
    }
    let spec = SessionSpec::new()
        .event(EventSpec::cpu_clock().with_period(1_000_000))
        .target(Target::Cpus(None));
    let error = Session::new(spec)
        .expect("a session")
        .attach()
        .expect_err("refused");
    let AttachError::Open(open) = &error else {
        panic!("{error}")
    };
    assert!(
        matches!(open.refusal, Refusal::Permission { cpu_wide: true, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("CAP_PERFMON"), "{error}");
}

/// 2.1: the switch counter counts nothing here, switch records work.
#[test]
fn switch_records_need_no_privilege() {
    if as_nobody("unprivileged::switch_records_need_no_privilege") {
        return;
    }
    let worker = Worker::new(|| std::thread::sleep(Duration::from_millis(1)));
    let side_band = SideBand::SWITCH;
    let spec = SessionSpec::new()
        .event(EventSpec::software(software::CONTEXT_SWITCHES).with_period(1))
        .side_band(side_band)
        .target(Target::Threads(vec![worker.tid]));
    let session = Session::new(spec).expect("a session");
    let mut session = session.attach().expect("attach");
    let summary = session.attach_summary().clone();
    if paranoid() {
        assert!(
            summary
                .notes
                .iter()
                .any(|note| note.to_string().contains("never happens")),
            "{:?}",
            summary.notes
        );
    }
    let mut seen = Collected::default();
    read_until(&mut session, &mut seen, "switches", |seen| {
        seen.switches > 5
    });
}

/// T20: the allowance of locked memory is the user's, and small.
#[test]
fn t20_large_rings_shrink_without_privilege() {
    if as_nobody("unprivileged::t20_large_rings_shrink_without_privilege") {
        return;
    }
    if limits::may_lock_freely() {
        skip!("this user may lock any amount of memory");
    }
    let worker = Worker::new(|| fault(1));
    let spec = SessionSpec::new()
        .event(EventSpec::page_faults().with_period(1).user_only())
        .target(Target::Threads(vec![worker.tid]))
        .ring_pages(1 << 16);
    let session = Session::new(spec.clone()).expect("a session");
    let mut session = session.attach().expect("attach");
    let summary = session.attach_summary().clone();
    assert!(summary.ring_pages < 1 << 16, "{summary:?}");
    assert!(
        summary
            .notes
            .iter()
            .any(|note| note.to_string().contains("mlock")),
        "{summary:?}"
    );
    let mut seen = Collected::default();
    read_until(&mut session, &mut seen, "samples", |seen| seen.samples > 0);
    let strict = spec.fallbacks(Fallbacks::default().difference(Fallbacks::SMALLER_RINGS));
    let error = Session::new(strict)
        .expect("a session")
        .attach()
        .expect_err("too large");
    assert!(
        matches!(error, AttachError::Ring { .. }) && error.to_string().contains("mlock"),
        "{error}"
    );
}

/// The ladder's first rung, and its end: descriptors.
#[test]
fn descriptors_are_raised_or_the_lack_is_told() {
    if as_nobody("unprivileged::descriptors_are_raised_or_the_lack_is_told") {
        return;
    }
    if !is_nobody() {
        skip!("limits are lowered in a process of its own only");
    }
    let workers: Vec<Worker> = (0..30)
        .map(|_| Worker::new(|| std::thread::sleep(Duration::from_millis(5))))
        .collect();
    let lower = |soft: u64, hard: u64| {
        let limit = libc::rlimit {
            rlim_cur: soft,
            rlim_max: hard,
        };
        // SAFETY: our own struct.
        let done = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
        assert_eq!(done, 0);
    };
    let event = EventSpec::page_faults().with_period(1).user_only();
    let two = || {
        SessionSpec::new().event(event.clone()).event(
            EventSpec::software(software::MINOR_FAULTS)
                .with_period(1)
                .user_only(),
        )
    };
    lower(40, 1000);
    let session = Session::new(two()).expect("a session");
    let session = session.attach().expect("attach with a raised limit");
    let summary = session.attach_summary().clone();
    assert!(summary.threads >= workers.len());
    assert!(
        summary
            .notes
            .iter()
            .any(|note| note.to_string().contains("raised")),
        "{summary:?}"
    );
    drop(session);
    lower(40, 40);
    let strict = two().fallbacks(Fallbacks::default().difference(Fallbacks::PER_THREAD));
    let error = Session::new(strict)
        .expect("a session")
        .attach()
        .expect_err("too few");
    assert!(
        matches!(error, AttachError::Descriptors { limit: 40, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("ulimit -n"), "{error}");
    lower(12, 12);
    let open: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
    let spec = SessionSpec::new().event(event.clone());
    if let Ok(session) = Session::new(spec) {
        session.attach().expect_err("no descriptor left");
    }
    let refused = dioptra_perfevents::Event::open(&event, dioptra_perfevents::EventTarget::CALLER);
    let refused = refused.expect_err("no descriptor left");
    assert!(
        matches!(refused.refusal, Refusal::ProcessDescriptors { limit: 12 }),
        "{refused}"
    );
    drop(open);
}

#[test]
fn tracepoints_say_what_they_need() {
    if as_nobody("unprivileged::tracepoints_say_what_they_need") {
        return;
    }
    match parse_events("sched:sched_switch") {
        Ok(_) => {}
        Err(error) => assert!(error.remedy.contains("root"), "{error}"),
    }
}

#[test]
fn the_probe_tells_the_truth_without_privilege() {
    if as_nobody("unprivileged::the_probe_tells_the_truth_without_privilege") {
        return;
    }
    let found = Capabilities::probe();
    if paranoid() {
        assert!(found.sample_user.is_ok(), "{:?}", found.sample_user);
        assert!(found.sample_kernel.is_err() && found.system_wide.is_err());
        assert!(found.uprobes.is_err());
        assert!(found.switches.is_ok());
    }
}
