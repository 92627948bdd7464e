//! Control characters in names of files: no terminal sees them.

use crate::{at_terminal, dioptra};
use dioptra_testprograms::{self as programs, or_skip};
use std::fs;
use std::path::Path;

/// A name that would change the terminal's title and colours, and ring.
const EVIL: &str = "evil\x1b]0;owned\x07\x1b[31m\u{9b}7m";

/// Returns true for characters that no terminal may see: control characters, except ends of lines.
fn is_harmful(character: char) -> bool {
    character.is_control() && character != '\n'
}

#[test]
fn serial_standard_error_has_no_control_characters() {
    let folder = tempfile::tempdir().expect("a folder");
    let damaged = folder.path().join(EVIL);
    fs::write(&damaged, "no profile").expect("a file");
    let missing = folder.path().join(format!("missing{EVIL}"));
    for file in [&damaged, &missing] {
        let file = file.to_str().expect("a name");
        for arguments in [
            &["report", "-i", file][..],
            &["info", "-i", file],
            &["dump", "-i", file],
            &["annotate", "-i", file],
            &["diff", file, file],
            &["trace", "report", "-d", file],
            &["record", "-o", "/dev/null", "--", file],
            // clap refuses these arguments.
            &["report", file],
            &["report", "--by", file],
            &["list", "events", file],
            &["report", "--symfs", file],
        ] {
            let output = dioptra(arguments).output().expect("it runs");
            let text = String::from_utf8(output.stderr).expect("UTF-8");
            assert!(!output.status.success(), "{arguments:?}: {text}");
            // clap leaves control sequences out; other messages spell them.
            assert!(text.contains("evil"), "{arguments:?}: {text:?}");
            assert!(!text.contains(is_harmful), "{arguments:?}: {text:?}");
            let mut command = dioptra(arguments);
            command.env("NO_COLOR", "1");
            let shown = at_terminal(command, 500).text;
            assert!(shown.contains("evil"), "{arguments:?}: {shown:?}");
            assert!(!shown.contains(is_harmful), "{arguments:?}: {shown:?}");
        }
    }
}

/// Runs a command at a terminal and in a pipe; the pipe has the name as it is, or as JSON spells it.
fn check(arguments: &[&str], folder: &Path, in_pipe: &str) {
    let run = || {
        let mut command = dioptra(arguments);
        command
            .current_dir(folder)
            .env("NO_COLOR", "1")
            .env("PAGER", "cat");
        command
    };
    let shown = at_terminal(run(), 500);
    assert!(shown.text.contains("evil"), "{arguments:?}: {}", shown.text);
    assert!(
        !shown.text.contains(is_harmful),
        "{arguments:?}: {:?}",
        shown.text
    );
    let piped = run().output().expect("it runs");
    let text = String::from_utf8(piped.stdout).expect("UTF-8");
    assert!(text.contains(in_pipe), "{arguments:?}: {text}");
}

#[test]
fn serial_terminals_see_no_control_characters_of_names() {
    or_skip!(programs::need_sampling());
    let folder = tempfile::tempdir().expect("a folder");
    let program = or_skip!(programs::c("shares", &["-pg"]));
    fs::copy(program, folder.path().join(EVIL)).expect("a copy");
    let evil = format!("./{EVIL}");
    for arguments in [
        &["record", "-q", "-F", "1000", "--", &evil, "100"][..],
        &["trace", "record", &evil, "1"],
    ] {
        let output = dioptra(arguments)
            .current_dir(&folder)
            .output()
            .expect("it runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        assert!(!errors.contains(is_harmful), "{arguments:?}: {errors:?}");
    }
    let escaped = "evil\\x1b]0;owned\\x07";
    let json = "evil\\u001b]0;owned\\u0007";
    for (arguments, in_pipe) in [
        (&["report", "--by", "module"][..], escaped),
        (&["report", "--by", "module", "--format", "csv"], escaped),
        (&["report", "--by", "module", "--format", "json"], json),
        (&["report", "--by", "module", "--format", "ndjson"], json),
        (&["info", "--mappings"], "evil"),
        (&["info", "--format", "json"], json),
        (&["dump"], "evil"),
        (&["dump", "--format", "json"], json),
        (&["annotate"], escaped),
        (&["annotate", "--format", "dot"], "evil"),
        (&["annotate", "--format", "json"], json),
        (&["trace", "info"], "evil"),
        (&["trace", "info", "--format", "json"], json),
        (&["trace", "dump"], "evil"),
        (&["trace", "dump", "--format", "chrome"], "evil"),
        (&["trace", "dump", "--format", "graphviz"], "evil"),
        (&["trace", "dump", "--format", "mermaid"], "evil"),
        (&["trace", "dump", "--format", "mermaid-text"], "evil"),
    ] {
        check(arguments, folder.path(), in_pipe);
    }
}
