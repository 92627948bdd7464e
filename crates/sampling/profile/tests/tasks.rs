//! Who ran what: programs, images, numbers that are reused; recordings of known content.

mod support;

use dioptra_perfdata::EventToWrite;
use dioptra_perfrecords::{AttrFlags, SampleType};
use dioptra_profile::{
    Dimension, HierarchyOptions, LoadOptions, LoadPlan, Names, Profile, hierarchy,
};
use support::{ID, Records, attr, event, flat};

fn plan() -> LoadPlan {
    LoadPlan {
        options: LoadOptions {
            threads: true,
            ..LoadOptions::default()
        },
        mappings: true,
        log: true,
        ..LoadPlan::default()
    }
}

fn load(records: &Records, events: &[EventToWrite]) -> Profile {
    records.load_with(events, &plan())
}

/// A program with its processes' numbers, and its weight in each module.
type Found = (String, Vec<u32>, Vec<(String, u64)>);

fn programs(profile: &Profile) -> Vec<Found> {
    let rows = hierarchy(
        profile,
        &Names::default(),
        &[Dimension::Program, Dimension::Module],
        &[0],
        &HierarchyOptions::default(),
    )
    .unwrap();
    let mut programs: Vec<Found> = Vec::new();
    for (index, row) in rows.rows().enumerate() {
        if row.level == 0 {
            let program = &profile.tasks().programs()[row.key as usize];
            programs.push((program.name.clone(), program.pids.clone(), Vec::new()));
        } else {
            let module = profile.modules().get(row.key).label.clone();
            let of_program = &mut programs.last_mut().unwrap().2;
            of_program.push((module, rows.count(index, 0).own.weight));
            of_program.sort();
        }
    }
    programs.sort();
    programs
}

type Expected<'a> = (&'a str, &'a [u32], &'a [(&'a str, u64)]);

fn assert_programs(profile: &Profile, expected: &[Expected<'_>]) {
    let expected: Vec<_> = expected
        .iter()
        .map(|(name, pids, modules)| {
            let modules = modules.iter();
            (
                (*name).to_owned(),
                pids.to_vec(),
                modules
                    .map(|(m, weight)| ((*m).to_owned(), *weight))
                    .collect(),
            )
        })
        .collect::<Vec<_>>();
    assert_eq!(programs(profile), expected);
}

/// A shell forks, and the child executes a compiler, twice; the shell runs on.
fn shell(records: &mut Records) {
    records.comm(5, 5, false, "sh");
    records.map(5, 0x1000, 0x1000, 0, "/bin/dash");
    records.map(5, 0x7000, 0x1000, 0, "/lib/libc.so");
    for (pid, weight) in [(6, 1), (7, 10)] {
        records.fork((pid, pid), (5, 5));
        // Before its exec a child is still the shell.
        records.sample(ID, (pid, pid), 0x1800, 1000 * weight, &[]);
        records.comm(pid, pid, true, "cc1");
        records.map(pid, 0x1000, 0x1000, 0, "/usr/lib/cc1");
        records.map(pid, 0x7000, 0x1000, 0, "/lib/libc.so");
        records.sample(ID, (pid, pid), 0x1800, weight, &[]);
        records.sample(ID, (pid, pid), 0x7800, 100 * weight, &[]);
        records.exit(pid);
    }
    records.sample(ID, (5, 5), 0x7800, 7, &[]);
}

#[test]
fn a_process_that_executes_belongs_to_both_programs() {
    let mut records = Records::default();
    shell(&mut records);
    let profile = load(&records, &flat());
    let expected: [Expected<'_>; 2] = [
        ("cc1", &[6, 7], &[("cc1", 11), ("libc.so", 1100)]),
        ("dash", &[5, 6, 7], &[("dash", 11_000), ("libc.so", 7)]),
    ];
    assert_programs(&profile, &expected);
    let tasks = profile.tasks();
    let images: Vec<_> = tasks
        .images()
        .iter()
        .map(|image| {
            let pid = tasks.processes()[image.process as usize].pid;
            let program = &tasks.programs()[image.program as usize].name;
            (pid, program.as_str(), image.comm.as_deref().unwrap())
        })
        .collect();
    assert_eq!(
        images,
        [
            (5, "dash", "sh"),
            (6, "dash", "sh"),
            (6, "cc1", "cc1"),
            (7, "dash", "sh"),
            (7, "cc1", "cc1")
        ]
    );
    // One image begins where the one before it ends.
    assert_eq!(tasks.images()[1].end, tasks.images()[2].start);
    assert_eq!(tasks.images()[2].end, tasks.processes()[1].end);
    // So do mappings.
    let spans = profile.mappings(1);
    let exec = tasks.images()[2].start;
    let ended: Vec<_> = spans
        .iter()
        .map(|span| {
            let label = profile.modules().get(span.module).label.as_str();
            (label, span.from < exec, span.until == exec)
        })
        .collect();
    assert_eq!(
        ended,
        [
            ("dash", true, true),
            ("libc.so", true, true),
            ("cc1", false, false),
            ("libc.so", false, false)
        ]
    );
    assert!(
        spans[2..]
            .iter()
            .all(|span| span.until == tasks.processes()[1].end)
    );
}

#[test]
fn old_kernels_do_not_mark_execs() {
    let mut records = Records::default();
    shell(&mut records);
    // A name that a thread gives itself is no exec.
    records.comm(5, 5, false, "other");
    records.map(5, 0x9000, 0x1000, 0, "/lib/later.so");
    records.sample(ID, (5, 5), 0x9800, 3, &[]);
    for record in &mut records.list {
        if record[..4] == 3_u32.to_ne_bytes() {
            record[4..6].copy_from_slice(&[0, 0]);
        }
    }
    let mut old = attr(SampleType::empty());
    old.flags.remove(AttrFlags::COMM_EXEC);
    let profile = load(&records, &[event("cpu-clock", old, &[ID])]);
    let expected: [Expected<'_>; 2] = [
        ("cc1", &[6, 7], &[("cc1", 11), ("libc.so", 1100)]),
        (
            "dash",
            &[5, 6, 7],
            &[("dash", 11_000), ("later.so", 3), ("libc.so", 7)],
        ),
    ];
    assert_programs(&profile, &expected);
}

#[test]
fn numbers_are_reused_also_where_the_start_was_lost() {
    let mut records = Records::default();
    records.comm(6, 6, true, "first");
    records.map(6, 0x1000, 0x1000, 0, "/bin/first");
    records.sample(ID, (6, 6), 0x1800, 1, &[]);
    records.exit(6);
    // The first one on its way out.
    records.sample(ID, (6, 6), 0x1800, 10, &[]);
    // Its fork was lost, so nothing tells what it ran or mapped before the exec.
    records.comm(6, 6, true, "second");
    records.sample(ID, (6, 6), 0x1800, 100, &[]);
    records.map(6, 0x5000, 0x1000, 0, "/bin/second");
    records.sample(ID, (6, 6), 0x5800, 1000, &[]);
    let profile = load(&records, &flat());
    let expected: [Expected<'_>; 2] = [
        ("first", &[6], &[("first", 11)]),
        ("second", &[6], &[("[unknown]", 100), ("second", 1000)]),
    ];
    assert_programs(&profile, &expected);
    assert_eq!(profile.tasks().processes().len(), 2);
    assert_eq!(profile.tasks().process_name(0), "first");
}

#[test]
fn equal_files_are_one_program_by_build_id_else_path() {
    let mut records = Records::default();
    let id = [0xab_u8; 20];
    for (pid, path, build_id) in [
        (1, "/one/tool", Some(&id[..])),
        (2, "/copy/tool2", Some(&id[..])),
        (3, "/one/tool", None),
        (4, "/other/tool", None),
    ] {
        records.comm(pid, pid, true, "tool");
        records.map_build_id(pid, 0x1000, 0x1000, 0, path, build_id);
        records.sample(ID, (pid, pid), 0x1800, 1, &[]);
    }
    // Threads of the kernel map nothing.
    records.comm(9, 9, false, "kworker");
    records.sample(ID, (9, 9), 0xffff_ffff_8100_0000, 1, &[]);
    let profile = load(&records, &flat());
    let pids: Vec<_> = profile
        .tasks()
        .programs()
        .iter()
        .map(|program| (program.name.as_str(), program.pids.as_slice()))
        .collect();
    assert_eq!(
        pids,
        [("tool", &[1, 2, 3][..]), ("tool", &[4]), ("kworker", &[9])]
    );
}

#[test]
fn the_order_of_times_counts_not_that_of_the_file() {
    // Two CPUs' rings: what one wrote stands before what the other wrote earlier.
    let mut one = Records::default();
    let mut other = Records::default();
    one.comm(5, 5, true, "it");
    one.map(5, 0x1000, 0x1000, 0, "/lib/first.so");
    one.time = 100;
    one.sample(ID, (5, 5), 0x1800, 1, &[]);
    one.time = 200;
    one.map(5, 0x1000, 0x1000, 0, "/lib/second.so");
    one.sample(ID, (5, 5), 0x1800, 10, &[]);
    other.time = 150;
    other.sample(ID, (5, 6), 0x1800, 100, &[]);
    other.time = 250;
    other.sample(ID, (5, 6), 0x1800, 1000, &[]);
    let expected: [Expected<'_>; 1] =
        [("first.so", &[5], &[("first.so", 101), ("second.so", 1010)])];
    for (first, second) in [(&one, &other), (&other, &one)] {
        let both = Records {
            list: first.list.iter().chain(&second.list).cloned().collect(),
            time: 0,
        };
        let profile = load(&both, &flat());
        assert_programs(&profile, &expected);
        let mut times = Vec::new();
        profile.events()[0].samples(|sample| times.push(sample.elapsed.unwrap()));
        assert_eq!(times, [0, 50, 101, 150]);
    }
}

#[test]
fn a_thread_s_name_is_that_of_the_sample_s_time() {
    let mut records = Records::default();
    records.comm(5, 5, true, "before");
    records.sample(ID, (5, 5), 0x1800, 1, &[]);
    records.comm(5, 5, false, "after");
    records.sample(ID, (5, 5), 0x1800, 10, &[]);
    records.sample(ID, (7, 7), 0x1800, 100, &[]);
    let profile = load(&records, &flat());
    let rows = hierarchy(
        &profile,
        &Names::default(),
        &[Dimension::Comm],
        &[0],
        &HierarchyOptions::default(),
    )
    .unwrap();
    let names: Vec<_> = rows
        .rows()
        .enumerate()
        .map(|(index, row)| {
            let name = profile.tasks().comms().get(row.key as usize);
            (name.map(String::as_str), rows.count(index, 0).own.weight)
        })
        .collect();
    assert_eq!(
        names,
        [(Some("before"), 1), (Some("after"), 10), (None, 100)]
    );
}

#[test]
fn namespaces_are_kept() {
    let mut records = Records::default();
    records.comm(5, 5, true, "it");
    records.namespaces(5, &[(3, 40), (3, 41)]);
    records.sample(ID, (5, 5), 0x1800, 1, &[]);
    let profile = load(&records, &flat());
    assert_eq!(
        profile.tasks().processes()[0].namespaces,
        [(3, 40), (3, 41)]
    );
}
