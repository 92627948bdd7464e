//! `dioptra web`: its address, its end, and that its numbers are those of `dioptra report` and `dioptra annotate`.

#[path = "../../sampling/profile/tests/support/mod.rs"]
mod records;
#[path = "web/traces.rs"]
mod traces;

use dioptra_testprograms::{self as programs, Skip, need_shared_data, or_skip, send_signal};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn dioptra(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dioptra"));
    command
        .args(arguments)
        .env_remove("DIOPTRA_DEBUGINFOD")
        .env_remove("DEBUGINFOD_URLS")
        .stdin(Stdio::null());
    command
}

fn output(arguments: &[&str]) -> Output {
    dioptra(arguments).output().expect("dioptra runs")
}

/// A running page.
struct Page {
    child: Child,
    port: u16,
    token: String,
}

impl Page {
    fn open(arguments: &[&str]) -> Page {
        let mut child = dioptra(&["web", "--no-open"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("dioptra runs");
        let mut line = String::new();
        let out = child.stdout.as_mut().expect("its output");
        BufReader::new(out).read_line(&mut line).expect("a line");
        let rest = line.strip_prefix("http://127.0.0.1:");
        let (port, token) = rest
            .and_then(|rest| rest.trim_end().split_once("/?token="))
            .unwrap_or_else(|| panic!("no address: {line:?}"));
        assert!(token.len() == 32 && token.bytes().all(|digit| digit.is_ascii_hexdigit()));
        Page {
            port: port.parse().expect("a port"),
            token: token.to_owned(),
            child,
        }
    }

    fn ask(&self, path: &str) -> Value {
        let (head, body) = self.get(path);
        assert!(head.starts_with("HTTP/1.1 200"), "{path}: {head}\n{body}");
        serde_json::from_str(&body).expect("JSON")
    }

    /// The head and the body of an answer.
    fn get(&self, path: &str) -> (String, String) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("a connection");
        let (port, token) = (self.port, &self.token);
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nX-Dioptra-Token: {token}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        (head.to_owned(), body.to_owned())
    }

    fn wait_until_ready(&self) {
        let began = Instant::now();
        loop {
            let status = self.ask("/api/status");
            match status["profiles"][0]["state"].as_str() {
                Some("ready") => return,
                Some("failed") => panic!("{status}"),
                _ => assert!(began.elapsed() < Duration::from_secs(120), "{status}"),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends it as Ctrl-C does, and gives what it said on standard error.
    fn end(mut self) -> String {
        send_signal(self.child.id(), libc::SIGINT).expect("a signal");
        let status = self.child.wait().expect("it ends");
        assert_eq!(status.code(), Some(0));
        let mut said = String::new();
        let errors = self.child.stderr.as_mut().expect("its errors");
        errors.read_to_string(&mut said).expect("text");
        said
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All rows of a table, asked for in ranges.
fn rows(page: &Page, query: &str) -> (Vec<Value>, Value) {
    let mut rows = Vec::new();
    loop {
        let from = rows.len();
        let answer = page.ask(&format!("/api/table?{query}&from={from}&count=700"));
        let more = answer["rows"].as_array().expect("rows");
        rows.extend(more.iter().map(|row| row["cells"].clone()));
        if more.is_empty() {
            assert_eq!(answer["matching_rows"], rows.len());
            return (rows, answer["columns"].clone());
        }
    }
}

/// Compares tables of the page with those of `dioptra report`.
fn compare_tables(file: &Path, has_chains: bool, more: &[(&str, &[&str])]) {
    let file = file.to_str().expect("a path");
    let page = Page::open(&[file]);
    page.wait_until_ready();
    let plain: [(&str, &[&str]); 5] = [
        ("by=module", &["--by", "module"]),
        (
            "by=process,module,function",
            &["--by", "process,module,function"],
        ),
        ("by=thread", &["--by", "thread"]),
        ("by=time&slices=7", &["--by", "time", "--slices", "7"]),
        (
            "by=function&percent=total",
            &["--by", "function", "--percent", "total"],
        ),
    ];
    let chains: [(&str, &[&str]); 1] = [("by=function&children=1", &["--children"])];
    let all = plain
        .iter()
        .filter(|(query, _)| !has_chains || !query.contains("function"));
    let all = all.chain(chains.iter().filter(|_| has_chains));
    for (query, arguments) in all.chain(more) {
        let mut words = vec!["report", "-i", file, "--format", "json"];
        words.extend(*arguments);
        let output = output(&words);
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let expected = report["rows"].as_array().expect("rows");
        let (found, columns) = rows(&page, query);
        let ids = |columns: &Value| -> Vec<Value> {
            let columns = columns.as_array().expect("columns").iter();
            columns.map(|column| column["id"].clone()).collect()
        };
        assert_eq!(ids(&columns), ids(&report["columns"]), "{query}");
        assert_eq!(found.len(), expected.len(), "{query}");
        for (found, expected) in found.iter().zip(expected) {
            assert_eq!(*found, expected["cells"], "{query}");
        }
        assert!(!found.is_empty(), "{query}");
    }
    page.end();
}

#[test]
fn numbers_of_shared_recordings_are_those_of_report() {
    let shared = |name: &str| need_shared_data(&format!("perfdata/{name}"));
    let chains = or_skip!(shared("with-callchain.perf.data"));
    compare_tables(&chains, true, &[]);
    let events = or_skip!(shared("multi-event-single-process.perf.data"));
    compare_tables(&events, false, &[]);
}

/// A recording of one sample, made without sampling.
fn one_sample(folder: &Path) -> PathBuf {
    let mut records = records::Records::default();
    records.comm(42, 42, true, "program");
    records.sample(records::ID, (42, 42), 0x1000, 10, &[]);
    let file = folder.join("perf.data");
    std::fs::write(&file, records.file(&records::flat())).expect("the recording");
    file
}

/// A recording of a program whose functions have known shares.
fn recorded(folder: &Path) -> Result<PathBuf, Skip> {
    programs::need_sampling()?;
    let program = programs::c("shares", &["-g", "-O1", "-fno-omit-frame-pointer"])?;
    let file = folder.join("perf.data");
    let status = dioptra(&[
        "record",
        "-q",
        "-g",
        "-F",
        "2000",
        "-e",
        "cpu-clock:u",
        "-o",
    ])
    .arg(&file)
    .arg("--")
    .arg(&program)
    .arg("100")
    .stdout(Stdio::null())
    .status()
    .expect("dioptra runs");
    assert!(status.success());
    Ok(file)
}

#[test]
fn numbers_of_a_new_recording_are_those_of_report_and_annotate() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = or_skip!(recorded(folder.path()));
    compare_tables(
        &file,
        true,
        &[("by=line", &["--by", "line"]), ("by=cpu", &["--by", "cpu"])],
    );
    let file = file.to_str().expect("a path");
    let page = Page::open(&[file]);
    page.wait_until_ready();
    let hottest = page.ask("/api/table?by=function&count=1");
    let key = hottest["rows"][0]["key"]["function"]
        .as_str()
        .expect("a key");
    let key: String = key.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let answer = page.ask(&format!("/api/function?function={key}"));
    let output = output(&["annotate", "-i", file, "--format", "json"]);
    let annotation: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(answer["function"]["name"], annotation["function"]["name"]);
    let start = annotation["function"]["virtual_start"].as_u64();
    let start = format!("{:#x}", start.expect("a number"));
    assert_eq!(answer["function"]["virtual_start"], start);
    let instructions = annotation["instructions"].as_array().expect("instructions");
    let list = &answer["instructions"];
    assert_eq!(
        list["address"].as_array().map(Vec::len),
        Some(instructions.len())
    );
    for (at, instruction) in instructions.iter().enumerate() {
        let address = instruction["address"].as_u64().expect("a number");
        assert_eq!(list["address"][at], format!("{address:#x}"));
        assert_eq!(list["text"][at], instruction["text"]);
        assert_eq!(list["bytes"][at], instruction["bytes"]);
        assert_eq!(list["samples"][0][at], instruction["counts"][0]["samples"]);
        assert_eq!(list["weight"][0][at], instruction["counts"][0]["weight"]);
        let stack = list["stack"][at].as_i64().expect("a number");
        let frames = usize::try_from(stack)
            .ok()
            .map(|stack| &answer["stacks"][stack]);
        let lines: Vec<&Value> = frames
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(|frame| &answer["frames"]["line"][frame.as_u64().expect("a number") as usize])
            .collect();
        let expected = instruction["frames"].as_array().expect("frames").iter();
        let expected: Vec<&Value> = expected.map(|frame| &frame["line"]).collect();
        assert_eq!(lines, expected);
    }
    for list in ["blocks", "edges", "loops", "lines"] {
        let length = |value: &Value| value[list].as_array().map(Vec::len);
        assert_eq!(length(&answer), length(&annotation), "{list}");
    }
    // The source files that the function names can be read; others cannot.
    let source = &answer["files"][0];
    assert_eq!(source["found"], true, "{source}");
    let id = source["id"].as_str().expect("an id");
    let text = page.ask(&format!("/api/source?file={id}&from=2&count=3"));
    let path = source["found_at"].as_str().expect("a path");
    let lines = std::fs::read_to_string(path).expect("the source");
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(text["total_lines"], lines.len());
    assert_eq!(text["lines"], serde_json::json!(lines[1..4]));
    // Calls lead to the functions that the profile knows, and inlined functions change no sum.
    let sum = |query: &str| -> u64 {
        let table = page.ask(&format!("/api/table?by=function&{query}"));
        let columns = table["columns"].as_array().expect("columns");
        let at = columns.iter().position(|column| column["id"] == "samples");
        table["totals"][at.expect("a column")]
            .as_u64()
            .expect("a number")
    };
    assert_eq!(sum(""), sum("inlined=1"));
    assert!(sum("") > 0);
    page.end();
}

/// Compares an export of the page with what a command prints as JSON.
fn compare_export(page: &Page, query: &str, command: &[&str]) {
    let found = page.ask(&format!("/api/export?format=json&{query}"));
    let mut words = command.to_vec();
    words.extend(["--format", "json"]);
    let output = output(&words);
    assert!(output.status.success(), "{words:?}");
    let expected: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(found["columns"], expected["columns"], "{query}");
    assert_eq!(found["rows"], expected["rows"], "{query}");
    assert!(!found["rows"].as_array().expect("rows").is_empty());
}

/// Records a program with these options.
fn record(folder: &Path, name: &str, options: &[&str]) -> Result<String, Skip> {
    programs::need_sampling()?;
    let program = programs::c("shares", &["-g", "-O1", "-fno-omit-frame-pointer"])?;
    let file = folder.join(name).to_str().expect("a path").to_owned();
    let status = dioptra(&["record", "-q", "-o", &file])
        .args(options)
        .arg("--")
        .arg(&program)
        .arg("100")
        .stdout(Stdio::null())
        .status()
        .expect("dioptra runs");
    assert!(status.success());
    Ok(file)
}

#[test]
fn metrics_and_changes_are_those_of_the_commands() {
    let folder = tempfile::tempdir().expect("a folder");
    let events = ["-g", "-F", "1500", "-e", "task-clock,page-faults"];
    let before = or_skip!(record(folder.path(), "before.data", &events));
    let after = or_skip!(record(folder.path(), "after.data", &events));
    let windows = or_skip!(record(folder.path(), "windows.data", &["-g", "--windows"]));
    let others = or_skip!(record(folder.path(), "others.data", &["-g", "--windows"]));
    let (before, after, windows) = (&*before, &*after, &*windows);
    let page = Page::open(&[before, after, windows, &others]);
    for profile in 0..4 {
        let began = Instant::now();
        while page.ask("/api/status")["profiles"][profile]["state"] != "ready" {
            assert!(began.elapsed() < Duration::from_secs(120));
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    for by in ["function", "path", "line", "module", "thread", "process"] {
        let command = ["metrics", "-i", windows, "--by", by];
        compare_export(&page, &format!("of=metrics&profile=2&by={by}"), &command);
    }
    let command = ["metrics", "-i", windows, "--time", "0.02.."];
    compare_export(&page, "of=metrics&profile=2&time=20000000..", &command);
    // Without windows: ratios of sampled counts.
    compare_export(&page, "of=metrics", &["metrics", "-i", before]);
    let command = [
        "report",
        "-i",
        before,
        "--by",
        "module",
        "--metric",
        "faults_per_ms",
    ];
    // The command shows errors beside metrics for programs.
    compare_export(&page, "by=module&metric=faults_per_ms&errors=1", &command);
    for by in ["function", "module", "process,module"] {
        let command = ["diff", before, after, "--by", by];
        compare_export(&page, &format!("of=diff&with=1&by={by}"), &command);
    }
    // A condition on call stacks holds for windows that have some.
    let functions = page.ask("/api/table?profile=2&by=function&children=1&count=2000");
    let place = |table: &Value, id: &str| {
        let columns = table["columns"].as_array().expect("columns").iter();
        let mut ids = columns.map(|column| column["id"].clone());
        ids.position(|each| each == id).expect("a column")
    };
    let names = |table: &Value| -> Vec<String> {
        let at = place(table, "function");
        let rows = table["rows"].as_array().expect("rows").iter();
        rows.map(|row| row["cells"][at].as_str().expect("a name").to_owned())
            .collect()
    };
    let key = |name: &str| {
        let at = names(&functions).iter().position(|each| each == name);
        let key = &functions["rows"][at.expect("a row")]["key"]["function"];
        key.as_str().expect("a key").to_owned()
    };
    let through = |name: &str| {
        let key = key(name);
        page.ask(&format!(
            "/api/table?of=metrics&profile=2&through={key}&count=2000"
        ))
    };
    let of_sixty = through("sixty");
    assert_eq!(names(&of_sixty), ["sixty"]);
    let of_main = names(&through("main"));
    for name in ["sixty", "thirty", "ten"] {
        assert!(of_main.iter().any(|each| each == name), "{of_main:?}");
    }
    let facts = of_sixty["facts"].as_array().expect("facts");
    assert!(
        facts
            .iter()
            .all(|fact| fact["id"] != "selection_not_applied")
    );
    // Metrics of windows beside samples, and their differences.
    let metric = page.ask("/api/profile?profile=2")["metrics"][0]["name"].clone();
    let metric = metric.as_str().expect("a metric");
    for by in ["function", "module", "thread"] {
        let command = ["report", "-i", windows, "--by", by, "--metric", metric];
        compare_export(
            &page,
            &format!("profile=2&by={by}&metric={metric}&errors=1"),
            &command,
        );
        let command = ["diff", windows, &others, "--by", by, "--metric", metric];
        let query = format!("of=diff&profile=2&with=3&by={by}&metric={metric}");
        compare_export(&page, &query, &command);
    }
    for (query, why) in [
        ("profile=2&by=process,module", "rows of one kind"),
        ("of=diff&profile=2&with=1", "no windows"),
    ] {
        let (head, body) = page.get(&format!("/api/table?{query}&metric={metric}"));
        assert!(
            head.starts_with("HTTP/1.1 4") && body.contains(why),
            "{query}: {head} {body}"
        );
    }
    for normalize in ["time", "page-faults"] {
        let command = ["diff", before, after, "--normalize", normalize];
        let query = format!("of=diff&with=1&normalize={normalize}");
        compare_export(&page, &query, &command);
    }
    page.end();
}

#[test]
fn the_page_ends_with_ctrl_c_and_says_nothing_on_the_way() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = one_sample(folder.path());
    let file = file.to_str().expect("a path");
    // At once, while the profile is still being loaded.
    assert_eq!(Page::open(&[file]).end(), "");
    let page = Page::open(&[file]);
    page.wait_until_ready();
    let first = page.port;
    assert_eq!(page.end(), "");
    // The same port again.
    let page = Page::open(&[file, "--port", &first.to_string()]);
    assert_eq!(page.port, first);
    let taken = output(&["web", file, "--port", &first.to_string()]);
    assert_eq!(taken.status.code(), Some(1));
    let said = String::from_utf8_lossy(&taken.stderr).into_owned();
    assert!(
        said.contains("--port") && said.contains("cannot listen"),
        "{said}"
    );
    assert_eq!(taken.stdout, b"");
    page.end();
}

#[test]
fn other_addresses_are_warned_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = one_sample(folder.path());
    let page = Page::open(&[file.to_str().expect("a path"), "--listen", "0.0.0.0"]);
    let said = page.end();
    assert!(
        said.contains("warning: other machines can reach this page"),
        "{said}"
    );
    // An address that is kept for documentation is nobody's.
    let output = output(&[
        "web",
        file.to_str().expect("a path"),
        "--listen",
        "192.0.2.1",
    ]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn what_is_no_profile_is_said_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = folder.path().join("text");
    std::fs::write(&text, "hello, world").expect("a file");
    for (arguments, status, why) in [
        (
            &["web", "/nonexistent/perf.data"][..],
            1,
            "/nonexistent/perf.data",
        ),
        (&["web", text.to_str().expect("a path")], 1, "perf.data"),
        (&["web", "-", "-"], 1, "standard input"),
        (&["web", "--port", "0"], 2, "--port"),
        (&["web", "--port", "70000"], 2, "--port"),
        (&["web", "--listen", "localhost"], 2, "--listen"),
    ] {
        let output = output(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
        assert!(said.contains(why), "{arguments:?}: {said}");
        assert_eq!(output.stdout, b"");
    }
}

#[test]
fn a_report_is_one_file_and_leaves_source_text_out_when_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    let recording = or_skip!(recorded(folder.path()));
    let file = recording.to_str().expect("a path");
    let report = folder.path().join("report.html");
    let written = output(&["web", "--export", report.to_str().expect("a path"), file]);
    let said = String::from_utf8_lossy(&written.stderr).into_owned();
    assert_eq!(written.status.code(), Some(0), "{said}");
    assert_eq!(written.stdout, b"");
    for part in ["report.html: ", "  in it: ", "  not in it: "] {
        assert!(said.contains(part), "{said}");
    }
    let html = std::fs::read_to_string(&report).expect("the report");
    assert!(html.len() < 5_000_000);
    assert!(html.contains("\"function?") && html.contains("\"source?file="));
    let without = output(&["web", "--export", "-", "--no-source", file]);
    assert_eq!(without.status.code(), Some(0));
    let html = String::from_utf8(without.stdout).expect("text");
    assert!(html.contains("\"function?") && html.contains("\"has_source\":false"));
    assert!(!html.contains("\"source?file="));
    // A recording is no place for a report.
    let before = std::fs::read(&recording).expect("the recording");
    for arguments in [
        &["web", "--export", file][..],
        &["web", "--export", "a.html", "--port", "8000"],
        &["web", "--export", "a.html", "--no-open"],
        &["web", "--no-source"],
    ] {
        assert_eq!(output(arguments).status.code(), Some(2), "{arguments:?}");
    }
    assert_eq!(std::fs::read(&recording).expect("the recording"), before);
}
