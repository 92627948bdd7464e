//! `dioptra record`: the statuses and output that it passes on, its ends, and the way other tools read its files.

mod ends;
mod forms;
mod metrics;
mod off_cpu;
mod support;
mod windows;

use dioptra_perfdata::PerfData;
use dioptra_perfevents::record::RecordType;
use dioptra_testprograms as programs;
use programs::or_skip;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use support::{Recording, check_counts, kill, wait_until};

/// An event that works everywhere that sampling works: without hardware counters and privileges.
const CLOCK: [&str; 2] = ["-e", "cpu-clock:u"];

fn code(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Recording::new().run(arguments);
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

#[test]
fn the_commands_status_is_passed_on() {
    or_skip!(programs::need_sampling());
    assert_eq!(code(&["-q", "true"]).0, Some(0));
    assert_eq!(code(&["-q", "--", "sh", "-c", "exit 7"]).0, Some(7));
    assert_eq!(code(&["-q", "sh", "-c", "kill -TERM $$"]).0, Some(128 + 15));
}

#[test]
fn a_command_that_does_not_start_is_told_as_shells_do() {
    or_skip!(programs::need_sampling());
    let recording = Recording::new();
    fs::write(recording.path(), "kept").unwrap();
    let missing = recording.run(["no-such-command-anywhere"]);
    assert_eq!(missing.status.code(), Some(127), "{missing:?}");
    assert!(
        String::from_utf8_lossy(&missing.stderr)
            .contains("no-such-command-anywhere: command not found")
    );
    let plain = recording.folder().join("plain");
    fs::write(&plain, "text").unwrap();
    fs::set_permissions(&plain, PermissionsExt::from_mode(0o644)).unwrap();
    assert_eq!(recording.run([&plain]).status.code(), Some(126));
    // Nothing was recorded, so the older recording is still the newest.
    assert_eq!(fs::read(recording.path()).unwrap(), b"kept");
    assert!(!recording.folder().join("perf.data.old").exists());
}

#[test]
fn wrong_arguments_are_2_and_say_what_to_do() {
    for (arguments, word) in [
        (&[][..], "nothing to record"),
        (&["--no-such-option", "true"], "--no-such-option"),
        (&["-e", "no-such-event", "true"], "no-such-event"),
        (&["-F", "0", "true"], "samples a second"),
        (&["-a", "-p", "1"], "cannot be used with"),
        (&["--call-graph", "magic", "true"], "dwarf"),
        (&["-C", "x", "true"], "0-3,8"),
    ] {
        let (status, text) = code(arguments);
        assert_eq!(status, Some(2), "{arguments:?}: {text}");
        assert!(text.contains(word), "{arguments:?}: {text}");
    }
}

#[test]
fn our_own_failures_are_125() {
    or_skip!(programs::need_sampling());
    // Larger than any process id.
    let (status, text) = code(&["-p", "8388609"]);
    assert_eq!(status, Some(125), "{text}");
    assert!(text.contains("8388609"), "{text}");
    let output = Command::new(env!("CARGO_BIN_EXE_dioptra"))
        .args(["record", "-q", "-o", "/no/such/folder/perf.data", "true"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/no/such/folder/perf.data"));
}

#[test]
fn an_older_recording_is_kept() {
    or_skip!(programs::need_sampling());
    let recording = Recording::new();
    fs::write(recording.path(), "older").unwrap();
    recording.record(["-q", "true"]);
    assert_eq!(
        fs::read(recording.folder().join("perf.data.old")).unwrap(),
        b"older"
    );
    assert!(!recording.content().salvaged);
}

#[test]
fn serial_counts_agree_with_what_is_said_and_with_perf() {
    or_skip!(programs::need_sampling());
    let spin = or_skip!(programs::c("spin", &[]));
    for extra in [
        &[][..],
        &["-z"],
        &["-g"],
        &["-e", "cpu-clock:u,page-faults:u"],
        &["--call-graph", "dwarf,1024"],
    ] {
        let recording = Recording::new();
        let arguments = CLOCK.iter().chain(extra).copied();
        let output = recording.record(arguments.chain([spin.to_str().unwrap(), "0.2"]));
        let content = check_counts(&recording, &output);
        assert!(content.count(RecordType::SAMPLE) > 0, "{output:?}");
        assert!(
            content.has_comm("spin") && content.has_mapping("/spin"),
            "{content:?}"
        );
        match extra {
            ["-g"] => assert!(content.longest_chain > 2, "{}", content.longest_chain),
            ["--call-graph", ..] => assert!(content.stacks > 0),
            _ => assert_eq!((content.longest_chain, content.stacks), (0, 0)),
        }
    }
}

#[test]
fn serial_the_summary_names_the_hottest_function() {
    or_skip!(programs::need_sampling());
    let spin = or_skip!(programs::c("spin", &[]));
    let output = Recording::new().record(CLOCK.into_iter().chain([spin.to_str().unwrap(), "0.3"]));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("spin") && text.contains("burn"), "{text}");
    assert!(output.stdout.is_empty(), "standard output is the command's");
    // Quiet means quiet.
    let output = Recording::new().record(CLOCK.into_iter().chain(["-q", "true"]));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn serial_a_fixed_period_samples_every_nth_event() {
    or_skip!(programs::need_sampling());
    let faults = or_skip!(programs::c("faults", &[]));
    let recording = Recording::new();
    // All of the faults are at one instruction, and every tenth is a sample.
    let output = recording.record([
        "-e",
        "page-faults:u",
        "-c",
        "10",
        "--",
        faults.to_str().unwrap(),
        "5000",
    ]);
    let content = check_counts(&recording, &output);
    let samples = content.count(RecordType::SAMPLE);
    assert!(
        samples + content.lost() >= 500,
        "{samples} samples, {} lost",
        content.lost()
    );
    assert!(samples < 1000, "{samples} samples of about 5200 faults");
}

#[test]
fn serial_sigint_ends_a_recording_cleanly() {
    or_skip!(programs::need_sampling());
    let spin = or_skip!(programs::c("spin", &[]));
    let recording = Recording::new();
    let path = recording.path();
    let mut child = recording
        .command()
        .args(["-q"])
        .args(CLOCK)
        .arg(&spin)
        .arg("300")
        .spawn()
        .unwrap();
    wait_until(&mut child, "something is recorded", || {
        fs::metadata(&path).is_ok_and(|file| file.len() > 4096)
    });
    // The signal comes from a process, so the recorder passes it to the command.
    kill(&child, libc::SIGINT);
    let status = child.wait().unwrap();
    assert_eq!(
        status.code(),
        Some(130),
        "the command's death by SIGINT is passed on"
    );
    let content = recording.content();
    assert!(!content.salvaged && content.count(RecordType::SAMPLE) > 0);
}

#[test]
fn serial_a_second_signal_kills_a_command_that_ignores_the_first() {
    or_skip!(programs::need_sampling());
    let recording = Recording::new();
    let ready = recording.folder().join("ready");
    let script = format!(
        "exec >/dev/null 2>&1; trap '' INT; echo > {}; while :; do sleep 1; done",
        ready.display()
    );
    let mut child = recording
        .command()
        .args(CLOCK)
        .args(["sh", "-c", &script])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until(&mut child, "the command ignores SIGINT", || ready.exists());
    kill(&child, libc::SIGINT);
    let path = recording.path();
    // Complete before the command has ended: the size of the data is in the header.
    wait_until(&mut child, "the recording is complete", || {
        PerfData::open(&path).is_ok_and(|data| !data.salvaged())
    });
    kill(&child, libc::SIGINT);
    assert_eq!(child.wait().unwrap().code(), Some(128 + 9));
}

#[test]
fn serial_a_killed_recorder_leaves_what_it_wrote() {
    or_skip!(programs::need_sampling());
    let spin = or_skip!(programs::c("spin", &[]));
    let recording = Recording::new();
    let path = recording.path();
    let pid = recording.folder().join("pid");
    let script = format!("echo $$ > {}; exec {} 300", pid.display(), spin.display());
    let mut child = recording
        .command()
        .args(CLOCK)
        .args(["sh", "-c", &script])
        .spawn()
        .unwrap();
    wait_until(&mut child, "something is recorded", || {
        fs::metadata(&path).is_ok_and(|file| file.len() > 8192)
    });
    child.kill().unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(9));
    let spinning = fs::read_to_string(pid).unwrap();
    programs::send_signal(spinning.trim().parse().unwrap(), libc::SIGKILL).unwrap();
    let content = recording.content();
    assert!(
        content.salvaged && content.count(RecordType::SAMPLE) > 0,
        "{:?}",
        content.summary
    );
    let report = Command::new(env!("CARGO_BIN_EXE_dioptra"))
        .args(["report", "-i"])
        .arg(&path)
        .output()
        .unwrap();
    assert!(report.status.success(), "{report:?}");
    assert!(String::from_utf8_lossy(&report.stdout).contains("burn"));
}

#[test]
fn serial_a_running_process_is_described_and_recorded() {
    or_skip!(programs::need_sampling());
    let spin = or_skip!(programs::c("spin", &[]));
    let mut target = Command::new(&spin).arg("300").spawn().unwrap();
    let pid = target.id();
    let recording = Recording::new();
    let output = recording.run([
        "-e",
        "cpu-clock:u",
        "-g",
        "--duration",
        "0.5",
        "-p",
        &pid.to_string(),
    ]);
    let thread = Recording::new();
    let by_thread = thread.run(["-e", "cpu-clock:u", "-t", &pid.to_string(), "sleep", "0.3"]);
    target.kill().unwrap();
    target.wait().unwrap();
    for (recording, output) in [(recording, output), (thread, by_thread)] {
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let content = check_counts(&recording, &output);
        assert!(content.count(RecordType::SAMPLE) > 0);
        assert!(
            content
                .samples
                .iter()
                .all(|(sampled, _, _)| *sampled == pid)
        );
        // /proc names the process, which was there before the recording.
        assert!(
            content.comms.contains(&(pid, pid, "spin".into())),
            "{:?}",
            content.comms
        );
        assert!(content.has_mapping("/spin"), "{:?}", content.mappings);
    }
}

#[test]
fn serial_a_target_that_ends_ends_the_recording() {
    or_skip!(programs::need_sampling());
    let spin = or_skip!(programs::c("spin", &[]));
    // The program has to live until the recorder attaches to it.
    let mut target = Command::new(&spin).arg("300").spawn().unwrap();
    let recording = Recording::new();
    let path = recording.path();
    let mut child = recording
        .command()
        .args(["-q", "-e", "cpu-clock:u", "-p", &target.id().to_string()])
        .spawn()
        .unwrap();
    wait_until(&mut child, "something is recorded", || {
        fs::metadata(&path).is_ok_and(|file| file.len() > 4096)
    });
    target.kill().unwrap();
    target.wait().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(!recording.content().salvaged);
}

#[test]
fn serial_what_happens_during_the_delay_is_described_but_not_sampled() {
    or_skip!(programs::need_sampling());
    let spin = or_skip!(programs::c("spin", &[]));
    let recording = Recording::new();
    // The period is far longer than the run: there are no samples, but the exec and its mappings.
    let output = recording.record([
        "-e",
        "cpu-clock:u",
        "-D",
        "600000",
        spin.to_str().unwrap(),
        "0.1",
    ]);
    let content = check_counts(&recording, &output);
    assert_eq!(content.count(RecordType::SAMPLE), 0);
    assert!(
        content.has_comm("spin") && content.has_mapping("/spin"),
        "{content:?}"
    );
}

#[test]
fn serial_children_are_followed_unless_they_are_left_out() {
    or_skip!(programs::need_sampling());
    let spin = or_skip!(programs::c("spin", &[]));
    let script = format!("{} 0.2; exit 3", spin.display());
    for (extra, follows) in [(&[][..], true), (&["--no-inherit"], false)] {
        let recording = Recording::new();
        let arguments = CLOCK
            .iter()
            .chain(extra)
            .copied()
            .chain(["sh", "-c", &script]);
        let output = recording.run(arguments);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        let content = check_counts(&recording, &output);
        assert_eq!(content.has_comm("spin"), follows, "{:?}", content.comms);
        let parent = content
            .comms
            .iter()
            .find(|(_, _, name)| name == "sh")
            .unwrap()
            .0;
        let childs = content
            .samples
            .iter()
            .filter(|(pid, _, _)| *pid != parent)
            .count();
        assert_eq!(childs > 0, follows);
    }
}

#[test]
fn serial_nobody_records_own_programs() {
    or_skip!(programs::need_sampling());
    let spin = or_skip!(programs::c("spin", &[]));
    let dioptra = env!("CARGO_BIN_EXE_dioptra");
    let mut nobody = or_skip!(programs::as_nobody(dioptra));
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let path = folder.path().join("perf.data");
    // The program may lie where nobody may not look.
    let copy = folder.path().join("spin");
    fs::copy(&spin, &copy).unwrap();
    let output = nobody
        .arg("record")
        .arg("-o")
        .arg(&path)
        .arg(&copy)
        .arg("0.2")
        .current_dir("/")
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            programs::skip(format!("nobody may not run {dioptra}: {error}"));
            return;
        }
    };
    let text = String::from_utf8_lossy(&output.stderr);
    if programs::paranoid().is_some_and(|level| level > 2) && !output.status.success() {
        programs::skip(format!("nobody may not sample here: {text}"));
        return;
    }
    assert!(output.status.success(), "{text}");
    if programs::paranoid().is_some_and(|level| level == 2) {
        assert!(text.contains("kernel"), "said aloud: {text}");
    }
    let data = PerfData::open(&path).unwrap();
    let summary = data.read(|_| std::ops::ControlFlow::Continue(()));
    assert!(summary.records.get(RecordType::SAMPLE) > 0, "{text}");
}

#[test]
fn serial_build_ids_are_those_that_perf_lists() {
    or_skip!(programs::need_sampling());
    let perf = or_skip!(programs::need_tool("perf"));
    let spin = or_skip!(programs::c("spin", &[]));
    let recording = Recording::new();
    recording.record(["-q", "-e", "cpu-clock:u", spin.to_str().unwrap(), "0.1"]);
    let listed = Command::new(perf)
        .args(["buildid-list", "-i"])
        .arg(recording.path())
        .output()
        .unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let line = listed
        .lines()
        .find(|line| line.ends_with("/spin"))
        .unwrap_or_else(|| panic!("{listed}"));
    let id = dioptra_symbols::build_id(&spin).unwrap().unwrap();
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(line.starts_with(&hex), "{line}: not {hex}");
    assert!(listed.contains("libc.so"), "{listed}");
    if std::path::Path::new("/sys/kernel/notes").exists() && programs::is_root() {
        assert!(listed.contains("[kernel.kallsyms]"), "{listed}");
    }
}

#[test]
fn serial_perf_reads_the_fields_of_tracepoints() {
    or_skip!(programs::need_root());
    or_skip!(programs::need_sampling());
    let perf = or_skip!(programs::need_tool("perf"));
    if programs::Limit::NoTracepoints.holds() {
        return programs::skip(programs::Limit::NoTracepoints);
    }
    let recording = Recording::new();
    let output = recording.record(["-e", "sched:sched_process_exec", "true"]);
    let content = check_counts(&recording, &output);
    assert_eq!(
        content.count(RecordType::SAMPLE),
        1,
        "one exec, and a sample of each"
    );
    let script = Command::new(perf)
        .args(["script", "-i"])
        .arg(recording.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&script.stdout);
    assert!(
        text.contains("filename=") && text.contains("/true"),
        "{script:?}"
    );
}
