//! Names of code that was made while the program ran: `/tmp/perf-PID.map` and jitdump files.

mod dump;
mod map;
mod versions;

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use crate::address::{FileOffset, MemoryAddress};
use crate::demangle::demangle;
use crate::note::Note;
use crate::symbolizer::Symbolizer;
use versions::Versions;

/// The functions that one process's JIT compilers made.
#[derive(Debug, Default)]
pub struct JitSymbols {
    /// Functions of jitdump files, which record when code came and went.
    dumped: Versions,
    /// Functions of the map file, which lists only those that existed in the end.
    listed: Versions,
    notes: Vec<Note>,
    demangle: bool,
}

/// A function that a JIT compiler made: in memory, or in the jitdump file that holds a copy of its code.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct JitFunction<'a, A> {
    /// The name to show: demangled if the options ask for it.
    pub name: Cow<'a, str>,
    /// The place where it begins.
    pub start: A,
    /// Its length in bytes.
    pub size: u64,
}

/// Code of a JIT compiler that comes to lie somewhere, over what was there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct JitPlacement {
    /// When, in nanoseconds of CLOCK_MONOTONIC.
    pub time: u64,
    /// Its first address.
    pub start: MemoryAddress,
    /// Its length in bytes.
    pub size: u64,
    /// Where the same bytes lie in the jitdump file: this tells it apart from other code at the same addresses.
    pub offset: FileOffset,
}

impl Symbolizer {
    /// Reads one jitdump file: as [`Symbolizer::jit`], but without the process's map file.
    #[must_use]
    pub fn jit_dump(&self, path: &Path) -> JitSymbols {
        let mut symbols = JitSymbols {
            demangle: self.options.demangle,
            ..JitSymbols::default()
        };
        let note = dump::read(&self.here(path), &mut symbols.dumped);
        symbols.notes.extend(note);
        symbols.dumped.finish();
        symbols
    }

    /// Reads what the JIT compilers of a process left: its map file (`/tmp/perf-PID.map`) and the
    /// jitdump files given, which recordings name by a mapping (see [`is_jit_dump`]). Never fails: what
    /// went wrong is in [`JitSymbols::notes`].
    #[must_use]
    pub fn jit(&self, pid: u32, dumps: &[&Path]) -> JitSymbols {
        let mut symbols = JitSymbols {
            demangle: self.options.demangle,
            ..JitSymbols::default()
        };
        for path in dumps {
            let path = self.here(path);
            let note = dump::read(&path, &mut symbols.dumped);
            symbols.notes.extend(note);
        }
        let path = self.here(&PathBuf::from(format!("/tmp/perf-{pid}.map")));
        let note = map::read(&path, &mut symbols.listed);
        // Most processes have no JIT compiler; those with one may use a dump instead.
        let is_missing = matches!(note, Some(Note::NoJitMap { .. }));
        if !is_missing || dumps.is_empty() {
            symbols.notes.extend(note);
        }
        symbols.dumped.finish();
        symbols.listed.finish();
        symbols
    }
}

impl JitSymbols {
    /// The function that covered an address at a time, given in nanoseconds of CLOCK_MONOTONIC; without
    /// a time the last one that did.
    #[must_use]
    pub fn function(
        &self,
        address: MemoryAddress,
        time: Option<u64>,
    ) -> Option<JitFunction<'_, MemoryAddress>> {
        // The map file tells no times.
        let tables = [(&self.dumped, time), (&self.listed, None)];
        let found = tables
            .into_iter()
            .find_map(|(table, time)| Some((table, table.find(address.0, time)?)));
        let (table, version) = found?;
        let raw = table.name(version);
        Some(JitFunction {
            name: if self.demangle {
                demangle(raw)
            } else {
                Cow::Borrowed(raw)
            },
            start: MemoryAddress(version.start),
            size: version.end - version.start,
        })
    }

    /// The source file and line of an address at a time, where a jitdump file tells.
    #[must_use]
    pub fn line(&self, address: MemoryAddress, time: Option<u64>) -> Option<(&str, u32)> {
        let version = self.dumped.find(address.0, time)?;
        self.dumped.line(version, address.0)
    }

    /// Where the code of the jitdump files came to lie, in the order of time.
    #[must_use]
    pub fn placements(&self) -> Vec<JitPlacement> {
        let mut placements: Vec<JitPlacement> = self
            .dumped
            .iter()
            .map(|version| JitPlacement {
                time: version.from,
                start: MemoryAddress(version.start),
                size: version.end - version.start,
                offset: FileOffset(version.code),
            })
            .collect();
        placements.sort_by_key(|placement| placement.time);
        placements
    }

    /// The function whose code holds a place in the jitdump file.
    #[must_use]
    pub fn function_in_file(&self, offset: FileOffset) -> Option<JitFunction<'_, FileOffset>> {
        let version = self.dumped.find_code(offset.0)?;
        let raw = self.dumped.name(version);
        Some(JitFunction {
            name: if self.demangle {
                demangle(raw)
            } else {
                Cow::Borrowed(raw)
            },
            start: FileOffset(version.code),
            size: version.end - version.start,
        })
    }

    /// The source file and line of a place in the jitdump file.
    #[must_use]
    pub fn line_in_file(&self, offset: FileOffset) -> Option<(&str, u32)> {
        let version = self.dumped.find_code(offset.0)?;
        self.dumped
            .line(version, version.start + (offset.0 - version.code))
    }

    /// Returns notes: files that are missing or damaged.
    #[must_use]
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Returns the number of functions over time.
    #[must_use]
    pub fn len(&self) -> usize {
        self.dumped.len() + self.listed.len()
    }

    /// Whether no function is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Whether a mapping's name is that of a jitdump file (`…/jit-PID.dump`): a JIT compiler maps the file
/// to tell recorders where it lies.
///
/// ```
/// use dioptra_symbols::is_jit_dump;
/// assert!(is_jit_dump("/root/.debug/jit/java-jit-20261122/jit-4711.dump".as_ref()));
/// assert!(!is_jit_dump("/usr/lib/libjit.so".as_ref()));
/// ```
#[must_use]
pub fn is_jit_dump(name: &Path) -> bool {
    let pid = name
        .file_name()
        .and_then(|name| name.to_str())
        .and_then(|name| name.strip_prefix("jit-")?.strip_suffix(".dump"));
    pid.is_some_and(|pid| !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit()))
}
