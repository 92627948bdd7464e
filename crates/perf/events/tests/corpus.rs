//! The saved inputs of the fuzz targets, again: what `fuzz/fuzz_targets` ask of any input.

use dioptra_perfevents::parse_events;
use std::path::Path;

/// Reads the inputs of a target.
fn inputs(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    let inputs: Vec<Vec<u8>> = std::fs::read_dir(&folder)
        .expect("a corpus")
        .map(|entry| std::fs::read(entry.expect("an entry").path()).expect("an input"))
        .collect();
    assert!(!inputs.is_empty(), "{}", folder.display());
    inputs
}

#[test]
fn saved_texts_are_events_or_point_at_their_error() {
    for input in inputs("events") {
        let Ok(text) = std::str::from_utf8(&input) else {
            continue;
        };
        if let Err(error) = parse_events(text) {
            let letters = text.chars().count();
            assert!((1..=letters + 1).contains(&error.column), "{text:?}");
        }
    }
}
