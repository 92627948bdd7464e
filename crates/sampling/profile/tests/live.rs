//! A live profile is, at every moment, the profile of the records so far.

mod support;

use dioptra_perfdata::{PerfData, ReadSummary};
use dioptra_perfrecords::SampleType;
use dioptra_profile::{LiveNames, LoadOptions, LoadPlan, Names, Profile, Selection};
use dioptra_symbols::SymbolOptions;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use support::{ID, KERNEL, Records, SECOND, USER, attr, event, flat, full};

/// Samples and weight by event, thread name, module and addresses of the stack.
type Counts = BTreeMap<(usize, String, Vec<(String, u64)>), (u64, u64)>;

fn counts(profile: &Profile) -> Counts {
    let mut all = Counts::new();
    for (index, event) in profile.events().iter().enumerate() {
        profile.counts(event, |key, place, count| {
            let comm = profile.tasks().comm_of(profile.sample_keys().get(key));
            let frames: Vec<u32> = match profile.options().call_chains {
                true => profile.stacks().frames(place).collect(),
                false => vec![place],
            };
            let frames = frames.into_iter().map(|frame| {
                let frame = profile.frames().get(frame);
                let module = profile.modules().get(frame.module);
                (module.label.clone(), frame.address)
            });
            let sum = all.entry((index, comm, frames.collect())).or_default();
            sum.0 += count.samples;
            sum.1 += count.weight;
        });
    }
    all
}

/// Processes that map, fork, rename, execute and end, with samples of two events in between.
fn busy() -> Records {
    let mut records = Records::default();
    records.comm(5, 5, false, "parent");
    records.map(5, 0x1000, 0x1000, 0, "/bin/parent");
    for round in 0..60_u32 {
        let child = 100 + round;
        records.fork((child, child), (5, 5));
        for step in 0..u64::from(round % 7) {
            let inner = 0x1100 + 8 * (step % 3);
            let chain = [4, USER, inner, 0x1200 + u64::from(round % 5), 0x1300];
            records.sample(ID, (5, 5), inner, 3, &chain);
            let chain = [5, KERNEL, u64::MAX - step, USER, 0x1400, 0x1500];
            records.sample(SECOND, (child, child), u64::MAX - step, 10, &chain);
        }
        if round % 3 == 0 {
            records.comm(child, child, true, &format!("child-{}", round % 4));
            records.map(child, 0x1000, 0x1000, 0x4000, "/bin/child");
        }
        records.sample(ID, (child, child), 0x1800, 100, &[2, USER, 0x1800]);
        records.exit(child);
    }
    records
}

#[test]
fn a_snapshot_is_the_profile_of_the_records_so_far() {
    let chains = attr(SampleType::CALLCHAIN);
    let events = [
        event("cpu-clock", chains.clone(), &[ID]),
        event("page-faults", chains, &[SECOND]),
    ];
    let plan = LoadPlan {
        options: LoadOptions {
            call_chains: true,
            threads: true,
        },
        ..full()
    };
    let records = busy();
    let data = PerfData::from_bytes(records.file(&events)).unwrap();
    let mut looks = 0;
    Profile::follow(&data, &plan, |live| {
        let mut read = 0;
        let summary = data.read(|record| {
            live.record(&record);
            read += 1;
            if read % 37 == 0 && read <= records.list.len() {
                looks += 1;
                let part = Records {
                    list: records.list[..read].to_vec(),
                    ..Records::default()
                };
                let expected = part.load_with(&events, &plan);
                let seen = live.snapshot(&ReadSummary::default());
                assert_eq!(counts(&seen), counts(&expected), "after {read} records");
                assert_eq!(seen.first_time(), expected.first_time());
                let size = live.size();
                assert_eq!(size.stacks, seen.stacks().len());
                assert_eq!(size.threads, seen.tasks().threads().len());
            }
            ControlFlow::Continue(())
        });
        let seen = live.snapshot(&summary);
        let expected = Profile::load_with(&data, &plan);
        assert_eq!(counts(&seen), counts(&expected));
        assert_eq!(seen.losses().summary, expected.losses().summary);
    });
    assert!(looks > 5, "{looks} looks");
}

#[test]
fn forgotten_samples_leave_the_counts_and_the_latest_span() {
    let mut records = Records::default();
    records.map(5, 0x1000, 0x1000, 0, "/bin/program");
    for _ in 0..100 {
        records.time += 1000;
        records.sample(ID, (5, 5), 0x1800, 10, &[]);
    }
    let data = PerfData::from_bytes(records.file(&flat())).unwrap();
    Profile::follow(&data, &full(), |live| {
        let summary = data.read(|record| {
            live.record(&record);
            ControlFlow::Continue(())
        });
        let samples = |profile: &Profile, from: u64| {
            let span = Selection {
                time: (Some(from), None),
                ..Selection::default()
            };
            profile.select(&span).unwrap().events()[0].total().samples
        };
        // The times are 0, 1001, 2002, …, 99099.
        assert_eq!(samples(&live.snapshot(&summary), 90_000), 10);
        assert_eq!(live.forget_samples(80_000, usize::MAX), 0);
        let after = live.snapshot(&summary);
        assert_eq!(samples(&after, 90_000), 10);
        assert_eq!(samples(&after, 0), 20);
        assert_eq!(after.events()[0].total().samples, 100);
        // Twenty samples are younger, and only eight may stay.
        assert_eq!(live.forget_samples(80_000, 8), 12);
        assert_eq!(samples(&live.snapshot(&summary), 0), 8);
    });
}

#[test]
fn names_that_grow_are_the_names_of_the_whole() {
    let own = std::env::current_exe().unwrap();
    let mut records = Records::default();
    records.map(5, 0x10_0000, 1 << 24, 0, own.to_str().unwrap());
    let mut random = 1_u64;
    for _ in 0..3000 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let address = 0x10_0000 + (random >> 40) % (1 << 22);
        records.sample(ID, (5, 5), address, 1, &[]);
    }
    let data = PerfData::from_bytes(records.file(&flat())).unwrap();
    Profile::follow(&data, &full(), |live| {
        let mut growing: Option<LiveNames> = None;
        let mut read = 0;
        data.read(|record| {
            live.record(&record);
            read += 1;
            if read % 500 == 0 {
                let profile = live.snapshot(&ReadSummary::default());
                let growing = growing
                    .get_or_insert_with(|| LiveNames::new(&profile, SymbolOptions::default()));
                let names = growing.update(&profile);
                let whole = Names::find(&profile, SymbolOptions::default());
                let mut distinct = std::collections::BTreeSet::new();
                for (frame, place) in (0_u32..).zip(profile.frames().iter()) {
                    let name = |names: &Names| {
                        let function = &names.functions()[names.of_frame(frame) as usize];
                        (function.name.clone(), function.start, function.file.clone())
                    };
                    assert_eq!(name(&names), name(&whole), "at {place:?}");
                    distinct.insert(name(&names));
                }
                assert_eq!(names.functions().len(), whole.functions().len());
                assert!(distinct.len() > 100, "{} functions", distinct.len());
            }
            ControlFlow::Continue(())
        });
    });
}
