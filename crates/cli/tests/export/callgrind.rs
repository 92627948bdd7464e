//! Callgrind's format, read by `callgrind_annotate`.

use crate::support::{by_function, done, inlined, report};
use dioptra_testprograms::{self as programs, or_skip};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Returns callgrind_annotate's costs by function, for one event, and its total.
pub fn annotated(folder: &Path, event: &str, inclusive: bool) -> (BTreeMap<String, u64>, u64) {
    let output = Command::new("callgrind_annotate")
        .args(["--threshold=100", "--auto=no"])
        .arg(format!("--show={event}"))
        .arg(format!("--sort={event}"))
        .arg(format!(
            "--inclusive={}",
            if inclusive { "yes" } else { "no" }
        ))
        .arg("callgrind.out.dioptra")
        .current_dir(folder)
        .output()
        .expect("callgrind_annotate runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}{text}");
    let mut functions = BTreeMap::new();
    let mut total = None;
    for line in text.lines() {
        // "1,234,567 (12.34%)  file:function [object]"
        let Some((cost, rest)) = line.trim_start().split_once(' ') else {
            continue;
        };
        let Ok(cost) = cost.replace(',', "").parse::<u64>() else {
            continue;
        };
        let place = match rest.split_once(')') {
            Some((_, place)) => place.trim(),
            None => continue,
        };
        if place == "PROGRAM TOTALS" {
            total = Some(cost);
            continue;
        }
        let (_, function) = place.split_once(':').expect("a function");
        // The object stands behind the name.
        let function = function
            .rsplit_once(" [")
            .map_or(function, |(name, _)| name);
        *functions.entry(function.to_owned()).or_default() += cost;
    }
    functions.retain(|_, cost| *cost > 0);
    (
        functions,
        total.unwrap_or_else(|| panic!("no total in:\n{text}")),
    )
}

#[test]
fn costs_and_totals_are_the_report_s() {
    or_skip!(programs::need_tool("callgrind_annotate"));
    let recorded = or_skip!(inlined());
    let folder = recorded.folder.path();
    done(folder, &["export", "--to", "callgrind"]);
    for (shown, event, column) in [
        ("cpu_clock", "cpu-clock", "weight"),
        ("samples_cpu_clock", "cpu-clock", "samples"),
        ("page_faults", "page-faults", "weight"),
    ] {
        let (own, total) = annotated(folder, shown, false);
        let rows = report(folder, &["--inline", "-e", event]);
        let expected = by_function(&rows, column);
        assert_eq!(own, expected, "{shown}");
        assert_eq!(total, expected.values().sum::<u64>(), "{shown}");
    }
    // With calls.
    let (inclusive, _) = annotated(folder, "cpu_clock", true);
    let rows = report(folder, &["--inline", "--children", "-e", "cpu-clock"]);
    let expected = by_function(&rows, "total_weight");
    for function in ["outer", "mixer", "shaker", "step"] {
        assert_eq!(inclusive[function], expected[function], "{function}");
    }
}

#[test]
fn recursion_counts_once() {
    or_skip!(programs::need_tool("callgrind_annotate"));
    let flags = ["-fno-omit-frame-pointer", "-fno-optimize-sibling-calls"];
    let program = or_skip!(programs::c("recursion", &flags));
    let words: [&std::ffi::OsStr; 4] = [
        program.as_os_str(),
        "50".as_ref(),
        "100000".as_ref(),
        "30".as_ref(),
    ];
    let options = ["-e", "cpu-clock:u", "-g", "-F", "1999"];
    let recorded = or_skip!(programs::perf_record(&options, &words));
    let folder = recorded.folder.path();
    done(folder, &["export", "--to", "callgrind"]);
    let (inclusive, _) = annotated(folder, "cpu_clock_u", true);
    let rows = report(folder, &["--children", "--inline"]);
    let expected = by_function(&rows, "total_weight");
    for function in ["main", "descend", "fib"] {
        assert_eq!(inclusive[function], expected[function], "{function}");
    }
}
