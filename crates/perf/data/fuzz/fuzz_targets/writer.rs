//! Any records written, and read again.
#![no_main]

#[path = "../../tests/support/rewrite.rs"]
mod rewrite;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| rewrite::rewrite(bytes));
