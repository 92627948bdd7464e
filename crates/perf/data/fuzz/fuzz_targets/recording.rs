//! Any bytes as a recording: opened, read, every record parsed.
#![no_main]

#[path = "../../tests/support/exercise.rs"]
mod exercise;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| exercise::exercise(bytes));
