//! Merging changes no answer: at any moment, under kills, beside writers and readers, and after damage.
#![cfg(feature = "query")]

mod common;

use common::{Recording, Totals, checked, files_below, run, store_command, text, totals, word};
use dioptra_testprograms::or_skip;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Makes recordings that differ, and adds them to a store. Returns their files.
fn many(recording: &Recording, store: &str, count: usize) -> Vec<PathBuf> {
    let files: Vec<PathBuf> = (0..count)
        .map(|number| {
            let file = recording.folder.path().join(format!("copy-{number}.data"));
            common::distinct_copy(&recording.file, &file, number);
            file
        })
        .collect();
    let mut add = store_command();
    add.arg("add").args(&files).args(["--to", store]);
    checked(add.args(["--service", "web", "--host", "a"]));
    files
}

fn compact(store: &str) -> String {
    run(["compact", "--store", store, "--settle", "0s"])
}

/// Returns the totals times a number of equal profiles.
fn times(totals: &Totals, count: i64) -> Totals {
    let all = totals.iter();
    all.map(|(key, (samples, weight))| (key.clone(), (samples * count, weight * count)))
        .collect()
}

fn files_of_rows(store: &str) -> usize {
    let all = files_below(Path::new(store)).len();
    all - files_below(&Path::new(store).join("profiles")).len() - 1
}

#[test]
fn merging_changes_no_answer() {
    let recording = or_skip!(Recording::of("shares", &["50"], &["-g"]));
    let store = recording.store();
    let files = many(&recording, &store, 6);
    let expected = times(&recording.report(), 6);
    assert_eq!(totals(&store), expected);
    let before = files_of_rows(&store);
    let dry = run(["compact", "--store", &store, "--settle", "0s", "--dry-run"]);
    assert!(dry.contains("# would merge 6 profiles in 1 group"), "{dry}");
    assert_eq!(files_of_rows(&store), before);
    let views = |store: &str| -> Vec<String> {
        let sql = [
            "SELECT profile_id, date, host, start_ns, samples, totals FROM profiles ORDER BY profile_id",
            "SELECT profile_id, event, elapsed_ns, tid, stack_id, function_id, frames, weight FROM samples \
             ORDER BY profile_id, elapsed_ns, tid, stack_id, weight",
            "SELECT * FROM stacks ORDER BY profile_id, stack_id",
            "SELECT * FROM functions ORDER BY function_id",
            "SELECT * FROM modules ORDER BY module_id",
            "SELECT * FROM mappings ORDER BY profile_id, pid, start_address, from_ns",
        ];
        sql.map(|sql| run(["query", "--store", store, "--format", "csv", sql]))
            .into()
    };
    let rows = views(&store);
    let told = compact(&store);
    assert!(
        told.contains("# merged 6 profiles in 1 group: 5 objects of"),
        "{told}"
    );
    assert!(told.contains("instead of 30 objects"), "{told}");
    assert_eq!(views(&store), rows);
    assert_eq!(totals(&store), expected);
    // The old objects belong to nobody now, but readers may be at work on them.
    let verified = run(["verify", "--store", &store]);
    assert!(verified.contains("# 6 profiles are whole"), "{verified}");
    assert!(verified.contains("# 30 objects"), "{verified}");
    // They were written long ago, and became orphans only now.
    for file in files_below(Path::new(&store)) {
        if file.parent() != Some(&Path::new(&store).join("profiles")) {
            let old = std::time::SystemTime::now() - Duration::from_secs(10 * 86_400);
            fs::File::options()
                .write(true)
                .open(&file)
                .unwrap()
                .set_modified(old)
                .unwrap();
        }
    }
    let young = run(["gc", "--store", &store]);
    assert!(young.contains("# deleted 0 objects"), "{young}");
    let deleted = run(["gc", "--store", &store, "--older-than", "0s"]);
    assert!(deleted.contains("# deleted 30 objects"), "{deleted}");
    assert_eq!(files_of_rows(&store), 5);
    assert_eq!(views(&store), rows);
    // Nothing is left to merge, and merged recordings are known.
    let told = compact(&store);
    assert!(told.contains("# merged 0 profiles"), "{told}");
    let mut again = store_command();
    again.arg("add").args(&files).args(["--to", &store]);
    let said = String::from_utf8(checked(&mut again).stderr).unwrap();
    assert_eq!(said.matches("is there already").count(), 6, "{said}");
    assert_eq!(views(&store), rows);
    // More come, and all are merged once these are as large as those of before.
    for number in 6..14 {
        let file = recording.folder.path().join("more.data");
        common::distinct_copy(&recording.file, &file, number);
        run([
            "add",
            word(&file),
            "--to",
            &store,
            "--service",
            "web",
            "--host",
            "a",
        ]);
    }
    let expected = times(&recording.report(), 14);
    assert_eq!(totals(&store), expected);
    let told = compact(&store);
    assert!(told.contains("# merged 14 profiles in 1 group"), "{told}");
    assert_eq!(totals(&store), expected);
    run(["gc", "--store", &store, "--older-than", "0s"]);
    assert_eq!(totals(&store), expected);
    assert_eq!(files_of_rows(&store), 5);
}

#[test]
fn damaged_profiles_are_left_out_and_mended() {
    let recording = or_skip!(Recording::of("shares", &["50"], &["-g"]));
    let store = recording.store();
    let files = many(&recording, &store, 4);
    let expected = totals(&store);
    let samples = files_below(&Path::new(&store).join("samples"));
    let bytes = fs::read(&samples[0]).unwrap();
    fs::write(&samples[0], &bytes[..bytes.len() / 2]).unwrap();
    let output = store_command()
        .args(["compact", "--store", &store, "--settle", "0s"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output);
    assert!(
        told.contains(" is damaged") && told.contains("# merged 3 profiles"),
        "{told}"
    );
    let mend = || {
        let mut add = store_command();
        add.arg("add").args(&files).args(["--to", &store]);
        String::from_utf8(checked(&mut add).stderr).unwrap()
    };
    let said = mend();
    assert_eq!(said.matches("is whole again").count(), 1, "{said}");
    assert_eq!(totals(&store), expected);
    // A merged object that is lost is that of three profiles. They get objects of their own again.
    let merged = files_below(&Path::new(&store).join("stacks"));
    let merged = merged
        .iter()
        .find(|file| word(file).contains("merged-"))
        .unwrap();
    fs::remove_file(merged).unwrap();
    let verify = store_command()
        .args(["verify", "--store", &store])
        .output()
        .unwrap();
    assert_eq!(verify.status.code(), Some(1));
    assert!(
        text(&verify).contains("# 1 profile is whole"),
        "{}",
        text(&verify)
    );
    let said = mend();
    assert_eq!(said.matches("is whole again").count(), 3, "{said}");
    assert_eq!(totals(&store), expected);
    let verified = run(["verify", "--store", &store]);
    assert!(verified.contains("# 4 profiles are whole"), "{verified}");
    run(["gc", "--store", &store, "--older-than", "0s"]);
    assert_eq!(totals(&store), expected);
}

#[test]
fn killed_mergers_change_no_answer() {
    let recording = or_skip!(Recording::of("shares", &["50"], &["-g"]));
    let store = recording.store();
    many(&recording, &store, 5);
    let expected = totals(&store);
    let copy = recording.folder.path().join("kept");
    let restore = || {
        let _ = fs::remove_dir_all(&store);
        checked(
            std::process::Command::new("cp")
                .arg("-a")
                .arg(&copy)
                .arg(&store),
        );
    };
    checked(
        std::process::Command::new("cp")
            .arg("-a")
            .arg(&store)
            .arg(&copy),
    );
    let start = Instant::now();
    compact(&store);
    let whole = start.elapsed();
    let kills: u32 =
        std::env::var("DIOPTRA_STORE_KILLS").map_or(30, |kills| kills.parse().unwrap());
    let (mut interrupted, mut half, mut random) = (0, 0, 7_u32);
    for _ in 0..kills {
        restore();
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let part = f64::from(random) / f64::from(u32::MAX);
        let mut child = store_command()
            .args(["compact", "--store", &store, "--settle", "0s"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(whole.mul_f64(part));
        let _ = child.kill();
        interrupted += u32::from(!child.wait().unwrap().success());
        assert_eq!(totals(&store), expected);
        let verified = run(["verify", "--store", &store]);
        assert!(verified.contains("# 5 profiles are whole"), "{verified}");
        half += u32::from(verified.contains("without a profile"));
        if random % 2 == 0 {
            compact(&store);
        }
        run(["gc", "--store", &store, "--older-than", "0s"]);
        assert_eq!(totals(&store), expected);
    }
    println!(
        "{interrupted} of {kills} mergers were interrupted; {half} left objects without a profile"
    );
    assert!(interrupted > kills / 4, "{interrupted}");
}

#[test]
fn readers_and_writers_beside_a_merger_see_each_profile_once() {
    let recording = or_skip!(Recording::of("shares", &["50"], &["-g"]));
    let store = recording.store();
    many(&recording, &store, 3);
    let one = recording.report();
    let ends = AtomicBool::new(false);
    let mut asked = 0;
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut asked = 0;
            while !ends.load(Ordering::Relaxed) {
                let words = [
                    "query",
                    "--store",
                    &store,
                    "--format",
                    "json",
                    common::TOTALS,
                ];
                let output = store_command().args(words).output().unwrap();
                if !output.status.success() {
                    let said = String::from_utf8_lossy(&output.stderr).into_owned();
                    assert!(
                        said.contains("merged while") || said.contains("not found"),
                        "{said}"
                    );
                    continue;
                }
                let rows = common::totals_of(&serde_json::from_str(&text(&output)).unwrap());
                // The number of profiles grows, but each counts as a whole and once.
                let (key, sums) = one.iter().max_by_key(|(_, sums)| sums.0).unwrap();
                let count = rows[key].0 / sums.0;
                assert_eq!(rows, times(&one, count), "{count}");
                asked += 1;
            }
            asked
        });
        for number in 3..9 {
            let file = recording.folder.path().join("more.data");
            common::distinct_copy(&recording.file, &file, number);
            let mut writer = store_command()
                .args([
                    "add",
                    word(&file),
                    "--to",
                    &store,
                    "--service",
                    "web",
                    "--host",
                    "a",
                ])
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            compact(&store);
            assert!(writer.wait().unwrap().success());
        }
        ends.store(true, Ordering::Relaxed);
        asked = reader.join().unwrap();
    });
    println!("{asked} queries were answered beside six mergers and writers");
    assert!(asked > 0);
    assert_eq!(totals(&store), times(&one, 9));
    let verified = run(["verify", "--store", &store]);
    assert!(verified.contains("# 9 profiles are whole"), "{verified}");
}

#[test]
fn a_writer_that_was_stopped_writes_deleted_objects_again() {
    let recording = or_skip!(Recording::of("shares", &["50"], &["-g"]));
    let alone = recording.store();
    recording.add_to(&alone);
    let expected = totals(&alone);
    let mut met = 0;
    for files in 2..7 {
        let store = word(&recording.folder.path().join(format!("stopped-{files}"))).to_owned();
        let mut child = store_command()
            .args([
                "add",
                word(&recording.file),
                "--to",
                &store,
                "--service",
                "web",
            ])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut ended = false;
        while !ended && files_below(Path::new(&store)).len() < files {
            ended = child.try_wait().unwrap().is_some();
        }
        let signal = |name: &str| {
            let pid = child.id().to_string();
            checked(
                std::process::Command::new("sh")
                    .args(["-c", &format!("kill -{name} {pid} 2>/dev/null || true")]),
            );
        };
        if !ended {
            signal("STOP");
        }
        let collected = run(["gc", "--store", &store, "--older-than", "0s"]);
        met += u32::from(!collected.contains("# deleted 0 objects"));
        if !ended {
            signal("CONT");
        }
        // The writer has added the recording as a whole, or it says that it has not.
        if child.wait().unwrap().success() {
            assert_eq!(totals(&store), expected, "{files}");
            let verified = run(["verify", "--store", &store]);
            assert!(verified.contains("# 1 profile is whole"), "{verified}");
        }
    }
    println!("{met} times objects of a stopped writer were deleted");
    assert!(met > 0);
}
