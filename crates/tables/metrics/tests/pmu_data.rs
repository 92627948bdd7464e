//! Every formula that Intel and Arm publish in the shared examples parses, prints to text that reads back, and has a
//! value on synthetic counts.

use std::path::PathBuf;

use dioptra_metrics::{
    Cell, Count, CpuId, Environment, EventName, MetricSet, Mode, PmuData, RecordedEvent, Unit, expr,
};
use dioptra_testprograms::{Skip, need_shared_data, or_skip};

fn folder() -> Result<PathBuf, Skip> {
    match std::env::var_os("DIOPTRA_PMU_DATA") {
        Some(folder) => Ok(PathBuf::from(folder)),
        None => need_shared_data("pmu"),
    }
}

fn machine() -> Environment {
    [
        ("slots", 6.0),
        ("smt_on", 1.0),
        ("num_cpus", 96.0),
        ("num_cores", 48.0),
        ("num_packages", 2.0),
        ("threads_per_core", 2.0),
        ("cores_per_socket", 24.0),
        ("chas_per_socket", 24.0),
        ("system_tsc_freq", 2.0e9),
        ("duration_time", 1.5),
    ]
    .into_iter()
    .fold(Environment::new(), |e, (name, value)| e.with(name, value))
}

/// Binds a set to all of its events and evaluates; gives the number of columns.
fn evaluate(set: &MetricSet) -> usize {
    let needed = set.needed_events();
    let recorded: Vec<RecordedEvent> = needed
        .iter()
        .map(|e| RecordedEvent::named(&e.name))
        .collect();
    let bound = set.bind(&recorded, &machine());
    // Distinct primes-like values, so that no difference is 0 by accident.
    let counts: Vec<Count> = (0..recorded.len() as u64)
        .map(|i| Count::sampled(500 + 37 * i, 1_000_003 + 77_017 * i, 1.0 + i as f64 / 100.0))
        .collect();
    let mut evaluator = bound.evaluator(&counts, Mode::Exact);
    for (cell, column) in evaluator.row(&counts).iter().zip(set.columns()) {
        match cell {
            Cell::Value { value, error, .. } => {
                assert!(value.is_finite() && error.is_finite(), "{}", column.name);
            }
            other => panic!("{}: {}: {other:?}", set.name, column.name),
        }
        let printed = column.formula.to_string();
        let again = expr::parse(&printed).unwrap_or_else(|e| panic!("{}: {e}", column.name));
        assert!(
            again == column.formula,
            "{}: printed and read, it is another",
            column.name
        );
    }
    set.columns().len()
}

#[test]
fn every_file_parses_and_evaluates() {
    let folder = or_skip!(folder());
    let mut columns = Vec::new();
    let mut open = vec![folder];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder)
            .expect("the folder reads")
            .flatten()
        {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == "json") {
                let set = MetricSet::load(&path).unwrap_or_else(|e| panic!("{e}"));
                columns.push((set.name.clone(), evaluate(&set)));
            }
        }
    }
    columns.sort();
    if columns.is_empty() {
        dioptra_testprograms::skip("no files of metrics");
        return;
    }
    eprintln!("{columns:?}");
    for (name, metrics) in [
        ("haswellx_metrics", 152),
        ("sapphirerapids_metrics", 308),
        ("skylakex_metrics", 260),
        ("sapphirerapids_metrics_perf", 58),
        ("neoverse-n1", 31),
        ("neoverse-v1", 36),
        ("neoverse-v2", 47),
    ] {
        if let Some((_, found)) = columns.iter().find(|(n, _)| n == name) {
            assert_eq!(*found, metrics, "{name}");
        }
    }
}

#[test]
fn a_folder_knows_its_cpus() {
    let folder = or_skip!(folder());
    let data = PmuData::open(&folder).expect("the folder reads");
    assert_eq!(data.skipped(), [] as [String; 0]);
    let names: Vec<&str> = data.cpus().iter().map(|c| c.name.as_str()).collect();
    for name in [
        "Neoverse N1",
        "Neoverse V1",
        "Neoverse V2",
        "haswellx",
        "sapphirerapids",
        "skylakex",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
    // By header and by maker's name.
    for (cpu, column) in [
        ("GenuineIntel-6-8F-8", "Retiring"),
        ("GenuineIntel,6,143,8", "Retiring"),
        ("GenuineIntel-6-3F-2", "Frontend_Bound"),
        ("GenuineIntel-6-55-4", "Frontend_Bound"),
        ("0x00000000413fd0c1", "ipc"),
        ("neoverse v2", "frontend_bound"),
    ] {
        let set = data.set_for(cpu).unwrap_or_else(|e| panic!("{e}"));
        let at = set
            .column(column)
            .unwrap_or_else(|| panic!("{cpu}: no {column}"));
        assert!(
            matches!(set.columns()[at].unit, Unit::Percent(_) | Unit::Other(_)),
            "{:?}",
            set.columns()[at].unit
        );
        evaluate(&set);
    }
    // The tree: levels fold under their category.
    let set = data.set_for("GenuineIntel-6-8F").expect("Sapphire Rapids");
    let parent = set.columns()[set.column("Memory_Bound").expect("level 2")].parent;
    assert_eq!(
        parent.map(|p| set.columns()[p].name.as_str()),
        Some("Backend_Bound")
    );
    // Encodings, plain and changed.
    let encoding = |name: &str| set.event(name).and_then(|e| e.encoding.clone());
    assert_eq!(
        encoding("INT_MISC.UOP_DROPPING").as_deref(),
        Some("cpu/event=0xad,umask=0x10/")
    );
    assert_eq!(
        encoding("UOPS_RETIRED.MS:c1:e1")
            .as_deref()
            .map(|e| e.contains("cmask=0x1,edge=0x1")),
        Some(true)
    );
    let unknown = data
        .set_for("GenuineIntel-6-A7")
        .expect_err("Rocket Lake is not there");
    assert!(unknown.to_string().contains("haswellx"), "{unknown}");
}

/// The file that ships says the same as the maker's.
#[test]
fn the_shipped_top_down_equals_the_makers() {
    let folder = or_skip!(folder());
    let data = PmuData::open(&folder).expect("the folder reads");
    for (cpu, pairs) in [
        (
            "GenuineIntel-6-8F-8",
            &[
                ("retiring", "Retiring"),
                ("light_operations", "Light_Operations"),
                ("heavy_operations", "Heavy_Operations"),
                ("frontend_bound", "Frontend_Bound"),
                ("fetch_latency", "Fetch_Latency"),
                ("fetch_bandwidth", "Fetch_Bandwidth"),
                ("bad_speculation", "Bad_Speculation"),
                ("branch_mispredicts", "Branch_Mispredicts"),
                ("machine_clears", "Machine_Clears"),
                ("backend_bound", "Backend_Bound"),
                ("memory_bound", "Memory_Bound"),
                ("core_bound", "Core_Bound"),
            ][..],
        ),
        // Arm's names are ours, for all columns.
        ("0x00000000413fd0c1", &[]),
        ("0x00000000411fd401", &[]),
        ("0x00000000410fd4f1", &[]),
    ] {
        let ours = MetricSet::for_cpu(cpu).expect("shipped");
        let theirs = data.set_for(cpu).expect("in the folder");
        assert!(CpuId::parse(cpu).matches(&ours.cpus[0]));
        for event in ours.needed_events() {
            let Some(maker) = theirs.event(&event.name) else {
                continue;
            };
            let canonical =
                |e: &Option<String>| EventName::parse(e.as_deref().expect("has one")).encoding;
            assert_eq!(
                canonical(&event.encoding),
                canonical(&maker.encoding),
                "{cpu}: {}",
                event.name
            );
        }
        // Recorded as ours asks for it; the maker's set must find the same events by encoding or name.
        let needed = ours.needed_events();
        let recorded: Vec<RecordedEvent> = needed
            .iter()
            .map(|e| RecordedEvent::named(e.encoding.as_ref().expect("has one")))
            .collect();
        let counts: Vec<Count> = (0..recorded.len() as u64)
            .map(|i| Count::sampled(5_000 + i * i, 2_000_000 + 310_007 * (i % 7) + i, 1.0))
            .collect();
        let (bound, bound_theirs) = (
            ours.bind(&recorded, &machine()),
            theirs.bind(&recorded, &machine()),
        );
        let (mut a, mut b) = (
            bound.evaluator(&counts, Mode::Exact),
            bound_theirs.evaluator(&counts, Mode::Exact),
        );
        let (a, b) = (a.row(&counts), b.row(&counts));
        let same = ours.columns().iter().map(|c| (&*c.name, &*c.name));
        let same = same.take(if pairs.is_empty() { usize::MAX } else { 0 });
        for (own, maker) in same.chain(pairs.iter().copied()) {
            let own_cell = &a[ours.column(own).expect("shipped column")];
            let maker_cell = &b[theirs.column(maker).expect("maker's column")];
            match (own_cell, maker_cell) {
                (
                    Cell::Value { value, error, .. },
                    Cell::Value {
                        value: v, error: e, ..
                    },
                ) => {
                    let near = |x: f64, y: f64| (x - y).abs() <= 1e-9 * (1.0 + x.abs() + y.abs());
                    assert!(near(*value, *v), "{cpu} {own}: {value} against {v}");
                    assert!(near(*error, *e), "{cpu} {own}: error {error} against {e}");
                }
                other => panic!("{cpu} {own}: {other:?}"),
            }
        }
    }
}
