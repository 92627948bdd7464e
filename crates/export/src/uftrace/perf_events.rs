//! Records of perf events in `perf-cpuN.dat`: context switches, beginnings, ends and names of threads.
//!
//! Each record is a header (type u32, misc u16, size u16), its own fields, and a trailer: process id, thread id (u32
//! each), and the time in nanoseconds (u64). Everything is little endian.

const COMM: u32 = 3;
const EXIT: u32 = 4;
const FORK: u32 = 7;
const SWITCH: u32 = 14;

/// The bit of `misc` in a switch away from the CPU.
const SWITCH_OUT: u16 = 1 << 13;
/// The bit of `misc` if the thread could have gone on.
const PREEMPTED: u16 = 1 << 14;
/// The bit of `misc` of a name that a program got by its execution. uftrace records set it.
const NAMED_BY_EXEC: u16 = 1 << 13;

/// A change of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ThreadChange {
    /// The thread left its CPU because it waits.
    Waits,
    /// The thread left its CPU though it could go on.
    Preempted,
    /// The thread got a CPU.
    Runs,
    /// The thread was made.
    New,
    /// The thread ended.
    Ended,
    /// The thread got a name.
    Named(String),
}

/// A change of a thread with its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ThreadEvent {
    /// The time in nanoseconds.
    pub time: u64,
    /// The process id.
    pub pid: u32,
    /// The thread id.
    pub tid: u32,
    /// The change.
    pub change: ThreadChange,
}

impl ThreadEvent {
    /// Appends the record's bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        let mut words = |words: &[u32]| body.extend(words.iter().flat_map(|w| w.to_le_bytes()));
        let (kind, misc) = match &self.change {
            ThreadChange::Waits => (SWITCH, SWITCH_OUT),
            ThreadChange::Preempted => (SWITCH, SWITCH_OUT | PREEMPTED),
            ThreadChange::Runs => (SWITCH, 0),
            ThreadChange::New | ThreadChange::Ended => {
                // The process and thread that made it are those of the process, for want of others.
                words(&[self.pid, self.pid, self.tid, self.pid]);
                body.extend(self.time.to_le_bytes());
                let is_new = self.change == ThreadChange::New;
                (if is_new { FORK } else { EXIT }, 0)
            }
            ThreadChange::Named(name) => {
                words(&[self.pid, self.tid]);
                let bytes = &name.as_bytes()[..name.len().min(255)];
                body.extend(bytes);
                body.resize(8 + (bytes.len() + 1).next_multiple_of(8), 0);
                (COMM, NAMED_BY_EXEC)
            }
        };
        let size = 8 + body.len() + 16;
        out.extend(kind.to_le_bytes());
        out.extend(misc.to_le_bytes());
        out.extend((size as u16).to_le_bytes());
        out.extend(body);
        out.extend(self.pid.to_le_bytes());
        out.extend(self.tid.to_le_bytes());
        out.extend(self.time.to_le_bytes());
    }
}

/// Reads the records of a file. Records of other kinds are skipped.
#[derive(Debug)]
pub(super) struct EventReader<'a> {
    bytes: &'a [u8],
}

impl<'a> EventReader<'a> {
    /// Returns a reader of a file's bytes.
    pub fn new(bytes: &'a [u8]) -> EventReader<'a> {
        EventReader { bytes }
    }

    /// Returns the number of bytes that are left: at the end, of those that are no records.
    pub fn left(&self) -> usize {
        self.bytes.len()
    }
}

impl Iterator for EventReader<'_> {
    type Item = ThreadEvent;

    fn next(&mut self) -> Option<ThreadEvent> {
        loop {
            let kind = u32_at(self.bytes, 0)?;
            let misc = u16_at(self.bytes, 4)?;
            let size = usize::from(u16_at(self.bytes, 6)?);
            // A record has a header and a trailer at least.
            let body = self.bytes.get(8..size.checked_sub(16)?.max(8))?;
            let trailer = self.bytes.get(size - 16..size)?;
            self.bytes = &self.bytes[size..];
            let (mut pid, mut tid) = (u32_at(trailer, 0)?, u32_at(trailer, 4)?);
            let low = u64::from(u32_at(trailer, 8)?);
            let time = low | u64::from(u32_at(trailer, 12)?) << 32;
            let change = match (kind, misc & SWITCH_OUT != 0) {
                (SWITCH, false) => ThreadChange::Runs,
                (SWITCH, true) if misc & PREEMPTED != 0 => ThreadChange::Preempted,
                (SWITCH, true) => ThreadChange::Waits,
                (FORK | EXIT, _) => {
                    let (Some(process), Some(thread)) = (u32_at(body, 0), u32_at(body, 8)) else {
                        continue;
                    };
                    (pid, tid) = (process, thread);
                    match kind {
                        FORK => ThreadChange::New,
                        _ => ThreadChange::Ended,
                    }
                }
                (COMM, _) => {
                    let name = body.get(8..).unwrap_or_default();
                    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
                    ThreadChange::Named(String::from_utf8_lossy(name).into_owned())
                }
                _ => continue,
            };
            return Some(ThreadEvent {
                time,
                pid,
                tid,
                change,
            });
        }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..)?.first_chunk::<2>()?;
    Some(u16::from_le_bytes(*bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_the_bytes_that_uftrace_writes() {
        // From a recording of uftrace 0.13: the name `abc`, and a switch away from the CPU.
        let bytes = [
            0x03, 0, 0, 0, 0, 0x20, 0x28, 0, 0xe1, 0x72, 0, 0, 0xe1, 0x72, 0, 0, 0x61, 0x62, 0x63,
            0, 0, 0, 0, 0, 0xe1, 0x72, 0, 0, 0xe1, 0x72, 0, 0, 0x67, 0x59, 0x9f, 0xbe, 0xfd, 0x0c,
            0, 0, 0x0e, 0, 0, 0, 0, 0x20, 0x18, 0, 0xe1, 0x72, 0, 0, 0xe1, 0x72, 0, 0, 0x74, 0x33,
            0xa4, 0xbe, 0xfd, 0x0c, 0, 0,
        ];
        let (pid, tid) = (29409, 29409);
        let events = [
            (14_283_964_373_351, ThreadChange::Named("abc".into())),
            (14_283_964_691_316, ThreadChange::Waits),
        ];
        let events = events.map(|(time, change)| ThreadEvent {
            time,
            pid,
            tid,
            change,
        });
        let mut written = Vec::new();
        for event in &events {
            event.write(&mut written);
        }
        assert_eq!(written, bytes);
        let mut reader = EventReader::new(&bytes);
        assert_eq!(reader.by_ref().collect::<Vec<_>>(), events);
        assert_eq!(reader.left(), 0);
        let mut cut = EventReader::new(&bytes[..63]);
        assert_eq!(cut.by_ref().count(), 1);
        assert_eq!(cut.left(), 23);
    }
}
