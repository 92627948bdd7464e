//! `dioptra metrics`, and windows in `report`, `diff`, `info` and `dump`: for recordings whose windows are known by
//! construction, and for programs whose rates are.

mod made;
mod recorded;
mod trust;

use dioptra_testprograms::or_skip;
use made::{Made, Truth};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

fn dioptra<S: AsRef<OsStr>>(arguments: &[S]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dioptra"))
        .args(arguments)
        .env_remove("DIOPTRA_PMU_DATA")
        .output()
        .expect("dioptra runs")
}

fn shown<S: AsRef<OsStr>>(arguments: &[S]) -> String {
    let output = dioptra(arguments);
    let command: Vec<_> = arguments.iter().map(AsRef::as_ref).collect();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the output of `dioptra COMMAND -i FILE …` as JSON.
fn json(command: &str, file: &Path, more: &[&str]) -> Value {
    let mut all: Vec<&OsStr> = vec![command.as_ref(), "-i".as_ref(), file.as_ref()];
    all.extend(more.iter().map(OsStr::new));
    all.extend(["--format", "json"].map(OsStr::new));
    serde_json::from_str(&shown(&all)).expect("JSON")
}

/// Returns a row's cells by column; a cell identifies the row.
fn row(table: &Value, column: &str, is: &str) -> Option<serde_json::Map<String, Value>> {
    let ids: Vec<&str> = list(&table["columns"])
        .iter()
        .map(|column| column["id"].as_str().unwrap())
        .collect();
    list(&table["rows"]).iter().find_map(|row| {
        let cells = ids
            .iter()
            .map(|id| (*id).to_owned())
            .zip(list(&row["cells"]).iter().cloned());
        let cells: serde_json::Map<String, Value> = cells.collect();
        (cells[column] == is).then_some(cells)
    })
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn number(row: &serde_json::Map<String, Value>, column: &str) -> f64 {
    row[column]
        .as_f64()
        .unwrap_or_else(|| panic!("{column}: {row:?}"))
}

/// Returns the facts with this id, or with the id and a number, which facts of the same id get.
fn facts<'t>(table: &'t Value, id: &str) -> Vec<&'t Value> {
    let all = table["facts"].as_object().expect("facts");
    let same = |key: &str| {
        key == id
            || key
                .strip_prefix(id)
                .is_some_and(|rest| rest.starts_with('_') && rest[1..].parse::<u32>().is_ok())
    };
    all.iter()
        .filter(|(key, _)| same(key))
        .map(|(_, fact)| &fact["value"])
        .collect()
}

/// Values are the ratios of sums over exactly the windows that lie in one function; intervals hold the rates by which
/// the recording was made.
#[test]
fn rates_by_construction() {
    let made = or_skip!(Made::new(&Truth::default()));
    let table = json("metrics", &made.file, &[]);
    for function in &made.functions {
        let row = row(&table, "function", function.name).expect("the function's row");
        assert_eq!(row["kept_windows"], function.kept, "{}", function.name);
        assert_eq!(row["windows"], function.windows);
        let crossing = function.crossing as f64;
        let discarded = 100.0 * crossing / (crossing + function.kept as f64);
        assert!((number(&row, "discarded_percent") - discarded).abs() < 1e-9);
        let sums = function.instructions as f64 / function.cycles as f64;
        assert!(
            (number(&row, "ipc_raw") / sums - 1.0).abs() < 1e-9,
            "{}: {sums}",
            function.name
        );
        // No crossing windows are kept, so that only chance separates the values from the truth.
        if row["trust"] != "unreliable" {
            let (low, high) = (number(&row, "ipc_low"), number(&row, "ipc_high"));
            assert!(
                low < high && low <= function.ipc && function.ipc <= high,
                "{} {low} {high} {row:?}",
                function.ipc
            );
        }
        let misses = function.misses as f64 / function.instructions as f64 * 1000.0;
        assert!((number(&row, "branch_mpki_raw") / misses - 1.0).abs() < 1e-9);
        assert!((number(&row, "share_percent") - 100.0 * function.share).abs() < 3.0);
        if row["trust"] != "unreliable" {
            assert!(number(&row, "ipc_needs_s") >= 0.0);
        }
    }
    assert_eq!(row(&table, "function", "sixty").unwrap()["trust"], "high");
    assert_ne!(row(&table, "function", "ten").unwrap()["trust"], "high");
    let discards = facts(&table, "discarded_windows")[0];
    assert_eq!(
        discards["kept"],
        made.functions.iter().map(|f| f.kept).sum::<u64>()
    );
    assert_eq!(
        discards["other-function"],
        made.functions.iter().map(|f| f.crossing).sum::<u64>()
    );
    assert_eq!(discards["late"], made.late);
    assert_eq!(discards["last"], made.last);
    let closures = facts(&table, "closure");
    assert_eq!(closures.len(), 2, "{closures:?}");
    for closure in closures {
        assert_eq!(closure["holds"], true, "{closure}");
        assert!(closure["error"].as_f64().unwrap().abs() < 0.1, "{closure}");
    }
}

/// The counts that windows' borders add follow from the windows' lengths; the table shows both values.
#[test]
fn borders_are_taken_off() {
    let truth = Truth {
        border: -40,
        ..Truth::default()
    };
    let made = or_skip!(Made::new(&truth));
    let table = json("metrics", &made.file, &["--set", "ipc"]);
    let artefact = facts(&table, "boundary_artefact");
    let of_instructions = artefact
        .iter()
        .find(|fact| fact["event"] == "instructions")
        .expect("a fact");
    assert_eq!(of_instructions["taken_off"], true, "{of_instructions}");
    let found = of_instructions["per_window"].as_f64().unwrap();
    assert!((found + 40.0).abs() < 10.0, "{found}");
    let row = row(&table, "function", "sixty").expect("a row");
    let truth = made.functions[0].ipc;
    assert!(
        (number(&row, "ipc_raw") - truth).abs() > 0.05 * truth,
        "{row:?}"
    );
    assert!(
        (number(&row, "ipc_corrected") - truth).abs() < 0.03 * truth,
        "{row:?}"
    );
    assert_eq!(row["ipc"], row["ipc_corrected"]);
}

/// A rate that grows with the windows' lengths is no function's rate.
#[test]
fn drift_is_told() {
    let truth = Truth {
        bend: 1.0,
        ..Truth::default()
    };
    let made = or_skip!(Made::new(&truth));
    let table = json("metrics", &made.file, &["--set", "ipc"]);
    let drift = facts(&table, "drift");
    let rows = list(&drift.first().expect("a fact")["rows"]);
    assert!(rows.contains(&"thirty (shares)".into()), "{rows:?}");
    let thirty = row(&table, "function", "thirty").expect("a row");
    assert!(number(&thirty, "ipc_drift") > 0.2, "{thirty:?}");
}

#[test]
fn text_csv_and_json_are_one_table() {
    let made = or_skip!(Made::new(&Truth::default()));
    let file = made.file.to_str().expect("a path");
    let unknown = dioptra(&["metrics", "-i", file, "--set", "nosuch"]);
    let error = String::from_utf8_lossy(&unknown.stderr);
    assert!(error.starts_with("dioptra: --set: "), "{error}");
    let text = shown(&["metrics", "-i", file, "--set", "ipc"]);
    assert!(text.contains("95% interval"), "{text}");
    assert!(
        text.contains("source refresh, schedule long=1ms,short=300,jitter=100,batch=4"),
        "{text}"
    );
    // The probe's findings are for programs, and for `info`.
    assert!(!text.contains("as it was made"), "{text}");
    assert!(
        text.contains("# loss: threads without windows: 2"),
        "{text}"
    );
    let line = text
        .lines()
        .find(|line| line.ends_with("sixty"))
        .expect("a row");
    let table = json("metrics", &made.file, &["--set", "ipc"]);
    let findings = &facts(&table, "windows")[0]["findings"];
    assert!(
        findings.to_string().contains("probe: as it was made"),
        "{findings}"
    );
    let trust = facts(&table, "trust")[0];
    let parts = ["high", "low", "unreliable", "none"].map(|part| trust[part].as_f64().unwrap());
    assert!((parts.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{trust}");
    assert!(parts[0] >= 0.5 && parts[2] > 0.05, "{trust}");
    let sixty = row(&table, "function", "sixty").expect("a row");
    let half = (number(&sixty, "ipc_high") - number(&sixty, "ipc"))
        .max(number(&sixty, "ipc") - number(&sixty, "ipc_low"));
    let interval = format!("{:.3} ±{:.3}", number(&sixty, "ipc"), half);
    assert!(line.contains(&interval), "{interval}: {line}");
    let csv = shown(&["metrics", "-i", file, "--set", "ipc", "--format", "csv"]);
    let mut lines = csv.lines();
    let heads: Vec<&str> = lines.next().expect("a heading").split(',').collect();
    assert_eq!(heads[0], "share_percent");
    let ipc = heads.iter().position(|head| *head == "ipc").expect("ipc");
    let line = lines.find(|line| line.ends_with("sixty")).expect("a row");
    let value: f64 = line
        .split(',')
        .nth(ipc)
        .expect("a cell")
        .parse()
        .expect("a number");
    // Reading JSON rounds the last digit.
    assert!(
        (value / number(&sixty, "ipc") - 1.0).abs() < 1e-14,
        "{value}"
    );
}

#[test]
fn rows_and_filters() {
    let made = or_skip!(Made::new(&Truth::default()));
    let by_thread = json("metrics", &made.file, &["--by", "thread", "--set", "ipc"]);
    assert_eq!(list(&by_thread["rows"]).len(), 2);
    let kept: u64 = made.functions.iter().map(|function| function.kept).sum();
    let of_rows = |table: &Value| -> u64 {
        let place = list(&table["columns"])
            .iter()
            .position(|column| column["id"] == "kept_windows")
            .unwrap();
        list(&table["rows"])
            .iter()
            .filter_map(|row| row["cells"][place].as_u64())
            .sum()
    };
    // A window that leaves its function stays in its thread.
    let crossing: u64 = made
        .functions
        .iter()
        .map(|function| function.crossing)
        .sum();
    assert_eq!(of_rows(&by_thread), kept + crossing);
    let discards = facts(&by_thread, "discarded_windows")[0];
    assert_eq!(discards["other-function"], Value::Null, "{discards}");
    // All functions are of one module and process.
    for by in ["module", "process"] {
        let table = json("metrics", &made.file, &["--by", by, "--set", "ipc"]);
        assert_eq!(of_rows(&table), kept + crossing, "{by}");
        assert_eq!(list(&table["rows"]).len(), 1, "{by}");
        assert_eq!(facts(&table, "trust")[0]["high"], 1.0, "{by}");
    }
    let of_one = ["--by", "thread", "--symbol", "thirty", "--set", "ipc"];
    let of_one = json("metrics", &made.file, &of_one);
    assert_eq!(of_rows(&of_one), made.functions[1].kept);
    let by_path = json("metrics", &made.file, &["--by", "path", "--set", "ipc"]);
    assert_eq!(of_rows(&by_path), kept);
    let sixty = row(&by_path, "function", "sixty").expect("a row");
    assert_eq!(sixty["callers"], "rounds");
    let one = json("metrics", &made.file, &["--tid", "101", "--set", "ipc"]);
    let other = json("metrics", &made.file, &["--tid", "102", "--set", "ipc"]);
    assert_eq!(of_rows(&one) + of_rows(&other), kept);
    assert!(of_rows(&one) > 0 && of_rows(&other) > 0);
    let until = json("metrics", &made.file, &["--time", "..1", "--set", "ipc"]);
    let from = json("metrics", &made.file, &["--time", "1..", "--set", "ipc"]);
    assert!(of_rows(&until) > 0 && of_rows(&from) > 0);
    // One burst may lie on the border.
    let both = of_rows(&until) + of_rows(&from);
    assert!(both <= kept && kept <= both + 4, "{both} {kept}");
    let module = json("metrics", &made.file, &["--dso", "shares", "--set", "ipc"]);
    assert_eq!(of_rows(&module), kept);
    // A filter that leaves nothing is an error.
    for nothing in [
        ["--comm", "nobody"],
        ["--symbol", "none"],
        ["--tid", "9999"],
    ] {
        let mut all: Vec<&OsStr> = vec!["metrics".as_ref(), "-i".as_ref(), made.file.as_ref()];
        all.extend(nothing.map(OsStr::new));
        let output = dioptra(&all);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{nothing:?} {errors}");
        assert!(errors.contains("no sample"), "{nothing:?} {errors}");
    }
    // The totals of all functions say nothing about a part of the program.
    assert!(facts(&one, "closure").is_empty());
    let file = made.file.to_str().expect("a path");
    let text = shown(&["metrics", "-i", file, "--limit", "1"]);
    assert!(
        text.contains("sixty") && text.contains("… 2 more rows"),
        "{text}"
    );
    let large = json("metrics", &made.file, &["--min-share", "20"]);
    assert_eq!(list(&large["rows"]).len(), 2);
    assert_eq!(facts(&large, "rows_below_share"), [&Value::from(1)]);
    let trusted = json("metrics", &made.file, &["--trust", "high"]);
    assert!(row(&trusted, "function", "ten").is_none());
    let place = list(&trusted["columns"])
        .iter()
        .position(|column| column["id"] == "trust")
        .unwrap();
    for row in list(&trusted["rows"]) {
        assert_eq!(row["cells"][place], "high", "{row}");
    }
    assert!(row(&trusted, "function", "sixty").is_some());
    let only = json("metrics", &made.file, &["--symbol", "thirty"]);
    let thirty = row(&only, "function", "thirty").expect("a row");
    assert_eq!(thirty["kept_windows"], made.functions[1].kept);
    assert!(row(&only, "function", "sixty").is_none());
    let sorted = json("metrics", &made.file, &["--sort", "ipc"]);
    let place = list(&sorted["columns"])
        .iter()
        .position(|column| column["id"] == "ipc")
        .unwrap();
    let values: Vec<f64> = list(&sorted["rows"])
        .iter()
        .filter_map(|row| row["cells"][place].as_f64())
        .collect();
    assert!(values.is_sorted_by(|one, other| one >= other), "{values:?}");
}

/// The same samples without the section: all of them bound windows, also the gaps between two bursts.
#[test]
fn groups_that_were_sampled_steadily_have_windows_too() {
    let truth = Truth {
        section: false,
        ..Truth::default()
    };
    let made = or_skip!(Made::new(&truth));
    let table = json("metrics", &made.file, &["--set", "ipc"]);
    assert_eq!(facts(&table, "windows")[0]["source"], "samples");
    let sixty = row(&table, "function", "sixty").expect("a row");
    assert!(
        (number(&sixty, "ipc") / made.functions[0].ipc - 1.0).abs() < 0.1,
        "{sixty:?}"
    );
}

#[test]
fn report_and_diff_have_the_columns() {
    let made = or_skip!(Made::new(&Truth {
        seed: 105,
        ..Truth::default()
    }));
    let metrics = json("metrics", &made.file, &["--set", "ipc"]);
    let report = json("report", &made.file, &["--metric", "ipc"]);
    let (of_metrics, of_report) = (
        row(&metrics, "function", "sixty").unwrap(),
        row(&report, "function", "sixty").unwrap(),
    );
    for column in ["ipc", "kept_windows", "trust"] {
        assert_eq!(of_metrics[column], of_report[column], "{column}");
    }
    for (by, column) in [
        ("line", "line"),
        ("module", "module"),
        ("process", "process"),
        ("thread", "tid"),
    ] {
        let metrics = json("metrics", &made.file, &["--by", by, "--set", "ipc"]);
        let report = json("report", &made.file, &["--by", by, "--metric", "ipc"]);
        let place = list(&report["columns"])
            .iter()
            .position(|head| head["id"] == column)
            .expect("a name");
        let mut compared = 0;
        for of_report in list(&report["rows"]) {
            let name = &of_report["cells"][place];
            let same = |table: &Value| {
                let heads = list(&table["columns"]);
                let at = heads.iter().position(|head| head["id"] == column).unwrap();
                let mut rows = list(&table["rows"]).iter().cloned();
                let row = rows.find(|row| row["cells"][at] == *name).expect("the row");
                ["ipc", "kept_windows", "trust"].map(|wanted| {
                    let at = heads.iter().position(|head| head["id"] == wanted).unwrap();
                    row["cells"][at].clone()
                })
            };
            let [ipc, kept, trust] = same(&report);
            assert_eq!(same(&metrics), [ipc.clone(), kept, trust], "{by} {name}");
            compared += u32::from(ipc.as_f64().is_some_and(|ipc| ipc > 0.5));
        }
        assert!(compared > 0, "{by}");
    }
    let file = made.file.to_str().expect("a path");
    for wrong in [
        &["report", "-i", file, "--metric", "ipc", "--by", "program"][..],
        &[
            "report",
            "-i",
            file,
            "--metric",
            "ipc",
            "--by",
            "process,function",
        ],
        &["report", "-i", file, "--metric", "ipc", "--inline"],
        &["report", "-i", file, "-i", file, "--metric", "ipc"],
        &["diff", file, file, "--metric", "ipc", "--by", "comm"],
    ] {
        let output = dioptra(wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            error.contains("--metric: ") && error.lines().count() == 1,
            "{error}"
        );
    }
    // The ranking uses the ordinary event alone.
    assert!(
        report["columns"]
            .as_array()
            .unwrap()
            .iter()
            .all(|column| column["event"] != "cycles")
    );
    assert_eq!(
        *facts(&report, "events_of_windows")[0],
        serde_json::json!(["cycles", "instructions", "branch-misses"])
    );
    assert_eq!(
        number(&of_report, "samples"),
        made.functions[0].samples as f64
    );

    let other = or_skip!(Made::new(&Truth {
        seed: 106,
        ipc: [2.2, 1.0, 1.5],
        ..Truth::default()
    }));
    let mut all: Vec<&OsStr> = vec!["diff".as_ref(), made.file.as_ref(), other.file.as_ref()];
    all.extend(["--metric", "ipc", "--format", "json"].map(OsStr::new));
    let diff: Value = serde_json::from_str(&shown(&all)).expect("JSON");
    let sixty = row(&diff, "function", "sixty").expect("a row");
    assert!(
        (number(&sixty, "b_ipc_delta") - 0.2).abs() < 0.1,
        "{sixty:?}"
    );
    assert_eq!(sixty["b_ipc_significance"], "***");
    for by in ["line", "module", "process"] {
        let mut all = all.clone();
        all.extend(["--by", by].map(OsStr::new));
        let diff: Value = serde_json::from_str(&shown(&all)).expect("JSON");
        let place = list(&diff["columns"])
            .iter()
            .position(|head| head["id"] == "b_ipc_delta")
            .expect("the column");
        let known = list(&diff["rows"]).iter();
        let known = known.filter(|row| row["cells"][place].is_number()).count();
        assert!(known > 0, "{by}: {diff}");
    }
    assert!(
        (number(&sixty, "b_ipc") - number(&sixty, "a_ipc") - number(&sixty, "b_ipc_delta")).abs()
            < 1e-9
    );
    let same = row(&diff, "function", "thirty").expect("a row");
    assert_eq!(same["b_ipc_significance"], "", "{same:?}");
    assert!(
        number(&same, "b_ipc_delta_low") <= 0.0 && number(&same, "b_ipc_delta_high") >= 0.0,
        "{same:?}"
    );
}

#[test]
fn info_and_dump_show_the_section() {
    let made = or_skip!(Made::new(&Truth::default()));
    let info = json("info", &made.file, &[]);
    let windows = &info["windows"];
    assert_eq!(windows["source"], "refresh");
    assert_eq!(
        windows["schedule_numbers"],
        serde_json::json!([1_000_000, 300, 100, 4])
    );
    assert_eq!(windows["bursts"], made.bursts);
    assert_eq!(windows["outcomes"]["late"], made.late / 4);
    assert_eq!(
        windows["groups"][0]["events"],
        serde_json::json!(["cycles", "instructions", "branch-misses"])
    );
    let file = made.file.to_str().expect("a path");
    let text = shown(&["info", "-i", file]);
    assert!(text.contains("source refresh, schedule long=1ms"), "{text}");
    let dump = shown(&["dump", "-i", file, "--format", "json"]);
    let mut last = 0;
    let mut bursts = 0;
    for line in dump.lines() {
        let record: Value = serde_json::from_str(line).expect("JSON");
        bursts += u64::from(record["type"] == "BURST");
        if let Some(time) = record["time"].as_u64().filter(|_| record["type"] != "MMAP") {
            assert!(last <= time, "{line}");
            last = time;
        }
    }
    assert_eq!(bursts, made.bursts);
    let only = shown(&["dump", "-i", file, "--type", "burst"]);
    assert_eq!(only.lines().count() as u64, made.bursts);
}

#[test]
fn without_windows_it_says_what_to_do() {
    let made = or_skip!(Made::new(&Truth {
        section: false,
        groups: false,
        ..Truth::default()
    }));
    let output = dioptra(&["metrics".as_ref(), "-i".as_ref(), made.file.as_os_str()]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(
        error.contains("no windows") && error.contains("record --windows"),
        "{error}"
    );
    let output = dioptra(&["metrics", "-i", "/no/such/file"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no such file"));
    let output = dioptra(&["metrics", "--min-share", "101"]);
    assert_eq!(output.status.code(), Some(2));
}
