//! Nothing is lost and nothing is doubled: repeated, interrupted and simultaneous writers, damage, and `gc`.

mod common;

use common::{Recording, checked, files_below, run, store_command, text, totals, word};
use dioptra_testprograms::or_skip;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

/// Returns the number of times that a writer is killed; `DIOPTRA_STORE_KILLS` asks for another one.
fn kills() -> u32 {
    let wanted = std::env::var("DIOPTRA_STORE_KILLS").ok();
    wanted.map_or(60, |kills| kills.parse().unwrap())
}

#[test]
fn adding_twice_is_adding_once() {
    let recording = or_skip!(Recording::of("shares", &["100"], &["-g"]));
    let store = recording.store();
    recording.add_to(&store);
    let before = (totals(&store), files_below(Path::new(&store)));
    // A copy by another name is the same recording.
    let copy = recording.folder.path().join("copy.data");
    fs::copy(&recording.file, &copy).unwrap();
    let output = checked(store_command().args(["add", word(&copy), "--to", &store]));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("is there already"), "{told}");
    assert_eq!((totals(&store), files_below(Path::new(&store))), before);
    let other = store_command()
        .args(["add", word(&copy), "--to", &store, "--service", "db"])
        .output()
        .unwrap();
    assert_eq!(other.status.code(), Some(1));
    let told = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(told.contains("with service web, not db"), "{told}");
    assert_eq!((totals(&store), files_below(Path::new(&store))), before);
    let list = run(["list", "--store", &store]);
    assert!(list.ends_with("# 1 profile\n"), "{list}");
}

#[test]
fn killed_writers_lose_and_double_nothing() {
    let recording = or_skip!(Recording::of("shares", &["100"], &["-g"]));
    // The time that an undisturbed writer takes.
    let trial = word(&recording.folder.path().join("trial")).to_owned();
    let start = Instant::now();
    recording.add_to(&trial);
    let whole = start.elapsed();
    let expected = totals(&trial);
    let store = recording.store();
    let (mut interrupted, mut left_orphans) = (0, 0);
    // Numbers of a simple generator are as good as random ones here, and the same in each run.
    let mut random = 1_u32;
    let kills = kills();
    for round in 0..kills {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let part = f64::from(random) / f64::from(u32::MAX);
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
        if round % 2 == 0 {
            std::thread::sleep(whole.mul_f64(part));
        } else {
            // Most of the time goes into reading, so these kills wait for a file: the first, second, … of the writer.
            let files = 2 + random / 7 % 6;
            while files_below(Path::new(&store)).len() < files as usize {
                if child.try_wait().unwrap().is_some() {
                    break;
                }
            }
        }
        // A process that has ended by itself is not killed.
        let _ = child.kill();
        interrupted += u32::from(!child.wait().unwrap().success());
        if !Path::new(&store).join("_dioptra-store.json").exists() {
            continue;
        }
        // Whatever was written is invisible or whole.
        let profiles = files_below(&Path::new(&store).join("profiles")).len();
        let verified = run(["verify", "--store", &store]);
        assert!(!verified.contains("damaged"), "{verified}");
        if profiles == 0 {
            assert!(verified.contains("# 0 profiles are whole"), "{verified}");
            left_orphans += u32::from(verified.contains("without a profile"));
            // Half of the next writers meet what this one left.
            if round % 4 < 2 {
                continue;
            }
            recording.add_to(&store);
        }
        assert_eq!(totals(&store), expected);
        run(["gc", "--store", &store, "--older-than", "0s"]);
        assert_eq!(totals(&store), expected);
        let verified = run(["verify", "--store", &store]);
        assert!(verified.contains("# 1 profile is whole"), "{verified}");
        assert!(!verified.contains("without a profile"), "{verified}");
        assert!(files_below(&Path::new(&store).join("_tmp")).is_empty());
        fs::remove_dir_all(&store).unwrap();
    }
    eprintln!("{interrupted} of {kills} writers were interrupted, {left_orphans} left orphans");
    assert!(interrupted > kills / 4, "{interrupted} of {kills}");
    assert!(left_orphans > kills / 10, "{left_orphans} of {kills}");
    recording.add_to(&store);
    assert_eq!(totals(&store), expected);
}

#[test]
fn simultaneous_writers_make_one_profile() {
    let recording = or_skip!(Recording::of("shares", &["100"], &["-g"]));
    let alone = word(&recording.folder.path().join("alone")).to_owned();
    recording.add_to(&alone);
    for round in 0..5 {
        let store = word(&recording.folder.path().join(format!("store-{round}"))).to_owned();
        // Different labels, so that the writers' objects have different names.
        let mut writers: Vec<_> = ["a", "b", "a"]
            .map(|host| {
                store_command()
                    .args([
                        "add",
                        word(&recording.file),
                        "--to",
                        &store,
                        "--service",
                        "web",
                    ])
                    .args(["--host", host])
                    .stderr(Stdio::null())
                    .spawn()
                    .unwrap()
            })
            .into();
        let ended = writers.iter_mut().map(|writer| writer.wait().unwrap());
        let succeeded = ended.filter(|status| status.success()).count();
        // A second writer with another label is refused.
        assert!((1..=2).contains(&succeeded), "{succeeded}");
        assert_eq!(files_below(&Path::new(&store).join("profiles")).len(), 1);
        assert_eq!(totals(&store), totals(&alone));
        run(["gc", "--store", &store, "--older-than", "0s"]);
        assert_eq!(totals(&store), totals(&alone));
        let verified = run(["verify", "--store", &store]);
        assert!(!verified.contains("without a profile"), "{verified}");
    }
}

#[test]
fn damage_is_found_and_mended() {
    let recording = or_skip!(Recording::of("shares", &["100"], &["-g"]));
    let store = recording.store();
    recording.add_to(&store);
    let expected = totals(&store);
    let verify = || {
        store_command()
            .args(["verify", "--store", &store])
            .output()
            .unwrap()
    };
    assert!(verify().status.success());
    for table in ["samples", "stacks", "functions", "modules", "mappings"] {
        let file = &common::only_file(&Path::new(&store).join(table));
        let bytes = fs::read(file).unwrap();
        let name = file.strip_prefix(&store).unwrap().to_str().unwrap();
        // Cut, changed in the middle, and gone.
        fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
        let found = verify();
        assert_eq!(found.status.code(), Some(1));
        assert!(
            text(&found).contains(&format!("{name}: has ")),
            "{}",
            text(&found)
        );
        recording.add_to(&store);
        assert_eq!(fs::read(file).unwrap(), bytes);
        let mut changed = bytes.clone();
        let middle = bytes.len() / 2;
        changed[middle] ^= 1;
        fs::write(file, &changed).unwrap();
        let found = verify();
        assert_eq!(found.status.code(), Some(1));
        assert!(text(&found).contains("other bytes"), "{}", text(&found));
        fs::remove_file(file).unwrap();
        assert!(text(&verify()).contains("is missing"));
        recording.add_to(&store);
        assert!(verify().status.success());
    }
    assert_eq!(totals(&store), expected);
    // A profile's own row: the profile is not there, and the damage is reported.
    let [row] = &*files_below(&Path::new(&store).join("profiles")) else {
        panic!()
    };
    let bytes = fs::read(row).unwrap();
    fs::write(row, &bytes[..bytes.len() - 10]).unwrap();
    assert_eq!(verify().status.code(), Some(1));
    // Nobody can tell whose the other objects are, so nothing is deleted.
    let gc = store_command()
        .args(["gc", "--store", &store, "--older-than", "0s"])
        .output()
        .unwrap();
    assert_eq!(gc.status.code(), Some(1));
    fs::write(row, &bytes).unwrap();
    assert_eq!(totals(&store), expected);
}

#[test]
fn gc_deletes_orphans_and_nothing_else() {
    let recording = or_skip!(Recording::of("shares", &["100"], &["-g"]));
    let other = or_skip!(Recording::of("shares", &["50"], &["-g"]));
    let store = recording.store();
    recording.add_to(&store);
    let expected = totals(&store);
    let kept = files_below(Path::new(&store));
    other.add_to(&store);
    // Without its own row a profile is not there: its objects are what an interrupted writer leaves.
    let all = files_below(&Path::new(&store).join("profiles"));
    let [row] = &*all
        .iter()
        .filter(|file| !kept.contains(file))
        .collect::<Vec<_>>()
    else {
        panic!("{all:?}")
    };
    fs::remove_file(row).unwrap();
    let temporary = Path::new(&store).join("_tmp/1-2-3");
    fs::write(&temporary, "cut").unwrap();
    assert_eq!(totals(&store), expected, "orphans are invisible");
    let young = run(["gc", "--store", &store]);
    assert!(young.contains("# deleted 0 objects"), "{young}");
    assert!(young.contains("# kept 6 objects"), "{young}");
    let dry = run(["gc", "--store", &store, "--older-than", "0s", "--dry-run"]);
    assert!(dry.contains("# would delete 6 objects"), "{dry}");
    assert!(temporary.exists());
    let deleted = run(["gc", "--store", &store, "--older-than", "0s"]);
    assert!(deleted.contains("# deleted 6 objects"), "{deleted}");
    assert_eq!(files_below(Path::new(&store)), kept);
    assert_eq!(totals(&store), expected);
}

#[test]
fn wrong_places_and_files_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let missing = word(&folder.path().join("none")).to_owned();
    let failed = |words: &[&str]| {
        let output = store_command().args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    for command in ["list", "gc", "verify"] {
        let told = failed(&[command, "--store", &missing]);
        assert!(
            told.contains("no store of profiles lies here; `dioptra store add"),
            "{told}"
        );
    }
    let told = failed(&["query", "--store", &missing, "SELECT 1"]);
    assert!(told.contains("no store of profiles"), "{told}");
    let told = failed(&["add", "/dev/null", "--to", "ftp://host/x"]);
    assert!(told.contains("s3://BUCKET/PATH"), "{told}");
    let told = failed(&["add", "/etc/passwd", "--to", &missing, "--service", "a/b"]);
    assert!(told.contains("other than letters, digits"), "{told}");
    let told = failed(&[
        "add",
        "/etc/passwd",
        "--to",
        &missing,
        "--date",
        "2026-02-30",
    ]);
    assert!(told.contains("is no date"), "{told}");
    let told = failed(&["add", "/etc/passwd", "--to", &missing]);
    assert!(told.contains("/etc/passwd"), "{told}");
}
