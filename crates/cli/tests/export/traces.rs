//! Traces of calls: every format has the numbers of `dioptra trace report`, and of a program that counts its calls.

use crate::callgrind::annotated;
use crate::firefox;
use crate::otlp;
use crate::perfetto::decoded;
use crate::pprof::top;
use crate::support::{dioptra, done, number};
use dioptra_testprograms::{self as programs, Skip, or_skip};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use tempfile::TempDir;

/// The number of calls of `fib` that `fib(14)` makes.
const FIBS: u64 = 1219;

type Sums = BTreeMap<String, u64>;

/// Records a program, and returns the folder of its trace.
fn traced(program: &str, flags: &[&str], words: &[&str]) -> Result<TempDir, Skip> {
    programs::need_tool("gcc")?;
    if !cfg!(target_arch = "x86_64") {
        return Err(Skip::for_limit(programs::Limit::NotX86));
    }
    let program = programs::c(program, flags)?;
    let program = program.to_string_lossy().into_owned();
    let folder = tempfile::tempdir().expect("a folder");
    let words = [&["trace", "record", "-P", ".", &program], words].concat();
    done(folder.path(), &words);
    Ok(folder)
}

fn fibs() -> Result<TempDir, Skip> {
    traced("trace-calls", &[], &["fib", "14"])
}

/// The rows of `dioptra trace report` by function: total time, self time and number of calls.
fn report(folder: &Path, options: &[&str]) -> BTreeMap<String, [u64; 3]> {
    let arguments = [&["trace", "report", "--format", "json"], options].concat();
    let (json, _) = done(folder, &arguments);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let columns = json["columns"].as_array().expect("columns");
    let place = |id: &str| {
        let found = columns.iter().position(|column| column["id"] == id);
        found.unwrap_or_else(|| panic!("no column {id} in {columns:?}"))
    };
    let [total, own, calls] = ["total", "self", "calls"].map(place);
    let function = place("function");
    let rows = json["rows"].as_array().expect("rows").iter();
    rows.map(|row| {
        let cell = |place: usize| &row["cells"][place];
        let name = cell(function).as_str().expect("a name").to_owned();
        (name, [total, own, calls].map(|place| number(cell(place))))
    })
    .collect()
}

/// A column of the report, without zeros.
fn column(rows: &BTreeMap<String, [u64; 3]>, place: usize) -> Sums {
    let rows = rows
        .iter()
        .map(|(name, cells)| (name.clone(), cells[place]));
    rows.filter(|(_, value)| *value > 0).collect()
}

/// Sums collapsed stacks by innermost function, and by function on the stack.
fn collapsed(text: &str) -> (Sums, Sums) {
    let (mut own, mut total) = (Sums::new(), Sums::new());
    for line in text.lines() {
        let (stack, value) = line.rsplit_once(' ').expect("a value");
        let value: u64 = value.parse().expect("a number");
        // The first name is the thread's.
        let mut names: Vec<&str> = stack.split(';').skip(1).collect();
        *own.entry(names.last().expect("a function").to_string())
            .or_default() += value;
        names.sort_unstable();
        names.dedup();
        for name in names {
            *total.entry(name.to_owned()).or_default() += value;
        }
    }
    (own, total)
}

#[test]
fn collapsed_stacks_have_self_times_totals_and_calls() {
    let trace = or_skip!(fibs());
    let folder = trace.path();
    let rows = report(folder, &[]);
    assert_eq!(rows["fib"][2], FIBS, "{rows:?}");
    let words = ["export", "--to", "collapsed", "-d", "dioptra.trace"];
    let (text, said) = done(folder, &words);
    let (own, total) = collapsed(&text);
    assert_eq!(own, column(&rows, 1), "{text}");
    assert_eq!(total, column(&rows, 0), "{text}");
    let calls: u64 = column(&rows, 2).values().sum();
    assert!(
        said.contains(&format!("the number of calls, {calls}")),
        "{said}"
    );
    // A directory may stand in the place of a profile, too.
    let words = ["export", "--to", "collapsed", "-i", "dioptra.trace"];
    let (text, _) = done(folder, &[&words[..], &["--value", "calls"]].concat());
    let (own, _) = collapsed(&text);
    assert_eq!(own, column(&rows, 2), "{text}");
}

#[test]
fn hidden_calls_have_a_place_of_their_own() {
    let trace = or_skip!(fibs());
    let folder = trace.path();
    let hidden = ["-N", "fib", "-N", "clock_gettime"];
    let rows = report(folder, &hidden);
    assert!(!rows.contains_key("fib"), "{rows:?}");
    let words = ["export", "--to", "collapsed", "-d", "dioptra.trace"];
    let (text, said) = done(folder, &[&words[..], &hidden].concat());
    let (mut own, mut total) = collapsed(&text);
    let not_shown = own.remove("[calls not shown]").expect("hidden calls");
    assert_eq!(own, column(&rows, 1), "{text}");
    total.remove("[calls not shown]");
    assert_eq!(total, column(&rows, 0), "{text}");
    let all = report(folder, &[]);
    assert_eq!(not_shown, all["fib"][0] + all["clock_gettime"][0]);
    assert!(
        said.contains(&format!("{not_shown} ns were spent")),
        "{said}"
    );
    // A filter for one function.
    let (text, _) = done(folder, &[&words[..], &["-F", "cpu_time"]].concat());
    let (own, _) = collapsed(&text);
    assert_eq!(own, column(&report(folder, &["-F", "cpu_time"]), 1));
    assert!(own.len() > 1 && !own.contains_key("main"), "{own:?}");
}

#[test]
fn pprof_shows_calls_and_times() {
    or_skip!(programs::need_tool("go"));
    let trace = or_skip!(fibs());
    let folder = trace.path();
    let rows = report(folder, &[]);
    done(folder, &["export", "--to", "pprof", "-d", "dioptra.trace"]);
    let (own, total) = top(folder, "time");
    assert_eq!(own, column(&rows, 1));
    assert_eq!(total, column(&rows, 0));
    let (calls, _) = top(folder, "calls");
    assert_eq!(calls, column(&rows, 2));
}

#[test]
fn callgrind_annotate_shows_calls_and_times() {
    or_skip!(programs::need_tool("callgrind_annotate"));
    let trace = or_skip!(fibs());
    let folder = trace.path();
    for hidden in [&[][..], &["-N", "fib"]] {
        let rows = report(folder, hidden);
        let words = ["export", "--to", "callgrind", "-d", "dioptra.trace"];
        done(folder, &[&words[..], hidden].concat());
        let (mut own, sum) = annotated(folder, "self_time", false);
        assert_eq!(sum, own.values().sum::<u64>());
        let not_shown = own.remove("[calls not shown]");
        assert_eq!(not_shown.is_some(), !hidden.is_empty());
        assert_eq!(own, column(&rows, 1));
        let (calls, _) = annotated(folder, "calls", false);
        assert_eq!(calls, column(&rows, 2));
        let (mut total, _) = annotated(folder, "self_time", true);
        total.remove("[calls not shown]");
        // callgrind_annotate adds recursive calls to a function's own costs.
        total.remove("fib");
        let mut expected = column(&rows, 0);
        expected.remove("fib");
        assert_eq!(total, expected);
    }
}

#[test]
fn speedscope_and_flame_graphs_have_self_times() {
    let trace = or_skip!(fibs());
    let folder = trace.path();
    let rows = report(folder, &[]);
    let words = ["export", "--to", "speedscope", "-d", "dioptra.trace"];
    done(folder, &words);
    let file = std::fs::read(folder.join("profile.speedscope.json")).expect("the file");
    let file: Value = serde_json::from_slice(&file).expect("JSON");
    let mut own = Sums::new();
    for profile in file["profiles"].as_array().expect("profiles") {
        assert_eq!(profile["unit"], "nanoseconds");
        let samples = profile["samples"].as_array().expect("samples").iter();
        for (stack, weight) in samples.zip(profile["weights"].as_array().expect("weights")) {
            let innermost = stack.as_array().and_then(|stack| stack.last());
            let frame = number(innermost.expect("a frame"));
            let name = &file["shared"]["frames"][frame as usize]["name"];
            *own.entry(name.as_str().expect("a name").to_owned())
                .or_default() += number(weight);
        }
    }
    assert_eq!(own, column(&rows, 1));
    let words = ["export", "--to", "flamegraph", "-d", "dioptra.trace"];
    done(folder, &words);
    let picture = std::fs::read_to_string(folder.join("flamegraph.svg")).expect("the file");
    let whole: u64 = column(&rows, 1).values().sum();
    let main = rows["main"][0];
    assert_eq!(whole, main, "all calls are below main");
    assert!(
        picture.contains(&format!("<title>all ({whole} ns")),
        "the whole"
    );
    assert!(picture.contains(&format!("<title>main ({main} ns")), "main");
}

#[test]
fn opentelemetry_has_calls_and_times() {
    let trace = or_skip!(fibs());
    let folder = trace.path();
    for hidden in [&[][..], &["-N", "fib"]] {
        let rows = report(folder, hidden);
        let words = [
            "export",
            "--to",
            "otlp",
            "-d",
            "dioptra.trace",
            "--service",
            "fibs",
        ];
        done(folder, &[&words[..], hidden].concat());
        let file = or_skip!(otlp::read_file(&folder.join("profile.otlp.pb")));
        let (mut own, mut total) = otlp::sums(otlp::profile(&file, "time", "nanoseconds"));
        assert_eq!(
            own.remove("[calls not shown]").is_some(),
            !hidden.is_empty()
        );
        total.remove("[calls not shown]");
        assert_eq!(own, column(&rows, 1));
        assert_eq!(total, column(&rows, 0));
        let (calls, _) = otlp::sums(otlp::profile(&file, "calls", "count"));
        assert_eq!(calls, column(&rows, 2));
        assert_eq!(file["resource"]["service.name"], "fibs");
        let profile = otlp::profile(&file, "calls", "count");
        let sample = &otlp::list(&profile["samples"])[0];
        assert_eq!(sample["attributes"]["thread.name"], "trace-calls");
        let of_main = |frame: &&Value| frame["name"] == "main";
        let main = otlp::list(&sample["frames"]).iter().find(of_main);
        let main = main.expect("all calls are below main");
        let ends =
            |key: &str, end: &str| main[key].as_str().is_some_and(|text| text.ends_with(end));
        assert!(
            ends("file", "trace-calls.c") && ends("module", "trace-calls"),
            "{main}"
        );
        assert_eq!(main["kind"], "native");
    }
}

/// The nanoseconds of an exact number of milliseconds.
fn nanoseconds(milliseconds: f64) -> u64 {
    (milliseconds * 1e6).round() as u64
}

#[test]
fn firefox_has_each_call_on_its_thread() {
    let trace = or_skip!(traced("threads", &["-pthread"], &["3", "1"]));
    let folder = trace.path();
    done(
        folder,
        &["export", "--to", "firefox", "-d", "dioptra.trace"],
    );
    let file = std::fs::read(folder.join("profile.firefox.json")).expect("the file");
    let file: Value = serde_json::from_slice(&file).expect("JSON");
    let rows = report(folder, &[]);
    let (mut own, mut total) = (Sums::new(), Sums::new());
    let mut names = Vec::new();
    for thread in file["threads"].as_array().expect("threads") {
        names.push(thread["name"].as_str().expect("a name").to_owned());
        assert_eq!(thread["samples"]["weightType"], "tracing-ms");
        let samples = firefox::samples(&file, thread);
        for (place, sample) in samples.iter().enumerate() {
            let Some(innermost) = sample.names.first() else {
                assert_eq!(sample.weight, 0.0, "time outside of calls counts nothing");
                continue;
            };
            // The stack chart shows the stack until the next sample.
            let next = samples.get(place + 1).expect("the end of the calls").time;
            let length = nanoseconds(next) - nanoseconds(sample.time);
            assert_eq!(nanoseconds(sample.weight), length, "{:?}", sample.names);
            *own.entry(innermost.clone()).or_default() += length;
            for name in sample.names.iter().collect::<BTreeSet<_>>() {
                *total.entry(name.clone()).or_default() += length;
            }
        }
    }
    assert_eq!(own, column(&rows, 1));
    assert_eq!(total, column(&rows, 0));
    names.retain(|name| name.starts_with("worker"));
    names.sort();
    assert_eq!(names, ["worker-0", "worker-1", "worker-2"]);
}

#[test]
fn firefox_has_each_call_of_recursive_functions() {
    let trace = or_skip!(fibs());
    let folder = trace.path();
    for range in [&[][..], &["-r", "2us~30us"]] {
        let words = ["export", "--to", "firefox", "-d", "dioptra.trace"];
        done(folder, &[&words[..], range].concat());
        let file = std::fs::read(folder.join("profile.firefox.json")).expect("the file");
        let file: Value = serde_json::from_slice(&file).expect("JSON");
        let mut own = Sums::new();
        for thread in file["threads"].as_array().expect("threads") {
            for sample in firefox::samples(&file, thread) {
                if let Some(innermost) = sample.names.first() {
                    *own.entry(innermost.clone()).or_default() += nanoseconds(sample.weight);
                }
            }
        }
        assert_eq!(own, column(&report(folder, range), 1), "{range:?}");
    }
}

/// Sums of slices by function: total times, of recursive calls the outermost ones, and numbers of calls.
fn slices(decoded: &Value) -> (Sums, Sums) {
    let (mut total, mut calls) = (Sums::new(), Sums::new());
    for slice in decoded["slices"].as_array().expect("slices") {
        let name = slice["name"].as_str().expect("a name").to_owned();
        let around = slice["around"].as_array().expect("a list");
        *calls.entry(name.clone()).or_default() += 1;
        if !around.contains(&slice["name"]) {
            *total.entry(name).or_default() += number(&slice["end"]) - number(&slice["begin"]);
        }
    }
    (total, calls)
}

#[test]
fn perfetto_has_each_call_on_its_thread() {
    let trace = or_skip!(traced("threads", &["-pthread"], &["3", "1"]));
    let folder = trace.path();
    done(
        folder,
        &["export", "--to", "perfetto", "-d", "dioptra.trace"],
    );
    let file = or_skip!(decoded(&folder.join("profile.pftrace")));
    assert_eq!(file["primary_clock"], 3, "CLOCK_MONOTONIC");
    let rows = report(folder, &[]);
    let (total, calls) = slices(&file);
    assert_eq!(calls, column(&rows, 2));
    assert_eq!(total, column(&rows, 0));
    let work = file["slices"].as_array().expect("slices").iter();
    let work: Vec<&Value> = work
        .filter(|slice| slice["name"] == "thread_work")
        .collect();
    let mut names = Vec::new();
    for slice in &work {
        assert_eq!(slice["clock"], 3);
        let tid = number(&slice["tid"]).to_string();
        names.push(file["threads"][tid].as_str().expect("a name").to_owned());
    }
    names.sort();
    assert_eq!(names, ["worker-0", "worker-1", "worker-2"]);
    // The raw dump has the same moments.
    let tid = number(&work[0]["tid"]).to_string();
    let words = ["trace", "dump", "--format", "chrome", "--tid", &tid];
    let (dump, _) = done(folder, &words);
    let dump: Value = serde_json::from_str(&dump).expect("JSON");
    let moments = dump["traceEvents"].as_array().expect("events").iter();
    let begin = moments
        .filter(|event| event["ph"] == "B" && event["name"] == "thread_work")
        .map(|event| (event["ts"].as_f64().expect("a time") * 1000.0).round());
    let begin: Vec<f64> = begin.collect();
    let expected = number(&work[0]["begin"]) as f64;
    // JSON's numbers have fewer digits than nanoseconds since the start of a machine may have.
    assert!((begin[0] - expected).abs() < 1000.0, "{begin:?} {expected}");
}

#[test]
fn samples_and_calls_may_be_one_file() {
    or_skip!(programs::need_sampling());
    let trace = or_skip!(fibs());
    let folder = trace.path();
    let program = or_skip!(programs::c("inline", &[]));
    let program = program.to_string_lossy().into_owned();
    let words = [
        "record",
        "-e",
        "cpu-clock",
        "-F",
        "1999",
        "--",
        &program,
        "50",
    ];
    done(folder, &words);
    done(folder, &["export", "--to", "perfetto", "-o", "samples"]);
    let words = [
        "export",
        "--to",
        "perfetto",
        "-d",
        "dioptra.trace",
        "-o",
        "calls",
    ];
    done(folder, &words);
    let mut both = std::fs::read(folder.join("samples")).expect("the file");
    both.extend(std::fs::read(folder.join("calls")).expect("the file"));
    std::fs::write(folder.join("both"), &both).expect("a file");
    let both = or_skip!(decoded(&folder.join("both")));
    let (_, calls) = slices(&both);
    assert_eq!(calls["fib"], FIBS);
    let samples = both["samples"].as_array().expect("samples");
    assert!(!samples.is_empty());
    assert_eq!(samples[0]["clock"], both["slices"][0]["clock"]);
}

#[test]
fn samples_of_a_recorded_run_lie_within_its_calls() {
    or_skip!(programs::need_sampling());
    or_skip!(programs::need_tool("gcc"));
    if !cfg!(target_arch = "x86_64") {
        programs::skip(Skip::for_limit(programs::Limit::NotX86));
        return;
    }
    let program = or_skip!(programs::c("threads", &["-pthread"]));
    let program = program.to_string_lossy().into_owned();
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let words = [
        "record",
        "-e",
        "cpu-clock",
        "-F",
        "997",
        "--trace=-P .",
        &program,
        "3",
        "40",
    ];
    done(folder, &words);
    let words = [
        "export",
        "--to",
        "perfetto",
        "-i",
        "perf.data",
        "-d",
        "dioptra.trace",
    ];
    done(folder, &words);
    let both = or_skip!(decoded(&folder.join("profile.pftrace")));
    let (total, calls) = slices(&both);
    let rows = report(folder, &[]);
    assert_eq!(calls["thread_work"], 3);
    assert_eq!(calls, column(&rows, 2));
    assert_eq!(total, column(&rows, 0));
    let slices = both["slices"].as_array().expect("slices");
    let mut within = BTreeMap::<u64, u64>::new();
    for sample in both["samples"].as_array().expect("samples") {
        let frames = sample["frames"].as_array().expect("frames");
        if frames
            .last()
            .is_none_or(|frame| frame["name"] != "thread_work")
        {
            continue;
        }
        let (tid, time) = (number(&sample["tid"]), number(&sample["time"]));
        let own = slices
            .iter()
            .filter(|slice| slice["name"] == "thread_work" && number(&slice["tid"]) == tid);
        let own: Vec<&Value> = own.collect();
        assert_eq!(own.len(), 1, "each thread works once");
        let (begin, end) = (number(&own[0]["begin"]), number(&own[0]["end"]));
        assert!(begin <= time && time <= end, "{begin} {time} {end}");
        *within.entry(tid).or_default() += 1;
    }
    assert_eq!(within.len(), 3, "every worker has samples: {within:?}");
}

#[test]
fn chrome_has_each_call() {
    let trace = or_skip!(fibs());
    let folder = trace.path();
    done(folder, &["export", "--to", "chrome", "-d", "dioptra.trace"]);
    let exported = std::fs::read_to_string(folder.join("profile.chrome.json")).expect("the file");
    let file: Value = serde_json::from_str(&exported).expect("JSON");
    let events = file["traceEvents"].as_array().expect("events");
    let of = |phase: &str| {
        let found = events
            .iter()
            .filter(|event| event["ph"] == phase && event["name"] == "fib");
        found.count() as u64
    };
    assert_eq!((of("B"), of("E")), (FIBS, FIBS));
    let (dumped, _) = done(folder, &["trace", "dump", "--format", "chrome"]);
    assert_eq!(exported, dumped, "both commands write the same");
}

#[test]
fn ranges_of_time_cut_calls() {
    let trace = or_skip!(fibs());
    let folder = trace.path();
    let rows = report(folder, &["-r", "2us~30us"]);
    for range in [["-r", "2us~30us"], ["--time", "0.000002..0.00003"]] {
        let words = ["export", "--to", "collapsed", "-d", "dioptra.trace"];
        let (text, _) = done(folder, &[&words[..], &range].concat());
        let (own, _) = collapsed(&text);
        assert_eq!(own, column(&rows, 1), "{range:?}");
    }
}

#[test]
fn what_traces_do_not_have_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    std::fs::create_dir(folder.join("trace")).expect("a folder");
    std::fs::write(folder.join("trace/info.json"), "{}").expect("a file");
    let refused = |words: &[&str], reason: &str| {
        let output = dioptra(folder, &[&["export"], words].concat());
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(reason), "{words:?}: {said}");
    };
    refused(&["--to", "autofdo", "-d", "trace"], "record samples");
    refused(&["--to", "pprof", "-d", "trace", "-e", "cycles"], "-e: ");
    refused(
        &["--to", "pprof", "-d", "trace", "--no-inline"],
        "--no-inline: ",
    );
    refused(&["--to", "pprof", "-d", "trace"], "trace");
    refused(&["--to", "pprof", "-F", "main"], "name a trace with -d");
}
