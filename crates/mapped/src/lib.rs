#![doc = include_str!("../README.md")]
//!
//! # Why a handler
//! A program that reads a mapped page behind the end of its file gets the signal SIGBUS, which ends it. Files that were
//! larger when they were mapped have such pages: whoever truncates a recording ends every program that reads it. A
//! [`MappedFile`] reads as zeroes from there on instead, and tells where ([`MappedFile::truncated_at`]). All readers of
//! such files here check what they read, so that zeroes are damage that they know how to treat; whoever shows the result
//! asks [`truncations`] at the end.
//!
//! On Linux the first [`MappedFile`] of a process installs a handler of SIGBUS. A library that changes how a process treats a
//! signal has to have a reason: only the one that maps the file can know which faults are its own, and a program that
//! has to install the handler itself is killed if it forgets. The handler touches nothing but faults in the
//! mappings of this crate. Every other SIGBUS goes to the handler that was there before, or has its default effect. Elsewhere
//! than on Linux files are mapped without a handler.

#[cfg(target_os = "linux")]
mod guard;
#[cfg(not(target_os = "linux"))]
#[path = "unguarded.rs"]
mod guard;

use guard::Guard;
use memmap2::{Mmap, MmapOptions};
use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The way in which a program will read mapped bytes. Systems that take no such advice ignore it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// From the first byte to the last one.
    Sequential,
    /// Few bytes here and there.
    Random,
    /// All of them at once: the system should read them now.
    PopulateRead,
}

/// A file, or a part of it, mapped read-only. Dereferences to its bytes.
#[derive(Debug)]
pub struct MappedFile {
    // Dropped before the mapping: another mapping may lie there later.
    guard: Guard,
    map: Mmap,
}

/// A file that was truncated while it was mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Truncation {
    /// The file, as it was called when it was mapped.
    pub path: PathBuf,
    /// The first byte that is missing.
    pub offset: u64,
}

impl std::fmt::Display for Truncation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (path, offset) = (self.path.display(), self.offset);
        write!(
            f,
            "{path} was truncated while it was read: from byte {offset} on its content is missing"
        )
    }
}

/// The truncations of mappings that were dropped.
static DROPPED: Mutex<Vec<Truncation>> = Mutex::new(Vec::new());

fn dropped() -> std::sync::MutexGuard<'static, Vec<Truncation>> {
    DROPPED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns all files that were truncated while this process had them mapped: each one once, with the first byte
/// that is missing.
pub fn truncations() -> Vec<Truncation> {
    let mut all = dropped().clone();
    for truncation in guard::truncations() {
        add(&mut all, truncation);
    }
    all
}

fn add(all: &mut Vec<Truncation>, new: Truncation) {
    match all.iter_mut().find(|known| known.path == new.path) {
        Some(known) => known.offset = known.offset.min(new.offset),
        None => all.push(new),
    }
}

impl MappedFile {
    /// Maps a whole file.
    ///
    /// # Errors
    /// If the system can't map it.
    pub fn new(file: &File) -> io::Result<MappedFile> {
        let size = file.metadata()?.len();
        let size = usize::try_from(size).map_err(|_| io::ErrorKind::FileTooLarge)?;
        MappedFile::part(file, 0, size)
    }

    /// Maps `size` bytes from `offset` on.
    ///
    /// # Errors
    /// If the system can't map it.
    pub fn part(file: &File, offset: u64, size: usize) -> io::Result<MappedFile> {
        // SAFETY: the map is only read. Whoever writes to the file meanwhile changes what is read, as with every reader over
        // mmap: readers check what they take from it, and copy what must not change.
        let map = unsafe { MmapOptions::new().offset(offset).len(size).map(file) }?;
        let guard = Guard::new(file, offset, &map);
        Ok(MappedFile { guard, map })
    }

    /// Returns the first byte of the file that is missing, if the file became shorter than the mapping.
    ///
    /// Reads before that byte have returned the file's content. Reads behind it have returned zeroes.
    pub fn truncated_at(&self) -> Option<u64> {
        self.guard.truncated_at()
    }

    /// Returns whether somebody has read a page that is missing. That is quick to ask, but does not tell of truncations that
    /// nobody has come across yet.
    pub fn has_faulted(&self) -> bool {
        self.guard.has_faulted()
    }

    /// Tells the system how the bytes will be read. Only speed depends on it.
    pub fn advise(&self, advice: Advice) {
        self.advise_range(advice, 0..self.map.len());
    }

    /// Tells the system how the bytes of a range will be read.
    pub fn advise_range(&self, advice: Advice, range: Range<usize>) {
        #[cfg(unix)]
        {
            let advice = match advice {
                Advice::Sequential => memmap2::Advice::Sequential,
                Advice::Random => memmap2::Advice::Random,
                #[cfg(target_os = "linux")]
                Advice::PopulateRead => memmap2::Advice::PopulateRead,
                #[cfg(not(target_os = "linux"))]
                Advice::PopulateRead => memmap2::Advice::WillNeed,
            };
            let _ = self.map.advise_range(advice, range.start, range.len());
        }
        #[cfg(not(unix))]
        let _ = (advice, range);
    }

    /// Gives the memory of a range back to the system; whoever reads it again gets the same bytes from the file.
    pub fn release(&self, range: Range<usize>) {
        if range.start < range.end && range.end <= self.map.len() {
            #[cfg(unix)]
            {
                let advice = memmap2::UncheckedAdvice::DontNeed;
                let (start, length) = (range.start, range.len());
                // SAFETY: the mapping is the file's and never written to, so the same bytes come back when they are read.
                let released = unsafe { self.map.unchecked_advise_range(advice, start, length) };
                // Only the use of memory depends on it.
                let _ = released;
            }
        }
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.map
    }
}

/// Remembers a truncated file whose mapping is dropped.
fn remember(path: &Path, offset: u64) {
    let path = path.to_owned();
    add(&mut dropped(), Truncation { path, offset });
}
