//! A file that is read in blocks, because little of it may be needed.

use object::{ReadCache, ReadRef};
use std::cell::OnceCell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// The size of a small file's blocks in bytes. Names of symbols lie close to each other, so one block serves many of
/// them.
const BLOCK: u64 = 16 << 10;
/// The largest number of blocks. A large file has larger blocks.
const BLOCKS: u64 = 1 << 14;

/// A file whose blocks are read when they are first asked for.
#[derive(Debug)]
pub struct Glance<'f> {
    file: &'f File,
    size: u64,
    block: u64,
    /// The blocks that were read; `None` inside if a block can't be read.
    blocks: Vec<OnceCell<Option<Box<[u8]>>>>,
    /// The cache for reads that no single block holds.
    others: ReadCache<&'f File>,
}

impl<'f> Glance<'f> {
    /// Makes a view of this file. Nothing is read yet.
    ///
    /// # Errors
    /// If its size is not known.
    pub fn new(file: &'f File) -> io::Result<Glance<'f>> {
        let size = file.metadata()?.len();
        let block = size.div_ceil(BLOCKS).next_multiple_of(BLOCK).max(BLOCK);
        let count = size.div_ceil(block) as usize;
        Ok(Glance {
            file,
            size,
            block,
            blocks: std::iter::repeat_with(OnceCell::new).take(count).collect(),
            others: ReadCache::new(file),
        })
    }

    /// Returns the bytes from an offset to the end of its block.
    fn rest_of_block(&self, offset: u64) -> Option<&[u8]> {
        let number = offset / self.block;
        let read = || {
            let start = number * self.block;
            let size = self.block.min(self.size.checked_sub(start)?);
            let mut bytes = vec![0; size as usize].into_boxed_slice();
            self.file.read_exact_at(&mut bytes, start).ok()?;
            Some(bytes)
        };
        let bytes = self.blocks.get(number as usize)?.get_or_init(read).as_ref();
        bytes?.get((offset % self.block) as usize..)
    }
}

impl<'a> ReadRef<'a> for &'a Glance<'_> {
    fn len(self) -> Result<u64, ()> {
        Ok(self.size)
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        if offset % self.block + size.min(self.block) <= self.block && size <= self.block {
            let bytes = self.rest_of_block(offset).ok_or(())?;
            return bytes.get(..size as usize).ok_or(());
        }
        self.others.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        let size = range.end.checked_sub(range.start).ok_or(())?;
        let bytes = self.rest_of_block(range.start).ok_or(())?;
        let bytes = bytes.get(..size as usize).unwrap_or(bytes);
        match bytes.iter().position(|&byte| byte == delimiter) {
            Some(end) => Ok(&bytes[..end]),
            None => self.others.read_bytes_at_until(range, delimiter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_what_the_file_holds() {
        let path = std::env::current_exe().unwrap();
        let whole = std::fs::read(&path).unwrap();
        let file = File::open(&path).unwrap();
        let (glance, data) = (Glance::new(&file).unwrap(), whole.as_slice());
        let size = whole.len() as u64;
        assert_eq!(ReadRef::len(&glance), Ok(size));
        let ends = [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, size - 1, size];
        for start in ends {
            for end in ends.into_iter().filter(|&end| end >= start) {
                assert_eq!(
                    ReadRef::read_bytes_at(&glance, start, end - start),
                    ReadRef::read_bytes_at(data, start, end - start)
                );
                // Only lengths of names are compared: a `ReadCache` gives up after some thousand bytes.
                let end = end.min(start + 4096);
                assert_eq!(
                    ReadRef::read_bytes_at_until(&glance, start..end, 0),
                    ReadRef::read_bytes_at_until(data, start..end, 0)
                );
            }
        }
        assert!(ReadRef::read_bytes_at(&glance, size, 1).is_err());
        assert!(ReadRef::read_bytes_at(&glance, size - 1, u64::MAX).is_err());
    }
}
