//! The encoder: records in, bytes out.

use super::{
    ARGUMENTS, DISCARDED, ENTRY, ESCAPE, ESCAPE_HEAD, LOST, MAX_DELTA, RETURNED, STACK, TIME,
    UNWOUND, UnwindCause,
};

/// A writer of records into a zeroed buffer. It stores bytes in an order that keeps written records whole if the
/// thread is killed midway.
///
/// Each method writes one record, with a time escape before it where that is needed. If the buffer has no room, it
/// writes nothing and returns `None`.
#[derive(Debug)]
pub struct Encoder<'a> {
    buffer: &'a mut [u8],
    used: usize,
    time: u64,
}

impl<'a> Encoder<'a> {
    /// Returns an encoder for `buffer`, whose first `used` bytes hold records already, the last of them at the tick
    /// `time`.
    pub fn new(buffer: &'a mut [u8], used: usize, time: u64) -> Encoder<'a> {
        Encoder { buffer, used, time }
    }

    /// Returns the number of bytes of the buffer that hold records.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Returns the tick of the last record.
    pub fn time(&self) -> u64 {
        self.time
    }

    /// Writes an entry of the function with this id, which is not 0.
    pub fn entry(&mut self, time: u64, function: u32) -> Option<()> {
        debug_assert_ne!(function, 0);
        match u16::try_from(function) {
            Ok(id) => {
                let delta = self.delta(time, 4)?;
                let record = u32::from(delta) << 1 | u32::from(id) << 16;
                self.put(&record.to_le_bytes());
            }
            Err(_) => {
                let delta = self.delta(time, 10)?;
                let [a, b, c, d] = function.to_le_bytes();
                let [d0, d1] = delta.to_le_bytes();
                self.put_escape(ENTRY, &[d0, d1, a, b, c, d]);
            }
        }
        Some(())
    }

    /// Writes that the innermost open call returns.
    pub fn exit(&mut self, time: u64) -> Option<()> {
        let delta = self.delta(time, 2)?;
        self.put(&(delta << 1 | 1).to_le_bytes());
        Some(())
    }

    /// Writes that the innermost `calls` calls end without returning.
    pub fn unwound(&mut self, time: u64, cause: UnwindCause, calls: u32) -> Option<()> {
        let delta = self.delta(time, 12)?;
        let [d0, d1] = delta.to_le_bytes();
        let [c0, c1] = (cause as u16).to_le_bytes();
        let [a, b, c, d] = calls.to_le_bytes();
        self.put_escape(UNWOUND, &[d0, d1, c0, c1, a, b, c, d]);
        Some(())
    }

    /// Writes that `records` records are missing here.
    pub fn lost(&mut self, records: u64) -> Option<()> {
        self.room(12)?;
        self.put_escape(LOST, &records.to_le_bytes());
        Some(())
    }

    /// Writes that the thread goes on with another call stack.
    pub fn stack(&mut self, time: u64, stack: u32) -> Option<()> {
        let delta = self.delta(time, 10)?;
        let [d0, d1] = delta.to_le_bytes();
        let [a, b, c, d] = stack.to_le_bytes();
        self.put_escape(STACK, &[d0, d1, a, b, c, d]);
        Some(())
    }

    /// Writes that the innermost open call returns and that neither the call nor the calls below it are shown.
    pub fn discarded(&mut self, time: u64) -> Option<()> {
        let delta = self.delta(time, 6)?;
        self.put_escape(DISCARDED, &[]);
        self.put(&(delta << 1 | 1).to_le_bytes());
        Some(())
    }

    /// Writes the [values](crate::values) of the arguments of the innermost open call, at most
    /// [`MOST_BYTES`](crate::values::MOST_BYTES) and an even number of bytes.
    pub fn arguments(&mut self, values: &[u8]) -> Option<()> {
        self.room(ESCAPE_HEAD + values.len())?;
        self.put_escape(ARGUMENTS, values);
        Some(())
    }

    /// Writes the [values](crate::values) with which the innermost open call returns. The exit is the next record.
    pub fn returned(&mut self, values: &[u8]) -> Option<()> {
        self.room(ESCAPE_HEAD + values.len())?;
        self.put_escape(RETURNED, values);
        Some(())
    }

    fn room(&self, bytes: usize) -> Option<()> {
        (self.buffer.len().checked_sub(self.used)? >= bytes).then_some(())
    }

    /// Returns the delta to `time` for a record of `bytes` bytes, after a time escape if the delta is too large. Time
    /// does not go back: a clock that was read before the last record counts as read with it.
    fn delta(&mut self, time: u64, bytes: usize) -> Option<u16> {
        let time = time.max(self.time);
        let delta = time - self.time;
        let short = delta <= MAX_DELTA;
        self.room(if short { bytes } else { bytes + 12 })?;
        if !short {
            self.put_escape(TIME, &time.to_le_bytes());
        }
        self.time = time;
        Some(if short { delta as u16 } else { 0 })
    }

    fn put(&mut self, bytes: &[u8]) {
        if let Some(place) = self.buffer.get_mut(self.used..self.used + bytes.len()) {
            place.copy_from_slice(bytes);
            self.used += bytes.len();
        }
    }

    /// Writes the payload first: without its first word the escape does not exist for readers.
    fn put_escape(&mut self, kind: u8, payload: &[u8]) {
        let start = self.used + 4;
        if let Some(place) = self.buffer.get_mut(start..start + payload.len()) {
            place.copy_from_slice(payload);
            let [e0, e1] = ESCAPE.to_le_bytes();
            self.put(&[e0, e1, kind, (payload.len() / 2) as u8]);
            self.used = start + payload.len();
        }
    }
}
