//! Recordings that perf makes here, in the variants that other readers stumble over: we say the same as perf.

mod support;

use dioptra_perfdata::{Format, PerfData, file_type};
use dioptra_testprograms::{Limit, skip};
use std::path::Path;
use std::process::{Command, Stdio};
use support::compare::{CLOCK, compare, compare_order, folder, variant, variant_with};
use support::{
    BUSY, has_perf, linux_perf_data_counts, our_counts, our_kernel_counts, our_samples,
    perf_counts, perf_samples_of_stream, record, text,
};

#[test]
fn serial_plain() {
    variant(&[]);
}

#[test]
fn serial_call_chains() {
    variant_with(&["-g"], compare_order);
}

#[test]
fn serial_compressed() {
    variant(&["-z", "-g"]);
}

#[test]
fn serial_user_stacks() {
    variant(&["--call-graph", "dwarf,1024"]);
}

#[test]
fn serial_system_wide() {
    variant_with(&["-a", "-g"], compare_order);
}

#[test]
fn serial_several_events() {
    variant(&["-e", "page-faults,context-switches,task-clock"]);
}

#[test]
fn serial_tracepoints() {
    variant(&["-e", "sched:sched_switch,sched:sched_process_exec"]);
}

#[test]
fn serial_switches_and_namespaces() {
    variant(&["--switch-events", "--namespaces"]);
}

#[test]
fn serial_cgroups() {
    variant(&["--all-cgroups"]);
}

#[test]
fn serial_data_addresses() {
    variant(&["-d", "-W"]);
}

#[test]
fn serial_build_ids_in_mappings() {
    variant(&["--buildid-mmap"]);
}

#[test]
fn serial_chosen_clock() {
    variant(&["-k", "CLOCK_MONOTONIC"]);
}

#[test]
fn serial_asynchronous_writing() {
    variant(&["--aio"]);
}

#[test]
fn serial_synthesized_at_the_end() {
    variant(&["--tail-synthesize"]);
}

#[test]
fn serial_overwriting() {
    variant(&["--overwrite"]);
}

#[test]
fn serial_user_registers() {
    variant(&["--user-regs=ip,sp", "--intr-regs=ip,sp"]);
}

#[test]
fn serial_directory_of_threads() {
    if !has_perf() {
        return;
    }
    for compressed in [false, true] {
        let folder = folder();
        let path = folder.path().join("perf.data");
        let mut options = CLOCK.to_vec();
        options.extend(["-a", "--threads"]);
        if compressed {
            options.push("-z");
        }
        if record(&path, &options, BUSY).is_none() {
            return;
        }
        let recording = PerfData::open(&path).expect("a directory");
        assert_eq!(recording.format(), Format::Directory);
        assert!(!recording.salvaged());
        compare(&path, &options.join(" "));
    }
}

/// Records into a pipe, and stores it in a file.
fn pipe(path: &Path, options: &[&str]) -> Option<()> {
    let file = std::fs::File::create(path).expect("a file");
    let status = Command::new("perf")
        .args(["record", "-o", "-"])
        .args(options)
        .arg("--")
        .args(["sh", "-c", "ls /usr/bin >/dev/null"])
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(Stdio::null())
        .status()
        .expect("perf runs");
    if !status.success() {
        if support::is_about_tracepoints(options) && Limit::NoTracepoints.holds() {
            skip(Limit::NoTracepoints);
        } else {
            skip(format!("perf record -o - {options:?} does not work here"));
        }
    }
    status.success().then_some(())
}

#[test]
fn serial_pipes() {
    if !has_perf() {
        return;
    }
    let tracepoint = ["-e", "sched:sched_switch"];
    let several = ["-e", "cpu-clock,page-faults", "-g"];
    for options in [
        &CLOCK[..],
        &["-e", "cpu-clock", "-z"],
        &several,
        &tracepoint,
    ] {
        let folder = folder();
        let path = folder.path().join("pipe.data");
        if pipe(&path, options).is_none() {
            continue;
        }
        let recording = PerfData::open(&path).expect("a pipe");
        assert_eq!(recording.format(), Format::Pipe);
        let stream = std::fs::File::open(&path).expect("the file");
        let from_reader = PerfData::from_reader(stream).expect("a pipe");
        assert_eq!(our_samples(&recording), our_samples(&from_reader));
        assert!(!our_samples(&recording).is_empty());
        if options.contains(&"-z") {
            // perf 6.1 refuses the compressed pipes that it writes.
            let theirs = linux_perf_data_counts(&path);
            assert_eq!(our_kernel_counts(&recording), theirs);
        } else if options == tracepoint {
            // perf reads the descriptions of tracepoints from a real pipe only, and does not count behind them.
            assert_eq!(our_samples(&recording).len(), perf_samples_of_stream(&path));
        } else {
            compare(&path, &options.join(" "));
        }
    }
}

#[test]
fn serial_injected_build_ids() {
    if !has_perf() {
        return;
    }
    let folder = folder();
    let path = folder.path().join("perf.data");
    let injected = folder.path().join("injected.data");
    if record(&path, &CLOCK, BUSY).is_none() {
        return;
    }
    let output = support::perf(&["inject", "-b", "-i", text(&path), "-o", text(&injected)]);
    if !output.status.success() {
        return skip("perf inject does not work here");
    }
    compare(&injected, "perf inject -b");
}

#[test]
fn serial_counts_of_perf_stat() {
    if !has_perf() {
        return;
    }
    let folder = folder();
    let path = folder.path().join("stat.data");
    let arguments = ["stat", "record", "-e", "task-clock,page-faults", "-I", "50"];
    let output = support::perf(&[&arguments[..], &["-o", text(&path), "--"], BUSY].concat());
    if !output.status.success() {
        return skip("perf stat record does not work here");
    }
    let recording = PerfData::open(&path).expect("a recording");
    assert!(recording.features().stat);
    let counts = our_counts(&recording);
    assert_eq!(counts, perf_counts(&path));
    assert!(counts["STAT"] > 0);
}

/// A file whose end is missing is read up to its last whole record, in every state that a killed recorder leaves.
#[test]
fn serial_salvage() {
    if !has_perf() {
        return;
    }
    let folder = folder();
    let path = folder.path().join("perf.data");
    for options in [&["-g"][..], &["-z"]] {
        let options = [&CLOCK[..], options].concat();
        if record(&path, &options, BUSY).is_none() {
            return;
        }
        let whole = PerfData::open(&path).expect("a recording");
        let all = our_samples(&whole);
        let bytes = std::fs::read(&path).expect("the file");
        let word = |at: usize| u64::from_ne_bytes(*bytes[at..].first_chunk().expect("a word"));
        let data = word(40)..word(40) + word(48);

        // The recorder was killed: no size, no sections behind the data.
        let mut killed = bytes[..data.end as usize].to_vec();
        killed[48..56].fill(0);
        let killed = PerfData::from_bytes(killed).expect("what is left");
        assert!(killed.salvaged());
        assert_eq!(our_samples(&killed), all);
        assert_eq!(killed.events()[0].name, whole.events()[0].name);

        // The file was cut in the middle of a record.
        let middle = (data.start + data.end) / 2 + 3;
        let cut = PerfData::from_bytes(bytes[..middle as usize].to_vec()).expect("what is left");
        let some = our_samples(&cut);
        assert!(some.len() < all.len());
        assert!(some.iter().all(|sample| all.contains(sample)));
        let summary = cut.read(|_| std::ops::ControlFlow::Continue(()));
        assert!(summary.salvaged);
        assert!(summary.stopped_at.is_some_and(|at| at <= middle));
        if options.contains(&"-g") {
            assert_eq!(summary.records.get(file_type::COMPRESSED), 0);
        }
    }
}
