//! The sub-commands, a file each.

pub mod agent;
pub mod annotate;
pub mod completions;
mod derived;
pub mod diff;
pub mod doctor;
pub mod dump;
pub mod export;
pub mod import;
pub mod info;
pub mod list;
pub mod man_pages;
pub mod metrics;
mod nothing;
mod profiles;
pub mod record;
pub mod report;
mod shown;
pub mod store;
pub mod sum;
pub mod top;
pub mod trace;
mod traces;
pub mod web;
