//! Programs that load many libraries, and load them again and again: each call is recorded, and nothing grows with
//! their number.

#![cfg(all(target_arch = "x86_64", target_env = "gnu"))]

mod traces;

use dioptra_testprograms::{Language, Program, Skip, or_skip};
use dioptra_trace_recorder::TraceNote;
use std::path::Path;
use tempfile::TempDir;
use traces::{Event, alone, everything, read, trace};

/// The flags with which libraries are prepared.
const KINDS: [&[&str]; 3] = [
    &["-finstrument-functions"],
    &["-pg"],
    &["-fpatchable-function-entry=5"],
];

/// The most KiB by which the address space may grow after the first tenth of the way.
const GROWTH: i64 = 16 << 10;

/// Returns the path of the program, linked with these flags.
fn program(flags: &[&str]) -> Result<String, Skip> {
    let program = Program::new(Language::C, "trace-reloads").no_flags();
    let path = program
        .flags(["-O1"])
        .flags(flags.iter().copied())
        .build()?;
    Ok(path.to_str().expect("a path of ours").to_owned())
}

/// Returns so many copies of the library. Each is a file of its own, and so a module of its own.
fn libraries(folder: &Path, flags: &[&str], count: usize) -> Result<Vec<String>, Skip> {
    let library = Program::new(Language::C, "trace-reloads")
        .no_flags()
        .shared_library()
        .flags(["-O1", "-DPLUGIN"])
        .flags(flags.iter().copied())
        .build()?;
    let copy = |number| {
        let path = folder.join(format!("plugin{number}.so"));
        std::fs::copy(&library, &path).expect("a copy");
        path.to_str().expect("a path of ours").to_owned()
    };
    Ok((0..count).map(copy).collect())
}

/// Records the program with these libraries. Returns its output, the numbers of calls of `plugged` and of `inner` that
/// were recorded, and the notes.
fn record(
    folder: &TempDir,
    program: &str,
    how: [&str; 2],
    libraries: &[String],
) -> ([i64; 2], [i64; 2], Vec<TraceNote>) {
    let mut command = vec!["timeout", "-k", "5", "200", program, how[0], how[1]];
    command.extend(libraries.iter().map(String::as_str));
    let (outcome, output) = trace(folder.path(), &command, everything(false), |_| {});
    let mut numbers = output.split_ascii_whitespace().map(str::parse::<i64>);
    let mut next = || match numbers.next() {
        Some(Ok(number)) => number,
        _ => panic!("{output:?}; {:?}", outcome.notes),
    };
    let printed = [next(), next()];
    let trace = read(folder.path());
    let count = |name: &str| {
        let events = trace.streams.values().flat_map(|stream| &stream.events);
        let is_it = |event: &&Event| matches!(event, Event::Entry(entered) if entered == name);
        events.filter(is_it).count() as i64
    };
    (printed, [count("plugged"), count("inner")], outcome.notes)
}

#[test]
fn eighty_libraries_stay_loaded() {
    let _turn = alone();
    let program = or_skip!(program(&[]));
    for flags in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let libraries = or_skip!(libraries(folder.path(), flags, 80));
        let ([calls, growth], recorded, notes) =
            record(&folder, &program, ["open", "1"], &libraries);
        assert_eq!((calls, recorded), (80, [80; 2]), "{flags:?}: {notes:?}");
        // A thread's shadow stack takes 40 MiB of the address space.
        assert!(growth < (40 << 10) + GROWTH, "{flags:?}: {growth} KiB");
    }
}

#[test]
fn a_library_is_loaded_a_thousand_times() {
    let _turn = alone();
    let program = or_skip!(program(&[]));
    for flags in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let libraries = or_skip!(libraries(folder.path(), flags, 1));
        let ([calls, growth], recorded, notes) =
            record(&folder, &program, ["again", "1000"], &libraries);
        assert_eq!((calls, recorded), (1000, [1000; 2]), "{flags:?}: {notes:?}");
        assert!(growth < 256, "{flags:?}: {growth} KiB");
    }
}

#[test]
fn thirty_libraries_change_their_places() {
    let _turn = alone();
    let program = or_skip!(program(&[]));
    for flags in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let libraries = or_skip!(libraries(folder.path(), flags, 30));
        let ([calls, growth], recorded, notes) =
            record(&folder, &program, ["mixed", "600"], &libraries);
        assert_eq!(recorded, [calls; 2], "{flags:?}: {notes:?}");
        assert!(growth < GROWTH, "{flags:?}: {growth} KiB");
    }
}

#[test]
fn a_forked_child_reloads_what_its_parent_had() {
    let _turn = alone();
    let program = or_skip!(program(&[]));
    for flags in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let libraries = or_skip!(libraries(folder.path(), flags, 4));
        let ([calls, _], recorded, notes) = record(&folder, &program, ["forked", "10"], &libraries);
        assert_eq!((calls, recorded), (120, [120; 2]), "{flags:?}: {notes:?}");
    }
}

#[test]
fn a_timer_interrupts_all_system_calls() {
    let _turn = alone();
    let timer = Program::new(Language::C, "trace-reloads")
        .no_flags()
        .shared_library()
        .flags(["-O1", "-DTIMER"])
        .build();
    let timer = or_skip!(timer);
    let timer = timer.to_str().expect("a path of ours");
    // The library's constructor runs before that of the runtime.
    let program = or_skip!(program(&["-Wl,--no-as-needed", timer]));
    for flags in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let libraries = or_skip!(libraries(folder.path(), flags, 2));
        let ([calls, _], recorded, notes) = record(&folder, &program, ["again", "100"], &libraries);
        assert_eq!((calls, recorded), (200, [200; 2]), "{flags:?}: {notes:?}");
    }
}
