//! Programs that nobody wrote for tests: compilers, engines of languages, stripped programs.

use super::plain::{by_callgrind, callgrind, calls};
use super::{dioptra, text};
use dioptra_testprograms::{self as programs, Language, Program, or_skip};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const SOURCE: &str = "#include <stdio.h>
static int square(int x) { return x * x; }
int sum(const int *v, int n) { int s = 0; for (int i = 0; i < n; i++) s += square(v[i]); return s; }
int main(void) { int v[] = {3, 4}; printf(\"%d\\n\", sum(v, 2)); return 7; }
";

fn run(program: &str, arguments: &[&str], folder: &Path) -> Output {
    Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap()
}

/// The path of the compiler proper, which `gcc` starts.
fn compiler() -> Option<PathBuf> {
    let asked = Command::new("gcc").arg("-print-prog-name=cc1").output();
    let path = PathBuf::from(text(&asked.ok()?.stdout).trim());
    path.is_absolute().then_some(path)
}

#[test]
fn a_compiler_and_all_that_it_starts_do_what_they_did() {
    or_skip!(programs::need_tool("gcc"));
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("sum.c"), SOURCE).unwrap();
    let compile = ["-O1", "-o", "sum", "sum.c"];
    let plain = run("gcc", &compile, folder.path());
    assert!(plain.status.success(), "{}", text(&plain.stderr));
    let made = std::fs::read(folder.path().join("sum")).unwrap();
    std::fs::remove_file(folder.path().join("sum")).unwrap();
    let record = [&["record", "--no-sched", "-P", ".", "gcc"], &compile[..]].concat();
    let traced = dioptra(&record, folder.path());
    let told = text(&traced.stderr);
    assert_eq!(traced.status.code(), Some(0), "{told}");
    assert!(
        std::fs::read(folder.path().join("sum")).unwrap() == made,
        "another program was made: {told}"
    );
    let ran = run("./sum", &[], folder.path());
    assert_eq!(
        (text(&ran.stdout).as_str(), ran.status.code()),
        ("25\n", Some(7))
    );
    let info = text(&dioptra(&["info"], folder.path()).stdout);
    // The driver runs the compiler, the assembler, and the program that calls the linker.
    for image in ["cc1)", "as)", "collect2)"] {
        assert!(info.contains(image), "{image}: {info}");
    }
    // The program does not compile; its status and its messages are compared.
    std::fs::write(folder.path().join("sum.c"), "int sum(").unwrap();
    let plain = run("gcc", &compile, folder.path());
    let traced = dioptra(&record, folder.path());
    assert_eq!(traced.status.code(), plain.status.code());
    assert!(text(&traced.stderr).starts_with(&text(&plain.stderr)));
}

#[test]
fn a_compilers_functions_are_called_as_often_as_callgrind_says() {
    or_skip!(programs::need_tool("gcc"));
    or_skip!(programs::need_tool("valgrind"));
    let Some(compiler) = compiler() else {
        programs::skip("gcc does not say where its compiler is");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (source, counted) = (folder.path().join("sum.c"), folder.path().join("counted"));
    // The source has no headers, for valgrind's sake.
    std::fs::write(&source, "int square(int x) { return x * x; }\n#if 1 + 1 == 2\n#define A(x) x\nint a = A(1);\n#endif\n").unwrap();
    let made = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let command = |to: &str| {
        let words = [compiler.to_str().unwrap(), "-quiet", "-O1", "-o", to];
        let words = words.into_iter().chain(source.to_str());
        words.map(str::to_owned).collect::<Vec<String>>()
    };
    let (plain, traced) = (command(&made("plain.s")), command(&made("traced.s")));
    let plain: Vec<&str> = plain.iter().map(String::as_str).collect();
    assert!(callgrind(&plain, &counted).status.success());
    let mut record = vec!["record", "--no-sched", "--no-libcall", "-P", "."];
    record.extend(traced.iter().map(String::as_str));
    let recorded = dioptra(&record, folder.path());
    let told = text(&recorded.stderr);
    assert!(recorded.status.success(), "{told}");
    let read = |name| std::fs::read_to_string(made(name)).unwrap();
    assert_eq!(read("traced.s"), read("plain.s"), "{told}");
    let (expected, found) = (by_callgrind(&counted, "cc1", None), calls(folder.path()));
    // The parser does the same in each run; the number of allocations depends on addresses.
    let is_sure = |name: &str| name.starts_with("_cpp_") && !name.contains("alloc");
    let same: Vec<&String> = expected
        .keys()
        .filter(|name| is_sure(name) && found.contains_key(*name))
        .collect();
    if same.is_empty() {
        programs::skip("the compiler's functions have no names");
        return;
    }
    for name in &same {
        assert_eq!(found.get(*name), expected.get(*name), "{name}");
    }
    assert!(same.len() > 5, "{same:?}");
}

#[test]
fn rules_leave_functions_without_names_where_they_are() {
    let program = or_skip!(
        Program::new(Language::C, "trace-trees")
            .no_flags()
            .flags(["-O1", "-s", "-pthread"])
            .build()
    );
    let record = |rules: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let command = [program.to_str().unwrap(), "7", "300", "3"];
        let words = [
            &["record", "--no-sched", "--no-libcall", "-P", "."],
            rules,
            &command,
        ];
        let recorded = dioptra(&words.concat(), folder.path());
        assert!(recorded.status.success(), "{}", text(&recorded.stderr));
        calls(folder.path())
    };
    let all = record(&[]);
    assert!(all.values().sum::<u64>() > 10_000, "{all:?}");
    let (hidden, count) = all.iter().max_by_key(|(_, count)| **count).unwrap();
    assert!(hidden.starts_with("<trace-trees+0x"), "{all:?}");
    // No stub of the linkage table is taken for a function.
    assert!(all.keys().all(|name| !name.ends_with("@plt")), "{all:?}");
    for rules in [
        &["-D", "1000"][..],
        &["-N", "no_such_function"],
        &["-F", "."],
        &["-U", "no_such_function"],
    ] {
        assert_eq!(record(rules), all, "{rules:?}");
    }
    // These functions can be asked for by the name that stands for them.
    let pattern = format!("^{}$", hidden.replace('+', "."));
    let one = record(&["-F", &pattern, "-D", "1"]);
    assert_eq!(one.keys().collect::<Vec<_>>(), [hidden]);
    assert!(one[hidden] <= *count);
    let others = record(&["-U", &pattern]);
    assert_eq!(others.len(), all.len() - 1);
}

#[test]
fn engines_with_generated_code_do_what_they_did() {
    const SCRIPT: &str = "const kept = []; for (let i = 0; i < 2e5; i++) kept.push({ i, text: 'x' + i });
console.log(kept.length, 'aab'.repeat(1000).replace(/a+b/g, 'x').length, [3, 1, 2].sort((a, b) => a - b));
try { null.x } catch (error) { console.log(error.message) }
setTimeout(() => process.exit(3), 1);";
    let node = or_skip!(programs::need_tool("node"));
    let node = node.to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let plain = run(node, &["-e", SCRIPT], folder.path());
    let command = ["record", "--no-sched", "-P", ".", node, "-e", SCRIPT];
    let traced = dioptra(&command, folder.path());
    let told = text(&traced.stderr);
    assert_eq!(traced.status.code(), plain.status.code(), "{told}");
    assert_eq!(text(&traced.stdout), text(&plain.stdout), "{told}");
}
