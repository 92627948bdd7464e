//! Collapsed stacks.

use crate::support::{by_function, done, inlined, report, threads};
use dioptra_testprograms::or_skip;
use std::fs;
use std::path::Path;

/// Writes a text, imports it, and returns what the command said.
fn import(folder: &Path, text: &str, more: &[&str]) -> String {
    fs::write(folder.join("in.folded"), text).expect("a file");
    let arguments = [&["import", "in.folded", "-o", "in.data"], more].concat();
    done(folder, &arguments).1
}

#[test]
fn exports_come_back_as_they_were() {
    for recorded in [or_skip!(inlined()), or_skip!(threads())] {
        let folder = recorded.folder.path();
        for value in ["weight", "samples"] {
            let (text, _) = done(
                folder,
                &["export", "--to", "collapsed", "--value", value, "-e", "1"],
            );
            let said = import(folder, &text, &["-e", "cpu-clock"]);
            assert!(said.contains("the numbers of samples behind"), "{said}");
            let (again, _) = done(folder, &["export", "--to", "collapsed", "-i", "in.data"]);
            assert_eq!(again, text, "{value}");
        }
        // The numbers of the tables, and their unit.
        let (text, _) = done(folder, &["export", "--to", "collapsed", "-e", "1"]);
        import(folder, &text, &["-e", "cpu-clock"]);
        let rows = report(folder, &["--inline", "-e", "1"]);
        let imported = report(folder, &["-i", "in.data"]);
        assert_eq!(
            by_function(&imported, "weight"),
            by_function(&rows, "weight")
        );
    }
}

/// Stacks as other tools write them: perf's marks of the kernel, names with blanks, text that is not English.
const FOREIGN: &str = "\
java;start_thread;Main::run(int, char);λ→x_[j];do_syscall_64_[k] 7\r
java;start_thread;Main::run(int, char);λ→x_[j] 3

python-12;main (app.py:10);handle (app.py:4) 90
swapper 18446744073709540000
";

#[test]
fn names_threads_and_values_are_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let said = import(folder, FOREIGN, &[]);
    assert!(said.contains("4 samples of value"), "{said}");
    let rows = report(folder, &["-i", "in.data", "--by", "comm,function"]);
    let functions = by_function(&report(folder, &["-i", "in.data"]), "weight");
    let expected = [
        ("[unknown]", 18_446_744_073_709_540_000),
        ("do_syscall_64_[k]", 7),
        ("handle (app.py:4)", 90),
        ("λ→x_[j]", 3),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value));
    assert_eq!(functions, expected.into_iter().collect());
    for comm in ["java", "python-12", "swapper"] {
        assert!(rows.iter().any(|row| row["comm"] == comm), "{rows:?}");
    }
    let children = report(folder, &["-i", "in.data", "--children"]);
    let total = by_function(&children, "total_weight");
    assert_eq!(total["start_thread"], 10);
    // Without names of threads, the first name is a function.
    import(folder, "main;work 5\nmain;idle 6\n", &["--no-thread-names"]);
    let children = report(folder, &["-i", "in.data", "--children", "--by", "function"]);
    assert_eq!(by_function(&children, "total_weight")["main"], 11);
    let (out, _) = done(folder, &["report", "-i", "in.data", "--by", "comm"]);
    assert!(out.contains("in"), "the file's name: {out}");
}

#[test]
fn other_commands_work_on_imports() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    import(folder, "prog;main;fast 100\nprog;main;slow 900\n", &[]);
    fs::rename(folder.join("in.data"), folder.join("before.data")).expect("a file");
    import(folder, "prog;main;fast 100\nprog;main;slow 450\n", &[]);
    let (text, _) = done(
        folder,
        &["diff", "before.data", "in.data", "--format", "csv"],
    );
    assert!(text.contains("slow"), "{text}");
    let (tree, _) = done(folder, &["report", "-i", "in.data", "--tree", "callees"]);
    assert!(tree.contains("main") && tree.contains("slow"), "{tree}");
    let (info, _) = done(folder, &["info", "-i", "in.data"]);
    assert!(info.contains("value"), "{info}");
    done(folder, &["web", "in.data", "--export", "page.html"]);
    let page = fs::read_to_string(folder.join("page.html")).expect("a page");
    assert!(page.contains("slow"));
    done(folder, &["dump", "-i", "in.data"]);
    let (text, _) = done(folder, &["annotate", "slow", "-i", "in.data"]);
    assert!(text.contains("no instructions"), "{text}");
}

#[test]
fn standard_input_and_compression() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    fs::write(folder.join("in.folded"), FOREIGN).expect("a file");
    let script = format!(
        "gzip -c in.folded | {} import - -o in.data",
        env!("CARGO_BIN_EXE_dioptra")
    );
    let status = std::process::Command::new("sh")
        .args(["-c", &script])
        .current_dir(folder)
        .status();
    assert!(status.expect("sh runs").success());
    let functions = by_function(&report(folder, &["-i", "in.data"]), "weight");
    assert_eq!(functions["handle (app.py:4)"], 90);
}
