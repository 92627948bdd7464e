//! Damaged and hostile files, and wrong arguments: a line or an offset is told, and no file is left.

use crate::support::dioptra;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Imports a file that must be refused, and returns the error.
fn refused(folder: &Path, content: &[u8], more: &[&str]) -> String {
    fs::write(folder.join("bad"), content).expect("a file");
    let arguments = [&["import", "bad", "-o", "out.data"], more].concat();
    let output = dioptra(folder, &arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(!folder.join("out.data").exists(), "{said}");
    said
}

#[test]
fn faults_are_told_with_their_places() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    for (content, place) in [
        (&b"a;b 1\nc;d x\n"[..], "line 2: the value \"x\""),
        (b"a;b 1\nc;\xff\xfe 3\n", "line 2: byte 3 is not UTF-8"),
        (b"a;b 1\n\n 7\n", "line 3: there is no"),
        (b"a;b 18446744073709551615\na;b 1\n", "more than 64 bits"),
        (
            b"prog 12 1.000001: 1 cycles: \n\t  401 main (/a)\n\n\nprog 12 what\n",
            "line 5: this is no first line",
        ),
        (
            b"prog 12 1.000001: 1 cycles: \n\t  no frame\n",
            "line 2: this is no frame",
        ),
        (
            b"{\"traceEvents\":[]}",
            "--from collapsed, pprof or perf-script",
        ),
        (b"", "the format is none"),
        (b"PERFILE2 and more", "dioptra report -i"),
        (
            &[0x0a, 4, 8, 1, 16, 2, 0x12, 0xff, 0xff, 0xff, 0xff, 0x0f],
            "byte 6 of the decompressed profile",
        ),
        (
            &[
                0x0a, 2, 8, 1, 0x48, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
            ],
            "byte 5 of the decompressed profile: a number has more than 64 bits",
        ),
    ] {
        let said = refused(folder, content, &[]);
        assert!(said.contains(place), "{place}: {said}");
    }
    // A file that says nothing at all.
    let said = refused(
        folder,
        &[0x0a, 4, 8, 1, 16, 2, 0x32, 0, 0x32, 1, b'a', 0x32, 1, b'b'],
        &[],
    );
    assert!(said.contains("has no samples"), "{said}");
    let said = refused(folder, b"a;b 1\n", &["--from", "pprof"]);
    assert!(said.contains("byte "), "{said}");
}

#[test]
fn damaged_compression_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let lines: String = (0..5000).map(|n| format!("prog;f{n};g{n} {n}\n")).collect();
    fs::write(folder.join("in"), lines).expect("a file");
    let gzip = Command::new("gzip").arg(folder.join("in")).status();
    assert!(gzip.expect("gzip runs").success());
    let whole = fs::read(folder.join("in.gz")).expect("the file");
    for length in [3, 20, whole.len() / 2, whole.len() - 1] {
        let said = refused(folder, &whole[..length], &[]);
        assert!(
            said.contains("cannot be decompressed beyond byte"),
            "{said}"
        );
    }
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0xff;
    refused(folder, &damaged, &[]);
    // A small file that decompresses to a giant one.
    let bomb = "head -c 200000000 /dev/zero | gzip -9 > bomb.gz";
    let made = Command::new("sh")
        .args(["-c", bomb])
        .current_dir(folder)
        .status();
    assert!(made.expect("sh runs").success());
    let bomb = fs::read(folder.join("bomb.gz")).expect("the file");
    let said = refused(folder, &bomb, &[]);
    assert!(said.contains("decompresses to more than"), "{said}");
}

#[test]
fn deep_stacks_keep_their_innermost_frames() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let names: Vec<String> = (0..100_000).map(|n| format!("f{}", n % 1000)).collect();
    fs::write(folder.join("in"), format!("prog;{} 5\n", names.join(";"))).expect("a file");
    let output = dioptra(folder, &["import", "in", "-o", "in.data"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("the outermost frames of 1 stack"), "{said}");
    let output = dioptra(folder, &["report", "-i", "in.data", "--format", "csv"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("f999"), "{text}");
}

#[test]
fn a_wrong_format_lists_the_formats() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    fs::write(folder.join("in"), "a;b 1\n").expect("a file");
    let output = dioptra(folder, &["import", "in", "-o", "x", "--from", "jfr"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    for format in ["collapsed", "pprof", "perf-script"] {
        assert!(said.contains(format), "{said}");
    }
    let output = dioptra(folder, &["import", "in", "-o", "none/x"]);
    assert_eq!(output.status.code(), Some(1));
    let output = dioptra(folder, &["import", "absent", "-o", "x"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(!folder.join("x").exists());
}
