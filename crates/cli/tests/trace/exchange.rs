//! Traces as uftrace's directories and back. Debian's uftrace shows of an export what dioptra shows of the trace.

use crate::made::{PROGRAM, Step, script, trace};
use dioptra_testprograms::{Language, Program, Skip, need_tool, or_skip};
use dioptra_tracelayout::SwitchKind;
use dioptra_tracelayout::record::UnwindCause;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs dioptra in a folder.
fn dioptra(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(PROGRAM.expect("the program"))
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("dioptra runs")
}

/// Runs dioptra, which must succeed; returns its standard output and standard error.
fn done(folder: &Path, arguments: &[&str]) -> (String, String) {
    let output = dioptra(folder, arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {err}");
    (out, err)
}

/// Returns what uftrace shows of the directory `data` in a folder.
fn uftrace(folder: &Path, data: &str, arguments: &[&str]) -> String {
    let output = Command::new("uftrace")
        .args(arguments)
        .args(["--no-pager", "-d", data])
        .current_dir(folder)
        .output()
        .expect("uftrace runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The rows of a report: total time, self time and calls, by function.
type Rows = BTreeMap<String, [String; 3]>;

/// Returns the rows of a report: total time, self time and calls by function.
fn rows(report: &str) -> Rows {
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        let mut time = || Some(format!("{} {}", words.next()?, words.next()?));
        let (total, own) = (time()?, time()?);
        let calls = words.next()?.to_owned();
        calls.parse::<u64>().ok()?;
        Some((words.collect::<Vec<_>>().join(" "), [total, own, calls]))
    };
    report.lines().filter_map(row).collect()
}

/// Exports a trace and returns what was said about it.
fn export(folder: &Path, trace: &str) -> String {
    done(
        folder,
        &["export", "--to", "uftrace", "-d", trace, "-o", "data"],
    )
    .1
}

/// Compares the functions, calls and times in both reports, and the lines of both replays. Functions that `but` names
/// may differ.
fn compare(folder: &Path, trace: &str, but: &[&str]) -> Rows {
    let without = |text: &str| {
        let mut rows = rows(text);
        rows.retain(|name, _| !but.contains(&name.as_str()));
        rows
    };
    // As uftrace does, `--fold` adds up the instances of a template.
    let ours = without(&done(folder, &["trace", "report", "--fold", "-d", trace]).0);
    let theirs = without(&uftrace(folder, "data", &["report"]));
    assert!(!ours.is_empty());
    assert_eq!(ours, theirs);
    // The table that profiles have is exact, as that of the trace is.
    let exact =
        |arguments: &[&str]| sums(&done(folder, &[arguments, &["--format", "json"]].concat()).0);
    assert_eq!(
        exact(&["report", "-i", trace]),
        exact(&["trace", "report", "-d", trace])
    );
    ours
}

/// Returns name, total time, self time and calls of each row of a table in JSON.
fn sums(json: &str) -> Vec<[String; 4]> {
    let table: serde_json::Value = serde_json::from_str(json).expect("JSON");
    let columns = table["columns"].as_array().expect("columns");
    let places = ["function", "total", "self", "calls"].map(|id| {
        let place = columns.iter().position(|column| column["id"] == id);
        place.expect("a column")
    });
    let rows = table["rows"].as_array().expect("rows").iter();
    let mut sums: Vec<_> = rows
        .map(|row| places.map(|place| row["cells"][place].to_string()))
        .collect();
    sums.sort();
    sums
}

/// Returns a replay's lines without the remarks of how calls ended.
fn replayed(text: &str) -> Vec<String> {
    let line = |line: &str| {
        let (head, remark) = line.split_once("/*").unwrap_or((line, ""));
        if head.trim_end().ends_with(';') {
            return head.trim_end().to_owned();
        }
        let name = remark.trim().trim_end_matches("*/");
        let name = name.split(':').next().unwrap_or(name).trim();
        format!("{} {name}", head.trim_end())
    };
    text.lines().map(line).collect()
}

#[test]
fn uftrace_shows_an_export_as_the_trace_is() {
    or_skip!(need_tool("uftrace"));
    let mut first = script("main( a( b( c c ) b ) a( b ) ", 1_000_000, 1_000);
    // Three calls left by an exception, then the end of `main`.
    first.extend(script("throws( throws( __cxa_throw(", 2_000_000, 500));
    first.push(Step::Unwound(2_100_000, UnwindCause::Exception, 3));
    // A gap. The ends behind it are known.
    first.push(Step::Lost(17));
    first.extend(script("c( c ) )", 2_200_000, 100));
    let second = script("worker( wait fib( fib( fib ) fib ) )", 1_500_000, 10_000);
    let made = trace(&[(7, first), (8, second)]).with_switches(&[
        (8, 1_512_000, SwitchKind::Wait),
        (8, 1_518_000, SwitchKind::In),
        (7, 1_002_100, SwitchKind::Preempted),
        (7, 1_002_900, SwitchKind::In),
    ]);
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let trace = made.folder().to_str().expect("a path").to_owned();
    let said = export(folder, &trace);
    assert!(said.contains("19 calls, 2 threads"), "{said}");
    assert!(said.contains("the cause of the end of 3 calls"), "{said}");
    let rows = compare(folder, &trace, &[]);
    assert_eq!(rows["fib"][2], "4");
    assert_eq!(
        rows["linux:schedule"],
        ["6.000 us", "6.000 us", "1"].map(str::to_owned)
    );
    let theirs = replayed(&uftrace(folder, "data", &["replay"]));
    let ours = replayed(&done(folder, &["trace", "replay", "-d", &trace]).0);
    assert_eq!(ours, theirs);
    assert!(uftrace(folder, "data", &["replay"]).contains("LOST 17 records"));
    // The other readers.
    let dump = uftrace(folder, "data", &["dump"]);
    assert_eq!(dump.matches("[entry]").count(), 19, "{dump}");
    assert_eq!(dump.matches("sched-out").count(), 2, "{dump}");
    assert!(uftrace(folder, "data", &["info"]).contains("# cmdline             : /bin/program"));
    assert!(uftrace(folder, "data", &["graph"]).contains("(2) fib"));
}

#[test]
fn an_export_says_what_it_leaves_out() {
    or_skip!(need_tool("uftrace"));
    let mut deep = Vec::new();
    for depth in 0..1030 {
        deep.push(Step::Enter(1_000 + depth, format!("d{}", depth % 7)));
    }
    for depth in 0..1030 {
        deep.push(Step::Leave(3_000 + depth));
    }
    // Two call stacks, of which the second one is a coroutine's.
    let mut stacks = script("main( a(", 1_000, 100);
    stacks.push(Step::Stack(2_000, 5));
    stacks.extend(script("step( leaf", 2_100, 100));
    stacks.push(Step::Stack(2_500, 0));
    stacks.extend(script(") b", 2_600, 100));
    stacks.push(Step::Stack(3_000, 5));
    stacks.extend(script("leaf ) ", 3_100, 100));
    stacks.push(Step::Stack(3_500, 0));
    stacks.extend(script("longjmp execve )", 3_600, 100));
    let made = trace(&[(7, deep), (8, stacks)]);
    let trace = made.folder().to_str().expect("a path").to_owned();
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let said = export(folder, &trace);
    for part in [
        "6 calls deeper than 1023",
        "1 call stack of a coroutine, which became a thread",
        "the name of 1 function that jumps",
        "the name of 1 call that did not end its program",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let names = ["d0", "d1", "d2", "d3", "d4", "d5", "d6"];
    let others = ["longjmp", "_longjmp", "execve", "__execve"];
    let rows = compare(folder, &trace, &[&names[..], &others[..]].concat());
    assert_eq!(rows["leaf"][2], "2");
    let theirs = rows_of_export(folder);
    let deep: u64 = names
        .iter()
        .map(|name| theirs[*name][2].parse::<u64>().unwrap())
        .sum();
    assert_eq!(deep, 1024);
    assert_eq!(theirs["_longjmp"][2], "1");
    assert_eq!(theirs["__execve"][2], "1");
    // The coroutine is a thread behind the others.
    assert!(folder.join("data/9.dat").exists());
}

fn rows_of_export(folder: &Path) -> Rows {
    rows(&uftrace(folder, "data", &["report"]))
}

#[test]
fn other_directories_are_left_alone() {
    let made = trace(&[(7, script("main", 1_000, 10))]);
    let trace = made.folder().to_str().expect("a path").to_owned();
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    fs::create_dir(folder.join("data")).expect("a folder");
    fs::write(folder.join("data/letter"), "dear").expect("a file");
    let arguments = ["export", "--to", "uftrace", "-d", &trace, "-o", "data"];
    let output = dioptra(folder, &arguments);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("exists and is something else"));
    fs::remove_file(folder.join("data/letter")).expect("a file");
    done(folder, &arguments);
    done(folder, &arguments);
    assert!(folder.join("data.old/info").exists() && folder.join("data/info").exists());
    assert_eq!(fs::read_dir(folder).expect("a folder").count(), 2);
    // Options of profiles are refused, since they would do nothing.
    for (more, what) in [
        (&["--comm", "x"][..], "--comm"),
        (&["--no-inline"], "--no-inline"),
        (&["--tid", "7"], "--tid"),
        (&["-N", "main"], "a rule about functions"),
        (&["-o", "-"], "standard output"),
    ] {
        let output = dioptra(folder, &[&arguments[..5], more].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(what), "{said}");
    }
}

/// Records a program with all functions patched, exports the trace and compares both reports.
fn recorded(
    language: Language,
    name: &str,
    arguments: &[&str],
    but: &[&str],
) -> Result<Rows, Skip> {
    need_tool("uftrace")?;
    let built = Program::new(language, name).build()?;
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let built = built.to_str().expect("a path");
    let command = ["trace", "record", "-P", ".", "-d", "trace", "--", built];
    done(folder, &[&command[..], arguments].concat());
    export(folder, "trace");
    Ok(compare(folder, "trace", but))
}

#[test]
fn recursion_is_the_same_in_both_tools() {
    let rows = or_skip!(recorded(
        Language::C,
        "recursion",
        &["20", "10", "12", "1"],
        &[]
    ));
    // Twice the 13th Fibonacci number, less one.
    assert_eq!(rows["fib"][2], "465");
    assert_eq!(rows["descend"][2], "200");
}

#[test]
fn exceptions_and_threads_are_the_same_in_both_tools() {
    // Calls that are still open when a thread ends in the C library have different ends in the two tools.
    let rows = or_skip!(recorded(
        Language::Cpp,
        "exceptions",
        &["2", "20", "4"],
        &[]
    ));
    assert_eq!(rows["guard::Guard::~Guard"][2], "160");
}

#[test]
fn forked_children_are_the_same_in_both_tools() {
    // uftrace counts the inherited call of `fork` again, and calls that are open to other ends.
    let but = ["main", "fork", "<0>", "exit", "_exit"];
    let rows = or_skip!(recorded(Language::C, "forks", &["3", "1"], &but));
    assert_eq!(rows["child_work"][2], "3");
}

/// Imports `data` and returns what was said about it.
fn import(folder: &Path) -> String {
    done(folder, &["import", "data", "-o", "imported"]).1
}

#[test]
fn an_export_that_is_imported_is_the_trace() {
    let mut first = script("main( a( b( c c ) b ) a( b ) ", 1_000_000, 1_000);
    first.push(Step::Lost(17));
    // A long pause, and calls whose times do not fit in short records.
    first.extend(script("slow( c ) fork(", 50_000_000, 100_000_000));
    let second = script("worker( wait fib( fib( fib ) fib ) )", 1_500_000, 10_000);
    let mut many = script("many(", 1_000, 10);
    for round in 0..40_000 {
        many.push(Step::Enter(2_000 + round * 7, format!("f{}", round % 50)));
        many.push(Step::Leave(2_003 + round * 7));
    }
    let made = trace(&[(7, many), (8, first), (9, second)]).with_switches(&[
        (9, 1_512_000, SwitchKind::Wait),
        (9, 1_518_000, SwitchKind::In),
    ]);
    let trace = made.folder().to_str().expect("a path").to_owned();
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    export(folder, &trace);
    let said = import(folder);
    assert!(said.contains("3 threads"), "{said}");
    assert!(!said.contains("lacks"), "{said}");
    // The ids of functions may differ.
    let csv = |data: &str| {
        let csv = done(folder, &["trace", "report", "--format", "csv", "-d", data]).0;
        let row = |line: &str| {
            let mut cells: Vec<String> = line.split(',').map(str::to_owned).collect();
            cells.remove(1);
            cells
        };
        csv.lines().map(row).collect::<Vec<_>>()
    };
    assert_eq!(csv(&trace), csv("imported"));
    for command in [
        &["report"][..],
        &["replay", "-f", "time,duration,tid"],
        &["graph"],
        &["replay", "--event-full", "-N", "many"],
    ] {
        let shown = |data: &str| done(folder, &[&["trace"], command, &["-d", data]].concat()).0;
        let (before, after) = (shown(&trace), shown("imported"));
        for (before, after) in before.lines().zip(after.lines()) {
            assert_eq!(before, after, "{command:?}");
        }
        assert_eq!(before.lines().count(), after.lines().count(), "{command:?}");
    }
}

/// Records a program of `tests/programs` with uftrace, imports the recording, and returns what was said with both
/// reports.
fn imported(name: &str, arguments: &[&str], options: &[&str]) -> Result<(String, [Rows; 2]), Skip> {
    need_tool("uftrace")?;
    let built =
        Program::new(Language::C, name).flags(["-pg", "-O1", "-fno-optimize-sibling-calls"]);
    let built = built.build()?;
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let recorded = Command::new("uftrace")
        .args(["record", "-d", "data"])
        .args(options)
        .arg(&built)
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("uftrace runs");
    if !folder.join("data/info").exists() {
        let said = String::from_utf8_lossy(&recorded.stderr).into_owned();
        return Err(Skip::new(format!("uftrace cannot record here: {said}")));
    }
    let said = import(folder);
    let ours = rows(&done(folder, &["trace", "report", "-d", "imported"]).0);
    let theirs = rows(&uftrace(folder, "data", &["report"]));
    // The other readers.
    for command in ["replay", "graph", "info", "dump"] {
        let shown = done(folder, &["trace", command, "-d", "imported"]).0;
        assert!(!shown.is_empty(), "{command}");
    }
    Ok((said, [ours, theirs]))
}

#[test]
fn recordings_of_uftrace_are_the_same_here() {
    let (_, [ours, theirs]) = or_skip!(imported("recursion", &["20", "10", "12", "1"], &[]));
    assert_eq!(ours, theirs);
    assert_eq!(ours["fib"][2], "465");
    let (_, [ours, theirs]) = or_skip!(imported("threads", &["3", "1"], &[]));
    assert_eq!(ours, theirs);
    assert_eq!(ours["thread_work"][2], "3");
}

#[test]
fn arguments_of_uftraces_recordings_are_passed_over() {
    let options = ["-A", "fib@arg1", "-R", "fib@retval", "-A", "descend@arg1"];
    let (said, [ours, theirs]) =
        or_skip!(imported("recursion", &["20", "10", "12", "1"], &options));
    assert_eq!(ours, theirs);
    assert!(said.contains("the arguments or return values of"), "{said}");
    assert!(!said.contains("bytes that are no records"), "{said}");
}

#[test]
fn forked_children_of_uftraces_recordings_are_the_same_here() {
    let (_, [mut ours, mut theirs]) = or_skip!(imported("forks", &["3", "1"], &[]));
    assert_eq!(ours["child_work"][2], "3");
    // uftrace counts the inherited call of `fork` again, and calls that are open to other ends.
    for name in ["main", "fork", "<0>", "exit", "_exit", "monitor"] {
        ours.remove(name);
        theirs.remove(name);
    }
    assert_eq!(ours, theirs);
}

#[test]
fn damaged_directories_are_imported_as_far_as_they_go() {
    let mut first = script("main( a( b( c c ) b ) a( b ) ", 1_000_000, 1_000);
    first.push(Step::Lost(17));
    first.extend(script("slow( c ) )", 50_000_000, 100_000));
    let second = script("worker( wait fib( fib( fib ) fib ) )", 1_500_000, 10_000);
    let made = trace(&[(7, first), (8, second)]).with_switches(&[
        (8, 1_512_000, SwitchKind::Wait),
        (8, 1_518_000, SwitchKind::In),
    ]);
    let trace = made.folder().to_str().expect("a path").to_owned();
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    export(folder, &trace);
    let whole: Vec<(std::path::PathBuf, Vec<u8>)> = fs::read_dir(folder.join("data"))
        .expect("a folder")
        .map(|entry| entry.expect("a file").path())
        .map(|path| (path.clone(), fs::read(path).expect("bytes")))
        .collect();
    let mut random: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut below = |most: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % most.max(1) as u64) as usize
    };
    let (mut good, mut said_lost) = (0, 0);
    for round in 0..300 {
        let (path, bytes) = &whole[below(whole.len())];
        let mut damaged = bytes.clone();
        match round % 4 {
            0 => damaged.truncate(below(bytes.len())),
            1 => {
                for _ in 0..=below(8) {
                    let place = below(damaged.len());
                    if let Some(byte) = damaged.get_mut(place) {
                        *byte = below(256) as u8;
                    }
                }
            }
            2 => {
                let place = below(damaged.len() + 1);
                let inserted: Vec<u8> = (0..below(40)).map(|_| below(256) as u8).collect();
                damaged.splice(place..place, inserted);
            }
            _ => {
                let place = below(damaged.len());
                let end = (place + 1 + below(48)).min(damaged.len());
                damaged.drain(place.min(end)..end);
            }
        }
        fs::write(path, &damaged).expect("a file");
        let output = dioptra(folder, &["import", "data", "-o", "imported"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        match output.status.code() {
            Some(0) => {
                good += 1;
                said_lost += u32::from(said.contains("the trace lacks"));
                if round % 10 == 0 {
                    done(folder, &["trace", "report", "-d", "imported"]);
                }
            }
            code => assert_eq!(code, Some(1), "{}: {said}", path.display()),
        }
        assert!(!said.contains("panicked"), "{}: {said}", path.display());
        fs::write(path, bytes).expect("a file");
    }
    assert!(good > 150 && said_lost > 20, "{good} {said_lost}");
    // A file with other content is refused.
    fs::write(folder.join("data/info"), "else").expect("a file");
    let output = dioptra(folder, &["import", "data", "-o", "imported"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("is no directory of uftrace's"));
}
