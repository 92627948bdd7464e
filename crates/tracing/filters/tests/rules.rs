//! Texts of options: their meaning, their errors, and warnings about rules that match nothing.

mod calls;

use calls::{left, option};
use dioptra_filters::{
    CompileError, Compiler, FunctionDescription, FunctionOrigin, Lane, MatchStyle, PlanOptions,
    Probe, RuleOption, Rules, SampleKind, TraceSwitch, Warning,
};

/// The message of a refused text.
fn refused(letter: &str, text: &str) -> String {
    let mut rules = Rules::new(MatchStyle::Regex);
    let error = rules.add(option(letter), text).expect_err(text);
    assert!(rules.is_empty());
    error.to_string()
}

#[test]
fn errors_show_the_place_and_what_is_allowed() {
    assert_eq!(
        refused("-F", "a@smaple=2"),
        "-F: there is no action `smaple`; did you mean `sample`? (a module is the first word and written with a dot or \
         a slash, such as `smaple.so`)\n    a@smaple=2\n      ^^^^^^"
    );
    assert_eq!(
        refused("-T", "main@depth=2; größe@time=5 parsecs"),
        "-T: `5 parsecs`: the unit is unknown; a time is a number with ns, us, ms, s, m or h, such as 1500us or 1.5ms; \
         plain numbers are ns\n    main@depth=2; größe@time=5 parsecs\n                             ^^^^^^^^^"
    );
    assert_eq!(
        refused("-D", "0"),
        "-D: a depth of 0 would show nothing; a depth is at least 1; `notrace` (-N) hides a subtree\n    0\n    ^"
    );
}

#[test]
fn what_is_wrong_is_named() {
    for (letter, text, part) in [
        ("-F", "", "a function's name is missing"),
        ("-F", "@depth=2", "a function's name is missing"),
        ("-F", "a@", "an action or a module is missing"),
        ("-F", "a@depth", "`depth` needs a value"),
        ("-F", "a@depth=", "`depth` needs a value"),
        ("-F", "a@depth=x", "`x` is no depth"),
        ("-F", "a@trace=1", "`trace` has no value"),
        ("-F", "a@hid", "did you mean `hide`?"),
        ("-F", "a@libc.so,hid", "did you mean `hide`?"),
        ("-F", "a@sample=0", "would show no execution"),
        ("-F", "a@sample=0%", "would show (nearly) no execution"),
        ("-F", "a@sample=101%", "more than every execution"),
        ("-F", "a@sample=2/1", "more than every execution"),
        ("-F", "a@sample=1/0", "divides by 0"),
        ("-F", "a@sample=1/x", "`x` is no number"),
        ("-F", "a@sample=0/s", "out of range"),
        ("-F", "a@sample=p100", "no percentile"),
        ("-F", "a@sample=p0", "no percentile"),
        ("-F", "a@sample=often", "no way to sample"),
        ("-F", "a@sample=-1", "no way to sample"),
        ("-F", "a@notrace", "contradicts"),
        ("-F", "a@filter,notrace", "contradicts"),
        ("-T", "a@trace_on,trace_off", "contradicts"),
        ("-T", "a@depth=1,depth=2", "given twice"),
        ("-N", "a@depth=2", "nothing happens inside"),
        ("-H", "a@sample=2", "`hide` shows none of them"),
        ("-T", "a", "a trigger needs an action"),
        ("-T", "a@libc.so", "a trigger needs an action"),
        ("-T", "a@color=pink", "colours are red, green"),
        ("-A", "a", "no argument is named"),
        ("-A", "a@arg0", "numbered from 1"),
        ("-A", "a@arg99", "numbered from 1"),
        ("-A", "a@fparg9", "numbered from 1 to 8"),
        ("-A", "a@arg1/q", "no format `q`"),
        ("-A", "a@arg1/i7", "8, 16, 32 or 64 bits"),
        ("-A", "a@arg1/f", "`fpargN`"),
        ("-A", "a@fparg1/s", "floating-point number"),
        ("-A", "a@fparg1/80", "32 or 64 bits"),
        ("-A", "a@arg1/e:color", "not recorded by name"),
        ("-A", "a@arg1%rdi", "the place of a value"),
        ("-A", "a@arg1,arg1/x", "given twice"),
        ("-A", "a@arg1,notrace", "nothing happens inside"),
        ("-T", "a@read=page-fault", "records values"),
        ("-T", "a@if:x==1", "not about an argument"),
        ("-T", "a@if:arg1=1", "does not compare"),
        ("-T", "a@if:arg1==x", "compares with no number"),
        ("-T", "a@filter,,hide", "an action is missing"),
        ("-H", "!a", "`!` has no meaning here"),
        ("-F", "a(b", "no regular expression: unclosed group"),
        ("-t", "1y", "the unit is unknown"),
        ("-t", "", "a number is missing"),
        ("-Z", "99999999999g", "too large"),
        ("-L", "a.c@show", "`show` has no meaning here"),
        ("-L", "/", "a source location is missing"),
    ] {
        let message = refused(letter, text);
        assert!(message.contains(part), "{letter} {text}: {message}");
    }
}

#[test]
fn a_wrong_text_adds_nothing_of_itself() {
    let mut rules = Rules::new(MatchStyle::Regex);
    assert!(rules.add(RuleOption::Filter, "a;b@nonsense=1").is_err());
    assert!(rules.add(RuleOption::Depth, "2;x").is_err());
    assert!(rules.is_empty());
}

#[test]
fn texts_joined_and_spaced_mean_the_same() {
    let tree = "main(a(b) c(d) e)";
    assert_eq!(left("-F a;c", tree), "a(b) c(d)");
    assert_eq!(left("-F a -F c", tree), "a(b) c(d)");
    assert_eq!(left("-F a;;c;", tree), "a(b) c(d)");
    let mut rules = Rules::new(MatchStyle::Regex);
    rules
        .add(RuleOption::Trigger, " a @ depth = 1 , filter ; !b")
        .unwrap_err();
    rules
        .add(RuleOption::Trigger, " a @ depth = 1 , filter ")
        .unwrap();
}

#[test]
fn exclamation_marks_and_actions_are_other_spellings() {
    let tree = "main(a(b) c(d) e)";
    for (one, other) in [
        ("-F !a", "-N a"),
        ("-T a@notrace", "-N a"),
        ("-T a@hide", "-H a"),
        ("-T a@caller", "-C a"),
        ("-T a@filter,depth=1", "-F a@depth=1"),
        ("-T c@trace-off", "-T c@trace_off"),
        ("-T c@traceoff", "-T c@trace_off"),
        ("-L a.c@hide", "-L !a.c"),
        ("-t 0.002us", "-t 2"),
    ] {
        assert_eq!(left(one, tree), left(other, tree), "{one} {other}");
        assert_ne!(left(one, tree), tree, "{one}");
    }
}

fn function<'a>(name: &'a str, module: &'a str) -> FunctionDescription<'a> {
    FunctionDescription {
        name,
        module,
        ..FunctionDescription::default()
    }
}

/// Returns true if a single filter names the function, by the duty of its site.
fn is_filtered(style: MatchStyle, text: &str, function: &FunctionDescription<'_>) -> bool {
    let mut rules = Rules::new(style);
    rules.add(RuleOption::Notrace, text).unwrap();
    let mut compiler = Compiler::new(rules, PlanOptions::default()).unwrap();
    let action = compiler.add(function);
    let plan = compiler.plan();
    assert_eq!(plan.action_of(0), action);
    plan.probe(action) == Probe::Mute
}

#[test]
fn modules_and_kinds_of_functions() {
    let libc = function("malloc", "/usr/lib/libc.so.6");
    let call = FunctionDescription {
        kind: FunctionOrigin::LibraryCall,
        ..function("malloc", "/bin/prog")
    };
    let kernel = FunctionDescription {
        kind: FunctionOrigin::Kernel,
        ..function("malloc", "[kernel.kallsyms]")
    };
    for (text, expected) in [
        ("malloc", [true, true, true]),
        ("malloc@libc", [true, false, false]),
        ("malloc@libc.so.6", [true, false, false]),
        ("malloc@/usr/lib/libc.so.6", [true, false, false]),
        ("malloc@PLT", [false, true, false]),
        ("malloc@kernel", [false, false, true]),
        ("malloc@prog", [false, true, false]),
        ("mal*@libc", [true, false, false]),
        ("^m@libc,notrace", [true, false, false]),
        ("free", [false, false, false]),
    ] {
        let found = [&libc, &call, &kernel].map(|f| is_filtered(MatchStyle::Regex, text, f));
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn styles_of_matching() {
    let f = function("parse_line", "prog");
    assert!(is_filtered(MatchStyle::Regex, "se_l.ne", &f));
    assert!(!is_filtered(MatchStyle::Glob, "se_l?ne", &f));
    assert!(is_filtered(MatchStyle::Glob, "parse_l?n*", &f));
    assert!(!is_filtered(MatchStyle::Simple, "parse_.*", &f));
    assert!(is_filtered(MatchStyle::Simple, "parse_line", &f));
    assert_eq!(MatchStyle::parse("glob"), Some(MatchStyle::Glob));
    assert_eq!(MatchStyle::parse("fuzzy"), None);
}

#[test]
fn the_last_of_contradicting_rules_holds() {
    let tree = "main(a(b))";
    assert_eq!(left("-N a -F a", tree), "a(b)");
    assert_eq!(left("-F a -N a", tree), "");
    assert_eq!(left("-F a@depth=1 -F a@depth=2", tree), "a(b)");
    assert_eq!(left("-D 1 -D 2", tree), "main(a)");
    assert_eq!(left("-L a.c -L src@hide", tree), "");
    assert_eq!(left("-L src@hide -L a.c", tree), "a");
}

#[test]
fn warnings_name_what_is_near() {
    let names = ["parse_line(char const*)", "ns::parse_file()", "main"];
    let warnings = |letter: &str, text: &str| -> Vec<String> {
        let mut rules = Rules::new(MatchStyle::Regex);
        rules.add(option(letter), text).unwrap();
        let mut compiler = Compiler::new(rules, PlanOptions::default()).unwrap();
        for name in names {
            compiler.add(&function(name, "/bin/prog"));
        }
        let warnings = compiler.warnings(names);
        warnings.iter().map(Warning::to_string).collect()
    };
    for (letter, text, expected) in [
        ("-F", "main", &[][..]),
        (
            "-F",
            "parse_lien",
            &[
                "-F parse_lien matches no function, and shows nothing; the nearest names are parse_line, ns::parse_file",
            ],
        ),
        (
            "-N",
            "^parse_fle$",
            &[
                "-N ^parse_fle$ matches no function; the nearest names are ns::parse_file, parse_line",
            ],
        ),
        ("-N", "xyzzy", &["-N xyzzy matches no function"]),
        (
            "-N",
            "main@libmissing",
            &["-N main@libmissing matches nothing: no module's name begins with `libmissing`"],
        ),
        (
            "-N",
            "main@porg",
            &[
                "-N main@porg matches nothing: `porg` is neither an action nor the beginning of a module's name; the nearest \
                 module is prog; actions are filter, notrace, hide, caller, depth, time, size, trace, trace_on, trace_off, \
                 finish, backtrace, color, recover, sample, if",
            ],
        ),
        (
            "-L",
            "nowhere.c",
            &[
                "-L nowhere.c matches the source file of no function",
                "3 functions have no known source file and are hidden by -L; build with -g to keep them",
            ],
        ),
        (
            "-Z",
            "10",
            &["3 functions have no known size; -Z and `size=` do not hide them"],
        ),
    ] {
        assert_eq!(warnings(letter, text), expected);
    }
}

#[test]
fn what_cannot_be_followed_is_refused() {
    let compile = |text: &str, replay| {
        let mut rules = Rules::new(MatchStyle::Regex);
        rules.add(RuleOption::Filter, text).unwrap();
        let options = PlanOptions {
            replay,
            ..PlanOptions::default()
        };
        Compiler::new(rules, options)
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    for condition in ["arg2>=-0x10", "arg2/x & 07", "arg2 < 3"] {
        assert_eq!(
            compile(&format!("a@if:{condition}"), false).unwrap_err(),
            format!(
                "-F a@if:{condition}: `arg2` is not recorded, so a condition on it cannot be checked; leave out the condition"
            )
        );
    }
    assert!(compile("a@sample=auto", false).is_ok());
    assert!(
        compile("a@sample=auto", true)
            .unwrap_err()
            .contains("use `sample=1/N`")
    );
    let mut rules = Rules::new(MatchStyle::Regex);
    for size in 1..=300 {
        rules
            .add(RuleOption::Trigger, &format!("f@size={size}"))
            .unwrap();
    }
    let error = Compiler::new(rules, PlanOptions::default()).unwrap_err();
    assert_eq!(error, CompileError::TooManySizes { limit: 254 });
}

#[test]
fn recover_is_accepted_and_told() {
    let mut rules = Rules::new(MatchStyle::Regex);
    rules
        .add(RuleOption::Trigger, "a@recover;b@depth=2")
        .unwrap();
    let notes: Vec<String> = rules.notes().iter().map(ToString::to_string).collect();
    assert_eq!(
        notes,
        ["-T a@recover: `recover` has no effect: return addresses need no recovery here"]
    );
}

#[test]
fn durations_are_in_units_of_the_clock_and_rounded_up() {
    let mut rules = Rules::new(MatchStyle::Regex);
    rules.add(RuleOption::Time, "1us").unwrap();
    rules.add(RuleOption::Trigger, "a@sample=1000/s").unwrap();
    let options = PlanOptions {
        units_per_second: 649_999_999,
        ..PlanOptions::default()
    };
    let mut compiler = Compiler::new(rules, options).unwrap();
    let action = compiler.add(&function("a", "prog"));
    compiler.add(&function("b", "prog"));
    let plan = compiler.plan();
    let mut shown = Vec::new();
    let mut lane = Lane::new(&plan, 0);
    for duration in [649, 650] {
        let tell = &mut |_| shown.push(duration);
        lane.enter(&plan, plan.action_of(1), TraceSwitch::On, (), 0, tell);
        lane.exit(&plan, duration, tell);
    }
    assert_eq!(shown, [650, 650]);
    let sampling = plan.sampling(action).unwrap();
    assert_eq!(
        (sampling.kind, sampling.parameter),
        (SampleKind::Rate, 650_000)
    );
}

#[test]
fn a_plan_grows_with_the_modules() {
    let mut rules = Rules::new(MatchStyle::Regex);
    rules.add(RuleOption::Filter, "^f@sample=3").unwrap();
    let mut compiler = Compiler::new(rules, PlanOptions::default()).unwrap();
    let first: Vec<u32> = ["f1", "g", "f2"]
        .map(|name| compiler.add(&function(name, "prog")))
        .into();
    let early = compiler.plan();
    for name in ["f3", "g"] {
        compiler.add(&function(name, "lib.so"));
    }
    let plan = compiler.plan();
    let before = early;
    for (function, action) in (0..).zip(&first) {
        assert_eq!(
            (plan.action_of(function), before.action_of(function)),
            (*action, *action)
        );
        assert_eq!(plan.sampling(*action), before.sampling(*action));
    }
    assert_eq!((before.sampler_count(), plan.sampler_count()), (2, 3));
    assert_eq!(plan.action_of(4), 0);
    assert_eq!(plan.action_of(5), 0);
}

#[test]
fn colours_and_backtraces_are_for_readers() {
    let mut rules = Rules::new(MatchStyle::Regex);
    rules
        .add(RuleOption::Trigger, "a@color=green,backtrace")
        .unwrap();
    let mut compiler = Compiler::new(rules, PlanOptions::default()).unwrap();
    let action = compiler.add(&function("a", "prog"));
    let plan = compiler.plan();
    assert_eq!(
        plan.color(action)
            .map(|color| dioptra_filters::COLORS[color]),
        Some("green")
    );
    assert_eq!(plan.color(0), None);
}
