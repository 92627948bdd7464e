//! Programs whose recorder is stopped while they load libraries: they can be interrupted, and go on after a while.

use super::{dioptra, text};
use dioptra_testprograms::{Language, Program, or_skip};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// The time after which a program is taken to hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// A recording, ended with the test.
struct Recording {
    recorder: Child,
    lines: Receiver<String>,
}

impl Drop for Recording {
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.recorder);
        let _ = kill_process(pid, Signal::CONT);
        let _ = self.recorder.kill();
        let _ = self.recorder.wait();
    }
}

/// Returns the lines of a program's output, as they come, until it ends.
fn lines(output: ChildStdout) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

#[test]
fn serial_a_program_can_be_interrupted_and_goes_on_while_its_recorder_is_stopped() {
    let program = Program::new(Language::C, "trace-reloads").no_flags();
    let program = or_skip!(program.flags(["-O1"]).build());
    let library = Program::new(Language::C, "trace-reloads").no_flags();
    let library = library.shared_library().flags(["-O1", "-pg", "-DPLUGIN"]);
    let library = or_skip!(library.build());
    for is_interrupted in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let mut recorder = Command::new(env!("CARGO_BIN_EXE_dioptra"))
            .args(["trace", "record", "--no-sched", "--no-libcall"])
            .arg(&program)
            .args(["asked", "20"])
            .arg(&library)
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut input = recorder.stdin.take().unwrap();
        let output = recorder.stdout.take().unwrap();
        let mut recording = Recording {
            recorder,
            lines: lines(output),
        };
        let line = || recording.lines.recv_timeout(PATIENCE);
        let pid: i32 = line().unwrap().parse().unwrap();
        let pid = Pid::from_raw(pid).unwrap();
        let recorder = Pid::from_child(&recording.recorder);
        kill_process(recorder, Signal::STOP).unwrap();
        // Now it loads the library.
        input.write_all(b"\n").unwrap();
        if is_interrupted {
            std::thread::sleep(Duration::from_millis(300));
            kill_process(pid, Signal::INT).unwrap();
            // Nobody but the recorder asks how it ended: until then it is a zombie.
            let status = || std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
            let has_ended = || status().map_or(true, |text| text.contains(") Z "));
            let tries = PATIENCE.as_millis() / 20;
            let ended = (0..tries).any(|_| {
                std::thread::sleep(Duration::from_millis(20));
                has_ended()
            });
            if !ended {
                let _ = kill_process(pid, Signal::KILL);
            }
            assert!(ended, "it can't be interrupted");
        } else {
            let went_on = line();
            if went_on.is_err() {
                let _ = kill_process(pid, Signal::KILL);
            }
            assert_eq!(went_on.as_deref(), Ok("on"));
        }
        kill_process(recorder, Signal::CONT).unwrap();
        drop(input);
        let status = recording.recorder.wait().unwrap();
        if is_interrupted {
            let code = 128 + Signal::INT.as_raw();
            assert_eq!(status.code(), Some(code), "{:?}", status.signal());
            continue;
        }
        assert_eq!(status.code(), Some(0));
        for command in ["report", "replay", "info"] {
            let said = dioptra(&[command], folder.path());
            let said = text(&said.stdout) + &text(&said.stderr);
            assert!(
                said.contains("gave up waiting for dioptra"),
                "{command}: {said}"
            );
        }
    }
}
