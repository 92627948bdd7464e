//! Which stream is a thread's when: a thread whose process becomes another program has one after the other.

use crate::reader::Stream;
use std::collections::HashMap;

/// When the streams of each thread begin.
#[derive(Debug, Default)]
pub(crate) struct Extents {
    /// By process and thread, one process image after the other: `CLOCK_MONOTONIC` in nanoseconds, and the stream's number.
    streams: HashMap<(u32, u32), Vec<(u64, u32)>>,
}

impl Extents {
    /// Of streams, each with the time at which it begins.
    pub fn new<'s>(streams: impl Iterator<Item = (u64, &'s Stream)>) -> Extents {
        let mut extents = Extents::default();
        for (start, stream) in streams {
            let known = extents.streams.entry((stream.pid, stream.tid)).or_default();
            known.push((start, stream.stream));
        }
        for streams in extents.streams.values_mut() {
            streams.sort_unstable();
        }
        extents
    }

    /// From when on until before when its thread's time is a stream's: the first one has what was before, the last one what
    /// comes behind. Nothing of a stream without records.
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
