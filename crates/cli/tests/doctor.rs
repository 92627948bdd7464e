//! `dioptra doctor` and `dioptra list events`: what they find agrees with what then works.

use dioptra_testprograms as programs;
use programs::or_skip;
use serde_json::Value;
use std::process::{Command, Output};

fn dioptra(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dioptra"))
        .args(arguments)
        .output()
        .expect("dioptra runs")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn check<'a>(document: &'a Value, id: &str) -> &'a Value {
    let checks = document["checks"].as_array().expect("checks");
    checks
        .iter()
        .find(|check| check["id"] == id)
        .unwrap_or_else(|| panic!("no {id} in {document}"))
}

#[test]
fn every_finding_that_is_not_ok_says_what_it_costs() {
    let output = dioptra(&["doctor", "--format", "json"]);
    let document = json(&output);
    assert_eq!(document["schema"], 1);
    assert_eq!(
        output.status.code(),
        Some(if document["usable"] == true { 0 } else { 1 })
    );
    for check in document["checks"].as_array().expect("checks") {
        let status = check["status"].as_str().expect("a status");
        assert!(["ok", "limited", "missing"].contains(&status), "{check}");
        assert_eq!(check["cost"].is_string(), status != "ok", "{check}");
        assert!(
            check["found"]
                .as_str()
                .is_some_and(|found| !found.is_empty()),
            "{check}"
        );
    }
}

#[test]
fn the_findings_are_those_of_the_system() {
    let document = json(&dioptra(&["doctor", "--format", "json"]));
    let release = Command::new("uname")
        .arg("-r")
        .output()
        .expect("uname runs");
    assert_eq!(
        check(&document, "kernel")["value"],
        String::from_utf8_lossy(&release.stdout).trim()
    );
    if let Some(level) = programs::paranoid() {
        assert_eq!(check(&document, "perf_event_paranoid")["value"], level);
    }
    assert_eq!(
        document["usable"] == true,
        programs::need_sampling().is_ok()
    );
}

/// A filter answers before the kernel looks at rights: nothing is said of what rights would change.
#[test]
fn a_seccomp_filter_is_the_only_reason_where_there_is_one() {
    use std::os::unix::process::CommandExt;
    let number = u32::try_from(libc::SYS_perf_event_open).expect("a system call");
    let statement = |code: u32, jump: (u8, u8), k: u32| libc::sock_filter {
        code: u16::try_from(code).expect("a short code"),
        jt: jump.0,
        jf: jump.1,
        k,
    };
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();
    let mut program = [
        // The system call's number is the first word.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, (0, 0), 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, (0, 1), number),
        statement(libc::BPF_RET | libc::BPF_K, (0, 0), refuse),
        statement(libc::BPF_RET | libc::BPF_K, (0, 0), libc::SECCOMP_RET_ALLOW),
    ];
    let mut command = Command::new(env!("CARGO_BIN_EXE_dioptra"));
    command.args(["doctor", "--format", "json"]);
    let install = move || {
        let filter = libc::sock_fprog {
            len: 4,
            filter: program.as_mut_ptr(),
        };
        // SAFETY: system calls, with a program that lives through them.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(
                    libc::PR_SET_SECCOMP,
                    libc::SECCOMP_MODE_FILTER,
                    &raw const filter,
                ) == 0
        };
        if done {
            Ok(())
        } else {
            Err(std::io::Error::last_os_error())
        }
    };
    // SAFETY: the closure makes system calls only.
    let output = unsafe { command.pre_exec(install) }.output();
    let output = match output {
        Ok(output) => output,
        Err(error) => return programs::skip(format!("no filter can be installed: {error}")),
    };
    let document = json(&output);
    assert_eq!(document["usable"], false);
    let call = check(&document, "perf_event_open");
    assert_eq!(call["status"], "missing");
    assert!(
        call["found"]
            .as_str()
            .is_some_and(|found| found.contains("seccomp"))
    );
    if programs::paranoid().is_some() {
        let level = check(&document, "perf_event_paranoid");
        assert_eq!(
            (&level["status"], &level["cost"]),
            (&"ok".into(), &Value::Null)
        );
    }
    assert!(check(&document, "sample_user")["remedy"].is_null());
}

#[test]
fn text_ends_with_a_verdict() {
    let output = dioptra(&["doctor"]);
    let text = String::from_utf8(output.stdout).expect("text");
    let last = text.lines().last().expect("lines");
    let verdict = if output.status.success() {
        "Sampling works here"
    } else {
        "Sampling does not work here"
    };
    assert!(last.starts_with(verdict), "{last}");
}

#[test]
fn nobody_is_told_what_is_forbidden() {
    let mut nobody = or_skip!(programs::as_nobody(env!("CARGO_BIN_EXE_dioptra")));
    if programs::paranoid() != Some(2) {
        return programs::skip(programs::Limit::OtherParanoid);
    }
    let output = match nobody
        .args(["doctor", "--format", "json"])
        .current_dir("/")
        .output()
    {
        Ok(output) => output,
        Err(error) => {
            programs::skip(format!("nobody may not run dioptra: {error}"));
            return;
        }
    };
    let document = json(&output);
    for id in ["perf_event_paranoid", "sample_kernel", "sample_machine"] {
        let check = check(&document, id);
        assert_eq!(check["status"], "limited", "{check}");
        assert!(
            check["remedy"]
                .as_str()
                .is_some_and(|remedy| remedy.contains("sysctl")),
            "{check}"
        );
    }
}

#[test]
fn events_that_are_said_to_work_can_be_recorded() {
    or_skip!(programs::need_sampling());
    let document = json(&dioptra(&[
        "list", "events", "software", "--format", "json",
    ]));
    let rows = document["rows"].as_array().expect("rows");
    let folder = tempfile::tempdir().expect("a folder");
    let mut tried = 0;
    for row in rows {
        let [event, kind, works] =
            [0, 1, 2].map(|column| row["cells"][column].as_str().unwrap_or_default());
        // Some exist to carry records only.
        if kind != "software" || works != "yes" || ["dummy", "bpf-output"].contains(&event) {
            continue;
        }
        tried += 1;
        let output = Command::new(env!("CARGO_BIN_EXE_dioptra"))
            .args(["record", "-q", "-e", event, "-o"])
            .arg(folder.path().join("perf.data"))
            .arg("true")
            .output()
            .expect("dioptra runs");
        assert!(output.status.success(), "{event}: {output:?}");
    }
    assert!(tried > 0, "{document}");
}

#[test]
fn a_filter_without_match_is_a_finding() {
    let output = dioptra(&["list", "events", "surely-no-such-event"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("surely-no-such-event"));
}
