//! The command itself: names of formats, outputs, errors.

use crate::support::{dioptra, done, inlined, inside};
use dioptra_testprograms::or_skip;

#[test]
fn a_wrong_format_lists_the_formats() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = dioptra(folder.path(), &["export", "--to", "pdf"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    for format in [
        "collapsed",
        "pprof",
        "speedscope",
        "firefox",
        "callgrind",
        "flamegraph",
        "autofdo",
        "chrome",
        "perfetto",
        "otlp",
    ] {
        assert!(said.contains(format), "{said}");
    }
    let output = dioptra(folder.path(), &["export", "--to", "pprof"]);
    assert_eq!(output.status.code(), Some(1), "there is no perf.data");
    assert!(!folder.path().join("profile.pb.gz").exists());
}

#[test]
fn outputs_go_where_they_are_asked_to() {
    let recorded = or_skip!(inlined());
    let folder = recorded.folder.path();
    let (nothing, said) = done(folder, &["export", "--to", "pprof"]);
    assert!(
        nothing.is_empty() && said.contains("wrote profile.pb.gz"),
        "{said}"
    );
    let file = std::fs::read(inside(&recorded, "profile.pb.gz")).expect("the file");
    assert_eq!(file[..2], [0x1f, 0x8b], "gzip");
    let output = dioptra(folder, &["export", "--to", "pprof", "-o", "-"]);
    assert_eq!(output.stdout, file);
    let (text, _) = done(folder, &["export", "--to", "collapsed"]);
    done(folder, &["export", "--to", "collapsed", "-o", "out.folded"]);
    let written = std::fs::read_to_string(inside(&recorded, "out.folded")).expect("the file");
    assert_eq!(written, text);
    done(folder, &["export", "--to", "collapsed", "-o", "/dev/null"]);
    let output = dioptra(folder, &["export", "--to", "collapsed", "-o", "none/out"]);
    assert_eq!(output.status.code(), Some(1));
    let left = std::fs::read_dir(folder).expect("the folder");
    let left = left.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    assert!(!left.into_iter().any(|name| name.starts_with(".dioptra")));
}
