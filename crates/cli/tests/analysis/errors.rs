//! Standard errors, and what is marked.

use super::{dioptra, record, report, shown, table, text};
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

#[test]
fn filters_that_match_nothing_are_told() {
    let shares = or_skip!(programs::c("shares", &[]));
    let options = ["-e", "cpu-clock", "-F", "2000"];
    let recorded = or_skip!(record(&options, &[shares.as_os_str(), "100".as_ref()]));
    let file = recorded.file.to_str().expect("a path");
    for (command, filter, told) in [
        ("report", ["--comm", "share"], "did you mean shares?"),
        ("report", ["--dso", "Shares"], "did you mean shares"),
        ("report", ["--symbol", "sixtz"], "did you mean sixty?"),
        ("sum", ["--symbol", "zzzzzz"], "most samples have sixty"),
        ("report", ["--tid", "0"], "--tid 0: no sample has it"),
        ("report", ["--time", "1000.."], "the last sample was taken"),
        ("annotate", ["--comm", "share"], "did you mean shares?"),
    ] {
        let input: &[&str] = match command {
            "sum" => &[file],
            _ => &["-i", file],
        };
        let output = dioptra(&[&[command], input, &filter[..]].concat());
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{filter:?} {message}");
        assert!(message.contains(told), "{filter:?} {message}");
        assert!(output.stdout.is_empty());
    }
    // One of two is enough, in one of two profiles.
    let both = ["diff", file, file, "--comm", "shares,nobody"];
    assert!(dioptra(&both).status.success());
}

/// perf writes its last messages to standard error, which was the pipe here.
#[test]
fn messages_behind_the_records_of_a_pipe_are_no_damage() {
    let name = "perfdata/lpd-sleep.compressed2.pipe.data";
    let file = or_skip!(programs::need_shared_data(name));
    let bytes = std::fs::read(&file).expect("the file");
    assert!(bytes.ends_with(b" ]\n"), "perf's message is the end");
    let file = file.to_str().expect("a path");
    let output = dioptra(&["report", "-i", file]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(!shown.contains("recorder was stopped"), "{shown}");
    let facts = table(&["report", "-i", file]).facts;
    assert!(
        facts["salvaged"].is_null() && facts["damaged"].is_null(),
        "{facts}"
    );
    // From the first bracket to the end, as the file has them.
    let message = b"[ perf record: Woken";
    let at = bytes
        .windows(message.len())
        .position(|part| part == message);
    let length = bytes.len() - at.expect("the message");
    assert_eq!(
        facts["recorder_messages"]["value"], length as u64,
        "{facts}"
    );
    // A recording that was cut there still is.
    let folder = tempfile::tempdir().expect("a folder");
    let cut = folder.path().join("cut.data");
    std::fs::write(&cut, &bytes[..at.expect("the message") - 100]).expect("written");
    let facts = table(&["report", "-i", cut.to_str().expect("a path")]).facts;
    assert_eq!(facts["salvaged"]["value"], true, "{facts}");
}

#[test]
fn losses_are_told_once() {
    let name = "perfdata/perf.data.lost_samples-4.4";
    let file = or_skip!(programs::need_shared_data(name));
    let file = file.to_str().expect("a path");
    for by in ["block", "function,line"] {
        let shown = shown(&["report", "-i", file, "--by", by]);
        let losses: Vec<&str> = shown
            .lines()
            .filter(|line| line.starts_with("# loss"))
            .collect();
        let mut once = losses.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), losses.len(), "{shown}");
        assert!(
            losses.iter().any(|line| line.contains("no names")),
            "{shown}"
        );
    }
}

#[test]
fn aliases_are_shown_by_their_public_name() {
    let shares = or_skip!(programs::c("shares", &[]));
    let recorded = or_skip!(record(
        &["-e", "cpu-clock"],
        &[shares.as_os_str(), "50".as_ref()]
    ));
    let file = recorded.file.to_str().expect("a path");
    let of = |arguments: &[&str]| {
        let all = [&["report", "-i", file, "--format", "json"], arguments].concat();
        shown(&all)
    };
    for (one, other) in [
        (&["--by", "instruction"][..], &["--by", "address"][..]),
        (&["--by", "module,instruction"], &["--by", "module,address"]),
        (&["--sort", "self"], &["--sort", "self_percent"]),
        (&["--event", "1"], &["--event", "cpu-clock"]),
    ] {
        assert_eq!(of(one), of(other), "{one:?}");
    }
    // Trees name the dimension by which `--by` is documented.
    let tree = report(&recorded.file, &["--by", "module,address"]);
    assert_eq!(
        tree.rows.last().expect("a row").text("level"),
        "instruction"
    );
}

/// Frames without names are not one row, in which totals say nothing.
#[test]
fn unknown_callers_are_apart_by_module_and_range() {
    let name = "perfdata/perf.data.callgraph-3.4";
    let file = or_skip!(programs::need_shared_data(name));
    let whole = report(&file, &[]);
    let apart = report(&file, &["--children"]);
    let is_unknown = |row: &&super::Row| row.text("function").starts_with("[unknown]");
    let unknown: Vec<_> = apart.rows.iter().filter(is_unknown).collect();
    let before = whole.rows.iter().filter(is_unknown).count();
    assert!(unknown.len() > before, "{unknown:?}");
    for row in &unknown {
        let range = row
            .text("function")
            .strip_prefix("[unknown] 0x")
            .expect("a range");
        let (start, end) = range.split_once("..0x").expect("a range");
        let number = |text: &str| u64::from_str_radix(text, 16).expect("an address");
        let length = number(end) - number(start) + 1;
        assert!(length.is_power_of_two() && length >= 1 << 16, "{row:?}");
        assert_eq!(number(start) % length, 0, "{row:?}");
    }
    // By module the self counts stay the same.
    let by_module =
        |table: &super::Table| table.by(table.sums()[0], &["module"], |row| is_unknown(&row));
    assert_eq!(by_module(&whole), by_module(&apart));
}
