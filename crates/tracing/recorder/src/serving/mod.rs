//! The service for traced processes: each connects, and learns which pools to load and which patches to write.
//!
//! [`server`] answers them, after a [`greeting`] and with the messages of [`wire`]. It reads their [`maps`], finds the
//! modules that are new ([`process`], [`loaded`]), and makes a [`plan`] of pool and patches for each. The process's
//! runtime writes the patches ([`patching`]) while its other threads are stopped ([`stopping`]). A debugger's
//! breakpoints are left alone ([`debugged`]).

pub mod debugged;
pub mod greeting;
pub mod loaded;
pub mod maps;
pub mod patching;
pub mod plan;
pub mod process;
pub mod server;
pub mod stopping;
pub mod wire;
