//! The trust in rows, the form of rows without trust, and the choice of the source of windows.

use super::made::{Made, Truth};
use super::{dioptra, facts, json, list, number, row, shown};
use dioptra_testprograms::{self as programs, or_skip};
use serde_json::Value;
use std::path::Path;

/// Returns the line of a text table that names a function.
fn line(text: &str, function: &str) -> String {
    let mut lines = text.lines();
    let found = lines.find(|line| line.split_whitespace().next_back() == Some(function));
    found
        .unwrap_or_else(|| panic!("{function}: {text}"))
        .to_owned()
}

/// Returns the error of a refused command, which is one line.
#[track_caller]
fn refusal(arguments: &[&str]) -> String {
    let output = dioptra(arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    error
}

fn text_of(file: &Path) -> &str {
    file.to_str().expect("a path")
}

/// A row that runs shorter than windows has a value, but nothing that looks like an interval.
#[test]
fn unreliable_rows_have_no_interval() {
    let made = or_skip!(Made::new(&Truth::default()));
    let text = shown(&["metrics", "-i", text_of(&made.file), "--set", "ipc"]);
    let (trusted, doubted) = (line(&text, "sixty"), line(&text, "ten"));
    assert!(
        trusted.contains(" high ") && trusted.matches('±').count() == 2,
        "{text}"
    );
    assert!(!trusted.contains('['), "{text}");
    // The remaining `±` belongs to the row's share of the time.
    assert!(
        doubted.contains(" unreliable ") && doubted.matches('±').count() == 1,
        "{text}"
    );
    assert!(doubted.contains('[') && doubted.contains(']'), "{text}");
    let table = json("metrics", &made.file, &["--set", "ipc"]);
    let row_of = |name: &str| row(&table, "function", name).expect("a row");
    let (trusted, doubted) = (row_of("sixty"), row_of("ten"));
    let limits = ["low", "high", "raw_low", "raw_high", "needs_s"];
    for limit in limits.map(|limit| format!("ipc_{limit}")) {
        assert!(trusted[&limit].is_number(), "{limit} {trusted:?}");
        assert!(doubted[&limit].is_null(), "{limit} {doubted:?}");
    }
    assert!(number(&doubted, "ipc_raw") > 0.0);
    assert_eq!(facts(&table, "unreliable_values").len(), 1);
    let notes: Vec<&Value> = list(&table["rows"])
        .iter()
        .filter(|row| row.to_string().contains("\"ten\""))
        .map(|row| &row["notes"])
        .collect();
    assert!(notes[0].to_string().contains("unreliable"), "{notes:?}");
    // The same holds beside other columns.
    let text = shown(&["report", "-i", text_of(&made.file), "--metric", "ipc"]);
    assert!(
        line(&text, "ten").contains('[') && !line(&text, "sixty").contains('['),
        "{text}"
    );
}

/// A change that neighbours may have caused is not significant.
#[test]
fn differences_of_unreliable_rows_are_not_significant() {
    let before = or_skip!(Made::new(&Truth::default()));
    let after = or_skip!(Made::new(&Truth {
        seed: 2,
        ipc: [3.0, 1.0, 4.5],
        ..Truth::default()
    }));
    let (a, b) = (text_of(&before.file), text_of(&after.file));
    let text = shown(&["diff", a, b, "--metric", "ipc", "--format", "json"]);
    let table: Value = serde_json::from_str(&text).expect("JSON");
    let row_of = |name: &str| row(&table, "function", name).expect("a row");
    let (trusted, doubted) = (row_of("sixty"), row_of("ten"));
    assert!(number(&trusted, "b_ipc_q") < 0.001, "{trusted:?}");
    assert!(number(&doubted, "b_ipc_delta") > 1.0, "{doubted:?}");
    for column in ["b_ipc_q", "b_ipc_delta_low", "b_ipc_delta_high"] {
        assert!(doubted[column].is_null(), "{column} {doubted:?}");
    }
    assert_eq!(doubted["b_ipc_significance"], "");
}

/// Windows that end in the kernel count for the function that entered it: with the same rates as if it had been left
/// out, and the kernel's part beside.
#[test]
fn windows_that_end_in_the_kernel_count_for_their_function() {
    let without = or_skip!(Made::new(&Truth::default()));
    let with = or_skip!(Made::new(&Truth {
        kernel: true,
        ..Truth::default()
    }));
    let table = |made: &Made, more: &[&str]| {
        let all = [&["--set", "ipc"], more].concat();
        json("metrics", &made.file, &all)
    };
    let (expected, found) = (table(&without, &[]), table(&with, &[]));
    for name in ["sixty", "thirty", "ten"] {
        let (expected, found) = (
            row(&expected, "function", name).expect("a row"),
            row(&found, "function", name).expect("a row"),
        );
        for column in ["kept_windows", "windows", "trust", "ipc_raw", "samples"] {
            assert_eq!(expected[column], found[column], "{name} {column}");
        }
        assert_eq!(number(&expected, "kernel_percent"), 0.0, "{name}");
        let inside = number(&found, "kernel_percent");
        assert!((35.0..65.0).contains(&inside), "{name} {inside}");
    }
    // The kernel has rows of its own on request, and functions lose the windows.
    let apart = table(&with, &["--kernel-apart"]);
    let kept = |table: &Value| {
        number(
            &row(table, "function", "sixty").expect("a row"),
            "kept_windows",
        )
    };
    assert!(
        kept(&apart) < 0.6 * kept(&found),
        "{} {}",
        kept(&apart),
        kept(&found)
    );
    assert!(
        row(&apart, "function", "sixty")
            .expect("a row")
            .get("kernel_percent")
            .is_none()
    );
    // A metric has the same meaning in other commands.
    let report = json("report", &with.file, &["--metric", "ipc"]);
    let (one, other) = (
        row(&report, "function", "sixty").expect("a row"),
        row(&found, "function", "sixty").expect("a row"),
    );
    assert_eq!(
        (&one["ipc"], &one["kept_windows"]),
        (&other["ipc"], &other["kept_windows"])
    );
}

/// Where windows count user code alone, shares of that code make the program's counts. The kernel's time is shown, and
/// is no part of the sum.
#[test]
fn events_of_user_code_close_without_the_kernel() {
    let made = or_skip!(Made::new(&Truth {
        user_only: true,
        ..Truth::default()
    }));
    let table = json("metrics", &made.file, &[]);
    let sixty = row(&table, "function", "sixty").expect("a row");
    assert!(
        (45.0..55.0).contains(&number(&sixty, "kernel_percent")),
        "{sixty:?}"
    );
    assert!(number(&sixty, "share_percent") > 70.0, "{sixty:?}");
    let closures = facts(&table, "closure");
    assert_eq!(closures.len(), 2, "{closures:?}");
    for closure in closures {
        assert_eq!(closure["holds"], true, "{closure}");
        assert!(
            closure["error"].as_f64().expect("a number").abs() < 0.1,
            "{closure}"
        );
    }
}

/// Where functions run shorter than windows, other rows that run longer are proposed, with their benefit.
#[test]
fn longer_rows_are_proposed_where_functions_are_too_short() {
    let made = or_skip!(Made::new(&Truth {
        stays: [0.3; 3],
        ..Truth::default()
    }));
    let table = json("metrics", &made.file, &["--set", "ipc"]);
    let trust = facts(&table, "trust")[0];
    assert!(trust["unreliable"].as_f64() > Some(0.5), "{trust}");
    let proposals = list(&trust["proposals"]);
    assert_eq!(proposals[0]["by"], "module", "{trust}");
    assert!(proposals[0]["high"].as_f64() > Some(0.9), "{trust}");
    // Paths end in the same functions here: they bring no benefit.
    assert_eq!(proposals.len(), 1, "{trust}");
    let text = shown(&["metrics", "-i", text_of(&made.file), "--set", "ipc"]);
    assert!(
        text.contains("by module, 100.0% is in rows of high trust"),
        "{text}"
    );
    let modules = json("metrics", &made.file, &["--set", "ipc", "--by", "module"]);
    assert_eq!(facts(&modules, "trust")[0]["high"], proposals[0]["high"]);
    // Where functions are long enough nothing is proposed.
    let long = or_skip!(Made::new(&Truth::default()));
    let table = json("metrics", &long.file, &["--set", "ipc"]);
    assert!(list(&facts(&table, "trust")[0]["proposals"]).is_empty());
}

/// A source that is not the best is reported with its reason, in text and JSON, by `metrics` and by `info`.
#[test]
fn another_source_is_told_with_the_metrics() {
    let why = "twin instead of refresh (refresh: 3 of 5 samples came)";
    let made = or_skip!(Made::new(&Truth {
        instead: Some(why.into()),
        ..Truth::default()
    }));
    let table = json("metrics", &made.file, &["--set", "ipc"]);
    assert_eq!(facts(&table, "window_source"), [why]);
    assert_eq!(table["facts"]["window_source"]["severity"], "fallback");
    let file = text_of(&made.file);
    let text = shown(&["metrics", "-i", file, "--set", "ipc"]);
    assert!(text.contains(why), "{text}");
    assert_eq!(json("info", &made.file, &[])["windows"]["instead"], why);
    assert!(shown(&["info", "-i", file]).contains(why));
    let usual = or_skip!(Made::new(&Truth::default()));
    let table = json("metrics", &usual.file, &["--set", "ipc"]);
    assert!(facts(&table, "window_source").is_empty());
}

/// Where no metric that was asked for can have a value, one line says which events are missing, and the remedy.
#[test]
fn metrics_without_their_events_are_refused() {
    let made = or_skip!(Made::new(&Truth::default()));
    let file = text_of(&made.file);
    for arguments in [
        &["metrics", "-i", file, "--set", "faults_per_ms"][..],
        &["diff", file, file, "--metric", "faults_per_ms"],
    ] {
        let error = refusal(arguments);
        for part in [
            file,
            "faults_per_ms",
            "page-faults",
            "record --windows --metrics",
        ] {
            assert!(error.contains(part), "{part}: {error}");
        }
        assert!(error.contains("what was recorded makes ipc"), "{error}");
    }
    // One of several is enough for a table.
    let table = json("metrics", &made.file, &["--set", "ipc,faults_per_ms"]);
    assert!(row(&table, "function", "sixty").expect("a row")["faults_per_ms"].is_null());
}

/// `cpu` names the set of the recorded CPU: a recording without the CPU's id lacks something, not this machine.
#[test]
fn a_recording_without_a_cpu_id_is_told() {
    let made = or_skip!(Made::new(&Truth::default()));
    let file = text_of(&made.file);
    for arguments in [
        &["report", "-i", file, "--metric", "cpu"][..],
        &["metrics", "-i", file, "--set", "cpu"],
        &["diff", file, file, "--metric", "cpu"],
    ] {
        let error = refusal(arguments);
        assert!(!error.contains("this machine"), "{error}");
        for part in [file, "no CPU id", "dioptra list cpus", "record again"] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}

/// Returns true if samples in the kernel can be seen here.
fn sees_kernel() -> bool {
    programs::is_root() || programs::paranoid().is_some_and(|level| level <= 1)
}

/// Returns the rate of page faults in the function that causes all of them, by one source, and the kernel's part of its
/// time.
fn fault_rate(file: &Path) -> (f64, f64) {
    let table = json("metrics", file, &["--set", "faults_per_ms"]);
    let touching = row(&table, "function", "touch_pages").expect("the function that faults");
    (
        number(&touching, "faults_per_ms"),
        number(&touching, "kernel_percent"),
    )
}

/// A rate has the same meaning whether windows or samples of each event give it: the function's time includes the
/// kernel's.
#[test]
fn serial_a_metric_means_the_same_by_every_source() {
    let faults = or_skip!(programs::c("faults", &[]));
    or_skip!(programs::need_sampling());
    if !sees_kernel() {
        return programs::skip("samples in the kernel take rights");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let record = |source: &str| {
        let file = folder.path().join(source);
        let windows = format!("--windows=short=100us,long=2ms,source={source}");
        let group = ["-e", "{task-clock,page-faults}"];
        let output = dioptra(
            &[
                &["record", "-o", text_of(&file), &windows],
                &group[..],
                &["--", text_of(&faults), "20000", "30"],
            ]
            .concat(),
        );
        output.status.success().then_some(file)
    };
    let (Some(armed), Some(sampled)) = (record("refresh"), record("period")) else {
        return programs::skip("clocks cannot be armed here");
    };
    let ((by_windows, inside), (by_samples, _)) = (fault_rate(&armed), fault_rate(&sampled));
    // Hardly any of the time is spent outside of the kernel.
    assert!(inside > 50.0, "{inside}");
    let ratio = by_samples / by_windows;
    assert!((0.5..2.0).contains(&ratio), "{by_samples} {by_windows}");
    // The plain counters' counts equal the sum of the scaled samples: all faults are this function's.
    let table = json("metrics", &armed, &["--set", "faults_per_ms"]);
    let touching = row(&table, "function", "touch_pages").expect("a row");
    assert_eq!(touching["trust"], "high", "{touching:?}");
    let counted = facts(&table, "closure")[0]["counted"].as_f64();
    assert!(counted >= Some(600_000.0), "{counted:?}");
}
