//! The sub-commands, a file each.

pub mod doctor;
pub mod dump;
pub mod info;
pub mod list;
pub mod record;
pub mod report;
