//! `dioptra top`: its numbers are those of the program, of `dioptra report` and of perf; its browser obeys keys.

use dioptra_testprograms::{self as programs, or_skip};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The longest time that anything may take on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(120);

/// The shares of the functions of `shares.c`, by construction.
const SHARES: [(&str, f64); 3] = [("sixty", 0.6), ("thirty", 0.3), ("ten", 0.1)];

fn top(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dioptra"));
    command.arg("top").args(arguments).stdin(Stdio::null());
    command
}

fn output(command: &mut Command) -> Output {
    let output = command.output().expect("dioptra starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    output
}

/// Returns the tables of `--format json`.
fn tables(output: &Output) -> Vec<Value> {
    let stream = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
    stream.map(|table| table.expect("JSON")).collect()
}

/// Returns the numbers of a column by the name of the row.
fn column(table: &Value, id: &str, name: &str) -> BTreeMap<String, f64> {
    let index = |id: &str| {
        let columns = table["columns"].as_array().expect("columns");
        let found = columns.iter().position(|column| column["id"] == id);
        found.unwrap_or_else(|| panic!("no column {id} in {columns:?}"))
    };
    let (number, name) = (index(id), index(name));
    let rows = table["rows"].as_array().expect("rows").iter();
    rows.map(|row| {
        let cell = |column: usize| &row["cells"][column];
        let text = cell(name).as_str().expect("a name").to_owned();
        (text, cell(number).as_f64().unwrap_or(0.0))
    })
    .collect()
}

/// Returns a shell's line that runs a program for ever, for a tenth of a second each time.
fn again_and_again(program: &str) -> String {
    format!("while :; do {program} 50 > /dev/null; done")
}

/// Checks shares of samples against the program's, within five standard errors.
#[track_caller]
fn check_shares(samples: &BTreeMap<String, f64>, what: &str) {
    let of = |name: &str| samples.get(name).copied().unwrap_or(0.0);
    let all: f64 = SHARES.iter().map(|(name, _)| of(name)).sum();
    assert!(all > 300.0, "{what}: {samples:?}");
    for (name, share) in SHARES {
        let error = (share * (1.0 - share) / all).sqrt();
        let seen = of(name) / all;
        assert!(
            (seen - share).abs() < 5.0 * error,
            "{what}: {name} has {seen:.4} of {all} samples, not {share}"
        );
    }
}

#[test]
fn serial_shares_are_those_of_the_program_and_of_perf() {
    or_skip!(programs::need_sampling());
    let shares = or_skip!(programs::c("shares", &["-O1"]));
    let shares = shares.to_str().expect("a path");
    let options = [
        "-e",
        "cpu-clock:u",
        "-F",
        "2000",
        "--batch",
        "--format",
        "json",
    ];
    let output = output(top(&options).args(["-d", "0.4", "--", shares, "1000"]));
    let tables = tables(&output);
    assert!(tables.len() > 1, "{} tables", tables.len());
    let last = tables.last().expect("a table");
    check_shares(&column(last, "samples[all]", "function"), "top");
    // Counts only grow, and the last span is a part of all.
    let mut before = 0.0;
    for table in &tables {
        let sum = |id| -> f64 { column(table, id, "function").values().sum() };
        let (now, all) = (sum("samples[now]"), sum("samples[all]"));
        assert!(before <= all && now <= all, "{before} {now} {all}");
        before = all;
        for fact in [
            "top_span_seconds",
            "top_samples_per_second",
            "top_own_cpu_percent",
        ] {
            assert!(
                table["facts"][fact]["value"].is_number(),
                "{fact}: {}",
                table["facts"]
            );
        }
    }
    // Two of its events: two columns each.
    or_skip!(programs::need_tool("perf"));
    let event = ["-e", "cpu-clock:u", "-F", "2000"];
    let recorded = or_skip!(programs::perf_record(&event, &[shares, "1000"]));
    let report = Command::new(env!("CARGO_BIN_EXE_dioptra"))
        .args(["report", "--format", "json", "-i"])
        .arg(&recorded.file)
        .output()
        .expect("dioptra starts");
    let report: Value = serde_json::from_slice(&report.stdout).expect("JSON");
    let perfs = column(&report, "samples", "function");
    check_shares(&perfs, "perf record");
}

#[test]
fn serial_now_forgets_what_all_keeps() {
    or_skip!(programs::need_sampling());
    let shares = or_skip!(programs::c("shares", &["-O1"]));
    let shares = shares.to_str().expect("a path");
    // The program runs first, and then only the shell's loop does.
    let script =
        format!("{shares} 300; end=$(($(date +%s)+4)); while [ $(date +%s) -lt $end ]; do :; done");
    let options = [
        "-e",
        "cpu-clock:u",
        "--batch",
        "--format",
        "json",
        "--span",
        "1",
    ];
    let output =
        output(top(&options).args(["-d", "0.5", "--limit", "1000", "--", "sh", "-c", &script]));
    let tables = tables(&output);
    let now = |table: &Value| column(table, "samples[now]", "function");
    let ever = tables
        .iter()
        .any(|table| now(table).get("sixty").is_some_and(|count| *count > 0.0));
    assert!(ever, "the program was never seen now");
    let last = tables.last().expect("a table");
    assert_eq!(
        now(last).get("sixty").copied().unwrap_or(0.0),
        0.0,
        "the program is over"
    );
    assert!(now(last).values().sum::<f64>() > 0.0, "the shell goes on");
    check_shares(&column(last, "samples[all]", "function"), "all");
}

#[test]
fn serial_full_tables_begin_anew_and_that_is_said() {
    or_skip!(programs::need_sampling());
    let shares = or_skip!(programs::c("shares", &["-O1"]));
    let shares = shares.to_str().expect("a path");
    let options = [
        "-e",
        "cpu-clock",
        "--batch",
        "--format",
        "json",
        "--max-stacks",
        "20",
    ];
    let output = output(top(&options).args(["-d", "0.3", "--limit", "1000", "--", shares, "1500"]));
    let tables = tables(&output);
    let last = tables.last().expect("a table");
    let fact = &last["facts"]["top_restarts"];
    assert!(
        fact["value"].as_u64().is_some_and(|count| count > 0),
        "{}",
        last["facts"]
    );
    assert_eq!(fact["severity"], "loss");
    // The processes were described anew: their functions still have names.
    let named = tables.iter().any(|table| {
        let restarted = table["facts"]["top_restarts"]["value"].is_u64();
        restarted && column(table, "samples[all]", "function").contains_key("sixty")
    });
    assert!(named, "no function has a name after a restart");
}

#[test]
fn serial_rows_filters_orders_and_numbers_of_tables() {
    or_skip!(programs::need_sampling());
    let shares = or_skip!(programs::c("shares", &["-O1"]));
    let shares = shares.to_str().expect("a path");
    let again = again_and_again(shares);
    let options = ["-e", "cpu-clock:u", "--batch", "-d", "0.5"];
    let run = |more: &[&str]| {
        let output = output(top(&options).args(more).args(["--", "sh", "-c", &again]));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    // The command would run for ever: the number of tables ends it.
    let text = run(&["-n", "2"]);
    assert_eq!(text.matches("# now: ").count(), 2, "{text}");
    assert!(text.contains("top itself takes"), "{text}");
    let csv = run(&["-n", "1", "--by", "process", "--format", "csv"]);
    assert!(csv.lines().any(|line| line.contains("shares")), "{csv}");
    let csv = run(&["-n", "2", "--filter", "thir", "--format", "csv"]);
    let rows = csv.lines().filter(|line| !line.contains("self_percent"));
    let rows: Vec<&str> = rows.collect();
    assert!(
        !rows.is_empty() && rows.iter().all(|row| row.contains("thirty")),
        "{csv}"
    );
    let sorted = run(&["-n", "2", "--sort", "function", "--format", "csv"]);
    let place = |name: &str| sorted.rfind(name).unwrap_or_else(|| panic!("{sorted}"));
    assert!(
        place(",sixty") < place(",ten") && place(",ten") < place(",thirty"),
        "{sorted}"
    );
    let refused = top(&options)
        .args(["-n", "1", "--sort", "nothing", "--", "sh", "-c", &again])
        .output();
    let refused = refused.expect("dioptra starts");
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{errors}");
    assert!(
        errors.contains("no column `nothing`") && errors.contains("samples[now]"),
        "{errors}"
    );
}

#[test]
fn what_cannot_be_shown_is_refused() {
    let plain = top(&["--", "true"]).output().expect("dioptra starts");
    assert_eq!(plain.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&plain.stderr).contains("--batch"));
    or_skip!(programs::need_sampling());
    let missing = top(&[
        "--batch",
        "-e",
        "cpu-clock:u",
        "--",
        "no-such-command-anywhere",
    ]);
    let missing = { missing }.output().expect("dioptra starts");
    assert_eq!(missing.status.code(), Some(127), "{missing:?}");
    let status = top(&["--batch", "-e", "cpu-clock:u", "--", "sh", "-c", "exit 7"]);
    let status = { status }.output().expect("dioptra starts");
    assert_eq!(status.status.code(), Some(7), "{status:?}");
}

/// Callers of a function, with those that the compiler inlined.
#[test]
fn serial_callers_have_inlined_functions() {
    or_skip!(programs::need_sampling());
    let flags = ["-O2", "-g", "-fno-omit-frame-pointer"];
    let inline = or_skip!(programs::c("inline", &flags));
    let inline = inline.to_str().expect("a path");
    let again = format!("while :; do {inline} 20 > /dev/null; done");
    let options = ["-e", "cpu-clock:u", "-d", "0.3", "--", "sh", "-c", &again];
    let mut terminal = Terminal::start(&options, 24, 100);
    terminal.wait("the function", |text| text.contains("outer"));
    terminal.press("/outer\r");
    terminal.wait("the filter", |text| text.contains("/outer"));
    terminal.press("c");
    let plain = terminal.wait("the callers", |text| text.contains("callers of outer"));
    assert!(!plain.contains("mixer"), "{plain}");
    terminal.press("i");
    terminal.wait("the inlined functions", |text| {
        ["step", "mixer", "shaker", "outer", "main"]
            .iter()
            .all(|name| text.contains(name))
    });
    terminal.press("i");
    terminal.wait("the callers alone", |text| !text.contains("mixer"));
    terminal.press("q");
    assert!(terminal.child.wait().expect("a child").success());
}

/// A recording that comes through a pipe has the samples that `dioptra report` counts.
#[test]
fn serial_a_pipe_is_shown() {
    or_skip!(programs::need_sampling());
    let shares = or_skip!(programs::c("shares", &["-O1"]));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("recorded");
    let record = |program: &str, options: &[&str]| {
        let mut command = Command::new(program);
        command.args(["record", "-e", "cpu-clock:u", "-F", "2000", "-o", "-"]);
        let file = File::create(&path).expect("a file");
        command.args(options).arg("--").arg(&shares).arg("500");
        command
            .stdout(file)
            .stderr(Stdio::null())
            .stdin(Stdio::null());
        assert!(
            command.status().expect("it starts").success(),
            "{command:?}"
        );
    };
    let check = |what: &str| {
        let mut shown = top(&["-i", "-", "--batch", "-d", "0.1", "--format", "json"]);
        shown.stdin(File::open(&path).expect("a file"));
        let tables = tables(&output(&mut shown));
        let last = tables.last().expect("a table");
        let samples = column(last, "samples[all]", "function");
        check_shares(&samples, what);
        let mut report = Command::new(env!("CARGO_BIN_EXE_dioptra"));
        report.args(["report", "--format", "json", "-i"]).arg(&path);
        let reported: Value = serde_json::from_slice(&output(&mut report).stdout).expect("a table");
        let columns = reported["columns"].as_array().expect("columns");
        let ids = columns.iter().filter_map(|column| column["id"].as_str());
        let id = { ids }
            .find(|id| id.starts_with("samples"))
            .expect("a column");
        assert_eq!(column(&reported, id, "function"), samples, "{what}");
    };
    record(env!("CARGO_BIN_EXE_dioptra"), &["-g"]);
    check("our pipe");
    record(env!("CARGO_BIN_EXE_dioptra"), &["-g", "-z"]);
    check("our compressed pipe");
    if programs::need_tool("perf").is_ok() {
        record("perf", &["-g"]);
        check("perf's pipe");
    }
    // A file is no pipe, and neither is text.
    let refused = |reason: &str| {
        let mut refused = top(&["-i", "-", "--batch"]);
        refused.stdin(File::open(&path).expect("a file"));
        let refused = refused.output().expect("dioptra starts");
        let errors = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{errors}");
        assert!(errors.contains(reason), "{errors}");
    };
    std::fs::write(&path, "no recording").expect("a file");
    refused("not a perf.data file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_dioptra"));
    command
        .args(["record", "-q", "-e", "cpu-clock:u", "-o"])
        .arg(&path)
        .arg("true");
    assert!(output(&mut command).status.success());
    refused("`dioptra report -i FILE` reads it");
}

/// A terminal with `dioptra top` in it.
struct Terminal {
    child: Child,
    master: File,
    line: OwnedFd,
    screen: Arc<Mutex<vt100::Parser>>,
}

impl Terminal {
    fn start(arguments: &[&str], rows: u16, columns: u16) -> Terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&master).expect("its other end");
        unlockpt(&master).expect("its other end");
        let name = ptsname(&master, Vec::new()).expect("a name");
        let open = || {
            let mut options = OpenOptions::new();
            let file = options
                .read(true)
                .write(true)
                .open(name.to_str().expect("a path"));
            file.expect("its other end")
        };
        let line = OwnedFd::from(open());
        set_size(&line, rows, columns);
        let mut command = top(arguments);
        command.stdin(open()).stdout(open()).stderr(open());
        command
            .env("TERM", "xterm")
            .env("LANG", "C.UTF-8")
            .env_remove("NO_COLOR");
        let child = command.spawn().expect("dioptra starts");
        let screen = Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 0)));
        let mut reader = File::from(master.try_clone().expect("a descriptor"));
        let seen = Arc::clone(&screen);
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut piece) {
                seen.lock().expect("a screen").process(&piece[..count]);
            }
        });
        Terminal {
            child,
            master: File::from(master),
            line,
            screen,
        }
    }

    fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).expect("a terminal");
    }

    fn text(&self) -> String {
        self.screen.lock().expect("a screen").screen().contents()
    }

    /// Waits until the screen holds what is wanted.
    #[track_caller]
    fn wait(&self, what: &str, is_there: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let text = self.text();
            if is_there(&text) {
                return text;
            }
            assert!(start.elapsed() < PATIENCE, "{what} did not come:\n{text}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn set_size(line: &OwnedFd, rows: u16, columns: u16) {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(line, size).expect("a size");
}

#[test]
fn serial_the_browser_obeys_keys() {
    or_skip!(programs::need_sampling());
    let shares = or_skip!(programs::c(
        "shares",
        &["-O1", "-g", "-fno-omit-frame-pointer"]
    ));
    let shares = shares.to_str().expect("a path");
    let mut terminal = Terminal::start(
        &[
            "-e",
            "cpu-clock:u",
            "-d",
            "0.3",
            "--",
            "sh",
            "-c",
            &again_and_again(shares),
        ],
        24,
        100,
    );
    let has_all = |text: &str| SHARES.iter().all(|(name, _)| text.contains(name));
    // The largest share comes first, with the cursor on it, once there are more than a few samples.
    let text = terminal.wait("the functions in order", |text| {
        has_all(text) && text.find("sixty") < text.find("thirty")
    });
    assert!(
        text.contains("samples/s") && text.contains("0 lost"),
        "{text}"
    );
    terminal.press("c");
    terminal.wait("the callers", |text| {
        text.contains("callers of sixty") && text.contains("─main")
    });
    terminal.press("a");
    let code = terminal.wait("the code", |text| {
        text.contains("code of sixty") && text.contains("xor")
    });
    assert!(code.contains("shares.c") || code.contains("STEP"), "{code}");
    terminal.press("\x1b");
    terminal.wait("the callers again", |text| {
        text.contains("callers of sixty")
    });
    terminal.press("\x1b");
    terminal.wait("the functions again", has_all);
    terminal.press("/thir\r");
    terminal.wait("the filter", |text| {
        text.contains("thirty") && !text.contains("sixty")
    });
    terminal.press("/\x7f\x7f\x7f\x7f\r");
    terminal.wait("all functions", has_all);
    terminal.press(" ");
    terminal.wait("the pause", |text| text.contains("PAUSED"));
    // The rest of the same screen may still be on its way.
    std::thread::sleep(Duration::from_millis(200));
    let paused = terminal.text();
    std::thread::sleep(Duration::from_millis(900));
    assert_eq!(terminal.text(), paused, "the screen stays");
    terminal.press(" ");
    terminal.wait("the end of the pause", |text| !text.contains("PAUSED"));
    terminal.press("p");
    terminal.wait("the processes", |text| {
        text.contains("process") && text.contains("shares")
    });
    terminal.press("\r");
    terminal.wait("its functions", |text| {
        text.contains(" in shares") && text.contains("sixty")
    });
    // A smaller terminal: the names stay in sight.
    set_size(&terminal.line, 10, 60);
    terminal
        .screen
        .lock()
        .expect("a screen")
        .screen_mut()
        .set_size(10, 60);
    programs::send_signal(terminal.child.id(), 28).expect("SIGWINCH");
    terminal.wait("the smaller screen", |text| {
        text.contains("sixty") && text.lines().all(|line| line.chars().count() <= 60)
    });
    terminal.press("h");
    terminal.wait("the help", |text| text.contains("move the cursor"));
    terminal.press("q");
    let start = Instant::now();
    let status = loop {
        if let Some(status) = terminal.child.try_wait().expect("a child") {
            break status;
        }
        assert!(start.elapsed() < PATIENCE, "q does not end it");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(status.code(), Some(0));
    // The screen from before is back.
    terminal.wait("the old screen", |text| !text.contains("samples/s"));
}

/// A key counts at once, also where the terminal's size changes in the same moment.
#[test]
fn serial_keys_count_while_the_size_changes() {
    or_skip!(programs::need_sampling());
    let options = ["-e", "cpu-clock:u", "--", "sleep", "1000"];
    let mut terminal = Terminal::start(&options, 24, 100);
    terminal.wait("the screen", |text| text.contains("samples/s"));
    // The moment in which a key used to be forgotten is short, and each pause hits another part of it.
    for attempt in 0..200_u64 {
        let (key, is_help) = match attempt % 2 {
            0 => ("h", true),
            _ => ("\x1b", false),
        };
        set_size(&terminal.line, 24, 100 - (attempt % 2) as u16);
        programs::send_signal(terminal.child.id(), 28).expect("SIGWINCH");
        let pause = Instant::now() + Duration::from_micros(attempt % 50 * 2);
        while Instant::now() < pause {
            std::hint::spin_loop();
        }
        terminal.press(key);
        terminal.wait(&format!("the effect of key {attempt}"), |text| {
            text.contains("move the cursor") == is_help
        });
    }
    programs::send_signal(terminal.child.id(), 2).expect("SIGINT");
    terminal.child.wait().expect("a child");
}
