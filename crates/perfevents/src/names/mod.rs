//! Names of events: what users type, and the numbers that the kernel takes.

pub mod pmu;
pub mod software;
