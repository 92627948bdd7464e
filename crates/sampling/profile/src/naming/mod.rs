//! Names of locations: functions, source lines and inlined functions, found once for each location after reading.

pub(crate) mod debug_info;
pub(crate) mod imported;
pub(crate) mod inlined;
pub(crate) mod live;
pub(crate) mod names;
pub(crate) mod unknown;
