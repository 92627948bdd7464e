//! A ring buffer shared with the kernel: whole records out of it, in order, each as one contiguous view.

use crate::ByteOrder;
use crate::record::{HEADER_SIZE, RawRecord, RecordError};
use crate::sys::{self, Mapping};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where `data_head` stands in the control page (`struct perf_event_mmap_page`), in bytes.
const DATA_HEAD: usize = 1024;
/// Where `data_tail` stands.
const DATA_TAIL: usize = 1032;

/// Bytes after which space is handed back to the kernel within one drain: small enough that a writer rarely finds a
/// ring full whose reader is at work, large enough that the shared line is written rarely.
const HAND_BACK: u64 = 64 << 10;

/// A mapped ring buffer.
pub struct Ring {
    mapping: Mapping,
    /// Bytes of records that fit; a power of two.
    size: usize,
    /// Where a record lies whole that wraps around the ring's end.
    scratch: Vec<u8>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("size", &self.size).finish()
    }
}

/// The result of draining a ring once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drained {
    /// The number of whole records.
    pub records: u64,
    /// The bytes of these records.
    pub bytes: u64,
    /// Bytes that made no record and were skipped; zero unless the ring was damaged.
    pub damaged: u64,
}

impl Ring {
    /// Maps a ring of `pages` data pages, a power of two, for the event `fd`.
    ///
    /// # Errors
    /// The kernel's: `EINVAL` for other sizes or an inheriting event on all CPUs, `EPERM` over the limit of locked
    /// memory, `EBUSY` for an event whose output goes elsewhere.
    pub fn new(fd: BorrowedFd<'_>, pages: usize) -> io::Result<Ring> {
        let size = pages
            .checked_mul(sys::page_size())
            .filter(|_| pages.is_power_of_two())
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        Ok(Ring {
            mapping: Mapping::new(fd, size)?,
            size,
            scratch: Vec::new(),
        })
    }

    /// Returns the number of bytes of records that fit.
    pub fn size(&self) -> usize {
        self.size
    }

    fn counter(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: callers make sure that the ring is mapped. Both offsets lie in the mapped control page, aligned to
        // eight; the kernel and we agree that the words are only read and written whole.
        unsafe { AtomicU64::from_ptr(self.mapping.base().add(offset).cast()) }
    }

    /// Returns the number of bytes that wait to be read; zero in a forked child, which has no rings.
    pub fn waiting(&self) -> u64 {
        if !self.mapping.is_mapped() {
            return 0;
        }
        let head = self.counter(DATA_HEAD).load(Ordering::Acquire);
        head.wrapping_sub(self.counter(DATA_TAIL).load(Ordering::Relaxed))
    }

    /// Passes every record that is in the ring now to `each`, oldest first: its bytes with header, and its parts.
    ///
    /// Records that arrive meanwhile stay for the next drain, so that a busy ring can't hold the reader for ever. In a
    /// forked child, which has no rings, nothing is found.
    pub fn drain(&mut self, mut each: impl FnMut(&[u8], &RawRecord<'_>)) -> Drained {
        if !self.mapping.is_mapped() {
            return Drained::default();
        }
        let head = self.counter(DATA_HEAD).load(Ordering::Acquire);
        let mut tail = self.counter(DATA_TAIL).load(Ordering::Relaxed);
        let mut handed_back = tail;
        let mut drained = Drained::default();
        let waiting = head.wrapping_sub(tail);
        if waiting > self.size as u64 {
            // The kernel never writes past the tail of a writable ring: someone else wrote into the page.
            drained.damaged = waiting;
            tail = head;
        }
        // SAFETY: the data pages follow the control page. The kernel doesn't write between tail and head, and only
        // those bytes are looked at.
        let data = unsafe {
            std::slice::from_raw_parts(self.mapping.base().add(sys::page_size()), self.size)
        };
        while tail != head {
            let at = (tail as usize) & (self.size - 1);
            let left = head.wrapping_sub(tail) as usize;
            match whole_record(data, at, left, &mut self.scratch) {
                Ok((bytes, record)) => {
                    each(bytes, &record);
                    drained.records += 1;
                    drained.bytes += bytes.len() as u64;
                    tail = tail.wrapping_add(bytes.len() as u64);
                }
                Err(_) => {
                    drained.damaged += left as u64;
                    tail = head;
                }
            }
            if tail.wrapping_sub(handed_back) >= HAND_BACK {
                self.counter(DATA_TAIL).store(tail, Ordering::Release);
                handed_back = tail;
            }
        }
        if tail != handed_back {
            self.counter(DATA_TAIL).store(tail, Ordering::Release);
        }
        drained
    }
}

/// Returns the record at offset `at` of the circular `data`, of which `left` bytes are valid: in place where it is
/// contiguous, otherwise put together in `scratch`.
fn whole_record<'a>(
    data: &'a [u8],
    at: usize,
    left: usize,
    scratch: &'a mut Vec<u8>,
) -> Result<(&'a [u8], RawRecord<'a>), RecordError> {
    let until_end = data.len() - at;
    let first = &data[at..at + until_end.min(left)];
    if left <= until_end {
        let (record, _) = RawRecord::split(first, ByteOrder::NATIVE)?;
        return Ok((&first[..HEADER_SIZE + record.body.len()], record));
    }
    if let Ok((record, _)) = RawRecord::split(first, ByteOrder::NATIVE) {
        return Ok((&first[..HEADER_SIZE + record.body.len()], record));
    }
    // The record wraps. A record is at most 65,535 bytes long.
    scratch.clear();
    scratch.extend_from_slice(first);
    let more = (left - first.len()).min(usize::from(u16::MAX));
    scratch.extend_from_slice(&data[..more.min(at)]);
    let (record, _) = RawRecord::split(scratch, ByteOrder::NATIVE)?;
    Ok((&scratch[..HEADER_SIZE + record.body.len()], record))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::RecordType;
    use proptest::prelude::*;

    fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let size = u16::try_from(HEADER_SIZE + body.len()).expect("a short record");
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(0_u16.to_ne_bytes());
        bytes.extend(size.to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    #[test]
    fn a_record_that_wraps_at_any_offset_is_whole() {
        let size = 256;
        let body: Vec<u8> = (0..120).collect();
        let bytes = record(9, &body);
        for start in 0..size {
            let mut data = vec![0xAA; size];
            for (index, byte) in bytes.iter().enumerate() {
                data[(start + index) % size] = *byte;
            }
            let mut scratch = Vec::new();
            let (whole, parts) =
                whole_record(&data, start, bytes.len(), &mut scratch).expect("a record");
            assert_eq!(whole, bytes, "at {start}");
            assert_eq!((parts.kind, parts.body), (RecordType::SAMPLE, &body[..]));
        }
    }

    proptest! {
        #[test]
        fn records_come_out_as_they_went_in(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..64), 1..6),
            start in 0_usize..512,
        ) {
            let size = 512;
            let mut data = vec![0; size];
            let records: Vec<Vec<u8>> = bodies.iter().map(|body| record(1, body)).collect();
            let total: usize = records.iter().map(Vec::len).sum();
            for (index, byte) in records.iter().flatten().enumerate() {
                data[(start + index) % size] = *byte;
            }
            let mut scratch = Vec::new();
            let (mut at, mut left) = (start, total);
            for expected in &records {
                let (whole, _) = whole_record(&data, at % size, left, &mut scratch).expect("a record");
                prop_assert_eq!(whole, &expected[..]);
                at += expected.len();
                left -= expected.len();
            }
        }

        #[test]
        fn any_bytes_are_a_record_or_an_error(
            data in prop::collection::vec(any::<u8>(), 64..=64),
            at in 0_usize..64,
            left in 0_usize..=64,
        ) {
            let mut scratch = Vec::new();
            if let Ok((whole, parts)) = whole_record(&data, at, left, &mut scratch) {
                prop_assert!(whole.len() <= left);
                prop_assert_eq!(whole.len(), HEADER_SIZE + parts.body.len());
            }
        }
    }
}
