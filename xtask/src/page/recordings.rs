//! Recordings of many kinds, on each of which every view of the page is opened.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use dioptra_testprograms::{self as programs, Skip};

/// A kind of recording: the options of `record`, and the program.
struct Kind {
    options: &'static [&'static str],
    command: Vec<OsString>,
}

/// A Python program with threads.
const PYTHON: &str = "import threading\ndef work(n):\n  return sum(i * i for i in range(n))\nall = [threading.Thread(target=work, args=(400000,)) for _ in range(4)]\n[one.start() for one in all]\n[one.join() for one in all]\nlist(map(str, range(200000)))";

/// The options of `record` for two events with call chains.
const TWO_EVENTS: &[&str] = &["-g", "-e", "cpu-clock:u,page-faults:u"];

/// Recordings, and what could not be recorded here.
pub struct Recordings {
    pub files: Vec<PathBuf>,
    pub skipped: Vec<String>,
}

/// Makes the recordings in a folder. The first one is of Python, with threads, call chains and two events.
pub fn make(dioptra: &Path, folder: &Path) -> Result<Recordings> {
    let mut made = Recordings {
        files: Vec::new(),
        skipped: Vec::new(),
    };
    for (name, kind) in kinds() {
        let kind = match kind {
            Ok(kind) => kind,
            Err(skip) => {
                made.skipped.push(format!("{name}: {skip}"));
                continue;
            }
        };
        let file = folder.join(format!("{name}.data"));
        let output = Command::new(dioptra)
            .args(["record", "-q", "-o"])
            .arg(&file)
            .args(kind.options)
            .args(&kind.command)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .output()
            .context("running dioptra record")?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            made.files.push(file);
        } else if kind.options.contains(&"-a") && !programs::is_root() {
            made.skipped.push(format!(
                "{name}: only root may record the whole machine here"
            ));
        } else {
            bail!("dioptra record {:?} failed: {said}", kind.options);
        }
    }
    // Branch records of a CPU, which few machines have.
    match programs::need_shared_data("perfdata/perf.data.branch_stack_spec") {
        Ok(file) => made.files.push(file),
        Err(skip) => made.skipped.push(format!("branch records: {skip}")),
    }
    Ok(made)
}

/// Records a trace of a program whose numbers of calls are known: 1000 of `descend`, 100 of `bottom`. `None` if the machine
/// cannot compile it.
pub fn trace(dioptra: &Path, folder: &Path) -> Result<Option<PathBuf>> {
    let Ok(program) = programs::c("recursion", &["-O0", "-g", "-pg"]) else {
        return Ok(None);
    };
    let trace = folder.join("calls.trace");
    let status = Command::new(dioptra)
        .args(["trace", "record", "-d"])
        .arg(&trace)
        .arg(program)
        .args(["10", "100", "5"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("running dioptra trace record")?;
    if !status.success() {
        bail!("dioptra trace record failed");
    }
    Ok(Some(trace))
}

fn kinds() -> Vec<(&'static str, Result<Kind, Skip>)> {
    let words = |program: PathBuf, arguments: &[&str]| -> Vec<OsString> {
        let arguments = arguments.iter().map(OsString::from);
        std::iter::once(program.into()).chain(arguments).collect()
    };
    let kind = |name, options, command: Result<Vec<OsString>, Skip>| {
        let kind = command.map(|command| Kind { options, command });
        (name, kind)
    };
    let python = vec!["python3".into(), "-c".into(), PYTHON.into()];
    let cpp = programs::cpp("exceptions", &["-g", "-O1"]);
    let rust = programs::rust("threaded", &["-g", "-O"]);
    let stripped = programs::c("shares", &["-O1", "-s"]);
    let faults = programs::c("faults", &["-g", "-O1"]);
    vec![
        kind("python", TWO_EVENTS, Ok(python)),
        kind(
            "cpp",
            &["--call-graph", "dwarf", "-F", "500", "-e", "cpu-clock:u"],
            cpp.map(|program| words(program, &["3", "4000"])),
        ),
        kind(
            "rust",
            &["-g", "-e", "cpu-clock:u"],
            rust.map(|program| words(program, &["3", "1"])),
        ),
        kind(
            "stripped",
            &["-e", "cpu-clock:u"],
            stripped.map(|program| words(program, &["60"])),
        ),
        kind(
            "system",
            &["-a", "-g"],
            Ok(vec!["sleep".into(), "0.5".into()]),
        ),
        kind(
            "windows",
            &["--windows=short=100us,long=1ms"],
            faults.map(|program| words(program, &["5000", "20"])),
        ),
        // Nothing faults so often.
        kind(
            "empty",
            &["-e", "page-faults:u", "-c", "1000000000"],
            Ok(vec!["true".into()]),
        ),
    ]
}
