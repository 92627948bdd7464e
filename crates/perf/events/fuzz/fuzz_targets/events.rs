//! Any text, as a list of events: events, or an error that points into the text.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Err(error) = dioptra_perfevents::parse_events(text) {
        assert!(error.column >= 1 && error.column <= text.chars().count() + 1);
    }
});
