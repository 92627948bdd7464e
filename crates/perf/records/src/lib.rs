//! The kernel's ABI of `perf_event_open(2)` as plain values: attributes, byte order, and every record of a ring.
//!
//! The crate makes no system call and builds on any system: it serves whoever records, and whoever reads what somebody
//! else recorded, on a machine of another byte order.
//!
//! ```
//! use dioptra_perfrecords::record::{RawRecord, Record, RecordLayout};
//! use dioptra_perfrecords::{Attr, ByteOrder, SampleType};
//!
//! let attr = Attr { sample_type: SampleType::IP | SampleType::TID, ..Attr::default() };
//! let layout = RecordLayout::new(&attr, ByteOrder::Little);
//! // The header (kind 9 is a sample, misc 2 is user space, 24 bytes), the address, the process and the thread.
//! let mut bytes = vec![9, 0, 0, 0, 2, 0, 24, 0];
//! bytes.extend(0x40_1000_u64.to_le_bytes());
//! bytes.extend([7, 0, 0, 0, 8, 0, 0, 0]);
//! let (raw, rest) = RawRecord::split(&bytes, ByteOrder::Little)?;
//! assert!(rest.is_empty());
//! let Record::Sample(sample) = layout.parse(&raw)? else { panic!("a sample") };
//! assert_eq!((sample.ip, sample.pid, sample.tid), (Some(0x40_1000), Some(7), Some(8)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Parsing is total: any bytes give a record or an error, never a panic, and no record reaches beyond its own bytes.

mod attr;
mod bytes;
pub mod names;
pub mod record;

pub use attr::{
    ATTR_SIZE_IN_FILES, ATTR_SIZES, Attr, AttrFlags, ReadFormat, SampleType, event_type,
};
pub use bytes::{ByteOrder, Cursor, U64s};
