//! Programs that are installed here: their functions, with and without call chains, recorded as root and as nobody.

use crate::compare::assert_equal;
use crate::table::{Recording, Table};
use crate::{BOTH, Recorded, Recorder, record};
use dioptra_testprograms::{self as programs, Skip, or_skip};
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Stdio;

const OPTIONS: [&[&str]; 2] = [&["-F", "4000"], &["-F", "4000", "-g"]];

/// Records the command in every way, and compares. It must have been seen at work.
#[track_caller]
fn check(command: &[&str]) {
    or_skip!(programs::need_tool(command[0]));
    for recorder in BOTH {
        for options in OPTIONS {
            let recorded = or_skip!(record(recorder, options, command));
            assert!(samples(&assert_equal(&recorded.recording)) > 0);
        }
    }
}

fn samples(table: &Table) -> u64 {
    table.values().flatten().map(|row| row.samples).sum()
}

/// Records as `nobody`, who may not watch the kernel on most machines.
fn record_as_nobody(
    recorder: Recorder,
    options: &[&str],
    command: &[&str],
) -> Result<Recorded, Skip> {
    programs::need_sampling()?;
    let mut nobody = programs::as_nobody(match recorder {
        Recorder::Perf => "perf",
        Recorder::Dioptra => env!("CARGO_BIN_EXE_dioptra"),
    })?;
    let folder = tempfile::tempdir().expect("a folder");
    let open = PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(folder.path(), open).expect("an open folder");
    let file = folder.path().join("perf.data");
    let cache = folder.path().join("cache");
    std::fs::create_dir(&cache).expect("a folder");
    let output = nobody
        .args(["record", "-e", "cpu-clock"])
        .args(options)
        .arg("-o")
        .arg(&file)
        .arg("--")
        .args(command)
        .env("HOME", folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .expect("the recorder starts");
    if !file.exists() && programs::paranoid().is_some_and(|level| level > 2) {
        return Err(Skip::new("nobody may not sample here"));
    }
    assert!(
        file.exists(),
        "{command:?} as nobody: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    // perf reads files of its own user only.
    chown(&file, Some(0), Some(0)).expect("root may");
    Ok(Recorded {
        _folder: folder,
        recording: Recording { file, cache },
    })
}

#[track_caller]
fn check_as_nobody(command: &[&str]) {
    or_skip!(programs::need_tool(command[0]));
    for recorder in BOTH {
        for options in OPTIONS {
            let recorded = or_skip!(record_as_nobody(recorder, options, command));
            let table = assert_equal(&recorded.recording);
            assert!(samples(&table) > 0);
            if programs::paranoid() == Some(2) {
                let rows = table.values().flatten();
                let kernel = rows.filter(|row| row.module.starts_with("[kernel"));
                assert_eq!(kernel.count(), 0, "nobody may not watch the kernel");
            }
        }
    }
}

const SQL: &str = "create table t(a integer, b text);
with recursive c(x) as (select 1 union all select x + 1 from c where x < 60000)
  insert into t select x, hex(x * 7919) from c;
create index i on t(b); select count(*), max(b), sum(a) from t where b like '%9%' group by a % 10 order by 2;";

const PYTHON: &str = "import json
for i in range(30): json.loads(json.dumps([{'a': i, 'b': [1, 2, 3]}] * 2000))";

const PERL: &str = "my %h; for my $i (1..150000) { $h{$i % 977} .= chr(65 + $i % 26); } print join(',', sort values %h);";

const AWK: &str = "BEGIN { for (i = 0; i < 300000; i++) a[i % 1000] = a[i % 1000] \"x\" i % 7; print length(a[5]) }";

const SORT: &str = "seq 200000 | rev | sort | md5sum";

const GZIP: &str = "seq 300000 | gzip -9 | gzip -d | cksum";

#[test]
fn sqlite() {
    check(&["sqlite3", ":memory:", SQL]);
}

#[test]
fn find_files() {
    check(&["find", "/usr", "-name", "*.so*", "-newer", "/etc/hostname"]);
}

#[test]
fn rust_compiler() {
    // Long enough that one sample is little: perf does not name every address of rustc's own library.
    let functions: String = (0..150)
        .map(|n| HELLO.replace("NUMBER", &n.to_string()))
        .collect();
    let source = or_skip!(sources("functions.rs", &functions));
    let path = source.path().join("functions.rs");
    let path = path.to_str().expect("a path");
    let options = [
        "--crate-type",
        "lib",
        "--emit=metadata",
        "-o",
        "functions.rmeta",
    ];
    check(&[&["rustc"], &options[..], &[path]].concat());
}

const HELLO: &str =
    "pub fn count_NUMBER(words: &[String]) -> std::collections::BTreeMap<String, usize> {
    let mut map = std::collections::BTreeMap::new();
    for word in words.iter().filter(|word| word.len() > NUMBER) {
        *map.entry(format!(\"{word}{}\", NUMBER)).or_insert(0) += word.chars().rev().count();
    }
    map
}
";

/// A folder with a source file.
fn sources(name: &str, text: &str) -> Result<tempfile::TempDir, Skip> {
    let folder = tempfile::tempdir().map_err(|error| Skip::new(error.to_string()))?;
    std::fs::write(folder.path().join(name), text).map_err(|error| Skip::new(error.to_string()))?;
    Ok(folder)
}

#[test]
fn perl() {
    check(&["perl", "-e", PERL]);
}

#[test]
fn awk() {
    check(&["awk", AWK]);
}

#[test]
fn a_pipe_of_programs() {
    check(&["sh", "-c", SORT]);
    check(&["sh", "-c", GZIP]);
}

#[test]
fn without_root() {
    check_as_nobody(&["python3", "-c", PYTHON]);
    check_as_nobody(&["sqlite3", ":memory:", SQL]);
    check_as_nobody(&["find", "/usr", "-name", "*.so*"]);
    check_as_nobody(&["sh", "-c", COMPILE]);
}

const COMPILE: &str = "printf '#include <stdio.h>\\n#include <stdlib.h>\\nint main(void){return 0;}\\n' | gcc -O2 -S -x c -o - -";
