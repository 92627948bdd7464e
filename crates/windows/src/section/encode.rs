//! Writing the section, all at once or as the recording goes on.

use super::{Burst, EventTotal, MAGIC, VERSION, WindowGroup, WindowLoss, changed, part};
use dioptra_perfevents::windows::{Length, Schedule};

/// Bytes of a block of bursts after which another one begins: small enough for a pipe's records.
const BLOCK: usize = 16 << 10;

/// Writes the section piece by piece, for recorders: what [`SectionEncoder::take`] returned, one after the other, is a
/// section.
///
/// ```
/// # use dioptra_windows::section::{Burst, SectionEncoder, WindowsSection};
/// let mut encoder = SectionEncoder::new();
/// encoder.source("refresh");
/// encoder.burst(&Burst { armed: 5_000_000, period: 300, expected: 4, seen: 4, ..Burst::default() });
/// let mut file = encoder.take();
/// encoder.burst(&Burst { armed: 6_000_000, period: 310, expected: 4, seen: 4, ..Burst::default() });
/// file.extend(encoder.take());
/// let mut windows = WindowsSection::default();
/// windows.decode(&file)?;
/// assert_eq!(windows.bursts.len(), 2);
/// # Ok::<(), dioptra_windows::section::SectionError>(())
/// ```
#[derive(Clone, Debug)]
pub struct SectionEncoder {
    /// The bytes that were not taken yet.
    bytes: Vec<u8>,
    /// The bursts of the block that is open.
    block: Vec<u8>,
    last: Burst,
}

impl Default for SectionEncoder {
    fn default() -> Self {
        SectionEncoder::new()
    }
}

impl SectionEncoder {
    /// Starts a section.
    pub fn new() -> Self {
        let mut bytes = MAGIC.to_vec();
        bytes.push(VERSION);
        SectionEncoder {
            bytes,
            block: Vec::new(),
            last: Burst::default(),
        }
    }

    /// Adds the name of the windows' source.
    pub fn source(&mut self, source: &str) {
        self.part(part::SOURCE, source.as_bytes());
    }

    /// Adds a finding of the probe.
    pub fn finding(&mut self, finding: &str) {
        self.part(part::FINDING, finding.as_bytes());
    }

    /// Adds the reason why a better source does not make the windows.
    pub fn instead(&mut self, why: &str) {
        self.part(part::INSTEAD, why.as_bytes());
    }

    /// Adds the schedule, and the number of windows at the start of each burst that the analysis leaves out.
    pub fn schedule(&mut self, schedule: &Schedule, warm_up: u32) {
        let mut content = Vec::new();
        for length in [schedule.long, schedule.short, schedule.jitter] {
            let (kind, value) = match length {
                Length::Time(nanoseconds) => (0, nanoseconds),
                Length::Count(count) => (1, count),
            };
            put(&mut content, kind);
            put(&mut content, value);
        }
        put(&mut content, schedule.batch.into());
        put(&mut content, warm_up.into());
        self.part(part::SCHEDULE, &content);
    }

    /// Adds a group. Groups are numbered from 0 in the order of these calls.
    pub fn group(&mut self, group: &WindowGroup) {
        let mut content = Vec::new();
        put(&mut content, group.leader.into());
        put(&mut content, group.drop_last.into());
        put(&mut content, group.members.len() as u64);
        for member in &group.members {
            put(&mut content, (*member).into());
        }
        self.part(part::GROUP, &content);
    }

    /// Adds the count of an event over the whole run.
    pub fn total(&mut self, total: &EventTotal) {
        let mut content = Vec::new();
        put(&mut content, total.value);
        put(&mut content, total.enabled);
        put(&mut content, total.running);
        content.extend_from_slice(total.event.as_bytes());
        self.part(part::TOTAL, &content);
    }

    /// Adds the times at which these counts began and ended, in nanoseconds of the recording's clock.
    pub fn span(&mut self, began: u64, ended: u64) {
        let mut content = Vec::new();
        put(&mut content, began);
        put(&mut content, ended);
        self.part(part::SPAN, &content);
    }

    /// Adds a reason why windows were not made.
    pub fn loss(&mut self, loss: &WindowLoss) {
        let mut content = Vec::new();
        put(&mut content, loss.count);
        content.extend_from_slice(loss.what.as_bytes());
        self.part(part::LOSS, &content);
    }

    /// Adds a burst.
    pub fn burst(&mut self, burst: &Burst) {
        let last = std::mem::replace(&mut self.last, *burst);
        let mut fields = 0;
        for (field, differs) in [
            (changed::GROUP, burst.group != last.group),
            (changed::CPU, burst.cpu != last.cpu),
            (changed::TID, burst.tid != last.tid),
            (changed::EXPECTED, burst.expected != last.expected),
            (changed::SEEN, burst.seen != burst.expected),
        ] {
            if differs {
                fields |= field;
            }
        }
        let out = &mut self.block;
        put(out, burst.outcome.bits().into());
        put(out, fields);
        put_difference(out, burst.armed, last.armed);
        put_difference(out, burst.ended, burst.armed);
        put_difference(out, burst.period, last.period);
        if fields & changed::GROUP != 0 {
            put(out, burst.group.into());
        }
        if fields & changed::CPU != 0 {
            put_optional(out, burst.cpu);
        }
        if fields & changed::TID != 0 {
            put_optional(out, burst.tid);
        }
        if fields & changed::EXPECTED != 0 {
            put(out, burst.expected.into());
        }
        if fields & changed::SEEN != 0 {
            put(out, burst.seen.into());
        }
        if self.block.len() >= BLOCK {
            self.close_block();
        }
    }

    /// Returns the bytes that were added since the last call, to be appended to those of earlier calls.
    pub fn take(&mut self) -> Vec<u8> {
        self.close_block();
        std::mem::take(&mut self.bytes)
    }

    /// Returns the number of bytes that wait to be taken.
    pub fn waiting(&self) -> usize {
        self.bytes.len() + self.block.len()
    }

    fn close_block(&mut self) {
        let block = std::mem::take(&mut self.block);
        if !block.is_empty() {
            self.part(part::BURSTS, &block);
        }
        self.block = block;
        self.block.clear();
        self.last = Burst::default();
    }

    fn part(&mut self, tag: u64, content: &[u8]) {
        put(&mut self.bytes, tag);
        put(&mut self.bytes, content.len() as u64);
        self.bytes.extend_from_slice(content);
    }
}

/// LEB128.
fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A difference that may be negative: small ones of either sign are short.
fn put_difference(out: &mut Vec<u8>, value: u64, from: u64) {
    let difference = value.wrapping_sub(from).cast_signed();
    put(
        out,
        ((difference << 1) ^ (difference >> 63)).cast_unsigned(),
    );
}

/// 0 is none.
fn put_optional(out: &mut Vec<u8>, value: Option<u32>) {
    put(out, value.map_or(0, |value| u64::from(value) + 1));
}
