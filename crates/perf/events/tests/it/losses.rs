//! Losses are counted exactly: what was sampled and what was lost make what happened.

use crate::collect::{Collected, Worker, fault, read_until};
use crate::skip;
use dioptra_perfevents::{EventSpec, Features, Session, SessionSpec, SideBand, Target};
use std::time::Duration;

/// T17: the LOST record comes with the next write only; the event's own count is exact.
#[test]
fn t17_sampled_and_lost_make_all_that_happened() {
    if !Features::get().read_lost {
        skip!("this kernel does not count lost records");
    }
    // Rings of one page, into which everything is written before anything is read.
    let (go, gone) = std::sync::mpsc::channel::<usize>();
    let (tell, told) = std::sync::mpsc::channel();
    let worker = std::thread::spawn(move || {
        tell.send(crate::collect::own_tid()).expect("a listener");
        for pages in gone {
            fault(pages);
            tell.send(0).expect("a listener");
        }
    });
    let tid = told.recv().expect("the thread's id");
    let faults = EventSpec::page_faults().with_period(1).user_only();
    let spec = SessionSpec::new()
        .event(faults)
        .target(Target::Threads(vec![tid]))
        .ring_pages(1)
        .side_band(SideBand::NONE);
    let session = Session::new(spec).expect("a session");
    let mut session = session.attach().expect("attach");
    let mut seen = Collected::default();
    for _ in 0..3 {
        go.send(2000).expect("the thread");
        told.recv().expect("done");
        session.read_once(Duration::ZERO, &mut seen).expect("read");
    }
    session.finish(&mut seen).expect("finish");
    let summary = session.summary().clone();
    let counted = summary.events[0].count;
    assert!(counted >= 6000, "{summary:?}");
    assert!(summary.lost > 0, "one page holds fewer");
    assert_eq!(summary.samples, seen.samples);
    assert_eq!(summary.lost_told, seen.lost);
    assert_eq!(summary.lost, summary.events[0].lost.expect("a count"));
    assert_eq!(summary.samples + summary.lost, counted, "{summary:?}");
    assert!(
        summary.lost_untold() > 0,
        "nothing was written after the last loss"
    );
    drop(go);
    worker.join().expect("the thread");
}

/// Samples and losses of a group are counted once, whatever the number of its members, and each member's count is its
/// own.
#[test]
fn members_of_a_group_count_for_themselves_and_lose_nothing() {
    if !Features::get().read_lost {
        skip!("this kernel does not count lost records");
    }
    const FAULTS: usize = 6000;
    let minor = EventSpec::software(5).user_only();
    // Nothing on x86-64 or 64-bit Arm is ever counted by it.
    let never = EventSpec::software(8).user_only();
    let each_fault = EventSpec::page_faults().with_period(1).user_only();
    let clock = EventSpec::cpu_clock().with_period(1_000_000).user_only();
    for leader in [each_fault, clock] {
        for members in 1..4 {
            let (go, gone) = std::sync::mpsc::channel::<usize>();
            let (tell, told) = std::sync::mpsc::channel();
            let worker = std::thread::spawn(move || {
                tell.send(crate::collect::own_tid()).expect("a listener");
                for pages in gone {
                    fault(pages);
                    tell.send(0).expect("a listener");
                }
            });
            let tid = told.recv().expect("the thread's id");
            let others = [
                minor.clone(),
                never.clone(),
                EventSpec::page_faults().user_only(),
            ];
            let events = std::iter::once(leader.clone()).chain(others.into_iter().take(members));
            let group = dioptra_perfevents::EventGroup::new(events).sampled_together();
            let spec = SessionSpec::new()
                .event(group)
                .target(Target::Threads(vec![tid]))
                .ring_pages(1)
                .side_band(SideBand::NONE);
            let session = Session::new(spec).expect("a session");
            let mut session = session.attach().expect("attach");
            let mut seen = Collected::default();
            go.send(FAULTS).expect("the thread");
            told.recv().expect("done");
            session.finish(&mut seen).expect("finish");
            let summary = session.summary().clone();
            let counts: Vec<u64> = summary.events.iter().map(|event| event.count).collect();
            let faults = FAULTS as u64..FAULTS as u64 + 200;
            assert!(faults.contains(&counts[1]), "{summary:?}");
            assert!(counts.get(2).is_none_or(|never| *never == 0), "{summary:?}");
            assert!(
                counts.get(3).is_none_or(|count| *count == counts[1]),
                "{summary:?}"
            );
            let lost = |index: usize| summary.events[index].lost.expect("a count");
            assert_eq!(summary.lost, lost(0), "{summary:?}");
            assert!((1..=members).all(|index| lost(index) == 0), "{summary:?}");
            if leader.name == "page-faults" {
                assert!(summary.lost > 0, "one page holds fewer");
                assert_eq!(summary.samples + summary.lost, counts[0], "{summary:?}");
            } else {
                assert!(counts[0] > counts[1], "nanoseconds: {summary:?}");
            }
            drop(go);
            worker.join().expect("the thread");
        }
    }
}

/// T18: throttling is reported and counted.
#[test]
fn t18_throttling_is_counted() {
    // Far above any allowed rate.
    let clock = EventSpec::cpu_clock().with_period(20_000).user_only();
    let worker = Worker::new(|| {
        crate::collect::spin(1_000_000);
        std::thread::sleep(Duration::from_millis(1));
    });
    let spec = SessionSpec::new()
        .event(clock)
        .target(Target::Threads(vec![worker.tid]));
    let session = Session::new(spec).expect("a session");
    let mut session = session.attach().expect("attach");
    let mut seen = Collected::default();
    let rate = dioptra_perfevents::limits::max_sample_rate().unwrap_or(100_000);
    if rate > 40_000 {
        // The limit is the machine's setting, which a test doesn't change: count whatever comes.
        read_until(&mut session, &mut seen, "samples", |seen| {
            seen.samples > 100
        });
    } else {
        read_until(&mut session, &mut seen, "throttling", |seen| {
            seen.throttled > 0
        });
    }
    session.finish(&mut seen).expect("finish");
    assert_eq!(session.summary().throttled, seen.throttled);
    assert_eq!(session.summary().events[0].throttled, seen.throttled);
}

/// T14, T16: a missed or never given wakeup costs no record: the timeout reads them.
#[test]
fn t14_records_below_the_watermark_are_read_all_the_same() {
    let worker = Worker::new(|| {
        fault(1);
        std::thread::sleep(Duration::from_millis(5));
    });
    let spec = SessionSpec::new()
        .event(EventSpec::page_faults().with_period(1).user_only())
        .target(Target::Threads(vec![worker.tid]))
        .ring_pages(64);
    let session = Session::new(spec).expect("a session");
    let mut session = session.attach().expect("attach");
    let mut seen = Collected::default();
    // A few records are far from a quarter of 256 KiB.
    read_until(&mut session, &mut seen, "a few samples", |seen| {
        seen.samples >= 3
    });
    assert!(seen.rounds > 0);
}
