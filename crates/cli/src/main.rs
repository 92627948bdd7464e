//! The `dioptra` binary.
fn main() {}
