//! `dioptra agent`: every segment reaches its destination, whatever fails and whenever the agent is killed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The longest time that anything may take on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(120);

/// A process that uses a CPU until it is dropped.
struct Busy(Child);

impl Busy {
    fn new() -> Busy {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]);
        Busy(command.spawn().expect("sh starts"))
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An agent's directories, and the process that it watches.
struct Bench {
    folder: tempfile::TempDir,
    busy: Busy,
}

impl Bench {
    fn new() -> Bench {
        Bench {
            folder: tempfile::tempdir().expect("a directory"),
            busy: Busy::new(),
        }
    }

    fn spool(&self) -> PathBuf {
        self.folder.path().join("spool")
    }

    fn arrived(&self) -> PathBuf {
        let path = self.folder.path().join("arrived");
        fs::create_dir_all(&path).expect("a directory");
        path
    }

    /// Writes the upload command: a script that copies its arguments to the destination, after these lines.
    fn script(&self, before: &str) -> PathBuf {
        let path = self.folder.path().join("upload.sh");
        let arrived = self.arrived();
        let arrived = arrived.display();
        // A file appears under its name once it is complete.
        let text = format!(
            "#!/bin/sh\nset -e\n{before}\nfor file; do name=$(basename \"$file\"); \
             cp \"$file\" \"{arrived}/.$name\"; mv \"{arrived}/.$name\" \"{arrived}/$name\"; done\n"
        );
        fs::write(&path, text).expect("a script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a script");
        path
    }

    /// Returns the number of segments that are complete or have arrived.
    fn known(&self) -> usize {
        let mut all = recordings(&self.spool());
        all.extend(recordings(&self.arrived()));
        all.len()
    }

    fn agent(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dioptra"));
        // A limit that no machine reaches: what is recorded must not depend on what else runs.
        command.args([
            "agent",
            "-p",
            &self.busy.pid(),
            "-F",
            "999",
            "--max-cpu",
            "100",
            "--spool",
        ]);
        command.arg(self.spool()).args(arguments);
        command
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .stdout(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.agent(arguments).output().expect("dioptra starts")
    }
}

/// Returns the recordings of a directory by name, with their sizes.
fn recordings(directory: &Path) -> BTreeMap<String, u64> {
    let Ok(entries) = fs::read_dir(directory) else {
        return BTreeMap::new();
    };
    let named = entries.map(|entry| {
        let entry = entry.expect("an entry");
        let size = entry.metadata().map_or(0, |metadata| metadata.len());
        (entry.file_name().into_string().expect("a name"), size)
    });
    named
        .filter(|(name, _)| name.ends_with(".perf.data") && !name.starts_with('.'))
        .collect()
}

/// Returns the number of samples of a recording, as `dioptra report` counts them.
fn samples(path: &Path) -> u64 {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dioptra"));
    command
        .args(["report", "--by", "process", "--format", "json", "-i"])
        .arg(path);
    let output = command.output().expect("dioptra starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", path.display());
    let table: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let columns = table["columns"].as_array().expect("columns");
    let column = columns.iter().position(|column| {
        column["id"]
            .as_str()
            .is_some_and(|id| id.starts_with("samples"))
    });
    let column = column.unwrap_or_else(|| panic!("no samples in {columns:?}"));
    let rows = table["rows"].as_array().expect("rows").iter();
    rows.filter_map(|row| row["cells"][column].as_u64()).sum()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn segments_stay_where_nothing_is_uploaded() {
    let bench = Bench::new();
    let output = bench.run(&["--every", "1", "--segments", "3"]);
    assert!(output.status.success(), "{}", errors(&output));
    let found = recordings(&bench.spool());
    assert_eq!(found.len(), 3, "{}", errors(&output));
    for name in found.keys() {
        assert!(samples(&bench.spool().join(name)) > 0, "{name}");
    }
    assert!(
        errors(&output).contains("segment 3: "),
        "{}",
        errors(&output)
    );
}

/// The upload command fails again and again, and at the end every segment has arrived as it was recorded.
#[test]
fn uploads_that_fail_are_tried_again() {
    let bench = Bench::new();
    let folder = bench.folder.path().display();
    // Every second run fails, before or after the first file.
    let script = bench.script(&format!(
        "echo >> {folder}/runs; n=$(wc -l < {folder}/runs)\n\
         if [ $((n % 4)) = 1 ]; then exit 1; fi\n\
         if [ $((n % 4)) = 3 ]; then cp \"$1\" {folder}/arrived/; exit 3; fi"
    ));
    let script = script.to_str().expect("a path");
    let output = bench.run(&["--every", "0.2", "--segments", "30", "--upload", script]);
    let text = errors(&output);
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("exit status: 1") && text.contains("uploads succeed again"),
        "{text}"
    );
    // The next agent uploads the segments for which the last seconds were too short.
    let output = bench.run(&[
        "--every",
        "0.2",
        "--segments",
        "1",
        "--upload",
        &bench.script("").display().to_string(),
    ]);
    assert!(output.status.success(), "{}", errors(&output));
    let arrived = recordings(&bench.arrived());
    assert_eq!(recordings(&bench.spool()), BTreeMap::new());
    assert_eq!(arrived.len(), 31, "{text}");
    for name in arrived.keys() {
        assert!(samples(&bench.arrived().join(name)) > 0, "{name}");
    }
}

/// Whenever the agent is killed, the segments that were complete arrive once, and the one that was being recorded as far as
/// it had come.
#[test]
fn an_agent_that_is_killed_loses_nothing_that_was_complete() {
    let bench = Bench::new();
    let script = bench.script("");
    let script = script.to_str().expect("a path");
    let mut complete = BTreeMap::new();
    for round in 0..20_u64 {
        let mut agent = bench
            .agent(&["--every", "0.1", "--upload", script])
            .spawn()
            .expect("dioptra starts");
        // One segment at least is complete, and the agent is somewhere in what follows.
        let (before, began) = (bench.known(), Instant::now());
        while bench.known() <= before && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_millis(17 * round % 150));
        agent.kill().expect("a process");
        agent.wait().expect("a process");
        complete.extend(recordings(&bench.spool()));
    }
    let output = bench.run(&["--every", "0.1", "--segments", "1", "--upload", script]);
    assert!(output.status.success(), "{}", errors(&output));
    let arrived = recordings(&bench.arrived());
    assert_eq!(
        recordings(&bench.spool()),
        BTreeMap::new(),
        "{}",
        errors(&output)
    );
    let leftovers = fs::read_dir(bench.spool())
        .expect("the spool")
        .filter(|entry| {
            let name = entry.as_ref().expect("an entry").file_name();
            name.to_string_lossy().ends_with(".part")
        });
    assert_eq!(leftovers.count(), 0);
    assert!(arrived.len() >= 20, "{arrived:?}");
    for (name, size) in &complete {
        assert_eq!(arrived.get(name), Some(size), "{name}");
    }
    for name in arrived.keys() {
        assert!(samples(&bench.arrived().join(name)) > 0, "{name}");
    }
}

#[test]
fn a_segment_that_is_always_refused_does_not_hold_up_the_others() {
    let bench = Bench::new();
    fs::create_dir_all(bench.spool()).expect("a directory");
    fs::write(
        bench.spool().join("00000000000001.perf.data"),
        "no recording",
    )
    .expect("a file");
    let script = bench.script("for file; do case $file in */00000000000001.*) exit 7;; esac; done");
    let script = script.to_str().expect("a path");
    // The tries come 1, 2, 4 … seconds apart as long as all fail, and one after the other once some succeed.
    let mut agent = bench
        .agent(&["--every", "0.2", "--upload", script])
        .spawn()
        .expect("dioptra starts");
    let refused = bench.spool().join("refused/00000000000001.perf.data");
    let began = Instant::now();
    while !refused.exists() && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(50));
    }
    end(&mut agent);
    let text = errors(&agent.wait_with_output().expect("a process"));
    assert!(refused.exists(), "{text}");
    assert!(
        text.contains("is refused (exit status: 7), and set aside"),
        "{text}"
    );
    assert!(recordings(&bench.arrived()).len() > 2, "{text}");
}

/// Sends SIGTERM.
fn end(agent: &mut Child) {
    let pid = rustix::process::Pid::from_child(agent);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("a process");
}

/// SIGTERM ends the agent well; the segment that was being recorded is complete, and uploaded.
#[test]
fn a_signal_ends_the_agent_with_its_last_segment() {
    let bench = Bench::new();
    let script = bench.script("");
    let script = script.to_str().expect("a path");
    let mut agent = bench
        .agent(&["--every", "100", "--upload", script])
        .spawn()
        .expect("dioptra starts");
    let began = Instant::now();
    let is_recording = || fs::read_dir(bench.spool()).is_ok_and(|entries| entries.count() > 1);
    while !is_recording() && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(500));
    end(&mut agent);
    let output = agent.wait_with_output().expect("a process");
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(recordings(&bench.arrived()).len(), 1, "{}", errors(&output));
    assert_eq!(recordings(&bench.spool()), BTreeMap::new());
}

/// A signal may come between two segments, too.
#[test]
fn a_signal_ends_the_agent_at_any_moment() {
    let bench = Bench::new();
    for round in 0..15_u64 {
        let mut agent = bench
            .agent(&["--every", "0.01", "-q"])
            .spawn()
            .expect("dioptra starts");
        let (before, began) = (bench.known(), Instant::now());
        while bench.known() <= before && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(7 * round % 50));
        end(&mut agent);
        let began = Instant::now();
        let status = loop {
            match agent.try_wait().expect("a process") {
                Some(status) => break status,
                None if began.elapsed() > PATIENCE => {
                    agent.kill().expect("a process");
                    panic!("round {round}: SIGTERM did not end the agent");
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        assert!(status.success(), "round {round}: {status}");
    }
}

/// `nohup` lets the agent outlive its terminal.
#[test]
fn an_agent_under_nohup_survives_hangups() {
    let bench = Bench::new();
    let agent = bench.agent(&["--every", "0.05", "-q"]);
    let mut command = Command::new("nohup");
    command.arg(agent.get_program()).args(agent.get_args());
    command
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .stdout(Stdio::piped());
    let mut agent = command.spawn().expect("nohup starts");
    let wait_for_more = || {
        let (before, began) = (bench.known(), Instant::now());
        while bench.known() <= before + 1 && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(5));
        }
        bench.known() > before
    };
    assert!(wait_for_more());
    for _ in 0..5 {
        let pid = rustix::process::Pid::from_child(&agent);
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).expect("a process");
        assert!(wait_for_more(), "SIGHUP ended the agent");
    }
    end(&mut agent);
    assert!(agent.wait().expect("a process").success());
}

#[test]
fn the_spool_is_bounded() {
    let bench = Bench::new();
    let output = bench.run(&["--every", "0.2", "--segments", "8", "--max-disk", "12K"]);
    let text = errors(&output);
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("the spool is full: the oldest segments were deleted"),
        "{text}"
    );
    let left = recordings(&bench.spool());
    assert!(left.values().sum::<u64>() <= 12 << 10, "{left:?}");
}

/// A limit that the recorder exceeds makes the frequency fall.
#[test]
fn the_frequency_follows_the_limit() {
    let bench = Bench::new();
    let output = bench.run(&["--every", "0.3", "--segments", "2", "--max-cpu", "0.001"]);
    let text = errors(&output);
    assert!(output.status.success(), "{text}");
    let next = |number: u32| {
        let line = text
            .lines()
            .find(|line| line.contains(&format!("segment {number}: ")));
        let line = line.unwrap_or_else(|| panic!("{text}"));
        let words: Vec<&str> = line.split_whitespace().rev().collect();
        words[2].parse::<u64>().unwrap_or_else(|_| panic!("{line}"))
    };
    assert!(next(1) < 999, "{text}");
    assert!(next(2) <= next(1), "{text}");
}

#[test]
fn a_dry_run_checks_and_leaves_nothing() {
    let bench = Bench::new();
    let output = bench.run(&["--dry-run", "--upload", "true --option"]);
    let text = errors(&output);
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("would record ") && text.contains("would upload with `true --option FILE…`"),
        "{text}"
    );
    let left = fs::read_dir(bench.spool()).expect("the spool").count();
    assert_eq!(left, 1, "the lock alone");

    let output = bench.run(&["--dry-run", "-e", "nonsense"]);
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    let mut second = bench
        .agent(&["--every", "100"])
        .spawn()
        .expect("dioptra starts");
    let began = Instant::now();
    while fs::read_dir(bench.spool()).expect("the spool").count() < 2 && began.elapsed() < PATIENCE
    {
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = bench.run(&["--dry-run"]);
    assert_eq!(output.status.code(), Some(125), "{}", errors(&output));
    assert!(
        errors(&output).contains("another agent uses this spool"),
        "{}",
        errors(&output)
    );
    end(&mut second);
    assert!(second.wait().expect("a process").success());
}

/// Returns the number of bytes of all recordings in a directory, complete or not.
fn bytes_in(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else {
        return 0;
    };
    let sizes = entries.flatten().filter_map(|entry| entry.metadata().ok());
    sizes
        .filter(|found| found.is_file())
        .map(|found| found.len())
        .sum()
}

/// The segment that is being recorded counts, too.
#[test]
fn the_spool_is_within_its_bound_at_every_moment() {
    let bench = Bench::new();
    let most: u64 = 3 << 20;
    let mut command = bench.agent(&["--every", "4", "--segments", "6", "--max-disk", "3M"]);
    // Many samples, which are not made smaller.
    command.args(["-F", "20000", "-z", "0", "-m", "64K"]);
    let mut agent = command.spawn().expect("dioptra starts");
    let (mut largest, mut all, mut looks) = (0, BTreeMap::new(), 0_u64);
    while agent.try_wait().expect("a process").is_none() {
        largest = largest.max(bytes_in(&bench.spool()));
        all.extend(recordings(&bench.spool()));
        looks += 1;
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = agent.wait_with_output().expect("a process");
    let text = errors(&output);
    assert!(output.status.success(), "{text}");
    assert!(looks > 10, "{looks} looks");
    assert!(largest <= most, "{largest} of {most} bytes: {text}");
    let recorded: u64 = all.values().sum();
    if recorded > 2 * most {
        assert!(
            text.contains("ended early: it has half of --max-disk"),
            "{text}"
        );
        assert!(text.contains("the oldest segments were deleted"), "{text}");
    }
}

/// The next segment begins when one ends, and each says what was not recorded before it.
#[test]
fn segments_follow_one_another() {
    let bench = Bench::new();
    let output = bench.run(&["--every", "1.6", "--segments", "4"]);
    let text = errors(&output);
    assert!(output.status.success(), "{text}");
    assert_eq!(recordings(&bench.spool()).len(), 4, "{text}");
    for name in recordings(&bench.spool()).keys() {
        assert!(samples(&bench.spool().join(name)) > 0, "{name}");
    }
    let gaps = text.matches("ms not recorded before it").count();
    assert_eq!(gaps, 3, "{text}");
    println!("{text}");
}

/// A file system of its own, of two mebibytes.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path) -> Option<SmallDisk> {
        fs::create_dir_all(at).ok()?;
        let mut command = Command::new("mount");
        command
            .args(["-t", "tmpfs", "-o", "size=2M", "small"])
            .arg(at);
        let output = command.output().ok()?;
        output.status.success().then(|| SmallDisk(at.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// A full disk ends a segment, whose samples up to there stay; the agent tries again until there is room.
#[test]
fn a_full_disk_loses_nothing_that_was_written() {
    let bench = Bench::new();
    let Some(disk) = SmallDisk::mount(&bench.spool()) else {
        return dioptra_testprograms::skip("no file system can be mounted here");
    };
    let filler = bench.spool().join("filler");
    let mut command = bench.agent(&["--every", "2", "--segments", "3", "--max-disk", "1G"]);
    command.args(["-F", "4000", "-z", "0"]);
    let agent = command.spawn().expect("dioptra starts");
    let began = Instant::now();
    while bench.known() == 0 && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(10));
    }
    let before = recordings(&bench.spool());
    // Somebody else fills the disk.
    let mut file = fs::File::create(&filler).expect("a file");
    while std::io::Write::write_all(&mut file, &[0; 4096]).is_ok() {}
    drop(file);
    std::thread::sleep(Duration::from_secs(3));
    fs::remove_file(&filler).expect("the filler");
    let output = agent.wait_with_output().expect("a process");
    let text = errors(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("trying again in"), "{text}");
    let left = recordings(&bench.spool());
    for (name, size) in &before {
        assert_eq!(left.get(name), Some(size), "{name}: {text}");
    }
    assert!(left.len() > before.len(), "{text}");
    for name in left.keys() {
        assert!(samples(&bench.spool().join(name)) > 0, "{name}");
    }
    drop(disk);
}

/// The agent is killed at random moments, while its uploads fail, arrive and fail, or do not end, at random. Every segment that
/// was complete at any moment arrives, unchanged, and none arrives with another content.
///
/// `cargo xtask soak agent` does so 500 times.
#[test]
fn nothing_is_lost_whatever_fails() {
    let kills = std::env::var("DIOPTRA_SOAK_AGENT_KILLS");
    let kills: u64 = kills.map_or(12, |kills| kills.parse().expect("a number"));
    let bench = Bench::new();
    let (folder, arrived) = (bench.folder.path().display(), bench.arrived());
    let faulty = bench.folder.path().join("faulty.sh");
    let text = format!(
        "#!/bin/sh\nchance=$(od -An -N1 -tu1 /dev/urandom)\n\
         echo run >> {folder}/runs\n\
         if [ $chance -lt 64 ]; then exit 1; fi\n\
         if [ $chance -lt 80 ]; then exec sleep 5; fi\n\
         for file; do name=$(basename \"$file\"); to={arrived}/$name\n\
         cp \"$file\" {arrived}/.$name.$$ || exit 2\n\
         if [ -e $to ]; then echo $name >> {folder}/again\n\
         cmp -s $to {arrived}/.$name.$$ || echo $name >> {folder}/differ; fi\n\
         mv {arrived}/.$name.$$ $to; done\n\
         if [ $chance -gt 230 ]; then exit 3; fi\n",
        arrived = arrived.display(),
    );
    fs::write(&faulty, text).expect("a script");
    fs::set_permissions(&faulty, fs::Permissions::from_mode(0o755)).expect("a script");
    let faulty = faulty.to_str().expect("a path");
    let mut complete = BTreeMap::new();
    let mut seed = std::process::id().into();
    let mut random = |end: u64| -> u64 {
        seed = u64::wrapping_mul(seed, 6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % end
    };
    let mut refused = 0;
    for round in 0..kills {
        // Long segments are prepared before the one ahead ends.
        let every = if round % 4 == 3 { "0.6" } else { "0.1" };
        let options = [
            "--every",
            every,
            "--upload",
            faulty,
            "--upload-timeout",
            "1",
            "-q",
        ];
        let mut command = bench.agent(&options);
        command.stderr(Stdio::null());
        let mut agent = command.spawn().expect("dioptra starts");
        // Every second agent has completed a segment at least; the others may be killed while they start.
        let (before, began) = (bench.known(), Instant::now());
        while round % 2 == 0 && bench.known() <= before && began.elapsed() < PATIENCE {
            complete.extend(recordings(&bench.spool()));
            std::thread::sleep(Duration::from_millis(5));
        }
        let most = if round % 4 == 3 { 2000 } else { 300 };
        let end = Instant::now() + Duration::from_millis(random(most));
        while Instant::now() < end {
            complete.extend(recordings(&bench.spool()));
            std::thread::sleep(Duration::from_millis(5));
        }
        agent.kill().expect("a process");
        agent.wait().expect("a process");
        complete.extend(recordings(&bench.spool()));
        refused += recordings(&bench.spool().join("refused")).len();
    }
    // All that is left arrives once uploads work.
    let script = bench.script("");
    let script = script.to_str().expect("a path");
    let mut agents = 0;
    loop {
        let output = bench.run(&["--every", "0.1", "--segments", "1", "--upload", script]);
        assert!(output.status.success(), "{}", errors(&output));
        complete.extend(recordings(&bench.spool()));
        agents += 1;
        if recordings(&bench.spool()).is_empty() || agents == 100 {
            break;
        }
    }
    let arrived = recordings(&bench.arrived());
    let lines = |name: &str| {
        let text = fs::read_to_string(bench.folder.path().join(name)).unwrap_or_default();
        text.lines().count()
    };
    println!(
        "{kills} kills: {} segments were complete, {} arrived, {} of them again; {} uploads, {refused} segments were set aside meanwhile",
        complete.len(),
        arrived.len(),
        lines("again"),
        lines("runs"),
    );
    assert_eq!(recordings(&bench.spool()), BTreeMap::new());
    assert_eq!(recordings(&bench.spool().join("refused")), BTreeMap::new());
    assert_eq!(lines("differ"), 0, "segments arrived with two contents");
    assert!(arrived.len() as u64 >= kills / 4, "{}", arrived.len());
    for (name, size) in &complete {
        assert_eq!(arrived.get(name), Some(size), "{name}");
    }
    for name in arrived.keys() {
        assert!(samples(&bench.arrived().join(name)) > 0, "{name}");
    }
}
