//! Programs that run in no computer, for tests of the analysis of windows.
//!
//! A [`Program`] is a semi-Markov chain of functions with known rates of events; a [`Recording`] watches it as a
//! profiler would, with everything that goes wrong there, and gives the [`Windows`](dioptra_windows::estimate::Windows)
//! that the analysis takes, beside the truth ([`Program::truth`]). [`study`] repeats that and counts how often
//! intervals hold the truth. All of it is seeded: the same seed gives the same counts on every machine.

mod program;
mod recording;
pub mod study;
mod walk;

pub use program::{Event, Function, Program};
pub use recording::{Begin, Recorded, Recording, Spoiling};
