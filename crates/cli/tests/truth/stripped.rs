//! Functions of stripped programs: the unwind tables tell where they lie.

use crate::compare::assert_equal;
use crate::table::{array, string};
use crate::{Recorder, record};
use dioptra_testprograms::{self as programs, or_skip};
use std::collections::BTreeMap;
use std::process::Command;

#[test]
fn functions_without_a_name_are_told_apart() {
    for tool in ["strip", "nm"] {
        or_skip!(programs::need_tool(tool));
    }
    let path = or_skip!(programs::c("shares", &[]));
    let output = Command::new("nm").arg(&path).output().expect("nm runs");
    let text = String::from_utf8(output.stdout).expect("text");
    // The program's code lies in the file where it lies in memory, so that a file offset is an address.
    let starts: BTreeMap<&str, u64> = text
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let start = u64::from_str_radix(words.next()?, 16).ok()?;
            Some((words.nth(1)?, start))
        })
        .collect();
    let folder = tempfile::tempdir().expect("a folder");
    let stripped = folder.path().join("nameless");
    let status = Command::new("strip")
        .arg("-o")
        .args([&stripped, &path])
        .status();
    assert!(status.expect("strip runs").success());
    let recorded = or_skip!(record(
        Recorder::Dioptra,
        &["-F", "2000"],
        &[stripped.as_os_str()]
    ));
    assert_equal(&recorded.recording);
    let json = recorded.recording.ours_json(&[]);
    let ids: Vec<String> = array(&json["columns"])
        .iter()
        .map(|column| string(&column["id"]))
        .collect();
    let index = |id: &str| ids.iter().position(|known| known == id).expect("a column");
    let share_of = |name: &str| {
        let start = format!("[{:#x}]", starts[name]);
        let row = array(&json["rows"]).iter().find(|row| {
            let cells = array(&row["cells"]);
            string(&cells[index("module")]) == "nameless"
                && string(&cells[index("function")]) == start
        });
        let row = row.unwrap_or_else(|| panic!("{name} at {start} is no row"));
        array(&row["cells"])[index("self_percent")]
            .as_f64()
            .expect("a share")
    };
    for (name, expected) in [("sixty", 60.0), ("thirty", 30.0), ("ten", 10.0)] {
        let found = share_of(name);
        // Ten points leave room for a machine that was stopped in between.
        assert!((found - expected).abs() < 10.0, "{name} {found} %");
    }
    assert!(
        json["facts"].to_string().contains("stripped"),
        "{}",
        json["facts"]
    );
}
