//! Standard errors, and what is marked.

use super::{record, report, shown};
use dioptra_testprograms::{self as programs, or_skip};

#[test]
fn errors_are_those_of_counting() {
    let shares = or_skip!(programs::c("shares", &[]));
    // A fixed period: all samples weigh the same.
    let recorded = or_skip!(record(&["-e", "cpu-clock", "-c", "500000"], &[&shares]));
    let table = report(&recorded.file, &[]);
    let all = table.total("samples") as f64;
    for row in table.rows.iter().filter(|row| row.count("samples") > 0) {
        let samples = row.count("samples") as f64;
        let error = |column: &str| row.errors[column].as_f64().expect("an error");
        let near = |found: f64, expected: f64| {
            assert!(
                (found - expected).abs() <= 1e-9 * expected.max(1.0),
                "{found} {expected} {row:?}"
            );
        };
        near(error("samples"), samples.sqrt());
        near(error("weight"), 500_000.0 * samples.sqrt());
        let share = samples / all;
        if row.count("samples") < all as u64 {
            near(
                error("self_percent"),
                100.0 * (share * (1.0 - share) / all).sqrt(),
            );
        }
    }
    // Text shows them on request.
    let file = recorded.file.to_str().expect("a path");
    assert!(!shown(&["report", "-i", file]).contains('±'));
    let with = shown(&["report", "-i", file, "--errors", "--few", "1000000"]);
    assert!(with.contains('±') && with.contains("%?"), "{with}");
    assert!(with.contains("fewer than 1000000 samples"), "{with}");
}
