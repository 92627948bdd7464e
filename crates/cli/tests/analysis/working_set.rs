//! `dioptra report --working-set`: distinct cache lines and pages of code.

use super::{dioptra, record, report, text};
use dioptra_testprograms::{self as programs, or_skip};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

#[test]
fn lines_and_pages_are_those_of_perf_s_addresses() {
    let shares = or_skip!(programs::c("shares", &[]));
    let recorded = or_skip!(record(
        &["-e", "cpu-clock", "-F", "4000"],
        &[shares.as_os_str(), "200".as_ref()]
    ));
    let output = Command::new("perf")
        .args(["script", "-F", "ip,sym", "-i"])
        .arg(&recorded.file)
        .output()
        .expect("perf runs");
    // Mappings begin at pages, so that lines and pages are the same in memory and in the file.
    let mut perfs: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    for line in text(&output.stdout).lines() {
        let mut words = line.split_whitespace();
        if let (Some(address), Some(name)) = (words.next(), words.next()) {
            let address = u64::from_str_radix(address, 16).expect("an address");
            perfs.entry(name.to_owned()).or_default().insert(address);
        }
    }
    let size = |name: &str, bits: u32| -> u64 {
        let addresses = perfs[name].iter();
        let distinct: BTreeSet<u64> = addresses.map(|address| address >> bits).collect();
        distinct.len() as u64
    };
    let table = report(&recorded.file, &["--working-set"]);
    for name in ["sixty", "thirty", "ten"] {
        let row = table.rows.iter().find(|row| row.text("function") == name);
        let row = row.expect("the function");
        assert_eq!(row.count("code_lines"), size(name, 6), "{name}");
        assert_eq!(row.count("code_pages"), size(name, 12), "{name}");
    }
    assert_eq!(table.facts["working_set"]["value"]["lower_bound"], true);
    // A row above counts a line once that several rows below share, and no line twice.
    let levels = report(
        &recorded.file,
        &["--working-set", "--by", "process,module,instruction"],
    );
    for row in &levels.rows {
        let below = |other: &&super::Row| {
            let mut above = other.parent;
            while let Some(id) = above {
                if id == row.id {
                    return true;
                }
                above = levels
                    .rows
                    .iter()
                    .find(|row| row.id == id)
                    .and_then(|row| row.parent);
            }
            other.id == row.id
        };
        let lines: BTreeSet<(String, u64)> = levels
            .rows
            .iter()
            .filter(|row| row.text("level") == "instruction")
            .filter(below)
            .map(|row| {
                let digits = row.text("address").trim_start_matches("0x");
                let address = u64::from_str_radix(digits, 16).expect("an address");
                (row.text("module_id").to_owned(), address >> 6)
            })
            .collect();
        assert_eq!(row.count("code_lines"), lines.len() as u64, "{row:?}");
    }
    let file = recorded.file.to_str().expect("a path");
    let wrong = dioptra(&["sum", file, file, "--working-set"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong.stderr));
}
