//! A part of `cargo xtask bench windows` that is small enough for every day: the same seeds, fewer runs.

use dioptra_simulator::study::{Outcome, scenarios};

#[track_caller]
fn study(name: &str, runs: u32) -> Outcome {
    let all = scenarios();
    let scenario = all.iter().find(|s| s.asked.iter().any(|a| a.name == name));
    let scenario = scenario.unwrap_or_else(|| panic!("no scenario asks {name:?}"));
    let outcomes = scenario.study(name, runs, 1);
    let outcome = outcomes.into_iter().find(|o| o.name == name);
    outcome.unwrap_or_else(|| panic!("no outcome of {name:?}"))
}

#[track_caller]
fn passes(name: &str, runs: u32) {
    let outcome = study(name, runs);
    assert!(outcome.met, "{outcome:?}");
    assert!(outcome.runs > runs / 2, "{outcome:?}");
}

#[test]
fn intervals_hold_the_truth() {
    passes("ipc, 10 bursts", 1000);
    passes("ipc, 20 bursts", 1000);
    passes("bent, 50 bursts", 500);
    passes("mpki, 50 bursts, 30 events expected, varied by 0.5", 500);
}

#[test]
fn intervals_hold_the_truth_of_rare_events() {
    passes("mpkc, rare, 20 bursts, 1 events expected", 500);
    passes("mpki, rare, 20 bursts, 9 events expected", 500);
}

#[test]
fn spoilt_windows_spoil_nothing() {
    passes("ipc, windows spoilt", 400);
}

#[test]
fn groups_in_turn_have_honest_intervals() {
    passes("mpki, groups in turn", 400);
}

#[test]
fn short_visits_are_corrected() {
    let raw = study(
        "ipc, runs of 3 windows, companion's of 0.3, skid 0, raw",
        60,
    );
    assert!(raw.bias > Some(0.04), "{raw:?}");
    passes(
        "ipc, runs of 3 windows, companion's of 0.3, skid 0, best",
        60,
    );
}

#[test]
fn short_runs_are_not_trusted() {
    for companion in ["2.5", "0.3", "60"] {
        let name = format!("doubted, runs of 2.5 windows, companion's of {companion}, skid 0");
        passes(&name, 20);
    }
    passes("doubted, runs of 30 windows, companion's of 30, skid 0", 20);
}

#[test]
fn shares_and_rates_close() {
    passes("closure", 200);
}

#[test]
fn bursts_that_begin_anywhere_meet_what_comes_seldom() {
    let each = "mpkc, an event each 10000 cycles";
    let anywhere = study(&format!("{each}, bursts begin anywhere"), 60);
    let after = study(
        &format!("{each}, half of the bursts begin just after one"),
        60,
    );
    assert!(
        anywhere.bias.is_some_and(|bias| bias.abs() < 0.03),
        "{anywhere:?}"
    );
    assert!(after.bias < Some(-0.4) && after.yes < 0.1, "{after:?}");
}

#[test]
fn interrupts_are_taken_off_clocks() {
    let text = "windows of a clock, interrupts take a fifth, 1000 bursts";
    let raw = study(&format!("mpkc, {text}, raw"), 60);
    let best = study(&format!("mpkc, {text}, best"), 60);
    assert!(raw.bias < Some(-0.18), "{raw:?}");
    assert!(best.bias.is_some_and(|bias| bias.abs() < 0.03), "{best:?}");
    assert!(best.yes > 0.85, "{best:?}");
}

#[test]
fn borders_are_taken_off_where_rows_agree() {
    let text = "rows disagree, borders add an event to a third of the windows";
    passes(text, 8);
    passes(&format!("{text}, but where there is none"), 8);
}

#[test]
fn a_seed_is_a_recording() {
    let (one, two) = (study("ipc, 10 bursts", 3), study("ipc, 10 bursts", 3));
    assert_eq!(one, two);
    let other = scenarios()[0].study("ipc, 10 bursts", 3, 1000);
    assert_ne!(other[0].bias, one.bias);
}

/// Windows that end in the kernel on a function's behalf are the function's: its estimates are right and trusted, which they
/// are not where the kernel stands apart.
#[test]
fn the_kernel_counts_at_the_function_that_entered_it() {
    for column in ["ipc", "mpkc"] {
        let outcome = study(&format!("{column}, kernel counted at the function"), 100);
        assert!(
            outcome.bias.is_some_and(|bias| bias.abs() < 0.02),
            "{outcome:?}"
        );
        assert!(outcome.yes > 0.88, "{outcome:?}");
    }
    passes("doubted, kernel counted at the function", 40);
    passes("doubted, kernel apart", 40);
}
