//! Recordings that fail while they start, and strangers that connect to a recorder.

use super::{DIOPTRA, dioptra, five, text};
use dioptra_testprograms::{self as programs, Skip, or_skip};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};

/// Returns the names in a folder.
fn names(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder).unwrap();
    let name = |file: fs::DirEntry| file.file_name().to_string_lossy().into_owned();
    let mut names: Vec<String> = files.map(|file| name(file.unwrap())).collect();
    names.sort();
    names
}

#[test]
fn a_recording_that_fails_to_start_leaves_nothing() {
    let program = or_skip!(five(&["-pg", "-mfentry"]));
    let program = program.to_str().unwrap();
    // With so few files something else fails each time; with the most of them nothing does.
    let mut failed = 0;
    for files in (4..48).rev() {
        let folder = tempfile::tempdir().unwrap();
        let output = Command::new("timeout")
            .args(["60", "sh", "-c"])
            .arg(format!(
                "ulimit -n {files}; exec \"$0\" trace record \"$1\""
            ))
            .args([DIOPTRA, program])
            .current_dir(folder.path())
            .output()
            .unwrap();
        let told = text(&output.stderr);
        match output.status.code() {
            Some(0) => assert_eq!(names(folder.path()), ["dioptra.trace"], "{files}: {told}"),
            Some(125) => {
                failed += 1;
                assert!(names(folder.path()).is_empty(), "{files}: {told}");
            }
            status => panic!("{files}: {status:?}: {told}"),
        }
    }
    assert!(failed > 0);
    let folder = tempfile::tempdir().unwrap();
    let missing = dioptra(&["record", "./no-such-command"], folder.path());
    assert_eq!(missing.status.code(), Some(127));
    assert!(names(folder.path()).is_empty());
    // The traces that were there before stay.
    for _ in 0..2 {
        let recorded = dioptra(&["record", program], folder.path());
        assert!(recorded.status.success(), "{}", text(&recorded.stderr));
    }
    let started = |name: &str| fs::read(folder.path().join(name).join("info.json")).unwrap();
    let before = ["dioptra.trace", "dioptra.trace.old"].map(started);
    for missing in ["./no-such-command", "/etc/passwd"] {
        let missing = dioptra(&["record", missing], folder.path());
        assert!(matches!(missing.status.code(), Some(126 | 127)));
        assert_eq!(names(folder.path()), ["dioptra.trace", "dioptra.trace.old"]);
        assert_eq!(["dioptra.trace", "dioptra.trace.old"].map(started), before);
    }
}

#[test]
fn a_typo_and_a_broken_program_leave_the_traces_alone() {
    let program = or_skip!(five(&["-pg", "-mfentry"]));
    let folder = tempfile::tempdir().unwrap();
    let here = |name: &str| folder.path().join(name);
    let write = |name: &str, content: &[u8], mode: u32| {
        fs::write(here(name), content).unwrap();
        fs::set_permissions(here(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    let whole = fs::read(&program).unwrap();
    write("forbidden", &whole, 0o644);
    write("header", &whole[..300], 0o755);
    write("half", &whole[..whole.len() / 2], 0o755);
    let mut foreign = whole.clone();
    // The number of a processor that no machine here has (EM_AVR).
    foreign[18..20].copy_from_slice(&83_u16.to_le_bytes());
    write("foreign", &foreign, 0o755);
    write("no-shell", b"#!/no/such/shell\n", 0o755);
    // The dynamic linker finds out after the exec that a library is missing.
    let compiled = Command::new("sh")
        .args(["-c", "echo 'int f(void){return 0;}' | cc -x c -shared -fPIC -o libgone.so - && \
               echo 'int f(void); int main(void){return f();}' | cc -x c -o linked - -L. -lgone && rm libgone.so"])
        .current_dir(folder.path())
        .status()
        .unwrap();
    or_skip!(
        compiled
            .success()
            .then_some(())
            .ok_or_else(|| Skip::new("no C compiler"))
    );

    for _ in 0..2 {
        let recorded = dioptra(&["record", program.to_str().unwrap()], folder.path());
        assert!(recorded.status.success(), "{}", text(&recorded.stderr));
    }
    let traces = ["dioptra.trace", "dioptra.trace.old"];
    let identity = |name: &str| fs::metadata(here(name)).unwrap().ino();
    let (before, present) = (traces.map(identity), names(folder.path()));
    for (command, status) in [
        ("./typo", 127),
        ("typo", 127),
        ("./forbidden", 126),
        ("forbidden", 126),
        (".", 126),
        ("./header", 126),
        ("./half", 126),
        ("./foreign", 126),
        ("./no-shell", 127),
        ("./linked", 127),
    ] {
        for _ in 0..2 {
            let failed = dioptra(&["record", command], folder.path());
            let told = text(&failed.stderr);
            assert_eq!(failed.status.code(), Some(status), "{command}: {told}");
            assert_eq!(traces.map(identity), before, "{command}: {told}");
            assert_eq!(names(folder.path()), present, "{command}: {told}");
        }
    }
}

#[test]
fn a_program_of_the_current_folder_needs_no_path() {
    let program = or_skip!(five(&["-pg", "-mfentry"]));
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.out", "true"] {
        fs::copy(&program, folder.path().join(name)).unwrap();
        let live = dioptra(
            &["--no-sched", "-F", "main", "-f", "none", name],
            folder.path(),
        );
        let (shown, told) = (text(&live.stdout), text(&live.stderr));
        assert!(live.status.success(), "{name}: {told}");
        assert!(shown.contains("a() {"), "{name}: {shown}");
        assert_eq!(
            told.contains("of the current folder was traced"),
            name == "true",
            "{told}"
        );
    }
    // The shell that PATH leads to, where the folder has none.
    let found = dioptra(&["record", "sh", "-c", "exit 3"], folder.path());
    assert_eq!(found.status.code(), Some(3), "{}", text(&found.stderr));
}

#[test]
fn a_full_disk_refuses_no_later_recording() {
    or_skip!(programs::need_root());
    let program = or_skip!(five(&["-pg", "-mfentry"]));
    let folder = tempfile::tempdir().unwrap();
    // The traces' files fill pages of 4 KiB: with so few of them another one is missing each time.
    let script = "mkdir disk; unshare -m sh -c 'for pages in 1 2 3 4 5 6; do
            mount -t tmpfs -o nr_blocks=$pages tmpfs disk || exit
            echo mounted
            timeout 60 \"$0\" trace record -d disk/t \"$1\"
            echo status $?
            ls -a disk disk/t.old disk/t
            mount -o remount,nr_blocks=16384 disk
            timeout 60 \"$0\" trace record -q -d disk/t \"$1\"
            echo again $?
            umount disk
        done' \"$0\" \"$1\"";
    let output = Command::new("sh")
        .args(["-c", script, DIOPTRA])
        .arg(program)
        .current_dir(folder.path())
        .output()
        .unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    or_skip!(
        said.contains("mounted\n")
            .then_some(())
            .ok_or_else(|| Skip::new("can't mount anything"))
    );
    assert_eq!(said.matches("again 0\n").count(), 6, "{said}");
    assert!(said.contains("status 125\n"), "{said}");
}

#[test]
fn strangers_that_connect_disturb_nobody_and_are_told_apart() {
    let program = or_skip!(five(&["-pg", "-mfentry"]));
    let folder = tempfile::tempdir().unwrap();
    let script = "echo \"$DIOPTRA_TRACE_SOCKET\"; read word; exec \"$0\"";
    let mut recorder = Command::new(DIOPTRA)
        .args(["trace", "record", "--no-sched", "sh", "-c", script])
        .arg(program)
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(recorder.stdout.take().unwrap());
    let mut name = String::new();
    output.read_line(&mut name).unwrap();
    let address = SocketAddr::from_abstract_name(name.trim_end().as_bytes()).unwrap();
    let connect = || UnixStream::connect_addr(&address).unwrap();
    // One who says nothing stays until the recording has ended.
    let silent = connect();
    let mut garbage = connect();
    garbage.write_all(&[0xa5; 400]).unwrap();
    assert_eq!(garbage.read(&mut [0; 16]).unwrap_or(0), 0);
    let mut short = connect();
    short.write_all(b"GET /").unwrap();
    drop(short);
    let is_root = programs::is_root();
    if is_root {
        // A process of another user: the system call changes the user of this thread only.
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                // SAFETY: numbers only.
                let changed = unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) };
                assert_eq!(changed, 0);
                let mut other = connect();
                other.write_all(&[0xa5; 400]).unwrap();
                let _ = other.read(&mut [0; 16]);
            });
            other.join().unwrap();
        });
    }
    recorder.stdin.take().unwrap().write_all(b"on\n").unwrap();
    let mut told = String::new();
    recorder
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut told)
        .unwrap();
    assert!(recorder.wait().unwrap().success(), "{told}");
    drop(silent);
    let us = format!("process {} (", std::process::id());
    let strangers = told.lines().filter(|line| line.contains(&us));
    let strangers: Vec<&str> = strangers.collect();
    let has = |what: &str| strangers.iter().any(|line| line.contains(what));
    assert!(
        has("said what no traced program says: it was refused"),
        "{told}"
    );
    assert!(has("having said too little: it was refused"), "{told}");
    assert!(!told.contains("was to be traced"), "{told}");
    // The program was traced, and is not among them.
    let report = dioptra(&["report", "--format", "csv", "-f", "call"], folder.path());
    let report = text(&report.stdout);
    assert!(
        report.lines().any(|line| line.starts_with("a,")),
        "{report}"
    );
}
