//! Scheduling, shown as calls.

use crate::made::{Made, scripted};
use dioptra_tracedata::TaskChange;
use dioptra_tracelayout::SwitchKind::{In, Preempted, Wait};
use dioptra_tracelayout::directory;

/// Makes a trace with steps at 1000, 1001, … µs: `main` begins at 1000, `nap` is from 1001 to 1002, `spin` from 1003 to
/// 1004, and `main` ends at 1005.
fn made() -> Made {
    scripted("main( nap spin )").with_switches(&[
        // The switch is before all calls.
        (7, 900_000, Wait),
        (7, 950_000, In),
        (7, 1_001_100, Wait),
        (7, 1_001_600, In),
        // The switch is within `main`, and ends in `spin` by a clock that is 50 ns late.
        (7, 1_002_850, Preempted),
        (7, 1_003_050, In),
        (7, 1_004_500, Preempted),
        (7, 1_004_700, In),
        // The thread ends within `main` without getting a CPU again.
        (7, 1_004_900, Wait),
    ])
}

#[test]
fn time_without_a_cpu_is_shown_where_it_passed() {
    let made = made();
    let nested = concat!(
        "            [     7] | main() {\n",
        "            [     7] |   nap() {\n",
        "   0.500 us [     7] |     /* linux:schedule */\n",
        "   1.000 us [     7] |   } /* nap */\n",
        "   0.150 us [     7] |   /* linux:schedule (pre-empted) */\n",
        "   1.000 us [     7] |   spin();\n",
        "   0.200 us [     7] |   /* linux:schedule (pre-empted) */\n",
        "   5.000 us [     7] | } /* main */\n",
    );
    let shown = made.shown("replay", "");
    assert_eq!(shown.split_once('\n').map(|(_, rest)| rest), Some(nested));
    for (options, calls) in [
        (
            "--no-sched",
            "main() {\n  nap();\n  spin();\n} /* main */\n",
        ),
        (
            "--no-event",
            "main() {\n  nap();\n  spin();\n} /* main */\n",
        ),
        (
            "--no-sched-preempt",
            "main() {\n  nap() {\n    /* linux:schedule */\n  } /* nap */\n  spin();\n} /* main */\n",
        ),
        ("-F nap", "nap() {\n  /* linux:schedule */\n} /* nap */\n"),
        ("-F nap -D 1", "nap();\n"),
        (
            "-N nap",
            "main() {\n  /* linux:schedule (pre-empted) */\n  spin();\n  /* linux:schedule (pre-empted) */\n} /* main */\n",
        ),
        ("-C nap", "main() {\n  nap();\n} /* main */\n"),
        // Scheduling is no library call.
        ("-t 400ns --no-libcall", "/* linux:schedule */\n"),
        ("-t 600ns", "main() {\n  nap();\n  spin();\n} /* main */\n"),
        (
            "-t 400ns",
            "main() {\n  nap() {\n    /* linux:schedule */\n  } /* nap */\n  spin();\n} /* main */\n",
        ),
        (
            "--no-merge -F nap",
            "nap() {\n  /* linux:sched-out */\n  /* linux:sched-in */\n} /* nap */\n",
        ),
        ("--event-full -D 1", "/* linux:schedule */\nmain();\n"),
    ] {
        assert_eq!(made.calls(options), calls, "{options}");
    }
    assert!(made.shown("replay", "-f cpu").contains("    3 | main() {"));
}

#[test]
fn it_is_no_functions_own_time() {
    let made = made();
    let report = made.shown("report", "-s func --format csv -f total,self,call");
    for row in [
        "linux:schedule (pre-empted),350,350,2",
        "linux:schedule,500,500,1",
        "main,5000,2650,1",
        "nap,1000,500,1",
        "spin,1000,1000,1",
    ] {
        // Behind the name comes the function's number.
        let (name, rest) = row.split_once(',').expect("a name");
        let is_row = |line: &str| line.starts_with(&format!("{name},")) && line.ends_with(rest);
        assert!(report.lines().any(is_row), "{row}: {report}");
    }
    let flames = made.shown("dump", "--format flame-graph --sample-time 1ns");
    assert!(flames.contains("main;nap;linux:schedule 500\n"), "{flames}");
    let graph = made.shown("graph", "linux:schedule");
    assert!(
        graph.contains("backtrace #0: hit 1, time   0.500 us"),
        "{graph}"
    );
    let tasks = made.shown("report", "--task");
    assert!(
        tasks.contains("    5.000 us    4.150 us       7           6  program"),
        "{tasks}"
    );
    let chrome = made.shown("dump", "--format chrome");
    assert!(chrome.contains("\"name\":\"linux:schedule\""), "{chrome}");
    let flat = made.shown("replay", "--flat");
    assert!(
        flat.contains("!!! 7: linux:sched-out time (1001100)"),
        "{flat}"
    );
    let raw = made.shown("dump", "");
    assert!(
        raw.contains("[event] linux:sched-out (pre-empted)\n"),
        "{raw}"
    );
}

#[test]
fn damaged_switches_are_told_and_the_rest_is_read() {
    let made = made();
    let path = made.folder().join(directory::SWITCHES);
    let whole = std::fs::read(&path).expect("switches");
    for length in 0..whole.len() {
        std::fs::write(&path, &whole[..length]).expect("a file");
        let output = made.run("replay", "-f none");
        assert!(output.status.success());
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(
            text.matches("linux:schedule */").count(),
            usize::from(length >= 4 * 32)
        );
        let told = String::from_utf8_lossy(&output.stderr).contains("switches at byte");
        assert_eq!(told, length % 32 != 0, "{length}");
    }
    // Switches that overlap calls by more than clocks differ: others are missing between.
    let made = scripted("main( nap( a b c d e f g h i j k l m n o p q r s t u v w x y z ) )");
    let made = made.with_switches(&[(7, 1_001_500, Wait), (7, 1_053_500, In)]);
    let output = made.run("report", "");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("1 periods without a CPU overlap"), "{told}");
}

#[test]
fn a_thread_has_the_name_of_the_time() {
    let name = |time, name: &str| (7, time, TaskChange::Name(name.to_owned()));
    let made = made().with_tasks(&[name(1_001_300, "first"), name(1_003_500, "second")]);
    let shown = made.shown("replay", "-f task --no-merge --no-sched --no-event");
    let lines: Vec<&str> = shown.lines().skip(1).collect();
    let expected = [
        "         program | main() {",
        "         program |   nap() {",
        "           first |   } /* nap */",
        "           first |   spin() {",
        "          second |   } /* spin */",
        "          second | } /* main */",
    ];
    let ends = |line: &&str, expected: &&str| line.trim() == expected.trim();
    assert!(
        lines.len() == 6 && lines.iter().zip(&expected).all(|(a, b)| ends(a, b)),
        "{shown}"
    );
}

#[test]
fn what_becomes_of_threads_is_shown_where_it_happens() {
    let name = |name: &str| TaskChange::Name(name.to_owned());
    let made = made().with_tasks(&[
        // The changes are not in the order of time.
        (7, 1_005_500, TaskChange::Exit),
        (7, 900_000, TaskChange::New),
        (7, 1_001_300, name("a \"b\"\u{1b}")),
        (7, 1_002_500, name("c")),
        (7, 1_004_950, TaskChange::Exit),
        // This thread has no calls.
        (8, 1_001_000, TaskChange::New),
    ]);
    let shown = made.shown("replay", "");
    for line in [
        "            [     7] |     /* linux:task-name (comm=\"a \"b\"\\x1b\") */\n",
        "            [     7] |   /* linux:task-name (comm=\"c\") */\n",
        "            [     7] |   /* linux:task-exit */\n",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    assert_eq!(shown.matches("linux:task").count(), 3, "{shown}");
    for (options, calls) in [
        (
            "--no-event",
            "main() {\n  nap();\n  spin();\n} /* main */\n",
        ),
        (
            "--no-sched -N nap",
            "main() {\n  /* linux:task-name (comm=\"c\") */\n  spin();\n  /* linux:task-exit */\n} /* main */\n",
        ),
        (
            "--no-sched -N linux:task-name",
            "main() {\n  nap();\n  spin();\n  /* linux:task-exit */\n} /* main */\n",
        ),
        ("--no-sched -D 1 -F spin", "spin();\n"),
        (
            "--no-sched -t 1ns",
            "main() {\n  nap();\n  spin();\n} /* main */\n",
        ),
        (
            "--no-sched --no-merge -F main -N nap -N spin",
            "main() {\n  /* linux:task-name (comm=\"c\") */\n  /* linux:task-exit */\n} /* main */\n",
        ),
    ] {
        assert_eq!(made.calls(options), calls, "{options}");
    }
    let everywhere = made.calls("--event-full");
    let (first, last) = ("/* linux:task-new */\n", "/* linux:task-exit */\n");
    assert!(everywhere.starts_with(first), "{everywhere}");
    assert!(everywhere.ends_with(last), "{everywhere}");
    let flat = made.shown("replay", "--flat");
    assert!(
        flat.contains("!!! 7: linux:task-name (comm=\"c\") time (1002500)\n"),
        "{flat}"
    );
    let raw = made.shown("dump", "");
    assert!(raw.contains("7: [event] linux:task-exit\n"), "{raw}");
    let chrome = made.shown("dump", "--format chrome");
    let chrome: serde_json::Value = serde_json::from_str(&chrome).expect("JSON");
    let events = chrome["traceEvents"].as_array().expect("events");
    let named = events
        .iter()
        .find(|event| event["args"]["comm"] == "a \"b\"\u{1b}");
    assert_eq!(named.expect("a name")["ph"], "i");
    // Changes of threads are nobody's calls.
    for command in ["report", "graph"] {
        let shown = made.shown(command, "");
        assert!(!shown.contains("linux:task"), "{shown}");
    }
    let info = made.shown("info", "");
    assert!(info.contains("task events"), "{info}");
}

#[test]
fn cpus_are_those_on_which_calls_ran() {
    // At 1000 µs `main` begins, at 1001 `a`, at 1003 `b`, at 1004 `c`.
    let without = scripted("main( a b( c ) )");
    let made = scripted("main( a b( c ) )").with_switches_on(&[
        (7, 800_000, In, 9),
        (7, 850_000, Wait, 9),
        (7, 900_000, In, 1),
        (7, 1_002_500, Preempted, 1),
        (7, 1_002_600, In, 2),
        (7, 1_004_200, Wait, 2),
        (7, 1_004_300, In, 5),
        (7, 1_004_400, Wait, 5),
        (7, 1_004_500, In, 2),
    ]);
    let rows = |options: &str| -> Vec<String> {
        let shown = made.shown("report", &format!("--no-sched {options}"));
        // With `-f none` there is no heading.
        let rows = shown
            .lines()
            .filter(|row| !row.contains("===") && !row.contains("Function"));
        rows.map(|row| row.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect()
    };
    let fields = "-f cpu-count,cpu-mask,cpu-list";
    assert_eq!(
        rows(&format!("{fields} -s func")),
        [
            "1 0x2 1 a",
            "2 0x24 2,5 b",
            "2 0x24 2,5 c",
            "3 0x26 1-2,5 main"
        ]
    );
    // The keys are for all outputs.
    for (key, order) in [
        ("cpu-count,func", ["main", "b", "c", "a"]),
        ("cpu-mask,func", ["main", "b", "c", "a"]),
        ("cpu-list,call", ["main", "b", "c", "a"]),
    ] {
        assert_eq!(rows(&format!("-f none -s {key}")), order, "{key}");
    }
    // CPUs before the range do not count.
    assert_eq!(
        rows(&format!("{fields} -s func -r 3us~")),
        ["2 0x24 2,5 b", "2 0x24 2,5 c", "2 0x24 2,5 main"]
    );
    let csv = made.shown("report", &format!("--format csv {fields} -s func"));
    assert!(csv.starts_with("function,function_id,cpu_count,cpu_mask,cpu_list\n"));
    assert!(csv.contains(",3,0x26,\"1-2,5\"\n"), "{csv}");
    // Time in which nothing runs has no CPU.
    assert!(
        csv.contains("linux:schedule,") && csv.contains(",,,\n"),
        "{csv}"
    );
    let page = made.shown("report", &format!("--format html {fields}"));
    assert!(page.contains("1-2,5"), "{page}");
    let other = made.folder().to_str().expect("a path");
    let diff = made.shown("report", &format!("--diff {other} -f cpu-count"));
    assert!(diff.contains("            +0   main\n"), "{diff}");
    let wrong = made.run("report", &format!("--diff {other} -f cpu-list"));
    assert_eq!(wrong.status.code(), Some(2));
    let output = without.run("report", fields);
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("  -           -           -  main\n")
    );
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("record without --no-sched"), "{told}");
}
