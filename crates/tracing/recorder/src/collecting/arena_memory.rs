//! The arena, from the recorder's side.

use super::clock::TraceClock;
use crate::selection::selector::Gating;
use dioptra_processes::procfs;
use dioptra_tracelayout::VERSION;
use dioptra_tracelayout::arena::{Arena, MAGIC, Processes, STATES_OFFSET};
use dioptra_tracelayout::execs::{self, NOTICES, Notice};
use dioptra_tracelayout::message::PRESENCE_SIZE;
use dioptra_tracelayout::message::thread::OUTSIDE;
use dioptra_tracelayout::sampling;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::atomic::AtomicU32;

/// The arena's memory, mapped as long as this value lives.
#[derive(Debug)]
pub struct ArenaMemory {
    file: File,
    presence: File,
    name: String,
    base: *mut u8,
    size: usize,
}

// SAFETY: the shared memory holds atomics, and chunks, each of which has one owner at a time, as its state says.
unsafe impl Send for ArenaMemory {}
// SAFETY: as above.
unsafe impl Sync for ArenaMemory {}

/// The size of an arena, and the behaviour of threads when it is full.
#[derive(Clone, Copy, Debug)]
pub struct ArenaOptions {
    /// The size of a chunk in bytes.
    pub chunk_size: usize,
    /// The number of chunks.
    pub chunks: usize,
    /// The largest number of full chunks that may wait to be written.
    pub budget: usize,
    /// The behaviour of threads when too many chunks are full: `BLOCK` or `DROP` of [`dioptra_tracelayout::arena`].
    pub on_full: u32,
    /// The clock of records' times.
    pub clock: TraceClock,
    /// The conditions under which hooks hide calls.
    pub gating: Gating,
    /// Whether executions that were judged not to be shown stay recorded, and are marked.
    pub marks: bool,
    /// The seed of the random choices of sampled functions.
    pub seed: u64,
}

impl ArenaMemory {
    /// Makes an arena.
    ///
    /// # Errors
    /// The system calls' errors.
    pub fn new(options: ArenaOptions) -> io::Result<ArenaMemory> {
        let mut size = Arena::size(options.chunk_size, options.chunks);
        if options.gating.samples {
            size += sampling::SIZE;
        }
        // Processes that map the arena are found by its name. Recordings may run side by side.
        let name = format!(
            "dioptra-arena-{}-{}",
            std::process::id(),
            crate::recording::shared::monotonic()
        );
        let file = memory_file(&name)?;
        file.set_len(size as u64)?;
        // A process that has mapped a file ends by SIGBUS when the file becomes shorter. Traced processes have a
        // descriptor for a moment. The seals keep them from shortening the file.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let presence = memory_file("dioptra-presence")?;
        presence.set_len(PRESENCE_SIZE as u64)?;
        // SAFETY: new memory at a place that the kernel chooses.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let arena = Arena {
            magic: MAGIC,
            version: u32::from(VERSION),
            chunk_size: options.chunk_size as u32,
            chunk_count: options.chunks as u32,
            budget: options.budget as u32,
            on_full: options.on_full,
            shift: options.clock.shift(),
            clock: options.clock.in_arena(),
            hidden: if options.gating.opt_in { OUTSIDE } else { 0 },
            levels: options.gating.levels.map_or(0, u32::from),
            mutes: u32::from(options.gating.mutes),
            at_least: 0.into(),
            recorder: std::process::id(),
            stop: 0.into(),
            next_stream: 1.into(),
            full: 0.into(),
            filled: 0.into(),
            freed: 0.into(),
            waiting: 0.into(),
            waits: 0.into(),
            waited: 0.into(),
            lost: 0.into(),
            handler_calls: 0.into(),
            handler_calls_done: 0.into(),
            missed_no_memory: 0.into(),
            has_counters: u32::from(options.gating.samples),
            marks: u32::from(options.marks),
            seed: options.seed,
            uncounted_threads: 0.into(),
            executed: 0.into(),
            executed_unseen: 0.into(),
            marked: 0.into(),
            unanswered: 0.into(),
            confined: Processes::default(),
            alone: Processes::default(),
            sharing: Processes::default(),
            preempted: Processes::default(),
        };
        // SAFETY: the mapping begins with a page for the header, and nobody else knows it yet.
        unsafe { base.cast::<Arena>().write(arena) };
        Ok(ArenaMemory {
            file,
            presence,
            name,
            base: base.cast(),
            size,
        })
    }

    /// Returns the descriptor of the memory that traced processes map.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the descriptor of memory that traced processes map, too, and the recorder does not: whoever has it
    /// mapped is one of them.
    pub fn presence(&self) -> &File {
        &self.presence
    }

    /// Returns whether a traced process has the presence memory mapped. If none has, none can map it from then on.
    pub fn is_used(&self) -> bool {
        // The kernel refuses this seal while a process has the memory mapped writable.
        fcntl_add_seals(&self.presence, SealFlags::WRITE).is_err()
    }

    /// Returns the other processes that have the arena mapped, as far as the recorder may read their maps. This takes
    /// long.
    pub fn users(&self) -> Vec<u32> {
        let us = std::process::id();
        // Processes of this recording began after the recorder. Reading the maps of all other processes would take
        // long.
        let began = procfs::started(us);
        let has_it = |pid: &u32| {
            *pid != us
                && procfs::started(*pid) >= began
                && fs::read(format!("/proc/{pid}/maps"))
                    .is_ok_and(|maps| memmem(&maps, self.name.as_bytes()))
        };
        procfs::processes()
            .unwrap_or_default()
            .into_iter()
            .filter(has_it)
            .collect()
    }

    /// Returns its size in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the header.
    pub fn header(&self) -> &Arena {
        // SAFETY: mapped and initialised by `new`; the fields that change are atomic.
        unsafe { &*self.base.cast() }
    }

    /// Returns the chunks' states.
    pub fn states(&self) -> &[AtomicU32] {
        // SAFETY: the states lie in the mapping, as `Arena::size` has counted. Their number is read from memory that
        // traced programs can write, so the recorder's own copy of the size bounds it.
        unsafe {
            let count = (self.header().chunk_count as usize).min((self.size - STATES_OFFSET) / 4);
            std::slice::from_raw_parts(self.base.add(STATES_OFFSET).cast(), count)
        }
    }

    /// Returns the notices in which processes report the programs that they execute.
    pub fn notices(&self) -> &[Notice] {
        let start = Arena::execs_offset(self.header().chunk_count as usize);
        if start.saturating_add(execs::SIZE) > self.size {
            return &[];
        }
        // SAFETY: the notices lie in the mapping, at a multiple of their alignment. Processes write atomics there, and
        // paths, which are copied and may be any bytes.
        unsafe { std::slice::from_raw_parts(self.base.add(start).cast(), NOTICES) }
    }

    /// Returns the bytes of a chunk that is full, or whose thread is gone.
    pub fn chunk(&self, index: usize) -> Option<&[u8]> {
        let (start, size) = self.place(index)?;
        // SAFETY: inside the mapping. A defective program may still write there: any bytes are valid, and what is read
        // is checked again after it was copied.
        Some(unsafe { std::slice::from_raw_parts(self.base.add(start), size) })
    }

    /// Zeroes the first bytes of a chunk.
    pub fn clear(&self, index: usize, bytes: usize) {
        if let Some((start, size)) = self.place(index) {
            // SAFETY: inside the mapping, and the chunk is ours as for `chunk`.
            unsafe { ptr::write_bytes(self.base.add(start), 0, bytes.min(size)) };
        }
    }

    /// Returns the address of the counters of sampled functions, if there are any and they lie in the mapping.
    pub fn counters(&self) -> Option<*mut u8> {
        let start = self.header().counters_offset()?;
        let fits = start.checked_add(sampling::SIZE)? <= self.size;
        fits.then(|| self.base.wrapping_add(start))
    }

    fn place(&self, index: usize) -> Option<(usize, usize)> {
        let header = self.header();
        let size = header.chunk_size as usize;
        let start = Arena::chunks_offset(header.chunk_count as usize)
            .checked_add(index.checked_mul(size)?)?;
        (start.checked_add(size)? <= self.size).then_some((start, size))
    }

    /// Waits until the word is no longer `value` or another thread wakes this one, for some milliseconds at most.
    pub fn wait(word: &AtomicU32, value: u32, milliseconds: i64) {
        let timeout = libc::timespec {
            tv_sec: milliseconds / 1000,
            tv_nsec: milliseconds % 1000 * 1_000_000,
        };
        // SAFETY: word and time outlive the call.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.as_ptr(),
                libc::FUTEX_WAIT,
                value,
                &raw const timeout,
            )
        };
    }

    /// Wakes all threads that wait for a word.
    pub fn wake(word: &AtomicU32) {
        // SAFETY: the kernel only looks up who waits there.
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }
}

/// Makes a new file in memory, which can be sealed.
fn memory_file(name: &str) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    Ok(File::from(memfd_create(name, flags)?))
}

fn memmem(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}

impl Drop for ArenaMemory {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; borrows of it end with us.
        unsafe { libc::munmap(self.base.cast(), self.size) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TraceClock;
    use dioptra_tracelayout::arena::BLOCK;

    #[test]
    fn nobody_can_take_the_memory_away() {
        let arena = ArenaMemory::new(ArenaOptions {
            chunk_size: 4096,
            chunks: 8,
            budget: 4,
            on_full: BLOCK,
            clock: TraceClock::Monotonic,
            gating: Gating::default(),
            seed: 0,
            marks: false,
        })
        .unwrap();
        let error = arena.file().set_len(0).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
        assert!(arena.header().is_valid(arena.size()));
    }
}
