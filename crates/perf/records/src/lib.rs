#![doc = include_str!("../README.md")]

mod attr;
mod bytes;
pub mod names;
pub mod record;
mod unsampled;

pub use attr::{
    ATTR_SIZE_IN_FILES, ATTR_SIZES, Attr, AttrFlags, ReadFormat, SampleType, event_type,
};
pub use bytes::{ByteOrder, Cursor, U64s};
pub use unsampled::Unsampled;
