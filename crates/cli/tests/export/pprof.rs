//! pprof's profile, read by `go tool pprof`.

use crate::support::{by_function, done, inlined, inside, number, report, threads};
use dioptra_testprograms::{self as programs, or_skip};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Runs pprof on a file.
fn pprof(folder: &Path, arguments: &[&str], file: &str) -> String {
    let output = Command::new("go")
        .args(["tool", "pprof", "-symbolize=none"])
        .args(arguments)
        .arg(file)
        .current_dir(folder)
        .env("HOME", folder)
        .env("PPROF_TMPDIR", folder)
        .output()
        .expect("go runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Returns pprof's values by function: at the function itself, and with what it called. No function is left out, and
/// values are not rounded.
pub fn top(folder: &Path, index: &str) -> (BTreeMap<String, u64>, BTreeMap<String, u64>) {
    let text = pprof(
        folder,
        &[
            "-top",
            "-nodefraction=0",
            "-nodecount=100000",
            // Numbers of events have no unit to convert to.
            match index {
                "cpu-clock" | "time" => "-unit=nanoseconds",
                _ => "-unit=minimum",
            },
            &format!("-sample_index={index}"),
        ],
        "profile.pb.gz",
    );
    let rows = text.lines().skip_while(|line| !line.contains("flat%"));
    let mut own = BTreeMap::new();
    let mut total = BTreeMap::new();
    for row in rows.skip(1) {
        let fields: Vec<&str> = row.split_whitespace().collect();
        let value = |text: &str| -> u64 {
            let text = text.trim_end_matches("ns");
            text.parse().unwrap_or_else(|_| panic!("{text} in {row}"))
        };
        let name = fields[5..].join(" ");
        let name = name.trim_end_matches(" (inline)");
        let name = name.trim_end_matches(" (partial-inline)").to_owned();
        *own.entry(name.clone()).or_default() += value(fields[0]);
        *total.entry(name).or_default() += value(fields[3]);
    }
    own.retain(|_, value| *value > 0);
    total.retain(|_, value| *value > 0);
    (own, total)
}

#[test]
fn functions_and_values_are_the_report_s() {
    or_skip!(programs::need_tool("go"));
    let recorded = or_skip!(inlined());
    let folder = recorded.folder.path();
    done(folder, &["export", "--to", "pprof"]);
    for (index, event, column) in [
        ("cpu-clock", "cpu-clock", "weight"),
        ("samples:cpu-clock", "cpu-clock", "samples"),
        ("page-faults", "page-faults", "weight"),
        ("samples:page-faults", "page-faults", "samples"),
    ] {
        let (own, total) = top(recorded.folder.path(), index);
        let rows = report(folder, &["--inline", "-e", event]);
        assert_eq!(own, by_function(&rows, column), "{index}");
        if event == "cpu-clock" && column == "weight" {
            let children = report(folder, &["--inline", "--children", "-e", event]);
            let expected = by_function(&children, "total_weight");
            for function in ["outer", "mixer", "shaker", "step"] {
                assert_eq!(total[function], expected[function], "{function}");
            }
        }
    }
    // Names as they are without inlined functions.
    done(
        folder,
        &["export", "--to", "pprof", "--no-inline", "-e", "1"],
    );
    let (own, _) = top(recorded.folder.path(), "cpu-clock");
    let rows = report(folder, &["-e", "cpu-clock"]);
    assert_eq!(own, by_function(&rows, "weight"));
}

#[test]
fn labels_divide_the_values_as_reports_do() {
    or_skip!(programs::need_tool("go"));
    let recorded = or_skip!(threads());
    let folder = recorded.folder.path();
    done(folder, &["export", "--to", "pprof"]);
    for (label, by, column) in [
        ("tid", "thread", "tid"),
        ("cpu", "cpu", "cpu"),
        ("comm", "comm", "comm"),
    ] {
        let rows = report(folder, &["--by", by]);
        for row in &rows {
            let name = match &row[column] {
                serde_json::Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let text = pprof(
                folder,
                &[
                    "-top",
                    "-nodefraction=0",
                    "-unit=nanoseconds",
                    "-sample_index=cpu-clock",
                    &format!("-tagfocus={label}=^{name}$"),
                ],
                "profile.pb.gz",
            );
            // "Showing nodes accounting for 5ns, 50% of 10ns total"
            let (_, rest) = text.split_once("accounting for ").expect("a sum");
            let (sum, _) = rest.split_once("ns").expect("nanoseconds");
            assert_eq!(sum.parse(), Ok(number(&row["weight"])), "{label} {name}");
        }
        assert!(!rows.is_empty());
    }
}

#[test]
fn mappings_are_the_recorded_ones_with_their_build_ids() {
    or_skip!(programs::need_tool("go"));
    let recorded = or_skip!(inlined());
    let folder = recorded.folder.path();
    done(folder, &["export", "--to", "pprof"]);
    let raw = pprof(folder, &["-raw"], "profile.pb.gz");
    let (_, mappings) = raw.split_once("Mappings\n").expect("mappings");
    let main = mappings.lines().next().expect("the main program");
    // 1: 0x5581c1bb6000/0x5581c1bb7000/0x1000 /path/inline 0123… [FN][FL][LN][IN]
    let fields: Vec<&str> = main.split_whitespace().collect();
    let range: Vec<u64> = fields[1]
        .split('/')
        .map(|number| u64::from_str_radix(&number[2..], 16).expect("hex"))
        .collect();
    let perf = |arguments: &[&str]| {
        let output = Command::new("perf")
            .args(arguments)
            .arg("-i")
            .arg(inside(&recorded, "perf.data"))
            .env("HOME", folder)
            .output()
            .expect("perf runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let ids = perf(&["buildid-list"]);
    let id = ids.lines().find(|line| line.ends_with("/inline"));
    let (id, path) = id
        .and_then(|line| line.split_once(' '))
        .expect("a build id");
    assert_eq!(&fields[2..4], [path, id], "{main}");
    // [0x5581c1bb6000(0x1000) @ 0x1000 08:02 1 1]: r-xp /path/inline
    let maps = perf(&["script", "--show-mmap-events"]);
    let wanted = format!(
        "[{:#x}({:#x}) @ {:#x} ",
        range[0],
        range[1] - range[0],
        range[2]
    );
    assert!(maps.contains(&wanted), "no {wanted} in:\n{maps}");
    assert!(main.ends_with("[FN][FL][LN][IN]"), "{main}");
}

#[test]
fn lines_and_head_are_there() {
    or_skip!(programs::need_tool("go"));
    let recorded = or_skip!(inlined());
    let folder = recorded.folder.path();
    done(folder, &["export", "--to", "pprof", "-e", "cpu-clock"]);
    let raw = pprof(folder, &["-raw"], "profile.pb.gz");
    // 1999 a second.
    assert!(
        raw.contains("PeriodType: cpu-clock nanoseconds\nPeriod: 500250\n"),
        "{raw}"
    );
    assert!(raw.contains("Duration: "), "{raw}");
    assert!(
        raw.contains("samples/count cpu-clock/nanoseconds[dflt]"),
        "{raw}"
    );
    let by_line = pprof(
        folder,
        &["-top", "-lines", "-nodefraction=0", "-unit=nanoseconds"],
        "profile.pb.gz",
    );
    // Lines of step(), and of the calls that were inlined.
    let rows = report(folder, &["-e", "cpu-clock", "--by", "line"]);
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for row in &rows {
        if row["file"]
            .as_str()
            .is_some_and(|file| file.ends_with("/inline.c"))
        {
            *expected.entry(row["line"].to_string()).or_default() += number(&row["weight"]);
        }
    }
    assert!(!expected.is_empty(), "{rows:?}");
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for row in by_line.lines().filter(|line| line.contains("inline.c:")) {
        let fields: Vec<&str> = row.split_whitespace().collect();
        let place = fields.iter().find(|field| field.contains("inline.c:"));
        let (_, line) = place
            .and_then(|place| place.rsplit_once(':'))
            .expect("a line");
        let own: u64 = fields[0].trim_end_matches("ns").parse().expect("a number");
        *found.entry(line.to_owned()).or_default() += own;
    }
    found.retain(|_, own| *own > 0);
    expected.retain(|_, own| *own > 0);
    assert_eq!(found, expected, "{by_line}");
}
