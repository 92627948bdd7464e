//! Context switches: when threads were off the CPU, and when CPUs idled.

mod support;

use dioptra_perfrecords::SampleType;
use dioptra_profile::{GapsOf, LoadPlan, Profile, TimeSlices};
use std::num::NonZeroU64;
use support::{ID, Records, attr, event, full, two, word};

const OUT: u16 = 1 << 13;
const SWITCH: u32 = 14;
const SWITCH_CPU_WIDE: u32 = 15;

/// Returns records whose first one is at 1000.
fn begun() -> Records {
    Records {
        time: 999,
        ..Records::default()
    }
}

/// Adds a switch of a thread at a time.
fn switch(records: &mut Records, misc: u16, time: u64, tid: u32, cpu: u32, other: Option<u32>) {
    let ids = [two(5, tid), word(time), two(cpu, 0), word(ID)].concat();
    match other {
        Some(other) => records.push(SWITCH_CPU_WIDE, misc, &[&two(5, other), &ids]),
        None => records.push(SWITCH, misc, &[&ids]),
    }
    records.time = time;
}

fn load(records: &Records, switches: bool) -> Profile {
    let events = [event("cpu-clock", attr(SampleType::CPU), &[ID])];
    let plan = LoadPlan {
        switches,
        cpus: true,
        ..full()
    };
    records.load_with(&events, &plan)
}

fn gaps(profile: &Profile, of: GapsOf, start: u64, width: u64, number: u32) -> Option<Vec<u64>> {
    let slices = TimeSlices {
        start,
        width: NonZeroU64::new(width).unwrap(),
        number,
    };
    profile.gaps(of, &slices)
}

#[test]
fn threads_are_off_the_cpu_between_their_switches() {
    let mut records = begun();
    records.sample_on(ID, (5, 7), 0x10, 1, 0, &[]);
    records.sample_on(ID, (5, 8), 0x10, 1, 1, &[]);
    switch(&mut records, OUT, 1010, 7, 0, None);
    switch(&mut records, 0, 1025, 7, 1, None);
    // A switch to the CPU without one from it says nothing of the time before.
    switch(&mut records, 0, 1030, 8, 0, None);
    switch(&mut records, OUT, 1040, 7, 1, None);
    // The switch back was lost: the later start counts.
    switch(&mut records, OUT, 1044, 7, 1, None);
    switch(&mut records, 0, 1048, 7, 1, None);
    switch(&mut records, OUT, 1055, 7, 1, None);
    records.sample_on(ID, (5, 8), 0x10, 1, 1, &[]);
    let profile = load(&records, true);
    assert_eq!(profile.switches(), 7);
    let thread = |tid| {
        let threads = profile.tasks().threads();
        let found = threads.iter().position(|thread| thread.tid == tid);
        GapsOf::Thread(found.unwrap() as u32)
    };
    let of = |tid| gaps(&profile, thread(tid), 0, 10, 7);
    // The last one never ended.
    assert_eq!(of(7), Some(vec![0, 10, 5, 0, 4, 5, 10]));
    assert_eq!(of(8), Some(vec![0; 7]));
    assert_eq!(
        gaps(&profile, thread(7), 12, 6, 3),
        Some(vec![6, 6, 1]),
        "a part of the time"
    );
    assert_eq!(gaps(&profile, GapsOf::Cpu(0), 0, 10, 7), None);
    let without = load(&records, false);
    assert_eq!(without.switches(), 0);
    assert_eq!(gaps(&without, thread(7), 0, 10, 7), None);
}

#[test]
fn cpus_idle_while_their_idle_thread_runs() {
    let mut records = begun();
    records.sample_on(ID, (5, 7), 0x10, 1, 1, &[]);
    for cpu in [0, 1] {
        let later = u64::from(cpu) * 10;
        switch(&mut records, OUT, 1010 + later, 7, cpu, Some(0));
        switch(&mut records, 0, 1010 + later, 0, cpu, Some(7));
    }
    switch(&mut records, OUT, 1035, 0, 0, Some(7));
    switch(&mut records, 0, 1035, 7, 0, Some(0));
    records.sample_on(ID, (5, 7), 0x10, 1, 1, &[]);
    let profile = load(&records, true);
    let idle = |cpu| gaps(&profile, GapsOf::Cpu(cpu), 0, 20, 3);
    assert_eq!(idle(0), Some(vec![10, 15, 0]));
    assert_eq!(idle(1), Some(vec![0, 20, 20]));
    assert_eq!(idle(2), None);
}

#[test]
fn a_thread_that_ended_is_not_off_the_cpu() {
    let mut records = begun();
    records.sample_on(ID, (5, 5), 0x10, 1, 0, &[]);
    let ids = [two(5, 5), word(1010), two(0, 0), word(ID)].concat();
    records.push(4, 0, &[&two(5, 1), &two(5, 1), &word(1010), &ids]);
    switch(&mut records, OUT, 1012, 5, 0, None);
    // Another thread with its number.
    let ids = [two(1, 1), word(1030), two(0, 0), word(ID)].concat();
    records.push(7, 0, &[&two(5, 1), &two(5, 1), &word(1030), &ids]);
    switch(&mut records, 0, 1032, 5, 0, None);
    records.sample_on(ID, (5, 5), 0x10, 1, 0, &[]);
    let profile = load(&records, true);
    let of = |id| gaps(&profile, GapsOf::Thread(id), 0, 10, 4);
    let threads = profile.tasks().threads();
    let ids: Vec<u32> = (0_u32..)
        .zip(threads)
        .filter(|(_, thread)| thread.tid == 5)
        .map(|(id, _)| id)
        .collect();
    assert_eq!(ids.len(), 2);
    assert_eq!(of(ids[0]), Some(vec![0; 4]));
    // The second thread was not run at once.
    assert_eq!(of(ids[1]), Some(vec![0, 0, 0, 2]));
}
