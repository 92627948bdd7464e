//! Any bytes as an ELF file or as code, for each processor.
#![no_main]

#[path = "../../tests/support/exercise.rs"]
mod exercise;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    exercise::exercise(bytes);
});
