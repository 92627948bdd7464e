//! Starts or attaches to targets and writes what they did to a perf.data file.
