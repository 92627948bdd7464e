//! Where functions lie, by the unwind tables, which even a stripped file keeps.

use std::mem::size_of_val;
use std::ops::Range;

use gimli::{
    BaseAddresses, CieOrFde, EhFrame, EhFrameHdr, EndianSlice, RunTimeEndian, UnwindSection,
};
use object::endian::Endianness;
use object::read::ReadRef;

use crate::elf::Image;

/// Ranges of code, sorted by start; none overlaps the next.
#[derive(Debug, Default)]
pub(crate) struct Extents {
    starts: Vec<u64>,
    sizes: Vec<u32>,
}

impl Extents {
    /// Reads `.eh_frame`: all ranges, or with `wanted` those that cover one of these virtual addresses, for which the
    /// file's sorted index (`.eh_frame_hdr`) is enough. A range is kept when `place` knows the file offset of its
    /// address. What can't be read is left out: extents are a help where names are missing already.
    pub(crate) fn read<'d, R: ReadRef<'d>>(
        image: &Image<'d, R>,
        wanted: Option<&[u64]>,
        place: impl Fn(u64) -> Option<u64>,
    ) -> Self {
        let Some(section) = image.section_named(b".eh_frame") else {
            return Self::default();
        };
        let Ok(bytes) = image.bytes(section) else {
            return Self::default();
        };
        let endian = match image.endian() {
            Endianness::Little => RunTimeEndian::Little,
            Endianness::Big => RunTimeEndian::Big,
        };
        let address_size = if image.is_64() { 8 } else { 4 };
        let mut frames = EhFrame::from(EndianSlice::new(bytes, endian));
        frames.set_address_size(address_size);
        let address_of = |name: &[u8]| {
            image
                .section_named(name)
                .map_or(0, |section| section.address)
        };
        let bases = BaseAddresses::default()
            .set_eh_frame(section.address)
            .set_eh_frame_hdr(address_of(b".eh_frame_hdr"))
            .set_text(address_of(b".text"))
            .set_got(address_of(b".got"));
        let range = |start: u64, size: u64| {
            let size = u32::try_from(size).ok().filter(|size| *size > 0)?;
            Some((place(start)?, size))
        };
        let index = wanted.zip(image.section_named(b".eh_frame_hdr"));
        if let Some((wanted, index)) = index
            && let Ok(bytes) = image.bytes(index)
            && let Ok(header) =
                EhFrameHdr::from(EndianSlice::new(bytes, endian)).parse(&bases, address_size)
            && let Some(table) = header.table()
        {
            let found = wanted.iter().filter_map(|address| {
                let fde = table
                    .fde_for_address(&frames, &bases, *address, EhFrame::cie_from_offset)
                    .ok()?;
                range(fde.initial_address(), fde.len())
            });
            return Self::of(found.collect());
        }
        let mut ranges: Vec<(u64, u32)> = Vec::new();
        let mut entries = frames.entries(&bases);
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else {
                continue;
            };
            let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else {
                continue;
            };
            ranges.extend(range(fde.initial_address(), fde.len()));
        }
        Self::of(ranges)
    }

    /// Sorts ranges (start, size); none reaches into the next.
    fn of(mut ranges: Vec<(u64, u32)>) -> Self {
        ranges.sort_unstable();
        ranges.dedup_by_key(|&mut (start, _)| start);
        let mut extents = Self::default();
        let mut ranges = ranges.into_iter().peekable();
        while let Some((start, size)) = ranges.next() {
            let room = ranges.peek().map_or(u64::MAX, |&(next, _)| next - start);
            extents.starts.push(start);
            // No more than `size`, so it fits.
            extents.sizes.push(u64::from(size).min(room) as u32);
        }
        extents
    }

    /// The range that covers a file offset.
    pub(crate) fn find(&self, offset: u64) -> Option<Range<u64>> {
        let index = self
            .starts
            .partition_point(|&start| start <= offset)
            .checked_sub(1)?;
        let start = *self.starts.get(index)?;
        let range = start..start.saturating_add(u64::from(*self.sizes.get(index)?));
        range.contains(&offset).then_some(range)
    }

    /// Heap memory held, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&self.starts[..]) + size_of_val(&self.sizes[..])
    }
}
