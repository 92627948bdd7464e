//! Packets of Perfetto's trace, and those that describe clocks, machine, processes and threads.

use crate::protobuf::Message;
use crate::tasks::TaskNumbers;
use std::io::{self, Write};

/// The fields of `TracePacket`.
pub(crate) mod packet {
    pub const CLOCK_SNAPSHOT: u64 = 6;
    pub const TIMESTAMP: u64 = 8;
    pub const SEQUENCE: u64 = 10;
    pub const TRACK_EVENT: u64 = 11;
    pub const INTERNED_DATA: u64 = 12;
    pub const SEQUENCE_FLAGS: u64 = 13;
    pub const SYSTEM: u64 = 45;
    pub const CLOCK_ID: u64 = 58;
    pub const DEFAULTS: u64 = 59;
    pub const TRACK: u64 = 60;
    pub const PERF_SAMPLE: u64 = 66;
    pub const IS_FIRST: u64 = 87;
}

/// The sequence of packets that describe processes and threads. Events follow it.
const FIRST_SEQUENCE: u32 = 1;
/// `SEQ_INCREMENTAL_STATE_CLEARED`: what the sequence described before holds no longer.
const CLEARED: u64 = 1;
/// `SEQ_NEEDS_INCREMENTAL_STATE`: the packet refers to descriptions in earlier packets.
const NEEDS_STATE: u64 = 2;

/// Returns the number of the sequence of an exported event.
pub(crate) fn sequence_of(event: usize) -> u32 {
    let event = u32::try_from(event).unwrap_or(u32::MAX);
    event.saturating_add(FIRST_SEQUENCE + 1)
}

/// A clock that the format has a name for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    Realtime,
    Monotonic,
    MonotonicRaw,
    Boottime,
}

impl Clock {
    /// Returns the clock with a number of `clock_gettime(2)`.
    pub(crate) fn of(clockid: i32) -> Option<Clock> {
        match clockid {
            0 => Some(Clock::Realtime),
            1 => Some(Clock::Monotonic),
            4 => Some(Clock::MonotonicRaw),
            7 => Some(Clock::Boottime),
            _ => None,
        }
    }

    /// Returns the clock's number in `BuiltinClock`.
    pub(crate) fn id(self) -> u64 {
        match self {
            Clock::Realtime => 1,
            Clock::Monotonic => 3,
            Clock::MonotonicRaw => 5,
            Clock::Boottime => 6,
        }
    }

    /// Returns the clock's number in `PerfEvents.PerfClock`.
    pub(crate) fn perf_clock(self) -> u64 {
        match self {
            Clock::Realtime => 1,
            Clock::Monotonic => 2,
            Clock::MonotonicRaw => 3,
            Clock::Boottime => 4,
        }
    }
}

/// Returns the id of a process's track. Traces of one machine give a process the same id.
fn process_track(pid: u32) -> u64 {
    1 << 63 | u64::from(pid)
}

/// Returns the id of a thread's track, which differs from those of processes.
pub(crate) fn thread_track(numbers: TaskNumbers) -> u64 {
    // Pids have less than 30 bits.
    1 << 62 | u64::from(numbers.pid & 0x3fff_ffff) << 32 | u64::from(numbers.tid)
}

/// The packets of a trace, written one after the other.
pub(crate) struct Packets<'o> {
    out: &'o mut dyn Write,
    trace: Message,
    packet: Message,
    field: Message,
    inner: Message,
}

impl<'o> Packets<'o> {
    pub(crate) fn new(out: &'o mut dyn Write) -> Self {
        Packets {
            out,
            trace: Message::default(),
            packet: Message::default(),
            field: Message::default(),
            inner: Message::default(),
        }
    }

    fn write(&mut self, packet: &Message) -> io::Result<()> {
        self.trace.clear();
        self.trace.message(1, packet);
        self.out.write_all(self.trace.bytes())
    }

    /// Writes the first packet of a sequence.
    pub(crate) fn start(&mut self, sequence: u32, packet: &mut Message) -> io::Result<()> {
        packet.number(packet::SEQUENCE, u64::from(sequence));
        packet.number(packet::SEQUENCE_FLAGS, CLEARED);
        packet.flag(packet::IS_FIRST, true);
        self.write(packet)
    }

    /// Writes a packet that refers to descriptions of its sequence.
    pub(crate) fn go_on(&mut self, sequence: u32, packet: &mut Message) -> io::Result<()> {
        packet.number(packet::SEQUENCE, u64::from(sequence));
        packet.number(packet::SEQUENCE_FLAGS, NEEDS_STATE);
        self.write(packet)
    }

    /// Writes `field` as the only field of a packet.
    fn describe(&mut self, number: u64) -> io::Result<()> {
        let mut packet = std::mem::take(&mut self.packet);
        packet.clear();
        packet.message(number, &self.field);
        packet.number(packet::SEQUENCE, u64::from(FIRST_SEQUENCE));
        let written = self.write(&packet);
        self.packet = packet;
        written
    }

    /// Writes which clock the trace's times are of, with its time and the wall clock's at one moment.
    pub(crate) fn clocks(&mut self, clock: Clock, now: u64, wall: Option<u64>) -> io::Result<()> {
        self.field.clear();
        let wall = wall.filter(|_| clock != Clock::Realtime);
        let times = [Some((clock, now)), wall.map(|wall| (Clock::Realtime, wall))];
        for (of, time) in times.into_iter().flatten() {
            self.inner.clear();
            self.inner.stated(1, of.id());
            self.inner.stated(2, time);
            self.field.message(1, &self.inner);
        }
        self.field.number(2, clock.id());
        self.describe(packet::CLOCK_SNAPSHOT)
    }

    /// Writes the machine's name, kernel and architecture, as far as they are known.
    pub(crate) fn system(
        &mut self,
        hostname: Option<&str>,
        release: Option<&str>,
        arch: Option<&str>,
    ) -> io::Result<()> {
        self.inner.clear();
        self.inner.text(1, b"Linux");
        if let Some(release) = release {
            self.inner.text(3, release.as_bytes());
        }
        if let Some(arch) = arch {
            self.inner.text(4, arch.as_bytes());
        }
        self.field.clear();
        self.field.message(1, &self.inner);
        if let Some(hostname) = hostname {
            self.field.text(17, hostname.as_bytes());
        }
        self.describe(packet::SYSTEM)
    }

    /// Writes a process's name and the words of its command line, where they are known.
    pub(crate) fn process(&mut self, pid: u32, name: &str, command: &[String]) -> io::Result<()> {
        self.inner.clear();
        self.inner.signed(1, i64::from(pid.cast_signed()));
        for word in command {
            self.inner.text(2, word.as_bytes());
        }
        self.inner.text(6, name.as_bytes());
        self.field.clear();
        self.field.stated(1, process_track(pid));
        self.field.message(3, &self.inner);
        self.describe(packet::TRACK)
    }

    /// Writes a track below another one.
    pub(crate) fn track(&mut self, track: u64, parent: u64, name: &str) -> io::Result<()> {
        self.field.clear();
        self.field.stated(1, track);
        self.field.text(2, name.as_bytes());
        self.field.stated(5, parent);
        self.describe(packet::TRACK)
    }

    /// Writes a thread's name.
    pub(crate) fn thread(&mut self, numbers: TaskNumbers, name: &str) -> io::Result<()> {
        self.inner.clear();
        self.inner.signed(1, i64::from(numbers.pid.cast_signed()));
        self.inner.signed(2, i64::from(numbers.tid.cast_signed()));
        self.inner.text(5, name.as_bytes());
        self.field.clear();
        self.field.stated(1, thread_track(numbers));
        self.field.stated(5, process_track(numbers.pid));
        self.field.message(4, &self.inner);
        self.describe(packet::TRACK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracks_differ() {
        let one = thread_track(TaskNumbers { pid: 0, tid: 0 });
        let two = thread_track(TaskNumbers { pid: 0, tid: 1 });
        let three = thread_track(TaskNumbers { pid: 1, tid: 1 });
        let all = [one, two, three, process_track(0), process_track(1)];
        for (place, track) in all.iter().enumerate() {
            assert!(*track != 0 && !all[..place].contains(track), "{all:x?}");
        }
    }
}
