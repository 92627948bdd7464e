//! `dioptra record --trace`: samples and calls of one command, by two recorders.
//!
//! The recorder of calls starts the command and holds it before its exec. Meanwhile a second process of this program, which
//! has the options of the recording, opens its events for the held process. The command is let go when they count. The second
//! process learns whether the command could execute: if not, it removes its file, and an older recording stays.

use super::Arguments;
use crate::commands::trace::{Recorded, record_calls, say_usage, usage};
use crate::exit::Exit;
use crate::output::say;
use anyhow::Context;
use dioptra_trace_recorder::AfterStart;
use rustix::io::{FdFlags, fcntl_setfd};
use std::cell::RefCell;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::rc::Rc;

/// The program that runs.
const OURSELVES: &str = "/proc/self/exe";

/// Records samples as the arguments say, and calls with these options of `dioptra trace record`.
pub fn run(arguments: &Arguments, options: &str) -> anyhow::Result<Exit> {
    if let Some(wrong) = contradiction(arguments) {
        return say_usage(Err(usage(wrong)));
    }
    let sampler: Rc<RefCell<Option<Child>>> = Rc::default();
    let started = Rc::clone(&sampler);
    let words = own_words(std::env::args_os().skip(1).collect(), &arguments.command);
    let before_start = Box::new(move |pid| {
        let mut child = start(&words, pid)?;
        let begun = child.begun()?;
        *started.borrow_mut() = Some(child.process);
        let mut executed = child.executed;
        let after_start = move || {
            // The recorder of samples may be gone, which is no reason to stop.
            let _ = executed.write_all(&[1]);
        };
        match begun {
            true => Ok(Box::new(after_start) as AfterStart),
            false => Err(io::Error::other("its recorder could not begin")),
        }
    });
    let recorded = record_calls(options, &arguments.command, arguments.quiet, before_start);
    // The recorder of samples ends with the command.
    let status = match sampler.borrow_mut().as_mut() {
        Some(child) => Some(
            child
                .wait()
                .context("waiting for the recorder of samples")?,
        ),
        None => None,
    };
    let recorded: Recorded = match recorded {
        Ok(recorded) => recorded,
        Err(error) => return say_usage(Err(error)),
    };
    let exit = recorded.finish();
    match status {
        Some(status) if !status.success() => {
            say!("the recorder of samples failed: {status}");
            Ok(Exit::RecordingFailed)
        }
        _ => Ok(exit),
    }
}

/// Returns the error for arguments that ask for something else than one command.
fn contradiction(arguments: &Arguments) -> Option<&'static str> {
    let has_target = arguments.all_cpus
        || arguments.cpu.is_some()
        || arguments.cgroup.is_some()
        || !arguments.pid.is_empty()
        || !arguments.tid.is_empty();
    if arguments.command.is_empty() || has_target {
        Some(
            "--trace goes with a command, without -a, -C, -p, -t and --cgroup; `dioptra trace record -p` attaches to running programs",
        )
    } else if arguments.output.as_os_str() == "-" {
        Some("--trace goes with a file, not with `-o -`")
    } else if arguments.flight_recorder.is_some() {
        Some("--trace does not go with --flight-recorder; see `dioptra trace record --last`")
    } else {
        None
    }
}

/// Returns the words of a command line without the command and `--trace`.
fn own_words(mut words: Vec<OsString>, command: &[OsString]) -> Vec<OsString> {
    words.truncate(words.len().saturating_sub(command.len()));
    words.pop_if(|last| *last == "--");
    words.retain(|word| {
        let word = word.as_encoded_bytes();
        word != b"--trace" && !word.starts_with(b"--trace=")
    });
    words
}

/// A recorder of samples that begins.
struct Beginning {
    process: Child,
    ready: io::PipeReader,
    /// The pipe that gets a byte when the command has executed. The recorder waits for the byte or the pipe's end.
    executed: io::PipeWriter,
}

impl Beginning {
    /// Waits until its events count. Returns false if it has ended instead.
    fn begun(&mut self) -> io::Result<bool> {
        let mut byte = [0];
        loop {
            match self.ready.read(&mut byte) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return Ok(read? > 0),
            }
        }
    }
}

/// Starts the recorder of samples of a process.
fn start(words: &[OsString], pid: u32) -> io::Result<Beginning> {
    let (ready, end) = io::pipe()?;
    let (started, executed) = io::pipe()?;
    fcntl_setfd(&end, FdFlags::empty())?;
    fcntl_setfd(&started, FdFlags::empty())?;
    let process = Command::new(OURSELVES)
        // The profile states this name in its command line.
        .arg0(std::env::args_os().next().unwrap_or_default())
        .args(words)
        .args(["-p", &pid.to_string()])
        .args(["--ready-fd", &end.as_raw_fd().to_string()])
        .args(["--started-fd", &started.as_raw_fd().to_string()])
        .spawn()?;
    Ok(Beginning {
        process,
        ready,
        executed,
    })
}

/// Tells whoever started this recorder that it has begun.
pub fn tell_begun(descriptor: i32) {
    // The other process may be gone, which is no reason to stop.
    let path = PathBuf::from(format!("/proc/self/fd/{descriptor}"));
    let _ = std::fs::write(path, [1]);
}

/// Waits until whoever started this recorder says that the recorded process has executed its command. Returns false if the
/// command did not start.
pub fn has_started(descriptor: i32) -> bool {
    let path = PathBuf::from(format!("/proc/self/fd/{descriptor}"));
    std::fs::File::open(path).is_ok_and(|mut pipe| pipe.read_exact(&mut [0]).is_ok())
}

#[cfg(test)]
mod tests {
    use super::own_words;
    use std::ffi::OsString;

    #[test]
    fn the_second_recorder_gets_the_options_alone() {
        let words = |text: &str| -> Vec<OsString> { text.split(' ').map(OsString::from).collect() };
        for (line, command, own) in [
            (
                "record --trace -g ./prog --trace x",
                "./prog --trace x",
                "record -g",
            ),
            (
                "record --trace=-P -F 99 -- prog --",
                "prog --",
                "record -F 99",
            ),
        ] {
            assert_eq!(own_words(words(line), &words(command)), words(own));
        }
    }
}
