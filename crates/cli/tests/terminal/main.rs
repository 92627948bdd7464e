//! Text of the analysis commands at a terminal, and in pipes.

mod annotate;
mod harmless;
mod json;
mod kernel;
mod tables;

use dioptra_tables::display_width;
use dioptra_testprograms::{self as programs, Skip};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use tempfile::TempDir;

/// The output of a command at a terminal.
pub struct Shown {
    /// The whole output, with ends of lines as programs write them.
    pub text: String,
    /// The command's exit status.
    pub status: ExitStatus,
}

impl Shown {
    /// Returns the lines without colours.
    pub fn lines(&self) -> Vec<String> {
        let mut plain = String::new();
        let mut rest = self.text.as_str();
        while let Some(at) = rest.find('\x1b') {
            plain.push_str(&rest[..at]);
            rest = rest[at..].split_once('m').expect("a colour").1;
        }
        plain.push_str(rest);
        plain.lines().map(str::to_owned).collect()
    }

    /// Returns the lines of the table, without comments.
    pub fn rows(&self) -> Vec<String> {
        let lines = self.lines().into_iter();
        lines.filter(|line| !line.starts_with('#')).collect()
    }

    /// Returns the width of the widest line in terminal cells.
    pub fn widest(&self) -> usize {
        let lines = self.lines();
        lines
            .iter()
            .map(|line| display_width(line))
            .max()
            .unwrap_or(0)
    }
}

/// Returns `dioptra` with these arguments, as if nobody had set up anything.
pub fn dioptra(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dioptra"));
    command.args(arguments);
    for name in [
        "NO_COLOR",
        "PAGER",
        "DIOPTRA_PAGER",
        "LESS",
        "COLUMNS",
        "LC_ALL",
        "LC_CTYPE",
    ] {
        command.env_remove(name);
    }
    command
        .env("LANG", "C.UTF-8")
        .env("TERM", "xterm")
        .stdin(Stdio::null());
    command
}

/// Lets a command write to a terminal of this number of columns: standard output, and standard error unless it is piped
/// already.
pub fn at_terminal(mut command: Command, columns: u16) -> Shown {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&master).expect("its other end");
    unlockpt(&master).expect("its other end");
    let name = ptsname(&master, Vec::new()).expect("a name");
    let open = || {
        let flags = rustix::fs::OFlags::NOCTTY.bits() as i32;
        let mut options = OpenOptions::new();
        std::os::unix::fs::OpenOptionsExt::custom_flags(options.read(true).write(true), flags)
            .open(name.to_str().expect("a path"))
            .expect("its other end")
    };
    let line = open();
    let size = Winsize {
        ws_row: 40,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&line, size).expect("a size");
    command.stdout(open()).stderr(open());
    let mut child = command.spawn().expect("it starts");
    drop(command);
    drop(line);
    let mut text = Vec::new();
    // Reading ends with an error when the last writer has closed the terminal.
    let mut master = File::from(master);
    let mut piece = [0; 4096];
    while let Ok(count @ 1..) = master.read(&mut piece) {
        text.extend_from_slice(&piece[..count]);
    }
    let status = child.wait().expect("a child");
    let text = String::from_utf8(text).expect("UTF-8");
    Shown {
        text: text.replace("\r\n", "\n"),
        status,
    }
}

/// Returns the output of `dioptra` at a terminal without a pager.
pub fn shown(arguments: &[&str], file: &Path, columns: u16) -> Shown {
    let mut command = dioptra(arguments);
    command
        .arg(file)
        .arg("--no-pager")
        .arg("--color")
        .arg("never");
    let shown = at_terminal(command, columns);
    assert!(shown.status.success(), "{arguments:?}: {}", shown.text);
    shown
}

/// Returns the output of `dioptra` in a pipe.
pub fn piped(arguments: &[&str], file: &Path) -> String {
    let output = dioptra(arguments).arg(file).output().expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Returns a profile of a program of templates, with three events and call chains.
pub fn templates() -> Result<&'static Path, Skip> {
    static MADE: OnceLock<Result<(TempDir, PathBuf), Skip>> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let program = programs::cpp("templates", &["-O1"])?;
        recorded(
            &["-g", "-e", "cpu-clock,page-faults,task-clock", "-F", "2000"],
            &program,
            &["20"],
        )
    });
    made.as_ref()
        .map(|(_, file)| file.as_path())
        .map_err(Clone::clone)
}

/// Makes a profile by `dioptra record`.
pub fn recorded(
    options: &[&str],
    program: &Path,
    arguments: &[&str],
) -> Result<(TempDir, PathBuf), Skip> {
    programs::need_sampling()?;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("perf.data");
    let output = dioptra(&["record", "-q"])
        .args(options)
        .arg("-o")
        .arg(&file)
        .arg("--")
        .arg(program)
        .args(arguments)
        .output()
        .expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    Ok((folder, file))
}
