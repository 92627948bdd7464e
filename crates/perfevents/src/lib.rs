//! The sane interface to `perf_event_open`: events, sessions, rings and their records.

mod attr;
mod bytes;
pub mod record;

pub use attr::{
    ATTR_SIZE_IN_FILES, ATTR_SIZES, Attr, AttrFlags, ReadFormat, SampleType, event_type,
};
pub use bytes::{ByteOrder, Cursor, U64s};
