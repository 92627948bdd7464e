//! Checks the names of functions in programs linked in every way, against the addresses that the programs print and the
//! kernel mapped.

mod support;

use dioptra_profile::{
    Dimension, HierarchyOptions, LoadOptions, LoadPlan, Names, Profile, hierarchy,
};
use dioptra_symbols::SymbolOptions;
use dioptra_testprograms::{self as programs, Language, Program, or_skip};
use std::path::Path;
use std::process::Command;
use support::{ID, Records};

const PID: u32 = 5;

/// The output of the program `addresses`, and the profile made of it.
struct Told {
    profile: Profile,
    /// The functions in the order of their samples, each with its address.
    functions: Vec<(String, u64)>,
    /// Executable mappings of the program itself: start and file offset.
    own: Vec<(u64, u64)>,
    same: bool,
}

fn run(program: &Path, arguments: &[&str]) -> Told {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut records = Records::default();
    let mut functions = Vec::new();
    let mut own = Vec::new();
    let mut same = false;
    let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
    for line in text.lines() {
        let words: Vec<&str> = line.splitn(5, ' ').collect();
        match words[..] {
            ["map", start, end, offset, path] => {
                let (start, end, offset) = (hex(start), hex(end), hex(offset));
                records.map(PID, start, end - start, offset, path);
                if Path::new(path) == program && functions.is_empty() {
                    own.push((start, offset));
                }
            }
            ["function", address, name] => {
                let address = hex(address);
                functions.push((name.to_owned(), address));
                let weight = 1 << functions.len();
                records.sample(ID, (PID, PID), address + 1, weight, &[]);
            }
            ["same"] => same = true,
            ["different"] => same = false,
            _ => panic!("{line}"),
        }
    }
    let plan = LoadPlan {
        options: LoadOptions {
            threads: true,
            ..LoadOptions::default()
        },
        ..LoadPlan::default()
    };
    Told {
        profile: records.load_with(&support::flat(), &plan),
        functions,
        own,
        same,
    }
}

/// Returns each function's weight, by the program and module it was found in.
fn found(profile: &Profile) -> Vec<(String, String, String, u64)> {
    let names = Names::find(profile, SymbolOptions::default());
    let levels = [Dimension::Program, Dimension::Module, Dimension::Function];
    let all = hierarchy(profile, &names, &levels, &[0], &HierarchyOptions::default()).unwrap();
    let rows: Vec<_> = all.rows().collect();
    let mut found: Vec<_> = rows
        .iter()
        .enumerate()
        .filter(|(_, row)| row.level == 2)
        .map(|(index, row)| {
            let module = &rows[row.parent.unwrap()];
            let program = &rows[module.parent.unwrap()];
            (
                profile.tasks().programs()[program.key as usize]
                    .name
                    .clone(),
                profile.modules().get(module.key).label.clone(),
                names.functions()[row.key as usize].name.clone(),
                all.count(index, 0).own.weight,
            )
        })
        .collect();
    found.sort_by_key(|row| row.3);
    found
}

fn check(told: &Told, module_of: impl Fn(&str) -> String) {
    let expected: Vec<_> = told
        .functions
        .iter()
        .enumerate()
        .map(|(index, (name, _))| {
            let weight = 2 << index;
            (
                "addresses".to_owned(),
                module_of(name),
                name.clone(),
                weight,
            )
        })
        .collect();
    assert_eq!(found(&told.profile), expected);
    assert_eq!(told.profile.losses().unmapped, 0);
}

fn in_program(_: &str) -> String {
    "addresses".to_owned()
}

fn build(compiler: &str, flags: &[&str]) -> Result<Told, programs::Skip> {
    let program = Program::new(Language::C, "addresses")
        .compiler(compiler)
        .flags(["-ldl"])
        .flags(flags.iter().copied())
        .build()?;
    let told = run(&program, &[]);
    assert_eq!(told.functions.len(), 3);
    check(&told, in_program);
    Ok(told)
}

#[test]
fn position_independent() {
    let told = or_skip!(build("gcc", &["-fPIE", "-pie"]));
    assert_ne!(told.own[0].1, 0, "code begins at a page offset");
}

#[test]
fn one_segment_for_code_and_constants() {
    let told = or_skip!(build("gcc", &["-fPIE", "-pie", "-Wl,-z,noseparate-code"]));
    assert_eq!(told.own[0].1, 0);
}

#[test]
fn at_fixed_addresses() {
    let told = or_skip!(build("gcc", &["-fno-pie", "-no-pie"]));
    assert!(told.own[0].0 < 1 << 32);
    // Where prelink would have put it.
    let told = or_skip!(build(
        "gcc",
        &["-fno-pie", "-no-pie", "-Wl,-Ttext-segment=0x41000000"]
    ));
    assert_eq!(told.own[0].0 >> 24, 0x41);
}

#[test]
fn linked_by_lld() {
    or_skip!(programs::need_tool("ld.lld"));
    for flags in [["-fPIE", "-pie"], ["-fno-pie", "-no-pie"]] {
        let flags = [flags[0], flags[1], "-fuse-ld=lld"];
        let told = or_skip!(build("clang", &flags));
        // Its segments begin within a page, with addresses that differ from their file offsets.
        let (start, offset) = told.own[0];
        let (_, address) = told.functions[0];
        assert!(start <= address && offset % 4096 == 0);
    }
}

#[test]
fn two_executable_segments() {
    let told = or_skip!(build(
        "gcc",
        &[
            "-fno-pie",
            "-no-pie",
            "-mcmodel=large",
            "-Wl,--section-start=far=0x51000000"
        ]
    ));
    assert_eq!(told.own.len(), 2, "{:x?}", told.own);
    let far = told.functions.iter().find(|(name, _)| name == "far_away");
    assert_eq!(far.unwrap().1 >> 24, 0x51);
}

#[test]
fn libraries_that_take_each_others_place() {
    let program = or_skip!(programs::c("addresses", &["-ldl"]));
    let library = |name: &str| {
        let function = format!("-DPLUGIN_WORK={name}_work");
        programs::shared_library("plugin", name, &[&function])
    };
    let first = or_skip!(library("first"));
    let second = or_skip!(library("second"));
    let (first, second) = (first.to_str().unwrap(), second.to_str().unwrap());
    let arguments = [
        first,
        "first_work",
        second,
        "second_work",
        first,
        "first_work",
    ];
    let told = run(&program, &arguments);
    let mut sums: Vec<(String, String, u64)> = Vec::new();
    for (_, module, function, weight) in found(&told.profile) {
        sums.push((module, function, weight));
    }
    let expected = [
        ("addresses", "first_of_all", 2),
        ("addresses", "far_away", 4),
        ("addresses", "last_of_all", 8),
        ("libsecond.so", "second_work", 32),
        // Mapped, unmapped and mapped again.
        ("libfirst.so", "first_work", 16 + 64),
    ];
    assert_eq!(
        sums,
        expected.map(|(module, function, weight)| (module.into(), function.into(), weight))
    );
    if !told.same {
        eprintln!("the libraries did not lie at the same address this time");
    }
}
