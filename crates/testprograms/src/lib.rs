//! Builds the programs under tests/programs whose counts are known by construction.
