//! jitdump files: a header, then records of code that was loaded or moved, and of its lines.
//!
//! Source of the format: the jitdump specification that comes with perf.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::Path;

use super::versions::{Line, Versions};
use crate::build_id::open_regular;
use crate::cause::FileDamage;
use crate::note::Note;

/// "JiTD" as a number.
const MAGIC: u32 = 0x4a69_5444;
/// Header flag: times are of a CPU's counter, not of CLOCK_MONOTONIC.
const CPU_TIME: u64 = 1;
const CODE_LOAD: u32 = 0;
const CODE_MOVE: u32 = 1;
const DEBUG_INFO: u32 = 2;
/// Longer names are cut.
const LONGEST_NAME: u64 = 64 * 1024;

/// Reads a dump, as far as it goes.
pub(super) fn read(path: &Path, versions: &mut Versions) -> Option<Note> {
    let no_file = |error: std::io::Error| Note::NoFile {
        path: path.to_path_buf(),
        reason: error.into(),
    };
    let file = match open_regular(path) {
        Ok(file) => file,
        Err(error) => return Some(no_file(error)),
    };
    let size = file.metadata().map_or(0, |data| data.len());
    let mut dump = Dump {
        file: BufReader::new(file),
        at: 0,
        size,
        is_swapped: false,
        pending: None,
    };
    let what = match dump.read(versions) {
        Ok(damage) => damage?,
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
            FileDamage::JitDumpEnd { at: dump.at }
        }
        Err(error) => return Some(no_file(error)),
    };
    Some(Note::Damaged {
        path: path.to_path_buf(),
        what,
    })
}

struct Dump {
    file: BufReader<File>,
    /// Where the current record starts.
    at: u64,
    size: u64,
    /// Written on a machine of the other byte order.
    is_swapped: bool,
    /// Lines of code that is about to be loaded, and its address.
    pending: Option<(u64, Vec<Line>)>,
}

impl Dump {
    /// Reads all records, up to one that is broken.
    fn read(&mut self, versions: &mut Versions) -> std::io::Result<Option<FileDamage>> {
        let magic = self.word32()?;
        self.is_swapped = magic == MAGIC.swap_bytes();
        if magic != MAGIC && !self.is_swapped {
            return Ok(Some(FileDamage::NotJitDump));
        }
        let version = self.word32()?;
        let header = u64::from(self.word32()?);
        if version != 1 || header < 40 {
            return Ok(Some(FileDamage::JitDumpVersion { version, header }));
        }
        // Machine, padding, process.
        let _: [u8; 12] = self.bytes()?;
        let _time = self.word64()?;
        let is_cpu_time = self.word64()? & CPU_TIME != 0;
        self.skip(header - 40)?;
        self.at = header;
        while self.at < self.size {
            let (kind, size, time) = (self.word32()?, self.word32()?, self.word64()?);
            let size = u64::from(size);
            if size < 16 {
                return Ok(Some(FileDamage::JitRecordSize { at: self.at, size }));
            }
            if size > self.size - self.at {
                return Ok(Some(FileDamage::JitDumpEnd { at: self.at }));
            }
            // Times that can't be compared with samples only give an order, which is that of the file.
            let time = if is_cpu_time { 0 } else { time };
            let left = match kind {
                CODE_LOAD if size >= 56 => self.load(size - 16, time, versions)?,
                CODE_MOVE if size >= 64 => self.relocate(size - 16, time, versions)?,
                DEBUG_INFO if size >= 32 => self.lines(size - 16, versions)?,
                _ => size - 16,
            };
            self.skip(left)?;
            self.at += size;
        }
        Ok(is_cpu_time.then_some(FileDamage::JitDumpTimes))
    }

    /// Each of these gives the bytes of the record that it left.
    fn load(&mut self, size: u64, time: u64, versions: &mut Versions) -> std::io::Result<u64> {
        // Process, thread, and the address it was written at.
        let _: [u8; 16] = self.bytes()?;
        let (start, length) = (self.word64()?, self.word64()?);
        let _index = self.word64()?;
        let (name, left) = self.text(size - 40)?;
        // The code is the record's rest.
        let code = self.at + 16 + (size - left);
        versions.load(start, length.min(left), code, time, &name);
        if let Some((_, lines)) = self.pending.take_if(|(address, _)| *address == start) {
            versions.add_lines(start, lines);
        }
        Ok(left)
    }

    fn relocate(&mut self, size: u64, time: u64, versions: &mut Versions) -> std::io::Result<u64> {
        let _: [u8; 16] = self.bytes()?;
        let (from, to) = (self.word64()?, self.word64()?);
        let length = self.word64()?;
        let _index = self.word64()?;
        versions.relocate(from, to, length, time);
        Ok(size - 48)
    }

    fn lines(&mut self, size: u64, versions: &mut Versions) -> std::io::Result<u64> {
        let (start, count) = (self.word64()?, self.word64()?);
        let mut left = size - 16;
        let mut lines = Vec::new();
        let mut file = None;
        for _ in 0..count {
            if left < 17 {
                break;
            }
            let (address, line) = (self.word64()?, self.word32()?);
            let _discriminator = self.word32()?;
            let (name, rest) = self.text(left - 16)?;
            left = rest;
            // A name of the byte 0xff stands for the one before.
            if name != "\u{fffd}" || file.is_none() {
                file = Some(versions.file(&name));
            }
            lines.extend(file.map(|file| Line {
                offset: address.wrapping_sub(start),
                line,
                file,
            }));
        }
        lines.sort_by_key(|line| line.offset);
        self.pending = Some((start, lines));
        Ok(left)
    }

    /// A text that ends with a zero byte within `room` bytes, and how many bytes are left behind it.
    fn text(&mut self, room: u64) -> std::io::Result<(String, u64)> {
        use std::io::BufRead;
        let mut bytes = Vec::new();
        let most = room.min(LONGEST_NAME);
        let read = (&mut self.file).take(most).read_until(0, &mut bytes)?;
        if bytes.last() == Some(&0) {
            bytes.pop();
        }
        Ok((
            String::from_utf8_lossy(&bytes).into_owned(),
            room - read as u64,
        ))
    }

    fn skip(&mut self, count: u64) -> std::io::Result<()> {
        // The count came from 32 bits.
        self.file.seek_relative(i64::try_from(count).unwrap_or(0))
    }

    fn bytes<const N: usize>(&mut self) -> std::io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.file.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn word32(&mut self) -> std::io::Result<u32> {
        let word = u32::from_ne_bytes(self.bytes()?);
        Ok(if self.is_swapped {
            word.swap_bytes()
        } else {
            word
        })
    }

    fn word64(&mut self) -> std::io::Result<u64> {
        let word = u64::from_ne_bytes(self.bytes()?);
        Ok(if self.is_swapped {
            word.swap_bytes()
        } else {
            word
        })
    }
}
