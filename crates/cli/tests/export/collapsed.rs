//! Collapsed stacks.

use crate::support::{by_function, done, inlined, report, threads};
use dioptra_testprograms::or_skip;
use std::collections::BTreeMap;

/// The lines: names, outermost first, and the value.
fn lines(text: &str) -> Vec<(Vec<&str>, u64)> {
    let each = text.lines().map(|line| {
        let (names, value) = line.rsplit_once(' ').expect("a value");
        (names.split(';').collect(), value.parse().expect("a number"))
    });
    each.collect()
}

#[test]
fn innermost_functions_and_totals_are_the_report_s() {
    let recorded = or_skip!(inlined());
    let folder = recorded.folder.path();
    for (event, value) in [
        ("cpu-clock", "weight"),
        ("cpu-clock", "samples"),
        ("page-faults", "samples"),
    ] {
        let (text, said) = done(
            folder,
            &["export", "--to", "collapsed", "-e", event, "--value", value],
        );
        assert!(said.contains("collapsed has no place for"), "{said}");
        let rows = report(folder, &["--inline", "-e", event]);
        let expected = by_function(&rows, value);
        let mut found: BTreeMap<String, u64> = BTreeMap::new();
        for (names, value) in lines(&text) {
            let innermost = names.last().expect("a name");
            *found.entry((*innermost).to_owned()).or_default() += value;
        }
        assert_eq!(found, expected, "{event} {value}");
        if event == "cpu-clock" {
            assert!(
                text.contains(";outer;mixer;step "),
                "no inlined functions below their callers:\n{text}"
            );
        }
    }
    let (text, _) = done(folder, &["export", "--to", "collapsed", "--no-inline"]);
    assert!(
        text.contains(";outer ") && !text.contains("mixer"),
        "{text}"
    );
}

#[test]
fn the_first_names_are_the_threads() {
    let recorded = or_skip!(threads());
    let folder = recorded.folder.path();
    let (text, _) = done(folder, &["export", "--to", "collapsed"]);
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for (names, value) in lines(&text) {
        *found.entry(names[0].to_owned()).or_default() += value;
    }
    let rows = report(folder, &["--by", "comm"]);
    let expected = rows.iter().map(|row| {
        let comm = row["comm"].as_str().expect("a name").to_owned();
        (comm, crate::support::number(&row["weight"]))
    });
    assert_eq!(found, expected.collect());
    assert!(found.contains_key("worker-1"), "{found:?}");
    // A selection as in reports.
    let (part, _) = done(
        folder,
        &["export", "--to", "collapsed", "--comm", "worker-1"],
    );
    let sum: u64 = lines(&part).iter().map(|(_, value)| value).sum();
    assert_eq!(sum, found["worker-1"]);
}
