//! Any bytes as the files of a trace: opened, walked, filtered, summed.
#![no_main]

#[path = "../../tests/support/exercise.rs"]
mod exercise;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| exercise::exercise(bytes));
