//! Processes and threads in time, the programs they ran, and the modules in their address spaces.

pub(crate) mod address_space;
pub(crate) mod images;
pub(crate) mod jit;
pub(crate) mod mappings;
pub(crate) mod modules;
pub(crate) mod tasks;
