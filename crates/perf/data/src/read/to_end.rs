//! A pipe that is read to its end, in the order of a file and in bounded memory.
//!
//! Records are passed on round by round while they come. Where that cannot give a file's order, the rest of the pipe is
//! read first, into a temporary file if it is long, and then as a file is.

use super::live::{LiveRecords, NAME};
use super::stream::Stream;
use super::unpack::Unpacker;
use super::{FileRecord, read_one};
use crate::error::{DAMAGE_LIMIT, OpenError, note};
use crate::events::name_events;
use crate::features::Features;
use crate::recording::PerfData;
use crate::source::Source;
use crate::summary::ReadSummary;
use crate::walk::Walk;
use dioptra_perfrecords::record::RawRecord;
use std::io::Read;
use std::ops::ControlFlow;

impl LiveRecords {
    /// Passes all records to `visit`, in the order in which [`PerfData::read`] passes the records of the complete pipe, and
    /// returns once the pipe has ended. Also returns the recording's description, parts of which come at its end.
    ///
    /// Memory is bounded by the records of two rounds. In three cases the rest of the pipe is read before its records are
    /// passed on, into a temporary file where it is long: behind damage, where 64 MiB come without the end of a round, and
    /// from the record on of which `needs_rest` says that it cannot be taken before the recording has ended.
    ///
    /// # Errors
    /// If the pipe cannot be read, or the temporary file not be written.
    pub fn read_to_end(
        mut self,
        pipe: &mut impl Read,
        recording: &PerfData,
        mut needs_rest: impl FnMut(&RawRecord<'_>) -> bool,
        mut visit: impl FnMut(FileRecord<'_>),
    ) -> Result<(ReadSummary, Features), OpenError> {
        loop {
            let read = self.read_more(pipe).map_err(|reason| OpenError::Io {
                name: NAME.to_owned(),
                reason,
            })?;
            let stopped = self.take(recording, &mut visit, Some(&mut needs_rest));
            // At the pipe's end, bytes that are left are damage.
            let is_cut = read == 0 && self.at < self.held.len();
            if stopped || is_cut {
                self.read_rest(pipe, recording, &mut visit)?;
                break;
            }
            if read == 0 {
                self.end(recording, &mut visit);
                break;
            }
        }
        let header = &mut self.header;
        name_events(
            &mut header.events,
            &header.described,
            &header.types,
            &header.features,
        );
        if header.events != recording.events() {
            let why = "events are described behind the first samples, which is not read";
            note(&mut header.damaged, self.before, why);
        }
        let mut summary = self.summary;
        summary.damages += self.header.damaged.len() as u64;
        let mut damaged = self.header.damaged;
        damaged.append(&mut summary.damaged);
        damaged.truncate(DAMAGE_LIMIT);
        summary.damaged = damaged;
        Ok((summary, self.header.features))
    }

    /// Reads the whole recording, so that its records can be read again and again.
    ///
    /// # Errors
    /// As [`PerfData::from_reader`].
    pub fn into_whole(self, recording: &PerfData, pipe: impl Read) -> Result<PerfData, OpenError> {
        let bytes = recording.bytes();
        PerfData::from_reader(bytes.chain(&*self.held).chain(pipe))
    }

    /// Reads the rest of the pipe as a file is read.
    fn read_rest(
        &mut self,
        pipe: &mut impl Read,
        recording: &PerfData,
        visit: &mut impl FnMut(FileRecord<'_>),
    ) -> Result<(), OpenError> {
        let table = recording.table();
        let order = table.order();
        let held = std::mem::take(&mut self.held);
        let rest = Source::spool_rest(held, pipe, NAME)?;
        self.unpacker.allow(self.before + rest.len() as u64);
        let queue = std::mem::take(&mut self.queue);
        let unpacker = std::mem::replace(&mut self.unpacker, Unpacker::new(0, None));
        let mut stream = Stream::resume((&rest, self.before, self.at), order, queue, unpacker);
        let walk = Walk::new(&rest, Stream::start(self.before), order);
        self.header.scan(walk, self.at, self.before, order);
        let summary = &mut self.summary;
        let _: ControlFlow<()> = read_one(&mut stream, table, summary, &mut |record| {
            visit(record);
            ControlFlow::Continue(())
        });
        stream.check_size(summary);
        summary.salvaged |= summary.stopped_at.is_some();
        self.ended = true;
        Ok(())
    }
}
