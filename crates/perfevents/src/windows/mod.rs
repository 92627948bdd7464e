//! Windows: stretches between two samples, short enough to lie in one function, over which counters are compared.
//!
//! A [`Schedule`] says when there are windows: `long` from the start of one burst to the next, then `batch` windows of
//! `short` back to back. Ordinary sampling is the schedule without `long`.

mod schedule;

pub use schedule::{Length, Schedule, WindowRequest, WindowSyntaxError};
