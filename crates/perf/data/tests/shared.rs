//! Recordings of many perfs, kernels and machines: perf 6.1 and the crate linux-perf-data say the same as we.

mod support;

use dioptra_perfdata::{Format, PerfData, file_type};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use support::{
    has_perf, linux_perf_data_counts, linux_perf_data_samples, name, our_counts, our_dump,
    our_kernel_counts, our_sample_fields, our_samples, perf_counts, perf_dump, perf_samples,
    shared_recordings,
};

/// Returns the recordings that perf 6.1 reads: the others have newer attrs or compressed records.
fn for_perf() -> Vec<PathBuf> {
    let mut paths = shared_recordings();
    paths.retain(|path| !name(path).starts_with("lpd-"));
    paths
}

#[test]
fn counts_of_every_record_type_are_perfs() {
    if !has_perf() {
        return;
    }
    for path in for_perf() {
        let recording = PerfData::open(&path).expect("a recording");
        let mut perfs = perf_counts(&path);
        if name(&path).contains("intel_pt") {
            // perf decodes the trace and counts what it made up.
            perfs.remove("AUXTRACE_ERROR");
            let samples = our_samples(&recording).len() as u64;
            perfs.insert("SAMPLE".into(), samples);
        }
        assert_eq!(our_counts(&recording), perfs, "{}", name(&path));
    }
}

#[test]
fn samples_and_their_order_are_perfs() {
    if !has_perf() {
        return;
    }
    for path in for_perf() {
        let recording = PerfData::open(&path).expect("a recording");
        let (ours, perfs) = (our_samples(&recording), perf_samples(&path, &recording));
        assert!(!ours.is_empty(), "{}", name(&path));
        assert_eq!(ours, perfs, "{}", name(&path));
    }
}

#[test]
fn samples_of_each_event_are_perfs() {
    if !has_perf() {
        return;
    }
    for path in for_perf() {
        let recording = PerfData::open(&path).expect("a recording");
        let summary = recording.read(|_| ControlFlow::Continue(()));
        let arguments = ["script", "--no-itrace", "-G", "-F", "event"];
        let output = support::perf(&[&arguments[..], &["-i", support::text(&path)]].concat());
        let mut perfs = BTreeMap::<String, u64>::new();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let event = line.trim().trim_end_matches(':');
            if !event.is_empty() {
                *perfs.entry(event.into()).or_default() += 1;
            }
        }
        let mut ours = BTreeMap::<String, u64>::new();
        for (event, samples) in recording.events().iter().zip(&summary.samples) {
            if *samples > 0 {
                *ours.entry(event.name.clone()).or_default() += samples;
            }
        }
        assert_eq!(ours, perfs, "{}", name(&path));
        assert_eq!(summary.unknown_ids, 0, "{}", name(&path));
        assert_eq!(summary.out_of_order, 0, "{}", name(&path));
    }
}

fn remove_offset(line: &mut String) {
    let mut words: Vec<_> = line.split(' ').collect();
    words.remove(1);
    *line = words.join(" ");
}

/// Every record, where it stands, when it comes, and the call chains.
#[test]
fn the_whole_order_is_perfs() {
    if !has_perf() {
        return;
    }
    for path in for_perf() {
        let recording = PerfData::open(&path).expect("a recording");
        let (mut ours, mut perfs) = (our_dump(&recording), perf_dump(&path));
        if recording.format() == Format::Pipe {
            // perf does not tell where in a pipe a record stands.
            ours.iter_mut().chain(&mut perfs).for_each(remove_offset);
        }
        assert_eq!(ours.len(), perfs.len(), "{}", name(&path));
        for (ours, perfs) in ours.iter().zip(&perfs) {
            assert_eq!(ours, perfs, "{}", name(&path));
        }
    }
}

/// The kernel's records, compressed ones too, are those that linux-perf-data finds.
#[test]
fn records_are_those_of_linux_perf_data() {
    for path in shared_recordings() {
        let file = name(&path);
        // Its reader does not follow AUX data and old pipes without ids.
        if file.contains("intel_pt") || file.contains("piped.target") {
            continue;
        }
        let recording = PerfData::open(&path).expect("a recording");
        let theirs = linux_perf_data_counts(&path);
        assert_eq!(our_kernel_counts(&recording), theirs, "{file}");
    }
}

/// linux-perf-data reads the files that perf 6.1 refuses: every sample is compared, also in newer and compressed files.
#[test]
fn samples_are_those_of_linux_perf_data() {
    let mut refused_by_perf = 0;
    for path in shared_recordings() {
        let file = name(&path);
        if file.contains("intel_pt") || file.contains("piped.target") {
            continue;
        }
        let recording = PerfData::open(&path).expect("a recording");
        let mut ours = our_sample_fields(&recording);
        let mut theirs = linux_perf_data_samples(&path);
        // linux-perf-data orders samples of the same time otherwise.
        ours.sort_unstable();
        theirs.sort_unstable();
        assert!(!ours.is_empty(), "{file}");
        assert_eq!(ours, theirs, "{file}");
        refused_by_perf += usize::from(file.starts_with("lpd-"));
    }
    assert!(refused_by_perf == 3 || shared_recordings().is_empty());
}

#[test]
fn compressed_files_tell_how() {
    for path in shared_recordings() {
        let recording = PerfData::open(&path).expect("a recording");
        let summary = recording.read(|_| ControlFlow::Continue(()));
        let compressed = summary.records.get(file_type::COMPRESSED)
            + summary.records.get(file_type::COMPRESSED2);
        assert_eq!(
            recording.features().compressed.is_some(),
            compressed > 0,
            "{}",
            name(&path)
        );
    }
}
