//! Single events: counting, controls, and what the kernel refuses.

use crate::collect::{fault, own_tid, spin};
use crate::skip;
use dioptra_perfevents::record::RecordType;
use dioptra_perfevents::{
    Attr, AttrFlags, Event, EventSpec, EventTarget, Features, OpenRequest, ReadFormat, Refusal,
    SampleType, event_type, limits, names::software, parse_events,
};

const HERE: EventTarget = EventTarget::CALLER;

fn open(spec: &EventSpec, target: EventTarget) -> Event {
    Event::open(spec, target).expect(&spec.name)
}

fn counting(config: u64) -> EventSpec {
    let mut spec = EventSpec::software(config).user_only();
    spec.attr.read_format =
        ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING | ReadFormat::ID;
    spec
}

#[test]
fn faults_of_this_thread_are_counted_exactly_and_others_not() {
    let event = open(&counting(software::PAGE_FAULTS), HERE);
    event.reset().expect("reset");
    fault(100);
    std::thread::spawn(|| fault(5000)).join().expect("a thread");
    let count = event.read().expect("read");
    // Starting a thread faults a little as well.
    assert!((100..1000).contains(&count.value), "{count:?}");
    event.disable().expect("disable");
    let before = event.read().expect("read").value;
    fault(10);
    assert_eq!(event.read().expect("read").value, before);
    event.enable().expect("enable");
    fault(10);
    assert!(event.read().expect("read").value >= before + 10);
}

/// B1: the reference mixed up the bits of read formats and of sample types.
#[test]
fn b1_times_of_a_read_are_times_and_not_thread_ids() {
    let event = open(&counting(software::TASK_CLOCK), HERE);
    spin(3_000_000);
    let count = event.read().expect("read");
    let (enabled, running) = (
        count.time_enabled.expect("enabled"),
        count.time_running.expect("running"),
    );
    assert_eq!(enabled, running, "a software event is never multiplexed");
    assert!(enabled > 10_000, "{count:?}");
    assert_eq!(count.id, Some(event.id().expect("id")));
}

#[test]
fn a_group_is_read_at_one_moment() {
    let mut leader = counting(software::TASK_CLOCK);
    leader.attr.read_format |= ReadFormat::GROUP;
    let mut member = counting(software::PAGE_FAULTS);
    member.attr.read_format = leader.attr.read_format;
    leader.attr.flags |= AttrFlags::DISABLED;
    let leader = open(&leader, HERE);
    let member = OpenRequest::new(&member, HERE)
        .group(&leader)
        .open()
        .expect("a member");
    fault(50);
    leader.enable_group().expect("enable");
    fault(50);
    leader.disable_group().expect("disable");
    let counts = leader.read_group().expect("read");
    assert_eq!(counts.len(), 2);
    assert_eq!(counts[1].id, Some(member.id().expect("id")));
    assert!((50..100).contains(&counts[1].value), "{counts:?}");
    assert_eq!(leader.read().expect("read").value, counts[0].value);
}

/// T24: the redirect of an event is undone, and the refusals are errors.
#[test]
fn t24_output_can_be_redirected_and_undone() {
    let here = |cpu| EventTarget::Thread(0, Some(cpu));
    let dummy = EventSpec::software(software::DUMMY).user_only();
    let owner = open(&dummy, here(0));
    let event = open(
        &EventSpec::page_faults().with_period(1).user_only(),
        here(0),
    );
    // An owner without a ring can take no records.
    assert!(event.set_output(Some(&owner)).is_err());
    let _ring = owner.mmap(1).expect("a ring of one page");
    event.set_output(Some(&owner)).expect("redirect");
    event.set_output(None).expect("nowhere");
    event.set_output(Some(&owner)).expect("redirect again");
    let elsewhere = open(&EventSpec::page_faults().with_period(1).user_only(), HERE);
    let error = elsewhere.set_output(Some(&owner)).expect_err("another CPU");
    assert!(error.to_string().contains("redirect"), "{error}");
    assert!(
        event.mmap(1).is_err(),
        "a redirected event has no ring of its own"
    );
}

/// T1: rings of inherited events are per core; T19 and B13: a ring has a power of two of pages.
#[test]
fn t1_t19_rings_that_the_kernel_refuses_are_refused() {
    let mut spec = EventSpec::page_faults().with_period(1).user_only();
    let event = open(&spec, HERE);
    assert!(event.mmap(3).is_err());
    assert!(event.mmap(0).is_err());
    spec.attr.flags |= AttrFlags::INHERIT;
    let inherited = open(&spec, HERE);
    assert!(inherited.mmap(1).is_err(), "inherited and on any CPU");
    let ring = event.mmap(2).expect("a ring of two pages");
    assert!(ring.size() >= 8192);
}

#[test]
fn records_come_out_of_a_ring_whole_through_many_wraps() {
    let mut spec = EventSpec::page_faults().with_period(1).user_only();
    spec.attr.sample_type = SampleType::IDENTIFIER
        | SampleType::TID
        | SampleType::TIME
        | SampleType::ADDR
        | SampleType::CALLCHAIN;
    spec.attr.flags |= AttrFlags::EXCLUDE_CALLCHAIN_KERNEL | AttrFlags::SAMPLE_ID_ALL;
    let event = open(&spec, HERE);
    let layout = dioptra_perfevents::record::RecordLayout::new(
        event.attr(),
        dioptra_perfevents::ByteOrder::NATIVE,
    );
    let mut ring = event.mmap(1).expect("a ring");
    let mut samples = 0_u64;
    // About thirty times the ring's size.
    for _ in 0..200 {
        fault(8);
        let drained = ring.drain(|bytes, record| {
            assert_eq!(bytes.len(), record.body.len() + 8);
            if record.kind == RecordType::SAMPLE {
                let sample = layout.sample(record).expect("a sample");
                // The id may be that of another test's event for the same fault (trap T9).
                assert!(sample.id.is_some());
                assert_eq!(sample.tid, Some(own_tid()));
                samples += 1;
            }
        });
        assert_eq!(drained.damaged, 0);
    }
    assert!(samples >= 1600, "{samples}");
    assert_eq!(ring.waiting(), 0);
}

/// T10: with the period in its samples, every occurrence of a counted event would be one.
#[test]
fn t10_a_session_leaves_the_period_out_of_samples_of_counted_events() {
    use dioptra_perfevents::{Session, SessionSpec};
    let mut spec = EventSpec::page_faults().with_period(100).user_only();
    spec.attr.sample_type |= SampleType::PERIOD;
    let session = Session::new(SessionSpec::new().event(spec)).expect("a session");
    let session = session.attach().expect("attach");
    let attr = &session.events()[0].attr;
    assert!(!attr.sample_type.contains(SampleType::PERIOD));
    // A period of one is a sample each anyway, and its size may differ from one.
    let mut spec = EventSpec::page_faults().with_period(1).user_only();
    spec.attr.sample_type |= SampleType::PERIOD;
    let session = Session::new(SessionSpec::new().event(spec)).expect("a session");
    let session = session.attach().expect("attach");
    assert!(
        session.events()[0]
            .attr
            .sample_type
            .contains(SampleType::PERIOD)
    );
}

/// Section 4: refresh is exact, and refused where it would hang the kernel.
#[test]
fn refresh_takes_exactly_as_many_samples_as_asked() {
    let mut spec = EventSpec::page_faults().with_period(1).user_only();
    spec.attr.flags |= AttrFlags::DISABLED;
    let event = open(&spec, HERE);
    let mut ring = event.mmap(8).expect("a ring");
    for wanted in [1, 3, 8] {
        event.refresh(wanted).expect("refresh");
        fault(50);
        let mut samples = 0;
        ring.drain(|_, record| samples += u32::from(record.kind == RecordType::SAMPLE));
        assert_eq!(samples, wanted);
    }
    assert!(event.refresh(0).is_err(), "zero would mean no limit");
    let mut clock = EventSpec::cpu_clock().with_period(1_000_000).user_only();
    clock.attr.flags |= AttrFlags::DISABLED;
    let clock = open(&clock, HERE);
    assert_eq!(
        clock.refresh(1).is_err(),
        limits::refresh_of_clocks_is_unsafe()
    );
    clock.disable().expect("disable");
    spec.attr.flags |= AttrFlags::INHERIT;
    assert!(open(&spec, HERE).refresh(1).is_err(), "inherited");
}

/// T7: a new period holds at once; zero is refused.
#[test]
fn t7_the_period_can_be_changed() {
    let event = open(&EventSpec::page_faults().with_period(1).user_only(), HERE);
    let mut ring = event.mmap(64).expect("a ring");
    event.period(10).expect("a new period");
    ring.drain(|_, _| {});
    fault(100);
    let mut samples = 0;
    ring.drain(|_, record| samples += u32::from(record.kind == RecordType::SAMPLE));
    assert!((9..=30).contains(&samples), "{samples}");
    assert!(event.period(0).is_err());
}

/// T23: a ring written backwards while reading is the caller's business; pausing loses what comes meanwhile.
#[test]
fn t17_paused_output_counts_as_lost() {
    if !Features::get().read_lost {
        skip!("this kernel does not count lost records");
    }
    let mut spec = EventSpec::page_faults().with_period(1).user_only();
    spec.attr.read_format = ReadFormat::LOST;
    let event = open(&spec, HERE);
    let _ring = event.mmap(8).expect("a ring");
    event.pause(true).expect("pause");
    fault(50);
    event.pause(false).expect("go on");
    let lost = event.read().expect("read").lost.expect("a count");
    assert!((50..500).contains(&lost), "{lost}");
}

#[test]
fn refusals_name_cause_and_remedy() {
    let error = |spec: &EventSpec, target| Event::open(spec, target).expect_err("a refusal");
    let faults = EventSpec::page_faults().user_only();
    let unknown = error(&EventSpec::software(99).user_only(), HERE);
    assert!(
        matches!(unknown.refusal, Refusal::NoSoftwareEvent { config: 99 }),
        "{unknown}"
    );
    assert!(
        unknown.to_string().contains("software event 99"),
        "{unknown}"
    );
    assert!(!unknown.to_string().contains("hardware"), "{unknown}");
    // No process has this id.
    let gone = error(&faults, EventTarget::Thread(0x3fff_ffff, None));
    assert!(matches!(gone.refusal, Refusal::NoThread), "{gone}");
    assert!(
        gone.is_gone() && gone.to_string().contains("page-faults"),
        "{gone}"
    );
    let mut attr = Attr {
        kind: event_type::SOFTWARE,
        config: 4000,
        // Else users without rights are refused for the kernel's part before anybody looks for the event.
        flags: dioptra_perfevents::AttrFlags::EXCLUDE_KERNEL,
        ..Attr::default()
    };
    let none = OpenRequest::with_attr("nothing", attr.clone(), HERE)
        .open()
        .expect_err("no such event");
    assert!(
        matches!(
            none.refusal,
            Refusal::NotSupported | Refusal::NoSoftwareEvent { .. } | Refusal::Invalid { .. }
        ),
        "{none}"
    );
    attr.config = software::DUMMY;
    attr.flags |= AttrFlags::from_bits_retain(1 << 62);
    let newer = OpenRequest::with_attr("dummy", attr.clone(), HERE)
        .open()
        .expect_err("a flag of no kernel");
    assert!(
        matches!(newer.refusal, Refusal::Invalid { .. } | Refusal::TooNew),
        "{newer}"
    );
    // T18: a frequency above the limit.
    if let Some(most) = limits::max_sample_rate() {
        let fast = EventSpec::cpu_clock().with_frequency(most + 1).user_only();
        let refused = error(&fast, HERE);
        assert!(refused.to_string().contains("max_sample_rate"), "{refused}");
    }
    // An offline CPU, and one that no machine has.
    let offline = error(&faults, EventTarget::Thread(0, Some(1 << 19)));
    assert!(
        matches!(
            offline.refusal,
            Refusal::Invalid { .. } | Refusal::CpuOffline
        ),
        "{offline}"
    );
}

/// T5: the zombie of a main thread that ended before its process is no target.
#[test]
fn breakpoints_run_out_and_say_so() {
    let words = [0_u64; 16];
    let mut open = Vec::new();
    for word in &words {
        let address = std::ptr::from_ref(word) as u64;
        let groups = parse_events(&format!("mem:{address:#x}/8:w:u")).expect("a breakpoint");
        match Event::open(&groups[0].events[0], HERE) {
            Ok(event) => open.push(event),
            Err(error) if open.is_empty() => skip!("no breakpoints here: {error}"),
            Err(error) => {
                assert!(matches!(error.refusal, Refusal::BreakpointSlots), "{error}");
                return;
            }
        }
    }
    // A CPU with more than sixteen would be news, and no fault of ours.
}

#[test]
fn a_breakpoint_counts_writes() {
    let mut word = 0_u64;
    let address = &raw mut word;
    let groups = parse_events(&format!("mem:{:#x}/8:w:u", address as u64)).expect("a breakpoint");
    let event = match Event::open(&groups[0].events[0], HERE) {
        Ok(event) => event,
        Err(error) => skip!("{error}"),
    };
    for value in 0..25 {
        // SAFETY: the word lives on this stack.
        unsafe { address.write_volatile(value) };
    }
    event.disable().expect("disable");
    assert_eq!(event.read().expect("read").value, 25);
}
