//! Tables, timelines and functions of a recording whose counts are known.

use crate::client::{Running, column, escaped};
use crate::made::{SAMPLES, SCRIPT, made};
use serde_json::{Value, json};

fn names(table: &Value, id: &str) -> Vec<String> {
    let names = column(table, id).into_iter();
    names
        .map(|name| name.as_str().unwrap_or_default().to_owned())
        .collect()
}

/// The key of the first row with this name.
fn key(table: &Value, column: &str, name: &str, kind: &str) -> String {
    let at = names(table, column).iter().position(|known| known == name);
    let at = at.unwrap_or_else(|| panic!("no {name}"));
    table["rows"][at]["key"][kind]
        .as_str()
        .expect("a key")
        .to_owned()
}

#[test]
fn functions_have_their_counts_and_hostile_names_stay_text() {
    let made = made();
    let web = Running::start(&[&made.file], Some(made.symfs()));
    let table = web.ask("/api/table?by=function&children=1&event=cpu-clock");
    let found = names(&table, "function");
    assert_eq!(found[0], "main");
    assert!(found.iter().any(|name| name == SCRIPT), "{found:?}");
    let samples = column(&table, "samples");
    let of = |name: &str| {
        let at = found.iter().position(|known| known == name).expect(name);
        (
            samples[at].clone(),
            column(&table, "total_percent")[at].as_f64(),
        )
    };
    let all = SAMPLES as f64;
    assert_eq!(of("leaf"), (json!(24), Some(100.0 * 24.0 / all)));
    assert_eq!(of(SCRIPT), (json!(10), Some(100.0 * 26.0 / all)));
    assert_eq!(of("main"), (json!(0), Some(100.0 * 31.0 / all)));
    // A name of a megabyte arrives with its middle left out.
    let long = found
        .iter()
        .position(|name| name.starts_with("xxx"))
        .expect("the long name");
    assert!(found[long].len() < 5000 && table["rows"][long]["cut"] == true);
    // The totals row is the sum.
    let columns = table["columns"].as_array().expect("columns");
    let place = |id: &str| {
        columns
            .iter()
            .position(|column| column["id"] == id)
            .expect("it")
    };
    assert_eq!(table["totals"][place("samples")], SAMPLES);
    assert_eq!(table["totals"][place("self_percent")], 100.0);
    assert_eq!(table["totals"][place("total_percent")], Value::Null);
    // A thread's name that is no UTF-8 is text, too.
    let threads = web.ask("/api/table?by=thread&event=cpu-clock");
    assert!(
        names(&threads, "thread")
            .iter()
            .any(|name| name.contains("<b>&\"")),
        "{threads}"
    );
}

#[test]
fn rows_are_given_in_ranges_sorted_and_filtered() {
    let made = made();
    let web = Running::start(&[&made.file], Some(made.symfs()));
    let all = web.ask("/api/table?by=function&event=cpu-clock&sort=function:asc");
    let total = all["total_rows"].as_u64().expect("a number");
    assert_eq!(all["matching_rows"], total);
    let mut pieces = Vec::new();
    for from in 0..total {
        let path =
            format!("/api/table?by=function&event=cpu-clock&sort=function&from={from}&count=1");
        let piece = web.ask(&path);
        assert_eq!(
            (&piece["from"], piece["rows"].as_array().map(Vec::len)),
            (&json!(from), Some(1))
        );
        pieces.push(piece["rows"][0].clone());
    }
    assert_eq!(json!(pieces), all["rows"]);
    assert_eq!(
        all["sorted_by"],
        json!({"column": "function", "direction": "asc"})
    );
    let beyond = web.ask("/api/table?by=function&from=99999");
    assert_eq!(beyond["rows"], json!([]));
    let sorted = web.ask("/api/table?by=function&event=cpu-clock&sort=samples:asc");
    let samples: Vec<u64> = column(&sorted, "samples")
        .iter()
        .filter_map(Value::as_u64)
        .collect();
    assert!(samples.is_sorted());

    let path = format!(
        "/api/table?by=function&event=cpu-clock&filter={}",
        escaped("<SCRIPT>")
    );
    let filtered = web.ask(&path);
    assert_eq!(names(&filtered, "function"), [SCRIPT]);
    assert_eq!(
        (&filtered["matching_rows"], &filtered["total_rows"]),
        (&json!(1), &json!(total))
    );
    let columns = filtered["columns"].as_array().expect("columns");
    let at = columns
        .iter()
        .position(|column| column["id"] == "samples")
        .expect("it");
    assert_eq!(filtered["totals"][at], 10);
    let path = format!(
        "/api/table?by=function&event=cpu-clock&regex=1&filter={}",
        escaped("^(leaf|main)$")
    );
    assert_eq!(names(&web.ask(&path), "function"), ["leaf"]);
    let none = web.ask("/api/table?by=function&filter=nothing-has-this-name");
    assert_eq!(
        (&none["rows"], &none["matching_rows"]),
        (&json!([]), &json!(0))
    );
}

#[test]
fn trees_open_row_by_row() {
    let made = made();
    let web = Running::start(&[&made.file], Some(made.symfs()));
    let by = "/api/table?by=process,module,function&event=cpu-clock";
    let all = web.ask(by);
    let tops = web.ask(&format!("{by}&levels=1"));
    let top_rows = tops["rows"].as_array().expect("rows");
    assert_eq!(top_rows.len(), 2);
    for top in top_rows {
        assert_eq!((&top["depth"], &top["below"]), (&json!(0), &json!(1)));
        let below = web.ask(&format!("{by}&below={}", top["id"]));
        let row = &below["rows"][0];
        assert_eq!((&row["depth"], &row["parent"]), (&json!(1), &top["id"]));
        assert_eq!(row["key"]["process"], top["key"]["process"]);
        assert!(row["key"]["module"].is_string());
        let deepest = web.ask(&format!("{by}&below={}", row["id"]));
        let deepest = deepest["rows"].as_array().expect("rows");
        assert_eq!(row["below"], deepest.len());
        assert!(deepest.iter().all(|row| row["key"]["function"].is_string()));
    }
    let filtered = web.ask(&format!("{by}&filter=leaf"));
    let depths: Vec<&Value> = filtered["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| &row["depth"])
        .collect();
    assert_eq!(depths, [0, 1, 2, 0, 1, 2]);
    assert!(all["total_rows"].as_u64() > filtered["matching_rows"].as_u64());
}

#[test]
fn selections_count_what_they_say() {
    let made = made();
    let web = Running::start(&[&made.file], Some(made.symfs()));
    let functions = web.ask("/api/table?by=function&event=cpu-clock");
    let module = functions["rows"][0]["key"]["module"]
        .as_str()
        .expect("a key")
        .to_owned();
    let leaf = key(&functions, "function", "leaf", "function");
    let evil = key(&functions, "function", SCRIPT, "function");
    let samples = |selection: &str| {
        let path = format!("/api/table?by=function&event=cpu-clock&{selection}");
        let table = web.ask(&path);
        column(&table, "samples")
            .iter()
            .filter_map(Value::as_u64)
            .sum::<u64>()
    };
    assert_eq!(samples(""), SAMPLES);
    assert_eq!(samples("process=42"), 31);
    assert_eq!(samples("process=42.2"), 4);
    assert_eq!(samples("process=42&process=42.2"), SAMPLES);
    assert_eq!(samples("thread=43"), 11);
    assert_eq!(samples("comm=again"), 4);
    assert_eq!(samples("cpu=3"), 4);
    assert_eq!(samples("cpu=0-1"), 31);
    assert_eq!(samples(&format!("module={}", escaped(&module))), SAMPLES);
    assert_eq!(samples(&format!("function={}", escaped(&leaf))), 24);
    assert_eq!(samples(&format!("through={}", escaped(&evil))), 26);
    assert_eq!(
        samples(&format!(
            "through={}&function={}",
            escaped(&evil),
            escaped(&leaf)
        )),
        15
    );
    assert_eq!(
        samples(&format!("through={}&thread=43", escaped(&evil))),
        11
    );
    // Nanoseconds are counted up with the records.
    let timeline = web.ask("/api/timeline?event=cpu-clock&rows=all&bins=4000");
    let end = timeline["end_ns"].as_u64().expect("a number");
    assert_eq!(samples("time=0.."), SAMPLES);
    assert_eq!(samples(&format!("time=..{end}")), SAMPLES);
    assert_eq!(samples("time=..5"), 5);
    assert_eq!(samples("time=3..5"), 2);
    assert_eq!(samples("time=3..5&thread=43"), 0);
    let program = web.ask("/api/table?by=program&event=cpu-clock");
    let program = program["rows"][0]["key"]["program"]
        .as_str()
        .expect("a key")
        .to_owned();
    assert!(samples(&format!("program={program}")) > 0);
}

#[test]
fn timelines_hold_every_sample_once() {
    let made = made();
    let web = Running::start(&[&made.file], Some(made.symfs()));
    let sum = |timeline: &Value| -> u64 {
        let rows = timeline["rows"].as_array().expect("rows");
        let values = rows
            .iter()
            .flat_map(|row| row["values"].as_array().expect("values"));
        values.filter_map(Value::as_u64).sum()
    };
    for (rows, number) in [("thread", 3), ("process", 2), ("cpu", 3), ("all", 1)] {
        for bins in [1, 7, 500] {
            let path = format!("/api/timeline?event=cpu-clock&rows={rows}&bins={bins}");
            let timeline = web.ask(&path);
            assert_eq!(sum(&timeline), SAMPLES, "{path}");
            assert_eq!(timeline["total_rows"], number, "{path}");
            let values = timeline["rows"][0]["values"].as_array().map(Vec::len);
            assert_eq!(values, timeline["bins"].as_u64().map(|bins| bins as usize));
        }
    }
    let weights = web.ask("/api/timeline?event=cpu-clock&value=weight");
    assert_eq!(sum(&weights), 10 * SAMPLES);
    let part = web.ask("/api/timeline?event=cpu-clock&span=3..5");
    assert_eq!(sum(&part), 2);
    // A span shows all of its time, whatever time is selected.
    let around = web.ask("/api/timeline?event=cpu-clock&span=0..5&time=3..5");
    assert_eq!(sum(&around), 5);
    let rows = web.ask("/api/timeline?event=cpu-clock&from=1&count=1");
    assert_eq!(rows["rows"].as_array().map(Vec::len), Some(1));
    let thread = rows["rows"][0]["key"]["thread"].as_str().expect("a key");
    let only = web.ask(&format!("/api/timeline?event=cpu-clock&thread={thread}"));
    assert_eq!(only["total_rows"], 1);
}

#[test]
fn functions_without_code_show_their_addresses() {
    let made = made();
    let web = Running::start(&[&made.file], Some(made.symfs()));
    let functions = web.ask("/api/table?by=function&event=cpu-clock");
    let evil = key(&functions, "function", SCRIPT, "function");
    let answer = web.ask(&format!(
        "/api/function?event=cpu-clock&function={}",
        escaped(&evil)
    ));
    assert_eq!(answer["function"]["name"], SCRIPT);
    assert_eq!(answer["function"]["key"], evil.as_str());
    assert_eq!(answer["has_code"], false);
    assert_eq!(answer["events"][0]["own"]["samples"], 10);
    assert_eq!(answer["events"][0]["total"]["samples"], SAMPLES);
    let samples = answer["instructions"]["samples"][0]
        .as_array()
        .expect("samples");
    assert_eq!(samples.iter().filter_map(Value::as_u64).sum::<u64>(), 10);
    let facts = answer["facts"].as_array().expect("facts");
    assert!(
        facts.iter().any(|fact| fact["id"] == "no_code"),
        "{facts:?}"
    );
    let of_thread = web.ask(&format!(
        "/api/function?thread=42&event=cpu-clock&function={}",
        escaped(&evil)
    ));
    assert_eq!(of_thread["events"][0]["own"]["samples"], 0);
}

#[test]
fn the_overview_and_searches_tell_what_there_is() {
    let made = made();
    let web = Running::start(&[&made.file], Some(made.symfs()));
    let profile = web.ask("/api/profile");
    assert_eq!(profile["label"], "perf.data");
    assert_eq!(
        profile["default_events"],
        json!(["cpu-clock", "page-faults"])
    );
    assert_eq!(profile["events"][0]["samples"], SAMPLES);
    assert_eq!(profile["events"][1]["samples"], 1);
    let has = json!({"chains": true, "times": true, "cpus": true, "branches": false, "memory": false, "windows": false});
    assert_eq!(profile["has"], has);
    let found = web.ask(&format!("/api/search?text={}", escaped("<SCRIPT>")));
    assert_eq!(found["total"], 1);
    assert_eq!(
        (&found["hits"][0]["kind"], &found["hits"][0]["name"]),
        (&json!("function"), &json!(SCRIPT))
    );
    let threads = web.ask("/api/search?text=again");
    let kinds: Vec<&Value> = threads["hits"]
        .as_array()
        .expect("hits")
        .iter()
        .map(|hit| &hit["kind"])
        .collect();
    assert_eq!(kinds, ["process", "thread"]);
}

#[test]
fn exports_are_whole_tables() {
    let made = made();
    let web = Running::start(&[&made.file], Some(made.symfs()));
    let csv = web.get("/api/export?by=function&event=cpu-clock&format=csv");
    assert!(
        csv.head
            .contains("content-disposition: attachment; filename=\"table.csv\""),
        "{}",
        csv.head
    );
    let text = String::from_utf8(csv.body).expect("UTF-8");
    assert!(text.starts_with("self_percent,samples,") && text.contains(SCRIPT));
    // An export cuts nothing.
    assert!(text.len() > 1 << 20);
    let json = web.ask("/api/export?by=function&event=cpu-clock&format=json");
    assert_eq!(json["schema"], 1);
    assert!(json["rows"][0]["ratios"].is_object());
}

#[test]
fn an_empty_recording_has_answers() {
    let made = made();
    std::fs::write(&made.file, crate::made::recording(0)).expect("the recording");
    let web = Running::start(&[&made.file], Some(made.symfs()));
    for path in [
        "profile",
        "table",
        "table?by=process,module",
        "table?by=time",
        "flame",
        "search?text=a",
    ] {
        let answer = web.get(&format!("/api/{path}"));
        assert_eq!(
            answer.status,
            200,
            "{path}: {}",
            String::from_utf8_lossy(&answer.body)
        );
    }
    // There is no time without samples.
    assert_eq!(web.get("/api/timeline").code(), "not_recorded");
}

#[test]
fn heat_maps_hold_every_sample_once() {
    let made = made();
    let web = Running::start(&[&made.file], Some(made.symfs()));
    // Samples are a few nanoseconds apart.
    let map = web.ask("/api/heatmap?event=cpu-clock&column_ns=20&rows=5");
    let values = |of: &Value| -> Vec<u64> {
        let values = of.as_array().expect("values").iter();
        values
            .map(|value| value.as_u64().expect("a number"))
            .collect()
    };
    let cells = values(&map["values"]);
    assert_eq!(cells.iter().sum::<u64>(), SAMPLES);
    assert_eq!(map["samples"], SAMPLES);
    assert_eq!(map["weight"], 10 * SAMPLES);
    assert_eq!(map["untimed"], 0);
    assert_eq!(map["peak"].as_u64(), cells.iter().copied().max());
    let columns = map["columns"].as_u64().expect("a number");
    assert_eq!(cells.len() as u64, columns * 5);
    assert!(columns > 1, "{map}");
    // The cells in order are a timeline's bins.
    let end = columns * 20;
    let line = web.ask(&format!(
        "/api/timeline?event=cpu-clock&rows=all&span=0..{end}&bins={}",
        columns * 5
    ));
    assert_eq!(line["bin_ns"], 4);
    assert_eq!(values(&line["rows"][0]["values"]), cells);
    // A span counts what lies in it, on the same columns; the selected time does not matter then.
    let part = web.ask("/api/heatmap?event=cpu-clock&column_ns=20&rows=5&span=10..30&time=0..1");
    let line = web.ask("/api/timeline?event=cpu-clock&rows=all&span=10..30&bins=1");
    assert_eq!(part["samples"], line["rows"][0]["samples"]);
    assert_eq!(
        (&part["start_ns"], &part["columns"]),
        (&Value::from(0), &Value::from(2))
    );
    let weights = web.ask("/api/heatmap?event=cpu-clock&value=weight&rows=1");
    assert_eq!(values(&weights["values"]), [10 * SAMPLES]);
    for wrong in [
        "rows=0",
        "rows=1001",
        "column_ns=0",
        "span=9999999..",
        "value=x",
    ] {
        let answer = web.get(&format!("/api/heatmap?{wrong}"));
        assert_eq!(answer.status, 400, "{wrong}");
    }
}
