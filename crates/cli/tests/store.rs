//! `dioptra store` and `dioptra query` run the program `dioptra-store`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// Runs dioptra under another name, beside which no `dioptra-store` lies.
fn dioptra(path: &Path, words: &[&str]) -> Output {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = folder.path().join("dioptra");
    fs::hard_link(env!("CARGO_BIN_EXE_dioptra"), &program).unwrap();
    Command::new(program)
        .args(words)
        .env("PATH", path)
        .output()
        .unwrap()
}

#[test]
fn a_missing_program_is_named_with_the_way_to_build_it() {
    let folder = tempfile::tempdir().unwrap();
    for words in [
        &["store", "list", "--store", "x"][..],
        &["query", "SELECT 1"],
    ] {
        let output = dioptra(folder.path(), words);
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("cargo install --path crates/store"), "{said}");
    }
}

#[test]
fn words_and_status_are_passed_on() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("dioptra-store");
    fs::write(&program, "#!/bin/sh\nprintf '<%s>' \"$@\"\nexit 7\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    for (words, passed) in [
        (
            &["store", "add", "a b", "--to", "-x", "--help"][..],
            "<add><a b><--to><-x><--help>",
        ),
        (
            &["query", "--store", "s", "SELECT 'a' -- b"],
            "<query><--store><s><SELECT 'a' -- b>",
        ),
        (&["store", "--help"], "<--help>"),
        (
            &["export", "--to", "parquet"],
            "<add><./perf.data><--to><profile.store>",
        ),
        (
            &[
                "export",
                "--to",
                "parquet",
                "-i-x",
                "-o",
                "s",
                "--no-inline",
            ],
            "<add><./-x><--to><s><--no-inline>",
        ),
        (
            &["export", "--to", "parquet", "-d", "/a/b", "--symfs", "/"],
            "<add></a/b><--to><profile.store><--symfs></>",
        ),
    ] {
        let output = dioptra(folder.path(), words);
        assert_eq!(String::from_utf8_lossy(&output.stdout), passed);
        assert_eq!(output.status.code(), Some(7));
    }
}

#[test]
fn exports_of_tables_hold_everything() {
    let folder = tempfile::tempdir().unwrap();
    for (words, expected) in [
        (&["--comm", "x"][..], "--comm"),
        (&["-o", "-"], "files in a folder"),
        (&["--value", "samples"], "--value"),
        (&["--no-demangle"], "--no-demangle"),
        (&[], "cargo install --path crates/store"),
    ] {
        let words = [&["export", "--to", "parquet"], words].concat();
        let output = dioptra(folder.path(), &words);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(expected), "{said}");
    }
}
