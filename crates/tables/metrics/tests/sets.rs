//! Binding, missing inputs, low counts, groups: what a report relies on.

use dioptra_metrics::{
    BindNote, Cell, Count, CpuId, Environment, MetricError, MetricSet, Mode, RecordedEvent, Unit,
};

fn set(body: &str) -> MetricSet {
    MetricSet::from_toml("test", &format!("schema = 1\nname = \"test\"\n{body}"))
        .unwrap_or_else(|e| panic!("{e}"))
}

fn refused(body: &str) -> String {
    MetricSet::from_toml("test", &format!("schema = 1\nname = \"test\"\n{body}"))
        .expect_err("is wrong")
        .to_string()
}

fn cell(
    set: &MetricSet,
    column: &str,
    recorded: &[(&str, Count)],
    environment: &Environment,
) -> Cell {
    let events: Vec<RecordedEvent> = recorded
        .iter()
        .map(|(n, _)| RecordedEvent::named(*n))
        .collect();
    let counts: Vec<Count> = recorded.iter().map(|(_, c)| *c).collect();
    let bound = set.bind(&events, environment);
    bound.evaluator(&counts, Mode::Exact).row(&counts)[set.column(column).expect("a column")]
        .clone()
}

fn sampled(samples: u64) -> Count {
    Count::sampled(samples, samples * 1000, 1.0)
}

const AB: &str = "[[event]]\nname = \"a\"\n[[event]]\nname = \"b\"\n[[event]]\nname = \"c\"\n";

#[test]
fn missing_undefined_and_zero_are_three_things() {
    let set = set(&format!(
        "{AB}[[column]]\nname = \"r\"\nformula = \"a / b\"\n[[column]]\nname = \"s\"\nformula = \"ratio(a, b)\"\n[[column]]\nname = \"t\"\nformula = \"r * 2 + c\"\n"
    ));
    let none = Environment::new();
    let missing = |names: &[&str]| Cell::Missing(names.iter().map(|n| (*n).to_owned()).collect());
    assert_eq!(
        cell(&set, "r", &[("a", sampled(5))], &none),
        missing(&["b"])
    );
    assert_eq!(cell(&set, "r", &[], &none), missing(&["a", "b"]));
    assert_eq!(cell(&set, "t", &[], &none), missing(&["a", "b", "c"]));
    let zero = [("a", sampled(0)), ("b", sampled(0))];
    assert_eq!(cell(&set, "r", &zero, &none), Cell::Undefined);
    assert_eq!(cell(&set, "s", &zero, &none).value(), Some(0.0));
    let one = [("a", sampled(0)), ("b", sampled(50))];
    assert_eq!(cell(&set, "r", &one, &none).value(), Some(0.0));
}

#[test]
fn a_sum_with_missing_terms_is_a_lower_bound() {
    let set = set(&format!(
        "{AB}[[column]]\nname = \"all\"\nsum = true\ndescription = \"d\"\n\
         [[column]]\nname = \"a\"\nevent = \"a\"\npenalty = 2\nparent = \"all\"\nadds_to = [\"all\"]\n\
         [[column]]\nname = \"b\"\nevent = \"b\"\npenalty = 3\nparent = \"all\"\nadds_to = [\"all\"]\n\
         [[column]]\nname = \"c\"\nevent = \"c\"\nparent = \"all\"\n"
    ));
    let all = set.column("all").expect("all");
    assert_eq!(set.columns()[all].children.len(), 3);
    assert_eq!(set.roots().collect::<Vec<_>>(), [all]);
    assert_eq!(set.columns()[all].unit, Unit::Cycles);
    let both = cell(
        &set,
        "all",
        &[("a", sampled(100)), ("b", sampled(200))],
        &Environment::new(),
    );
    assert!(
        matches!(
            both,
            Cell::Value {
                value: 800_000.0,
                partial: false,
                ..
            }
        ),
        "{both:?}"
    );
    let one = cell(&set, "all", &[("b", sampled(200))], &Environment::new());
    assert!(
        matches!(
            one,
            Cell::Value {
                value: 600_000.0,
                partial: true,
                ..
            }
        ),
        "{one:?}"
    );
    let bound = set.bind(&[RecordedEvent::named("b")], &Environment::new());
    assert_eq!(*bound.columns()[all].left_out, ["a".to_owned()]);
    assert!(matches!(
        cell(&set, "all", &[("c", sampled(1))], &Environment::new()),
        Cell::Missing(_)
    ));
}

#[test]
fn few_samples_are_marked() {
    let set = set(&format!(
        "{AB}[[column]]\nname = \"r\"\nformula = \"a / b\"\n"
    ));
    let low = |a, b| match cell(
        &set,
        "r",
        &[("a", sampled(a)), ("b", sampled(b))],
        &Environment::new(),
    ) {
        Cell::Value {
            low_counts, error, ..
        } => (low_counts, error),
        other => panic!("{other:?}"),
    };
    assert!(low(3, 1000).0);
    assert!(low(1000, 3).0);
    assert!(!low(1000, 1000).0);
    // Nothing seen is known to about one sample.
    let totals = [sampled(100), sampled(100)];
    let bound = set.bind(&["a", "b"].map(RecordedEvent::named), &Environment::new());
    let mut evaluator = bound.evaluator(&totals, Mode::Exact);
    let Cell::Value {
        value,
        error,
        low_counts,
        ..
    } = evaluator.row(&[sampled(0), sampled(50)])[0]
    else {
        panic!("has a value");
    };
    assert_eq!((value, low_counts), (0.0, true));
    assert!((error - 1.0 / 50.0).abs() < 1e-12, "{error}");
    // Counts that were read have no error of sampling, however small.
    let read = cell(
        &set,
        "r",
        &[("a", Count::exact(3.0)), ("b", Count::exact(4.0))],
        &Environment::new(),
    );
    assert_eq!(
        read,
        Cell::Value {
            value: 0.75,
            error: 0.0,
            low_counts: false,
            partial: false
        }
    );
}

#[test]
fn an_input_twice_is_one_input() {
    let set = set(&format!(
        "{AB}[[column]]\nname = \"x\"\nformula = \"a - a\"\n[[column]]\nname = \"y\"\nformula = \"a + a\"\n[[column]]\nname = \"z\"\nformula = \"y - 2 * a + x\"\n"
    ));
    let a = [("a", sampled(100))];
    let none = Environment::new();
    assert_eq!(cell(&set, "x", &a, &none).error(), Some(0.0));
    assert_eq!(cell(&set, "y", &a, &none).error(), Some(20_000.0));
    assert_eq!(cell(&set, "z", &a, &none).error(), Some(0.0));
}

#[test]
fn the_machine_decides_which_inputs_are_needed() {
    let set = set(&format!(
        "{AB}[[column]]\nname = \"s\"\nformula = \"a / 2 if #smt_on else b\"\n\
         [[column]]\nname = \"h\"\nformula = \"a if has_event(a) else b\"\n\
         [[column]]\nname = \"k\"\nformula = \"a if strcmp_cpuid_str(0x410fd493) else b\"\n"
    ));
    let a = [("a", sampled(10))];
    let smt = |on| Environment::new().with("#SMT_on", on);
    assert_eq!(cell(&set, "s", &a, &smt(1.0)).value(), Some(5000.0));
    assert!(matches!(cell(&set, "s", &a, &smt(0.0)), Cell::Missing(_)));
    let Cell::Missing(names) = cell(&set, "s", &a, &Environment::new()) else {
        panic!("nobody said whether");
    };
    assert!(names.contains(&"#smt_on".to_owned()));
    assert_eq!(
        cell(&set, "h", &a, &Environment::new()).value(),
        Some(10_000.0)
    );
    assert!(matches!(
        cell(&set, "h", &[("c", sampled(1))], &Environment::new()),
        Cell::Missing(_)
    ));
    let cpu = |midr| Environment::new().with_cpu(CpuId::parse(midr));
    assert!(
        cell(&set, "k", &a, &cpu("0x00000000410fd493"))
            .value()
            .is_some()
    );
    assert!(
        cell(&set, "k", &a, &cpu("0x00000000410fd490"))
            .value()
            .is_none()
    );
}

#[test]
fn recorded_names_are_found_and_choices_told() {
    let set = MetricSet::generic();
    let ipc = set.column("IPC").expect("any case");
    let bind = |names: &[&str]| {
        let events: Vec<RecordedEvent> = names.iter().map(|n| RecordedEvent::named(*n)).collect();
        set.bind(&events, &Environment::new())
    };
    for names in [
        ["cycles:u", "instructions:u"],
        ["cpu-cycles", "cpu/instructions/"],
        ["cpu_core/cycles/", "cpu_core/instructions/"],
    ] {
        let bound = bind(&names);
        assert!(bound.columns()[ipc].missing.is_empty(), "{names:?}");
        assert_eq!(bound.notes(), []);
    }
    let bound = bind(&["cycles:u", "instructions"]);
    assert!(
        matches!(&bound.notes()[0], BindNote::MixedModifiers { inputs, .. } if inputs.len() == 2),
        "{:?}",
        bound.notes()
    );
    let bound = bind(&["cycles:u", "cycles", "instructions"]);
    assert_eq!(bound.columns()[ipc].inputs, [1, 2]);
    assert!(matches!(
        &bound.notes()[0],
        BindNote::Several { chosen, others, .. } if chosen == "cycles" && others == &["cycles:u"]
    ));
}

#[test]
fn inputs_come_from_one_group() {
    let set = set(&format!(
        "{AB}[[column]]\nname = \"ab\"\nformula = \"a / b\"\n[[column]]\nname = \"ac\"\nformula = \"a / c\"\n"
    ));
    let event = |name: &str, group| RecordedEvent {
        name: name.to_owned(),
        period: None,
        group: Some(group),
    };
    let recorded = [event("a", 0), event("b", 0), event("a", 1), event("c", 1)];
    let bound = set.bind(&recorded, &Environment::new());
    assert_eq!(bound.columns()[0].inputs, [0, 1]);
    assert_eq!(bound.columns()[1].inputs, [2, 3]);
    assert_eq!(bound.notes(), []);
    let bound = set.bind(&[event("a", 0), event("c", 1)], &Environment::new());
    assert!(matches!(&bound.notes()[0], BindNote::ApartGroups { column } if column == "ac"));
}

#[test]
fn groups_fit_their_counters_and_keep_formulas_together() {
    for name in [
        "generic",
        "wsm-ep",
        "hsw-ep",
        "sapphire-rapids",
        "zen4",
        "neoverse-n1",
        "neoverse-n2",
        "neoverse-v1",
        "neoverse-v2",
    ] {
        let set = MetricSet::named(name).expect("shipped");
        for counters in [1, 2, 3, 4, 6, 8] {
            let split = set.split_groups(counters);
            for group in &split.groups {
                assert!(group.events.iter().filter(|e| !e.fixed).count() <= counters);
            }
            for event in set.needed_events() {
                assert!(
                    split.groups.iter().any(|g| g.events.contains(&event)),
                    "{name}, {counters}: {} is in no group",
                    event.name
                );
            }
            for (i, column) in set.columns().iter().enumerate() {
                if column.kind != dioptra_metrics::ColumnKind::Formula
                    || split.apart.contains(&column.name)
                {
                    continue;
                }
                let needs = set.needed_events_of(&[i]);
                assert!(
                    split
                        .groups
                        .iter()
                        .any(|g| needs.iter().all(|e| g.events.contains(e))),
                    "{name}, {counters}: {} is apart and not told",
                    column.name
                );
            }
        }
    }
    // Arm's six counters hold the first level at once.
    for name in ["neoverse-n2", "neoverse-v2"] {
        let set = MetricSet::named(name).expect("shipped");
        assert_eq!(set.split_groups(6).apart, [] as [String; 0], "{name}");
    }
}

/// With three times the counts, a column in events or cycles is three times as large, and a share, a ratio or misses in
/// a thousand instructions stay as they are. A formula that adds the two kinds, or declares the wrong unit, does
/// neither.
#[test]
fn formulas_have_the_units_that_they_declare() {
    let cpu = Environment::new().with_cpu(CpuId::parse("0x00000000410fd490"));
    let values = |set: &MetricSet, times: f64| -> Vec<Option<f64>> {
        let recorded: Vec<RecordedEvent> = set
            .needed_events()
            .iter()
            .map(|event| RecordedEvent::named(&event.name))
            .collect();
        let counts: Vec<Count> = (0..recorded.len())
            .map(|i| Count::exact(times * (1_000_000.0 + 77_017.0 * ((7 * i) % 23) as f64)))
            .collect();
        let bound = set.bind(&recorded, &cpu);
        let mut evaluator = bound.evaluator(&counts, Mode::Exact);
        let cells = evaluator.row(&counts);
        cells.iter().map(|cell| cell.value()).collect()
    };
    // Returns the first column of its set whose unit is wrong.
    let wrong = |set: &MetricSet| {
        let (once, thrice) = (values(set, 1.0), values(set, 3.0));
        let columns = set.columns().iter().zip(once.iter().zip(&thrice));
        let mut odd = columns.filter(|(column, (once, thrice))| {
            let times = match column.unit {
                Unit::Events | Unit::Cycles => 3.0,
                _ => 1.0,
            };
            let (once, thrice) = (once.expect("a value"), thrice.expect("a value"));
            (thrice - times * once).abs() > 1e-9 * (1.0 + thrice.abs())
        });
        odd.next().map(|(column, _)| column.name.clone())
    };
    for builtin in dioptra_metrics::builtin() {
        assert_eq!(wrong(builtin.set()), None, "{}", builtin.name);
    }
    // The check finds formulas with a wrong unit.
    for (formula, unit) in [
        ("a + b / c", "cycles"),
        ("a / b", "events"),
        ("a * b / c", "%"),
    ] {
        let body =
            format!("{AB}[[column]]\nname = \"x\"\nformula = \"{formula}\"\nunit = \"{unit}\"\n");
        assert_eq!(wrong(&set(&body)), Some("x".to_owned()), "{formula}");
    }
}

/// Neoverse N2 before r0p3 counts one stalled slot too many in each cycle.
#[test]
fn slots_of_an_n2_depend_on_its_revision() {
    let set = MetricSet::named("neoverse-n2").expect("shipped");
    let counts = [
        ("CPU_CYCLES", Count::exact(1000.0)),
        ("STALL_SLOT", Count::exact(2500.0)),
        ("STALL_SLOT_FRONTEND", Count::exact(1500.0)),
        ("STALL_SLOT_BACKEND", Count::exact(1000.0)),
        ("BR_MIS_PRED", Count::exact(10.0)),
        ("OP_RETIRED", Count::exact(2400.0)),
        ("OP_SPEC", Count::exact(3000.0)),
    ];
    // The older revisions have 1500 stalled slots of 5000, 500 of them by the front end; the newest has 2500, and 1500
    // by the front end. Four fifths of the remaining slots retire. A mispredicted branch costs four cycles: the front
    // end lost one of them, the back end three.
    for (midr, retiring, frontend, bad) in [
        ("0x00000000410fd490", 56.0, 9.0, 18.0),
        ("0x00000000410fd492", 56.0, 9.0, 18.0),
        ("0x00000000410fd493", 40.0, 29.0, 14.0),
    ] {
        let cpu = Environment::new().with_cpu(CpuId::parse(midr));
        for (column, expected) in [
            ("retiring", retiring),
            ("frontend_bound", frontend),
            ("bad_speculation", bad),
            ("backend_bound", 17.0),
        ] {
            let value = cell(set, column, &counts, &cpu).value().expect("a value");
            assert!((value - expected).abs() < 1e-9, "{midr} {column}: {value}");
        }
    }
    let unknown = cell(set, "retiring", &counts, &Environment::new());
    assert!(matches!(unknown, Cell::Missing(names) if names[..] == ["the CPU's id"]));
}

#[test]
fn gooda_mode_truncates_each_cost() {
    let set = set(
        "reference = \"cy\"\n[[event]]\nname = \"cy\"\n[[event]]\nname = \"x\"\n[[event]]\nname = \"y\"\n\
         [[column]]\nname = \"cycles\"\nevent = \"cy\"\npenalty = 1\n\
         [[column]]\nname = \"all\"\nsum = true\n\
         [[column]]\nname = \"x\"\nevent = \"x\"\npenalty = 3\nadds_to = [\"all\"]\n\
         [[column]]\nname = \"y\"\nevent = \"y\"\npenalty = 3\nadds_to = [\"all\"]\n",
    );
    let recorded = ["cy", "x", "y"].map(RecordedEvent::named);
    let bound = set.bind(&recorded, &Environment::new());
    // One sample of the cycles is 1000; each of x and y costs 3 x 500 = 1.5 of them.
    let counts = [
        Count::sampled(7, 7000, 1.0),
        Count::sampled(1, 500, 1.0),
        Count::sampled(1, 500, 1.0),
    ];
    let all = set.column("all").expect("all");
    assert_eq!(
        bound.evaluator(&counts, Mode::Exact).row(&counts)[all].value(),
        Some(3000.0)
    );
    assert_eq!(
        bound.evaluator(&counts, Mode::Gooda).row(&counts)[all].value(),
        Some(2.0)
    );
}

#[test]
fn wrong_files_are_refused_with_the_reason() {
    for (body, words) in [
        (
            "[[column]]\nname = \"x\"\nformula = \"nowhere\"\n",
            "not declared",
        ),
        (
            "[[column]]\nname = \"x\"\nformula = \"1 +\"\n",
            "expected a number",
        ),
        ("[[column]]\nname = \"x\"\nsum = true\n", "no column adds"),
        ("[[column]]\nname = \"x\"\n", "exactly one of"),
        (
            "[[column]]\nname = \"x\"\nformula = \"1\"\nparent = \"y\"\n",
            "to be its parent",
        ),
        (
            "[[column]]\nname = \"x\"\nformula = \"1\"\n[[column]]\nname = \"X\"\nformula = \"1\"\n",
            "stands twice",
        ),
        (
            "[[column]]\nname = \"x\"\nformula = \"y\"\n[[column]]\nname = \"y\"\nformula = \"x\"\n",
            "its own value",
        ),
        (
            "[[column]]\nname = \"x\"\nformula = \"1\"\nadds_to = [\"y\"]\n",
            "no column with `sum",
        ),
        (
            "[[event]]\nname = \"e\"\n[[column]]\nname = \"e\"\nformula = \"1\"\n",
            "name of an event",
        ),
        ("reference = \"e\"\n", "not a declared event"),
        ("colour = 1\n", "unknown field"),
        (
            "[[event]]\nname = \"e\"\n[[column]]\nname = \"x\"\nevent = \"e\"\npenalty = -1\n",
            "penalty",
        ),
    ] {
        let error = refused(body);
        assert!(error.contains(words), "{error:?} should say {words:?}");
        assert!(error.starts_with("test: "), "{error}");
    }
    assert!(matches!(
        MetricSet::load(std::path::Path::new("/no/such/file.toml")),
        Err(MetricError::Io { .. })
    ));
}

/// A chain of references costs as much as its length, not as its tree, and ends at a stated size.
#[test]
fn long_chains_of_columns() {
    let mut body = AB.to_owned();
    body.push_str("[[column]]\nname = \"c0\"\nformula = \"a\"\n");
    for i in 1..100 {
        body.push_str(&format!(
            "[[column]]\nname = \"c{i}\"\nformula = \"c{0} + c{0}\"\n",
            i - 1
        ));
    }
    let doubled = set(&body);
    let a = [("a", Count::exact(1.0))];
    let value = cell(&doubled, "c60", &a, &Environment::new());
    assert_eq!(value.value(), Some(2f64.powi(60)));

    // The columns are in the worst order: each stands before the column that it needs.
    let chain = |length: usize| {
        let mut body = AB.to_owned();
        for i in 0..length {
            body.push_str(&format!(
                "[[column]]\nname = \"d{i}\"\nformula = \"d{} + 1\"\n",
                i + 1
            ));
        }
        body.push_str(&format!(
            "[[column]]\nname = \"d{length}\"\nformula = \"a\"\n"
        ));
        set(&body)
    };
    let value = cell(&chain(900), "d0", &a, &Environment::new());
    assert_eq!(value.value(), Some(901.0));

    let long = chain(2000);
    let bound = long.bind(&[RecordedEvent::named("a")], &Environment::new());
    let told = BindNote::TooLarge {
        column: "d0".to_owned(),
    };
    assert!(bound.notes().contains(&told));
    let counts = [Count::exact(1.0)];
    let mut evaluator = bound.evaluator(&counts, Mode::Exact);
    assert!(matches!(evaluator.row(&counts)[0], Cell::Missing(_)));
    assert_eq!(evaluator.row(&counts)[1999].value(), Some(2.0));
}

#[test]
fn gradients_serve_errors_with_covariances() {
    let set = set(&format!(
        "{AB}[[column]]\nname = \"r\"\nformula = \"a / b + c - c\"\n"
    ));
    let bound = set.bind(
        &["a", "b", "c"].map(RecordedEvent::named),
        &Environment::new(),
    );
    let counts = [Count::exact(6.0), Count::exact(2.0), Count::exact(9.0)];
    let mut evaluator = bound.evaluator(&counts, Mode::Exact);
    let (value, mut slopes) = evaluator.gradient(0, &counts).expect("has a value");
    slopes.sort_by_key(|(event, _)| *event);
    assert_eq!(value, 3.0);
    assert_eq!(slopes, [(0, 0.5), (1, -1.5), (2, 0.0)]);
    assert_eq!(evaluator.gradient(0, &[Count::exact(1.0)]), None);
    assert_eq!(evaluator.gradient(9, &counts), None);
}
