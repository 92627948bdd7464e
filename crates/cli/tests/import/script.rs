//! The text of `perf script`, beside what `perf report` shows of the same recording.

use crate::support::{by_function, done, inlined, inside, number, report, threads};
use dioptra_testprograms::{Recorded, or_skip};
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

fn perf(recorded: &Recorded, arguments: &[&str]) -> String {
    let output = Command::new("perf")
        .args(arguments)
        .arg("-i")
        .arg(inside(recorded, "perf.data"))
        .env("HOME", recorded.folder.path())
        .current_dir(recorded.folder.path())
        .output()
        .expect("perf runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && !text.is_empty(), "{arguments:?}");
    text
}

/// Returns perf's weights by function, which perf names without inlined functions.
fn perf_functions(recorded: &Recorded, event: usize) -> BTreeMap<String, u64> {
    let text = perf(
        recorded,
        &[
            "report",
            "--stdio",
            "--no-children",
            "-g",
            "none",
            "--no-inline",
            "-t",
            "\t",
            "-F",
            "period,sym",
            "-s",
            "sym",
        ],
    );
    let mut events: Vec<BTreeMap<String, u64>> = Vec::new();
    for line in text.lines() {
        if line.starts_with("# Samples:") {
            events.push(BTreeMap::new());
        }
        let Some((period, symbol)) = line.split_once('\t').filter(|_| !line.starts_with('#'))
        else {
            continue;
        };
        // [.] main, [k] do_syscall_64, [k] 0xffffffff81000000
        let name = symbol.trim().get(4..).unwrap_or_default().trim().to_owned();
        let name = match name.starts_with("0x") || name.starts_with("0000") {
            true => "[unknown]".to_owned(),
            false => name,
        };
        let sums = events.last_mut().expect("an event");
        *sums.entry(name).or_default() += period.trim().parse::<u64>().expect("a number");
    }
    events.swap_remove(event)
}

/// Returns a report's weights by function; all locations without a name are one.
fn functions(rows: &[BTreeMap<String, serde_json::Value>]) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for row in rows {
        let name = row["function"].as_str().expect("a name").to_owned();
        *sums.entry(name).or_default() += number(&row["weight"]);
    }
    sums
}

#[test]
fn functions_are_perf_report_s() {
    let recorded = or_skip!(inlined());
    let folder = recorded.folder.path();
    for fields in [
        "comm,pid,tid,time,event,ip,sym,dso,period",
        "comm,tid,cpu,time,event,ip,sym,symoff,dso,period",
        "comm,tid,event,ip,sym,dso,period",
    ] {
        let fields = fields.replace("cpu,", "");
        let text = perf(&recorded, &["script", "--no-inline", "-F", &fields]);
        fs::write(inside(&recorded, "script.txt"), text).expect("a file");
        let (_, said) = done(folder, &["import", "script.txt", "-o", "script.data"]);
        assert!(said.contains("from perf script"), "{said}");
        for (place, event) in ["cpu-clock", "page-faults"].iter().enumerate() {
            let rows = report(folder, &["-i", "script.data", "-e", event]);
            assert_eq!(
                functions(&rows),
                perf_functions(&recorded, place),
                "{fields} {event}"
            );
        }
    }
}

#[test]
fn inlined_functions_lines_threads_and_cpus_are_kept() {
    let recorded = or_skip!(inlined());
    let folder = recorded.folder.path();
    let text = perf(&recorded, &["script", "-F", "+srcline"]);
    let has_inlined = text.contains("(inlined)");
    fs::write(inside(&recorded, "script.txt"), &text).expect("a file");
    done(folder, &["import", "script.txt", "-o", "script.data"]);
    let (lines, _) = done(
        folder,
        &[
            "report",
            "-i",
            "script.data",
            "--by",
            "line",
            "-e",
            "cpu-clock",
            "--format",
            "csv",
        ],
    );
    assert!(lines.contains("inline.c"), "{lines}");
    if has_inlined {
        let rows = report(
            folder,
            &["-i", "script.data", "--inline", "-e", "cpu-clock"],
        );
        assert!(
            by_function(&rows, "weight").contains_key("step"),
            "{rows:?}"
        );
    }
    let recorded = or_skip!(threads());
    let folder = recorded.folder.path();
    let text = perf(
        &recorded,
        &[
            "script",
            "-F",
            "comm,pid,tid,cpu,time,event,ip,sym,dso,period",
        ],
    );
    fs::write(inside(&recorded, "script.txt"), &text).expect("a file");
    done(folder, &["import", "script.txt", "-o", "script.data"]);
    for (by, column) in [("thread", "tid"), ("cpu", "cpu"), ("comm", "comm")] {
        let sums = |input: &str| -> BTreeMap<String, u64> {
            let rows = report(folder, &["-i", input, "--by", by]);
            let each = rows.iter();
            each.map(|row| (row[column].to_string(), number(&row["weight"])))
                .collect()
        };
        assert_eq!(sums("script.data"), sums("perf.data"), "{by}");
    }
    // The whole second half of the time.
    let half = |input: &str| {
        let rows = report(folder, &["-i", input, "--time", "0.05..", "--by", "comm"]);
        rows.iter().map(|row| number(&row["samples"])).sum::<u64>()
    };
    let (text, original) = (half("script.data"), half("perf.data"));
    // perf prints microseconds.
    assert!(text.abs_diff(original) <= 1, "{text} {original}");
}
