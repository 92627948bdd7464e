//! The extents of streams in time: a thread whose process executes another program has one stream after the other.

use crate::reader::Stream;
use std::collections::HashMap;

/// The times at which the streams of each thread begin.
#[derive(Debug, Default)]
pub(crate) struct StreamExtents {
    /// The beginnings by process and thread, one process image after the other: `CLOCK_MONOTONIC` in nanoseconds, and
    /// the stream's number.
    streams: HashMap<(u32, u32), Vec<(u64, u32)>>,
}

impl StreamExtents {
    /// Returns the extents of streams, each given with the time at which it begins.
    pub fn new<'s>(streams: impl Iterator<Item = (u64, &'s Stream)>) -> StreamExtents {
        let mut extents = StreamExtents::default();
        for (start, stream) in streams {
            let known = extents.streams.entry((stream.pid, stream.tid)).or_default();
            known.push((start, stream.stream));
        }
        for streams in extents.streams.values_mut() {
            streams.sort_unstable();
        }
        extents
    }

    /// Returns the time from which on and before which a stream's thread belongs to the stream. The first stream of a
    /// thread also has the time before it, the last one the time after it. A stream without records has no time.
    pub fn of(&self, stream: &Stream) -> (u64, u64) {
        let known = self.streams.get(&(stream.pid, stream.tid));
        let streams = known.map_or(&[][..], Vec::as_slice);
        let place = streams
            .iter()
            .position(|(_, number)| *number == stream.stream);
        match place {
            Some(place) => (
                if place == 0 { 0 } else { streams[place].0 },
                streams.get(place + 1).map_or(u64::MAX, |next| next.0),
            ),
            None => (0, 0),
        }
    }
}
