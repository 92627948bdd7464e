//! Hierarchies with inlined functions, over made-up stacks in a real program.

mod support;

use dioptra_perfrecords::SampleType;
use dioptra_profile::{
    DebugInfoWanted, Dimension, HierarchyOptions, LoadOptions, LoadPlan, Names, Profile, aggregate,
    hierarchy,
};
use dioptra_symbols::SymbolOptions;
use dioptra_testprograms::{self as programs, or_skip};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use support::{ID, KERNEL, Records, USER, attr, event};

const MAIN_KERNEL: u64 = 0xffff_ffff_8100_0000;

/// Samples all over the program, some in the kernel called from it, and now and then the same frame twice.
fn made_up(program: &Path, call_chains: bool) -> (Profile, Names) {
    let mut records = Records::default();
    let path = program.to_str().unwrap();
    records.map(
        u32::MAX,
        MAIN_KERNEL,
        0x1000,
        MAIN_KERNEL,
        "[kernel.kallsyms]_text",
    );
    // All of the file, so that addresses are offsets in it plus the start.
    let length = std::fs::metadata(program).unwrap().len();
    records.map(5, 0x40_0000, length.next_multiple_of(4096), 0, path);
    let mut random = 1_u64;
    let mut below = |limit: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % limit
    };
    for _ in 0..1500 {
        let mut chain = vec![USER];
        // Where the linker puts code.
        chain.extend((0..1 + below(6)).map(|_| 0x40_1000 + below(0x400)));
        let mut ip = chain[1];
        if below(4) == 0 {
            ip = MAIN_KERNEL + below(3);
            chain.splice(0..0, [KERNEL, ip]);
        }
        let mut words = vec![chain.len() as u64];
        words.extend(chain);
        records.sample(ID, (5, 5 + below(2) as u32), ip, 1 + below(9), &words);
    }
    let plan = LoadPlan {
        options: LoadOptions {
            call_chains,
            threads: true,
        },
        log: true,
        ..LoadPlan::default()
    };
    let events = [event("cpu-clock", attr(SampleType::CALLCHAIN), &[ID])];
    let profile = records.load_with(&events, &plan);
    let mut names = Names::find(&profile, SymbolOptions::default());
    let wanted = DebugInfoWanted {
        lines: true,
        inlined: true,
    };
    names.find_debug_info(&profile, SymbolOptions::default(), wanted);
    (profile, names)
}

#[test]
fn totals_belong_to_all_functions_of_a_place() {
    let program = or_skip!(programs::c("inline", &["-O2"]));
    for call_chains in [false, true] {
        let (profile, names) = made_up(&program, call_chains);
        let inlined = names.functions().iter().filter(|name| name.is_inlined);
        assert!(inlined.count() >= 3, "step, mixer and shaker");
        let options = HierarchyOptions {
            children: true,
            ..HierarchyOptions::default()
        };
        let by =
            |levels: &[Dimension]| hierarchy(&profile, &names, levels, &[0], &options).unwrap();
        for dimension in [
            Dimension::Function,
            Dimension::Line,
            Dimension::OutermostLine,
            Dimension::Module,
            Dimension::Address,
        ] {
            let one = by(&[dimension]);
            let rows = aggregate(&profile, &names, dimension, &[0]);
            let found: Vec<_> = (one.rows().enumerate())
                .map(|(index, row)| (row.key, one.count(index, 0)))
                .collect();
            let expected: Vec<_> = rows.iter().map(|row| (row.key, row.counts[0])).collect();
            assert_eq!(found, expected, "{dimension:?}");
        }

        // Functions with their lines, by hand.
        let found = by(&[Dimension::Function, Dimension::Line]);
        let event = &profile.events()[0];
        let lines_of = |frame, callee| -> Vec<(u32, u32)> {
            let lines = names.chain_lines(frame, callee);
            let line = |index| lines.get(index).copied().unwrap_or(names.line_of(frame));
            let functions = names.chain_of(frame, callee).iter().enumerate();
            functions.map(|(index, id)| (*id, line(index))).collect()
        };
        let mut expected: BTreeMap<(u32, Option<u32>), (u64, u64)> = BTreeMap::new();
        let mut logged = Vec::new();
        event.samples(|sample| {
            let frames: Vec<u32> = if call_chains {
                profile.stacks().frames(sample.place).collect()
            } else {
                vec![sample.place]
            };
            logged.push((frames, sample.weight));
        });
        assert_eq!(logged.len(), 1500);
        for (frames, weight) in logged {
            let mut seen = BTreeSet::new();
            for (index, frame) in frames.iter().enumerate() {
                let callee = index.checked_sub(1).map(|before| frames[before]);
                for (place, (function, line)) in lines_of(*frame, callee).into_iter().enumerate() {
                    for key in [(function, None), (function, Some(line))] {
                        let cell = expected.entry(key).or_default();
                        cell.0 += if (index, place) == (0, 0) { weight } else { 0 };
                        cell.1 += if seen.insert(key) { weight } else { 0 };
                    }
                }
            }
        }
        let mut rows = BTreeMap::new();
        for (index, row) in found.rows().enumerate() {
            let key = match row.parent {
                None => (row.key, None),
                Some(parent) => (found.row(parent).key, Some(row.key)),
            };
            let count = found.count(index, 0);
            rows.insert(key, (count.own.weight, count.total.weight));
        }
        assert_eq!(rows, expected);
    }
}
