//! The output of each reader for known traces.

use crate::made::{Made, script, scripted, trace};
use serde_json::Value;

fn two_threads() -> Made {
    trace(&[
        (7, script("main( a( b ) b )", 1_000, 1_000)),
        (8, script("t( w w )", 1_500, 2_000)),
    ])
}

#[test]
fn replay_interleaves_threads_by_time() {
    let shown = two_threads().shown("replay", "");
    let expected = "\
# DURATION     TID     FUNCTION
            [     7] | main() {
            [     8] | t() {
            [     7] |   a() {
            [     7] |     b() {
            [     8] |   w() {
   1.000 us [     7] |     } /* b */
   3.000 us [     7] |   } /* a */
   2.000 us [     8] |   } /* w */
   1.000 us [     7] |   b();
            [     8] |   w() {
   7.000 us [     7] | } /* main */
   2.000 us [     8] |   } /* w */
  10.000 us [     8] | } /* t */
";
    assert_eq!(shown, expected);
}

#[test]
fn replay_has_fields_columns_and_ranges() {
    let made = two_threads();
    let shown = made.shown(
        "replay",
        "-f time,delta,elapsed,task,tid --tid 7 -D 1 --no-merge",
    );
    assert_eq!(
        shown,
        "#   TID        TIMESTAMP      TIMEDELTA   ELAPSED        TASK NAME   FUNCTION\n\
         \u{20}[     7]        0.000001000                               program | main() {\n\
         \u{20}[     7]        0.000008000   7.000 us   7.000 us         program | } /* main */\n"
    );
    // From the fifth microsecond of the trace on.
    assert_eq!(
        made.calls("--tid 7 -r 4us~5us"),
        "  } /* a */\n  b() {\n\nfunctions that go on at the end of the time range\n=================================================\ntask: 7\n[1] b\n[0] main\n"
    );
    let columns = made.calls("--column-view --column-offset 3");
    assert!(columns.contains("\n      t() {\n"), "{columns}");
    let lines = made.calls("--task-newline --no-comment --no-merge");
    assert!(
        lines.starts_with("main() {\n\nt() {\n\n  a() {\n    b() {\n\n  w() {\n\n    }\n"),
        "{lines}"
    );
}

#[test]
fn rules_have_the_order_of_the_command_line() {
    let made = scripted("main( a( b ) )");
    assert_eq!(made.calls("-F a -N a"), "");
    assert_eq!(made.calls("-N a -F a"), "a() {\n  b();\n} /* a */\n");
}

#[test]
fn switches_hold_for_all_threads() {
    let made = two_threads();
    assert_eq!(
        made.calls("--trace=off -T a@trace_on --tid 7"),
        "a() {\n  b();\n} /* a */\nb();\n"
    );
    // `t` began before the trigger, and its second `w` began after `a`.
    let shown = made.calls("--trace=off -T a@trace_on");
    assert!(!shown.contains("main") && !shown.contains("t()"), "{shown}");
    assert_eq!(shown.matches("w()").count(), 2, "{shown}");
    let shown = made.calls("-T a@finish");
    assert!(!shown.contains("w()"), "{shown}");
}

#[test]
fn nothing_found_is_told_with_the_nearest_names() {
    let made = scripted("main( parse_line )");
    let output = made.run("replay", "-F parse_lime");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        told.contains(
            "-F parse_lime matches no function, and shows nothing; the nearest names are parse_line"
        ),
        "{told}"
    );
    let told = made.run("replay", "--tid 99").stderr;
    assert!(String::from_utf8_lossy(&told).contains("the trace has no thread 99"));
    let told = made.run("graph", "parse_lin").stderr;
    assert!(String::from_utf8_lossy(&told).contains("the nearest names are parse_line"));
}

#[test]
fn library_calls_can_be_left_out() {
    // All functions of made traces are library calls.
    assert_eq!(scripted("main( a )").calls("--no-libcall"), "");
}

#[test]
fn report_counts_recursion_once() {
    let made = scripted("main( r( r( r ) ) )");
    let shown = made.shown(
        "report",
        "-f total,self,call,total-avg,total-min,total-max -s func",
    );
    assert_eq!(
        shown,
        "  Total time   Total avg   Total min   Total max   Self time       Calls  Function
  ==========  ==========  ==========  ==========  ==========  ==========  ====================
    7.000 us    7.000 us    7.000 us    7.000 us    2.000 us           1  main
    5.000 us    3.000 us    1.000 us    5.000 us    5.000 us           3  r
"
    );
    let json: Value = serde_json::from_str(
        &made.shown("report", "--format json -f total-stdv,total-max-ts -s func"),
    )
    .expect("JSON");
    let cells = &json["rows"][1]["cells"];
    assert_eq!(cells[0], "r");
    // The calls take 1, 3 and 5 µs: the deviation is √(8/3) of 3.
    let deviation = cells[2].as_f64().expect("a number");
    assert!(
        (deviation - 100.0 * (8.0_f64 / 3.0).sqrt() / 3.0).abs() < 1e-9,
        "{deviation}"
    );
    assert_eq!(cells[3], 1_001_000);
    // Half of them take no more than 3 µs, and nine tenths need all three.
    let shown = made.shown("report", "-f total-p50,total-p90,self-p99 -s total-p50");
    assert_eq!(
        shown,
        "   Total p50   Total p90    Self p99  Function
  ==========  ==========  ==========  ====================
    7.000 us    7.000 us    2.000 us  main
    3.000 us    5.000 us    2.000 us  r
"
    );
}

#[test]
fn report_has_threads_and_differences() {
    let made = two_threads();
    let tasks = made.shown("report", "--task --format csv");
    assert_eq!(
        tasks,
        "task,tid,pid,total,self,calls\nprogram,8,7,10000,10000,3\nprogram,7,7,7000,7000,4\n"
    );
    let other = scripted("main( a( b ) b b )");
    let folder = other.folder().display();
    let shown = made.shown(
        "report",
        &format!("--diff {folder} --tid 7 --diff-policy full"),
    );
    let main = shown
        .lines()
        .find(|line| line.ends_with("main"))
        .expect("main");
    let words: Vec<&str> = main.split_whitespace().collect();
    assert_eq!(
        words[..6],
        ["7.000", "us", "9.000", "us", "+2.000", "us"],
        "{shown}"
    );
    let diff = |options: &str| made.shown("report", &format!("--diff {folder} {options}"));
    for (options, heading, main) in [
        (
            "-f +total-min,size",
            "    Total time     Total min     Self time         Calls          Size   Function",
            "     +2.000 us     +2.000 us     +1.000 us            +0            +0   main",
        ),
        (
            "--avg-total",
            "     Total avg     Total min     Total max   Function",
            "     +2.000 us     +2.000 us     +2.000 us   main",
        ),
        (
            "-f total,call --diff-policy percent",
            "    Total time         Calls   Function",
            "       +28.57%            +0   main",
        ),
        (
            "-f total-stdv",
            "    Total stdv   Function",
            "        +0.00%   main",
        ),
    ] {
        let shown = diff(&format!("--tid 7 {options}"));
        assert!(
            shown.contains(&format!("{heading}\n")),
            "{options}: {shown}"
        );
        assert!(shown.contains(&format!("{main}\n")), "{options}: {shown}");
    }
    let full = diff("--tid 7 -f total,call --diff-policy full,percent");
    let line = "     7.000 us    9.000 us   +28.57%            1           1        +0   main\n";
    assert!(full.contains(line), "{full}");
    let moments = made.shown("report", "--tid 7 -f call,total-min-ts -s func");
    let expected = "       Calls        Total min ts  Function\n  ==========  ==================  ====================\n           1         0.000002000  a\n";
    assert!(moments.starts_with(expected), "{moments}");
    let names = diff("--tid 7 -f none -s func");
    assert!(names.ends_with("#\n   a\n   b\n   main\n"), "{names}");
    let csv = made.shown("report", &format!("--diff {folder} --format csv -s call"));
    assert!(
        csv.contains("\nb,2000,3000,1000,2000,3000,1000,2,3,1\n"),
        "{csv}"
    );
}

#[test]
fn a_time_range_cuts_durations() {
    let made = scripted("main( a b )");
    // `main` takes 5 us; the range holds the 3 us in the middle.
    let csv = made.shown("report", "-r 1us~4us --format csv -s func");
    assert_eq!(
        csv,
        "function,function_id,total,self,calls\na,2,1000,1000,1\nb,3,1000,1000,1\nmain,1,3000,1000,1\n"
    );
    // Calls that ended before the range are left out.
    assert_eq!(
        made.shown("report", "-r 3us~ -f none -s func"),
        "  b\n  main\n"
    );
    let graph = made.shown("graph", "-r 3us~ -f none");
    assert!(
        graph.ends_with("(1) program\n (1) main\n (1) b\n\n"),
        "{graph}"
    );
    // A program's name and arguments may follow, as in uftrace; a second function may not.
    for words in ["program", "program 10 -x --nosuch", "./program 10"] {
        assert_eq!(
            made.shown("graph", &format!("-r 3us~ -f none {words}")),
            graph
        );
    }
    let refused = String::from_utf8(made.run("graph", "a b").stderr).expect("UTF-8");
    assert!(refused.contains("a second word: b"), "{refused}");
    let replayed = made.shown("replay", "-r 3us~");
    let expected = "#  ELAPSED   DURATION     TID     FUNCTION\n   3.000 us   1.000 us [     7] |   b();\n   5.000 us   5.000 us [     7] | } /* main */\n";
    assert_eq!(replayed, expected);
    let replayed = made.shown("replay", "-r 0.001003~");
    assert!(
        replayed.starts_with("#     TIMESTAMP      DURATION "),
        "{replayed}"
    );
}

#[test]
fn dumps_agree_with_the_trace() {
    let made = two_threads();
    let json: Value = serde_json::from_str(&made.shown("dump", "--format chrome")).expect("JSON");
    let events = json["traceEvents"].as_array().expect("events");
    let phases = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count();
    assert_eq!((phases("B"), phases("E")), (7, 7));
    assert_eq!(
        made.shown("dump", "--chrome"),
        made.shown("dump", "--format chrome")
    );
    assert_eq!(
        made.shown("dump", "--format flame-graph --sample-time 1ns"),
        "main 3000\nmain;a 2000\nmain;a;b 1000\nmain;b 1000\nt 6000\nt;w 4000\n"
    );
    // A hidden call's time counts for its caller.
    assert_eq!(
        made.shown("dump", "--format flame-graph --sample-time 1ns -D 1"),
        "main 7000\nt 10000\n"
    );
    let dot = made.shown("dump", "--graphviz");
    assert!(
        dot.contains(
            "    \"main\" -> \"a\" [xlabel = \"1\"]\n    \"a\" -> \"b\" [xlabel = \"1\"]\n"
        ),
        "{dot}"
    );
    let flowchart = made.shown("dump", "--format mermaid-text");
    assert!(flowchart.contains("    f1[\"main\"]\n"), "{flowchart}");
    let page = made.shown("dump", "--mermaid");
    assert!(page.starts_with("<!doctype html>"), "{page}");
    assert!(
        page.contains("<pre class=\"mermaid\">\nflowchart TB\n"),
        "{page}"
    );
    assert!(page.contains("    f1[&quot;main&quot;]\n"), "{page}");
    let raw = made.shown("dump", "");
    assert!(
        raw.contains("    0.000001000      7: [entry] main(1) depth: 0\n"),
        "{raw}"
    );
    assert_eq!(raw.matches("[exit ]").count(), 7);
}

#[test]
fn pages_are_the_text_escaped() {
    let made = scripted("main( operator<<( a&&b ) )");
    for (command, arguments) in [
        ("replay", "--color no"),
        ("report", "-s func"),
        ("report", "--task"),
        ("graph", ""),
        ("graph", "--task"),
    ] {
        let text = made.shown(command, arguments);
        let page = made.shown(command, &format!("{arguments} --format html"));
        let (_, body) = page.split_once("<pre>\n").expect("a body");
        let (body, rest) = body.split_once("</pre>\n").expect("an end");
        assert_eq!(rest, "</body>\n</html>\n");
        let text = text.replace('&', "&amp;");
        assert_eq!(body, text.replace('<', "&lt;").replace('>', "&gt;"));
    }
    let colored = made.shown("replay", "--format html -T main@color=red");
    assert!(
        colored.contains("<span style=\"color: #f66\">main</span>() {"),
        "{colored}"
    );
}

#[test]
fn full_names_have_their_parameters_once() {
    let made = scripted("main( _ZN3Box3getEi( _Z4leafv ) )");
    let full = "main() {\n  Box::get(int) {\n    leaf();\n  } /* Box::get(int) */\n} /* main */\n";
    assert_eq!(made.calls("--demangle full"), full);
    let simple = "main() {\n  Box::get() {\n    leaf();\n  } /* Box::get */\n} /* main */\n";
    assert_eq!(made.calls(""), simple);
}

#[test]
fn a_backtrace_has_the_callers_that_are_not_shown() {
    let made = scripted("main( a( b ) c( b ) )");
    assert_eq!(
        made.calls("-F b -T b@backtrace"),
        "/* [ 0] main */\n/* [ 1] a */\nb();\n/* [ 0] main */\n/* [ 1] c */\nb();\n"
    );
}

#[test]
fn info_tells_threads() {
    let made = two_threads();
    let text = made.shown("info", "");
    assert!(
        text.contains("# task list           : 7(program), 8(program)"),
        "{text}"
    );
    let tasks = made.shown("info", "--task");
    let names: Vec<&str> = tasks
        .lines()
        .map(|line| line.get(58..).unwrap_or(""))
        .collect();
    assert_eq!(names, ["  TASK", "  program", "    program"], "{tasks}");
    let system = made.shown("info", "--system");
    assert!(system.contains("# perf_event_paranoid"), "{system}");
    let program = super::made::PROGRAM.expect("known to integration tests");
    let symbols = made.shown("info", &format!("--symbols {program}"));
    assert!(symbols.lines().any(|line| line.ends_with(" main")));
    let json: Value = serde_json::from_str(&made.shown("info", "--format json")).expect("JSON");
    assert_eq!(json["threads"].as_array().map(Vec::len), Some(2));
}

#[test]
fn wrong_arguments_are_told() {
    let made = scripted("main");
    for (command, arguments, part) in [
        ("replay", "-f durations", "there is no field `durations`"),
        ("replay", "-f +none", "there is no field `none`"),
        ("report", "-s speed", "there is no key `speed`"),
        (
            "report",
            "--diff x -s cpu-list",
            "no differences to sort by",
        ),
        ("report", "--diff x -f total-min-ts", "there is no field"),
        ("info", "--system --task", "cannot be used with"),
        ("report", "-s avg", "goes with --avg-total"),
        ("replay", "-r 5us", "write START~STOP"),
        ("dump", "--format svg", "is none of raw"),
        (
            "report",
            "--diff-policy fast --diff x",
            "there is no policy `fast`",
        ),
    ] {
        let output = made.run(command, arguments);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{command} {arguments}: {told}"
        );
        assert!(told.contains(part), "{told}");
    }
    for (folder, part) in [
        ("/nonexistent", "there is no trace"),
        ("/etc/passwd", "there is no trace"),
        ("/", "there is no trace"),
    ] {
        let output = crate::made::dioptra("replay", std::path::Path::new(folder), "");
        assert_eq!(output.status.code(), Some(1));
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains(part) && told.lines().count() == 1, "{told}");
    }
    let told = |made: &Made| {
        let output = made.run("report", "");
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let empty = trace(&[(7, Vec::new())]);
    assert!(
        told(&empty).contains("the trace has no calls"),
        "{}",
        told(&empty)
    );
    std::fs::write(made.folder().join("records"), "").expect("a file");
    let shorter = told(&made);
    assert!(
        shorter.contains("records at byte 0: the file ends, and had "),
        "{shorter}"
    );
    std::fs::write(made.folder().join("info.json"), "{").expect("a file");
    let output = made.run("report", "");
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(text.matches("EOF while parsing").count(), 1, "{text}");
}

#[test]
fn chrome_closes_in_a_range_what_it_opens() {
    let trace = crate::made::trace_in_chunks(
        &[(
            7,
            crate::made::script("main( a( b( c c c ) b ) a( b ) )", 1_000_000, 1_000),
        )],
        3,
    );
    // Steps lie a microsecond apart: the range begins in the first c and ends in the last b.
    for (range, expected) in [
        (
            "3500ns~15500ns",
            "B main, B a, B b, B c, E c, B c, E c, B c, E c, E b, B b, E b, E a, B a, B b, E b, E a, E main",
        ),
        ("~2500ns", "B main, B a, B b, E b, E a, E main"),
        ("15500ns~", "B main, B a, E a, E main"),
    ] {
        let text = trace.shown("dump", &format!("--chrome -r {range}"));
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let events = json["traceEvents"].as_array().expect("events");
        let of = |event: &serde_json::Value| {
            let phase = event["ph"].as_str()?;
            let name = event["name"].as_str()?;
            ["B", "E"]
                .contains(&phase)
                .then(|| format!("{phase} {name}"))
        };
        let shown: Vec<String> = events.iter().filter_map(of).collect();
        assert_eq!(shown.join(", "), expected, "{range}");
    }
}
