//! The page's numbers of a trace are those of `dioptra trace report`, `graph` and `replay`, and samples and calls share a clock.

use super::{Page, dioptra, output};
use dioptra_testprograms::{self as programs, Skip, or_skip};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// The columns that the page asks for.
const FIELDS: &str = "total,self,call,total-avg,total-min,total-max,total-stdv,total-p50,total-p90,total-p99,self-avg,self-min,self-max,self-stdv,self-p50,self-p90,self-p99,size";

/// A trace of a program with threads, with the profile of the same run if samples can be taken.
fn recorded(folder: &Path, sampled: bool) -> Result<(PathBuf, PathBuf), Skip> {
    let program = programs::c("threads", &["-g", "-O1", "-pthread"])?;
    let (trace, profile) = (folder.join("dioptra.trace"), folder.join("perf.data"));
    let mut command = match sampled {
        true => {
            programs::need_sampling()?;
            let mut command = dioptra(&["record", "-q", "-F", "2000", "-e", "cpu-clock:u", "-o"]);
            command
                .arg(&profile)
                .arg("--")
                .arg(env!("CARGO_BIN_EXE_dioptra"));
            command
        }
        false => dioptra(&[]),
    };
    let status = command
        .args(["trace", "record", "-P", ".", "-d"])
        .arg(&trace)
        .arg(&program)
        .args(["3", "20"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .expect("dioptra runs");
    assert!(status.success(), "{status}");
    Ok((trace, profile))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path")
}

/// The values of a column of a table, by the ids of its rows' functions or threads.
fn cells(table: &Value, id: &str, key: &str) -> Vec<(Value, Value)> {
    let columns = table["columns"].as_array().expect("columns");
    let place = |id: &str| {
        let place = columns.iter().position(|column| column["id"] == id);
        place.unwrap_or_else(|| panic!("no column {id}"))
    };
    let (key, value) = (place(key), place(id));
    let rows = table["rows"].as_array().expect("rows").iter();
    rows.map(|row| (row["cells"][key].clone(), row["cells"][value].clone()))
        .collect()
}

#[test]
fn numbers_of_a_trace_are_those_of_the_commands() {
    let folder = tempfile::tempdir().expect("a folder");
    let (trace, _) = or_skip!(recorded(folder.path(), false));
    let trace = text(&trace);
    let page = Page::open(&[trace]);
    page.wait_until_ready();
    let report = output(&[
        "trace", "report", "-d", trace, "--format", "json", "-f", FIELDS,
    ]);
    let report: Value = serde_json::from_slice(&report.stdout).expect("JSON");
    let table = page.ask("/api/trace/table?count=2000");
    let columns = report["columns"].as_array().expect("columns");
    assert!(columns.len() >= 14);
    for column in columns {
        let id = column["id"].as_str().expect("an id");
        let (found, expected) = (
            cells(&table, id, "function_id"),
            cells(&report, id, "function_id"),
        );
        assert_eq!(found, expected, "{id}");
        assert!(!found.is_empty());
    }
    let tasks = output(&["trace", "report", "-d", trace, "--format", "json", "--task"]);
    let tasks: Value = serde_json::from_slice(&tasks.stdout).expect("JSON");
    let threads = page.ask("/api/trace/table?by=thread&count=2000");
    for id in ["task", "total", "self", "calls"] {
        let sorted = |table: &Value| {
            let mut cells = cells(table, id, "tid");
            cells.sort_by_key(|(tid, _)| tid.as_u64());
            cells
        };
        assert_eq!(sorted(&threads), sorted(&tasks), "{id}");
    }
    // The graph counts every call once, and its own times are all the time there is.
    let graph = page.ask("/api/trace/graph?least=0&count=200000");
    let sum = |list: &Value| -> u64 {
        let list = list.as_array().expect("a list").iter();
        list.map(|value| value.as_u64().expect("a number")).sum()
    };
    let total = |id: &str| -> u64 {
        let cells = cells(&report, id, "function_id").into_iter();
        cells
            .map(|(_, value)| value.as_u64().expect("a number"))
            .sum()
    };
    assert_eq!(sum(&graph["nodes"]["own"][0]), total("self"));
    assert_eq!(sum(&graph["nodes"]["own_samples"][0]), total("calls"));
    // The first rows come before all are counted, and are the same afterwards.
    let preview = page.ask("/api/trace/replay?from=3&count=40&preview=1");
    assert_eq!(
        (&preview["counted"], &preview["total_rows"]),
        (&false.into(), &43.into())
    );
    let counted = page.ask("/api/trace/replay?from=3&count=40");
    assert_eq!(preview["rows"], counted["rows"]);
    assert_eq!(counted["counted"], true);
    let known = page.ask("/api/trace/replay?from=3&count=40&preview=1");
    assert_eq!(known, counted, "the rows are counted already");
    // A line of the command for each row.
    let replay = output(&["trace", "replay", "-d", trace, "-f", "none"]);
    let lines = String::from_utf8_lossy(&replay.stdout).into_owned();
    let lines = lines.lines().take_while(|line| !line.is_empty()).count();
    assert_eq!(page.ask("/api/trace/replay?count=1")["total_rows"], lines);
    page.end();
}

#[test]
fn a_static_report_holds_answers_about_a_trace() {
    let folder = tempfile::tempdir().expect("a folder");
    let (trace, _) = or_skip!(recorded(folder.path(), false));
    let report = folder.path().join("report.html");
    let written = output(&["web", "--export", text(&report), text(&trace)]);
    let said = String::from_utf8_lossy(&written.stderr).into_owned();
    assert_eq!(written.status.code(), Some(0), "{said}");
    let html = std::fs::read_to_string(&report).expect("the report");
    assert!(html.len() < 5_000_000);
    for key in [
        "trace?profile=0",
        "trace/table?profile=0",
        "trace/table?by=thread&profile=0",
        "trace/graph?profile=0",
        "trace/graph?profile=0&weight=calls",
        "trace/timeline?depth=100&profile=0",
        "trace/replay?profile=0",
        "trace/slowest?function=",
    ] {
        assert!(html.contains(&format!("\"{key}")), "{key}: {said}");
    }
    for part in ["functions.", "replay, ", "The slowest calls of"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn samples_and_calls_share_an_axis_of_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let (trace, profile) = or_skip!(recorded(folder.path(), true));
    let page = Page::open(&[text(&profile), text(&trace)]);
    page.wait_until_ready();
    let began = std::time::Instant::now();
    while page.ask("/api/status")["profiles"][1]["state"] != "ready" {
        assert!(began.elapsed().as_secs() < 60);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let number = |value: &Value| value.as_u64().expect("a number");
    let (samples, calls) = (page.ask("/api/profile"), page.ask("/api/trace?profile=1"));
    let first = number(&samples["first_time_ns"]);
    let last = first + number(&samples["duration_ns"]);
    // The tracer was sampled before the program began and until it had ended.
    let begin = number(&calls["first_time_ns"]);
    let end = begin + number(&calls["duration_ns"]);
    assert!(
        first < begin && begin < last && end < last + 1_000_000_000,
        "{first} {begin} {end} {last}"
    );
    // The traced threads have samples in the time of their calls.
    let tids: Vec<String> = calls["threads"]
        .as_array()
        .expect("threads")
        .iter()
        .map(|thread| thread["key"]["thread"].as_str().expect("a key").to_owned())
        .collect();
    let time = format!("{}..{}", begin - first, end - first + 1);
    let table = page.ask(&format!("/api/table?by=thread&time={time}"));
    let rows = table["rows"].as_array().expect("rows");
    let sampled = rows.iter().filter(|row| {
        let key = row["key"]["thread"].as_str();
        key.is_some_and(|key| tids.iter().any(|tid| tid == key))
    });
    assert!(sampled.count() > 0, "{tids:?} {table}");
    page.end();
}
