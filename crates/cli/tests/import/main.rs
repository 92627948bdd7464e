//! `dioptra import`: profiles of other tools as recordings, on which every other command works.

mod collapsed;
mod hostile;
mod pprof;
mod script;
#[path = "../export/support.rs"]
mod support;
