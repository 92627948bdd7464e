//! A session for unit tests: an arena in the test's own memory. Each thread has a record there, as traced threads
//! have.

use crate::chunks::RecordWriter;
use crate::session::{self, MappedArena};
use crate::shadow::{ShadowEntry, ThreadBlock, ThreadRecord};
use crate::{arch, sys, thread};
use core::slice;
use core::sync::atomic::AtomicU32;
use dioptra_tracelayout::arena::{Arena, DROP, MAGIC, MONOTONIC};
use dioptra_tracelayout::chunk::{self, ChunkHeader};
use dioptra_tracelayout::message::thread::operand;
use dioptra_tracelayout::record::Record as Recorded;
use dioptra_tracelayout::{Decoder, VERSION, sampling};
use std::sync::OnceLock;
use std::vec::Vec;

/// Returns the arena of all tests of this process.
fn arena() -> MappedArena {
    const CHUNK: usize = 4096;
    const COUNT: usize = 256;
    static READY: OnceLock<bool> = OnceLock::new();
    let ready = READY.get_or_init(|| {
        let size = Arena::size(CHUNK, COUNT) + sampling::SIZE;
        let base = sys::map_private(size).unwrap();
        // SAFETY: new memory, zeroes, which is never unmapped; nobody else knows of it.
        unsafe {
            let header = &mut *base.cast::<Arena>();
            header.magic = MAGIC;
            header.version = u32::from(VERSION);
            (header.chunk_size, header.chunk_count) = (CHUNK as u32, COUNT as u32);
            header.budget = COUNT as u32;
            header.on_full = DROP;
            header.clock = MONOTONIC;
            header.recorder = sys::pid();
            header.next_stream = AtomicU32::new(1);
            header.has_counters = 1;
            session::set_arena(base, size)
        }
    });
    assert!(ready);
    session::arena().unwrap()
}

/// Returns true if the test of this name has its process to itself. Otherwise the test has passed in a process of its
/// own before this function returns.
pub fn is_alone(name: &str) -> bool {
    const ALONE: &str = "DIOPTRA_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let text = std::string::String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
    false
}

/// A traced thread: the one that the test runs in.
pub struct Thread {
    pub block: &'static mut ThreadBlock,
    pub record: *mut ThreadRecord,
    pub arena: MappedArena,
}

impl Thread {
    /// Returns this thread, at its first traced call.
    pub fn new() -> Thread {
        let arena = arena();
        // SAFETY: the block of this thread, which nobody else uses.
        let block = unsafe { &mut *arch::block() };
        let record = thread::record(block, arena).unwrap();
        Thread {
            block,
            record,
            arena,
        }
    }

    /// Returns a writer, once the calls of handlers are written.
    pub fn writer(&self) -> RecordWriter {
        // SAFETY: this thread's record; tests have no hooks.
        unsafe { RecordWriter::new(self.record, self.arena) }
    }

    /// Returns a writer, while the calls of handlers wait.
    pub fn writer_behind(&self) -> RecordWriter {
        // SAFETY: as above.
        unsafe { RecordWriter::behind(self.record, self.arena) }
    }

    /// Returns the thread's record.
    pub fn record(&mut self) -> &mut ThreadRecord {
        // SAFETY: as above.
        unsafe { &mut *self.record }
    }

    /// Opens a call without recording it.
    pub fn push(&mut self, entry: ShadowEntry) {
        let record = self.record();
        // SAFETY: tests open few calls.
        unsafe {
            record.top = record.top.add(1);
            record.top.write(entry);
        }
    }

    /// Closes the innermost call without recording it.
    pub fn pop(&mut self) {
        let record = self.record();
        // SAFETY: the test has opened one.
        record.top = unsafe { record.top.sub(1) };
    }

    /// Returns the records in the thread's chunk.
    pub fn records(&self) -> Vec<Recorded<'static>> {
        let mut writer = self.writer_behind();
        if writer.cursor().chunk == 0 {
            return Vec::new();
        }
        let (memory, used) = writer.chunk();
        // SAFETY: this thread's chunk, which is never unmapped.
        let (header, bytes) = unsafe {
            let header = memory.cast::<ChunkHeader>().read();
            let start = chunk::records_offset(header.open as usize);
            (
                header,
                slice::from_raw_parts(memory.add(start), used - start),
            )
        };
        let decoder = Decoder::new(bytes, header.base);
        let records: Vec<_> = decoder.map(Result::unwrap).collect();
        let times = records.iter().filter_map(time);
        assert!(times.is_sorted(), "{records:?}");
        records
    }

    /// Returns the records without times: `+1` for an entry of function 1, `-` for an exit, `^2` for two calls that
    /// are left, `x` for one that is not shown.
    pub fn log(&self) -> Vec<std::string::String> {
        let word = |record: &Recorded<'_>| match record {
            Recorded::Entry { function, .. } => std::format!("+{function}"),
            Recorded::Exit { .. } => "-".into(),
            Recorded::Unwound { calls, .. } => std::format!("^{calls}"),
            Recorded::Discarded { .. } => "x".into(),
            other => std::format!("{other:?}"),
        };
        self.records().iter().map(word).collect()
    }
}

fn time(record: &Recorded<'_>) -> Option<u64> {
    match record {
        Recorded::Entry { time, .. }
        | Recorded::Exit { time }
        | Recorded::Unwound { time, .. }
        | Recorded::Discarded { time } => Some(*time),
        _ => None,
    }
}

/// Returns an open call of a function with a slot on the stack.
pub fn call(function: u32, slot: u64) -> ShadowEntry {
    ShadowEntry {
        slot,
        return_address: 1,
        function: operand(function),
        ..ShadowEntry::BOTTOM
    }
}
