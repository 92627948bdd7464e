//! Patterns and the names of C++ functions; the functions that `-P` adds to those that a compiler has prepared.

use super::{dioptra, text};
use dioptra_testprograms::{Language, Program, Skip, need_tool, or_skip};
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = r#"namespace ns {
struct A { A(int); int bar2(int, char const*); int v; };
__attribute__((noinline)) A::A(int x) { v = x; asm volatile(""); }
__attribute__((noinline)) int A::bar2(int x, char const* s) { asm volatile(""); return v + x + s[0]; }
template <class T> __attribute__((noinline)) T tw(T x) { asm volatile(""); return x * 2; }
}
__attribute__((noinline)) long leaf(long x) { asm volatile(""); return x + 1; }
int main() {
  ns::A a(3);
  int r = a.bar2(2, "x");
  r += ns::tw<int>(r);
  r += (int)ns::tw<long>(r);
  r += (int)leaf(r);
  return r == 0;
}
"#;

fn build(folder: &Path, flags: &[&str]) -> Result<PathBuf, Skip> {
    let source = folder.join("names.cpp");
    std::fs::write(&source, SOURCE).unwrap();
    Program::from_source(Language::Cpp, source)
        .no_flags()
        .flags(["-O1", "-g"])
        .flags(flags.iter().copied())
        .build()
}

/// Returns the calls of a replay, one name a line, in the order of their entries.
fn entered(shown: &str) -> Vec<String> {
    let lines = shown.lines().map(str::trim);
    let lines = lines.filter(|line| !line.starts_with('}') && !line.starts_with('#'));
    let name = |line: &str| line.trim_end_matches([' ', '{', ';', '(', ')']).to_owned();
    let names = lines.map(name);
    // Functions that start and end programs are left out.
    let is_own = |name: &String| !name.starts_with("__") && !name.starts_with("/*");
    names
        .filter(is_own)
        .filter(|name| !name.is_empty())
        .collect()
}

const BAR: &[&str] = &["ns::A::bar2"];
const TW: &[&str] = &["ns::tw", "ns::tw"];
const ALL: [&str; 6] = [
    "main",
    "ns::A::A",
    "ns::A::bar2",
    "ns::tw",
    "ns::tw",
    "leaf",
];
const NO_CONSTRUCTOR: &[&str] = &["main", "ns::A::bar2", "ns::tw", "ns::tw", "leaf"];
const NO_BAR: &[&str] = &["main", "ns::A::A", "ns::tw", "ns::tw", "leaf"];

/// Options, the functions that they show, and whether uftrace knows these names, too.
const CASES: [(&[&str], &[&str], bool); 12] = [
    (&["-F", "bar2$"], BAR, true),
    (&["-F", "^ns::A::bar2$"], BAR, true),
    (&["-N", "A::A$"], NO_CONSTRUCTOR, true),
    (&["-C", "bar2$"], &["main", "ns::A::bar2"], true),
    (&["-H", "bar2$"], NO_BAR, true),
    (&["-F", "ns::tw"], TW, true),
    (&["-F", "^ns::tw$"], TW, true),
    (&["--match", "glob", "-F", "ns::A::b*"], BAR, true),
    (&["-F", "ns::tw<int>"], &["ns::tw"], false),
    (&["-F", "int ns::tw<int>(int)"], &["ns::tw"], false),
    (&["-F", "ns::A::bar2(int, char const*)"], BAR, false),
    (&["-F", "_ZN2ns1A4bar2EiPKc"], BAR, false),
];

#[test]
fn patterns_match_simple_qualified_and_full_names() {
    let folder = tempfile::tempdir().unwrap();
    let program = or_skip!(build(folder.path(), &["-pg", "-mfentry"]));
    let program = program.to_str().unwrap();
    let shown = |arguments: &[&str]| {
        let output = dioptra(arguments, folder.path());
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
        entered(&text(&output.stdout))
    };
    let record = ["record", "--no-sched", "-d", "all", program];
    shown(&record);
    assert_eq!(shown(&["replay", "-d", "all", "-f", "none"]), ALL);
    for (options, expected, _) in CASES {
        let replay = [&["replay", "-d", "all", "-f", "none"], options].concat();
        assert_eq!(shown(&replay), expected, "{options:?}, at reading");
        let live = [options, &["--no-sched", "-f", "none", program]].concat();
        assert_eq!(shown(&live), expected, "{options:?}, at recording");
    }
    if let Err(skip) = need_tool("uftrace") {
        return skip.print();
    }
    let uftrace = |arguments: &[&str]| {
        let mut command = Command::new("uftrace");
        let output = command.args(arguments).current_dir(folder.path()).output();
        let output = output.unwrap();
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
        entered(&text(&output.stdout))
    };
    uftrace(&["record", "--no-event", "-d", "theirs", program]);
    for (options, expected, is_known) in CASES {
        if is_known {
            let replay = [&["replay", "-d", "theirs", "-f", "none"], options].concat();
            assert_eq!(uftrace(&replay), expected, "{options:?}, uftrace");
        }
    }
}

#[test]
fn instances_of_a_template_are_told_apart_or_added_up() {
    let folder = tempfile::tempdir().unwrap();
    let program = or_skip!(build(folder.path(), &["-pg", "-mfentry"]));
    let program = program.to_str().unwrap();
    let recorded = dioptra(
        &["record", "--no-sched", "-F", "ns::tw", program],
        folder.path(),
    );
    let told = text(&recorded.stderr);
    assert!(told.contains("2 calls of 2 functions in "), "{told}");
    let rows = |options: &[&str]| {
        let report = [&["report", "-f", "call", "-s", "func"], options].concat();
        let shown = text(&dioptra(&report, folder.path()).stdout);
        let rows = shown.lines().skip(2);
        let words = rows.map(|row| row.split_whitespace().collect::<Vec<_>>().join(" "));
        words.collect::<Vec<String>>()
    };
    assert_eq!(rows(&[]), ["1 ns::tw<int>", "1 ns::tw<long>"]);
    assert_eq!(rows(&["--fold"]), ["2 ns::tw"]);
    assert_eq!(
        rows(&["--demangle", "full"]),
        ["1 int ns::tw<int>(int)", "1 long ns::tw<long>(long)"]
    );
    let recorded = dioptra(
        &["record", "--no-sched", "-F", "leaf", program],
        folder.path(),
    );
    let told = text(&recorded.stderr);
    assert!(told.contains("1 call of 1 function in "), "{told}");
}

/// Functions whose heads take several lines, and the lines of their names.
const HEADS: &str = r#"struct S { int of(int x); };
__attribute__((noinline)) int
S::of(
    int x)
{
  asm volatile("");
  return x + 1;
}
template <class T>
__attribute__((noinline)) T
twice(T x,
      T y)
{
  asm volatile("");
  return x * y;
}
int main()
{
  S s;
  return s.of(1) + twice<int>(1, 2) == 0;
}
"#;

#[test]
fn source_lines_are_those_of_declarations() {
    const LINES: [(&str, u32); 3] = [("S::of", 3), ("twice", 11), ("main", 17)];
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("heads.cpp");
    std::fs::write(&source, HEADS).unwrap();
    for version in ["-gdwarf-5", "-gdwarf-4"] {
        let program = Program::from_source(Language::Cpp, &source).no_flags();
        let program = or_skip!(program.flags(["-O1", version, "-pg", "-mfentry"]).build());
        let program = program.to_str().unwrap();
        let recorded = dioptra(&["record", "--no-sched", program], folder.path());
        assert!(recorded.status.success(), "{}", text(&recorded.stderr));
        let report = text(&dioptra(&["report", "--srcline"], folder.path()).stdout);
        for (name, line) in LINES {
            let ending = format!("  {name} [{}:{line}]", source.display());
            assert!(
                report.lines().any(|row| row.ends_with(&ending)),
                "{ending}: {report}"
            );
        }
        if let Err(skip) = need_tool("uftrace") {
            skip.print();
            continue;
        }
        let record = ["record", "--no-event", "--srcline", "-d", "theirs", program];
        let uftrace = |arguments: &[&str]| {
            let mut command = Command::new("uftrace");
            text(
                &command
                    .args(arguments)
                    .current_dir(folder.path())
                    .output()
                    .unwrap()
                    .stdout,
            )
        };
        uftrace(&record);
        let theirs = uftrace(&["report", "--srcline", "-d", "theirs"]);
        // uftrace gives definitions outside of classes the first instruction's line, and instances of templates none.
        let (_, line) = LINES[2];
        let row = theirs.lines().find(|row| row.contains("  main "));
        let is_same = row.is_some_and(|row| row.ends_with(&format!(":{line}]")));
        assert!(is_same, "{theirs}");
    }
}

#[test]
fn patterns_of_patches_match_these_names_too() {
    let folder = tempfile::tempdir().unwrap();
    // In an optimized program one of the functions is too short to be patched.
    let program = or_skip!(build(folder.path(), &["-O0"]));
    let program = program.to_str().unwrap();
    for (pattern, expected) in [
        ("bar2$", BAR),
        ("ns::A::bar2", BAR),
        ("ns::tw", TW),
        ("ns::tw<long>", &["ns::tw"][..]),
        ("long ns::tw<long>(long)", &["ns::tw"][..]),
    ] {
        let live = ["-P", pattern, "--no-sched", "-f", "none", program];
        let live = dioptra(&live, folder.path());
        let (shown, told) = (text(&live.stdout), text(&live.stderr));
        assert_eq!(entered(&shown), expected, "{pattern}: {told}");
    }
}

#[test]
fn patches_are_added_to_functions_that_call_the_tracer() {
    let folder = tempfile::tempdir().unwrap();
    or_skip!(need_tool("gcc"));
    let library = "__attribute__((noinline)) int q2(int x) { asm volatile(\"\"); return x + 2; }
        int q1(int x) { return q2(x) + 1; }";
    let program = "int q1(int);
        __attribute__((noinline)) int b(int x) { asm volatile(\"\"); return x + 1; }
        __attribute__((noinline)) int a(int x) { return b(x) + 1; }
        int main(void) { return q1(a(2)) == 0; }";
    let shell = |script: &str| {
        let status = Command::new("sh")
            .args(["-c", script])
            .current_dir(folder.path())
            .status();
        assert!(status.unwrap().success(), "{script}");
    };
    std::fs::write(folder.path().join("q.c"), library).unwrap();
    std::fs::write(folder.path().join("m.c"), program).unwrap();
    shell("gcc -O1 -shared -fPIC q.c -o libq.so");
    let whole: &[&str] = &["main", "a", "b", "q1"];
    let chosen = [
        (&["-P", "nosuch"][..], whole, &["q1"][..]),
        (&["-P", "b"], whole, &["b", "q1"]),
        (
            &["-P", ".@libq", "-U", "q2"],
            &["main", "a", "b", "q1", "q1"],
            &["q1", "q1"],
        ),
    ];
    let has_uftrace = need_tool("uftrace").is_ok();
    // With some flags each function calls the tracer in any case, with others it only has space for a hook.
    for (flags, always) in [
        ("-pg", true),
        ("-finstrument-functions", true),
        ("-pg -mfentry", false),
        ("-fpatchable-function-entry=5", false),
    ] {
        shell(&format!("gcc -O1 {flags} m.c -o m -L. -lq -Wl,-rpath,$PWD"));
        for (patches, added, named) in chosen {
            let expected = if always { added } else { named };
            let options = ["--no-sched", "-f", "none", "./m"];
            let live = dioptra(&[patches, &options].concat(), folder.path());
            let (shown, told) = (text(&live.stdout), text(&live.stderr));
            assert_eq!(entered(&shown), expected, "{flags} {patches:?}: {told}");
            // uftrace shows functions twice that are both instrumented and patched.
            if has_uftrace && (flags != "-finstrument-functions" || patches == ["-P", "nosuch"]) {
                let options = ["--no-event", "--no-pager", "-f", "none", "./m"];
                let mut command = Command::new("uftrace");
                command
                    .args(patches)
                    .args(options)
                    .current_dir(folder.path());
                let theirs = entered(&text(&command.output().unwrap().stdout));
                assert_eq!(theirs, expected, "{flags} {patches:?}: uftrace");
            }
        }
    }
}

/// A table of functions that was cut gives no function another one's name: calls of lost functions are no kernel
/// events.
#[test]
fn a_cut_table_of_functions_gives_no_wrong_names() {
    let folder = tempfile::tempdir().unwrap();
    let program = or_skip!(build(folder.path(), &["-pg"]));
    let trace = folder.path().join("trace");
    let program = program.to_str().unwrap();
    let recorded = dioptra(&["record", "-d", "trace", program], folder.path());
    let said = String::from_utf8_lossy(&recorded.stderr);
    // Each message is a line of its own.
    assert!(said.contains("\ndioptra: functions patched: "), "{said}");
    assert!(!said.contains("\\n"), "{said}");
    let events = || {
        let report = ["report", "--format", "csv", "-f", "call", "-d", "trace"];
        let output = dioptra(&report, folder.path());
        let table = String::from_utf8(output.stdout).unwrap();
        let lines = table.lines().filter(|line| line.contains("linux:"));
        (
            lines.map(str::to_owned).collect::<Vec<_>>(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (whole, _) = events();
    let functions = trace.join("functions");
    let table = std::fs::read(&functions).unwrap();
    std::fs::write(&functions, &table[..24]).unwrap();
    let (cut, said) = events();
    assert_eq!(cut, whole);
    assert!(said.contains("the table ends after 1 functions"), "{said}");
}

/// Names that `report` shows are patterns, those of closures too; Rust's trait methods keep their types.
#[test]
fn closures_and_trait_methods_are_named_as_they_are_shown() {
    const RUST: &str = r#"mod geo {
    pub trait Area { fn area(&self) -> u64; }
    pub struct Square(pub u64);
    impl Area for Square { #[inline(never)] fn area(&self) -> u64 { std::hint::black_box(self.0 * self.0) } }
}
use geo::Area;
#[inline(never)]
fn call<F: Fn(u64) -> u64>(f: F) -> u64 { std::hint::black_box(f(std::hint::black_box(3))) }
fn main() {
    let sum = call(|x| x + 1) + geo::Square(4).area();
    std::process::exit(i32::from(sum == 0));
}
"#;
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("shapes.rs");
    std::fs::write(&source, RUST).unwrap();
    let build = |mangling: &str| {
        Program::from_source(Language::Rust, source.clone())
            .no_flags()
            .flags(["-g", "-Copt-level=1", mangling])
            .build()
    };
    let legacy = or_skip!(build("-Cdebuginfo=2"));
    let v0 = or_skip!(build("-Csymbol-mangling-version=v0"));
    let shown = |program: &Path, patterns: &[&str]| {
        let live = ["live", "-P", "."];
        let all = [&live[..], patterns, &[program.to_str().unwrap()]].concat();
        let output = dioptra(&all, folder.path());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let trait_method = shown(&legacy, &["-F", "area$"]);
    assert!(
        trait_method.contains("shapes::geo::Square as shapes::geo::Area>::area"),
        "{trait_method}"
    );
    let whole = shown(&v0, &["-F", "shapes::call.*"]);
    let closure = whole.lines().find_map(|line| {
        line.split_once("shapes::call")
            .map(|(_, rest)| rest.to_owned())
    });
    let closure = closure.unwrap_or_else(|| panic!("{whole}"));
    let name = format!(
        "shapes::call{}",
        closure.trim_end_matches(['(', ')', ' ', '{', ';'])
    );
    let again = shown(&v0, &["-F", &name]);
    assert!(again.contains(&name), "{name}: {again}");
}
