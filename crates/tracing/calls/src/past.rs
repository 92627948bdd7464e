//! The times at which the calls began that are open where a walk begins in the middle of a stream.
//!
//! A chunk lists the functions of the calls that are open where it begins, not their times. The times are searched
//! from there backwards, a chunk at a time, and only on demand.

use crate::StreamWalk;
use dioptra_tracedata::{Stream, Trace};
use dioptra_tracelayout::chunk::Chunk;
use dioptra_tracelayout::{Decoder, Record};

/// A stream before one of its chunks.
pub(crate) struct Past<'t> {
    trace: &'t Trace,
    stream: &'t Stream,
    /// The number of the chunk where the walk begins.
    first: usize,
    /// The chunks from this one on have been searched.
    looked: usize,
    /// The times at which the open calls began, `CLOCK_MONOTONIC` in nanoseconds; known from the depth `known` on.
    times: Vec<u64>,
    known: usize,
}

/// The times at which the calls began that a chunk leaves open, from a depth on.
struct Left {
    depth: usize,
    times: Vec<u64>,
}

impl<'t> Past<'t> {
    /// Returns the stream before its chunk `first`, where `depth` calls are open.
    pub fn new(trace: &'t Trace, stream: &'t Stream, first: usize, depth: usize) -> Past<'t> {
        Past {
            trace,
            stream,
            first,
            looked: first,
            times: vec![0; depth],
            known: depth,
        }
    }

    /// Returns the time at which the call at `depth` began; `None` if the records do not have it.
    pub fn entered(&mut self, depth: usize) -> Option<u64> {
        while depth < self.known {
            let left = self.looked.checked_sub(1).and_then(|before| {
                self.looked = before;
                let chunk = self.trace.chunk(self.stream, before)?;
                self.left_open(chunk)
            });
            // A chunk before this one leaves as many calls open as this one begins with.
            let Some(left) = left.filter(|left| left.depth + left.times.len() >= self.known) else {
                return self.walk_through(depth);
            };
            if left.depth < self.known {
                let known = self.known - left.depth;
                self.times[left.depth..self.known].copy_from_slice(&left.times[..known]);
                self.known = left.depth;
            }
        }
        self.times.get(depth).copied()
    }

    /// Searches a chunk; `None` if it holds more than calls that begin and end.
    fn left_open(&self, chunk: Chunk<'t>) -> Option<Left> {
        let mut left = Left {
            depth: chunk.header.depth as usize,
            times: Vec::new(),
        };
        let mut ticks: Vec<u64> = Vec::new();
        let leave = |ticks: &mut Vec<u64>, left: &mut Left| match ticks.pop() {
            Some(_) => Some(()),
            None => {
                left.depth = left.depth.checked_sub(1)?;
                Some(())
            }
        };
        let mut decoder = Decoder::new(chunk.records, chunk.header.base);
        loop {
            while let Some(plain) = decoder.plain() {
                match plain.function {
                    0 => leave(&mut ticks, &mut left)?,
                    _ => ticks.push(plain.time),
                }
                decoder.accept(plain);
            }
            match decoder.next() {
                Some(Ok(Record::Entry { time, .. })) => ticks.push(time),
                Some(Ok(Record::Exit { .. } | Record::Discarded { .. })) => {
                    leave(&mut ticks, &mut left)?;
                }
                Some(Ok(Record::Unwound { calls, .. })) => {
                    for _ in 0..calls {
                        leave(&mut ticks, &mut left)?;
                    }
                }
                Some(Ok(Record::Other { .. })) => {}
                Some(_) => return None,
                None => break,
            }
        }
        let mut clock = self.trace.clock().cursor();
        let shift = chunk.header.shift;
        let times = ticks.into_iter().map(|tick| clock.monotonic(tick << shift));
        left.times = times.collect();
        Some(left)
    }

    /// Walks through all records before, the slow path that always succeeds.
    #[cold]
    fn walk_through(&mut self, depth: usize) -> Option<u64> {
        let mut walk = StreamWalk::before(self.trace, self.stream, self.first);
        walk.by_ref().for_each(drop);
        self.known = 0;
        self.times.clear();
        self.times
            .extend(walk.open().map(|call| call.entered.unwrap_or(0)));
        self.times.get(depth).copied()
    }
}

/// The number of bytes of records before a range that are searched for other call stacks.
const LOOK: u64 = 1 << 28;

/// Returns true if the records of a stream up to a time are all of one call stack, so that the header of chunk
/// `first` lists all calls that are open there.
///
/// If the part before that chunk is large, only some of it is searched; in the rest the beginning of each chunk shows
/// its call stack.
pub(crate) fn is_one_stack(trace: &Trace, stream: &Stream, first: usize, until: u64) -> bool {
    let bytes = stream.bytes / stream.chunk_count().max(1) as u64 * first as u64;
    let step = (bytes / LOOK + 1) as usize;
    let mut clock = trace.clock().cursor();
    for (number, chunk) in trace.chunks_from(stream, 0).enumerate() {
        let header = chunk.header;
        if number > first && clock.monotonic(header.base << header.shift) > until {
            break;
        }
        let mut decoder = Decoder::new(chunk.records, header.base);
        if number < first && !number.is_multiple_of(step) {
            if matches!(decoder.next(), Some(Ok(Record::Stack { .. }))) {
                return false;
            }
            continue;
        }
        loop {
            while let Some(plain) = decoder.plain() {
                decoder.accept(plain);
            }
            match decoder.next() {
                Some(Ok(Record::Stack { .. })) => return false,
                // Damage before the range does not matter.
                Some(Err(_)) if number >= first => return false,
                Some(Ok(_)) => {}
                Some(Err(_)) | None => break,
            }
        }
    }
    true
}
