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

#[test]
fn report_scales_back_and_says_so() {
    let trace = five();
    let output = trace.run("report", "-F main -F a@sample=2 --format json");
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let column = |id: &str| {
        let columns = json["columns"].as_array().expect("columns");
        columns
            .iter()
            .position(|column| column["id"] == id)
            .expect("a column")
    };
    let row = |name: &str| {
        let rows = json["rows"].as_array().expect("rows");
        let is = |row: &&Value| row["cells"][column("function")] == name;
        rows.iter().find(is).expect("a row")["cells"].clone()
    };
    // Two of the first four are shown; the fifth is not known of until the sixth.
    assert_eq!(row("a")[column("calls")], 4.0);
    assert_eq!(row("main")[column("calls")], 1);
    // Its own time is that outside of all calls of a.
    assert_eq!(row("main")[column("self")], 6_000);
    // Each a takes seven steps of a microsecond.
    assert_eq!(row("a")[column("total")], 28_000.0);
    // Equal executions tell the sum without error.
    let a = json["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .find(|row| row["cells"][column("function")] == "a");
    assert_eq!(a.expect("a")["standard_errors"]["total"], 0.0);
    assert!(json["facts"]["sampled_functions"].is_object());
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
