//! Counts of samples by stack and sample key, scaled where counters shared the hardware, with their statistical errors.

mod by_leaf;
pub(crate) mod counter;
pub(crate) mod estimate;
pub(crate) mod multiplex;
pub(crate) mod sample_keys;
