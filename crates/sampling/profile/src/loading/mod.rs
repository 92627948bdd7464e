//! Reading a recording into a [`Profile`](crate::Profile), once and in time order.
//!
//! [`plan`] says which counts to keep. [`load`] reads the records, and [`sideband`] follows threads and mappings.
//! [`counting`] finds the stack of each sample and counts the sample there.

pub(crate) mod counting;
pub(crate) mod details;
pub(crate) mod load;
pub(crate) mod losses;
pub(crate) mod plan;
pub(crate) mod sample_fields;
pub(crate) mod sideband;
pub(crate) mod visit;
