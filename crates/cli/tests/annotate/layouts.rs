//! However a program is linked and loaded, its instructions are objdump's and their counts perf's.

use super::{Recorded, annotated, by_address, functions, list, number, perfs_by_address, record};
use dioptra_testprograms::{self as programs, or_skip};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// The addresses of a function's instructions, as objdump prints them.
fn objdumps(json: &Value) -> Vec<u64> {
    let start = number(&json["function"]["virtual_start"]);
    let length = number(&json["function"]["end"]) - number(&json["function"]["start"]);
    let output = Command::new("objdump")
        .args(["-d", "--wide"])
        .arg(format!("--start-address={start:#x}"))
        .arg(format!("--stop-address={:#x}", start + length))
        .arg(json["function"]["module_path"].as_str().expect("a path"))
        .output()
        .expect("objdump runs");
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| {
            let (address, _) = line.trim_start().split_once(":\t")?;
            u64::from_str_radix(address, 16).ok()
        })
        .collect()
}

/// Compares the functions of a module that have most samples; says how many were compared.
fn compare(recorded: &Recorded, module: &str, most: usize) -> usize {
    let mut compared = 0;
    for (name, samples) in functions(recorded, module).into_iter().take(most) {
        if samples == 0 || name.starts_with('[') {
            continue;
        }
        let json = annotated(&format!("{module}:{name}"), &recorded.file);
        assert_eq!(
            number(&json["events"][0]["function"]["samples"]),
            samples,
            "{name}"
        );
        let addresses: Vec<u64> = list(&json, "instructions")
            .iter()
            .map(|place| number(&place["virtual_address"]))
            .collect();
        assert_eq!(addresses, objdumps(&json), "{name}");
        // perf knows functions by the names that it shows.
        let shown = json["function"]["name"].as_str().unwrap_or_default();
        let perfs = perfs_by_address(shown, module, recorded);
        // perf annotates one of several functions with the same name, or none without a size.
        if perfs.is_empty() {
            continue;
        }
        assert_eq!(by_address(&json), perfs, "{name} of {module}");
        compared += 1;
    }
    compared
}

fn compare_shares(flags: &[&str]) {
    or_skip!(programs::need_tool("objdump"));
    let program = or_skip!(programs::c("shares", flags));
    let recorded = or_skip!(record(&["-e", "cpu-clock"], &[program.as_os_str()]));
    // sixty, thirty and ten are always hit.
    assert!(compare(&recorded, "shares", 8) >= 3, "{flags:?}");
}

#[test]
fn position_independent_programs() {
    compare_shares(&["-O2", "-pie", "-fPIE"]);
}

#[test]
fn programs_at_fixed_addresses() {
    compare_shares(&["-no-pie", "-fno-pie"]);
    compare_shares(&["-static"]);
}

#[test]
fn programs_linked_by_lld() {
    or_skip!(programs::need_tool("ld.lld"));
    compare_shares(&["-fuse-ld=lld"]);
    compare_shares(&["-fuse-ld=lld", "-no-pie", "-fno-pie"]);
}

#[test]
fn code_far_into_its_file() {
    // The code's segment begins neither at the file's start nor at the address that its offset says.
    compare_shares(&[
        "-Wl,-Ttext-segment=0x10000000",
        "-no-pie",
        "-fno-pie",
        "-Wl,-z,noseparate-code",
    ]);
}

#[test]
fn libraries_that_come_and_go() {
    or_skip!(programs::need_tool("objdump"));
    let program = or_skip!(programs::c("dlopen", &["-ldl"]));
    let first = or_skip!(programs::shared_library(
        "plugin",
        "first",
        &["-DPLUGIN_WORK=first_work"]
    ));
    let second = or_skip!(programs::shared_library(
        "plugin",
        "second",
        &["-DPLUGIN_WORK=second_work"]
    ));
    let command: [&Path; 5] = [
        &program,
        &first,
        Path::new("first_work"),
        &second,
        Path::new("second_work"),
    ];
    let recorded = or_skip!(record(&["-e", "cpu-clock"], &command));
    for (file, function) in [(&first, "first_work"), (&second, "second_work")] {
        let module = file
            .file_name()
            .and_then(|name| name.to_str())
            .expect("a name");
        assert_eq!(compare(&recorded, module, 1), 1, "{function}");
    }
}

#[test]
fn programs_of_the_machine() {
    or_skip!(programs::need_tool("objdump"));
    let python = or_skip!(programs::need_tool("python3"));
    let script = "import json\nfor i in range(40): json.loads(json.dumps([{'a': i, 'b': [1, 2, 3]}] * 2000))";
    let command = [python.as_os_str(), "-c".as_ref(), script.as_ref()];
    let recorded = or_skip!(record(&["-e", "cpu-clock"], &command));
    let mut compared = 0;
    let module = python.canonicalize().expect("a path");
    let module = module
        .file_name()
        .and_then(|name| name.to_str())
        .expect("a name");
    for module in [module, "libc.so.6"] {
        compared += compare(&recorded, module, 5);
    }
    // A stripped program has no names of its own, but exports some, and so does the C library.
    assert!(compared >= 1);
}

#[test]
fn functions_of_c_plus_plus_and_rust() {
    or_skip!(programs::need_tool("objdump"));
    let threaded = or_skip!(programs::rust("threaded", &[]));
    let command = [threaded.as_os_str(), "2".as_ref(), "20".as_ref()];
    let recorded = or_skip!(record(&["-e", "cpu-clock"], &command));
    assert!(compare(&recorded, "threaded", 3) >= 1);
}
