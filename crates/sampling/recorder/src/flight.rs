//! The last seconds of a recording, in memory.
//!
//! A recorder writes the recording into a pipe ([`crate::RecordSpec::pipe`]), and [`FlightMemory`] takes its bytes. It forgets
//! samples that are too old, and keeps what the younger ones need: the head of the recording, and the records about threads and
//! mappings. At any time it writes what it holds as a recording of its own.
//!
//! ```text
//!   head │ threads and mappings so far │ round: threads, mappings, samples │ round … │ build ids
//!                  ▲                       │ too old
//!                  └── threads, mappings ──┘  samples are forgotten
//! ```

mod living;

use crate::features;
use crate::modules::Modules;
use dioptra_perfdata::{PerfData, WriteError, build_id_records, file_type};
use dioptra_perfevents::record::{Misc, RawRecord, RecordLayout, RecordType};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// Bytes of a record's header.
const HEADER: usize = 8;
/// Bytes before the first record of a pipe: the magic and their own number.
const PIPE_HEADER: usize = 16;
/// The size of the records about threads and mappings, in bytes, from which on those of ended processes are looked for.
const CROWDED: usize = 8 << 20;

/// The records between two marks of the recorder that it has read all rings.
#[derive(Default)]
struct Round {
    /// Records about threads and mappings.
    sideband: Vec<u8>,
    /// Samples, context switches, and records about losses.
    samples: Vec<u8>,
    /// The number of samples.
    count: u64,
}

/// The limits of a flight memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlightLimits {
    /// The age of the oldest samples.
    pub span: Duration,
    /// The bytes of all records. Samples are forgotten earlier where they take more.
    pub bytes: usize,
}

/// A description of a recording that was written from memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlightDump {
    /// The time between the arrivals of its oldest and its newest samples.
    pub span: Duration,
    /// Its samples.
    pub samples: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Whether samples within the limit of age are missing, because they took too much memory.
    pub is_cut: bool,
}

/// The error of a flight memory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FlightError {
    /// The recorder's stream holds something that no recorder writes.
    #[error("the recorder's stream is damaged at byte {offset}: {what}")]
    Damaged {
        /// The place in the stream.
        offset: u64,
        /// The damage.
        what: &'static str,
    },
    /// A recording could not be written.
    #[error("writing the recording")]
    Write(#[from] io::Error),
    /// The build ids could not be written.
    #[error("writing the build ids")]
    BuildIds(#[from] WriteError),
}

/// The newest part of a recording.
pub struct FlightMemory {
    limits: FlightLimits,
    /// Magic, attrs, names and features.
    head: Vec<u8>,
    /// The head as a recording without records, which describes the events; `None` before the first record behind it.
    described: Option<PerfData>,
    /// The modules of all mappings; `None` until the events are known.
    modules: Option<Modules>,
    /// Records about threads and mappings of forgotten rounds.
    past: Vec<u8>,
    /// The size of `past` at which ended processes are looked for again.
    crowded: usize,
    rounds: VecDeque<(Instant, Round)>,
    /// The bytes of all ended rounds.
    held: usize,
    current: Round,
    /// The beginning of a record whose end is still to come.
    partial: Vec<u8>,
    /// The bytes of the stream before `partial`.
    before: u64,
    /// The arrival of the newest samples that were forgotten because of their size.
    cut: Option<Instant>,
}

impl FlightMemory {
    /// Makes an empty memory.
    pub fn new(limits: FlightLimits) -> FlightMemory {
        FlightMemory {
            limits,
            head: Vec::new(),
            described: None,
            modules: None,
            past: Vec::new(),
            crowded: CROWDED,
            rounds: VecDeque::new(),
            held: 0,
            current: Round::default(),
            partial: Vec::new(),
            before: 0,
            cut: None,
        }
    }

    /// Takes the next bytes of the recorder's stream, which came at `now`. Calls `sample` with the event of each sample, an
    /// index of the events of [`FlightMemory::described`].
    ///
    /// # Errors
    /// [`FlightError::Damaged`].
    pub fn take(
        &mut self,
        bytes: &[u8],
        now: Instant,
        mut sample: impl FnMut(usize),
    ) -> Result<(), FlightError> {
        let mut all = std::mem::take(&mut self.partial);
        all.extend_from_slice(bytes);
        let mut at = 0;
        if self.head.is_empty() {
            if all.len() < PIPE_HEADER {
                self.partial = all;
                return Ok(());
            }
            self.head.extend_from_slice(&all[..PIPE_HEADER]);
            at = PIPE_HEADER;
        }
        while let Some(size) = self.size_at(&all, at)? {
            let record = &all[at..at + size];
            self.record(record, now, &mut sample);
            at += size;
        }
        self.before += at as u64;
        all.drain(..at);
        self.partial = all;
        Ok(())
    }

    /// Returns the size of the record at `at` with the data that follows it; `None` while its end is still to come.
    fn size_at(&self, bytes: &[u8], at: usize) -> Result<Option<usize>, FlightError> {
        let Some(header) = bytes
            .get(at..)
            .and_then(|rest| rest.first_chunk::<HEADER>())
        else {
            return Ok(None);
        };
        let (kind, size) = kind_and_size(header);
        if size < HEADER {
            return Err(FlightError::Damaged {
                offset: self.before + at as u64,
                what: "a record is smaller than its header",
            });
        }
        let mut whole = size;
        if kind == file_type::TRACING_DATA {
            let length = bytes.get(at + HEADER..).and_then(|rest| rest.first_chunk());
            let Some(length) = length else {
                return Ok(None);
            };
            whole += u32::from_ne_bytes(*length) as usize;
        }
        Ok((bytes.len() - at >= whole).then_some(whole))
    }

    fn record(&mut self, bytes: &[u8], now: Instant, sample: &mut impl FnMut(usize)) {
        let Some(header) = bytes.first_chunk::<HEADER>() else {
            return;
        };
        let (kind, size) = kind_and_size(header);
        let raw = RawRecord {
            kind,
            misc: Misc(u16::from_ne_bytes([header[4], header[5]])),
            body: &bytes[HEADER..size.min(bytes.len())],
        };
        match kind {
            file_type::FINISHED_ROUND => self.end_round(now),
            // Build ids are made anew for each recording.
            file_type::BUILD_ID => {}
            kind if kind.0 >= dioptra_perfdata::FIRST_FILE_TYPE => {
                self.head.extend_from_slice(bytes);
            }
            RecordType::SAMPLE => {
                self.describe();
                let described = self.described.as_ref();
                if let Some(event) = described.and_then(|events| events.event_of(&raw)) {
                    sample(event);
                }
                self.current.samples.extend_from_slice(bytes);
                self.current.count += 1;
            }
            kind if is_passing(kind) => self.current.samples.extend_from_slice(bytes),
            _ => {
                self.describe();
                if let Some(modules) = &mut self.modules {
                    modules.see(&raw);
                }
                self.current.sideband.extend_from_slice(bytes);
            }
        }
    }

    /// Returns the head as a recording without records, which describes the events; `None` before the first record behind it.
    pub fn described(&self) -> Option<&PerfData> {
        self.described.as_ref()
    }

    /// Reads the head, at the first record behind it.
    fn describe(&mut self) {
        if self.described.is_none() {
            self.described = PerfData::from_bytes(self.head.clone()).ok();
            self.modules = self.layout().cloned().map(Modules::new);
        }
    }

    /// Returns the layout of the first event's records.
    fn layout(&self) -> Option<&RecordLayout> {
        self.described.as_ref()?.layout(None)
    }

    fn end_round(&mut self, now: Instant) {
        let round = std::mem::take(&mut self.current);
        self.held += round.sideband.len() + round.samples.len();
        self.rounds.push_back((now, round));
        self.forget(now);
    }

    /// Forgets the samples that are too old, and the oldest ones beyond the limit of size.
    fn forget(&mut self, now: Instant) {
        while let Some((arrived, _)) = self.rounds.front() {
            let arrived = *arrived;
            let is_old = now.saturating_duration_since(arrived) > self.limits.span;
            let is_large = self.held + self.past.len() > self.limits.bytes;
            if !is_old && !is_large {
                break;
            }
            if !is_old {
                self.cut = Some(arrived);
            }
            if let Some((_, round)) = self.rounds.pop_front() {
                self.held -= round.sideband.len() + round.samples.len();
                self.past.extend_from_slice(&round.sideband);
            }
        }
        if self.past.len() > self.crowded
            && let Some(layout) = self.layout()
        {
            self.past = living::without_ended(&self.past, layout);
            self.crowded = CROWDED.max(2 * self.past.len());
        }
    }

    /// Writes what is held as a recording, at the time `now`.
    ///
    /// # Errors
    /// [`FlightError`] if it cannot be written.
    pub fn write(&mut self, out: &mut impl Write, now: Instant) -> Result<FlightDump, FlightError> {
        self.forget(now);
        let mut dump = FlightDump {
            is_cut: self
                .cut
                .is_some_and(|cut| now.saturating_duration_since(cut) <= self.limits.span),
            ..FlightDump::default()
        };
        let mut put = |bytes: &[u8], dump: &mut FlightDump| {
            dump.bytes += bytes.len() as u64;
            out.write_all(bytes)
        };
        put(&self.head, &mut dump)?;
        if !self.past.is_empty() {
            put(&self.past, &mut dump)?;
            put(&round_mark(), &mut dump)?;
        }
        let rounds = self.rounds.iter().map(|(_, round)| round);
        for round in rounds.chain([&self.current]) {
            put(&round.sideband, &mut dump)?;
            put(&round.samples, &mut dump)?;
            put(&round_mark(), &mut dump)?;
            dump.samples += round.count;
        }
        if let Some(modules) = &self.modules {
            let ids: Vec<_> = modules
                .build_ids()
                .into_iter()
                .map(features::build_id)
                .collect();
            put(&build_id_records(&ids)?, &mut dump)?;
        }
        out.flush()?;
        if let Some((oldest, _)) = self.rounds.front() {
            dump.span = now.saturating_duration_since(*oldest);
        }
        Ok(dump)
    }
}

/// Returns whether records of this kind are of no use without the samples around them.
fn is_passing(kind: RecordType) -> bool {
    matches!(
        kind,
        RecordType::LOST
            | RecordType::LOST_SAMPLES
            | RecordType::THROTTLE
            | RecordType::UNTHROTTLE
            | RecordType::READ
            | RecordType::SWITCH
            | RecordType::SWITCH_CPU_WIDE
    )
}

/// Returns the kind and the size that a record's header states.
fn kind_and_size(header: &[u8; HEADER]) -> (RecordType, usize) {
    let [a, b, c, d, _, _, g, h] = *header;
    let kind = RecordType(u32::from_ne_bytes([a, b, c, d]));
    (kind, usize::from(u16::from_ne_bytes([g, h])))
}

/// Returns the record that ends a round.
fn round_mark() -> [u8; HEADER] {
    let mut mark = [0; HEADER];
    mark[..4].copy_from_slice(&file_type::FINISHED_ROUND.0.to_ne_bytes());
    mark[6..].copy_from_slice(&(HEADER as u16).to_ne_bytes());
    mark
}

#[cfg(test)]
mod tests {
    use super::*;
    use dioptra_perfdata::{EventToWrite, FeaturesToWrite, WriteOptions, Writer};
    use dioptra_perfevents::{Attr, AttrFlags, SampleType, event_type};
    use std::ops::ControlFlow;

    fn head() -> Vec<u8> {
        let attr = Attr {
            kind: event_type::SOFTWARE,
            sample_type: SampleType::IP | SampleType::TID | SampleType::TIME,
            sample_period: 1000,
            flags: AttrFlags::SAMPLE_ID_ALL,
            ..Attr::default()
        };
        let event = EventToWrite {
            name: "cpu-clock".to_owned(),
            attr,
            ids: vec![7],
        };
        let mut bytes = Vec::new();
        let features = FeaturesToWrite::default();
        Writer::create_pipe(&mut bytes, &[event], &features, WriteOptions::default())
            .expect("a head");
        bytes
    }

    fn record(kind: RecordType, body: &[u8]) -> Vec<u8> {
        let mut bytes = kind.0.to_ne_bytes().to_vec();
        bytes.extend([0, 0]);
        bytes.extend(((HEADER + body.len()) as u16).to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    fn words(pid: u32, tid: u32, time: u64) -> Vec<u8> {
        let mut body = pid.to_ne_bytes().to_vec();
        body.extend(tid.to_ne_bytes());
        body.extend(time.to_ne_bytes());
        body
    }

    fn sample(time: u64) -> Vec<u8> {
        let mut body = 0x1000_u64.to_ne_bytes().to_vec();
        body.extend(words(5, 5, time));
        record(RecordType::SAMPLE, &body)
    }

    fn comm(pid: u32, time: u64) -> Vec<u8> {
        let mut body = pid.to_ne_bytes().to_vec();
        body.extend(pid.to_ne_bytes());
        body.extend(b"name\0\0\0\0");
        body.extend(words(pid, pid, time));
        record(RecordType::COMM, &body)
    }

    fn kinds(bytes: &[u8]) -> Vec<(RecordType, Option<u64>)> {
        let data = PerfData::from_bytes(bytes.to_vec()).expect("a recording");
        let mut kinds = Vec::new();
        let summary = data.read(|record| {
            let own = record.raw.kind.0 < dioptra_perfdata::FIRST_FILE_TYPE;
            if own {
                kinds.push((record.raw.kind, record.time));
            }
            ControlFlow::Continue(())
        });
        assert_eq!(
            (summary.damages, summary.out_of_order),
            (0, 0),
            "{summary:?}"
        );
        kinds
    }

    /// A memory that has seen a second of records in each round, and the start of its time.
    fn flown(limits: FlightLimits, rounds: u64, piece: usize) -> (FlightMemory, Instant) {
        let start = Instant::now();
        let mut memory = FlightMemory::new(limits);
        let mut feed = |bytes: &[u8], now: Instant| {
            for piece in bytes.chunks(piece) {
                memory.take(piece, now, |_| {}).expect("no damage");
            }
        };
        feed(&head(), start);
        for round in 0..rounds {
            let mut bytes = comm(5 + round as u32, 1000 * round + 1);
            bytes.extend((2..4).flat_map(|time| sample(1000 * round + time)));
            bytes.extend(round_mark());
            feed(&bytes, start + Duration::from_secs(round));
        }
        (memory, start)
    }

    const WIDE: FlightLimits = FlightLimits {
        span: Duration::from_secs(3),
        bytes: 1 << 20,
    };

    #[test]
    fn old_samples_go_and_threads_stay() {
        for piece in [1, 7, 64, 4096] {
            let (mut memory, start) = flown(WIDE, 10, piece);
            let mut out = Vec::new();
            let now = start + Duration::from_secs(9);
            let dump = memory.write(&mut out, now).expect("it is written");
            let kinds = kinds(&out);
            let of = |wanted| kinds.iter().filter(|(kind, _)| *kind == wanted).count();
            assert_eq!(of(RecordType::COMM), 10);
            // The rounds of seconds 6 to 9.
            assert_eq!((of(RecordType::SAMPLE), dump.samples), (8, 8));
            let samples = kinds.iter().filter(|(kind, _)| *kind == RecordType::SAMPLE);
            assert!(samples.clone().all(|(_, time)| *time >= Some(6002)));
            assert_eq!(dump.span, Duration::from_secs(3));
            assert_eq!((dump.bytes, dump.is_cut), (out.len() as u64, false));
            // Later everything is old.
            let later = memory.write(&mut Vec::new(), now + Duration::from_secs(60));
            assert_eq!(later.expect("it is written").samples, 0);
        }
    }

    #[test]
    fn too_many_bytes_are_said() {
        let limits = FlightLimits { bytes: 560, ..WIDE };
        let (mut memory, start) = flown(limits, 10, 64);
        let mut out = Vec::new();
        let now = start + Duration::from_secs(9);
        let dump = memory.write(&mut out, now).expect("it is written");
        assert!(dump.samples < 8 && dump.samples > 0, "{dump:?}");
        assert!(dump.is_cut);
        assert_eq!(kinds(&out).len() as u64, 10 + dump.samples);
    }

    #[test]
    fn each_sample_is_shown_once() {
        let mut seen = 0;
        let mut memory = FlightMemory::new(WIDE);
        let bytes = [head(), sample(1), sample(2)].concat();
        for piece in bytes.chunks(5) {
            let count = |event: usize| seen += u64::from(event == 0);
            memory
                .take(piece, Instant::now(), count)
                .expect("no damage");
        }
        assert_eq!(seen, 2);
        let damaged = [head(), vec![0; 16]].concat();
        let error = FlightMemory::new(WIDE).take(&damaged, Instant::now(), |_| {});
        assert!(matches!(error, Err(FlightError::Damaged { .. })));
    }
}
