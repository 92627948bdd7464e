//! Changes between two recordings whose counts are known, and metrics of one.

use crate::client::{Running, column, escaped};
use crate::made::{Made, SAMPLES, SCRIPT, made, recording};
use dioptra_perfdata::PerfData;
use dioptra_profile::{Dimension, LoadOptions, LoadPlan, Names, Profile, Slices};
use dioptra_report::{DiffOptions, Input, Normalize, Shapes, TableEvent, diff};
use dioptra_symbols::SymbolOptions;
use dioptra_tables::{Format, TextOptions};
use serde_json::{Value, json};
use std::num::NonZeroU32;
use std::path::PathBuf;

/// A recording, and a second one of the same program without its last samples.
pub fn two() -> (Made, PathBuf) {
    let made = made();
    let other = made.folder.path().join("other.data");
    std::fs::write(&other, recording(20)).expect("the recording");
    (made, other)
}

/// The table of the library's `diff`, as JSON.
pub fn library_diff(files: [&PathBuf; 2], symbols: &SymbolOptions, normalize: Normalize) -> Value {
    let plan = LoadPlan {
        options: LoadOptions {
            call_chains: true,
            threads: true,
        },
        cpus: true,
        log: true,
        errors: true,
        symbols: symbols.clone(),
        ..LoadPlan::default()
    };
    let loaded = files.map(|file| {
        let data = PerfData::open(file).expect("a recording");
        let profile = Profile::load_with(&data, &plan);
        let names = Names::find(&profile, symbols.clone());
        let shapes = Shapes::find(&profile, &names, symbols.clone());
        (profile, names, shapes)
    });
    let inputs: Vec<Input<'_>> = loaded
        .iter()
        .zip(files)
        .map(|((profile, names, shapes), file)| Input {
            profile,
            names,
            blocks: None,
            shapes: Some(shapes),
            label: file.to_str().expect("a path"),
        })
        .collect();
    let events = TableEvent::all(&[&loaded[0].0, &loaded[1].0]);
    let options = DiffOptions {
        by: &[Dimension::Function],
        events: &events,
        shown: events.len(),
        normalize,
        few: 10,
        metrics: &[],
        slices: Slices::Number(const { NonZeroU32::new(20).unwrap() }),
    };
    let table = diff(&inputs, &options).expect("a table");
    let mut text = Vec::new();
    Format::Json
        .write_limited(&table, &TextOptions::default(), &mut text)
        .expect("JSON");
    serde_json::from_slice(&text).expect("JSON")
}

#[test]
fn changes_are_those_of_the_library() {
    let (made, other) = two();
    let web = Running::start(&[&made.file, &other], Some(made.symfs()));
    let symbols = SymbolOptions {
        symfs: Some(made.symfs().to_path_buf()),
        ..SymbolOptions::default()
    };
    let expected = library_diff([&made.file, &other], &symbols, Normalize::None);
    let found = web.ask("/api/export?of=diff&with=1&format=json");
    assert_eq!(found["columns"], expected["columns"]);
    assert_eq!(found["rows"], expected["rows"]);
    assert!(
        expected["rows"]
            .as_array()
            .is_some_and(|rows| rows.len() == 3)
    );
    // Counts that are known by construction: all samples in the hostile function itself are gone.
    let table = web.ask("/api/table?of=diff&with=1&by=function&event=cpu-clock");
    let names = column(&table, "function");
    let at = names.iter().position(|name| name == SCRIPT).expect("it");
    assert_eq!(column(&table, "b_delta")[at], json!(-100));
    assert_eq!(column(&table, "b_status")[at], "gone");
    let leaf = names.iter().position(|name| name == "leaf").expect("it");
    assert_eq!(column(&table, "b_delta")[leaf], json!(-40));
    // A row's key selects in the first profile.
    let key = table["rows"][leaf]["key"]["function"]
        .as_str()
        .expect("a key");
    let of_leaf = web.ask(&format!(
        "/api/table?by=function&event=cpu-clock&function={key}"
    ));
    assert_eq!(column(&of_leaf, "samples"), [24]);
}

#[test]
fn changes_can_be_normalized_selected_and_filtered() {
    let (made, other) = two();
    let web = Running::start(&[&made.file, &other], Some(made.symfs()));
    let per_event = web.ask("/api/table?of=diff&with=1&normalize=cpu-clock&event=cpu-clock");
    let facts = per_event["facts"].as_array().expect("facts");
    assert!(facts.iter().any(|fact| fact["id"] == "normalized"));
    let per_second = web.ask("/api/table?of=diff&with=1&normalize=time&event=cpu-clock");
    assert_ne!(
        column(&per_second, "b_delta"),
        column(&per_event, "b_delta")
    );
    // Only the first recording has the second process of number 42, and the fact says that the condition does not hold.
    let of_process = web.ask("/api/table?of=diff&with=1&event=cpu-clock&process=42.2");
    let facts = of_process["facts"].as_array().expect("facts");
    assert!(
        facts
            .iter()
            .any(|fact| fact["id"] == "selection_not_applied"),
        "{facts:?}"
    );
    let of_thread = web.ask("/api/table?of=diff&with=1&event=cpu-clock&process=42");
    let facts = of_thread["facts"].as_array().expect("facts");
    assert!(
        facts
            .iter()
            .all(|fact| fact["id"] != "selection_not_applied")
    );
    for (path, code) in [
        ("of=diff", "bad_parameter"),
        ("of=diff&with=0", "bad_parameter"),
        ("of=diff&with=7", "no_such_profile"),
        ("of=diff&with=1&children=1", "bad_parameter"),
        ("of=diff&with=1&normalize=nothing", "no_such_event"),
        ("with=0", "bad_parameter"),
        ("with=7", "no_such_profile"),
        ("of=metrics&with=1", "bad_parameter"),
        ("sort=b_self_percent", "no_such_column"),
        ("of=what", "bad_parameter"),
    ] {
        assert_eq!(
            web.get(&format!("/api/table?{path}")).code(),
            code,
            "{path}"
        );
    }
}

#[test]
fn exports_honour_filter_levels_and_below() {
    let (made, other) = two();
    let web = Running::start(&[&made.file, &other], Some(made.symfs()));
    let rows = |query: &str| {
        let json = web.ask(&format!("/api/export?format=json&{query}"));
        json["rows"].as_array().expect("rows").clone()
    };
    let filter = escaped(SCRIPT);
    let found = rows(&format!("by=function&event=cpu-clock&filter={filter}"));
    let table = web.ask(&format!(
        "/api/table?by=function&event=cpu-clock&filter={filter}"
    ));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0]["cells"], table["rows"][0]["cells"]);
    let tops = rows("by=process,module&event=cpu-clock&levels=1");
    let all = rows("by=process,module&event=cpu-clock");
    assert!(tops.len() < all.len() && tops.iter().all(|row| row["parent"].is_null()));
    let below = rows(&format!(
        "by=process,module&event=cpu-clock&below={}",
        tops[0]["id"]
    ));
    // The row itself stands first.
    assert_eq!(below[0], tops[0]);
    assert!(below.len() > 1 && below[1..].iter().all(|row| row["parent"] == tops[0]["id"]));
    let changes = rows(&format!("of=diff&with=1&event=cpu-clock&filter={filter}"));
    assert_eq!(changes.len(), 1);
}

#[test]
fn flame_graphs_have_the_other_profiles_weights() {
    let (made, other) = two();
    let web = Running::start(&[&made.file, &other], Some(made.symfs()));
    let flame = web.ask("/api/flame?event=cpu-clock&with=1");
    let alone = web.ask("/api/flame?profile=1&event=cpu-clock");
    let nodes = flame["nodes"]["id"].as_array().expect("nodes").len();
    let there = &flame["other"];
    assert_eq!(there["weight"], json!([200]));
    // main, evil, leaf, long, leaf of main, leaf: the first twenty samples are of two paths.
    assert_eq!(
        there["total_samples"],
        json!([[20, 15, 15, 0, 5, 0]]),
        "{nodes}"
    );
    assert_eq!(alone["nodes"]["total_samples"], json!([[20, 15, 15, 5]]));
    assert_eq!(there["new"], json!([]));
    // The other way round, what only the first recording has is new.
    let back = web.ask("/api/flame?profile=1&event=cpu-clock&with=0");
    let new = back["other"]["new"].as_array().expect("a list");
    let weights: u64 = new
        .iter()
        .filter_map(|frame| frame["weight"].as_u64())
        .sum();
    // One sample in the long function, four in `leaf` without a caller.
    assert_eq!(weights, 50);
    assert_eq!(back["other"]["new_weight"], 50);
    assert_eq!(back["other"]["weight"], json!([10 * SAMPLES]));
    // Each node's total is that of its own, or of nodes below it, in both profiles.
    let inverted = web.ask("/api/flame?event=cpu-clock&with=1&direction=callers");
    assert_eq!(inverted["other"]["total_samples"][0][0], 20);
}

#[test]
fn metrics_say_what_they_lack() {
    let made = made();
    let web = Running::start(&[&made.file], Some(made.symfs()));
    let profile = web.ask("/api/profile");
    assert_eq!(profile["has"]["windows"], false);
    assert!(profile["metrics"].is_array() && profile["default_metrics"] == json!([]));
    for (path, code) in [
        ("metric=ipc", "not_recorded"),
        ("metric=no-such-metric", "bad_parameter"),
        // Names of strangers open no files.
        ("metric=%2Fetc%2Fpasswd", "bad_parameter"),
        ("of=metrics&by=cpu", "bad_parameter"),
        ("of=metrics&children=1", "bad_parameter"),
    ] {
        assert_eq!(
            web.get(&format!("/api/table?{path}")).code(),
            code,
            "{path}"
        );
    }
}
