//! The index of the files: positions of chunks, and missing parts.

use super::{Stream, Trace};
use crate::extents::StreamExtents;
use crate::mapped::Mapped;
use crate::switches::SwitchIndex;
use dioptra_tracelayout::chunk::{Chunk, ChunkError, HEADER_SIZE, MAGIC};
use dioptra_tracelayout::directory::{EventPlace, FUNCTION_ENTRY_SIZE, FUNCTIONS, RECORDS};
use dioptra_tracelayout::{ChunkHeader, FunctionEntry};
use std::collections::BTreeMap;

impl Trace {
    /// Finds the chunks in one pass over their headers. Behind bytes that are no chunk it searches for the next one.
    pub(super) fn index_chunks(&mut self, streams: &mut BTreeMap<u32, Stream>) {
        let Some(map) = self.records.take() else {
            return;
        };
        let bytes = map.bytes();
        let mut offset = 0;
        while offset < bytes.len() {
            let rest = &bytes[offset..];
            map.done_with(offset);
            match parse(rest) {
                Ok(chunk) => {
                    self.index_chunk(&chunk.header, offset as u64, rest.len() as u64, streams);
                    let size = chunk.header.size as usize;
                    if size > rest.len() {
                        let what =
                            format!("a chunk of {size} bytes is cut off after {}", rest.len());
                        self.damaged(RECORDS, offset as u64, what);
                        break;
                    }
                    offset += size;
                }
                Err(error) => {
                    let next = next_chunk(rest);
                    let what = match next {
                        Some(next) => format!("{error}; {next} bytes were passed over"),
                        None => format!("{error}; the last {} bytes can't be read", rest.len()),
                    };
                    self.damaged(RECORDS, offset as u64, what);
                    let Some(next) = next else { break };
                    offset += next;
                }
            }
        }
        self.records = Some(map);
    }

    /// Reports files that have less than was written.
    pub(super) fn find_missing(&mut self) {
        let size = self.record_bytes();
        let written = self.info.ending.as_ref().map_or(0, |ending| ending.bytes);
        if size < written {
            let what = format!("the file ends, and had {written} bytes when it was written");
            self.damaged(RECORDS, size, what);
        }
        let count = self.functions.len() as u64;
        let named = self.named_functions();
        if named > count {
            let what = format!("the table ends after {count} functions; modules have {named}");
            self.damaged(FUNCTIONS, count * FUNCTION_ENTRY_SIZE as u64, what);
        }
    }

    /// Returns the number of function ids of all modules.
    fn named_functions(&self) -> u64 {
        let modules = self.modules.values();
        let ends = modules.map(|module| u64::from(module.first) + u64::from(module.count));
        ends.max().unwrap_or(0)
    }

    /// Finds the events of threads beside their calls, and makes function ids for those that are shown.
    pub(super) fn index_events(&mut self, switches: Option<Mapped>) {
        let start = |stream: &Stream| {
            let offset = *stream.chunks.first()? as usize;
            let header = parse(self.records.as_ref()?.bytes().get(offset..)?)
                .ok()?
                .header;
            Some(self.clock.cursor().monotonic(header.base << header.shift))
        };
        let streams = self.streams.iter();
        let streams = streams.filter_map(|stream| Some((start(stream)?, stream)));
        self.extents = StreamExtents::new(streams);
        self.switches = SwitchIndex::new(switches, &mut self.damage);
        if self.switches.is_empty() && self.tasks.is_empty() {
            return;
        }
        // Records may refer to functions behind the end of a damaged table, which events must not be taken for.
        let there = self.functions.len() as u64;
        let first = there.max(self.named_functions());
        // A journal that names far more functions than there can be records of is damaged itself.
        if first - there <= self.record_bytes()
            && let Ok(first) = u32::try_from(first)
        {
            self.functions.resize(first as usize, FunctionEntry::NONE);
            self.first_event = Some(first);
            let events = [
                EventPlace::Schedule,
                EventPlace::SchedulePreempted,
                EventPlace::ScheduleTracer,
                EventPlace::TaskNew,
                EventPlace::TaskExit,
            ];
            self.functions.extend(events.map(FunctionEntry::event));
            self.tasks.number(first, &mut self.functions);
        }
    }

    fn index_chunk(
        &mut self,
        header: &ChunkHeader,
        offset: u64,
        size: u64,
        streams: &mut BTreeMap<u32, Stream>,
    ) {
        let stream = streams.entry(header.stream).or_insert_with(|| Stream {
            stream: header.stream,
            pid: header.pid,
            tid: header.tid,
            parent: header.parent,
            ..Stream::default()
        });
        let expected = if stream.chunks.is_empty() {
            stream.first_sequence = header.sequence;
            header.sequence
        } else {
            stream
                .first_sequence
                .wrapping_add(stream.chunks.len() as u32)
        };
        let begin = header.base << header.shift;
        let is_whole = stream.begins.len() == stream.chunks.len()
            && header.sequence == expected
            && header.lost == 0
            && match stream.begins.last() {
                Some(last) => begin >= *last,
                None => header.depth == 0,
            };
        if is_whole {
            stream.begins.push(begin);
        }
        stream.lost = stream.lost.saturating_add(u64::from(header.lost));
        if header.waited > 0 {
            let wait = |ticks: u64| ticks << header.shift;
            let start = wait(header.base.saturating_sub(u64::from(header.waited)));
            stream.waits.push((start, wait(header.base)));
        }
        stream.bytes += size.min(u64::from(header.size));
        stream.chunks.push(offset);
        if header.sequence != expected {
            let what = format!(
                "chunk {} of stream {} follows chunk {} of it",
                header.sequence,
                header.stream,
                expected.wrapping_sub(1)
            );
            // Numbers count on from here, so that one gap is reported once.
            let chunks = stream.chunks.len() as u32 - 1;
            stream.first_sequence = header.sequence.wrapping_sub(chunks);
            self.damaged(RECORDS, offset, what);
        }
    }
}

/// Parses the chunk at the start of `bytes`. A chunk that is cut off is parsed as far as it goes.
pub(super) fn parse(bytes: &[u8]) -> Result<Chunk<'_>, ChunkError> {
    match Chunk::parse(bytes) {
        Err(ChunkError::CutOff) => Chunk::parse_cut_off(bytes),
        parsed => parsed,
    }
}

/// Returns the distance of the next header that makes sense.
fn next_chunk(bytes: &[u8]) -> Option<usize> {
    (8..bytes.len().saturating_sub(HEADER_SIZE - 1))
        .step_by(8)
        .find(|&at| {
            bytes[at..].starts_with(&MAGIC.to_le_bytes())
                && ChunkHeader::from_bytes(&bytes[at..]).is_ok()
        })
}
