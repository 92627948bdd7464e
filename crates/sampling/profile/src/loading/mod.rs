//! Reading a recording into a [`Profile`](crate::Profile), once and in time order.
//!
//! [`plan`] says which counts to keep. [`load`] reads the records and passes each through the stages: [`system`] follows
//! threads and mappings, [`identify`] finds the task of a sample, [`stacking`] its call stack, and [`counting`] counts it.
//! [`waits`] holds samples of switches back until their threads run again.
//! [`live`] takes the records of a recording that goes on, and [`piped`] those of a pipe that is read to its end.

mod counters;
pub(crate) mod counting;
pub(crate) mod details;
mod finish;
pub(crate) mod identify;
pub(crate) mod live;
pub(crate) mod load;
pub(crate) mod losses;
pub(crate) mod piped;
pub(crate) mod plan;
pub(crate) mod progress;
pub(crate) mod sample_fields;
pub(crate) mod stacking;
pub(crate) mod system;
pub(crate) mod visit;
pub(crate) mod waits;
