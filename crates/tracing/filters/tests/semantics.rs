//! Each option and action on small trees: the examples that users know, and the decisions of this crate.

mod calls;

use calls::left;

fn check(cases: &[(&str, &str, &str)]) {
    for (options, tree, expected) in cases {
        assert_eq!(left(options, tree), *expected, "{options} of {tree}");
    }
}

#[test]
fn filters_let_in_and_shut_out() {
    let tree = "main(a(b(c)) d)";
    check(&[
        ("", tree, tree),
        ("-F b", tree, "b(c)"),
        ("-F b -F d", tree, "b(c) d"),
        ("-N b", tree, "main(a d)"),
        ("-F a -N c", tree, "a(b)"),
        ("-N a -F c", tree, ""),
        ("-F nothing", tree, ""),
        ("-H b", tree, "main(a(c) d)"),
        ("-H main -H b", tree, "a(c) d"),
        ("-C b", tree, "main(a(b))"),
        ("-C d -C c", tree, "main(a(b(c)) d)"),
    ]);
}

#[test]
fn a_caller_is_shown_with_those_around_it() {
    // The outer one leads to the inner one, so what lies between is shown, too.
    check(&[
        ("-C f", "main(f(g(f(h))))", "main(f(g(f)))"),
        ("-C f -F f", "main(f(g))", "f"),
        ("-C f -H main", "main(x(f))", "x(f)"),
        ("-C f -t 10ns", "main(a(f:20) b(f:2))", "main(a(f))"),
    ]);
}

#[test]
fn depth_counts_from_the_filter_and_over_what_is_shown() {
    let tree = "main(a(b(c(d))))";
    check(&[
        ("-D 2", tree, "main(a)"),
        ("-F b -D 1", tree, "b"),
        ("-F a -F c -D 2", tree, "a(b(c(d)))"),
        ("-T b@depth=1", tree, "main(a(b))"),
        ("-T b@depth=2", tree, "main(a(b(c)))"),
        ("-T c@depth=1 -D 1", tree, "main(c)"),
        ("-D 2 -H a", tree, "main(b)"),
        ("-D 2 -L !a.c", tree, "main(b)"),
        ("-T b@depth=1", "main(b(c) c(d(e)))", "main(b c(d(e)))"),
    ]);
}

#[test]
fn durations_of_the_threshold_are_kept() {
    // A call's own entry and exit take 1 each, its duration is 1 + its own time + 2 for each call below.
    check(&[
        ("-t 10ns", "main(a:9 b:8)", "main(a)"),
        ("-t 11ns", "main(a:9 b:8)", "main"),
        ("-t 0", "main(a)", "main(a)"),
        ("-t 10ns -T b@trace", "x(a(b))", "x(a(b))"),
        ("-T a@time=20ns", "main(a:5(b:5) b:5)", "main(b)"),
        ("-T a@time=20ns", "main(a:5(b:30) b)", "main(a(b) b)"),
        ("-t 1us -T a@time=5ns", "main(a(b:5 c) b:5)", "main(a(b))"),
    ]);
}

#[test]
fn sizes_and_locations_hide_functions_alone() {
    // Sizes are 10 for each letter, sources are src/NAME.c.
    check(&[
        ("-Z 20", "main(a(bb(c)))", "main(bb)"),
        ("-T bb@size=40", "main(bb(main a) a)", "main(main a)"),
        ("-T bb@size=20", "main(a bb(a cc))", "main(a bb(cc))"),
        ("-Z 20 -F a", "main(a(bb))", "bb"),
        ("-L a.c", "main(a(b(a)))", "a(a)"),
        ("-L !a.c", "main(a(b(a)))", "main(b)"),
        ("-L src", "main(a)", "main(a)"),
        ("-L src -N a", "main(a(b))", "main"),
    ]);
}

#[test]
fn tracing_is_switched_by_calls() {
    check(&[
        ("-T b@trace_off", "main(a b(c) d)", "main(a)"),
        (
            "-T b@trace_off -T c@trace_on",
            "main(a(b(c(d))) e)",
            "main(a(c(d)) e)",
        ),
        ("-T b@finish -T c@trace_on", "main(a b(c) c)", "main(a)"),
        // Triggers do nothing in calls that a filter hides or does not let in.
        ("-N a -T b@trace_off", "main(a(b) c)", "main(c)"),
        ("-F main -T b@trace_off", "b main(c)", "main(c)"),
        // Depth, size and `hide` do not keep a trigger from firing.
        ("-D 1 -T b@trace_off", "main(b) c", "main"),
        ("-H b -T b@trace_off", "main(b) c", "main"),
    ]);
}
