//! The first bytes of a recording: of a file with its sections, or of a pipe.

use crate::error::{OpenError, describe_beginning};
use dioptra_perfrecords::{ByteOrder, Cursor};

/// Bytes of a file's header with the bitmap of its features.
pub(crate) const FILE_HEADER_SIZE: usize = 104;
/// Bytes of a pipe's header.
pub(crate) const PIPE_HEADER_SIZE: usize = 16;
/// Bytes of a section's place, `offset` and `size`.
pub(crate) const SECTION_SIZE: usize = 16;

/// A part of the file: where it starts and how many bytes it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Section {
    pub offset: u64,
    pub size: u64,
}

impl Section {
    pub fn read(at: &mut Cursor<'_>) -> Option<Section> {
        Some(Section {
            offset: at.u64()?,
            size: at.u64()?,
        })
    }

    /// The section's bytes, `None` where it does not lie inside `file`.
    pub fn of(self, file: &[u8]) -> Option<&[u8]> {
        let start = usize::try_from(self.offset).ok()?;
        let size = usize::try_from(self.size).ok()?;
        file.get(start..)?.get(..size)
    }

    pub fn end(self) -> Option<u64> {
        self.offset.checked_add(self.size)
    }
}

/// The header of a recording.
#[derive(Clone, Debug)]
pub(crate) enum Header {
    File(FileHeader),
    Pipe { order: ByteOrder, size: u64 },
}

/// The header of a file.
#[derive(Clone, Debug)]
pub(crate) struct FileHeader {
    pub order: ByteOrder,
    /// Bytes of an entry in `attrs`: the attr and the place of its ids.
    pub attr_size: u64,
    pub attrs: Section,
    pub data: Section,
    /// Names of events, of perf before 3.11.
    pub event_types: Section,
    pub features: [u64; 4],
}

impl FileHeader {
    /// The features that the header announces, lowest first.
    pub fn feature_bits(&self) -> impl Iterator<Item = u32> + use<> {
        let words = self.features;
        (0..256_u32).filter(move |bit| words[(bit / 64) as usize] >> (bit % 64) & 1 != 0)
    }
}

/// The bit of HOSTNAME, which every perf writes.
const HOSTNAME: u64 = 1 << 3;

impl Header {
    /// Reads the header at the start of `bytes`; `name` is for messages.
    pub fn read(bytes: &[u8], name: &str) -> Result<Header, OpenError> {
        let order = check_magic(bytes, name)?;
        let damaged = |offset: usize, what| OpenError::Header {
            name: name.into(),
            offset: offset as u64,
            what,
        };
        let mut at = Cursor::new(&bytes[8..], order);
        let cut = || damaged(bytes.len(), "the file ends within its header");
        let size = at.u64().ok_or_else(cut)?;
        if size == PIPE_HEADER_SIZE as u64 {
            return Ok(Header::Pipe { order, size });
        }
        if size < (FILE_HEADER_SIZE - 32) as u64 {
            return Err(damaged(8, "the header states an impossible size"));
        }
        let mut read = || {
            Some(FileHeader {
                order,
                attr_size: at.u64()?,
                attrs: Section::read(&mut at)?,
                data: Section::read(&mut at)?,
                event_types: Section::read(&mut at)?,
                features: [0; 4],
            })
        };
        let mut header = read().ok_or_else(cut)?;
        if size >= FILE_HEADER_SIZE as u64 {
            for word in &mut header.features {
                *word = at.u64().ok_or_else(cut)?;
            }
            // A 32-bit big-endian perf writes the bitmap as 32-bit words.
            let swapped = header.features[0].rotate_left(32);
            if header.features[0] & HOSTNAME == 0 && swapped & HOSTNAME != 0 {
                header.features = header.features.map(|word| word.rotate_left(32));
            }
        }
        Ok(Header::File(header))
    }
}

/// The byte order that the magic tells, `None` where it is none of perf's.
/// The number of bytes at the start of a recording that [`check_magic`] looks at.
pub(crate) const MAGIC_SIZE: u64 = 16;

/// The byte order of the recording that starts with `bytes`; `name` is for messages.
pub(crate) fn check_magic(bytes: &[u8], name: &str) -> Result<ByteOrder, OpenError> {
    if bytes.is_empty() {
        return Err(OpenError::Empty { name: name.into() });
    }
    byte_order(bytes).ok_or_else(|| OpenError::NotPerfData {
        name: name.into(),
        begins: describe_beginning(bytes),
    })
}

fn byte_order(bytes: &[u8]) -> Option<ByteOrder> {
    match bytes.first_chunk::<8>()? {
        b"PERFILE2" => Some(ByteOrder::Little),
        b"2ELIFREP" => Some(ByteOrder::Big),
        // The first version's magic is text in either order: its header's size tells.
        b"PERFFILE" | b"ELIFFREP" => {
            let size = bytes.get(8..)?.first_chunk::<8>()?;
            let little = u64::from_le_bytes(*size) <= u64::from(u32::MAX);
            Some(if little {
                ByteOrder::Little
            } else {
                ByteOrder::Big
            })
        }
        _ => None,
    }
}
