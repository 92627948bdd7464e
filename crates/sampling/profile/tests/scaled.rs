//! Counters that took turns, errors of counts, and every recording of the collection cut in every way.

mod support;

use dioptra_perfdata::PerfData;
use dioptra_perfrecords::{Attr, AttrFlags, ReadFormat};
use dioptra_profile::{
    Dimension, HierarchyOptions, LoadOptions, Multiplexing, Names, Profile, Selection, Slices,
    hierarchy,
};
use dioptra_symbols::SymbolOptions;
use dioptra_testprograms::{need_shared_data, or_skip};
use std::num::NonZeroU32;
use support::{ID, Records, SECOND, event, full, reading};

/// Ten milliseconds, in nanoseconds.
const TEN_MS: u64 = 10_000_000;

/// Returns the value and variance of each module's estimate.
fn estimates(profile: &Profile, event: usize) -> Vec<(String, f64, f64)> {
    let options = HierarchyOptions {
        estimates: true,
        ..HierarchyOptions::default()
    };
    let rows = hierarchy(
        profile,
        &Names::default(),
        &[Dimension::Module],
        &[event],
        &options,
    );
    let rows = rows.unwrap();
    rows.rows()
        .enumerate()
        .map(|(index, row)| {
            let label = profile.modules().get(row.key).label.clone();
            let estimate = rows.estimate(index, 0);
            (label, estimate.value, estimate.variance)
        })
        .collect()
}

#[test]
fn each_sample_is_scaled_by_its_own_interval() {
    let mut records = Records::default();
    records.map(5, 0x1000, 0x1000, 0, "/nonexistent/a");
    records.map(5, 0x3000, 0x1000, 0, "/nonexistent/b");
    // The counter ran all of the first interval, a quarter of the second, half of the third.
    let (a, b) = (0x1800, 0x3800);
    records.sample(ID, (5, 5), a, 10, &[10, 100 * TEN_MS, 100 * TEN_MS]);
    records.sample(ID, (5, 5), b, 10, &[20, 500 * TEN_MS, 200 * TEN_MS]);
    records.sample(ID, (5, 5), a, 30, &[50, 700 * TEN_MS, 300 * TEN_MS]);
    // Another counter of the event, on another CPU, has intervals of its own.
    records.sample(SECOND, (5, 5), b, 7, &[7, 1000 * TEN_MS, 1000 * TEN_MS]);
    // Times that go back are ignored.
    records.sample(ID, (5, 5), b, 1, &[51, 600 * TEN_MS, 200 * TEN_MS]);
    let events = [event("cycles", reading(ReadFormat::empty()), &[ID, SECOND])];
    let profile = records.load_with(&events, &full());
    let of = |profile: &Profile| estimates(profile, 0);
    let one = |label: &str, value: f64, variance: f64| (label.to_owned(), value, variance);
    assert_eq!(
        of(&profile),
        [
            one("a", 10.0 + 60.0, 100.0 + 3600.0),
            one("b", 40.0 + 7.0 + 1.0, 1600.0 + 49.0 + 1.0)
        ]
    );
    // Counts stay what was counted.
    let cycles = &profile.events()[0];
    assert_eq!((cycles.total().samples, cycles.total().weight), (5, 58));
    assert!(cycles.is_scaled() && cycles.knows_errors());
    assert_eq!(cycles.total_estimate().value, 118.0);
    assert_eq!(
        cycles.multiplexing(),
        Some(Multiplexing {
            enabled: (100 + 400 + 200 + 1000) * TEN_MS,
            running: (100 + 100 + 100 + 1000) * TEN_MS,
            scaled: 2,
            unknown: 1,
        })
    );
    // The first two samples, counted again from memory.
    let early = Selection {
        time: (None, Some(2)),
        ..Selection::default()
    };
    let early = profile.select(&early).unwrap();
    assert_eq!(of(&early), [one("a", 10.0, 100.0), one("b", 40.0, 1600.0)]);
}

/// A counter of user code has every other turn of 4 ms; at a turn's start it runs for 50 us in which the kernel changes
/// counters and it counts nothing. In between it overflows every 10 us.
#[test]
fn intervals_shorter_than_turns_are_scaled_by_many_of_them() {
    let mut records = Records::default();
    records.map(5, 0x1000, 0x1000, 0, "/nonexistent/a");
    let (mut now, mut running, mut count) = (0, 0, 0);
    for _ in 0..250 {
        now += 50_000;
        running += 50_000;
        for _ in 0..395 {
            now += 10_000;
            running += 10_000;
            count += 10;
            records.sample(ID, (5, 5), 0x1800, 10, &[count, now, running]);
        }
        now += 4_000_000;
    }
    let events = [event("cycles", reading(ReadFormat::empty()), &[ID])];
    let profile = records.load_with(&events, &full());
    let cycles = &profile.events()[0];
    assert_eq!(cycles.total().weight, count);
    // Running all the time, except while the kernel changes counters, it would have counted 1 a microsecond: twice as
    // much.
    let truth = 2.0 * count as f64;
    let estimate = cycles.total_estimate().value;
    assert!(
        (estimate / truth - 1.0).abs() < 0.01,
        "{estimate} of {truth}"
    );
}

#[test]
fn a_thread_that_moves_is_not_taken_for_one_whose_counters_took_turns() {
    let mut attr = reading(ReadFormat::empty());
    attr.flags |= AttrFlags::INHERIT;
    let events = [event("cycles", attr, &[ID, SECOND])];
    let mut records = Records::default();
    records.map(5, 0x1000, 0x1000, 0, "/nonexistent/a");
    let mut sample = |id, enabled, running| {
        records.sample(
            id,
            (5, 5),
            0x1800,
            10,
            &[1, enabled * TEN_MS, running * TEN_MS],
        );
    };
    // A counter for each CPU: both are enabled all the time, each runs on its own.
    sample(ID, 100, 100);
    sample(SECOND, 200, 100);
    // 50 more on the second CPU, 100 on the first: what the second counted is not known yet.
    sample(ID, 350, 200);
    // Now it is.
    sample(SECOND, 400, 200);
    sample(ID, 500, 300);
    sample(SECOND, 550, 250);
    // A new thread of the same number.
    sample(ID, 100, 100);
    let profile = records.load_with(&events, &full());
    let cycles = &profile.events()[0];
    assert_eq!(cycles.total_estimate().value, 6.0 * 10.0 + 15.0);
    let times = cycles.multiplexing().unwrap();
    assert_eq!((times.scaled, times.unknown), (1, 1));
    assert_eq!((times.enabled, times.running), (600 * TEN_MS, 550 * TEN_MS));
}

#[test]
fn members_of_a_group_are_scaled_together() {
    let group = reading(ReadFormat::GROUP | ReadFormat::ID);
    let member = Attr {
        sample_period: 0,
        ..group.clone()
    };
    let events = [
        event("leader", group, &[ID]),
        event("member", member, &[SECOND]),
    ];
    let mut records = Records::default();
    records.map(5, 0x1000, 0x1000, 0, "/nonexistent/a");
    let values = |enabled, running, leader, member| {
        [
            2,
            enabled * TEN_MS,
            running * TEN_MS,
            leader,
            ID,
            member,
            SECOND,
        ]
    };
    records.sample(ID, (5, 5), 0x1800, 10, &values(100, 100, 10, 3));
    records.sample(ID, (5, 5), 0x1800, 10, &values(300, 200, 20, 8));
    let profile = records.load_with(&events, &full());
    let expected = |value, variance| [("a".to_owned(), value, variance)];
    assert_eq!(estimates(&profile, 0), expected(30.0, 100.0 + 400.0));
    assert_eq!(estimates(&profile, 1), expected(13.0, 9.0 + 100.0));
    assert_eq!(profile.events()[1].total().weight, 8);
    for event in profile.events() {
        let times = event.multiplexing().unwrap();
        assert_eq!((times.enabled, times.running), (300 * TEN_MS, 200 * TEN_MS));
    }
}

#[test]
fn errors_are_those_of_poisson() {
    let mut records = Records::default();
    records.map(5, 0x1000, 0x1000, 0, "/nonexistent/a");
    for weight in [4, 4, 4, 12] {
        records.sample(ID, (5, 5), 0x1800, weight, &[]);
    }
    let known = records.load_with(&support::flat(), &full());
    let total = known.events()[0].total_estimate();
    assert_eq!((total.value, total.variance), (24.0, 3.0 * 16.0 + 144.0));
    assert_eq!(total.error(), 192_f64.sqrt());
    // Without them the error is that of equal weights.
    let plain = records.load(&support::flat(), LoadOptions::default());
    assert!(!plain.events()[0].knows_errors());
    assert_eq!(
        plain.events()[0].total_estimate().variance,
        24.0 * 24.0 / 4.0
    );
}

/// Each recording of the collection, in every order of a few levels: sums below a row are the row's, exactly.
#[test]
fn sums_below_a_row_are_the_row_s_in_every_recording() {
    let folder = or_skip!(need_shared_data("perfdata"));
    let all = [
        Dimension::Program,
        Dimension::Process,
        Dimension::Comm,
        Dimension::Thread,
        Dimension::Cpu,
        Dimension::Socket,
        Dimension::Time,
        Dimension::Module,
        Dimension::Function,
        Dimension::Address,
    ];
    let mut counted = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let Ok(data) = PerfData::open(&path) else {
            continue;
        };
        let mut plan = full();
        plan.cpus = true;
        plan.options.call_chains = true;
        let profile = Profile::load_with(&data, &plan);
        let plain = Profile::load(&data, LoadOptions::default());
        let totals = |profile: &Profile| -> Vec<_> {
            profile.events().iter().map(|event| event.total()).collect()
        };
        assert_eq!(totals(&profile), totals(&plain), "{}", path.display());
        let names = Names::find(&profile, SymbolOptions::default());
        let events = profile.sampled_events();
        let slices = profile.time_slices(Slices::Number(NonZeroU32::new(7).unwrap()));
        let mut logged = 0;
        for event in profile.events() {
            event.samples(|_| logged += 1);
        }
        let samples: u64 = totals(&profile).iter().map(|total| total.samples).sum();
        assert_eq!(logged, samples, "{}", path.display());
        counted += samples;
        for first in 0..all.len() {
            // Three neighbours in the list, forwards or backwards.
            let mut levels: Vec<_> = (0..3).map(|step| all[(first + 3 * step) % 10]).collect();
            if first % 2 == 1 {
                levels.reverse();
            }
            for children in [false, true] {
                let options = HierarchyOptions {
                    children,
                    slices: slices.unwrap_or_default(),
                    ..HierarchyOptions::default()
                };
                let found = hierarchy(&profile, &names, &levels, &events, &options).unwrap();
                let rows: Vec<_> = found.rows().collect();
                let mut sums = vec![vec![(0, 0); events.len()]; rows.len() + 1];
                for (index, row) in rows.iter().enumerate() {
                    for cell in found.cells(index) {
                        let above = row.parent.map_or(0, |parent| parent + 1);
                        let sum = &mut sums[above][cell.event as usize];
                        sum.0 += cell.count.own.samples;
                        sum.1 += cell.count.own.weight;
                        assert!(cell.count.total.samples >= cell.count.own.samples);
                    }
                }
                for (column, event) in events.iter().enumerate() {
                    let total = profile.events()[*event].total();
                    assert_eq!(sums[0][column], (total.samples, total.weight));
                }
                for (index, sums) in sums[1..].iter().enumerate() {
                    if rows[index].level == 2 {
                        continue;
                    }
                    for (event, sum) in sums.iter().enumerate() {
                        let own = found.count(index, event).own;
                        assert_eq!(*sum, (own.samples, own.weight), "{levels:?}");
                    }
                }
            }
        }
    }
    assert!(counted > 10_000, "{counted}");
}
