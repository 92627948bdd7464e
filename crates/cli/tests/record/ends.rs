//! Ends of recordings that something hinders: stuck or refused ones, and programs that may not be watched.

use super::support::{PATIENCE, Recording, kill, wait_until};
use dioptra_testprograms as programs;
use programs::or_skip;
use serde_json::Value;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Waits for a child's end, however it comes; kills it and fails where it doesn't.
fn end_of(child: &mut Child, what: &str) -> ExitStatus {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return status;
        }
        if Instant::now() > end {
            let _ = child.kill();
            let _ = child.wait();
            panic!("{what} did not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// 3000 threads of some 30 us of work each, one after the other, with a sample after 5 ms: hardly any thread gets one.
#[test]
fn serial_threads_shorter_than_a_period_are_told() {
    or_skip!(programs::need_sampling());
    let threads = or_skip!(programs::c("manythreads", &["-pthread"]));
    let recording = Recording::new();
    let arguments = ["-e", "cpu-clock:u", "-c", "5000000"];
    let program = [threads.to_str().unwrap(), "3000", "2", "30"];
    let output = recording.record(arguments.iter().chain(&program));
    let text = said(&output);
    let told = "leave no sample; record all CPUs (-a";
    assert!(
        text.contains("in 3001 threads") && text.contains(told),
        "{text}"
    );
    let report = Command::new(env!("CARGO_BIN_EXE_dioptra"))
        .args(["report", "--format", "json", "-i"])
        .arg(recording.path())
        .output()
        .expect("dioptra runs");
    let document: Value = serde_json::from_slice(&report.stdout).expect("JSON");
    let value = &document["facts"]["unsampled_threads"]["value"];
    assert_eq!(value["threads"], 3001, "{document}");
    let number = |name: &str| value[name].as_u64().expect("a number");
    assert!(number("counted") > 50_000_000 && number("sampled") * 2 < number("counted"));
    // One thread that runs for as long is sampled as it should be.
    let spin = or_skip!(programs::c("spin", &[]));
    let output = recording.record(arguments.iter().chain(&[spin.to_str().unwrap(), "0.3"]));
    assert!(
        !said(&output).contains("leave no sample"),
        "{}",
        said(&output)
    );
}

#[test]
fn serial_bursts_closer_than_can_be_kept_end_with_the_program() {
    or_skip!(programs::need_sampling());
    let spin = or_skip!(programs::c("spin", &[]));
    for windows in [
        "--windows=long=1us,short=1ms",
        "--windows=long=5us,short=60us,batch=1",
    ] {
        let recording = Recording::new();
        let mut child = recording
            .command()
            .args([
                windows,
                "-e",
                "{task-clock:u,page-faults:u}",
                spin.to_str().unwrap(),
                "0.1",
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("dioptra runs");
        let status = end_of(&mut child, windows);
        let output = child.wait_with_output().expect("its output");
        let text = said(&output);
        assert!(status.success(), "{text}");
        assert!(text.contains("cannot be kept: the shortest"), "{text}");
        assert!(text.contains("100us"), "{text}");
    }
}

/// Two clocks interrupt the program itself: with a period of 5 us they left it no time at all.
#[test]
fn serial_two_clocks_leave_the_program_time() {
    or_skip!(programs::need_sampling());
    let spin = or_skip!(programs::c("spin", &[]));
    let recording = Recording::new();
    let windows = "--windows=long=5us,short=60us,batch=1,source=twin";
    let mut child = recording
        .command()
        .args([windows, "-e", "{task-clock:u,page-faults:u}"])
        .arg(&spin)
        .arg("0.1")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("dioptra runs");
    let status = end_of(&mut child, windows);
    let output = child.wait_with_output().expect("its output");
    let text = said(&output);
    if status.code() == Some(125) && text.contains("makes no windows here") {
        // The trial at the start depends on how long a sample takes at that moment. The recording ended, which is
        // tested.
        return;
    }
    assert!(status.success(), "{text}");
    assert!(text.contains("long=5us cannot be kept"), "{text}");
    assert!(text.contains("1ms"), "{text}");
}

/// Nobody reads the pipe, so that the recorder waits in a write, and the signal is the only way out.
#[test]
fn serial_a_signal_ends_a_recorder_whose_pipe_nobody_reads() {
    or_skip!(programs::need_sampling());
    let faults = or_skip!(programs::c("faults", &[]));
    let mut child = Command::new(env!("CARGO_BIN_EXE_dioptra"))
        .args(["record", "-o", "-", "-e", "page-faults:u", "-c", "1"])
        .args([faults.to_str().unwrap(), "20000", "2"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("dioptra runs");
    let pipe = child.stdout.take().expect("a pipe");
    wait_until(&mut child, "a full pipe", || {
        let mut waiting: libc::c_int = 0;
        // SAFETY: the descriptor is open, and the number outlives the call.
        let asked = unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &raw mut waiting) };
        asked == 0 && waiting > 60_000
    });
    kill(&child, libc::SIGTERM);
    let status = end_of(&mut child, "the recorder");
    assert_eq!(status.signal(), Some(libc::SIGTERM), "{status}");
}

#[test]
fn settings_that_waste_a_recording_are_refused() {
    let refused = |arguments: &[&str], what: &str| {
        let output = Recording::new().run(arguments);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?}: {}",
            said(&output)
        );
        assert!(said(&output).contains(what), "{}", said(&output));
    };
    let group = ["-e", "{task-clock:u,page-faults:u}", "true"];
    let with = |first: &'static str| [&[first][..], &group].concat();
    refused(&with("--windows=warmup=9"), "none of the 4 windows");
    refused(
        &with("--windows=batch=2,warmup=2,short=1ms"),
        "none of the 2 windows",
    );
    refused(
        &["-c", "18446744073709551615", "true"],
        "9223372036854775807",
    );
}

/// The older recordings stay what and where they are, however often a command is misspelt.
#[test]
fn a_command_that_does_not_start_keeps_older_recordings() {
    or_skip!(programs::need_sampling());
    let recording = Recording::new();
    let old = recording.folder().join("perf.data.old");
    fs::write(recording.path(), "good").unwrap();
    fs::write(&old, "older").unwrap();
    // `./typo` does not exist. The script's interpreter is missing, which only its exec shows.
    let script = recording.folder().join("script");
    fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    for command in ["./typo", "./typo", script.to_str().unwrap()] {
        assert_eq!(recording.run([command]).status.code(), Some(127));
        assert_eq!(fs::read(recording.path()).unwrap(), b"good");
        assert_eq!(fs::read(&old).unwrap(), b"older");
        assert_eq!(fs::read_dir(recording.folder()).unwrap().count(), 3);
    }
    recording.record(["true"]);
    assert_eq!(fs::read(&old).unwrap(), b"good");
    assert_eq!(fs::read_dir(recording.folder()).unwrap().count(), 3);
}

#[test]
fn a_named_pipe_is_told_from_a_full_disk() {
    or_skip!(programs::need_sampling());
    let recording = Recording::new();
    let made = Command::new("mkfifo").arg(recording.path()).status();
    assert!(made.expect("mkfifo runs").success());
    let mut child = recording
        .command()
        .arg("true")
        .stderr(Stdio::piped())
        .spawn()
        .expect("dioptra runs");
    let status = end_of(&mut child, "the recorder");
    let text = said(&child.wait_with_output().expect("its output"));
    assert_eq!(status.code(), Some(125), "{text}");
    assert!(
        text.contains("it is a pipe") && text.contains("`-o -`"),
        "{text}"
    );
}

#[test]
fn too_few_descriptors_are_told_with_what_needs_them() {
    or_skip!(programs::need_sampling());
    let dioptra = env!("CARGO_BIN_EXE_dioptra");
    // Root would raise the limit again.
    let mut command = if programs::is_root() {
        or_skip!(programs::as_nobody(dioptra))
    } else {
        Command::new(dioptra)
    };
    command
        .args(["record", "-o", "/dev/null", "-e", "cpu-clock:u", "true"])
        .current_dir("/");
    // SAFETY: a system call in the child.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit {
                rlim_cur: 8,
                rlim_max: 8,
            };
            match libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return programs::skip(format!("nobody may not run dioptra: {error}")),
    };
    let text = said(&output);
    assert_eq!(output.status.code(), Some(125), "{text}");
    assert!(
        text.contains("ulimit -n") && !text.contains("0 threads"),
        "{text}"
    );
}

/// A program with other rights loses its events at its exec: the message gives this reason for the missing samples.
#[test]
fn serial_a_program_with_other_rights_is_told() {
    or_skip!(programs::need_root());
    or_skip!(programs::need_sampling());
    let spin = or_skip!(programs::c("spin", &[]));
    let mut nobody = or_skip!(programs::as_nobody(env!("CARGO_BIN_EXE_dioptra")));
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let copy = folder.path().join("spin");
    fs::copy(&spin, &copy).unwrap();
    fs::set_permissions(&copy, PermissionsExt::from_mode(0o4755)).unwrap();
    let output = nobody
        .args(["record", "-o"])
        .arg(folder.path().join("perf.data"))
        .args(["-e", "cpu-clock:u"])
        .arg(&copy)
        .arg("0.1")
        .current_dir("/")
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => return programs::skip(format!("nobody may not run dioptra: {error}")),
    };
    let text = said(&output);
    if !text.contains("no samples") {
        return programs::skip(format!("the file system ignores set-user-ID: {text}"));
    }
    assert!(text.contains("set-user-ID"), "{text}");
}

#[test]
fn the_end_of_a_duration_is_no_failure_and_help_says_so() {
    or_skip!(programs::need_sampling());
    let output = Recording::new().run(["--duration", "0.2", "sleep", "1000"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let help = Command::new(env!("CARGO_BIN_EXE_dioptra"))
        .args(["record", "--help"])
        .output()
        .expect("dioptra runs");
    let help = String::from_utf8_lossy(&help.stdout).replace('\n', " ");
    let says = "0 when Ctrl-C ends a recording without command, and when the SIGTERM of --duration";
    assert!(help.contains(says), "{help}");
}
