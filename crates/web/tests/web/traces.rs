//! Answers about traces whose calls are known by construction.

use crate::client::{Running, column, escaped};
use crate::made::made;
use crate::written::{Act, Random, trace};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The time of the first record of [`known`].
const FIRST: u64 = 1000;

/// A trace of two threads: thread 7 calls `f1`, which calls `f2` twice; thread 8 calls `f2` once.
fn known() -> (TempDir, PathBuf) {
    let first = vec![
        Act::Enter(1000, 1),
        Act::Enter(1100, 2),
        Act::Leave(1300),
        Act::Enter(1400, 2),
        Act::Leave(1500),
        Act::Leave(2000),
    ];
    let second = vec![Act::Enter(1200, 2), Act::Leave(1700)];
    written(2, &[first, second], 2)
}

/// Writes a trace into a folder of its own.
fn written(functions: u32, threads: &[Vec<Act>], most: usize) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("dioptra.trace");
    drop(trace(&path, functions, threads, most));
    (folder, path)
}

fn start(path: &Path) -> Running {
    Running::start(&[path], None)
}

/// A call: when it begins and ends, its function, and the number of calls around it.
type Call = (u64, u64, u32, u64);

/// The calls of a thread with one call stack, in the order in which they end; those that are open at the end end with the
/// last act.
fn calls(acts: &[Act]) -> Vec<Call> {
    let (mut open, mut calls, mut last) = (Vec::new(), Vec::new(), 0);
    for act in acts {
        match *act {
            Act::Enter(time, function) => {
                open.push((time, function));
                last = time;
            }
            Act::Leave(time) => {
                let (begin, function) = open.pop().expect("an open call");
                calls.push((begin, time, function, open.len() as u64));
                last = time;
            }
            Act::Stack(..) => unreachable!("the traces here have one stack"),
        }
    }
    while let Some((begin, function)) = open.pop() {
        calls.push((begin, last, function, open.len() as u64));
    }
    calls
}

fn numbers(list: &Value) -> Vec<u64> {
    let list = list.as_array().expect("a list").iter();
    list.map(|value| value.as_u64().expect("a number"))
        .collect()
}

fn names(answer: &Value) -> Vec<String> {
    let functions = answer["functions"].as_array().expect("functions").iter();
    functions
        .map(|function| function["name"].as_str().expect("a name").to_owned())
        .collect()
}

#[test]
fn functions_have_their_calls_and_times() {
    let (_folder, path) = known();
    let web = start(&path);
    let status = web.ask("/api/status");
    assert_eq!(status["profiles"][0]["kind"], "trace");
    let table = web.ask("/api/trace/table");
    assert_eq!(column(&table, "function"), ["f1", "f2"]);
    assert_eq!(column(&table, "total"), [1000, 800]);
    assert_eq!(column(&table, "self"), [700, 800]);
    assert_eq!(column(&table, "calls"), [1, 3]);
    assert_eq!(column(&table, "total_min"), [1000, 100]);
    assert_eq!(column(&table, "total_max"), [1000, 500]);
    assert_eq!(column(&table, "total_avg"), [1000, 266]);
    let place = |id: &str| {
        let columns = table["columns"].as_array().expect("columns");
        columns
            .iter()
            .position(|column| column["id"] == id)
            .expect("it")
    };
    assert_eq!(table["totals"][place("self")], 1500);
    assert_eq!(table["totals"][place("calls")], 4);
    // Times of callers hold those of callees, so that their sum means nothing.
    assert_eq!(table["totals"][place("total")], Value::Null);

    let sorted = web.ask("/api/trace/table?sort=calls:desc");
    assert_eq!(column(&sorted, "function"), ["f2", "f1"]);
    assert_eq!(
        sorted["sorted_by"],
        json!({"column": "calls", "direction": "desc"})
    );
    let filtered = web.ask("/api/trace/table?filter=F2");
    assert_eq!(column(&filtered, "function"), ["f2"]);
    assert_eq!(
        (&filtered["total_rows"], &filtered["matching_rows"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(filtered["totals"][place("calls")], 3);
    let second = web.ask("/api/trace/table?from=1&count=1");
    assert_eq!(column(&second, "function"), ["f2"]);
    let of_thread = web.ask("/api/trace/table?thread=8");
    assert_eq!(column(&of_thread, "calls"), [1]);
    assert_eq!(
        column(&web.ask("/api/trace/table?process=7"), "calls"),
        [1, 3]
    );
    // From 300 to before 500 ns after the start: the second call of f2 in thread 7, and parts of the others.
    let part = web.ask("/api/trace/table?time=300..600&thread=7&sort=function");
    assert_eq!(column(&part, "self"), [199, 100]);
    let threads = web.ask("/api/trace/table?by=thread");
    assert_eq!(column(&threads, "tid"), [7, 8]);
    assert_eq!(column(&threads, "total"), [1000, 500]);
    assert_eq!(column(&threads, "calls"), [3, 1]);
    let csv = web.get("/api/trace/export?format=csv");
    let text = String::from_utf8(csv.body).expect("UTF-8");
    assert!(
        text.starts_with("function,function_id,total,self,calls,"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 3);
}

#[test]
fn the_graph_has_paths_with_times_and_calls() {
    let (_folder, path) = known();
    let web = start(&path);
    let graph = web.ask("/api/trace/graph?least=0");
    let paths = |graph: &Value, event: usize| -> Vec<(String, u64, u64, u64)> {
        let nodes = &graph["nodes"];
        let functions = names(graph);
        let (own, total) = (
            numbers(&nodes["own"][event]),
            numbers(&nodes["total"][event]),
        );
        let samples = numbers(&nodes["own_samples"][event]);
        let each = numbers(&nodes["function"]).into_iter().enumerate();
        each.map(|(at, function)| {
            let depth = nodes["parent"][at].as_i64().map_or(0, |parent| parent + 1);
            let name = format!(
                "{}{}",
                "-".repeat(depth as usize),
                functions[function as usize]
            );
            (name, own[at], total[at], samples[at])
        })
        .collect()
    };
    let path = |name: &str, own, total, calls| (name.to_owned(), own, total, calls);
    assert_eq!(graph["events"][0]["unit"], "ns");
    assert_eq!(graph["events"][0]["weight"], 1500);
    let times = [
        path("f1", 700, 1000, 1),
        path("-f2", 300, 300, 2),
        path("f2", 500, 500, 1),
    ];
    assert_eq!(paths(&graph, 0), times);
    assert_eq!(paths(&graph, 1)[0], path("f1", 1, 3, 1));
    let by_calls = web.ask("/api/trace/graph?least=0&weight=calls");
    assert_eq!(by_calls["events"][0]["weight"], 4);
    assert_eq!(paths(&by_calls, 0)[0], path("f1", 1, 3, 1));
    let key = graph["functions"][1]["key"].as_str().expect("a key");
    let below = web.ask(&format!("/api/trace/graph?least=0&focus={}", escaped(key)));
    assert_eq!(paths(&below, 0), [path("f2", 800, 800, 3)]);
    let top = web.ask("/api/trace/graph?least=0&levels=1");
    assert_eq!(top["nodes"]["below"], json!([1, 0]));
    let root = &top["nodes"]["id"][0];
    let opened = web.ask(&format!("/api/trace/graph?least=0&levels=1&root={root}"));
    assert_eq!(paths(&opened, 0)[..2], times[..2]);
}

#[test]
fn bars_hold_every_call_once() {
    let (_folder, path) = known();
    let web = start(&path);
    let tile = web.ask("/api/trace/timeline?pixels=1000");
    assert_eq!(
        (&tile["start_ns"], &tile["end_ns"]),
        (&json!(0), &json!(1001))
    );
    let bars = &tile["lanes"][0]["bars"];
    assert_eq!(numbers(&bars["start"]), [100, 0, 400]);
    assert_eq!(numbers(&bars["end"]), [300, 1000, 500]);
    assert_eq!(numbers(&bars["depth"]), [1, 0, 1]);
    assert_eq!(numbers(&tile["lanes"][1]["bars"]["start"]), [200]);
    // With one pixel, calls of a level are one bar.
    let narrow = web.ask("/api/trace/timeline?pixels=1&thread=7");
    assert_eq!(numbers(&narrow["lanes"][0]["bars"]["count"]), [1, 2]);
    assert_eq!(narrow["total_lanes"], 1);

    let mut random = Random(5);
    let acts = random.acts(20_000, 5, 12, 1);
    let (_folder, path) = written(5, &[acts.clone()], 700);
    let web = start(&path);
    let all = calls(&acts);
    for pixels in [1, 10, 1000, 8000] {
        let tile = web.ask(&format!("/api/trace/timeline?pixels={pixels}"));
        let lane = &tile["lanes"][0];
        assert_eq!(
            numbers(&lane["bars"]["count"]).iter().sum::<u64>(),
            all.len() as u64
        );
        assert_eq!(lane["levels"], 12);
        // A bar is wide, or alone in its pixel and the next one.
        assert!(numbers(&lane["bars"]["count"]).len() <= 12 * 2 * pixels + 12);
    }
    // Zoomed in, single calls have their own times, also where the reading begins in the middle.
    let first = all.iter().map(|call| call.0).min().expect("calls");
    let middle = all[all.len() / 2];
    let (from, to) = (middle.0 - first, middle.1 - first + 40);
    let tile = web.ask(&format!(
        "/api/trace/timeline?pixels=8000&span={from}..{to}"
    ));
    let lane = &tile["lanes"][0]["bars"];
    let found = numbers(&lane["start"])
        .into_iter()
        .zip(numbers(&lane["end"]));
    let found: Vec<(u64, u64)> = found.collect();
    assert!(
        found.contains(&(middle.0 - first, middle.1 - first)),
        "{middle:?} {found:?}"
    );
}

#[test]
fn replays_have_every_row_in_order() {
    let (_folder, path) = known();
    let web = start(&path);
    let replay = web.ask("/api/trace/replay");
    let kinds = |replay: &Value| -> Vec<(String, u64, u64)> {
        let rows = replay["rows"].as_array().expect("rows").iter();
        rows.map(|row| {
            let kind = row["kind"].as_str().expect("a kind").to_owned();
            let time = row["time_ns"].as_u64().expect("a time");
            (kind, time, row["duration_ns"].as_u64().unwrap_or(0))
        })
        .collect()
    };
    let row = |kind: &str, time, duration| (kind.to_owned(), time, duration);
    let expected = [
        row("enter", 0, 0),
        row("enter", 100, 0),
        row("enter", 200, 0),
        row("leave", 300, 200),
        row("call", 400, 100),
        row("leave", 700, 500),
        row("leave", 1000, 1000),
    ];
    assert_eq!(kinds(&replay), expected);
    assert_eq!(replay["total_rows"], 7);
    let one = web.ask("/api/trace/replay?thread=7");
    assert_eq!(kinds(&one)[1], row("call", 100, 200));
    let at = web.ask("/api/trace/replay?at=250&count=1");
    assert_eq!((&at["at_row"], &at["from"]), (&json!(3), &json!(3)));
    assert_eq!(web.ask("/api/trace/find?text=f2")["row"], 1);
    assert_eq!(
        web.ask("/api/trace/find?text=F1&from=1")["row"],
        Value::Null
    );

    // More rows than lie between two marks, many of them at the same time.
    let mut random = Random(11);
    let acts = random.acts(30_000, 5, 30, 1);
    let (_folder, path) = written(5, &[acts.clone()], 900);
    let web = start(&path);
    let first = match acts[0] {
        Act::Enter(time, _) => time,
        _ => unreachable!("the first act is a call"),
    };
    let mut expected = Vec::new();
    let mut open = Vec::new();
    let mut at = 0;
    while at < acts.len() {
        match (acts[at], acts.get(at + 1)) {
            (Act::Enter(begin, _), Some(Act::Leave(end))) => {
                expected.push(row("call", begin - first, end - begin));
                at += 1;
            }
            (Act::Enter(begin, _), _) => {
                expected.push(row("enter", begin - first, 0));
                open.push(begin);
            }
            (Act::Leave(end), _) => {
                let begin = open.pop().expect("an open call");
                expected.push(row("leave", end - first, end - begin));
            }
            (Act::Stack(..), _) => unreachable!("the trace has one stack"),
        }
        at += 1;
    }
    assert!(expected.len() > 15_000);
    let mut found = Vec::new();
    while found.len() < expected.len() {
        let piece = web.ask(&format!(
            "/api/trace/replay?from={}&count=2000",
            found.len()
        ));
        assert_eq!(piece["total_rows"], expected.len());
        found.extend(kinds(&piece));
    }
    assert!(found == expected);
    for place in [0, 4095, 4096, 9_000, expected.len() - 1] {
        let time = expected[place].1;
        let wanted = expected.iter().position(|row| row.1 >= time);
        let at = web.ask(&format!("/api/trace/replay?at={time}&count=1"));
        assert_eq!(
            at["at_row"].as_u64().map(|row| row as usize),
            wanted,
            "{place}"
        );
    }
}

#[test]
fn the_slowest_calls_are_those_that_took_longest() {
    let mut random = Random(3);
    let threads = [random.acts(5000, 4, 9, 1), random.acts(3000, 4, 9, 1)];
    let (_folder, path) = written(4, &threads, 300);
    let web = start(&path);
    let table = web.ask("/api/trace/table?filter=f3");
    let key = table["rows"][0]["key"]["function"].as_str().expect("a key");
    let slowest = web.ask(&format!(
        "/api/trace/slowest?count=20&function={}",
        escaped(key)
    ));
    let mut expected: Vec<u64> = threads
        .iter()
        .flat_map(|acts| calls(acts))
        .filter(|call| call.2 == 3)
        .map(|call| call.1 - call.0)
        .collect();
    expected.sort_unstable_by_key(|duration| std::cmp::Reverse(*duration));
    assert_eq!(slowest["total_calls"], expected.len());
    assert_eq!(slowest["total_calls"], column(&table, "calls")[0]);
    let found = slowest["calls"].as_array().expect("calls").iter();
    let found: Vec<u64> = found
        .map(|call| call["duration_ns"].as_u64().expect("a number"))
        .collect();
    assert_eq!(found, expected[..20]);
}

#[test]
fn the_overview_tells_what_there_is() {
    let (_folder, path) = known();
    let web = start(&path);
    let trace = web.ask("/api/trace");
    assert_eq!(
        (&trace["label"], &trace["duration_ns"]),
        (&json!("dioptra.trace"), &json!(1000))
    );
    assert_eq!(trace["first_time_ns"], FIRST);
    assert_eq!(trace["threads"].as_array().map(Vec::len), Some(2));
    // The recorder of this trace never came to its end.
    let facts = trace["facts"].as_array().expect("facts");
    assert!(
        facts
            .iter()
            .any(|fact| fact["id"] == "no_end" && fact["severity"] == "loss")
    );
}

#[test]
fn damaged_traces_are_read_as_far_as_they_go() {
    let mut random = Random(9);
    let (_folder, path) = written(3, &[random.acts(5000, 3, 8, 1)], 200);
    let records = path.join("records");
    let whole = std::fs::read(&records).expect("the records");
    let ask_all = |web: &Running| {
        for endpoint in [
            "",
            "/table",
            "/graph",
            "/timeline",
            "/replay",
            "/find?text=f",
            "/table?time=100..5000",
        ] {
            let answer = web.get(&format!("/api/trace{endpoint}"));
            assert_eq!(
                answer.status,
                200,
                "{endpoint}: {}",
                String::from_utf8_lossy(&answer.body)
            );
        }
    };
    // Cut off in the middle.
    std::fs::write(&records, &whole[..whole.len() / 2 + 3]).expect("written");
    let web = start(&path);
    ask_all(&web);
    let trace = web.ask("/api/trace");
    let facts = trace["facts"].as_array().expect("facts");
    assert!(facts.iter().any(|fact| fact["id"] == "damage"), "{facts:?}");
    drop(web);
    // Noise in many places.
    let mut noise = whole.clone();
    for at in (64..noise.len()).step_by(97) {
        noise[at] = random.below(256) as u8;
    }
    std::fs::write(&records, noise).expect("written");
    ask_all(&start(&path));
    // No records at all.
    std::fs::write(&records, "").expect("written");
    ask_all(&start(&path));
    // What is no trace is an error with its cause.
    std::fs::write(path.join("info.json"), "{").expect("written");
    let web = start(&path);
    let status = web.ask("/api/status");
    assert_eq!(status["profiles"][0]["state"], "failed");
    let error = status["profiles"][0]["error"]["text"]
        .as_str()
        .expect("a text");
    assert!(error.contains("info.json"), "{error}");
    assert_eq!(web.get("/api/trace/table").code(), "load_failed");
    let empty = tempfile::tempdir().expect("a folder");
    let web = start(empty.path());
    assert_eq!(web.ask("/api/status")["profiles"][0]["state"], "failed");
}

#[test]
fn profiles_and_traces_stand_beside_each_other() {
    let made = made();
    let (_folder, path) = known();
    let web = Running::start(&[&made.file, &path], Some(made.symfs()));
    let status = web.ask("/api/status");
    let kinds = [0, 1].map(|at| status["profiles"][at]["kind"].clone());
    assert_eq!(kinds, ["profile", "trace"]);
    // Without an index, the first trace answers.
    assert_eq!(web.ask("/api/trace/table")["profile"], 1);
    for (endpoint, status, code) in [
        ("table?profile=1", 422, "wrong_kind"),
        ("profile?profile=1", 422, "wrong_kind"),
        ("trace/table?profile=0", 422, "wrong_kind"),
        ("trace/table?profile=2", 404, "no_such_profile"),
        ("trace/nothing", 404, "no_such_endpoint"),
        ("traces", 404, "no_such_endpoint"),
        ("trace/table?thread=99", 404, "no_such_thread"),
        ("trace/table?process=x", 404, "no_such_process"),
        ("trace/table?sort=x", 404, "no_such_column"),
        ("trace/table?filter=%28&regex=1", 400, "bad_pattern"),
        ("trace/table?generation=9", 409, "stale"),
        ("trace/graph?focus=x", 404, "no_such_function"),
        ("trace/graph?root=99", 404, "no_such_row"),
        ("trace/timeline?pixels=0", 400, "bad_parameter"),
        ("trace/timeline?span=9..3", 400, "bad_parameter"),
        ("trace/find", 400, "bad_parameter"),
        ("trace/slowest", 400, "bad_parameter"),
        ("trace/slowest?function=%00", 404, "no_such_function"),
    ] {
        let response = web.get(&format!("/api/{endpoint}"));
        assert_eq!(
            (response.status, response.code().as_str()),
            (status, code),
            "{endpoint}"
        );
    }
}

#[test]
fn a_trace_that_is_recorded_again_is_shown_anew() {
    let (_folder, path) = known();
    let web = start(&path);
    assert_eq!(column(&web.ask("/api/trace/table"), "calls"), [1, 3]);
    // The older trace moves aside, as recorders do it.
    drop(trace(
        &path,
        1,
        &[vec![Act::Enter(10, 1), Act::Leave(30)]],
        9,
    ));
    let generation = |status: &Value| status["profiles"][0]["generation"].as_u64();
    web.wait_for(|status| generation(status) == Some(2));
    assert_eq!(column(&web.ask("/api/trace/table"), "total"), [20]);
    assert_eq!(web.get("/api/trace/table?generation=1").code(), "stale");
}
