//! Sampling: the worked examples of its proposal, and each decision that it leaves open.

mod calls;

use calls::{compile, filter, left, names, rules, text, tree};
use dioptra_filters::PlanOptions;

/// Five calls of a, each calling b, which calls c, which calls getpid.
const FIVE: &str =
    "main(a(b(c(getpid))) a(b(c(getpid))) a(b(c(getpid))) a(b(c(getpid))) a(b(c(getpid))))";

#[test]
fn a_sampled_filter_shows_every_second_execution_with_its_subtree() {
    let whole = "a(b(c(getpid)))";
    assert_eq!(left("-F a@sample=2", FIVE), format!("{whole} {whole}"));
}

#[test]
fn a_filter_of_the_caller_keeps_the_level_above() {
    let whole = "a(b(c(getpid)))";
    assert_eq!(
        left("-F main -F a@sample=2", FIVE),
        format!("main({whole} {whole})")
    );
}

#[test]
fn a_sampled_trigger_concerns_the_function_alone() {
    let (without, with) = ("b(c(getpid))", "a(b(c(getpid)))");
    assert_eq!(
        left("-T a@sample=2", FIVE),
        format!("main({without} {with} {without} {with} {without})")
    );
}

#[test]
fn a_sampled_trigger_with_filter_is_a_sampled_filter() {
    for options in [
        "-T a@filter,sample=2",
        "-T a@sample=2 -F a",
        "-F a -T a@sample=2",
    ] {
        assert_eq!(left(options, FIVE), left("-F a@sample=2", FIVE));
    }
}

#[test]
fn filtered_out_calls_are_not_counted() {
    assert_eq!(
        left("-F a@sample=2 -F c@sample=2", FIVE),
        "a(b) a(b(c(getpid)))"
    );
}

#[test]
fn one_of_one_is_all_and_one_of_more_than_there_are_is_none() {
    let whole = "a(b(c(getpid)))";
    assert_eq!(left("-F a@sample=1", FIVE), [whole; 5].join(" "));
    assert_eq!(left("-T a@sample=1", FIVE), left("", FIVE));
    assert_eq!(left("-F a@sample=6", FIVE), "");
}

#[test]
fn recursion_within_a_shown_execution_belongs_to_it() {
    let calls = "a(a(a)) a(b(a)) a a(a)";
    assert_eq!(left("-F a@sample=2", calls), "a(b(a)) a(a)");
    // A trigger counts every execution by itself: of 8, the 2nd, 4th, 6th and 8th.
    assert_eq!(left("-T a@sample=2", calls), "a a(b) a a");
}

#[test]
fn each_function_of_a_pattern_has_its_own_counter() {
    assert_eq!(left("-F ^[ab]$@sample=2", "main(a b a b b a)"), "a b");
}

#[test]
fn a_trigger_does_not_count_calls_beyond_the_depth() {
    // The first a lies too deep and is not counted.
    let calls = "main(x(a)) main(a(y)) main(a(y))";
    assert_eq!(left("-D 2 -T a@sample=2", calls), "main(x) main(y) main(a)");
    // A filter begins a depth of its own, and counts all of them.
    assert_eq!(
        left("-D 2 -F main -F a@sample=2", calls),
        "main(x) main(a(y)) main"
    );
}

#[test]
fn what_a_sampled_trigger_hides_takes_no_level() {
    assert_eq!(
        left("-D 2 -T a@sample=2", "main(a(b(c)) a(b(c)))"),
        "main(b a)"
    );
}

#[test]
fn other_actions_of_a_trigger_belong_to_its_chosen_executions() {
    assert_eq!(
        left("-T a@sample=2,depth=1", "main(a(b(c)) a(b(c)))"),
        "main(b(c) a)"
    );
    assert_eq!(
        left("-F main -T a@sample=2,trace_off", "main(a(b) b a(b) b)"),
        "main(b b)"
    );
    let calls = tree(FIVE);
    let names = names(&calls);
    let plan = compile(
        rules("-T a@sample=2,backtrace"),
        &names,
        PlanOptions::default(),
    )
    .plan();
    assert_eq!(filter(&calls, &names, &plan).backtraces, 2);
}

#[test]
fn durations_and_callers_are_judged_after_sampling() {
    // Both a are counted; the chosen one is too short.
    assert_eq!(left("-t 20ns -F a@sample=2", "a:50 a:5 a:50 a:60"), "a");
    assert_eq!(
        left("-C c -F a@sample=2", "a(c) a(b) a(c) a(b(c) b)"),
        "a(b(c))"
    );
    // `trace` shows whatever the duration is, but only a chosen execution.
    assert_eq!(left("-t 20ns -T a@trace,sample=2", "a a a a a"), "a a");
}

#[test]
fn hidden_calls_are_not_counted_by_triggers_but_by_filters() {
    assert_eq!(left("-H a -T a@sample=2", "main(a(b) a(b))"), "main(b b)");
    assert_eq!(
        left("-F main -F a@sample=2 -H a", "main(a(b) a(c) a(d) a(e))"),
        "main(c e)"
    );
    assert_eq!(left("-N x -T a@sample=2", "x(a) a x(a) a(b)"), "a(b)");
}

#[test]
fn executions_are_counted_while_tracing_is_on() {
    let calls = "off a a on a(1) a(2)";
    let switched = "-T off@trace_off -T on@trace_on";
    assert_eq!(
        left(&format!("{switched} -T a@sample=2"), calls),
        "on 1 a(2)"
    );
    // An execution that began while tracing was off is not sampled: calls that are switched on within it are shown.
    assert_eq!(
        left(
            "-T off@trace_off -F on@trace_on -F off -F a@sample=2",
            "off a(on(b)) a(b) a(c)"
        ),
        "on(b) a(c)"
    );
    // The trigger's own trace_on would show the call, so it counts.
    assert_eq!(
        left(
            "-T off@trace_off -T a@trace_on,sample=2",
            "off a(1) 1 a(2) 2 a(3)"
        ),
        "a(2) 2 3"
    );
}

#[test]
fn random_sampling_chooses_about_the_share_and_the_same_ones_for_a_seed() {
    let calls = tree(&"main(a(b)) ".repeat(10_000));
    let names = names(&calls);
    let run = |seed| {
        let options = PlanOptions {
            seed,
            ..PlanOptions::default()
        };
        let plan = compile(rules("-F a@sample=1/10 -T b@sample=50%"), &names, options).plan();
        let left = filter(&calls, &names, &plan);
        (text(&left.calls), left.counted)
    };
    let (shown, counted) = run(7);
    assert_eq!(counted[0].0, 10_000);
    // Within four standard errors.
    assert!(counted[0].1.abs_diff(1_000) <= 120, "{counted:?}");
    assert_eq!(counted[1].0, counted[0].1);
    assert!(counted[1].1.abs_diff(counted[1].0 / 2) <= 64, "{counted:?}");
    assert_eq!(run(7).0, shown);
    assert_ne!(run(8).0, shown);
}

#[test]
fn a_rate_counts_time() {
    // A call each 1,000 ns, 100,000 a second: every tenth.
    let calls = "a:998 ".repeat(100);
    assert_eq!(left("-F a@sample=100000/s", &calls), ["a"; 10].join(" "));
    // Slower ones are all shown.
    let calls = "a:20000 ".repeat(10);
    assert_eq!(left("-T a@sample=100000/s", &calls), ["a"; 10].join(" "));
}

#[test]
fn a_percentile_keeps_the_slow_with_their_subtrees() {
    let calls = "main(a:10(b) a:9(c) a:5(c) a:30(d) a:29(e) a:40(f(g)))";
    assert_eq!(
        left("-F main -F a@sample=p99", calls),
        "main(a(b) a(d) a(f(g)))"
    );
    // A trigger keeps or drops the call alone.
    assert_eq!(
        left("-T a@sample=p99", calls),
        "main(a(b) c c a(d) e a(f(g)))"
    );
    // A dropped call takes the callers with it that were waiting for it.
    assert_eq!(
        left(
            "-C c -F main -F a@sample=p99",
            "main(a:9(c) a:5(c) a:10(b) main(a:3(c)))"
        ),
        "main(a(c))"
    );
}

#[test]
fn a_percentile_within_a_percentile() {
    let calls = "a:10(c:9) a:50(c:2(d)) a:2(c:90) a:60(c:80 c:91(d))";
    assert_eq!(
        left("-F a@sample=p99 -F c@sample=p99", calls),
        "a(c) a a(c) a(c(d))"
    );
}

#[test]
fn weights_say_what_a_shown_call_stands_for() {
    let calls = tree(FIVE);
    let names = names(&calls);
    let run = |options| {
        let plan = compile(rules(options), &names, PlanOptions::default()).plan();
        filter(&calls, &names, &plan)
    };
    let filtered = run("-F a@sample=2 -F c@sample=2");
    assert_eq!(text(&filtered.calls), "a(b) a(b(c(getpid)))");
    assert_eq!(filtered.weights, [2.0, 2.0, 2.0, 2.0, 4.0, 4.0]);
    assert_eq!(filtered.counted, [(5, 2), (2, 1)]);
    // A trigger's weight is that of the function alone.
    let triggered = run("-T a@sample=5");
    assert_eq!(triggered.counted, [(5, 1)]);
    assert_eq!(triggered.weights.iter().filter(|w| **w == 5.0).count(), 1);
    assert_eq!(triggered.weights.iter().filter(|w| **w == 1.0).count(), 16);
}
