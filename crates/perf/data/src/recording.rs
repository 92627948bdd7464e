//! A recording, opened.

use crate::error::{Damage, OpenError, note};
use crate::events::{EventDescription, EventTable, name_events};
use crate::features::{DescribedEvent, Feature, Features, SectionDamage, read_feature};
use crate::header::{FileHeader, Header, SECTION_SIZE, Section};
use crate::pipe::{PipeHeader, scan};
use crate::read::{FileRecord, Input, read};
use crate::source::Source;
use crate::summary::ReadSummary;
use dioptra_perfrecords::record::{RawRecord, RecordLayout};
use dioptra_perfrecords::{Attr, ByteOrder, Cursor};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::ops::{ControlFlow, Range};
use std::path::Path;

/// The smallest attr that perf ever wrote, in bytes.
const LEAST_ATTR: u64 = 64;
/// Bytes of a name in the section of event types, and of an entry.
const EVENT_TYPE_NAME: usize = 64;

/// The container of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// A file with sections.
    File,
    /// A stream, from `perf record -o -` or a pipe, perhaps stored in a file.
    Pipe,
    /// A directory with a file for each recording thread.
    Directory,
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Format::File => "file",
            Format::Pipe => "pipe",
            Format::Directory => "directory",
        })
    }
}

/// A recording, opened: a file (mapped into memory, nothing is copied), a pipe, bytes, or the directory of
/// `perf record --threads`.
///
/// ```no_run
/// # use dioptra_perfdata::PerfData;
/// # use std::ops::ControlFlow;
/// let recording = PerfData::open("perf.data".as_ref())?;
/// let summary = recording.read(|record| {
///     println!("{:?} {}", record.time, record.raw.kind);
///     ControlFlow::Continue(())
/// });
/// println!("{} records were lost", summary.lost);
/// # Ok::<(), dioptra_perfdata::OpenError>(())
/// ```
#[derive(Debug)]
pub struct PerfData {
    source: Source,
    /// Where the records are.
    data: Range<usize>,
    /// The other files of a directory: name and content.
    members: Vec<(String, Source)>,
    order: ByteOrder,
    format: Format,
    table: EventTable,
    features: Features,
    /// The offsets in a file of the sections that this crate does not parse.
    unparsed_at: BTreeMap<Feature, u64>,
    damaged: Vec<Damage>,
    /// The header was not finished, or says that the file is longer than it is.
    salvaged: bool,
}

impl PerfData {
    /// Opens a recording: a file of either format, a pipe's path, or a directory of `perf record --threads`.
    ///
    /// # Errors
    /// [`OpenError`] where there is no recording; [`PerfData::read`] reports damage behind the header.
    pub fn open(path: &Path) -> Result<PerfData, OpenError> {
        if path.is_dir() {
            return PerfData::open_directory(path);
        }
        PerfData::new(Source::open(path)?, &path.display().to_string())
    }

    /// Reads a recording from a stream, to its end. Long ones are kept in a temporary file.
    ///
    /// # Errors
    /// As [`PerfData::open`].
    pub fn from_reader(stream: impl Read) -> Result<PerfData, OpenError> {
        let name = "standard input";
        PerfData::new(Source::spool(stream, name)?, name)
    }

    /// Reads a recording in memory.
    ///
    /// # Errors
    /// As [`PerfData::open`].
    pub fn from_bytes(bytes: Vec<u8>) -> Result<PerfData, OpenError> {
        PerfData::new(Source::Memory(bytes), "the recording")
    }

    fn open_directory(path: &Path) -> Result<PerfData, OpenError> {
        let main = path.join("data");
        if !main.is_file() {
            return Err(OpenError::Directory { path: path.into() });
        }
        let mut recording = PerfData::new(Source::open(&main)?, &main.display().to_string())?;
        let failed = |reason| OpenError::Io {
            name: path.display().to_string(),
            reason,
        };
        let mut numbers = Vec::new();
        for entry in fs::read_dir(path).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("data."));
            numbers.extend(number.and_then(|number| number.parse::<u32>().ok()));
        }
        numbers.sort_unstable();
        for number in numbers {
            let name = format!("data.{number}");
            match Source::open(&path.join(&name)) {
                Ok(source) => recording.members.push((name, source)),
                // A thread that recorded nothing.
                Err(OpenError::Empty { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        recording.format = Format::Directory;
        // The main file of a directory may hold no records at all.
        if recording.data.is_empty() && !recording.members.is_empty() {
            recording.salvaged = false;
        }
        Ok(recording)
    }

    fn new(source: Source, name: &str) -> Result<PerfData, OpenError> {
        match Header::read(&source, name)? {
            Header::File(header) => PerfData::from_file(source, &header, name),
            Header::Pipe { order, size } => Ok(PerfData::from_pipe(source, order, size as usize)),
        }
    }

    fn from_pipe(source: Source, order: ByteOrder, start: usize) -> PerfData {
        let data = start..source.len();
        let found = scan(&source, data.clone(), order);
        PerfData::with_pipe_header(source, data, order, found)
    }

    /// Makes a recording of a pipe's head, which `found` describes.
    pub(crate) fn of_head(
        head: Vec<u8>,
        start: usize,
        order: ByteOrder,
        found: PipeHeader,
    ) -> PerfData {
        let data = start..head.len();
        PerfData::with_pipe_header(Source::Memory(head), data, order, found)
    }

    fn with_pipe_header(
        source: Source,
        data: Range<usize>,
        order: ByteOrder,
        found: PipeHeader,
    ) -> PerfData {
        let mut events = found.events;
        name_events(&mut events, &found.described, &found.types, &found.features);
        PerfData {
            source,
            data,
            members: Vec::new(),
            order,
            format: Format::Pipe,
            table: EventTable::new(events, order),
            features: found.features,
            unparsed_at: BTreeMap::new(),
            damaged: found.damaged,
            salvaged: false,
        }
    }

    fn from_file(source: Source, header: &FileHeader, name: &str) -> Result<PerfData, OpenError> {
        let mut damaged = Vec::new();
        let order = header.order;
        let mut events = read_attrs(&source, header, name, &mut damaged)?;
        let length = source.len();
        let start = usize::try_from(header.data.offset).unwrap_or(usize::MAX);
        if start > length {
            return Err(OpenError::Header {
                name: name.into(),
                offset: 40,
                what: "the header says that the records start behind the end of the file",
            });
        }
        // A recorder that was killed never wrote the size of the data, nor the sections behind it.
        let unfinished = header.data.size == 0;
        let end = header.data.end().and_then(|end| usize::try_from(end).ok());
        let cut = end.is_none_or(|end| end > length);
        let data = match end {
            Some(end) if !unfinished && !cut => start..end,
            _ => start..length,
        };
        let mut features = Features::default();
        let mut described = Vec::new();
        let finished_without_data = unfinished
            && read_features(
                &source,
                header,
                &mut features,
                &mut described,
                &mut Vec::new(),
            )
            && (features.hostname.is_some() || !described.is_empty());
        let (data, salvaged) = if finished_without_data {
            // No records, but sections that make sense: an empty recording, or the main file of a directory.
            (start..start, false)
        } else if unfinished || cut {
            features = Features::default();
            described.clear();
            (data, true)
        } else {
            read_features(&source, header, &mut features, &mut described, &mut damaged);
            (data, false)
        };
        if events.is_empty() {
            // perf's pipes stored by other tools: a file header without attrs, and records that hold them.
            let found = scan(&source, data.clone(), order);
            if !found.events.is_empty() {
                return Ok(PerfData::with_pipe_header(source, data, order, found));
            }
        }
        let mut unparsed_at = BTreeMap::new();
        for (feature, section) in feature_sections(&source, header).unwrap_or_default() {
            if features.unparsed.contains_key(&feature) {
                unparsed_at.insert(feature, section.offset);
            }
        }
        let types = read_event_types(&source, header);
        name_events(&mut events, &described, &types, &features);
        Ok(PerfData {
            source,
            data,
            members: Vec::new(),
            order,
            format: Format::File,
            table: EventTable::new(events, order),
            features,
            unparsed_at,
            damaged,
            salvaged,
        })
    }

    /// Adds damage of a section that this crate does not parse ([`Features::unparsed`]) to the damage that
    /// [`PerfData::read`] reports: `offset` bytes from the section's start.
    pub fn report_damage(&mut self, feature: Feature, offset: u64, why: impl Into<String>) {
        let start = self.unparsed_at.get(&feature).copied().unwrap_or(0);
        note(&mut self.damaged, start.saturating_add(offset), why);
    }

    /// Returns the bytes of a recording in one file.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.source
    }

    /// Returns the events, prepared for looking up.
    pub(crate) fn table(&self) -> &EventTable {
        &self.table
    }

    /// The events, in the file's order.
    pub fn events(&self) -> &[EventDescription] {
        &self.table.events
    }

    /// Returns the description of the recording and its machine.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// The byte order of the machine that recorded.
    pub fn byte_order(&self) -> ByteOrder {
        self.order
    }

    /// Returns the container of the recording.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Bytes of the recording, of all files of a directory together.
    pub fn size(&self) -> u64 {
        let members = self.members.iter().map(|(_, source)| source.len() as u64);
        self.source.len() as u64 + members.sum::<u64>()
    }

    /// Whether the recorder was killed before it finished the file, or the file's end is missing.
    ///
    /// [`ReadSummary::salvaged`] tells that too, and of damage within the records.
    pub fn salvaged(&self) -> bool {
        self.salvaged
    }

    /// Returns the event of a record that came from elsewhere, such as from a pipe that this recording's events describe, as an
    /// index of [`PerfData::events`]; `None` where the record's id does not tell.
    pub fn event_of(&self, record: &RawRecord<'_>) -> Option<usize> {
        self.table.find(record)
    }

    /// The layout of a record's fields: its event's or, where the event is not known, the first event's, whose ids
    /// stand in the same places. `None` where the recording has no events.
    pub fn layout(&self, event: Option<usize>) -> Option<&RecordLayout> {
        let events = self.events();
        events.get(event.unwrap_or(0)).map(|event| &event.layout)
    }

    /// The part of a mapped file, in bytes, that stays in memory behind the record that was passed on last.
    pub const LASTING_IN_MEMORY: usize = crate::read::KEPT;

    /// Bytes of a record, borrowed for as long as the recording is: for who wants to look at records after `visit` has
    /// returned, without a copy. Of a mapped file, what lies farther back than [`Self::LASTING_IN_MEMORY`] is read from
    /// the file again. `None` for bytes that lie in no file, such as those of compressed records.
    pub fn lasting(&self, bytes: &[u8]) -> Option<&[u8]> {
        let members = self.members.iter().map(|(_, source)| source);
        std::iter::once(&self.source)
            .chain(members)
            .find_map(|source| {
                let start = (bytes.as_ptr() as usize).checked_sub(source.as_ptr() as usize)?;
                source.get(start..start.checked_add(bytes.len())?)
            })
    }

    /// Returns a record that a recorder would have made up for this recording: it has no time, and comes before all others.
    pub fn made_up<'r>(&self, raw: RawRecord<'r>) -> FileRecord<'r> {
        FileRecord {
            offset: 0,
            event: self.table.find(&raw),
            raw,
            trailing: &[],
            time: None,
        }
    }

    /// Passes all records to `visit`, in the order of time across CPUs, until it breaks.
    ///
    /// Records without a time (those that the recorder made up, and perf's own such as FINISHED_ROUND) come where the
    /// file has them. The content of compressed records is passed on, not they. Records are borrowed from the mapped
    /// file: nothing is copied, and only 16 bytes for each record of two rounds are held. This never fails: the
    /// summary tells of losses and damage.
    pub fn read<F>(&self, mut visit: F) -> ReadSummary
    where
        F: FnMut(FileRecord<'_>) -> ControlFlow<()>,
    {
        let mut summary = ReadSummary {
            damaged: self.damaged.clone(),
            damages: self.damaged.len() as u64,
            salvaged: self.salvaged,
            ..ReadSummary::default()
        };
        let level = self.features.compressed.map(|compressed| compressed.level);
        let main = Input {
            name: None,
            source: &self.source,
            bytes: self.source.get(..self.data.end).unwrap_or(&self.source),
            start: self.data.start,
            level,
        };
        let members = self.members.iter().map(|(name, source)| Input {
            name: Some(name),
            source,
            bytes: source,
            start: 0,
            level,
        });
        let inputs: Vec<_> = std::iter::once(main).chain(members).collect();
        read(&inputs, self.order, &self.table, &mut summary, &mut visit);
        summary
    }
}

/// Reads the section of attrs.
fn read_attrs(
    file: &[u8],
    header: &FileHeader,
    name: &str,
    damaged: &mut Vec<Damage>,
) -> Result<Vec<EventDescription>, OpenError> {
    let bad = |offset: u64, what| OpenError::Header {
        name: name.into(),
        offset,
        what,
    };
    if header.attrs.size == 0 {
        return Ok(Vec::new());
    }
    let entry = header.attr_size;
    if entry < LEAST_ATTR + SECTION_SIZE as u64 || entry > header.attrs.size {
        return Err(bad(16, "the header states an impossible size of an attr"));
    }
    let attrs = header.attrs.of(file);
    let what = "the descriptions of events lie behind the end of the file";
    let attrs = attrs.ok_or_else(|| bad(24, what))?;
    let mut events = Vec::new();
    // Sections of honest files do not overlap: all ids together fit into the file.
    let mut budget = file.len();
    for (index, bytes) in attrs.chunks_exact(entry as usize).enumerate() {
        let (attr, ids) = bytes.split_at(bytes.len() - SECTION_SIZE);
        let section = Section::read(&mut Cursor::new(ids, header.order)).unwrap_or_default();
        let Some(attr) = Attr::from_bytes(attr, header.order) else {
            continue;
        };
        let ids = section.of(file).filter(|ids| ids.len() <= budget);
        if ids.is_none() {
            let offset = header.attrs.offset.saturating_add(index as u64 * entry);
            note(damaged, offset, "the ids of an event lie outside the file");
        }
        let ids = ids.unwrap_or_default();
        budget -= ids.len();
        let words = Cursor::new(ids, header.order).u64s(ids.len() as u64 / 8);
        let ids = words.map(|words| words.iter().collect());
        events.push(EventDescription::new(
            attr,
            ids.unwrap_or_default(),
            header.order,
        ));
    }
    Ok(events)
}

/// Returns the place of each feature section; `None` where their table is not in the file.
fn feature_sections(file: &[u8], header: &FileHeader) -> Option<Vec<(Feature, Section)>> {
    let bits: Vec<u32> = header.feature_bits().collect();
    let table = Section {
        offset: header.data.end().unwrap_or(u64::MAX),
        size: (bits.len() * SECTION_SIZE) as u64,
    };
    let mut at = Cursor::new(table.of(file)?, header.order);
    let section = |bit| (Feature(bit), Section::read(&mut at).unwrap_or_default());
    Some(bits.into_iter().map(section).collect())
}

/// Reads the feature sections; false where their table is not in the file.
fn read_features(
    file: &[u8],
    header: &FileHeader,
    features: &mut Features,
    described: &mut Vec<DescribedEvent>,
    damaged: &mut Vec<Damage>,
) -> bool {
    let Some(sections) = feature_sections(file, header) else {
        let offset = header.data.end().unwrap_or(u64::MAX);
        note(
            damaged,
            offset.min(file.len() as u64),
            "the table of feature sections is missing",
        );
        return false;
    };
    // As with ids: sections that overlap are none of a recorder's.
    let mut budget = file.len();
    let mut complete = true;
    for (feature, section) in sections {
        let bytes = section.of(file).filter(|bytes| bytes.len() <= budget);
        let Some(bytes) = bytes else {
            note(
                damaged,
                section.offset,
                format!("the section {feature} lies outside the file"),
            );
            complete = false;
            continue;
        };
        budget -= bytes.len();
        if let Err(SectionDamage { at, why }) =
            read_feature(features, described, feature, bytes, header.order)
        {
            note(damaged, section.offset.saturating_add(at), why);
            complete = false;
        }
    }
    complete
}

/// Reads the names that perf before 3.11 wrote.
fn read_event_types(file: &[u8], header: &FileHeader) -> Vec<(u64, String)> {
    let bytes = header.event_types.of(file).unwrap_or_default();
    bytes
        .chunks_exact(8 + EVENT_TYPE_NAME)
        .filter_map(|entry| {
            let mut at = Cursor::new(entry, header.order);
            let config = at.u64()?;
            let name = String::from_utf8_lossy(at.c_string()).into_owned();
            Some((config, name))
        })
        .collect()
}
