//! Servers that are slow, fail or fall silent, a full disk, and damaged files: nothing is lost or doubled, each fault is
//! said, and every wait ends.
#![cfg(feature = "query")]

mod common;

use common::{Recording, checked, files_below, run, store_command, text, totals, word};
use dioptra_testprograms::or_skip;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Returns standard error as text.
fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[cfg(feature = "s3")]
mod servers {
    use super::*;
    use common::bucket::{Bucket, Manner};
    use std::time::Duration;

    const STORE: &str = "s3://profiles/all";

    /// Every request of `add` in turn meets a fault; `DIOPTRA_STORE_FAULTS` asks for all of them instead of some.
    fn step() -> usize {
        match std::env::var_os("DIOPTRA_STORE_FAULTS") {
            Some(_) => 1,
            None => 4,
        }
    }

    fn add(bucket: &Bucket, recording: &Recording, timeout: &str) -> Output {
        let mut command = bucket.command();
        command.args(["add", word(&recording.file), "--to", STORE]);
        command.args(["--service", "web", "--timeout", timeout]);
        command.output().unwrap()
    }

    fn answer(bucket: &Bucket, words: &[&str]) -> String {
        let mut command = bucket.command();
        text(&checked(command.args(words).args(["--store", STORE])))
    }

    /// Checks that the store has the recording once and whole.
    fn is_whole(bucket: &Bucket, recording: &Recording) {
        let list = answer(bucket, &["list"]);
        assert!(list.ends_with("# 1 profile\n"), "{list}");
        let verified = answer(bucket, &["verify"]);
        assert!(verified.contains("# 1 profile is whole"), "{verified}");
        let rows = answer(bucket, &["query", "--format", "json", common::TOTALS]);
        let rows = common::totals_of(&serde_json::from_str(&rows).unwrap());
        assert_eq!(rows, recording.report());
    }

    #[test]
    fn slow_and_busy_servers_are_waited_for() {
        let recording = or_skip!(Recording::of("shares", &["50"], &["-g"]));
        for manner in [Manner::Slow(Duration::from_millis(50)), Manner::Busy] {
            let bucket = Bucket::start();
            bucket.behave(manner);
            let added = add(&bucket, &recording, "60s");
            assert!(added.status.success(), "{manner:?}: {}", said(&added));
            is_whole(&bucket, &recording);
        }
    }

    #[test]
    fn a_server_that_stops_answering_loses_and_doubles_nothing() {
        let recording = or_skip!(Recording::of("shares", &["50"], &["-g"]));
        let bucket = Bucket::start();
        assert!(add(&bucket, &recording, "60s").status.success());
        let requests = bucket.requests();
        assert!(requests > 10, "{requests}");
        let (mut refused, mut there) = (0, 0);
        for manner in [Manner::Silent as fn(usize) -> Manner, Manner::Cut] {
            for answered in (0..requests).step_by(step()) {
                bucket.clear();
                bucket.behave(manner(answered));
                let cut = add(&bucket, &recording, "1s");
                if !cut.status.success() {
                    assert!(said(&cut).starts_with("dioptra: "), "{}", said(&cut));
                    refused += 1;
                }
                // Whatever was written is invisible or whole.
                bucket.behave(Manner::Well);
                let verify = bucket.command().args(["verify", "--store", STORE]).output();
                let verified = text(&verify.unwrap());
                assert!(!verified.contains("damaged"), "{verified}");
                let again = add(&bucket, &recording, "60s");
                assert!(again.status.success(), "{}", said(&again));
                there += usize::from(said(&again).contains("is there already"));
                is_whole(&bucket, &recording);
            }
        }
        println!(
            "{requests} requests of an `add`; {refused} were refused, {there} had come through without the writer's knowledge"
        );
        assert!(refused > 4, "{refused}");
    }

    #[test]
    fn queries_do_not_wait_for_ever() {
        let recording = or_skip!(Recording::of("shares", &["50"], &["-g"]));
        let bucket = Bucket::start();
        assert!(add(&bucket, &recording, "60s").status.success());
        bucket.behave(Manner::Well);
        answer(&bucket, &["query", common::TOTALS]);
        let requests = bucket.requests();
        let (mut refused, mut answered_all) = (0, 0);
        for answered in (0..requests).step_by(step()) {
            bucket.behave(Manner::Silent(answered));
            let mut command = bucket.command();
            command.args([
                "query",
                "--store",
                STORE,
                "--timeout",
                "1s",
                "--format",
                "json",
            ]);
            let output = command.arg(common::TOTALS).output().unwrap();
            match output.status.success() {
                true => {
                    let rows = common::totals_of(&serde_json::from_str(&text(&output)).unwrap());
                    assert_eq!(rows, recording.report());
                    answered_all += 1;
                }
                false => {
                    assert!(said(&output).starts_with("dioptra: "), "{}", said(&output));
                    assert_eq!(text(&output), "");
                    refused += 1;
                }
            }
        }
        println!(
            "{requests} requests of a query; {refused} times refused, {answered_all} times answered"
        );
        assert!(refused > 0);
    }

    #[test]
    fn a_question_reads_the_rows_of_profiles_once() {
        let recording = or_skip!(Recording::of("shares", &["50"], &["-g"]));
        let bucket = Bucket::start();
        assert!(add(&bucket, &recording, "60s").status.success());
        let reads_of = |words: &[&str]| {
            bucket.reads("");
            answer(&bucket, words);
            bucket.reads("all/profiles/")
        };
        let once = reads_of(&["query", "SELECT count(start_ns) AS n FROM profiles"]);
        assert!(once > 0, "no read was counted");
        // The question for the event, and the question itself.
        assert_eq!(reads_of(&["query", "top-functions"]), once);
        assert_eq!(reads_of(&["query", "flame"]), once);
        let sides = ["--from", "service=web", "--to", "service=web"];
        let regressions = [&["query", "regressions"][..], &sides].concat();
        assert_eq!(reads_of(&regressions), once);
    }

    #[test]
    fn a_server_that_is_not_there_is_said() {
        let recording = or_skip!(Recording::of("shares", &["50"], &["-g"]));
        let mut command = Bucket::start().command();
        command.args([
            "add",
            word(&recording.file),
            "--to",
            STORE,
            "--timeout",
            "1s",
        ]);
        // Nobody listens on port 1.
        let output = command
            .env("AWS_ENDPOINT", "http://127.0.0.1:1")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(said(&output).starts_with("dioptra: "), "{}", said(&output));
    }
}

/// A file system of a few pages, which ends with this value.
struct SmallDisk(tempfile::TempDir);

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

impl SmallDisk {
    fn of(kilobytes: usize) -> Option<SmallDisk> {
        let folder = tempfile::tempdir().unwrap();
        let size = format!("size={kilobytes}k");
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(folder.path());
        let mounted = mount.stderr(Stdio::null()).status();
        mounted
            .is_ok_and(|status| status.success())
            .then(|| SmallDisk(folder))
    }
}

#[test]
fn a_full_disk_is_said_and_loses_nothing() {
    let first = or_skip!(Recording::of("shares", &["50"], &["-g"]));
    let second = or_skip!(Recording::of("inline", &["100"], &["-g"]));
    let alone = first.store();
    first.add_to(&alone);
    let expected = totals(&alone);
    // The store without rows has pages of its own, so the disk grows until both recordings fit.
    let (mut refused, mut kilobytes) = (0, 40);
    loop {
        let Some(disk) = SmallDisk::of(kilobytes) else {
            eprintln!("skipped: file systems can't be mounted here");
            return;
        };
        let store = word(&disk.0.path().join("store")).to_owned();
        let add = |recording: &Recording| {
            store_command()
                .args([
                    "add",
                    word(&recording.file),
                    "--to",
                    &store,
                    "--service",
                    "web",
                ])
                .output()
                .unwrap()
        };
        let added = add(&first);
        if added.status.success() {
            let second = add(&second);
            let verified = run(["verify", "--store", &store]);
            assert!(!verified.contains("damaged"), "{verified}");
            if second.status.success() {
                assert!(verified.contains("# 2 profiles are whole"), "{verified}");
                break;
            }
            assert!(said(&second).contains("No space left"), "{}", said(&second));
            assert_eq!(totals(&store), expected);
            // Room for the second comes from what its interrupted writer left.
            let collected = run(["gc", "--store", &store, "--older-than", "0s"]);
            assert!(collected.contains("# deleted"), "{collected}");
            assert_eq!(totals(&store), expected);
        } else {
            assert!(said(&added).contains("No space left"), "{}", said(&added));
            let rows = files_below(&Path::new(&store).join("profiles"));
            assert!(rows.is_empty(), "{rows:?}");
        }
        refused += 1;
        kilobytes += 20;
    }
    println!("{refused} full disks, up to {kilobytes} KiB");
    assert!(refused > 1, "{refused}");
}

/// Cuts the only file of each of these tables at several places. A query of the table must fail, and so must `verify`,
/// which names the file. At last the store is whole again.
fn cuts_are_said(store: &str, tables: &[&str]) {
    for table in tables {
        let file = common::only_file(&Path::new(store).join(table));
        let bytes = fs::read(&file).unwrap();
        for kept in [0, 3, bytes.len() / 2, bytes.len() - 1] {
            fs::write(&file, &bytes[..kept]).unwrap();
            let sql = format!("SELECT count(*) AS n FROM {table}");
            let words = ["query", "--store", store, "--format", "csv", &sql];
            let query = store_command().args(words).output().unwrap();
            assert_eq!(
                query.status.code(),
                Some(1),
                "{table} {kept}: {}",
                text(&query)
            );
            assert!(said(&query).starts_with("dioptra: "), "{}", said(&query));
            let verified = store_command()
                .args(["verify", "--store", store])
                .output()
                .unwrap();
            assert_eq!(verified.status.code(), Some(1));
            assert!(
                text(&verified).contains(&format!("{table}/")),
                "{}",
                text(&verified)
            );
        }
        fs::write(&file, &bytes).unwrap();
    }
    let verified = run(["verify", "--store", store]);
    assert!(verified.contains("# 1 profile is whole"), "{verified}");
}

#[test]
fn a_truncated_file_of_each_table_of_samples_is_said() {
    let recording = or_skip!(Recording::of("shares", &["100"], &["-g"]));
    let store = recording.store();
    recording.add_to(&store);
    let expected = totals(&store);
    cuts_are_said(
        &store,
        &[
            "profiles",
            "samples",
            "stacks",
            "functions",
            "modules",
            "mappings",
        ],
    );
    assert_eq!(totals(&store), expected);
}

#[test]
fn a_truncated_file_of_windows_is_said() {
    let (folder, file) = or_skip!(common::windows());
    let store = word(&folder.path().join("store")).to_owned();
    run(["add", word(&file), "--to", &store]);
    cuts_are_said(&store, &["windows", "window_totals"]);
}

#[test]
fn a_truncated_file_of_calls_is_said() {
    // Estimates are there only where calls were sampled.
    let options = ["-P", ".", "-F", "sixty@sample=1/3"];
    let (folder, trace) = or_skip!(common::trace("shares", &["200"], &options));
    let store = word(&folder.path().join("store")).to_owned();
    run(["add", word(&trace), "--to", &store]);
    cuts_are_said(&store, &["calls", "call_estimates"]);
}
