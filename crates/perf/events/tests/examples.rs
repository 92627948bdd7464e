//! The examples run, and print what they promise. They are built where all targets are, as `cargo test` does.

use std::path::PathBuf;
use std::process::Command;

/// Runs an example and returns its output; `None`, said aloud, where it was not built or the machine lets nobody sample.
fn output_of(example: &str) -> Option<String> {
    let test = std::env::current_exe().expect("this test has a path");
    let program: PathBuf = test
        .parent()
        .and_then(|folder| folder.parent())
        .expect("tests lie in target/PROFILE/deps")
        .join("examples")
        .join(example);
    if !program.exists() {
        dioptra_testprograms::skip(format!(
            "{example} was not built; run all targets, as `cargo xtask test` does"
        ));
        return None;
    }
    let output = Command::new(&program).output().expect("the example starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && errors.contains("perf_event_open") {
        dioptra_testprograms::skip(errors.into_owned());
        return None;
    }
    assert!(output.status.success(), "{example}: {errors}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the number before `word` in the last line that has it.
fn number_before(word: &str, text: &str) -> u64 {
    text.lines()
        .rev()
        .find_map(|line| {
            let (before, _) = line.split_once(word)?;
            before.split_whitespace().last()?.parse().ok()
        })
        .unwrap_or_else(|| panic!("no number before {word:?} in {text:?}"))
}

#[test]
fn serial_self_profile_has_samples_of_its_threads() {
    if let Some(text) = output_of("self_profile") {
        assert!(number_before(" samples,", &text) > 0, "{text}");
        assert!(
            text.lines()
                .filter(|line| line.starts_with("thread "))
                .count()
                > 1,
            "{text}"
        );
    }
}

#[test]
fn serial_page_faults_counts_each_page() {
    if let Some(text) = output_of("page_faults") {
        // One fault for each page of a mebibyte, where no larger pages are used.
        let faults = number_before(" page faults", &text);
        assert!(faults > 0, "{text}");
    }
}

#[test]
fn serial_context_switches_are_seen() {
    if let Some(text) = output_of("context_switches") {
        assert!(number_before(" switches away", &text) > 0, "{text}");
    }
}

#[test]
fn serial_groups_compare_fresh_memory_with_memory_in_use() {
    if let Some(text) = output_of("groups") {
        let (fresh, reused) = text.split_once("memory in use").expect("two parts");
        let fresh = number_before(" page-faults", fresh);
        let reused = number_before(" page-faults", reused);
        // 16 MiB are at least eight huge pages, 64 KiB at most sixteen small ones and the allocator's few.
        assert!(fresh >= 8 && reused < 100, "{text}");
    }
}

#[test]
fn serial_call_chains_have_several_addresses() {
    if let Some(text) = output_of("call_chains") {
        assert!(number_before(" samples,", &text) > 0, "{text}");
        assert!(text.contains(" samples: "), "{text}");
    }
}

#[test]
fn serial_tokio_reads_every_fault_of_its_thread() {
    if let Some(text) = output_of("tokio") {
        // 4 MiB are at least two huge pages.
        assert!(number_before(" page faults", &text) >= 2, "{text}");
        assert_eq!(number_before(" lost", &text), 0, "{text}");
    }
}
