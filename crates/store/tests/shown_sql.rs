//! Named questions show the SQL that they ask.

mod common;

use common::{Recording, run, store_command, text};
use dioptra_testprograms::or_skip;

#[test]
fn the_sql_of_a_question_is_shown() {
    let recording = or_skip!(Recording::of("shares", &["50"], &["-g"]));
    let store = recording.store();
    recording.add_to(&store);
    let words = [
        "query",
        "--store",
        &store,
        "top-functions",
        "--show-sql",
        "--format",
        "json",
    ];
    let output = common::checked(store_command().args(words));
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    let statements: Vec<&str> = messages
        .lines()
        .filter_map(|line| line.strip_prefix("# SQL: "))
        .collect();
    assert_eq!(statements.len(), 2, "{messages}");
    let again = run([
        "query",
        "--store",
        &store,
        "--format",
        "json",
        statements[1],
    ]);
    assert_eq!(again, text(&output));
}
