//! Writing recordings: files that perf 6.1 and later read.
//!
//! The header goes first, without the size of the data: a file whose recorder was killed tells so and is read up to
//! its last whole record. What is known only at the end (sizes, late ids, features) is written by [`Writer::finish`].
//! A pipe has all of that in records, since nothing in it can be changed later: see [`Writer::create_pipe`].

mod compress;
mod features;
mod pipe;

pub use features::FeaturesToWrite;
pub use pipe::build_id_records;

use crate::error::WriteError;
use crate::events::{EventDescription, EventTable};
use crate::features::{Compression, Feature};
use crate::header::{FILE_HEADER_SIZE, SECTION_SIZE, Section};
use crate::kind::{file_type, is_file_type};
use crate::summary::RecordCounts;
use compress::Compressor;
use dioptra_perfrecords::record::{HEADER_SIZE, RawRecord, RecordType};
use dioptra_perfrecords::{ATTR_SIZE_IN_FILES, Attr, ByteOrder};
use std::io::{self, Seek, SeekFrom, Write};

/// Bytes collected before they are written.
const BUFFER: usize = 256 << 10;
/// The first bytes of a file.
const MAGIC: &[u8; 8] = if cfg!(target_endian = "little") {
    b"PERFILE2"
} else {
    b"2ELIFREP"
};

/// An event of a recording to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct EventToWrite {
    /// The attributes that the event was opened with.
    pub attr: Attr,
    /// Name, such as `cpu-clock:u`.
    pub name: String,
    /// The ids of its records, as far as they are known: see [`Writer::add_ids`].
    pub ids: Vec<u64>,
}

/// Options of writing a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Compresses the records with zstd at this level, 1 to 22.
    pub compression: Option<i32>,
}

/// Overwrites the first bytes of what was written.
type Rewrite<W> = fn(&mut W, &[u8]) -> io::Result<()>;

/// Where a recording goes.
#[derive(Debug)]
enum Form<W> {
    /// A file: its header is completed at the end.
    File(Rewrite<W>),
    /// A pipe: what was written stays. These features were.
    Pipe(Vec<Feature>),
}

/// Writes a recording into a file (or whatever can be written and sought in), or into a pipe.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    form: Form<W>,
    buffer: Vec<u8>,
    /// Bytes of the file so far, those in `buffer` among them.
    position: u64,
    data_start: u64,
    table: EventTable,
    /// Ids that were written before the data, for each event.
    ids: Vec<Section>,
    late_ids: bool,
    sample_time: Option<(u64, u64)>,
    records: RecordCounts,
    compressor: Option<Compressor>,
}

impl<W: Write + Seek> Writer<W> {
    /// Starts a recording: writes the header, the attrs and the ids that are known. `out` must be empty.
    ///
    /// Attrs are written with 128 bytes, the most that perf 6.1 reads.
    ///
    /// # Errors
    /// [`WriteError::Io`].
    pub fn create(
        out: W,
        events: &[EventToWrite],
        options: WriteOptions,
    ) -> Result<Self, WriteError> {
        let mut writer = Writer::new(out, Form::File(rewrite_start), events, options)?;
        writer.put(&[0; FILE_HEADER_SIZE])?;
        writer.put_ids()?;
        let attrs = writer.put_attrs()?;
        writer.data_start = writer.position;
        writer.flush()?;
        writer.rewrite_header(attrs, 0, [0; 4])?;
        Ok(writer)
    }
}

/// Overwrites the first bytes of a file, and goes back to its end.
fn rewrite_start<W: Write + Seek>(out: &mut W, bytes: &[u8]) -> io::Result<()> {
    out.seek(SeekFrom::Start(0))?;
    out.write_all(bytes)?;
    out.seek(SeekFrom::End(0))?;
    Ok(())
}

impl<W: Write> Writer<W> {
    fn new(
        out: W,
        form: Form<W>,
        events: &[EventToWrite],
        options: WriteOptions,
    ) -> Result<Self, WriteError> {
        let described = events.iter().map(|event| {
            let ids = event.ids.clone();
            let mut described = EventDescription::new(event.attr.clone(), ids, ByteOrder::NATIVE);
            described.name.clone_from(&event.name);
            described
        });
        let compressor = options.compression.map(Compressor::new).transpose()?;
        Ok(Writer {
            out,
            form,
            buffer: Vec::with_capacity(BUFFER),
            position: 0,
            data_start: 0,
            table: EventTable::new(described.collect(), ByteOrder::NATIVE),
            ids: Vec::new(),
            late_ids: false,
            sample_time: None,
            records: RecordCounts::default(),
            compressor,
        })
    }

    /// Writes a record as the kernel's ring has it, header and all.
    ///
    /// # Errors
    /// [`WriteError::NotARecord`] where `record` is not exactly one record, [`WriteError::Io`].
    pub fn write(&mut self, record: &[u8]) -> Result<(), WriteError> {
        let split = RawRecord::split(record, ByteOrder::NATIVE);
        let Ok((raw, [])) = split else {
            return Err(not_a_record(record));
        };
        self.records.add(raw.kind);
        if raw.kind == RecordType::SAMPLE {
            self.note_time(&raw);
        }
        match &mut self.compressor {
            Some(compressor) if !is_file_type(raw.kind) => {
                if compressor.push(record) {
                    self.put_compressed()?;
                }
            }
            Some(_) => {
                self.put_compressed()?;
                self.put(record)?;
            }
            None => self.put(record)?,
        }
        Ok(())
    }

    fn note_time(&mut self, raw: &RawRecord<'_>) {
        let Some(time) = self.table.time(raw) else {
            return;
        };
        let (first, last) = self.sample_time.unwrap_or((time, time));
        self.sample_time = Some((first.min(time), last.max(time)));
    }

    /// Says that every ring was read once: readers need it to put records in order. What was written so far goes to
    /// the file, so that it survives when this process is killed.
    ///
    /// # Errors
    /// [`WriteError::Io`].
    pub fn finished_round(&mut self) -> Result<(), WriteError> {
        self.put_compressed()?;
        self.records.add(file_type::FINISHED_ROUND);
        self.put_record(file_type::FINISHED_ROUND, &[])?;
        self.flush()
    }

    /// Adds ids of the event at `index` that were not known when the writer was created; known ones may be among them.
    ///
    /// # Errors
    /// [`WriteError::NoSuchEvent`]; [`WriteError::LateIds`] for ids that are new to a pipe, which names ids only at its
    /// start. Readers can't tell the event of records with such ids, unless it is the only one.
    pub fn add_ids(&mut self, index: usize, ids: &[u64]) -> Result<(), WriteError> {
        let count = self.table.events.len();
        if index >= count {
            return Err(WriteError::NoSuchEvent { index, count });
        }
        if let Form::Pipe(_) = self.form {
            let known = &self.table.events[index].ids;
            let late = ids.iter().filter(|id| !known.contains(id)).count();
            if late > 0 {
                return Err(WriteError::LateIds { index, late });
            }
        } else if !ids.is_empty() {
            self.late_ids = true;
            self.table.add_ids(index, ids);
        }
        Ok(())
    }

    /// Returns the number of written records of each type.
    pub fn records(&self) -> &RecordCounts {
        &self.records
    }

    /// Bytes of the file so far, without what waits to be compressed.
    pub fn size(&self) -> u64 {
        self.position
    }

    /// Ends the recording: writes features and late ids, and completes the header. Into a pipe go build ids, and the
    /// features that it does not have yet. Returns the recording's size in bytes.
    ///
    /// # Errors
    /// [`WriteError::Io`], [`WriteError::TooLong`] where a feature does not fit.
    pub fn finish(mut self, features: &FeaturesToWrite) -> Result<u64, WriteError> {
        self.put_compressed()?;
        if let Form::Pipe(_) = self.form {
            return self.finish_pipe(features);
        }
        let data_end = self.position;
        self.table.remove_repeated_ids();
        let compression = self.compressor.as_ref().map(Compressor::describe);
        let sections =
            features::encode(features, &self.table.events, self.sample_time, compression)?;
        let bits = self.put_features(&sections)?;
        let attrs = if self.late_ids {
            // Readers find ids and attrs by their places: the new ones stand behind everything else.
            self.put_ids()?;
            self.put_attrs()?
        } else {
            self.first_attrs()
        };
        self.flush()?;
        self.rewrite_header(attrs, data_end - self.data_start, bits)?;
        self.out.flush()?;
        Ok(self.position)
    }

    /// Writes the table of sections and the sections, in the order of their bits.
    fn put_features(&mut self, sections: &[(Feature, Vec<u8>)]) -> Result<[u64; 4], WriteError> {
        let mut bits = [0; 4];
        let mut offset = self.position + (sections.len() * SECTION_SIZE) as u64;
        for (feature, bytes) in sections {
            bits[(feature.0 / 64) as usize] |= 1_u64 << (feature.0 % 64);
            let size = bytes.len() as u64;
            self.put_section(Section { offset, size })?;
            offset += size;
        }
        for (_, bytes) in sections {
            self.put(bytes)?;
        }
        Ok(bits)
    }

    fn put_ids(&mut self) -> Result<(), WriteError> {
        self.ids.clear();
        for index in 0..self.table.events.len() {
            let ids = &self.table.events[index].ids;
            let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_ne_bytes()).collect();
            self.ids.push(Section {
                offset: self.position,
                size: bytes.len() as u64,
            });
            self.put(&bytes)?;
        }
        Ok(())
    }

    fn put_attrs(&mut self) -> Result<Section, WriteError> {
        let offset = self.position;
        for index in 0..self.table.events.len() {
            let attr = self.table.events[index].attr.to_bytes(ATTR_SIZE_IN_FILES);
            self.put(&attr)?;
            self.put_section(self.ids[index])?;
        }
        let size = self.position - offset;
        Ok(Section { offset, size })
    }

    /// Where the attrs stand when nothing came late: right before the data.
    fn first_attrs(&self) -> Section {
        let size = (self.table.events.len() * entry_size()) as u64;
        Section {
            offset: self.data_start - size,
            size,
        }
    }

    fn rewrite_header(
        &mut self,
        attrs: Section,
        data_size: u64,
        features: [u64; 4],
    ) -> Result<(), WriteError> {
        let mut header = Vec::with_capacity(FILE_HEADER_SIZE);
        header.extend_from_slice(MAGIC);
        let words = [
            FILE_HEADER_SIZE as u64,
            entry_size() as u64,
            attrs.offset,
            attrs.size,
            self.data_start,
            data_size,
            // Event types: a section of old perfs, empty.
            0,
            0,
        ];
        for word in words.into_iter().chain(features) {
            header.extend_from_slice(&word.to_ne_bytes());
        }
        if let Form::File(rewrite) = self.form {
            rewrite(&mut self.out, &header)?;
        }
        Ok(())
    }

    fn put_section(&mut self, section: Section) -> Result<(), WriteError> {
        self.put(&section.offset.to_ne_bytes())?;
        self.put(&section.size.to_ne_bytes())
    }

    fn put_record(&mut self, kind: RecordType, body: &[u8]) -> Result<(), WriteError> {
        let size = HEADER_SIZE + body.len();
        let header = record_header(kind, 0, size).ok_or(WriteError::TooLong {
            section: "record",
            length: size,
        })?;
        self.put(&header)?;
        self.put(body)
    }

    /// Compresses what was collected and writes it.
    fn put_compressed(&mut self) -> Result<(), WriteError> {
        let Some(mut compressor) = self.compressor.take() else {
            return Ok(());
        };
        let result = compressor.drain(|payload| {
            self.records.add(file_type::COMPRESSED);
            self.put_record(file_type::COMPRESSED, payload)
        });
        self.compressor = Some(compressor);
        result
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        self.position += bytes.len() as u64;
        if self.buffer.len() + bytes.len() > BUFFER {
            self.flush()?;
        }
        if bytes.len() > BUFFER {
            self.out.write_all(bytes)?;
        } else {
            self.buffer.extend_from_slice(bytes);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), WriteError> {
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

/// Bytes of an entry in the section of attrs.
fn entry_size() -> usize {
    ATTR_SIZE_IN_FILES as usize + SECTION_SIZE
}

/// A record's header; `None` where the record would be too long.
pub(crate) fn record_header(kind: RecordType, misc: u16, size: usize) -> Option<[u8; HEADER_SIZE]> {
    let size = u16::try_from(size).ok()?;
    let mut header = [0; HEADER_SIZE];
    header[..4].copy_from_slice(&kind.0.to_ne_bytes());
    header[4..6].copy_from_slice(&misc.to_ne_bytes());
    header[6..].copy_from_slice(&size.to_ne_bytes());
    Some(header)
}

fn not_a_record(bytes: &[u8]) -> WriteError {
    let stated = bytes.get(6..8).and_then(|size| size.first_chunk());
    WriteError::NotARecord {
        length: bytes.len(),
        stated: stated.map_or(0, |size| usize::from(u16::from_ne_bytes(*size))),
    }
}

impl Compressor {
    fn describe(&self) -> Compression {
        Compression {
            kind: 1,
            level: self.level(),
            ratio: self.ratio(),
            mmap_length: compress::MMAP_LENGTH,
        }
    }
}
