//! Programs and folders from which the tracer's file can't be loaded: it is loaded from elsewhere, or a message says
//! why not.

use super::{DIOPTRA, five, text};
use dioptra_testprograms::{self as programs, Skip, or_skip};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

const NOBODY: u32 = 65534;

/// Returns the output of a script that a shell executes, with `$0` and `$1` as given.
fn said(script: &str, words: [&str; 2], folder: &Path) -> String {
    let mut command = Command::new("sh");
    command.args(["-c", script]).args(words);
    let output = command.current_dir(folder).output().unwrap();
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn programs_of_other_users_are_not_traced() {
    or_skip!(programs::need_root());
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy");
    fs::copy(or_skip!(five(&["-pg", "-mfentry"])), &copy).unwrap();
    chown(&copy, Some(NOBODY), None).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o4755)).unwrap();
    let script = "\"$0\" trace record --no-sched ./copy";
    let said = said(script, [DIOPTRA, ""], folder.path());
    assert!(said.contains("(set-uid)"), "{said}");
}

#[test]
fn another_root_hides_the_tracer() {
    or_skip!(programs::need_root());
    let program = or_skip!(five(&["-pg", "-mfentry"]));
    let folder = tempfile::tempdir().unwrap();
    let script = "mkdir root; cp \"$1\" root/five
        for file in $(ldd \"$1\" | grep -o '/[^ ]*'); do mkdir -p root${file%/*}; cp $file root$file; done
        \"$0\" trace record --no-sched chroot root /five";
    let said = said(script, [DIOPTRA, program.to_str().unwrap()], folder.path());
    assert!(said.contains("/five is not traced: "), "{said}");
}

#[test]
fn a_cache_folder_without_execution_is_not_used() {
    or_skip!(programs::need_root());
    let program = or_skip!(five(&["-pg", "-mfentry"]));
    let folder = tempfile::tempdir().unwrap();
    let script = "mkdir cache temporary
        unshare -m sh -c 'mount -t tmpfs -o noexec tmpfs cache || exit
        export XDG_CACHE_HOME=$PWD/cache TMPDIR=$PWD/temporary
        echo mounted
        \"$0\" trace record --no-sched \"$1\"
        mount -t tmpfs -o noexec tmpfs temporary
        \"$0\" trace record --no-sched \"$1\"' \"$0\" \"$1\"";
    let said = said(script, [DIOPTRA, program.to_str().unwrap()], folder.path());
    let is_mounted = said.contains("mounted\n");
    or_skip!(
        is_mounted
            .then_some(())
            .ok_or_else(|| Skip::new("can't mount anything"))
    );
    // The second folder is used; a message says so where that one does not allow it either.
    assert!(said.contains("functions patched: "), "{said}");
    assert!(said.contains("(noexec)"), "{said}");
}
