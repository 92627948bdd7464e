//! The reader of the file of context switches.

use crate::extents::StreamExtents;
use crate::mapped::Mapped;
use crate::reader::{Stream, TraceDamage};
use dioptra_tracelayout::directory::SWITCHES;
use dioptra_tracelayout::switches::{BLOCK_HEADER_SIZE, BlockHeader, ContextSwitch, SWITCH_SIZE};
use std::collections::HashMap;

/// The positions of each thread's blocks.
#[derive(Debug, Default)]
pub(crate) struct SwitchIndex {
    file: Option<Mapped>,
    /// The blocks by process and thread: the offset of each block's switches, and their number.
    blocks: HashMap<(u32, u32), Vec<(u64, u32)>>,
}

impl SwitchIndex {
    /// Returns the index of a file.
    pub fn new(file: Option<Mapped>, damage: &mut Vec<TraceDamage>) -> SwitchIndex {
        let mut index = SwitchIndex::default();
        let Some(file) = file else {
            return index;
        };
        let bytes = file.bytes();
        let mut offset = 0;
        while offset < bytes.len() {
            let rest = &bytes[offset..];
            let Some(header) = BlockHeader::from_bytes(rest) else {
                damage.push(TraceDamage {
                    file: SWITCHES,
                    offset: offset as u64,
                    what: format!(
                        "no block of context switches; the last {} bytes can't be read",
                        rest.len()
                    ),
                });
                break;
            };
            let whole = (rest.len() - BLOCK_HEADER_SIZE) / SWITCH_SIZE;
            let count = whole.min(header.count as usize);
            if count < header.count as usize {
                damage.push(TraceDamage {
                    file: SWITCHES,
                    offset: offset as u64,
                    what: format!(
                        "a block of {} switches is cut off after {count}",
                        header.count
                    ),
                });
            }
            let blocks = index.blocks.entry((header.pid, header.tid)).or_default();
            blocks.push(((offset + BLOCK_HEADER_SIZE) as u64, count as u32));
            file.done_with(offset);
            offset = offset.saturating_add(header.block_size());
        }
        index.file = Some(file);
        index
    }

    /// Returns the number of switches.
    pub fn count(&self) -> u64 {
        let blocks = self.blocks.values().flatten();
        blocks.map(|(_, count)| u64::from(*count)).sum()
    }

    /// Returns the first byte that is missing, if the file was truncated since it was opened.
    pub fn truncated_at(&self) -> Option<u64> {
        self.file.as_ref()?.truncated_at()
    }

    /// Returns true if there are no switches.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Returns the switches of a stream's thread while it belonged to that stream.
    pub fn of<'t>(&'t self, stream: &Stream, extents: &StreamExtents) -> ThreadSwitches<'t> {
        let thread = (stream.pid, stream.tid);
        let (from, until) = extents.of(stream);
        ThreadSwitches {
            file: self.file.as_ref(),
            blocks: self.blocks.get(&thread).map_or(&[], Vec::as_slice),
            block: &[],
            from,
            until,
            last: 0,
        }
    }
}

/// The context switches of one stream's thread while it belonged to that stream, in the order of time: an iterator,
/// see [`Trace::switches`](crate::Trace::switches). Switches of unknown kinds are skipped.
#[derive(Clone, Debug)]
pub struct ThreadSwitches<'t> {
    file: Option<&'t Mapped>,
    blocks: &'t [(u64, u32)],
    block: &'t [u8],
    from: u64,
    until: u64,
    last: u64,
}

impl Iterator for ThreadSwitches<'_> {
    type Item = ContextSwitch;

    fn next(&mut self) -> Option<ContextSwitch> {
        loop {
            let Some((bytes, rest)) = self.block.split_first_chunk::<SWITCH_SIZE>() else {
                let ((offset, count), rest) = self.blocks.split_first()?;
                self.blocks = rest;
                let file = self.file?;
                let start = *offset as usize;
                file.done_with(start);
                let end = start + *count as usize * SWITCH_SIZE;
                self.block = file.bytes().get(start..end)?;
                continue;
            };
            self.block = rest;
            let Some(mut switch) = ContextSwitch::from_bytes(bytes) else {
                continue;
            };
            switch.time = switch.time.max(self.last);
            self.last = switch.time;
            if switch.time >= self.until {
                return None;
            }
            if switch.time >= self.from {
                return Some(switch);
            }
        }
    }
}
