//! The layout of a trace: records, chunks, files, and the memory and messages that a traced program shares with its
//! recorder. No allocation, no `std`: the runtime inside the traced program uses it too.
//!
//! # A trace on disk
//!
//! A trace is a directory, by default `dioptra.trace`:
//!
//! | file | content |
//! |---|---|
//! | `info.json` | what was traced, when, how, on which machine; written at the start, and again with the end |
//! | `journal.jsonl` | what happened beside the calls, one JSON object a line: processes, modules, mappings, threads and what became of them, clock pairs, losses, notes |
//! | `functions` | a table of [`FunctionEntry`], 24 bytes each: entry *n* is the function (or library call) whose id is *n* |
//! | `names` | texts of library calls' names, one after the other; entries of `functions` point into it |
//! | `records` | the calls: [chunks](chunk) of [records](record), one after the other, in any order |
//! | `switches` | when the threads left their CPUs and got others: blocks of [context switches](switches); only if they were recorded |
//!
//! Everything is little endian. All files but `info.json` are only ever appended to, so that a trace whose recorder was
//! killed can be read up to where it ended: a JSON line without its newline, a table entry or a chunk that is cut off
//! is the end.
//!
//! The JSON objects are described in `dioptra-tracedata`, which writes and reads them.
//!
//! ## Functions
//!
//! A *function id* is an index into `functions` and means the same in all processes and at all times of a trace: the
//! recorder hands out a block of ids when it first sees a module, and uses it again when another process maps the same
//! file. So a call can be named without knowing what was mapped where. Id 0 is no function.
//!
//! ## Streams and chunks
//!
//! A *stream* is the sequence of calls of one thread of one process image; its number is unique in the trace. A forked
//! child's streams are its own and name the stream they continue. A stream is cut into [chunks](chunk), numbered
//! without gaps, each of which can be decoded by itself: its header says when it begins and which calls are open.
//! Chunks of different streams follow each other in `records` as they became full; those of one stream are in order.
//!
//! ## Time
//!
//! Times in records are ticks of the clock that `info.json` names, shifted right by the chunk's `shift`: of the time
//! stamp counter (`tsc`), or of `CLOCK_MONOTONIC` in nanoseconds where the counter can't be trusted. The journal holds
//! pairs of both clocks (start, end, and about once a second); a reader converts by a straight line between two pairs.
//!
//! # Losing nothing
//!
//! Chunks live in shared memory that the recorder holds, are zero before they are used, and no record begins with four
//! zero bytes: what a killed thread had written ends where the zeroes begin, see [`record`].

#![no_std]

#[cfg(test)]
extern crate std;

pub mod arena;
pub mod chunk;
pub mod directory;
pub mod execs;
pub mod message;
pub mod record;
pub mod sampling;
pub mod switches;
pub mod values;

pub use chunk::ChunkHeader;
pub use directory::{EventPlace, FunctionEntry, FunctionKind};
pub use record::{Decoder, Encoder, Record};
pub use switches::{ContextSwitch, SwitchKind};

/// The version of everything in this crate: of the files, the shared memory and the messages. A reader refuses others.
pub const VERSION: u16 = 1;

/// The size in bytes that a library call has for filters by size and in reports: that of an entry of the procedure linkage
/// table, on x86-64 and 64-bit Arm. Calls through pointers have none of their own and count as such entries.
pub const LIBRARY_CALL_SIZE: u64 = 16;
