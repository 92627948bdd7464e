//! Source lines and addresses, checked with addr2line.

use crate::table::{UNKNOWN, array, string};
use crate::{Recorder, record};
use dioptra_testprograms::{self as programs, or_skip};
use std::collections::BTreeMap;
use std::process::Command;

#[test]
fn lines_are_addr2lines() {
    or_skip!(programs::need_tool("addr2line"));
    let path = or_skip!(programs::c("shares", &["-g"]));
    let recorded = or_skip!(record(Recorder::Perf, &["-F", "2000"], &[path.as_os_str()]));
    let rows = |by: &str| -> Vec<BTreeMap<String, String>> {
        let json = recorded.recording.ours_json(&["--by", by]);
        let ids: Vec<String> = array(&json["columns"])
            .iter()
            .map(|column| string(&column["id"]))
            .collect();
        array(&json["rows"])
            .iter()
            .map(|row| {
                let cells = array(&row["cells"]).iter().map(|cell| match cell {
                    serde_json::Value::String(text) => text.clone(),
                    other => other.to_string(),
                });
                ids.iter().cloned().zip(cells).collect::<BTreeMap<_, _>>()
            })
            .filter(|row| row["module"] == "shares")
            .collect()
    };
    let weight = |row: &BTreeMap<String, String>| row["weight"].parse::<u64>().expect("a weight");
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for row in rows("address") {
        // The program's code lies in the file where it lies in memory, so that a file offset is an address.
        let output = Command::new("addr2line")
            .arg("-e")
            .arg(&path)
            .arg(&row["address"])
            .output()
            .expect("addr2line runs");
        let line = String::from_utf8_lossy(&output.stdout);
        let line = line.split_whitespace().next().expect("a line");
        let line = if line.starts_with("??") {
            UNKNOWN
        } else {
            line
        };
        *expected.entry(line.to_owned()).or_default() += weight(&row);
    }
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for row in rows("line") {
        let line = match row["file"].as_str() {
            UNKNOWN => UNKNOWN.to_owned(),
            file => format!("{file}:{}", row["line"]),
        };
        *found.entry(line).or_default() += weight(&row);
    }
    assert!(found.keys().any(|line| line != UNKNOWN), "{found:?}");
    assert_eq!(found, expected);
}
