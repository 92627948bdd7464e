//! One pass over a recording: records in the order of time across CPUs, in bounded memory.
//!
//! Each CPU's ring is in order, and the recorder writes the rings one after the other, with FINISHED_ROUND when it has
//! read each of them once. Whatever is written in round N + 2 is younger than all of round N: so at the end of a round,
//! what is not younger than the youngest of the round before can be put in order and passed on:
//!
//! ```text
//!   cpu 0  ──────┐    cpu 1  ────┐  FINISHED_ROUND   cpu 0 ─────┐  cpu 1 ────┐  FINISHED_ROUND
//!          t = 1 … 9         t = 2 … 8     │                t = 10 … 15  t = 9 … 14      │
//!                                          └ latest: 9                                   └ passes on all up to 9
//! ```
//!
//! Only a time and a place of 16 bytes are held for each record that waits.

mod live;
mod queue;
mod stream;
mod to_end;
mod unpack;

use crate::events::EventTable;
use crate::source::Source;
use crate::summary::ReadSummary;
use dioptra_perfrecords::ByteOrder;
use dioptra_perfrecords::record::RawRecord;
pub use live::{LiveRecords, Streamed};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;
pub(crate) use stream::KEPT;
use stream::Stream;

/// A record of a recording.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FileRecord<'a> {
    /// Where it stands in the file, in bytes; a compressed record's content has the place of that record.
    pub offset: u64,
    /// Header and body.
    pub raw: RawRecord<'a>,
    /// Data that follows the record in the file and belongs to it: of AUXTRACE and TRACING_DATA, else empty.
    pub trailing: &'a [u8],
    /// Index of its event among [`crate::PerfData::events`].
    pub event: Option<usize>,
    /// Nanoseconds of the event's clock. Records without a time keep their place in the file.
    pub time: Option<u64>,
}

/// One file's records to read.
pub(crate) struct Input<'d> {
    /// Name in damage messages, of a directory's members.
    pub name: Option<&'d str>,
    /// The file.
    pub source: &'d Source,
    /// Its bytes up to the end of its data.
    pub bytes: &'d [u8],
    /// Where the data starts.
    pub start: usize,
    /// At which level records were compressed, where that is known.
    pub level: Option<u32>,
}

/// Reads all inputs as one recording.
pub(crate) fn read<F>(
    inputs: &[Input<'_>],
    order: ByteOrder,
    table: &EventTable,
    summary: &mut ReadSummary,
    visit: &mut F,
) where
    F: FnMut(FileRecord<'_>) -> ControlFlow<()>,
{
    summary.samples.resize(table.events.len(), 0);
    let mut streams: Vec<_> = inputs
        .iter()
        .map(|input| Stream::new(input, order))
        .collect();
    // Whoever breaks has what they wanted: the summary tells what was read until then.
    let _: ControlFlow<()> = match &mut streams[..] {
        [stream] => read_one(stream, table, summary, visit),
        streams => merge(streams, table, summary, visit),
    };
    streams.iter().for_each(|stream| stream.check_size(summary));
    summary.salvaged |= summary.stopped_at.is_some();
}

fn read_one<F>(
    stream: &mut Stream<'_>,
    table: &EventTable,
    summary: &mut ReadSummary,
    visit: &mut F,
) -> ControlFlow<()>
where
    F: FnMut(FileRecord<'_>) -> ControlFlow<()>,
{
    while stream.fill(table, summary, visit)? {
        stream.emitter(table, summary).emit_until(u64::MAX, visit)?;
    }
    ControlFlow::Continue(())
}

/// Merges streams that are each in order.
fn merge<F>(
    streams: &mut [Stream<'_>],
    table: &EventTable,
    summary: &mut ReadSummary,
    visit: &mut F,
) -> ControlFlow<()>
where
    F: FnMut(FileRecord<'_>) -> ControlFlow<()>,
{
    let mut heads = BinaryHeap::new();
    for (index, stream) in streams.iter_mut().enumerate() {
        if stream.fill(table, summary, visit)? {
            heads.extend(stream.next_time().map(|time| Reverse((time, index))));
        }
    }
    while let Some(Reverse((_, index))) = heads.pop() {
        let limit = heads.peek().map_or(u64::MAX, |Reverse((time, _))| *time);
        let stream = &mut streams[index];
        // As long as no other stream has an older record, this one goes on.
        stream.emitter(table, summary).emit_until(limit, visit)?;
        let more = stream.next_time().is_some() || stream.fill(table, summary, visit)?;
        if more {
            heads.extend(stream.next_time().map(|time| Reverse((time, index))));
        }
    }
    ControlFlow::Continue(())
}
