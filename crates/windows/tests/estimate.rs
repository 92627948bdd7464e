//! The analysis of windows on streams whose answers can be worked out by hand.

use dioptra_metrics::{Bound, Environment, MetricSet, RecordedEvent};
use dioptra_windows::estimate::{
    Analysis, ArtefactNote, CountedGroup, Discard, Estimate, EstimatorOptions, Figure, Method,
    Rules, Shares, Totals, Trust, WindowBurst, WindowEnd, WindowFlags, Windows,
};

const SET: &str = r#"
schema = 1
name = "windows"
title = "windows"
event = [{ name = "cycles" }, { name = "instructions" }, { name = "misses" }]
[[column]]
name = "ipc"
formula = "instructions / cycles"
[[column]]
name = "mpki"
formula = "1000 * misses / instructions"
[[column]]
name = "mpkc"
formula = "1000 * misses / cycles"
[[column]]
name = "bounded"
formula = "min(instructions / cycles, 1.5)"
[[column]]
name = "product"
formula = "instructions * misses / cycles / cycles"
"#;

fn set() -> MetricSet {
    MetricSet::from_toml("windows", SET).unwrap()
}

fn bound() -> Bound {
    let events = ["cycles", "instructions", "misses"].map(RecordedEvent::named);
    set().bind(&events, &Environment::new())
}

fn at(function: u32) -> WindowEnd {
    WindowEnd {
        function: Some(function),
        path: None,
    }
}

/// One burst for each list of windows, all in function 1, all counts kept.
fn stream(bursts: &[&[[u64; 3]]]) -> Windows {
    let mut windows = Windows::new(vec![CountedGroup::new(vec![0, 1, 2])]);
    for burst in bursts {
        windows.push_burst(WindowBurst {
            period: burst[0][0],
            ..WindowBurst::default()
        });
        for (index, counts) in burst.iter().enumerate() {
            let none = WindowFlags::empty();
            windows.push_window(index as u16 + 1, none, at(1), at(1), counts);
        }
    }
    windows
}

fn by_function(windows: &Windows) -> Analysis<'_> {
    windows.analyze(&Rules::default(), |window| window.end.function)
}

fn figure(analysis: &Analysis<'_>, column: &str, options: EstimatorOptions) -> Figure {
    let bound = bound();
    let mut estimator = analysis.estimator(&bound, &[], options);
    let column = set().column(column).unwrap();
    estimator.estimate(analysis.row(1).unwrap(), column)
}

fn estimate(analysis: &Analysis<'_>, column: &str) -> Estimate {
    let figure = figure(analysis, column, EstimatorOptions::default());
    figure
        .estimate()
        .unwrap_or_else(|| panic!("{figure:?}"))
        .clone()
}

#[track_caller]
fn near(found: f64, expected: f64) {
    let close = (found - expected).abs() <= 1e-6 * expected.abs().max(1.0);
    assert!(close, "{found} {expected}");
}

#[test]
fn bursts_are_the_units_and_sums_make_the_ratio() {
    let windows = stream(&[
        &[[100, 100, 30], [100, 140, 30]],
        &[[100, 200, 30]],
        &[[300, 240, 30], [100, 80, 30]],
    ]);
    let analysis = by_function(&windows);
    let ipc = estimate(&analysis, "ipc");
    // Y = 200, 100, 400; X = 240, 200, 320: R = 760 / 700.
    let r = 760.0 / 700.0;
    near(ipc.raw.value, r);
    // J / (J − 1) · Σ (X − R·Y)² / (ΣY)², t with 2 degrees of freedom.
    let squares: f64 = [(240.0, 200.0), (200.0, 100.0), (320.0, 400.0)]
        .iter()
        .map(|(x, y): &(f64, f64)| (x - r * y).powi(2))
        .sum();
    let error = (1.5 * squares).sqrt() / 700.0;
    near(ipc.raw.error, error);
    near(ipc.raw.high, r + 4.302_652_729_911_275 * error);
    near(ipc.raw.low, r - 4.302_652_729_911_275 * error);
    assert_eq!((ipc.bursts, ipc.windows, ipc.freedom), (3, 5, 2.0));
    assert!(ipc.few_bursts && !ipc.few_events && !ipc.apart);
    assert_eq!(ipc.method, Method::Delta);
    assert_eq!(ipc.corrected, None);
    // Leaving out one after the other says about the same of a smooth formula.
    let options = EstimatorOptions {
        method: Some(Method::Jackknife),
        ..EstimatorOptions::default()
    };
    let by_jackknife = figure(&analysis, "ipc", options);
    let found = by_jackknife.estimate().unwrap();
    let out: Vec<f64> = [(240.0, 200.0), (200.0, 100.0), (320.0, 400.0)]
        .iter()
        .map(|(x, y)| (760.0 - x) / (700.0 - y))
        .collect();
    let mean = out.iter().sum::<f64>() / 3.0;
    let spread: f64 = out.iter().map(|o| (o - mean).powi(2)).sum();
    near(found.raw.error, (spread * 2.0 / 3.0).sqrt());
}

#[test]
fn bent_formulas_are_left_out_burst_by_burst() {
    let list: Vec<Vec<[u64; 3]>> = (0..30)
        .map(|i| vec![[100, 120 + 4 * (i % 10), 40]])
        .collect();
    let list: Vec<&[[u64; 3]]> = list.iter().map(Vec::as_slice).collect();
    let windows = stream(&list);
    let analysis = by_function(&windows);
    let bounded = estimate(&analysis, "bounded");
    assert_eq!(bounded.method, Method::Jackknife);
    // Below its bound it is the plain ratio, with equal bursts the same error.
    near(bounded.raw.error, estimate(&analysis, "ipc").raw.error);
    let smooth = estimate(&analysis, "product");
    assert_eq!(smooth.method, Method::Delta);
}

#[test]
fn few_events_have_poissons_limits() {
    let mut list: Vec<&[[u64; 3]]> = vec![&[[1000, 1500, 0]]; 40];
    list[3] = &[[1000, 1500, 1]];
    let windows = stream(&list);
    let mpkc = estimate(&by_function(&windows), "mpkc");
    near(mpkc.raw.value, 1.0 / 40.0);
    assert!(mpkc.few_events && mpkc.events == 1);
    near(mpkc.raw.high, 5.571_643_39 / 40.0);
    // The spread between bursts reaches down to −0.0256, but less than no event there cannot be.
    near(mpkc.raw.low, 0.0);
    let none: Vec<&[[u64; 3]]> = vec![&[[1000, 1500, 0]]; 40];
    let windows = stream(&none);
    let mpki = estimate(&by_function(&windows), "mpki");
    near(mpki.raw.value, 0.0);
    near(mpki.raw.low, 0.0);
    near(mpki.raw.high, 3.688_879_45 / 60.0);
    assert_eq!(mpki.seconds_for(0.05, 10.0), None);
}

#[test]
fn one_burst_has_no_interval() {
    let windows = stream(&[&[[100, 100, 500], [100, 140, 500]]]);
    let ipc = estimate(&by_function(&windows), "ipc");
    assert!(ipc.few_bursts && ipc.raw.high.is_infinite() && ipc.raw.low.is_infinite());
    assert_eq!(ipc.seconds_for(0.05, 10.0), None);
}

#[test]
fn each_cause_is_counted_and_only_crossings_matter_for_trust() {
    let mut windows = Windows::new(vec![
        CountedGroup::new(vec![0, 1]),
        CountedGroup {
            events: vec![0, 2],
            drop_last: true,
        },
    ]);
    let flags = [
        WindowFlags::empty(),
        WindowFlags::empty(),
        WindowFlags::THROTTLED,
        WindowFlags::LOST | WindowFlags::SWITCHED,
        WindowFlags::MIGRATED,
        WindowFlags::PARTLY_COUNTED,
        WindowFlags::INFLATED,
        WindowFlags::LATE,
        WindowFlags::BROKEN,
        WindowFlags::SWITCHED,
    ];
    windows.push_burst(WindowBurst::default());
    for (index, flags) in flags.into_iter().enumerate() {
        windows.push_window(index as u16, flags, at(1), at(1), &[300, 300]);
    }
    windows.push_burst(WindowBurst {
        group: 1,
        ..WindowBurst::default()
    });
    let none = WindowFlags::empty();
    let unknown = WindowEnd::default();
    let path = |path| WindowEnd {
        path: Some(path),
        ..at(1)
    };
    windows.push_window(1, none, at(2), at(1), &[300, 1]);
    windows.push_window(2, none, at(1), unknown, &[300, 1]);
    windows.push_window(3, none, unknown, at(1), &[300, 1]);
    windows.push_window(4, none, path(7), path(8), &[300, 1]);
    windows.push_window(5, none, path(8), path(8), &[300, 1]);
    windows.push_window(6, none, path(8), at(1), &[300, 1]);
    windows.push_window(7, none, at(1), at(1), &[300, 1]);
    let analysis = by_function(&windows);
    let row = analysis.row(1).unwrap();
    let counts: Vec<(Discard, u64)> = row.discards().collect();
    assert_eq!(
        counts,
        [
            (Discard::Broken, 1),
            (Discard::Throttled, 1),
            (Discard::Lost, 1),
            (Discard::Switched, 1),
            (Discard::Migrated, 1),
            (Discard::Late, 1),
            (Discard::PartlyCounted, 1),
            (Discard::WarmUp, 1),
            (Discard::Last, 2),
            (Discard::NoFunction, 1),
            (Discard::OtherFunction, 1),
            (Discard::OtherPath, 1),
        ]
    );
    let acceptance = row.acceptance();
    assert_eq!((acceptance.kept(), acceptance.total()), (3, 16));
    assert_eq!(acceptance.discard_ratio(), Some(2.0 / 5.0));
    assert!(analysis.trust(row) >= Some(Trust::Low));
    // The window that ends nowhere is in the total alone.
    assert_eq!(analysis.total().acceptance().total(), 17);
    assert_eq!(analysis.keyless().discarded(Discard::NoFunction), 1);
    assert_eq!(
        (
            analysis.sum(row, 0),
            analysis.sum(row, 1),
            analysis.sum(row, 2)
        ),
        (900, 300, 2)
    );
    assert!(analysis.row(2).is_none());
}

#[test]
fn groups_in_turn_are_brought_together_by_the_leader() {
    let mut windows = Windows::new(vec![
        CountedGroup::new(vec![0, 1]),
        CountedGroup::new(vec![0, 2]),
    ]);
    for i in 0..40u64 {
        let group = (i % 2) as u16;
        windows.push_burst(WindowBurst {
            group,
            ..WindowBurst::default()
        });
        // 1.5 instructions and 0.1 misses in a cycle; the second group's bursts are twice as long.
        let counts = match group {
            0 => [1000, 1500 + 100 * (i % 4) - 100],
            _ => [2000, 200 + 20 * (i % 4) - 40],
        };
        windows.push_window(1, WindowFlags::empty(), at(1), at(1), &counts);
    }
    let analysis = by_function(&windows);
    let mpki = estimate(&analysis, "mpki");
    assert!(mpki.apart && mpki.bursts == 40);
    near(mpki.raw.value, 1000.0 * 0.1 / 1.5);
    // Each group's relative variance on its own: no covariance between them.
    let relative = |spread: f64, total: f64| spread * 20.0 / 19.0 / (total * total);
    let instructions = relative(20.0 * 100.0_f64.powi(2), 30_000.0);
    let misses = relative(20.0 * 20.0_f64.powi(2), 4_000.0);
    near(
        mpki.raw.error,
        mpki.raw.value * (instructions + misses).sqrt(),
    );
    // Inputs that one group has together come from it alone.
    let ipc = estimate(&analysis, "ipc");
    assert!(!ipc.apart && ipc.bursts == 20);
    assert!(matches!(
        figure(&analysis, "bounded", EstimatorOptions::default()),
        Figure::Value(_)
    ));
}

#[test]
fn groups_without_a_common_event_stay_apart() {
    let mut windows = Windows::new(vec![CountedGroup::new(vec![1]), CountedGroup::new(vec![2])]);
    for group in [0, 1, 0, 1] {
        windows.push_burst(WindowBurst {
            group,
            ..WindowBurst::default()
        });
        windows.push_window(1, WindowFlags::empty(), at(1), at(1), &[100]);
    }
    let analysis = by_function(&windows);
    let options = EstimatorOptions::default();
    assert_eq!(figure(&analysis, "mpki", options), Figure::NothingInCommon);
    assert_eq!(figure(&analysis, "ipc", options), Figure::NoWindows);
    let unbound = set().bind(&[RecordedEvent::named("cycles")], &Environment::new());
    let mut estimator = analysis.estimator(&unbound, &[], options);
    let ipc = set().column("ipc").unwrap();
    let found = estimator.estimate(analysis.row(1).unwrap(), ipc);
    assert!(matches!(found, Figure::Missing(names) if names[..] == ["instructions".to_owned()]));
}

/// Windows of lengths 200 to 400, 1.5 instructions in a cycle less `border`, with a little noise.
fn bordered(bursts: u64, border: u64) -> Windows {
    let mut windows = Windows::new(vec![CountedGroup::new(vec![0, 1, 2])]);
    for i in 0..bursts {
        let length = 200 + 2 * (i * 37 % 101);
        windows.push_burst(WindowBurst {
            period: length,
            ..WindowBurst::default()
        });
        for index in 1..4 {
            let noise = (i * 13 + index * 7) % 11;
            let counts = [length, length * 3 / 2 - border + noise - 5, 0];
            windows.push_window(index as u16, WindowFlags::empty(), at(1), at(1), &counts);
        }
    }
    windows
}

#[test]
fn what_borders_cost_is_found_and_taken_off() {
    let windows = bordered(300, 40);
    let analysis = by_function(&windows);
    let artefacts = analysis.artefacts();
    let of_instructions = artefacts.iter().find(|a| a.event == 1).unwrap();
    assert_eq!(of_instructions.note, ArtefactNote::Known);
    let away = (of_instructions.per_window + 40.0).abs();
    assert!(away < 4.0 * of_instructions.error, "{of_instructions:?}");
    assert!(of_instructions.error < 1.0 && of_instructions.is_taken_off());
    assert!((of_instructions.variation - 0.19).abs() < 0.03);
    let bound = bound();
    let mut estimator = analysis.estimator(&bound, &artefacts, EstimatorOptions::default());
    let ipc = set().column("ipc").unwrap();
    let found = estimator.estimate(analysis.row(1).unwrap(), ipc);
    let ipc = found.estimate().unwrap();
    assert!(ipc.raw.high < 1.4, "{ipc:?}");
    assert!(ipc.best().holds(1.5) && ipc.corrected.is_some(), "{ipc:?}");
    // Without it nothing is taken off.
    let windows = bordered(300, 0);
    let artefacts = by_function(&windows).artefacts();
    assert!(!artefacts.iter().any(|a| a.is_taken_off()), "{artefacts:?}");
}

#[test]
fn borders_take_no_more_than_there_is_and_nothing_of_what_software_counts() {
    let mut windows = bordered(300, 40);
    let analysis = by_function(&windows);
    // A border of three misses a window, of which there are none.
    let mut artefacts = analysis.artefacts();
    let of_misses = artefacts.iter_mut().find(|a| a.event == 2).unwrap();
    (of_misses.per_window, of_misses.error) = (3.0, 0.1);
    let bound = bound();
    let mut estimator = analysis.estimator(&bound, &artefacts, EstimatorOptions::default());
    let found = estimator.estimate(analysis.row(1).unwrap(), set().column("mpkc").unwrap());
    let mpkc = found.estimate().unwrap();
    let corrected = mpkc.corrected.expect("a correction");
    assert_eq!((mpkc.raw.value, corrected.value), (0.0, 0.0), "{mpkc:?}");
    assert_eq!(corrected.low, 0.0);
    assert!(corrected.high > 0.0, "it is not known that well: {mpkc:?}");
    windows.set_borderless(1);
    let artefacts = by_function(&windows).artefacts();
    let events: Vec<u32> = artefacts.iter().map(|a| a.event).collect();
    assert_eq!(events, [2]);
}

#[test]
fn equal_lengths_say_nothing_of_borders() {
    let list: Vec<&[[u64; 3]]> = vec![&[[300, 450, 1]]; 100];
    let windows = stream(&list);
    let analysis = by_function(&windows);
    let artefacts = analysis.artefacts();
    assert_eq!(artefacts.len(), 2);
    assert!(
        artefacts
            .iter()
            .all(|a| a.note == ArtefactNote::LengthsDoNotVary)
    );
    let windows = bordered(20, 40);
    let artefacts = by_function(&windows).artefacts();
    assert!(artefacts.iter().all(|a| a.note == ArtefactNote::FewBursts));
    let bound = bound();
    let mut estimator = analysis.estimator(&bound, &[], EstimatorOptions::default());
    assert_eq!(estimator.drift(analysis.row(1).unwrap(), 0), None);
}

#[test]
fn an_estimate_that_depends_on_length_is_told() {
    let windows = bordered(300, 40);
    let analysis = by_function(&windows);
    let bound = bound();
    let ipc = set().column("ipc").unwrap();
    let row = analysis.row(1).unwrap();
    let mut estimator = analysis.estimator(&bound, &[], EstimatorOptions::default());
    let drift = estimator.drift(row, ipc).unwrap();
    assert!(
        drift.difference() > 0.04 && drift.probability < 1e-6,
        "{drift:?}"
    );
    let mut estimator =
        analysis.estimator(&bound, &analysis.artefacts(), EstimatorOptions::default());
    let drift = estimator.drift(row, ipc).unwrap();
    assert!(
        drift.difference().abs() < 0.01 && drift.probability > 0.01,
        "{drift:?}"
    );
}

#[test]
fn shares_and_rates_make_the_total() {
    let mut windows = Windows::new(vec![CountedGroup::new(vec![0, 1, 2])]);
    for i in 0..100u64 {
        windows.push_burst(WindowBurst::default());
        let (function, count) = if i % 4 == 0 { (1, 300) } else { (2, 600) };
        let counts = [300, count + i % 3, 0];
        let place = at(function);
        windows.push_window(1, WindowFlags::empty(), place, place, &counts);
    }
    let analysis = by_function(&windows);
    // A fifth of the time is in a function without windows.
    let shares = Shares::new([(1, 400, 400), (2, 400, 400), (9, 200, 200)]);
    let share = shares.share(1).unwrap();
    near(share.value, 0.4);
    near(share.error, (0.4 * 0.6 / 1000.0_f64).sqrt());
    let none = shares.share(77).unwrap();
    assert_eq!((none.value, none.samples), (0.0, 0));
    near(none.high, 3.688_879_45 / 1000.0);
    // Half at 1 + 1/300, half at 2 + 1/300 a cycle.
    let closure = analysis
        .closure(
            &shares,
            &[],
            1,
            0,
            &Totals {
                leader: 1e9,
                counted: 1.5e9,
                interrupts: 0,
            },
        )
        .unwrap();
    near(closure.covered, 0.8);
    assert!((closure.error() - 1.0 / 450.0).abs() < 1e-3, "{closure:?}");
    assert!(closure.holds());
    // Drawing 1000 samples alone: ± 1.96 · 0.5 / √1000 of 1.5.
    let (low, high) = closure.error_limits();
    assert!(
        (high - low) / 2.0 > 0.020 && (high - low) / 2.0 < 0.022,
        "{closure:?}"
    );
    let wrong = analysis
        .closure(
            &shares,
            &[],
            1,
            0,
            &Totals {
                leader: 1e9,
                counted: 1.7e9,
                interrupts: 0,
            },
        )
        .unwrap();
    assert!(!wrong.holds());
    // None of the third was seen in 400 windows of 300 cycles: up to 3.69 could have been missed.
    let unseen = analysis
        .closure(
            &shares,
            &[],
            2,
            0,
            &Totals {
                leader: 1e9,
                counted: 5.0,
                interrupts: 0,
            },
        )
        .unwrap();
    assert_eq!(unseen.predicted, 0.0);
    let exposure: u64 = (1..=2)
        .map(|row| analysis.row(row).unwrap().acceptance().kept() * 300)
        .sum();
    near(unseen.high, 3.688_879_45 / exposure as f64 * 1e9);
    assert!(unseen.holds());
    assert_eq!(
        analysis.closure(
            &Shares::default(),
            &[],
            1,
            0,
            &Totals {
                leader: 1e9,
                counted: 1e9,
                interrupts: 0
            }
        ),
        None
    );
}

#[test]
fn runs_are_compared_by_their_limits() {
    let run = |count: u64| {
        let list: Vec<Vec<[u64; 3]>> = (0..50)
            .map(|i| vec![[1000, count + 40 * (i % 5), 30]])
            .collect();
        let list: Vec<&[[u64; 3]]> = list.iter().map(Vec::as_slice).collect();
        estimate(&by_function(&stream(&list)), "ipc")
    };
    let (slow, fast) = (run(1000), run(1100));
    let difference = slow.difference(&fast);
    near(difference.value, 0.1);
    // Both halves are alike: the root of the sum of squares, with twice the degrees of freedom.
    let error = slow.raw.error * 2.0_f64.sqrt();
    near(difference.high - difference.value, 1.984_467_404 * error);
    assert!(difference.probability < 1e-9 && difference.low > 0.0);
    let same = slow.difference(&slow);
    near(same.probability, 1.0);
    assert!(same.low < 0.0 && same.high > 0.0);
    // Longer recordings have narrower intervals by the root of the time.
    let target = slow.raw.half_width() / slow.raw.value / 2.0;
    let more = slow.seconds_for(target, 10.0).unwrap();
    assert!((more - 30.0).abs() < 2.0, "{more}");
    assert_eq!(slow.seconds_for(10.0, 10.0), Some(0.0));
}

#[test]
fn what_is_visited_between_readings_is_taken_off() {
    // Function 1 does one instruction a cycle; in each twentieth pair of windows function 2, at four, is met in the middle.
    let mut windows = Windows::new(vec![CountedGroup::new(vec![0, 1, 2])]);
    for i in 0..400u64 {
        windows.push_burst(WindowBurst::default());
        let middle = if i % 20 == 0 { at(2) } else { at(1) };
        let none = WindowFlags::empty();
        windows.push_window(1, none, at(1), middle, &[300, 309, 0]);
        windows.push_window(2, none, middle, at(1), &[300, 309, 0]);
        if i % 4 == 0 {
            windows.push_window(4, none, at(2), at(2), &[300, 1200, 0]);
        }
    }
    let analysis = by_function(&windows);
    let row = analysis.row(1).unwrap();
    let runs = row.runs().unwrap();
    assert_eq!((runs.returns, runs.visits), (400, 20));
    assert_eq!(analysis.trust(row), Some(Trust::Low));
    let (share, error) = analysis.hidden_share(row);
    assert!(
        share > 0.008 && share < 0.05 && error < share,
        "{share} {error}"
    );
    let ipc = estimate(&analysis, "ipc");
    near(ipc.raw.value, 1.03);
    near(ipc.best().value, (1.03 - 4.0 * share) / (1.0 - share));
    assert!(ipc.best().half_width() > ipc.raw.half_width());
}

mod any_stream {
    use super::*;
    use proptest::prelude::*;

    fn count() -> impl Strategy<Value = u64> {
        prop_oneof![Just(0), 0..10u64, 200..400u64, Just(u64::MAX)]
    }

    fn place() -> impl Strategy<Value = WindowEnd> {
        (
            proptest::option::weighted(0.9, 0..3u32),
            proptest::option::of(0..2u32),
        )
            .prop_map(|(function, path)| WindowEnd { function, path })
    }

    type Window = (u16, u16, WindowEnd, WindowEnd, [u64; 3]);

    fn window() -> impl Strategy<Value = Window> {
        let flags = prop_oneof![9 => Just(0), 1 => 0..512u16];
        (
            0..6u16,
            flags,
            place(),
            place(),
            [count(), count(), count()],
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        /// No stream makes the analysis panic, and no window gets lost on the way.
        #[test]
        fn is_analyzed(
            bursts in prop::collection::vec((0..4u16, count(), prop::collection::vec(window(), 0..5)), 0..12),
        ) {
            let mut windows = Windows::new(vec![
                CountedGroup::new(vec![0, 1, 2]),
                CountedGroup { events: vec![0, 2], drop_last: true },
                CountedGroup::new(vec![1]),
                CountedGroup::new(Vec::new()),
            ]);
            for (group, period, list) in &bursts {
                windows.push_burst(WindowBurst { group: *group, period: *period, ..WindowBurst::default() });
                for (index, flags, start, end, counts) in list {
                    windows.push_window(*index, WindowFlags::from_bits_truncate(*flags), *start, *end, counts);
                }
            }
            let analysis = by_function(&windows);
            let rows: u64 = analysis.rows().iter().map(|row| row.acceptance().total()).sum();
            prop_assert_eq!(rows + analysis.keyless().total(), windows.len() as u64);
            prop_assert_eq!(analysis.total().acceptance().total(), windows.len() as u64);
            let (bound, set) = (bound(), set());
            let artefacts = analysis.artefacts();
            let mut estimator = analysis.estimator(&bound, &artefacts, EstimatorOptions::default());
            let shares = Shares::new(analysis.rows().iter().map(|row| (row.key(), 1, 1)));
            for row in analysis.rows() {
                analysis.trust(row);
                analysis.hidden_share(row);
                for column in 0..set.columns().len() {
                    if let Figure::Value(estimate) = estimator.estimate(row, column) {
                        let raw = estimate.raw;
                        prop_assert!(raw.low <= raw.value && raw.value <= raw.high, "{:?}", estimate);
                        prop_assert!(raw.error >= 0.0);
                        estimate.seconds_for(0.05, 1.0);
                        estimate.difference(&estimate);
                    }
                    estimator.drift(row, column);
                }
            }
            analysis.closure(&shares, &artefacts, 2, 0, &Totals { leader: 1e9, counted: 1e6, interrupts: 0 });
        }
    }
}

/// Bursts that a clock leads: of each window's length interrupts take 60, or a little more or less, and the program counts
/// one in two of what is left. All windows end in function 1; `start` is where they start.
fn clocked(bursts: u64, start: u32) -> Windows {
    let mut windows = Windows::new(vec![CountedGroup::new(vec![0, 1])]);
    windows.set_clock(0);
    windows.set_borderless(1);
    for i in 0..bursts {
        let period = 200 + (i * 61) % 200;
        windows.push_burst(WindowBurst {
            time: i,
            period,
            ..WindowBurst::default()
        });
        for index in 1..4 {
            // Interrupts that take longer make windows longer, in which nothing more happens.
            let more = (i * 37 + index * 11) % 81;
            let counts = [period + more, (period + 20 * (i % 3) - 40) / 2];
            let none = WindowFlags::empty();
            windows.push_window(index as u16, none, at(start), at(1), &counts);
        }
    }
    windows
}

#[test]
fn what_interrupts_take_of_a_clock_is_found_by_periods() {
    for start in [1, 2] {
        // Where every window comes from elsewhere, all of them together tell.
        let windows = clocked(1200, start);
        let analysis = by_function(&windows);
        let artefacts = analysis.artefacts();
        assert_eq!(artefacts.len(), 1, "{artefacts:?}");
        let clock = artefacts[0];
        assert_eq!((clock.event, clock.note), (0, ArtefactNote::Known));
        assert!(clock.of_interrupts && clock.is_taken_off());
        // The lengths' mean is 40 more than the period's, the program's own time 20 less.
        assert!((clock.per_window - 60.0).abs() < 3.0 * clock.error + 0.5);
        assert!(clock.error < 6.0, "{clock:?}");
    }
    let windows = clocked(1200, 1);
    let analysis = by_function(&windows);
    let artefacts = analysis.artefacts();
    let bound = bound();
    let mut estimator = analysis.estimator(&bound, &artefacts, EstimatorOptions::default());
    let row = analysis.row(1).unwrap();
    let figure = estimator.estimate(row, set().column("ipc").unwrap());
    let ipc = figure.estimate().unwrap();
    assert!(ipc.raw.high < 0.45, "{ipc:?}");
    assert!(ipc.corrected.unwrap().holds(0.5), "{ipc:?}");
    assert!(!ipc.holds_interrupts);
    // The program counted in 1e6 of its own, and interrupts took 60 in each of 10 000.
    let shares = Shares::new([(1, 100, 100)]);
    let totals = Totals {
        leader: 1.6e6,
        counted: 5e5,
        interrupts: 10_000,
    };
    let closure = analysis
        .closure(&shares, &artefacts, 1, 0, &totals)
        .unwrap();
    assert!(
        closure.holds() && closure.error().abs() < 0.05,
        "{closure:?}"
    );
    assert!(
        !analysis
            .closure(&shares, &[], 1, 0, &totals)
            .unwrap()
            .holds()
    );
}

/// The difference between rows comes from rows alone. Events of one row that are not in proportion to its time, such as the
/// switches that arming causes, do not look like another row.
#[test]
fn events_that_disagree_make_no_spread_between_rows() {
    let mut windows = Windows::new(vec![CountedGroup::new(vec![0, 1, 2])]);
    windows.set_clock(0);
    windows.set_borderless(1);
    windows.set_borderless(2);
    for i in 0..1200 {
        let period = 200 + (i * 61) % 200;
        windows.push_burst(WindowBurst {
            time: i,
            period,
            ..WindowBurst::default()
        });
        // As many switches in short windows as in long ones, one in each of most bursts.
        let counts = [
            period + (i * 37) % 81,
            (period + 20 * (i % 3) - 40) / 2,
            u64::from(i % 10 > 0),
        ];
        windows.push_window(1, WindowFlags::empty(), at(1), at(1), &counts);
    }
    let analysis = by_function(&windows);
    let clock = analysis.artefacts()[0];
    assert_eq!((clock.note, clock.spread), (ArtefactNote::Known, 0.0));
}

#[test]
fn few_bursts_or_one_period_tell_nothing_of_interrupts() {
    let note = |windows: &Windows| {
        let artefacts = by_function(windows).artefacts();
        assert!(!artefacts[0].is_taken_off());
        artefacts[0].note
    };
    assert_eq!(note(&clocked(200, 1)), ArtefactNote::FewBursts);
    let windows = clocked(200, 1);
    let analysis = by_function(&windows);
    let bound = bound();
    let artefacts = analysis.artefacts();
    let mut estimator = analysis.estimator(&bound, &artefacts, EstimatorOptions::default());
    let row = analysis.row(1).unwrap();
    let figure = estimator.estimate(row, set().column("ipc").unwrap());
    let ipc = figure.estimate().unwrap();
    assert!(ipc.holds_interrupts && !ipc.raw.holds(0.5), "{ipc:?}");
    let mut same = Windows::new(vec![CountedGroup::new(vec![0, 1])]);
    same.set_clock(0);
    for i in 0..400 {
        same.push_burst(WindowBurst {
            period: 300,
            ..WindowBurst::default()
        });
        let counts = [300 + i % 5, 100 + i % 3];
        same.push_window(1, WindowFlags::empty(), at(1), at(1), &counts);
    }
    assert_eq!(note(&same), ArtefactNote::LengthsDoNotVary);
}

/// Borders are taken off where rows have them in common.
#[test]
fn rows_that_disagree_on_borders_keep_their_counts() {
    let of_borders = |borders: [u64; 2]| {
        let mut windows = Windows::new(vec![CountedGroup::new(vec![0, 1])]);
        for i in 0..1000_u64 {
            let period = 200 + (i * 61) % 200;
            let function = (i % 2) as u32 + 1;
            windows.push_burst(WindowBurst {
                period,
                ..WindowBurst::default()
            });
            for index in 1..4 {
                let count = 2 * period + borders[(i % 2) as usize] + (i * 37 + index * 11) % 31;
                let none = WindowFlags::empty();
                let place = at(function);
                windows.push_window(index as u16, none, place, place, &[period, count]);
            }
        }
        let artefacts = by_function(&windows).artefacts();
        (artefacts[0].note, artefacts[0].is_taken_off())
    };
    assert_eq!(of_borders([40, 40]), (ArtefactNote::Known, true));
    assert_eq!(of_borders([40, 100]), (ArtefactNote::RowsDisagree, false));
}
