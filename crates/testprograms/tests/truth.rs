//! `perf` finds the counts and shares that the programs claim by construction.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use dioptra_testprograms::{Skip, c, need_sampling, need_tool, or_skip, shared_library};

/// Samples for each value of perf's sort key, of a run recorded with these options.
fn samples_by(
    key: &str,
    options: &[&str],
    program: &Path,
    arguments: &[&str],
) -> Result<HashMap<String, u64>, Skip> {
    need_sampling()?;
    let perf = need_tool("perf")?;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.data");
    let recorded = Command::new(&perf)
        .args(["record", "-q", "--no-buildid", "--no-buildid-cache", "-o"])
        .arg(&file)
        .args(options)
        .arg("--")
        .arg(program)
        .args(arguments)
        .output()
        .unwrap();
    assert!(recorded.status.success(), "{recorded:?}");
    let report = Command::new(&perf)
        .args([
            "report",
            "--stdio",
            "-g",
            "none",
            "--no-children",
            "-t",
            "\t",
        ])
        .args(["-F", &format!("sample,{key}"), "-i"])
        .arg(&file)
        .output()
        .unwrap();
    assert!(report.status.success(), "{report:?}");
    let mut samples = HashMap::new();
    for line in String::from_utf8(report.stdout)
        .unwrap()
        .lines()
        .filter(|l| !l.starts_with('#'))
    {
        let mut fields = line.split('\t');
        if let (Some(count), Some(name)) = (fields.next(), fields.next()) {
            // A symbol stands behind the mark of its level, "[.] name".
            let name = name
                .trim()
                .rsplit("] ")
                .next()
                .unwrap_or_default()
                .to_string();
            *samples.entry(name).or_default() += count.trim().parse::<u64>().unwrap();
        }
    }
    Ok(samples)
}

/// Asserts each name's percentage of the samples in all these names, give or take five.
#[track_caller]
fn assert_shares(samples: &HashMap<String, u64>, expected: &[(&str, f64)]) {
    let count = |name: &str| samples.get(name).copied().unwrap_or(0) as f64;
    let all: f64 = expected.iter().map(|(name, _)| count(name)).sum();
    for (name, share) in expected {
        let found = 100.0 * count(name) / all;
        assert!(
            (found - share).abs() < 5.0,
            "{name}: {found:.1} %, not {share} %: {samples:?}"
        );
    }
}

const CLOCK: &[&str] = &["-e", "cpu-clock:u", "-F", "1000"];

#[test]
fn shares_has_its_shares() {
    let shares = or_skip!(c("shares", &[]));
    let samples = or_skip!(samples_by("sym", CLOCK, &shares, &["400"]));
    assert_shares(
        &samples,
        &[("sixty", 60.0), ("thirty", 30.0), ("ten", 10.0)],
    );
}

#[test]
fn dlopen_has_its_shares() {
    let dlopen = or_skip!(c("dlopen", &[]));
    let first = or_skip!(shared_library(
        "plugin",
        "first",
        &["-DPLUGIN_WORK=first_work"]
    ));
    let second = or_skip!(shared_library(
        "plugin",
        "second",
        &["-DPLUGIN_WORK=second_work"]
    ));
    let arguments = [
        first.to_str().unwrap(),
        "first_work",
        second.to_str().unwrap(),
        "second_work",
        "400",
    ];
    let samples = or_skip!(samples_by("sym", CLOCK, &dlopen, &arguments));
    assert_shares(
        &samples,
        &[
            ("host_work", 40.0),
            ("first_work", 40.0),
            ("second_work", 20.0),
        ],
    );
}

#[test]
fn execs_names_its_stages() {
    let execs = or_skip!(c("execs", &[]));
    let samples = or_skip!(samples_by("comm", CLOCK, &execs, &["3", "100"]));
    assert_shares(
        &samples,
        &[("stage-1", 33.3), ("stage-2", 33.3), ("stage-3", 33.3)],
    );
}

#[test]
fn faults_has_its_faults() {
    let faults = or_skip!(c("faults", &[]));
    let options = ["-e", "page-faults:u", "-c", "1"];
    let samples = or_skip!(samples_by("sym", &options, &faults, &["300", "3"]));
    // The first call of the function, on no pages, may fault its own code in.
    let found = samples["touch_pages"];
    assert!((900..=901).contains(&found), "{samples:?}");
}
