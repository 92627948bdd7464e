//! `dioptra dump` and `perf script` on the same files: every sample has the same fields.

use dioptra_testprograms::{self as programs, or_skip};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn dump(arguments: &[&str], file: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dioptra"))
        .arg("dump")
        .args(arguments)
        .arg("-i")
        .arg(file)
        .output()
        .expect("dioptra runs")
}

/// Returns all records of `kind` as JSON.
fn records(file: &Path, kind: &str) -> Vec<Value> {
    let output = dump(&["--format", "json", "--type", kind], file);
    assert!(output.status.success(), "{file:?}: {output:?}");
    output
        .stdout
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).expect("an object a line"))
        .collect()
}

/// Returns perf's print of the samples.
fn script(fields: &str, more: &[&str], file: &Path) -> String {
    let output = Command::new("perf")
        .args([
            "--buildid-dir",
            "/nonexistent",
            "script",
            "--ns",
            "--no-inline",
        ])
        .args(more)
        .args(["-F", fields, "-i"])
        .arg(file)
        .output()
        .expect("perf runs");
    assert!(output.status.success(), "{fields} of {file:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn number(value: &Value) -> u64 {
    match value {
        Value::String(text) => {
            u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("an address")
        }
        other => other.as_u64().expect("a number"),
    }
}

/// Compares every field that all samples of `file` have; returns the number of samples.
fn assert_samples_equal(file: &Path) -> usize {
    let samples = records(file, "SAMPLE");
    let all_have = |name: &str| samples.iter().all(|sample| !sample[name].is_null());
    let has_pid = all_have("pid");
    let fields: Vec<&str> = ["pid", "tid", "cpu", "time", "period", "event", "ip"]
        .into_iter()
        .filter(|name| all_have(name))
        .collect();
    let mut perfs: Vec<String> = script(&fields.join(","), &["-G"], file)
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let mut ours: Vec<String> = samples
        .iter()
        .map(|sample| {
            // perf prints `pid/tid [cpu] time: period event: ip`.
            let mut words = Vec::new();
            for name in &fields {
                let value = &sample[*name];
                let word = match *name {
                    "tid" if has_pid => {
                        let pid: String = words.pop().expect("the process");
                        format!("{pid}/{value}")
                    }
                    "cpu" => format!("[{:03}]", number(value)),
                    "time" => {
                        let time = number(value);
                        format!("{}.{:09}:", time / 1_000_000_000, time % 1_000_000_000)
                    }
                    "event" => {
                        format!("{}:", value.as_str().expect("a name").trim_end_matches(':'))
                    }
                    "ip" => format!("{:x}", number(value)),
                    _ => value.to_string(),
                };
                words.push(word);
            }
            words.join(" ")
        })
        .collect();
    // Samples of equal times may come in another order.
    perfs.sort();
    ours.sort();
    assert_eq!(perfs.len(), ours.len(), "{file:?}");
    for (perf, our) in perfs.iter().zip(&ours) {
        assert_eq!(perf, our, "{file:?}");
    }
    if all_have("callchain") && !samples.iter().any(|sample| !sample["user_abi"].is_null()) {
        assert_chains_equal(file, &samples);
    }
    if all_have("branches") {
        assert_branches_equal(file, &samples);
    }
    samples.len()
}

/// perf prints user addresses relative to their mapping, so only their place in a page can be compared.
fn comparable(address: u64) -> u64 {
    if address >> 63 == 1 {
        address
    } else {
        address & 0xfff
    }
}

fn assert_chains_equal(file: &Path, samples: &[Value]) {
    // perf cuts long chains without this option.
    let text = script("ip", &["--max-stack", "100000"], file);
    let mut perfs: Vec<Vec<u64>> = text
        .split("\n\n")
        .map(|chain| {
            chain
                .split_whitespace()
                .filter_map(|word| u64::from_str_radix(word, 16).ok())
                .map(comparable)
                .collect()
        })
        .filter(|chain: &Vec<u64>| !chain.is_empty())
        .collect();
    let mut ours: Vec<Vec<u64>> = samples
        .iter()
        .map(|sample| {
            let chain = sample["callchain"].as_array().expect("a chain");
            chain
                .iter()
                .filter(|link| link.as_str().is_some_and(|text| text.starts_with("0x")))
                .map(|link| comparable(number(link)))
                .collect()
        })
        .filter(|chain: &Vec<u64>| !chain.is_empty())
        .collect();
    perfs.sort();
    ours.sort();
    assert_eq!(perfs.len(), ours.len(), "chains of {file:?}");
    for (perf, our) in perfs.iter().zip(&ours) {
        assert_eq!(perf, our, "a chain of {file:?}");
    }
}

fn assert_branches_equal(file: &Path, samples: &[Value]) {
    let flag = |branch: &Value, name: &str, letter: &'static str| {
        if branch[name] == Value::Bool(true) {
            letter
        } else {
            "-"
        }
    };
    let ours: Vec<Vec<String>> = samples
        .iter()
        .map(|sample| {
            let list = sample["branches"].as_array().expect("branches");
            list.iter()
                .map(|branch| {
                    format!(
                        "{:#x}/{:#x}/{}/{}/{}/{}",
                        number(&branch["from"]),
                        number(&branch["to"]),
                        // perf prints M before P.
                        match flag(branch, "mispredicted", "M") {
                            "-" => flag(branch, "predicted", "P"),
                            letter => letter,
                        },
                        flag(branch, "in_transaction", "X"),
                        flag(branch, "abort", "A"),
                        number(&branch["cycles"])
                    )
                })
                .collect()
        })
        .collect();
    let perfs: Vec<Vec<String>> = script("brstack", &[], file)
        .lines()
        .map(|line| {
            line.split_whitespace()
                .filter(|word| word.starts_with("0x"))
                .map(|word| {
                    let parts: Vec<&str> = word.split('/').take(6).collect();
                    parts.join("/")
                })
                .collect()
        })
        .collect();
    assert_eq!(perfs, ours, "branches of {file:?}");
}

#[test]
fn shared_files() {
    or_skip!(programs::need_tool("perf"));
    let folder = or_skip!(programs::need_shared_data("perfdata"));
    let mut samples = 0;
    for entry in std::fs::read_dir(folder).expect("the folder") {
        let file = entry.expect("an entry").path();
        let name = file
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        // perf 6.1 cannot read the first file, and makes samples of its own from the second file's trace.
        if !name.contains("data") || name.starts_with("lpd-") || name.contains("intel_pt") {
            continue;
        }
        samples += assert_samples_equal(&file);
    }
    assert!(samples > 0);
}

#[test]
fn fresh_recordings() {
    or_skip!(programs::need_tool("perf"));
    or_skip!(programs::need_sampling());
    let shares = or_skip!(programs::c("shares", &[]));
    let folder = tempfile::tempdir().expect("a folder");
    for (index, options) in [
        &["-F", "1000"][..],
        &["-F", "1000", "-g", "-d"],
        &["-F", "500", "--call-graph", "dwarf,1024"],
        &["-e", "cpu-clock,page-faults", "--sample-cpu", "-T"],
    ]
    .iter()
    .enumerate()
    {
        let file = folder.path().join(format!("{index}.data"));
        let status = Command::new("perf")
            .args(["record", "-q", "-e", "cpu-clock"])
            .args(*options)
            .arg("-o")
            .arg(&file)
            .arg("--")
            .arg(&shares)
            .arg("50")
            .env("HOME", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .expect("perf runs");
        assert!(status.success(), "{options:?}: {status}");
        assert!(assert_samples_equal(&file) > 0, "{options:?}");
        if options.contains(&"dwarf,1024") {
            assert_registers_equal(&file);
        }
        assert_comms_equal(&file);
    }
}

fn assert_registers_equal(file: &Path) {
    let perfs = script("uregs", &["-G"], file);
    let words = |text: &str| -> Vec<String> {
        let mut words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
        words.sort();
        words
    };
    let perfs: Vec<Vec<String>> = perfs
        .lines()
        .filter(|line| line.contains("ABI"))
        .map(words)
        .collect();
    let ours: Vec<Vec<String>> = records(file, "SAMPLE")
        .iter()
        .filter(|sample| number(&sample["user_abi"]) != 0)
        .map(|sample| {
            assert!(sample["user_stack_reserved"].as_u64().is_some());
            let registers = sample["user_registers"].as_object().expect("registers");
            let mut line = format!("abi:{}", sample["user_abi"]);
            for (name, value) in registers {
                line += &format!(" {name}:{}", value.as_str().expect("an address"));
            }
            words(&line)
        })
        .collect();
    assert_eq!(perfs, ours);
}

fn assert_comms_equal(file: &Path) {
    let perfs: Vec<String> = script("comm", &["--show-task-events"], file)
        .lines()
        .filter_map(|line| line.split("PERF_RECORD_COMM").nth(1))
        .map(|line| {
            line.trim_start_matches(" exec")
                .trim_start_matches(": ")
                .to_owned()
        })
        .collect();
    let ours: Vec<String> = records(file, "COMM")
        .iter()
        .map(|record| {
            let name = record["comm"].as_str().expect("a name");
            format!("{name}:{}/{}", record["pid"], record["tid"])
        })
        .collect();
    assert_eq!(perfs, ours);
}

#[test]
fn text_has_every_record() {
    let folder = or_skip!(programs::need_shared_data("perfdata"));
    let file = folder.join("perf.data.callgraph_and_branch-3.8");
    let text = dump(&[], &file);
    let json = dump(&["--format", "json"], &file);
    assert!(text.status.success() && json.status.success());
    let text = String::from_utf8(text.stdout).expect("text");
    let json = String::from_utf8(json.stdout).expect("JSON");
    let heads = text
        .lines()
        .filter(|line| !line.starts_with("    ") || line.contains(" misc="));
    assert_eq!(heads.count(), json.lines().count());
    assert!(
        text.contains("\n    callchain:\n      [kernel]\n        0xffffffff"),
        "{}",
        &text[..2000]
    );
    assert!(text.contains("\n    branches:\n        from=0x"));
}

#[test]
fn a_missing_file_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = dump(&[], &folder.path().join("none.data"));
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("none.data"));
}

#[test]
fn a_reader_may_leave() {
    let folder = or_skip!(programs::need_shared_data("perfdata"));
    let mut child = Command::new(env!("CARGO_BIN_EXE_dioptra"))
        .args(["dump", "-i"])
        .arg(folder.join("with-callchain.perf.data"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("dioptra runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}
