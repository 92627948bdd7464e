//! Code that changes while a program runs, or when it is loaded.

use super::plain::calls;
use super::{dioptra, text};
use dioptra_testprograms::{self as programs, Language, Program, Skip, or_skip};
use std::process::Command;

#[test]
fn code_that_a_program_writes_to_is_left_alone() {
    let program = Program::new(Language::C, "trace-written")
        .no_flags()
        .flags(["-O1", "-g"])
        .build();
    let program = or_skip!(program);
    let folder = tempfile::tempdir().unwrap();
    let recorded = dioptra(
        &["record", "-P", ".", program.to_str().unwrap()],
        folder.path(),
    );
    let told = text(&recorded.stderr);
    assert_eq!(text(&recorded.stdout), "20\n", "{told}");
    assert!(recorded.status.success(), "{told}");
    let reason = "1 it lies in memory that is writable and executable";
    assert!(told.contains(reason), "{told}");
    let counts = calls(folder.path());
    assert_eq!(counts.get("ordinary"), Some(&5), "{counts:?}");
    assert_eq!(counts.get("changing"), None, "{counts:?}");
}

#[test]
fn code_with_text_relocations_is_left_alone() {
    or_skip!(programs::need_tool("gcc"));
    let folder = tempfile::tempdir().unwrap();
    let source = programs::repository_root().join("tests/programs/trace-relocated.c");
    let gcc = |flags: &str| {
        let built = Command::new("gcc")
            .args(flags.split(' '))
            .arg(&source)
            .args(flags.contains("MAIN").then_some("./library.so"))
            .current_dir(folder.path())
            .output()
            .unwrap();
        let said = text(&built.stderr);
        let done = built.status.success();
        done.then_some(()).ok_or_else(|| Skip::new(said))
    };
    or_skip!(gcc(
        "-O1 -shared -mcmodel=large -fno-pic -Wl,-z,notext -o library.so"
    ));
    or_skip!(gcc("-O1 -DMAIN -o program"));
    let recorded = dioptra(
        &["record", "-P", ".@library.so", "-P", "main", "./program"],
        folder.path(),
    );
    let told = text(&recorded.stderr);
    assert_eq!(text(&recorded.stdout), "230\n", "{told}");
    assert!(recorded.status.success(), "{told}");
    assert!(told.contains(" its module has text relocations"), "{told}");
    let counts = calls(folder.path());
    assert_eq!(counts.get("main"), Some(&1), "{counts:?}");
}
