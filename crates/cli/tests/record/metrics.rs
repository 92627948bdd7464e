//! `record --metrics` and `list metrics`: the recording has the events that the metrics need, counts equal those of
//! programs known by construction, and messages name the events that the machine lacks.

use super::support::Recording;
use dioptra_metrics::{Count, Environment, MetricSet, Mode, RecordedEvent};
use dioptra_perfdata::PerfData;
use dioptra_perfevents::record::Record;
use dioptra_perfevents::{AttrFlags, EventGroup, EventSpec, SampleType};
use dioptra_profile::{LoadOptions, Profile};
use dioptra_recorder::outcome::Progress;
use dioptra_recorder::{Observer, RecordError, RecordSpec, RecordTarget};
use dioptra_testprograms as programs;
use programs::or_skip;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Output};

fn dioptra(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dioptra"))
        .args(arguments)
        .env_remove("DIOPTRA_PMU_DATA")
        .output()
        .expect("dioptra runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the numbers that a test program printed.
fn printed(output: &Output) -> Vec<f64> {
    let numbers = text(&output.stdout);
    numbers
        .split_whitespace()
        .map(|number| number.parse().unwrap_or_else(|_| panic!("{output:?}")))
        .collect()
}

/// Returns a recording's events with samples and the sum of their periods, as a profile has them.
fn counts(path: &Path) -> Vec<(String, u64, u64)> {
    let data = PerfData::open(path).expect("a recording");
    let profile = Profile::load(&data, LoadOptions::default());
    let events = profile.events().iter();
    let counted = events.map(|event| {
        let total = event.total();
        (event.name().to_owned(), total.samples, total.weight)
    });
    counted.collect()
}

fn count_of(counts: &[(String, u64, u64)], name: &str) -> (u64, u64) {
    let found = counts.iter().find(|(event, _, _)| event == name);
    let (_, samples, weight) = found.unwrap_or_else(|| panic!("no {name} in {counts:?}"));
    (*samples, *weight)
}

/// Returns a column of the generic set, from a recording's total counts.
fn generic(counts: &[(String, u64, u64)], column: &str) -> (f64, f64) {
    let set = MetricSet::generic();
    let recorded: Vec<RecordedEvent> = counts
        .iter()
        .map(|(name, _, _)| RecordedEvent::named(name))
        .collect();
    let bound = set.bind(&recorded, &Environment::new());
    let row: Vec<Count> = counts
        .iter()
        .map(|(_, samples, weight)| Count::sampled(*samples, *weight, 1.0))
        .collect();
    let mut evaluator = bound.evaluator(&row, Mode::Exact);
    let cells = evaluator.row(&row);
    let cell = &cells[set.column(column).expect("a column")];
    let value = cell.value().unwrap_or_else(|| panic!("{column}: {cell:?}"));
    (value, cell.error().expect("an error"))
}

/// Returns `# Event count (approx.): N` of each event in perf's report, by the event's name.
fn perf_counts(path: &Path) -> Vec<(String, u64)> {
    let output = Command::new("perf")
        .args(["report", "--stdio", "--sort", "sym", "-i"])
        .arg(path)
        .output()
        .expect("perf runs");
    assert!(output.status.success(), "{output:?}");
    let mut event = String::new();
    let mut counts = Vec::new();
    for line in text(&output.stdout).lines() {
        if let Some((_, name)) = line.split_once(" of event '") {
            event = name.split('\'').next().unwrap_or_default().to_owned();
        } else if let Some(count) = line.strip_prefix("# Event count (approx.): ") {
            counts.push((event.clone(), count.trim().parse().expect("a number")));
        }
    }
    counts
}

#[test]
fn serial_faults_per_ms_are_those_of_the_program() {
    or_skip!(programs::need_sampling());
    let program = or_skip!(programs::c("faults", &[]));
    let recording = Recording::new();
    let output = recording.record([
        "--metrics",
        "generic",
        program.to_str().unwrap(),
        "6000",
        "2",
    ]);
    let content = recording.content();
    let found = counts(&recording.path());
    let (faults, weight) = count_of(&found, "page-faults");
    assert_eq!(faults, weight, "a sample for each");
    let first = printed(&output)[0] as u64;
    assert_eq!(first, 12_000);
    // The faults are the program's own and those of its start.
    assert!(
        (first..first + 2000).contains(&(faults + content.lost())),
        "{faults} faults, {} lost",
        content.lost()
    );
    let (samples, nanoseconds) = count_of(&found, "task-clock");
    assert_eq!(nanoseconds, samples * 1_000_003);
    let (rate, _) = generic(&found, "faults_per_ms");
    let expected = faults as f64 / (nanoseconds as f64 / 1e6);
    assert!(
        (rate / expected - 1.0).abs() < 1e-9,
        "{rate}, not {expected}"
    );
    if programs::need_tool("perf").is_ok() {
        for (event, count) in perf_counts(&recording.path()) {
            assert_eq!(count, count_of(&found, &event).1, "{event} in {found:?}");
        }
    }
}

#[test]
fn serial_switches_are_those_of_the_program() {
    or_skip!(programs::need_sampling());
    or_skip!(programs::need_root());
    let program = or_skip!(programs::c("sleeps", &[]));
    let recording = Recording::new();
    let output = recording.record([
        "--metrics",
        "switches_per_ms",
        program.to_str().unwrap(),
        "300",
    ]);
    let lost = recording.content().lost();
    let found = counts(&recording.path());
    // The recording has the events of the metric and of its children, and no other events.
    let events: BTreeSet<&str> = found.iter().map(|(name, _, _)| name.as_str()).collect();
    assert_eq!(
        events,
        BTreeSet::from(["context-switches", "cpu-migrations", "task-clock"])
    );
    let numbers = printed(&output);
    let (voluntary, all) = (numbers[0] as u64, (numbers[0] + numbers[1]) as u64);
    // A sleep may be over before the CPU was given away.
    assert!((270..330).contains(&voluntary), "{voluntary}");
    let (switches, _) = count_of(&found, "context-switches");
    assert!(switches + lost >= all, "{switches} of {all}, {lost} lost");
    // The program takes at least 300 ms of CPU time.
    let (_, nanoseconds) = count_of(&found, "task-clock");
    let (rate, error) = generic(&found, "switches_per_ms");
    let expected = switches as f64 / (numbers[2] / 1e3);
    assert!(
        nanoseconds > 0 && rate > 0.0 && (rate - expected).abs() < 0.2 * expected + 6.0 * error,
        "{rate} ± {error}, not {expected}; {found:?}"
    );
}

#[test]
fn serial_the_file_has_every_event_that_the_list_says_works() {
    or_skip!(programs::need_sampling());
    let listed = dioptra(&["list", "metrics", "--format", "json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    let column = |id: &str| {
        let columns = listed["columns"].as_array().expect("columns");
        columns
            .iter()
            .position(|c| c["id"] == id)
            .expect("a column")
    };
    let (set, works, events, lacks) = (
        column("set"),
        column("works"),
        column("events"),
        column("lacks"),
    );
    let words = |row: &Value, column: usize| -> BTreeSet<String> {
        let cell = row["cells"][column].as_str().expect("text");
        cell.split_whitespace().map(str::to_owned).collect()
    };
    let rows: Vec<&Value> = listed["rows"].as_array().expect("rows").iter().collect();
    let rows: Vec<&Value> = rows
        .into_iter()
        .filter(|row| row["cells"][set] == "generic")
        .collect();
    assert_eq!(rows.len(), MetricSet::generic().columns().len());
    let mut expected = BTreeSet::new();
    let mut lacking = BTreeSet::new();
    for row in &rows {
        let missing = words(row, lacks);
        assert_eq!(row["cells"][works] == "yes", missing.is_empty(), "{row}");
        expected.extend(words(row, events).difference(&missing).cloned());
        lacking.extend(missing);
    }
    let recording = Recording::new();
    let output = recording.record(["--metrics", "generic", "true"]);
    let data = PerfData::open(&recording.path()).expect("a recording");
    let sampling = data
        .events()
        .iter()
        .filter(|event| event.attr.samples() && event.name != "dummy");
    let recorded: BTreeSet<String> = sampling.map(|event| event.name.clone()).collect();
    assert_eq!(recorded, expected);
    // A message names each event that is not in the file, with the columns that will be missing.
    let told = text(&output.stderr);
    for event in &lacking {
        assert!(
            told.contains(&format!("without {event}: ")),
            "{event}: {told}"
        );
    }
    if lacking.contains("cycles") {
        assert!(told.contains("no clock_ghz, ipc"), "{told}");
    }
    // No clock stands in place of cycles: a ratio would be wrong.
    assert!(!told.contains("cpu-clock"), "{told}");
}

#[test]
fn metrics_that_there_are_not_are_arguments_that_are_wrong() {
    for (name, word) in [
        ("no-such-metric", "hsw-ep"),
        ("generic:no-such-metric", "no-such-metric"),
        ("/no/such/file.toml", "/no/such/file.toml"),
        ("", "no set"),
    ] {
        let output = dioptra(&["record", "-o", "/dev/null", "--metrics", name, "true"]);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {told}");
        assert!(told.contains(word), "{name}: {told}");
    }
    let output = dioptra(&["list", "metrics", "--cpu", "no-such-cpu"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no-such-cpu"));
    let output = dioptra(&["list", "cpus", "--pmu-data", "/no/such/folder"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("/no/such/folder"));
}

#[test]
fn serial_where_nothing_can_be_counted_nothing_runs() {
    or_skip!(programs::need_sampling());
    let folder = tempfile::tempdir().unwrap();
    // No CPU has this event.
    let file = folder.path().join("own.toml");
    let set = "schema = 1\nname = \"own\"\n[[event]]\nname = \"nowhere\"\nencoding = \"nosuchpmu/event=1/\"\n\
               [[column]]\nname = \"rate\"\nformula = \"nowhere\"\n";
    std::fs::write(&file, set).unwrap();
    let out = folder.path().join("out");
    let recording = Recording::new();
    let output = recording.run([
        "--metrics",
        file.to_str().unwrap(),
        "touch",
        out.to_str().unwrap(),
    ]);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{told}");
    assert!(
        told.contains("nowhere") && told.contains("nosuchpmu"),
        "{told}"
    );
    assert!(!out.exists() && !recording.path().exists());
    // Beside an event that every machine has, the missing one is a note.
    let set = format!(
        "{set}[[event]]\nname = \"faults\"\nencoding = \"page-faults\"\nperiod = 1\n\
                       [[column]]\nname = \"both\"\nformula = \"faults / nowhere\"\n"
    );
    std::fs::write(&file, set).unwrap();
    let output = recording.record(["--metrics", file.to_str().unwrap(), "true"]);
    let told = text(&output.stderr);
    assert!(
        told.contains("own: 1 of 2 events cannot be recorded"),
        "{told}"
    );
    assert!(told.contains("without nowhere: no rate, both"), "{told}");
    assert!(count_of(&counts(&recording.path()), "faults").0 > 0);
}

#[test]
fn serial_nobody_records_what_needs_no_rights() {
    or_skip!(programs::need_sampling());
    let mut nobody = or_skip!(programs::as_nobody(env!("CARGO_BIN_EXE_dioptra")));
    if programs::paranoid() != Some(2) {
        return programs::skip(programs::Limit::OtherParanoid);
    }
    // Nobody may write nowhere else.
    let output = nobody
        .args(["record", "-o", "-", "--metrics", "generic", "true"])
        .output()
        .expect("dioptra runs");
    let told = text(&output.stderr);
    assert!(output.status.success(), "{told}");
    // The count of context switches could only be zero.
    assert!(
        told.contains("without context-switches: no switches_per_ms"),
        "{told}"
    );
    assert!(!told.contains("without page-faults"), "{told}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    std::fs::write(&path, &output.stdout).unwrap();
    let found = counts(&path);
    assert!(
        found
            .iter()
            .any(|(name, samples, _)| name == "page-faults" && *samples > 0),
        "{found:?}"
    );
    assert!(
        found.iter().all(|(name, _, _)| name != "context-switches"),
        "{found:?}"
    );
}

#[test]
fn makers_files_are_listed_and_asked_for() {
    let folder = or_skip!(programs::need_shared_data("pmu"));
    let folder = folder.to_str().unwrap();
    let by_option = dioptra(&["list", "cpus", "--pmu-data", folder, "--format", "csv"]);
    let by_variable = Command::new(env!("CARGO_BIN_EXE_dioptra"))
        .args(["list", "cpus", "--format", "csv"])
        .env("DIOPTRA_PMU_DATA", folder)
        .output()
        .unwrap();
    assert!(by_option.status.success(), "{by_option:?}");
    assert_eq!(by_option.stdout, by_variable.stdout);
    let listed = text(&by_option.stdout);
    for cpu in ["sapphirerapids,", "Neoverse V1,", "generic,", "hsw-ep,"] {
        assert!(
            listed.lines().any(|line| line.starts_with(cpu)),
            "{cpu} in {listed}"
        );
    }
    let metrics = |cpu: &str, filter: &[&str]| {
        let words = [
            &[
                "list",
                "metrics",
                "--pmu-data",
                folder,
                "--cpu",
                cpu,
                "--format",
                "json",
            ],
            filter,
        ]
        .concat();
        let output = dioptra(&words);
        assert!(output.status.success(), "{output:?}");
        let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        document["rows"].as_array().expect("rows").len()
    };
    assert!(metrics("sapphirerapids", &[]) > 100);
    // The CPU's id chooses the maker's set and our own.
    assert!(metrics("GenuineIntel-6-8F-8", &[]) > metrics("sapphirerapids", &[]));
    assert!(metrics("Neoverse V1", &["branch"]) < metrics("Neoverse V1", &[]));
    let output = dioptra(&[
        "record",
        "-o",
        "/dev/null",
        "--pmu-data",
        folder,
        "--metrics",
        "sapphirerapids:NoSuch",
        "true",
    ]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn a_tree_of_columns_folds() {
    let output = dioptra(&[
        "list",
        "metrics",
        "--cpu",
        "GenuineIntel-6-3F",
        "--format",
        "json",
    ]);
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = document["rows"].as_array().expect("rows");
    let set = MetricSet::named("hsw-ep").expect("a set");
    assert_eq!(rows.len(), set.columns().len());
    for (row, column) in rows.iter().zip(set.columns()) {
        let name = row["cells"]
            .as_array()
            .expect("cells")
            .last()
            .expect("a cell");
        assert_eq!(name.as_str(), Some(column.name.as_str()));
        let parent = column.parent.map(|parent| rows[parent]["id"].clone());
        assert_eq!(row["parent"], parent.unwrap_or(Value::Null), "{row}");
    }
    let output = dioptra(&["list", "metrics", "--cpu", "hsw-ep"]);
    let shown = text(&output.stdout);
    assert!(
        shown.contains("  dtlb_load_misses:walk_duration"),
        "{shown}"
    );
}

/// Returns the sum of the values that each counter's last sample read.
fn last_values(data: &PerfData) -> u64 {
    let mut last = BTreeMap::new();
    data.read(|record| {
        let layout = data.layout(record.event);
        let parsed = layout.map(|layout| layout.parse(&record.raw));
        if let Some(Ok(Record::Sample(sample))) = parsed
            && let Some(read) = &sample.read
        {
            last.extend(read.iter().map(|value| (value.id, value.value)));
        }
        ControlFlow::Continue(())
    });
    last.values().sum()
}

struct Silent;

impl Observer for Silent {
    fn note(&mut self, _: &dioptra_recorder::RecordNote) {}
    fn progress(&mut self, _: Progress) {}
    fn waiting(&mut self, _: Option<&RecordError>) {}
}

/// Samples hold the time for which their counter ran: events of the kernel never wait for their turn, in any thread.
#[test]
fn serial_times_in_samples_scale_nothing_that_took_no_turns() {
    or_skip!(programs::need_sampling());
    for (program, arguments) in [("spin", ["0.3", "0"]), ("threads", ["3", "60"])] {
        let path = or_skip!(programs::c(program, &["-pthread"]));
        let folder = tempfile::tempdir().unwrap();
        let clock = EventSpec::cpu_clock()
            .with_period(1_000_000)
            .with_sample(SampleType::READ)
            .user_only();
        let plain = EventSpec::page_faults().with_period(1).user_only();
        let groups = vec![EventGroup::new([clock]), EventGroup::new([plain])];
        let mut spec = RecordSpec::new(RecordTarget::Command, groups);
        spec.command = Some(
            [path.as_os_str().to_owned()]
                .into_iter()
                .chain(arguments.map(Into::into))
                .collect(),
        );
        spec.output = folder.path().join("perf.data");
        dioptra_recorder::record(&spec, &mut Silent).expect("a recording");
        let data = PerfData::open(&spec.output).expect("a recording");
        let attrs: Vec<_> = data.events().iter().map(|event| &event.attr).collect();
        let clock = attrs
            .iter()
            .find(|attr| attr.sample_type.contains(SampleType::READ))
            .expect("it reads");
        let inherited = dioptra_perfevents::Features::get().inherit_read;
        assert_eq!(
            clock.flags.contains(AttrFlags::INHERIT),
            inherited,
            "{program}"
        );
        let profile = Profile::load(&data, LoadOptions::default());
        let [read, plain] = [0, 1].map(|index| &profile.events()[index]);
        assert!(plain.multiplexing().is_none());
        let times = read.multiplexing().expect("times were recorded");
        assert_eq!(times.unknown, 0, "{program}: {times:?}");
        // A thread has a counter for each CPU. The count on a CPU that the thread has left becomes known only with the
        // next sample there. The unknown part is less than a period.
        let (weight, estimate) = (read.total().weight as f64, read.total_estimate().value);
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let unknown = (4 * cpus) as f64 * 1_500_000.0;
        assert!(
            !inherited || (weight..weight + unknown).contains(&estimate),
            "{program}: {estimate} of {weight}, {times:?}"
        );
        assert_eq!(read.total().weight, read.total().samples * 1_000_000);
        // perf takes the differences of the samples' readings for their weights, so their sum is the sum of the last
        // readings.
        if program == "spin" && programs::need_tool("perf").is_ok() {
            let counted = perf_counts(&spec.output);
            let (_, sum) = counted
                .iter()
                .find(|(event, _)| event.starts_with("cpu-clock"))
                .expect("the clock");
            assert_eq!(*sum, last_values(&data));
        }
    }
}
