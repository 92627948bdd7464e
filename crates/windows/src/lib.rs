//! Windows: counters read over short bursts, so that a ratio of counts belongs to one function and carries its interval.
//!
//! - [`record`] makes windows beside the samples of a recording, and writes the file's section about them.
//! - [`section`] is that section.
//! - [`collect`] finds windows between the samples of a recording.
//! - [`estimate`] judges windows, sums the kept ones by row, and computes ratios with their intervals.
//! - [`display`] shows these as tables and as columns of other tables.
//!
//! **Invariant:** only the binary and the project's chores know this crate. The crates under it know samples, tables and
//! files, and no windows.

pub mod collect;
pub mod display;
pub mod estimate;
pub mod record;
pub mod section;
