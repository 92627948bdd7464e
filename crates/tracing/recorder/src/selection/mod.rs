//! The choice of functions: which of those that can be traced the user wants.
//!
//! A [`selector::Selector`] is asked once for each module. It answers with a [`Probe`](dioptra_filters::Probe) for each
//! function. [`rules`] has the selector that follows filters and triggers, and [`patterns`] the patterns of names that
//! say which functions are patched. [`warnings`] are about choices that find nothing.
//! [`values`] has the places of the values that are recorded with calls.

pub mod patterns;
pub mod rules;
pub mod selector;
pub mod typed;
pub mod values;
pub mod warnings;
