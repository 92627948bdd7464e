//! Directories that uftrace records and reads.
//!
//! [`write_uftrace`] writes a dioptra trace as such a directory, [`read_uftrace`] makes a trace of one.
//!
//! | file | content |
//! |---|---|
//! | `info` | a header of 40 bytes ([`info`]) and lines of text: machine, command, end |
//! | `task.txt` | lines: a program began (`SESS`), a thread (`TASK`), a forked process (`FORK`), a library (`DLOP`) |
//! | `sid-SESSION.map` | the modules of a program, as in `/proc/PID/maps` |
//! | `MODULE.sym` | addresses and names of a module's functions, relative to the module's first address |
//! | `TID.dat` | the calls of a thread: [records](record) of 16 bytes |
//! | `perf-cpuN.dat` | context switches, beginnings, ends and names of threads: [records](perf_events) of perf events |
//!
//! The layout of the files was learned from directories that uftrace 0.13 has recorded, and from its manual.

mod info;
mod loss;
mod perf_events;
mod read;
mod record;
mod write;

pub use loss::{UftraceLoss, UftraceLossKind};
pub use read::{UftraceImportError, UftraceImported, is_uftrace, read_uftrace};
pub use write::{UftraceExportError, UftraceExported, function_addresses, write_uftrace};
