//! Sampling at reading: five calls of a → b → c → getpid.

use crate::made::{Made, scripted};
use serde_json::Value;

fn five() -> Made {
    scripted(&format!("main( {} )", "a( b( c( getpid ) ) ) ".repeat(5)))
}

const WHOLE: &str =
    "a() {\n  b() {\n    c() {\n      getpid();\n    } /* c */\n  } /* b */\n} /* a */\n";

/// `text` two columns further to the right.
fn within(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

#[test]
fn a_sampled_filter_shows_executions_with_their_subtrees() {
    assert_eq!(five().calls("-F a@sample=2"), WHOLE.repeat(2));
}

#[test]
fn a_filter_around_it_keeps_the_level_above() {
    let expected = format!("main() {{\n{}}} /* main */\n", within(&WHOLE.repeat(2)));
    assert_eq!(five().calls("-F main -F a@sample=2"), expected);
}

#[test]
fn a_sampled_trigger_shows_or_hides_the_call_alone() {
    let below: String = WHOLE
        .lines()
        .filter(|line| line.starts_with(' '))
        .map(|line| format!("{}\n", &line[2..]))
        .collect();
    let body = format!("{below}{WHOLE}{below}{WHOLE}{below}");
    let expected = format!("main() {{\n{}}} /* main */\n", within(&body));
    assert_eq!(five().calls("-T a@sample=2"), expected);
}

#[test]
fn calls_that_are_filtered_out_are_not_counted() {
    let expected = format!("a() {{\n  b();\n}} /* a */\n{WHOLE}");
    let shown = five().calls("-F a@sample=2 -F c@sample=2");
    // Whether b's block is closed in a line of its own is a matter of layout.
    assert_eq!(shown.replace("b() {\n  } /* b */", "b();"), expected);
}

#[test]
fn a_trigger_with_filter_is_a_filter() {
    assert_eq!(
        five().calls("-T a@filter,sample=2"),
        five().calls("-F a@sample=2")
    );
}

/// A report as JSON.
struct Report(Value);

impl Report {
    fn of(trace: &Made, arguments: &str) -> Report {
        let output = trace.run("report", &format!("{arguments} --format json"));
        Report(serde_json::from_slice(&output.stdout).expect("JSON"))
    }

    fn column(&self, id: &str) -> usize {
        let columns = self.0["columns"].as_array().expect("columns");
        let is = |column: &Value| column["id"] == id;
        columns.iter().position(is).expect("a column")
    }

    fn row(&self, name: &str) -> &Value {
        let rows = self.0["rows"].as_array().expect("rows");
        let is = |row: &&Value| row["cells"][self.column("function")] == name;
        rows.iter().find(is).expect("a row")
    }

    /// The calls of a function, which are a whole number.
    fn calls(&self, name: &str) -> u64 {
        let calls = &self.row(name)["cells"][self.column("calls")];
        calls.as_u64().unwrap_or_else(|| panic!("{calls}"))
    }

    fn error(&self, name: &str, column: &str) -> f64 {
        let error = &self.row(name)["standard_errors"][column];
        error.as_f64().expect("a standard error")
    }
}

/// A trace of threads of which each calls `a` so often.
fn threads(calls: &[usize]) -> Made {
    let threads = calls.iter().enumerate().map(|(index, calls)| {
        let text = format!("main( {} )", "a( b ) ".repeat(*calls));
        let start = 1_000_000 + index as u64;
        (7 + index as u32, crate::made::script(&text, start, 1_000))
    });
    crate::made::trace(&threads.collect::<Vec<_>>())
}

#[test]
fn the_calls_of_all_threads_are_counted_chosen_or_not() {
    for (calls, rule) in [
        (vec![199; 8], "-F a@sample=100"),
        (vec![199; 8], "-T a@sample=100"),
        (vec![199; 8], "-T a@sample=1/100"),
        // In some of these threads nothing is chosen.
        (vec![199, 20, 150, 99, 7], "-F a@sample=100"),
        (vec![372], "-F ^a$@sample=10"),
        (vec![372], "-F main -F a@sample=373 -F b@sample=5"),
    ] {
        let trace = threads(&calls);
        let report = Report::of(&trace, rule);
        let sum: usize = calls.iter().sum();
        if rule.contains("373") {
            let told = &report.0["facts"]["unchosen_functions"]["value"];
            assert_eq!(*told, sum as u64, "{rule}");
            continue;
        }
        assert_eq!(report.calls("a"), sum as u64, "{rule} {calls:?}");
        assert_eq!(report.error("a", "calls"), 0.0, "{rule} {calls:?}");
        if rule.starts_with("-F") {
            // Whether the other executions call it, too, is not known of those that are not shown.
            assert_eq!(report.calls("b"), sum as u64, "{rule} {calls:?}");
            assert!(report.error("b", "calls") > 0.0, "{rule} {calls:?}");
        }
        let graph = trace.shown("graph", rule);
        assert!(
            graph.contains(&format!("~{sum}")) || graph.contains(&sum.to_string()),
            "{graph}"
        );
    }
}

#[test]
fn counts_are_true_for_random_rules() {
    let mut state = 0x9e37_79b9_u64;
    let mut next = move |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    for _ in 0..60 {
        let calls: Vec<usize> = (0..=next(4)).map(|_| 1 + next(400) as usize).collect();
        let every = 2 + next(30);
        let how = if next(2) == 0 {
            String::new()
        } else {
            "1/".to_owned()
        };
        let option = if next(2) == 0 { "-F" } else { "-T" };
        let rule = format!("{option} a@sample={how}{every}");
        let report = Report::of(&threads(&calls), &rule);
        let sum = calls.iter().sum::<usize>() as u64;
        let unchosen = report.0["facts"]["unchosen_functions"]["value"].as_u64();
        assert_eq!(
            unchosen.unwrap_or_else(|| report.calls("a")),
            sum,
            "{rule} {calls:?}"
        );
    }
}

#[test]
fn chosen_executions_that_are_too_short_make_an_estimate() {
    // Half of the executions take long, of the chosen ones, too.
    let trace = scripted(&format!("main( {} )", "a( b b b b ) a a ".repeat(20)));
    let report = Report::of(&trace, "-F a@sample=4 -t 5us");
    let shown = trace.calls("-F a@sample=4 -t 5us").matches("a()").count() as u64;
    assert_eq!(shown, 5);
    assert_eq!(report.calls("a"), 4 * shown);
    let error = report.error("a", "calls");
    assert!((2.0..8.0).contains(&error), "{error}");
}

#[test]
fn the_ways_to_sample_are_in_the_help() {
    for command in ["record", "report", "replay"] {
        let help = std::process::Command::new(crate::made::PROGRAM.expect("known"))
            .args(["trace", command, "--help"])
            .output()
            .expect("dioptra runs");
        let help = String::from_utf8_lossy(&help.stdout).into_owned();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        for way in ["sample=N ", "sample=1/N", "P%", "N/s", "auto", "pNN"] {
            assert!(help.contains(way), "{command} --help has no {way}");
        }
    }
}

#[test]
fn report_scales_back_and_says_so() {
    let trace = five();
    let report = Report::of(&trace, "-F main -F a@sample=2");
    let row = |name: &str| report.row(name)["cells"].clone();
    let column = |id: &str| report.column(id);
    // All five are counted.
    assert_eq!(row("a")[column("calls")], 5);
    assert_eq!(row("main")[column("calls")], 1);
    // Its own time is that outside of all calls of a.
    assert_eq!(row("main")[column("self")], 6_000);
    // Each a takes seven steps of a microsecond.
    assert_eq!(row("a")[column("total")], 35_000);
    // Equal executions tell the sum without error.
    assert_eq!(report.error("a", "total"), 0.0);
    assert!(report.0["facts"]["sampled_functions"].is_object());
    let text = trace.shown("report", "-F main -F a@sample=2");
    assert!(
        text.contains("a  ~ 2 calls shown; total ±0.0%, calls ±0.0%"),
        "{text}"
    );
}

#[test]
fn a_tail_keeps_the_slow_ones() {
    let mut text = "a ".repeat(50);
    text.push_str("a( b ) ");
    let trace = scripted(&format!("main( {} )", text.repeat(4)));
    let shown = trace.calls("-F a@sample=p99");
    assert!(shown.contains("a() {\n  b();\n} /* a */"), "{shown}");
    assert!(shown.lines().count() < 20, "{shown}");
}

#[test]
fn what_cannot_be_is_an_error() {
    for (rule, part) in [
        ("-F a@sample=0", "`sample=0` would show no execution"),
        ("-F a@sample=auto", "sample=auto"),
        ("-F a@smaple=2", "did you mean `sample`?"),
        ("-F a@if:arg1==2", "is not recorded"),
    ] {
        let output = five().run("replay", rule);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{rule}: {told}");
        assert!(told.contains(part), "{rule}: {told}");
        assert!(output.stdout.is_empty());
    }
}
