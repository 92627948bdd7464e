//! Windows of recordings made of single records: bursts of two threads in turn, filters, losses, steady sampling.

#[path = "../../sampling/profile/tests/support/mod.rs"]
mod support;

use dioptra_perfdata::{EventToWrite, Feature, FeaturesToWrite, PerfData, WriteOptions, Writer};
use dioptra_perfrecords::{Attr, AttrFlags, ReadFormat, SampleType, event_type};
use dioptra_profile::{LoadOptions, LoadPlan, Profile, SampleFilter};
use dioptra_windows::collect::{CollectedWindows, WindowCollector, WindowSource};
use dioptra_windows::estimate::WindowFlags;
use dioptra_windows::section::{Burst, BurstOutcome, WindowGroup, WindowsSection};
use std::io::Cursor;
use support::{Records, USER, text, two, word};

/// Ids of thread 101's leader and member, and of thread 102's.
const IDS: [[u64; 2]; 2] = [[1, 2], [3, 4]];
const FAULTS: u64 = 2;
const TASK_CLOCK: u64 = 1;

fn events(fixed_period: bool) -> Vec<EventToWrite> {
    let attr = |config: u64, samples: bool| Attr {
        kind: event_type::SOFTWARE,
        config,
        sample_period: u64::from(samples) * 100,
        sample_type: SampleType::IDENTIFIER
            | SampleType::IP
            | SampleType::TID
            | SampleType::TIME
            | SampleType::CPU
            | SampleType::PERIOD
            | SampleType::READ
            | SampleType::CALLCHAIN,
        read_format: ReadFormat::GROUP
            | ReadFormat::ID
            | ReadFormat::TOTAL_TIME_ENABLED
            | ReadFormat::TOTAL_TIME_RUNNING,
        flags: AttrFlags::SAMPLE_ID_ALL,
        ..Attr::default()
    };
    let event = |name: &str, config, place: usize| EventToWrite {
        attr: attr(config, fixed_period || place == 0),
        name: name.into(),
        ids: IDS.iter().map(|of_thread| of_thread[place]).collect(),
    };
    vec![
        event("task-clock", TASK_CLOCK, 0),
        event("page-faults", FAULTS, 1),
    ]
}

/// What a sample of a group tells.
#[derive(Clone, Copy)]
struct Told {
    thread: usize,
    time: u64,
    cpu: u32,
    ip: u64,
    clock: u64,
    faults: u64,
    /// Enabled and running.
    times: (u64, u64),
}

/// The ids at the end of a record that is no sample.
fn trailer(time: u64) -> Vec<u8> {
    [two(100, 101), word(time), two(0, 0), word(1)].concat()
}

fn map(records: &mut Records) {
    let place = [word(0x1000), word(0x1000), word(0)].concat();
    let parts: [&[u8]; 4] = [
        &two(100, 100),
        &place,
        &text("/nowhere/program"),
        &trailer(1),
    ];
    records.push(1, 2, &parts);
}

fn push(records: &mut Records, told: Told) {
    let tid = 101 + told.thread as u32;
    let [leader, member] = IDS[told.thread];
    let words = [
        word(leader),
        word(told.ip),
        two(100, tid),
        word(told.time),
        two(told.cpu, 0),
        word(100),
        // READ: count, times, values with ids.
        word(2),
        word(told.times.0),
        word(told.times.1),
        word(told.clock),
        word(leader),
        word(told.faults),
        word(member),
        // A chain of the function and its caller.
        word(3),
        word(USER),
        word(told.ip),
        word(0x1100),
    ];
    records.push(9, 2, &[&words.concat()]);
}

fn recording(records: &Records, windows: Option<&WindowsSection>) -> PerfData {
    let mut file = Cursor::new(Vec::new());
    let options = WriteOptions::default();
    let mut writer = Writer::create(&mut file, &events(false), options).unwrap();
    records
        .list
        .iter()
        .for_each(|record| writer.write(record).unwrap());
    let features = FeaturesToWrite {
        sections: windows
            .map(|windows| (Feature::WINDOWS, windows.encode()))
            .into_iter()
            .collect(),
        ..FeaturesToWrite::default()
    };
    writer.finish(&features).unwrap();
    PerfData::from_bytes(file.into_inner()).unwrap()
}

fn load(data: &mut PerfData, chains: bool, filter: SampleFilter) -> (Profile, CollectedWindows) {
    let section = WindowsSection::of(data, None);
    let plan = LoadPlan {
        options: LoadOptions {
            call_chains: chains,
            threads: true,
        },
        set_aside: section.iter().flat_map(|of| of.events(data)).collect(),
        filter,
        ..LoadPlan::default()
    };
    let mut collector = WindowCollector::new(data, section.as_ref()).expect("windows");
    let profile = Profile::load_visited(data, &plan, &mut collector);
    (profile, collector.finish())
}

/// Bursts of two threads, at once: three windows of 100 ns each, with 1, 2, 3 faults in the first thread's.
fn two_threads() -> (Records, WindowsSection) {
    let mut records = Records::default();
    map(&mut records);
    let mut windows = WindowsSection::default();
    windows.source = "refresh".into();
    windows.groups = vec![WindowGroup {
        leader: 0,
        members: vec![1],
        drop_last: true,
    }];
    for round in 0..2_u64 {
        for thread in 0..2 {
            windows.bursts.push(Burst {
                tid: Some(101 + thread as u32),
                armed: 1000 + 10_000 * round,
                ended: 2000 + 10_000 * round,
                period: 100 + round,
                expected: 3,
                seen: 3,
                outcome: BurstOutcome::COMPLETE,
                ..Burst::default()
            });
        }
        let mut faults = 10 * round;
        for step in 0..4_u64 {
            faults += step;
            for thread in 0..2_usize {
                let clock = 1000 * round + 100 * step;
                push(
                    &mut records,
                    Told {
                        thread,
                        time: 1100 + 10_000 * round + 100 * step + thread as u64,
                        cpu: thread as u32,
                        ip: 0x1200 + 16 * step,
                        clock,
                        faults: faults * (1 - thread as u64),
                        times: (clock, clock),
                    },
                );
            }
        }
    }
    (records, windows)
}

#[test]
fn bursts_of_two_threads_are_told_apart() {
    let (records, section) = two_threads();
    let mut data = recording(&records, Some(&section));
    for chains in [false, true] {
        let (profile, windows) = load(&mut data, chains, SampleFilter::default());
        assert_eq!(windows.plan().source, WindowSource::Bursts);
        assert_eq!(windows.plan().groups[0].events, [0, 1]);
        assert!(windows.plan().groups[0].drop_last);
        assert_eq!((windows.bursts().len(), windows.len()), (4, 12));
        let facts = windows.facts();
        assert_eq!((facts.samples, facts.stray, facts.filtered), (16, 0, 0));
        for (number, burst) in windows.bursts().iter().enumerate() {
            let tid = profile.tasks().threads()[burst.thread as usize].tid;
            assert!([100, 101].contains(&burst.period));
            assert_eq!(burst.time, 1000 + 10_000 * (burst.period - 100));
            let found: Vec<_> = windows.windows(number).collect();
            assert_eq!(
                found.iter().map(|window| window.index).collect::<Vec<_>>(),
                [0, 1, 2]
            );
            for (window, step) in found.iter().zip(1_u64..) {
                let faults = if tid == 101 { step } else { 0 };
                assert_eq!(window.counts, [100, faults], "thread {tid}");
                assert_eq!(window.flags, WindowFlags::default());
                let address = |place| profile.frames().get(profile.innermost_frame(place)).address;
                assert_eq!(address(window.start), 0x200 + 16 * (step - 1));
                assert_eq!(address(window.end), 0x200 + 16 * step);
            }
        }
    }
}

#[test]
fn events_of_windows_are_no_ordinary_events() {
    let (records, section) = two_threads();
    let (profile, _) = load(
        &mut recording(&records, Some(&section)),
        false,
        SampleFilter::default(),
    );
    assert!(profile.events().iter().all(|event| event.is_set_aside()));
    // There is nothing else to show.
    assert_eq!(profile.sampled_events(), [0, 1]);
    let (plain, _) = load(
        &mut recording(&records, None),
        false,
        SampleFilter::default(),
    );
    assert!(plain.events().iter().all(|event| !event.is_set_aside()));
}

#[test]
fn what_goes_wrong_marks_windows() {
    let (mut records, mut section) = two_threads();
    section.bursts[3].outcome = BurstOutcome::CUT | BurstOutcome::LATE;
    // The kernel throttled thread 101's leader before the second sample of its last burst; then records were lost.
    let samples: Vec<usize> = (0..records.list.len())
        .filter(|at| records.list[*at][0] == 9)
        .collect();
    let mut other = Records::default();
    other.push(5, 0, &[&word(11_150), &word(1), &word(1), &trailer(11_150)]);
    other.push(2, 0, &[&word(1), &word(5), &trailer(11_350)]);
    records.list.insert(samples[14], other.list[1].clone());
    records.list.insert(samples[10], other.list[0].clone());
    let mut data = recording(&records, Some(&section));
    let (profile, windows) = load(&mut data, false, SampleFilter::default());
    let marks = |tid: u32, period: u64| {
        let number = windows.bursts().iter().position(|burst| {
            burst.period == period && profile.tasks().threads()[burst.thread as usize].tid == tid
        });
        windows
            .windows(number.unwrap())
            .map(|window| window.flags)
            .collect::<Vec<_>>()
    };
    let fine = WindowFlags::default();
    assert_eq!(marks(101, 100), [fine; 3]);
    assert_eq!(marks(102, 100), [fine; 3]);
    assert_eq!(
        marks(101, 101),
        [WindowFlags::THROTTLED, fine, WindowFlags::LOST]
    );
    let late = marks(102, 101);
    assert!(late.iter().all(|marks| marks.contains(WindowFlags::LATE)));
    assert!(late[2].contains(WindowFlags::LOST) && !late[1].contains(WindowFlags::LOST));
}

#[test]
fn readings_tell_of_switches_migrations_and_counters_that_took_turns() {
    let mut records = Records::default();
    map(&mut records);
    let mut told = Told {
        thread: 0,
        time: 1000,
        cpu: 0,
        ip: 0x1200,
        clock: 0,
        faults: 0,
        times: (0, 0),
    };
    push(&mut records, told);
    let mut step = |time: u64, clock: u64, times: (u64, u64), cpu: u32, faults: u64| {
        told.time += time;
        told.clock += clock;
        told.times.0 += times.0;
        told.times.1 += times.1;
        told.cpu = cpu;
        told.faults = faults;
        push(&mut records, told);
    };
    step(100_000, 100_000, (100_000, 100_000), 0, 5);
    step(900_000, 100_000, (100_000, 100_000), 0, 5);
    step(100_000, 100_000, (100_000, 100_000), 1, 5);
    step(100_000, 100_000, (100_000, 50_000), 1, 5);
    step(100_000, 100_000, (100_000, 100_000), 1, 4);
    let (_, windows) = load(
        &mut recording(&records, None),
        false,
        SampleFilter::default(),
    );
    assert_eq!(windows.plan().source, WindowSource::Steady);
    let marks: Vec<_> = (0..windows.bursts().len())
        .flat_map(|burst| {
            windows
                .windows(burst)
                .map(|window| window.flags)
                .collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(
        marks,
        [
            WindowFlags::default(),
            WindowFlags::SWITCHED,
            WindowFlags::MIGRATED,
            WindowFlags::PARTLY_COUNTED,
            WindowFlags::BROKEN
        ]
    );
}

/// Without armed bursts all samples of a counter bound windows; those of a slice of time are one burst.
#[test]
fn steady_windows_are_grouped_by_time() {
    let mut records = Records::default();
    map(&mut records);
    for step in 0..=1000_u64 {
        push(
            &mut records,
            Told {
                thread: 0,
                time: 1000 + 100 * step,
                cpu: 0,
                ip: 0x1200,
                clock: 100 * step,
                faults: 2 * step,
                times: (100 * step, 100 * step),
            },
        );
    }
    let (_, windows) = load(
        &mut recording(&records, None),
        false,
        SampleFilter::default(),
    );
    assert_eq!(windows.len(), 1000);
    assert!(
        (100..=102).contains(&windows.bursts().len()),
        "{}",
        windows.bursts().len()
    );
    assert!(windows.bursts().iter().all(|burst| burst.period == 100));
    let all = (0..windows.bursts().len()).flat_map(|burst| windows.windows(burst));
    assert!(
        all.map(|window| window.counts.to_vec())
            .all(|counts| counts == [100, 2])
    );
}

#[test]
fn filters_leave_windows_out_and_say_so() {
    let (records, section) = two_threads();
    let mut data = recording(&records, Some(&section));
    let filter = SampleFilter {
        tids: vec![101],
        ..SampleFilter::default()
    };
    let (_, windows) = load(&mut data, false, filter);
    assert_eq!((windows.len(), windows.facts().filtered), (6, 6));
    let (mut profile, mut windows) = load(&mut data, true, SampleFilter::default());
    let frames: Vec<bool> = profile
        .frames()
        .iter()
        .map(|frame| frame.address == 0x210)
        .collect();
    windows.retain(|stack| frames[profile.innermost_frame(stack) as usize]);
    profile.retain_samples(|frame| frames[frame as usize]);
    let hidden = (0..windows.bursts().len()).flat_map(|burst| windows.windows(burst));
    assert_eq!(hidden.filter(|window| !window.hidden).count(), 4);
}

#[test]
fn nothing_is_collected_without_groups() {
    let data = PerfData::from_bytes({
        let mut file = Cursor::new(Vec::new());
        let mut event = events(true).remove(0);
        event.attr.read_format = ReadFormat::empty();
        let options = WriteOptions::default();
        let writer = Writer::create(&mut file, &[event], options).unwrap();
        writer.finish(&FeaturesToWrite::default()).unwrap();
        file.into_inner()
    });
    assert!(WindowCollector::new(&data.unwrap(), None).is_none());
}
