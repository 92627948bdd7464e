//! Tests that need root, tracefs, cgroups, or CPUs that may be taken offline.

use crate::collect::{Collected, Held, PATIENCE, STEP, Worker, read_until};
use crate::skip;
use dioptra_perfevents::{
    AttachError, AttachedSession, CpuSet, Event, EventSpec, EventTarget, Inherit, Refusal, Session,
    SessionSpec, Start, Target, parse_events,
};
use dioptra_testprograms::{Limit, skip};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// A session's attach, or the end of the test where the user may not.
macro_rules! attach {
    ($session:expr) => {
        match $session.attach() {
            Err(AttachError::Open(error))
                if matches!(error.refusal, Refusal::Permission { .. } | Refusal::Seccomp) =>
            {
                skip!("{error}")
            }
            other => other.expect("attach"),
        }
    };
}

#[test]
fn a_tracepoint_by_name_samples_every_occurrence() {
    if Limit::NoTracepoints.holds() {
        return skip(Limit::NoTracepoints);
    }
    let mut groups = parse_events("sched:sched_process_exec").expect("a tracepoint");
    groups[0].events[0].set_default_frequency(4000);
    assert_eq!(groups[0].events[0].attr.sample_period, 1);
    let mut held = Held::new("true");
    let spec = SessionSpec::new()
        .groups(groups)
        .target(Target::Processes(vec![held.pid()]))
        .inherit(Inherit::ThreadsAndChildren);
    let session = Session::new(spec).expect("a session");
    let mut session = attach!(session);
    held.go();
    let mut seen = Collected::default();
    session.run(&mut seen).expect("run");
    assert_eq!(
        seen.of_event.get("sched:sched_process_exec"),
        Some(&1),
        "{seen:?}"
    );
}

#[test]
fn a_tracepoint_s_filter_leaves_out_the_rest() {
    if Limit::NoTracepoints.holds() {
        return skip(Limit::NoTracepoints);
    }
    let mut groups = parse_events("sched:sched_process_exec").expect("a tracepoint");
    let event = &mut groups[0].events[0];
    event.set_default_period(1);
    event.filter = Some("pid == 0".to_owned());
    let mut held = Held::new("true");
    let spec = SessionSpec::new()
        .groups(groups)
        .target(Target::Processes(vec![held.pid()]));
    let session = Session::new(spec).expect("a session");
    let mut session = attach!(session);
    held.go();
    let mut seen = Collected::default();
    session.run(&mut seen).expect("run");
    assert_eq!(seen.samples, 0);
    let mut bad = parse_events("sched:sched_process_exec").expect("it was there");
    bad[0].events[0].filter = Some("no_such_field == 1".to_owned());
    let session = Session::new(
        SessionSpec::new()
            .groups(bad)
            .target(Target::Threads(vec![std::process::id()])),
    )
    .expect("a session");
    assert!(matches!(session.attach(), Err(AttachError::Event(_))));
}

/// Returns the offset in its file of an exported function of this program's C library, from `nm` and `readelf`.
fn libc_function(name: &str) -> Option<(PathBuf, u64)> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .find(|path| path.contains("libc.so"))?;
    let symbols = Command::new("nm")
        .args(["-D", "--defined-only", path])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&symbols.stdout).into_owned();
    let line = text
        .lines()
        .find(|line| line.split([' ', '@']).any(|word| word == name))?;
    let address = u64::from_str_radix(line.split_whitespace().next()?, 16).ok()?;
    let segments = Command::new("readelf").args(["-lW", path]).output().ok()?;
    let number = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
    for line in String::from_utf8_lossy(&segments.stdout).lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["LOAD", offset, start, _, _, size, ..] = words[..] {
            let (offset, start, size) = (number(offset)?, number(start)?, number(size)?);
            if (start..start + size).contains(&address) {
                return Some((PathBuf::from(path), address - start + offset));
            }
        }
    }
    None
}

#[test]
fn a_uprobe_counts_calls_of_a_library_function() {
    let Some((path, offset)) = libc_function("getppid") else {
        skip!("nm or readelf is missing, or the C library is linked in");
    };
    let text = format!("uprobe:{}+{offset:#x}", path.display());
    let groups = match parse_events(&text) {
        Ok(groups) => groups,
        Err(error) => skip!("{error}"),
    };
    let spec = &groups[0].events[0];
    assert!(spec.probed_file.is_some());
    let event = match Event::open(spec, EventTarget::CALLER) {
        Ok(event) => event,
        Err(error) if matches!(error.refusal, Refusal::Permission { .. }) => skip!("{error}"),
        Err(error) => panic!("{error}"),
    };
    for _ in 0..7 {
        // SAFETY: no arguments.
        unsafe { libc::getppid() };
    }
    event.disable().expect("disable");
    assert_eq!(event.read().expect("read").value, 7);
    // The same by a session, which sets the file itself.
    let worker = Worker::new(|| {
        // SAFETY: no arguments.
        unsafe { libc::getppid() };
        std::thread::sleep(Duration::from_millis(1));
    });
    let mut groups = groups;
    groups[0].events[0].set_default_frequency(1000);
    let spec = SessionSpec::new()
        .groups(groups)
        .target(Target::Threads(vec![worker.tid]));
    let session = Session::new(spec).expect("a session");
    let mut session = session.attach().expect("attach");
    let mut seen = Collected::default();
    read_until(&mut session, &mut seen, "hits", |seen| seen.samples > 3);
}

/// A cgroup of a test, removed with all its processes gone.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new(root: &str) -> Option<Cgroup> {
        let path = PathBuf::from(root).join(format!("perfevents-test-{}", std::process::id()));
        std::fs::create_dir(&path).ok()?;
        Some(Cgroup(path))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn a_cgroup_s_threads_are_watched_and_no_others() {
    let roots = [
        "/sys/fs/cgroup/perf_event",
        "/sys/fs/cgroup/unified",
        "/sys/fs/cgroup",
    ];
    let Some(cgroup) = roots
        .iter()
        .filter(|root| PathBuf::from(root).join("cgroup.procs").exists())
        .find_map(|root| Cgroup::new(root))
    else {
        skip!("no cgroup can be made here");
    };
    let mut child = Command::new("/bin/sh")
        .args(["-c", "while :; do :; done"])
        .spawn()
        .expect("a shell");
    let pid = child.id();
    let moved = std::fs::write(cgroup.0.join("cgroup.procs"), pid.to_string());
    let other = Worker::spinning();
    let spec = SessionSpec::new()
        .event(EventSpec::cpu_clock().with_period(1_000_000))
        .target(Target::Cgroup {
            path: cgroup.0.clone(),
            cpus: None,
        });
    let session = Session::new(spec).expect("a session");
    let mut attached = session.attach();
    let mut seen = Collected::default();
    if let (Ok(()), Ok(session)) = (&moved, &mut attached) {
        let start = Instant::now();
        while !seen.of_thread.contains_key(&pid) && start.elapsed() < PATIENCE {
            session.read_once(STEP, &mut seen).expect("read");
        }
    }
    child.kill().expect("kill");
    child.wait().expect("wait");
    // A cgroup can be removed once its last process and the session are gone.
    let attached = attached.map(drop);
    match (moved, attached) {
        (Err(error), _) => skip!("the child could not be moved: {error}"),
        (_, Err(AttachError::Open(error)))
            if matches!(
                error.refusal,
                Refusal::Permission { .. } | Refusal::Invalid { .. }
            ) =>
        {
            skip!("{error}")
        }
        (_, attached) => attached.expect("attach"),
    }
    assert!(seen.of_thread.contains_key(&pid), "{:?}", seen.of_thread);
    assert!(!seen.of_thread.contains_key(&other.tid));
    let spec = SessionSpec::new()
        .event(EventSpec::cpu_clock().with_period(1_000_000))
        .target(Target::Cgroup {
            path: "no/such/group".into(),
            cpus: None,
        });
    let error = Session::new(spec)
        .expect("a session")
        .attach()
        .expect_err("no such group");
    assert!(
        matches!(error, AttachError::Cgroup { .. }) && error.to_string().contains("no/such/group"),
        "{error}"
    );
}

/// 2.5: a CPU goes and comes back: threads' events resume, CPU-wide ones are opened again.
#[test]
fn cpus_that_come_back_are_watched_again() {
    if Limit::HotplugNotAsked.holds() {
        return skip(Limit::HotplugNotAsked);
    }
    let control = "/sys/devices/system/cpu/cpu1/online";
    if !CpuSet::online().contains(1) || std::fs::write(control, "1").is_err() {
        skip!("CPU 1 can't be taken offline");
    }
    let wide = SessionSpec::new()
        .event(EventSpec::cpu_clock().with_period(1_000_000))
        .target(Target::Cpus(None));
    let wide = Session::new(wide).expect("a session");
    let mut wide = attach!(wide);
    let workers = [Worker::spinning(), Worker::spinning(), Worker::spinning()];
    let threads = SessionSpec::new()
        .event(EventSpec::cpu_clock().with_period(1_000_000))
        .target(Target::Threads(
            workers.iter().map(|worker| worker.tid).collect(),
        ))
        .start(Start::AtAttach);
    let threads = Session::new(threads).expect("a session");
    let mut threads = threads.attach().expect("attach");
    let on_one = |session: &mut AttachedSession| {
        let mut seen = Collected::default();
        let start = Instant::now();
        while !seen.of_cpu.contains_key(&1) && start.elapsed() < PATIENCE {
            session.read_once(STEP, &mut seen).expect("read");
        }
        seen.of_cpu.contains_key(&1)
    };
    let before = (on_one(&mut wide), on_one(&mut threads));
    let known = wide.new_ids_since(0).len();
    std::fs::write(control, "0").expect("offline");
    let start = Instant::now();
    let mut ignored = Collected::default();
    while start.elapsed() < Duration::from_millis(1500) {
        wide.read_once(STEP, &mut ignored).expect("read");
        threads.read_once(STEP, &mut ignored).expect("read");
    }
    std::fs::write(control, "1").expect("online");
    let start = Instant::now();
    while wide.new_ids_since(known).is_empty() && start.elapsed() < PATIENCE {
        wide.read_once(STEP, &mut ignored).expect("read");
    }
    let after = (on_one(&mut wide), on_one(&mut threads));
    let notes = wide.attach_summary().notes.clone();
    assert_eq!((before, after), ((true, true), (true, true)), "{notes:?}");
    assert_eq!(wide.new_ids_since(known).len(), 2);
    assert!(
        notes
            .iter()
            .any(|note| note.to_string().contains("went offline")),
        "{notes:?}"
    );
}

/// The list of events agrees with what opens.
#[test]
fn listed_events_that_work_are_events() {
    let listed = dioptra_perfevents::list_events();
    assert!(
        listed
            .iter()
            .any(|event| event.name == "cpu-clock" && event.works.is_ok())
    );
    for event in &listed {
        if event.kind == dioptra_perfevents::EventKind::Form || event.name == "SYSTEM:NAME" {
            continue;
        }
        for name in event.aliases.iter().chain([&event.name]) {
            if let Err(error) = parse_events(name) {
                assert!(event.works.is_err(), "{error}");
            }
        }
    }
}
