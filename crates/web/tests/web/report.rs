//! Static reports: their answers are the server's, names stay inside of their block, and the size has a bound.

use crate::client::{Running, escaped};
use crate::made::{Made, SCRIPT, made};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dioptra_web::{StaticReport, StaticReportOptions};
use serde_json::Value;
use std::io::Read as _;

fn report(made: &Made, limit: Option<usize>) -> StaticReport {
    let mut options = StaticReportOptions {
        files: vec![made.file.clone()],
        ..StaticReportOptions::default()
    };
    options.symbols.symfs = Some(made.symfs().to_path_buf());
    options.sources.symfs = Some(made.symfs().to_path_buf());
    options.limit = limit.unwrap_or(options.limit);
    StaticReport::make(&options).expect("a report")
}

/// The block of data of a report.
fn stored(report: &StaticReport) -> Value {
    let html = std::str::from_utf8(&report.html).expect("text");
    let begin = "<script type=\"application/json\" id=\"dioptra-report\">";
    let (_, rest) = html.split_once(begin).expect("a block");
    let (json, _) = rest.split_once("</script>").expect("its end");
    serde_json::from_str(json).expect("JSON")
}

fn unpacked(answer: &Value) -> Value {
    let packed = STANDARD.decode(answer.as_str().expect("text"));
    let mut json = Vec::new();
    flate2::read::GzDecoder::new(&packed.expect("base64")[..])
        .read_to_end(&mut json)
        .expect("gzip");
    serde_json::from_slice(&json).expect("JSON")
}

/// The parameters that the page applies itself, as the report asked with them.
fn asked(key: &str) -> String {
    let more = match key.split_once('?').expect("a query").0 {
        "table" => "&errors=1&count=2000",
        "timeline" => "&bins=1000&count=120",
        "flame" => "&count=20000",
        _ => "",
    };
    format!("/api/{key}{more}")
}

#[test]
fn stored_answers_are_the_servers() {
    let made = made();
    let report = report(&made, None);
    let stored = stored(&report);
    let answers = stored["answers"].as_object().expect("answers");
    let web = Running::start(&[&made.file], Some(made.symfs()));
    let mut compared = 0;
    for (key, answer) in answers {
        let mut found = unpacked(answer);
        let mut expected = web.get(&asked(key)).json();
        if key == "status?" {
            // The time that loading took and the number of changes differ.
            for status in [&mut found, &mut expected] {
                status["revision"] = Value::Null;
                status["profiles"][0]["elapsed_ms"] = Value::Null;
            }
        }
        assert_eq!(found, expected, "{key}");
        compared += 1;
    }
    assert!(compared > 40, "{compared}");
    for wanted in [
        "profile?profile=0",
        "table?by=function&children=1&event=cpu-clock&event=page-faults&profile=0",
        "table?by=process%2Cmodule&event=page-faults&event=cpu-clock&profile=0",
        "flame?direction=callers&event=cpu-clock&event=page-faults&profile=0",
        "timeline?event=cpu-clock&event=page-faults&profile=0&rows=thread",
    ] {
        assert!(answers.contains_key(wanted), "{wanted}");
    }
    // Each function with samples has its code, as the page asks for it.
    let table = web.ask("/api/table?by=function");
    for row in table["rows"].as_array().expect("rows") {
        let key = row["key"]["function"].as_str().expect("a key");
        let question = format!(
            "function?event=cpu-clock&event=page-faults&function={}&profile=0",
            key.replace('@', "%40")
                .replace('~', "%7E")
                .replace('^', "%5E")
        );
        assert!(answers.contains_key(&question), "{question}");
        let answer = web.ask(&format!("/api/function?function={}", escaped(key)));
        assert_eq!(unpacked(&answers[&question]), answer);
    }
}

#[test]
fn hostile_names_do_not_leave_the_block_of_data() {
    let made = made();
    let report = report(&made, None);
    let html = std::str::from_utf8(&report.html).expect("text");
    // The page's own script, and the block.
    assert_eq!(html.matches("<script").count(), 2);
    assert_eq!(html.matches("</script").count(), 2);
    assert!(!html.contains(SCRIPT));
    let policy = html.split("http-equiv=\"Content-Security-Policy\" content=\"");
    let policy = policy.last().and_then(|rest| rest.split('"').next());
    let policy = policy.expect("a policy");
    assert!(
        policy.starts_with("default-src 'none'; script-src 'sha256-"),
        "{policy}"
    );
    assert!(
        policy.contains("connect-src 'none'") && !policy.contains("unsafe"),
        "{policy}"
    );
    // The hostile name itself is there, as data.
    let table = &stored(&report)["answers"]["table?by=function&event=cpu-clock&event=page-faults&profile=0"];
    let rows = unpacked(table)["rows"].to_string();
    assert!(rows.contains(SCRIPT), "{rows}");
}

#[test]
fn a_report_keeps_its_bound_and_says_what_it_lacks() {
    let made = made();
    let whole = report(&made, None);
    assert!(whole.html.len() < 5_000_000, "{}", whole.html.len());
    let without_answers = whole.html.len() - stored(&whole)["answers"].to_string().len();
    // A tenth of what it would like to store.
    let limit = without_answers + (whole.html.len() - without_answers) / 10 + 5000;
    let small = report(&made, Some(limit));
    assert!(small.html.len() <= limit, "{} > {limit}", small.html.len());
    let answers = stored(&small)["answers"]
        .as_object()
        .map(serde_json::Map::len);
    assert!(answers.is_some_and(|answers| answers >= 2), "{answers:?}");
    assert!(small.lacks.len() >= whole.lacks.len() && !small.lacks.is_empty());
}

#[test]
fn a_file_that_is_no_profile_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("perf.data");
    std::fs::write(&file, "hello").expect("a file");
    let options = StaticReportOptions {
        files: vec![file.clone()],
        ..StaticReportOptions::default()
    };
    let error = StaticReport::make(&options).expect_err("no profile");
    assert!(error.to_string().contains("perf.data"), "{error}");
}
