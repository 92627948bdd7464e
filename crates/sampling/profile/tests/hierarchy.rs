//! Hierarchies, selections and kept samples against counting by hand, over random recordings.

mod support;

use dioptra_perfrecords::SampleType;
use dioptra_profile::{
    Dimension, FrameId, Hierarchy, HierarchyOptions, LoadOptions, LoadPlan, LoggedSample, Names,
    Profile, SelectError, Selection, Slices, TimeSlices, aggregate, hierarchy,
};
use dioptra_symbols::SymbolOptions;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use support::{Records, USER, attr, event};

const OTHER: u64 = 78;

/// The next thing that happens in a recording.
#[derive(Clone, Debug)]
enum Step {
    Sample {
        other: bool,
        pid: u32,
        thread: u32,
        cpu: u32,
        weight: u64,
        chain: Vec<u8>,
    },
    Map {
        pid: u32,
        at: u8,
        module: u8,
    },
    Comm {
        pid: u32,
        thread: u32,
        exec: bool,
        name: u8,
    },
    Fork {
        child: u32,
        parent: u32,
    },
    Exit {
        pid: u32,
    },
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let pid = || 1..5_u32;
    let sample = (
        any::<bool>(),
        pid(),
        0..2_u32,
        0..3_u32,
        prop_oneof![Just(10), 1..100_u64, Just(1 << 40)],
        prop::collection::vec(0..12_u8, 0..9),
    );
    prop_oneof![
        12 => sample.prop_map(|(other, pid, thread, cpu, weight, chain)| Step::Sample {
            other, pid, thread, cpu, weight, chain,
        }),
        2 => (pid(), 0..3_u8, 0..3_u8).prop_map(|(pid, at, module)| Step::Map { pid, at, module }),
        1 => (pid(), 0..2_u32, any::<bool>(), 0..3_u8)
            .prop_map(|(pid, thread, exec, name)| Step::Comm { pid, thread, exec, name }),
        1 => (pid(), pid()).prop_map(|(child, parent)| Step::Fork { child, parent }),
        1 => pid().prop_map(|pid| Step::Exit { pid }),
        1 => prop_oneof![Just(1_000), Just(1 << 33)].prop_map(Step::Wait),
    ]
}

/// The address of one of twelve instructions, four in each of three mappings.
fn address(number: u8) -> u64 {
    0x1000 * (1 + u64::from(number) / 4) + 0x10 * u64::from(number % 4)
}

fn load(steps: &[Step], call_chains: bool) -> Profile {
    let mut records = Records::default();
    for step in steps {
        match step {
            Step::Sample {
                other,
                pid,
                thread,
                cpu,
                weight,
                chain,
            } => {
                let id = if *other { OTHER } else { support::ID };
                let mut words = vec![chain.len() as u64 + 1, USER];
                words.extend(chain.iter().map(|number| address(*number)));
                let ip = address(chain.first().copied().unwrap_or(0));
                let task = (*pid, pid + 10 * thread);
                records.sample_on(id, task, ip, *weight, *cpu, &words);
            }
            Step::Map { pid, at, module } => {
                let name = format!("/nonexistent/{module}");
                records.map(*pid, 0x1000 * (1 + u64::from(*at)), 0x1000, 0, &name);
            }
            Step::Comm {
                pid,
                thread,
                exec,
                name,
            } => records.comm(*pid, pid + 10 * thread, *exec, &format!("name{name}")),
            Step::Fork { child, parent } => records.fork((*child, *child), (*parent, *parent)),
            Step::Exit { pid } => records.exit(*pid),
            Step::Wait(time) => records.time += time,
        }
    }
    let attr = attr(SampleType::CALLCHAIN | SampleType::CPU);
    let events = [
        event("one", attr.clone(), &[support::ID]),
        event("other", attr, &[OTHER]),
    ];
    let plan = LoadPlan {
        options: LoadOptions {
            call_chains,
            threads: true,
        },
        cpus: true,
        log: true,
        errors: true,
        ..LoadPlan::default()
    };
    records.load_with(&events, &plan)
}

fn block(frame: FrameId) -> u32 {
    frame % 3
}

/// Keys of a sample at one of its frames.
fn keys(
    profile: &Profile,
    names: &Names,
    levels: &[Dimension],
    slices: TimeSlices,
    sample: &LoggedSample,
    frame: FrameId,
) -> Vec<u32> {
    let part = profile.sample_keys().get(sample.sample_key);
    let tasks = profile.tasks();
    let thread = &tasks.threads()[part.thread.unwrap() as usize];
    levels
        .iter()
        .map(|level| match level {
            Dimension::Program => tasks.images()[part.image.unwrap() as usize].program,
            Dimension::Process => thread.process,
            Dimension::Thread => part.thread.unwrap(),
            Dimension::Comm => part.comm.unwrap_or(u32::MAX),
            Dimension::Cpu => part.cpu.unwrap(),
            Dimension::Socket => u32::MAX,
            Dimension::Time => slices.of(sample.elapsed),
            Dimension::Module => profile.frames().get(frame).module,
            Dimension::Function => names.of_frame(frame),
            Dimension::Block => block(frame),
            _ => frame,
        })
        .collect()
}

/// By path of keys: for each event samples and weight, own and total; and the own sum of squared weights.
type Expected = BTreeMap<Vec<u32>, [((u64, u64), (u64, u64), f64); 2]>;

fn by_hand(
    profile: &Profile,
    names: &Names,
    levels: &[Dimension],
    slices: TimeSlices,
    children: bool,
) -> Expected {
    let mut expected = Expected::new();
    for (index, event) in profile.events().iter().enumerate() {
        event.samples(|sample| {
            let mut frames: Vec<FrameId> = if profile.options().call_chains {
                profile.stacks().frames(sample.place).collect()
            } else {
                vec![sample.place]
            };
            let own = keys(profile, names, levels, slices, &sample, frames[0]);
            for end in 1..=own.len() {
                let cell = &mut expected.entry(own[..end].to_vec()).or_default()[index];
                cell.0.0 += 1;
                cell.0.1 += sample.weight;
                cell.2 += (sample.weight as f64).powi(2);
            }
            if !children {
                frames.truncate(1);
            }
            let paths: BTreeSet<Vec<u32>> = frames
                .iter()
                .flat_map(|frame| {
                    let keys = keys(profile, names, levels, slices, &sample, *frame);
                    (1..=keys.len()).map(move |end| keys[..end].to_vec())
                })
                .collect();
            for path in paths {
                let cell = &mut expected.entry(path).or_default()[index];
                cell.1.0 += 1;
                cell.1.1 += sample.weight;
            }
        });
    }
    expected
}

fn of_rows(found: &Hierarchy) -> Expected {
    let mut paths: Vec<Vec<u32>> = Vec::new();
    let mut all = Expected::new();
    for (index, row) in found.rows().enumerate() {
        let mut path = row
            .parent
            .map_or(Vec::new(), |parent| paths[parent].clone());
        path.push(row.key);
        assert_eq!(path.len(), row.level + 1);
        paths.push(path.clone());
        let cells = std::array::from_fn(|event| {
            let count = found.count(index, event);
            (
                (count.own.samples, count.own.weight),
                (count.total.samples, count.total.weight),
                found.estimate(index, event).variance,
            )
        });
        assert!(all.insert(path, cells).is_none(), "each path once");
    }
    all
}

/// Equal but for the rounding of sums of squares.
fn assert_equal(found: &Expected, expected: &Expected) -> Result<(), TestCaseError> {
    let keys = |all: &Expected| all.keys().cloned().collect::<Vec<_>>();
    prop_assert_eq!(keys(found), keys(expected));
    for (path, cells) in expected {
        for event in 0..2 {
            let (found, expected) = (found[path][event], cells[event]);
            prop_assert_eq!((found.0, found.1), (expected.0, expected.1), "{:?}", path);
            prop_assert!((found.2 - expected.2).abs() <= 1e-9 * expected.2.abs());
        }
    }
    Ok(())
}

fn levels() -> impl Strategy<Value = Vec<Dimension>> {
    let all = vec![
        Dimension::Program,
        Dimension::Process,
        Dimension::Thread,
        Dimension::Comm,
        Dimension::Cpu,
        Dimension::Socket,
        Dimension::Time,
        Dimension::Module,
        Dimension::Function,
        Dimension::Block,
        Dimension::Address,
    ];
    prop::sample::subsequence(all, 1..5).prop_shuffle()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn hierarchies_equal_counting_by_hand(
        steps in prop::collection::vec(step(), 0..60),
        levels in levels(),
        call_chains in any::<bool>(),
        children in any::<bool>(),
        number in 1..9_u32,
        span in (prop::option::of(0..60_u64), prop::option::of(0..60_u64)),
        pids in prop::collection::vec(1..5_u32, 0..3),
        leaves in prop::option::of(any::<u16>()),
    ) {
        let whole = load(&steps, call_chains);
        let names = Names::find(&whole, SymbolOptions::default());
        let selection = Selection {
            time: span,
            pids: pids.clone(),
            leaves: leaves.map(|bits| {
                (0..whole.frames().len()).map(|frame| bits >> (frame % 16) & 1 == 1).collect()
            }),
            ..Selection::default()
        };
        let selected = whole.select(&selection).unwrap();
        for (part, all) in selected.events().iter().zip(whole.events()) {
            // The selection's samples, by hand.
            let mut expected = Vec::new();
            all.samples(|sample| {
                let time = sample.elapsed.unwrap();
                let thread = whole.sample_keys().get(sample.sample_key).thread.unwrap();
                let process = whole.tasks().threads()[thread as usize].process;
                let pid = whole.tasks().processes()[process as usize].pid;
                let leaf = if call_chains {
                    whole.stacks().get(sample.place).frame
                } else {
                    sample.place
                };
                if span.0.is_none_or(|from| from <= time)
                    && span.1.is_none_or(|to| time < to)
                    && (pids.is_empty() || pids.contains(&pid))
                    && leaves.is_none_or(|bits| bits >> (leaf % 16) & 1 == 1)
                {
                    expected.push(sample);
                }
            });
            let mut found = Vec::new();
            part.samples(|sample| found.push(sample));
            prop_assert_eq!(part.total().samples, expected.len() as u64);
            prop_assert_eq!(part.total().weight, expected.iter().map(|sample| sample.weight).sum::<u64>());
            prop_assert_eq!(part.unfiltered(), all.total());
            prop_assert_eq!(found, expected);
        }
        for profile in [&whole, &selected] {
            let slices = profile
                .time_slices(Slices::Number(NonZeroU32::new(number).unwrap()))
                .unwrap_or_default();
            prop_assert!(slices.number <= number);
            let options = HierarchyOptions {
                children,
                estimates: true,
                blocks: Some(&block),
                slices,
            };
            let found = hierarchy(profile, &names, &levels, &[0, 1], &options).unwrap();
            let rows: Vec<_> = found.rows().collect();
            assert_equal(&of_rows(&found), &by_hand(profile, &names, &levels, slices, children))?;
            // The sums over children are their parent's, and the outermost rows the event's.
            for event in 0..2 {
                let mut sums = vec![(0, 0); rows.len() + 1];
                for (index, row) in rows.iter().enumerate() {
                    let sum = &mut sums[row.parent.map_or(0, |parent| parent + 1)];
                    sum.0 += found.count(index, event).own.samples;
                    sum.1 += found.count(index, event).own.weight;
                }
                let total = profile.events()[event].total();
                prop_assert_eq!(sums[0], (total.samples, total.weight));
                for (index, (row, sum)) in rows.iter().zip(&sums[1..]).enumerate() {
                    let own = found.count(index, event).own;
                    if row.level + 1 < levels.len() {
                        prop_assert_eq!(*sum, (own.samples, own.weight));
                    }
                }
            }
            // One level is what `aggregate` says.
            if children == call_chains && !matches!(levels[0], Dimension::Block | Dimension::Time) {
                let one = hierarchy(profile, &names, &levels[..1], &[0, 1], &options).unwrap();
                let rows = aggregate(profile, &names, levels[0], &[0, 1]);
                prop_assert_eq!(one.rows().len(), rows.len());
                for (index, row) in rows.iter().enumerate() {
                    prop_assert_eq!(one.row(index).key, row.key);
                    for event in 0..2 {
                        prop_assert_eq!(one.count(index, event), row.counts[event]);
                    }
                }
            }
        }
    }
}

#[test]
fn what_was_not_loaded_is_told() {
    let mut records = Records::default();
    records.map(5, 0x1000, 0x1000, 0, "/nonexistent/it");
    records.sample(support::ID, (5, 5), 0x1800, 1, &[]);
    let profile = records.load(&support::flat(), LoadOptions::default());
    let ask = |levels: &[Dimension]| {
        hierarchy(
            &profile,
            &Names::default(),
            levels,
            &[0],
            &HierarchyOptions::default(),
        )
    };
    assert_eq!(ask(&[Dimension::Program]), Err(SelectError::NoThreads));
    assert_eq!(ask(&[Dimension::Socket]), Err(SelectError::NoCpus));
    assert_eq!(ask(&[Dimension::Time]), Err(SelectError::NoTimes));
    assert_eq!(ask(&[Dimension::Block]), Err(SelectError::NoBlocks));
    assert_eq!(ask(&[]), Err(SelectError::Levels));
    assert_eq!(ask(&[Dimension::Module; 17]), Err(SelectError::Levels));
    assert_eq!(ask(&[Dimension::Module]).unwrap().rows().len(), 1);
    let select = |selection: Selection| profile.select(&selection).err();
    let time = (Some(1), None);
    assert_eq!(
        select(Selection {
            time,
            ..Selection::default()
        }),
        Some(SelectError::NoTimes)
    );
    assert_eq!(
        select(Selection {
            pids: vec![5],
            ..Selection::default()
        }),
        Some(SelectError::NoThreads)
    );
    assert_eq!(
        select(Selection {
            sockets: vec![0],
            ..Selection::default()
        }),
        Some(SelectError::NoCpus)
    );
}
