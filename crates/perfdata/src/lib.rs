//! Reading and writing perf.data: the files of perf record and of dioptra.
