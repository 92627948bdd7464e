//! Arguments and return values: what `-A` and `-R` record of programs whose values are known.

use dioptra_testprograms::{Language, Program, Skip, need_tool, or_skip};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_dioptra");

/// The values of the functions that `calls` calls.
const CALLS: [&str; 4] = [
    "-A=add@arg1/i32,arg2/i32;many@arg1,arg4,arg8",
    "-A=small@arg1/i8,arg2/u16,arg3/x32;mixed@arg1/i32,fparg1,fparg2/32",
    "-R=add@retval/i32;many",
    "-R=small@retval/u8;mixed@retval/f64",
];

fn built(flags: &[&str]) -> Result<PathBuf, Skip> {
    let program = Program::new(Language::Cpp, "trace-values").no_flags();
    program
        .flags(["-g", "-O1", "-std=c++17", "-pthread"])
        .flags(flags)
        .build()
}

fn run(arguments: &[&str], folder: &Path) -> Output {
    Command::new(PROGRAM)
        .arg("trace")
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("dioptra runs")
}

/// Records a trace. Returns what the program and the recorder said.
fn recorded(options: &[&str], program: &Path, words: &[&str], folder: &Path) -> (String, String) {
    let program = program.to_str().expect("a path of UTF-8");
    let all = [
        &["record", "--no-event", "--no-libcall"],
        options,
        &[program],
        words,
    ];
    let output = run(&all.concat(), folder);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{options:?}: {said}");
    (text(&output.stdout), said)
}

/// Returns the lines of a replay without fields and indentation.
fn replayed(options: &[&str], folder: &Path) -> Vec<String> {
    let output = run(&[&["replay", "-f", "none"], options].concat(), folder);
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| line.trim().to_owned()).collect()
}

/// Returns the lines of the calls in rounds from `first` on.
fn rounds(first: i64, count: i64) -> Vec<String> {
    let round = |i: i64| {
        let many: i64 = (1..=8).map(|n| n * (i + n - 1)).sum();
        let small = (-i as i8 as i64 + i as u16 as i64 + i) as u8;
        let (x, y) = (i as f64 + 0.5, i as f32 + 0.25);
        let mixed = x * i as f64 + f64::from(y);
        [
            format!("add({i}, {}) = 0;", -i),
            format!("many({i}, {}, {}) = {};", i + 3, i + 7, word(many)),
            format!(
                "small({}, {}, {:#x}) = {small};",
                -i as i8, i as u16, i as u32
            ),
            format!("mixed({i}, {x:?}, {y:?}) = {mixed:?};"),
        ]
    };
    (first..first + count).flat_map(round).collect()
}

/// Returns the text of a word of unknown type.
fn word(number: i64) -> String {
    match number {
        -100_000..=100_000 => number.to_string(),
        _ => format!("{number:#x}"),
    }
}

/// Returns the lines that are calls without calls in them, except those of functions without values.
fn leaves(lines: &[String]) -> Vec<String> {
    let is_call = |line: &&String| line.ends_with(';') && !line.starts_with('}');
    lines.iter().filter(is_call).cloned().collect()
}

/// Calls of the main thread, of another thread and of a forked child, by every way in which calls are found.
#[test]
fn values_are_those_that_the_program_passes() {
    let methods: [&[&str]; 4] = [
        &["-fpatchable-function-entry=5"],
        &["-pg", "-mfentry"],
        &["-pg"],
        &[],
    ];
    for flags in methods {
        let program = or_skip!(built(flags));
        let folder = tempfile::tempdir().expect("a folder");
        recorded(&CALLS, &program, &["calls", "7"], folder.path());
        let expected = [rounds(1, 7), rounds(1000, 7), rounds(2000, 7)].concat();
        // A thread's and a child's calls may stand between those of the others.
        let mut found = leaves(&replayed(&[], folder.path()));
        let mut expected: Vec<String> = expected;
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "{flags:?}");
    }
}

/// Many records, so that they go through many chunks, and chunks end at each kind of record.
#[test]
fn values_stay_with_their_calls_in_many_chunks() {
    const ROUNDS: i64 = 20_000;
    let program = or_skip!(built(&["-fpatchable-function-entry=5"]));
    let folder = tempfile::tempdir().expect("a folder");
    let count = ROUNDS.to_string();
    recorded(&CALLS, &program, &["calls", &count], folder.path());
    let dump = run(&["dump"], folder.path());
    let text = String::from_utf8_lossy(&dump.stdout);
    let mut streams = 0;
    for stream in text.split("reading stream").skip(1) {
        let entries = stream
            .lines()
            .filter_map(|line| line.split_once(" args: ("));
        let entries: Vec<&str> = entries.map(|(_, values)| values).collect();
        let exits = stream
            .lines()
            .filter_map(|line| line.split_once(" retval: "));
        let exits: Vec<&str> = exits.map(|(_, value)| value).collect();
        let first: i64 = entries[0].split(',').next().unwrap().parse().unwrap();
        let calls = rounds(first, ROUNDS);
        assert_eq!((entries.len(), exits.len()), (calls.len(), calls.len()));
        for ((call, entry), exit) in calls.iter().zip(entries).zip(exits) {
            let (_, values) = call.split_once('(').unwrap();
            assert_eq!(format!("{entry} = {exit};"), values);
        }
        streams += 1;
    }
    assert_eq!(streams, 3);
}

/// Calls that the rules hide, count, judge or time carry the same values.
#[test]
fn values_do_not_depend_on_filters() {
    let program = or_skip!(built(&["-fpatchable-function-entry=5"]));
    let all = leaves(&{
        let folder = tempfile::tempdir().expect("a folder");
        recorded(&CALLS, &program, &["calls", "9"], folder.path());
        replayed(&[], folder.path())
    });
    let every = |function: &str, interval: usize| -> Vec<String> {
        let of = all.iter().filter(|line| line.starts_with(function));
        let of: Vec<&String> = of.collect();
        // Each thread counts by itself.
        let threads = of.chunks(9).flat_map(|thread| {
            let chosen = thread.iter().skip(interval - 1).step_by(interval);
            chosen.map(|line| (*line).clone()).collect::<Vec<_>>()
        });
        threads.collect()
    };
    let only = |functions: &[&str]| -> Vec<String> {
        let is_of = |line: &&String| functions.iter().any(|f| line.starts_with(f));
        all.iter().filter(is_of).cloned().collect()
    };
    for (options, expected) in [
        (&["-F", "add"][..], only(&["add("])),
        (
            &["-F", "add", "-F", "mixed@sample=3"],
            [only(&["add("]), every("mixed(", 3)].concat(),
        ),
        (
            &["-T", "many@sample=2"],
            [only(&["add(", "small(", "mixed("]), every("many(", 2)].concat(),
        ),
        (&["-N", "many"], only(&["add(", "small(", "mixed("])),
        (&["-H", "small"], only(&["add(", "many(", "mixed("])),
        (&["-D", "9"], all.clone()),
        (&["-t", "1ns"], all.clone()),
        (&["--clock", "mono"], all.clone()),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        recorded(
            &[options, &CALLS].concat(),
            &program,
            &["calls", "9"],
            folder.path(),
        );
        let mut found = leaves(&replayed(&[], folder.path()));
        let mut expected = expected;
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "{options:?}");
    }
}

#[test]
fn texts_are_bounded_and_bad_pointers_are_shown_as_such() {
    let program = or_skip!(built(&["-fpatchable-function-entry=5"]));
    let folder = tempfile::tempdir().expect("a folder");
    let options = [
        "-A=text@arg1/s;looked_at@arg1/s4;string_size@arg1/S",
        "-R=text@retval/s10;string_size@retval/i32",
    ];
    recorded(&options, &program, &["texts"], folder.path());
    let long = "x".repeat(64);
    let expected = [
        r#"text("hello") = "hello";"#.to_owned(),
        r#"text("") = "";"#.to_owned(),
        "text(NULL) = NULL;".to_owned(),
        r#"text("tab\t\"quoted\"") = "tab\t\"quote"...;"#.to_owned(),
        format!(r#"text("{long}"...) = "xxxxxxxxxx"...;"#),
        r#"string_size("short") = 5;"#.to_owned(),
        format!(r#"string_size("{long}"...) = 200;"#),
        r#"string_size("a\0b") = 3;"#.to_owned(),
        r#"text("edge") = "edge";"#.to_owned(),
        r#"looked_at("eeee"...);"#.to_owned(),
    ];
    assert_eq!(leaves(&replayed(&[], folder.path())), expected);

    let hostile = ["hostile", "3000"];
    let plain = Command::new(&program).args(hostile).output().expect("runs");
    let options = [
        "-A=looked_at@arg1/s,arg2/S,arg3/s480",
        "-R=looked_at@retval/S",
        "-F=looked_at",
    ];
    let (out, _) = recorded(&options, &program, &hostile, folder.path());
    assert_eq!(out.as_bytes(), plain.stdout);
    let lines = leaves(&replayed(&[], folder.path()));
    assert_eq!(lines.len(), 6000);
    let unreadable = lines
        .iter()
        .filter(|line| line.starts_with("looked_at(<0x"));
    assert!(unreadable.count() > 2000);
}

#[test]
fn calls_that_end_in_another_way_have_their_own_values() {
    let program = or_skip!(built(&["-fpatchable-function-entry=5"]));
    let folder = tempfile::tempdir().expect("a folder");
    let options = [
        "-A=tail|last|catcher|thrower|jumper@arg1/i32",
        "-R=tail|last|catcher|thrower|jumper@retval/i32",
    ];
    recorded(&options, &program, &["ends"], folder.path());
    let mut expected = vec!["main() {".to_owned()];
    for i in 0..4 {
        let mut add = |line: String| expected.push(line);
        add(format!("tail({i}) {{"));
        add(format!("last({}) = {};", i + 10, i + 11));
        add(format!("}} = {}; /* tail */", i + 11));
        add(format!("catcher({i}) {{"));
        if i % 2 == 1 {
            add(format!("thrower({i}); /* left by an exception */"));
            add(format!("}} = {}; /* catcher */", -i));
        } else {
            add(format!("thrower({i}) = {i};"));
            add(format!("}} = {i}; /* catcher */"));
        }
        if i == 0 {
            add("jumper(0) = 0;".to_owned());
        } else {
            add(format!("jumper({i}); /* jumped out of */"));
            add(format!("last({}) = {};", -i, 1 - i));
        }
    }
    expected.push("} /* main */".to_owned());
    assert_eq!(replayed(&[], folder.path()), expected);
}

/// A library call's values are those of the function that is called.
#[test]
fn library_calls_carry_values() {
    let program = or_skip!(built(&["-fpatchable-function-entry=5"]));
    let folder = tempfile::tempdir().expect("a folder");
    let program = program.to_str().expect("a path of UTF-8");
    let options = [
        "record",
        "--no-event",
        "-A=atoi@arg1/s",
        "-R=atoi@retval/i32",
    ];
    // `atoi` is `strtol` to the compiler.
    let strtol = ["-A=strtol@arg1/s,arg3/i32", "-R=strtol@retval"];
    let output = run(
        &[&options[..], &strtol, &[program, "calls", "12"]].concat(),
        folder.path(),
    );
    assert!(output.status.success());
    let lines = replayed(&[], folder.path());
    let is_shown =
        |line: &String| line == r#"strtol("12", 10) = 12;"# || line == r#"atoi("12") = 12;"#;
    assert!(lines.iter().any(is_shown), "{lines:#?}");
}

#[test]
fn functions_whose_values_cannot_be_had_are_named() {
    let program = or_skip!(built(&["-finstrument-functions"]));
    let folder = tempfile::tempdir().expect("a folder");
    let (_, said) = recorded(&["-A=add@arg1"], &program, &["calls", "1"], folder.path());
    assert!(
        said.contains("arguments and return values are not recorded of 1 of the functions"),
        "{said}"
    );
    let lines = replayed(&[], folder.path());
    assert!(lines.contains(&"add();".to_owned()), "{lines:#?}");
}

/// Scripts get values as Python's own, and exports say that they have none.
#[test]
fn scripts_get_values_and_exports_say_that_they_have_none() {
    or_skip!(need_tool("python3"));
    let program = or_skip!(built(&["-fpatchable-function-entry=5"]));
    let folder = tempfile::tempdir().expect("a folder");
    let options = [
        "-A=text@arg1/s;add@arg1/i32,arg2/i32",
        "-R=text@retval/s10;add@retval/i32",
    ];
    recorded(&options, &program, &["calls", "2"], folder.path());
    let script = "def uftrace_entry(ctx):\n    print(ctx['name'], ctx.get('args'))\n\
                  def uftrace_exit(ctx):\n    print(ctx['name'], ctx.get('retval'))\n\
                  UFTRACE_FUNCS = ['add']\n";
    std::fs::write(folder.path().join("s.py"), script).expect("a script");
    let output = run(&["script", "-S", "s.py"], folder.path());
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    let mut expected: Vec<String> = [1, 2, 1000, 1001, 2000, 2001]
        .iter()
        .flat_map(|i| [format!("add [{i}, -{i}]"), "add 0".to_owned()])
        .collect();
    expected.sort();
    assert_eq!(
        lines,
        expected,
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );

    recorded(&options, &program, &["texts"], folder.path());
    let script = script.replace("'add'", "'text'");
    std::fs::write(folder.path().join("s.py"), script).expect("a script");
    let output = run(&["script", "-S", "s.py"], folder.path());
    let text = String::from_utf8_lossy(&output.stdout);
    let first = "text ['hello']\ntext hello\ntext ['']\ntext \ntext [None]\ntext None\n";
    assert!(text.starts_with(first), "{text}");

    for format in ["collapsed", "uftrace"] {
        let export = Command::new(PROGRAM)
            .args(["export", "--to", format, "-d", "dioptra.trace", "-o", "out"])
            .current_dir(folder.path())
            .output()
            .expect("dioptra runs");
        let said = String::from_utf8_lossy(&export.stderr);
        let wanted = "the arguments and return values of 2 functions are not written";
        assert!(
            export.status.success() && said.contains(wanted),
            "{format}: {said}"
        );
        let _ = std::fs::remove_file(folder.path().join("out"));
    }
}

/// Debian's uftrace records the same values of the same program.
#[test]
fn uftrace_records_the_same_values() {
    or_skip!(need_tool("uftrace"));
    let program = or_skip!(built(&["-pg"]));
    let folder = tempfile::tempdir().expect("a folder");
    let options = [
        "-A",
        "add@arg1/i32,arg2/i32",
        "-R",
        "add@retval/i32",
        "-F",
        "rounds",
    ];
    let ours = [
        &options[..],
        &["-A", "many@arg1,arg2,arg6", "-R", "many@retval"],
    ]
    .concat();
    let recorded_there = Command::new("uftrace")
        .args(["record", "--no-event", "--no-libcall", "-d", "theirs"])
        .args(&ours)
        .arg(&program)
        .args(["calls", "20"])
        .current_dir(folder.path())
        .output()
        .expect("uftrace runs");
    assert!(recorded_there.status.success());
    let replay = Command::new("uftrace")
        .args(["replay", "--no-pager", "-f", "none", "-d", "theirs"])
        .current_dir(folder.path())
        .output()
        .expect("uftrace runs");
    let theirs = String::from_utf8_lossy(&replay.stdout);
    let theirs: Vec<String> = theirs.lines().map(|line| line.trim().to_owned()).collect();
    recorded(&ours, &program, &["calls", "20"], folder.path());
    let of = |lines: &[String]| -> Vec<String> {
        let is_of = |line: &&String| line.starts_with("add(") || line.starts_with("many(");
        let mut lines: Vec<String> = lines.iter().filter(is_of).cloned().collect();
        lines.sort();
        lines
    };
    let (ours, theirs) = (of(&replayed(&[], folder.path())), of(&theirs));
    assert_eq!(ours.len(), 120);
    assert_eq!(ours, theirs);
}

/// The calls of `trace-typed.cpp`, as `-a` shows them.
const TYPED: [&str; 18] = [
    "add(a: -3, b: 200, c: true) = 198;",
    "mix(x: 1.5, f: 2.25, n: 7, s: \"hi\") = 11.75;",
    "mixed_color(c: green, o: more) = blue;",
    "mixed_color(c: red, o: less) = red;",
    "swapped(p: Point{x: 1, y: -2}) = Point{x: -2, y: 1};",
    "two(d: Doubles{a: 1.5, b: 2.5}, m: Mixed{n: 3, d: 4.5}) = Doubles{a: 7.0, b: 4.5};",
    "four(f: Floats{a: 0.5, b: 1.5, p: Point{x: -1, y: 4}}, last: 9) = 14.0;",
    "grown(b: Large{a: 1, b: 2, c: 3, d: 4}, k: 10) = Large{a: 11, b: 2, c: 3, d: 4};",
    "joined(s: \"one\", t: \"two\", v: \"three\") = \"onetwothree\";",
    "counted(o: Counted{value: 9}, small: -5, u: 65535) = 65539;",
    "nested(o: Outer{inner: Counted{value: 9}}, c: 'x') = 129;",
    "Counted::plus(this: 0x, k: 3) = 12;",
    "text(a: \"abc\\n\", c: 'q', out: 0x0) = \"abc\\n\";",
    "many(a: 1, b: 2, c: 3, d: 4, e: 5, f: 6, p: Point{x: 7, y: 8}, h: 9, x: 1.25) = 38;",
    "owned(p: unique_ptr{}, n: 5) = 9;",
    "variadic(f: \"%d\") = 1;",
    "ns::twice(t: 2.5) = 5.0;",
    "ns::twice(t: 4) = 8;",
];

/// Returns a line of a replay without the digits of addresses, which differ from run to run.
fn without_addresses(line: &str) -> String {
    let mut kept = String::new();
    let mut rest = line;
    while let Some(at) = rest.find("0x7").or_else(|| rest.find("0x5")) {
        let digits = rest[at + 2..].trim_start_matches(|c: char| c.is_ascii_hexdigit());
        kept += &rest[..at + 2];
        rest = digits;
    }
    kept + rest
}

#[test]
fn declared_types_say_what_is_recorded() {
    for flags in [&["-O0"][..], &["-O2"], &["-O2", "-gdwarf-4"]] {
        let program = Program::new(Language::Cpp, "trace-typed").no_flags();
        let program = program.flags(["-g", "-std=c++17"]).flags(flags).build();
        let program = or_skip!(program);
        let folder = tempfile::tempdir().expect("a folder");
        let names = "-P=^(add|mix|mixed_color|swapped|two|four|grown|joined|counted|nested|Counted::plus|text|many|owned|variadic|ns::twice)";
        recorded(&["-a", names], &program, &[], folder.path());
        let lines = replayed(&[], folder.path());
        let lines: Vec<String> = lines.iter().map(|line| without_addresses(line)).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        assert_eq!(lines, TYPED, "{flags:?}");
    }
}

#[test]
fn types_of_rust_are_known() {
    let program = Program::new(Language::Rust, "trace-typed").flags(["-Copt-level=2", "-g"]);
    let program = or_skip!(program.build());
    let folder = tempfile::tempdir().expect("a folder");
    let names = "-P=::(text|sum|kind|part|letter)$";
    recorded(&["-a", names], &program, &[], folder.path());
    let lines = replayed(&[], folder.path());
    let bare: Vec<&str> = lines
        .iter()
        .map(|line| {
            line.split_once("::")
                .map_or(line.as_str(), |(_, rest)| rest)
        })
        .collect();
    let expected = [
        "text(s: \"héllo\", n: 3) = 9;",
        "sum(v: [1, 2, 300], on: true) = 303;",
        "kind(k: Two, x: 1.5) = 3.0;",
        "part(s: \"abc\") = \"bc\";",
        "letter(c: 97, i: -7) = 90;",
    ];
    assert_eq!(bare, expected);
}

#[test]
fn without_debug_information_calls_are_recorded_without_values() {
    let program = Program::new(Language::Cpp, "trace-typed").no_flags();
    let program = or_skip!(program.flags(["-O1", "-std=c++17"]).build());
    let folder = tempfile::tempdir().expect("a folder");
    recorded(&["-a", "-P=^add"], &program, &[], folder.path());
    assert_eq!(replayed(&[], folder.path()), ["add();"]);
}

#[test]
fn exports_of_calls_have_their_values() {
    let program = Program::new(Language::Cpp, "trace-typed").no_flags();
    let program = or_skip!(program.flags(["-g", "-O1", "-std=c++17"]).build());
    let folder = tempfile::tempdir().expect("a folder");
    recorded(
        &["-a", "-P=^(mix|add|joined)$"],
        &program,
        &[],
        folder.path(),
    );
    let exported = |format: &str| {
        let output = Command::new(PROGRAM)
            .args(["export", "--to", format, "-d", "dioptra.trace", "-o", "-"])
            .current_dir(folder.path())
            .output()
            .expect("dioptra runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{format}: {said}");
        (output.stdout, said)
    };
    let (text, said) = exported("chrome");
    assert!(!said.contains("not written"), "{said}");
    let file: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    let events = file["traceEvents"].as_array().expect("events");
    let args = |phase: &str, name: &str| {
        let mut events = events.iter();
        let event = events.find(|event| event["ph"] == phase && event["name"] == name);
        event.expect("an event")["args"].clone()
    };
    let expected = serde_json::json!({ "a": -3, "b": 200, "c": true });
    assert_eq!(args("B", "add"), expected);
    assert_eq!(args("E", "add"), serde_json::json!({ "retval": 198 }));
    let expected = serde_json::json!({ "x": 1.5, "f": 2.25, "n": 7, "s": "hi" });
    assert_eq!(args("B", "mix"), expected);
    let joined = serde_json::json!({ "retval": "onetwothree" });
    assert_eq!(args("E", "joined"), joined);
    // Formats that sum up calls have no place for the values of one.
    let (_, said) = exported("collapsed");
    assert!(said.contains("3 functions are not written"), "{said}");
}
