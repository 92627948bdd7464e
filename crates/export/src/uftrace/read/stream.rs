//! The chunks of one stream.

use super::UftraceImportError;
use dioptra_tracedata::TraceWriter;
use dioptra_tracelayout::chunk::{MAGIC, MAX_OPEN};
use dioptra_tracelayout::record::UnwindCause;
use dioptra_tracelayout::{ChunkHeader, Encoder, VERSION};

/// The size in bytes of a chunk's records.
const RECORDS: usize = 1 << 16;

/// A stream that is being written.
#[derive(Debug)]
pub(super) struct StreamWriter {
    header: ChunkHeader,
    /// The listed calls, and zeroes up to the records.
    listed: Vec<u8>,
    records: Vec<u8>,
    used: usize,
    last: u64,
    /// The functions of the calls that are open now, the outermost first.
    open: Vec<u32>,
}

impl StreamWriter {
    /// Returns the stream with this number. `open` are the calls that are open at its beginning.
    pub fn new(
        stream: u32,
        (pid, tid): (u32, u32),
        parent: u32,
        time: u64,
        open: Vec<u32>,
    ) -> StreamWriter {
        let mut writer = StreamWriter {
            header: ChunkHeader {
                magic: MAGIC,
                version: VERSION,
                stream,
                pid,
                tid,
                parent,
                ..ChunkHeader::default()
            },
            listed: Vec::new(),
            records: vec![0; RECORDS],
            used: 0,
            last: time,
            open,
        };
        writer.begin();
        writer
    }

    /// Returns the functions of the open calls.
    pub fn open(&self) -> &[u32] {
        &self.open
    }

    /// Returns the time of the last record.
    pub fn last(&self) -> u64 {
        self.last
    }

    fn begin(&mut self) {
        let listed = &self.open[self.open.len().saturating_sub(MAX_OPEN)..];
        self.header.base = self.last;
        self.header.depth = self.open.len() as u32;
        self.header.open = listed.len() as u32;
        self.listed = listed.iter().flat_map(|id| id.to_le_bytes()).collect();
        self.listed.resize(self.listed.len().next_multiple_of(8), 0);
        self.records.fill(0);
        self.used = 0;
    }

    fn end(&mut self, writer: &mut TraceWriter) -> Result<(), UftraceImportError> {
        self.header.last = self.last;
        let mut body = std::mem::take(&mut self.listed);
        body.extend(&self.records[..self.used]);
        writer.chunk(self.header, &body)?;
        self.header.sequence = self.header.sequence.wrapping_add(1);
        self.header.lost = 0;
        Ok(())
    }

    fn put(
        &mut self,
        writer: &mut TraceWriter,
        mut record: impl FnMut(&mut Encoder<'_>) -> Option<()>,
    ) -> Result<(), UftraceImportError> {
        for _ in 0..2 {
            let mut encoder = Encoder::new(&mut self.records, self.used, self.last);
            let written = record(&mut encoder);
            (self.used, self.last) = (encoder.used(), encoder.time());
            if written.is_some() {
                break;
            }
            self.end(writer)?;
            self.begin();
        }
        Ok(())
    }

    /// Writes that a call begins.
    pub fn enter(
        &mut self,
        writer: &mut TraceWriter,
        time: u64,
        function: u32,
    ) -> Result<(), UftraceImportError> {
        self.put(writer, |encoder| encoder.entry(time, function))?;
        self.open.push(function);
        Ok(())
    }

    /// Writes that the innermost call ends.
    pub fn leave(&mut self, writer: &mut TraceWriter, time: u64) -> Result<(), UftraceImportError> {
        self.put(writer, |encoder| encoder.exit(time))?;
        self.open.pop();
        Ok(())
    }

    /// Writes that records are missing behind the last one; 0 if their number is not known.
    pub fn lose(
        &mut self,
        writer: &mut TraceWriter,
        records: u64,
    ) -> Result<(), UftraceImportError> {
        self.put(writer, |encoder| encoder.lost(records))
    }

    /// Writes that calls end until `depth` are open.
    pub fn unwind(
        &mut self,
        writer: &mut TraceWriter,
        time: u64,
        depth: usize,
    ) -> Result<(), UftraceImportError> {
        let calls = self.open.len().saturating_sub(depth) as u32;
        if calls > 0 {
            self.put(writer, |encoder| {
                encoder.unwound(time, UnwindCause::Jump, calls)
            })?;
            self.open.truncate(depth);
        }
        Ok(())
    }

    /// Goes on behind a gap of `lost` records with these open calls.
    pub fn resume(
        &mut self,
        writer: &mut TraceWriter,
        time: u64,
        lost: u64,
        open: Vec<u32>,
    ) -> Result<(), UftraceImportError> {
        self.end(writer)?;
        self.open = open;
        self.last = self.last.max(time);
        self.begin();
        self.header.lost = u32::try_from(lost).unwrap_or(u32::MAX);
        Ok(())
    }

    /// Writes what is left.
    pub fn finish(mut self, writer: &mut TraceWriter) -> Result<(), UftraceImportError> {
        self.end(writer)
    }
}
