//! The code the kernel maps into every process.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// More than any kernel maps; a size beyond it means the map was misread.
const LARGEST: u64 = 1 << 20;

/// A copy of this process's own vdso. File offsets in it are offsets from its start in memory.
pub(crate) fn image() -> io::Result<Vec<u8>> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let (start, end) = maps
        .lines()
        .find(|line| line.ends_with("[vdso]"))
        .and_then(|line| line.split_whitespace().next()?.split_once('-'))
        .and_then(|(start, end)| {
            Some((
                u64::from_str_radix(start, 16).ok()?,
                u64::from_str_radix(end, 16).ok()?,
            ))
        })
        .filter(|(start, end)| start < end && end - start <= LARGEST)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "this process has no vdso"))?;
    let mut bytes = vec![0; (end - start) as usize];
    File::open("/proc/self/mem")?.read_exact_at(&mut bytes, start)?;
    Ok(bytes)
}
