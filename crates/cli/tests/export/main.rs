//! `dioptra export`: programs that nobody here wrote read each format, and find the numbers of `dioptra report`.

mod callgrind;
mod chrome;
mod collapsed;
mod command;
mod firefox;
mod flamegraph;
mod otlp;
mod otlp_push;
mod perfetto;
mod pprof;
mod speedscope;
mod support;
mod traces;
