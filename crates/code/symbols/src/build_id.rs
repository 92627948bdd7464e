//! Build ids: which build of a file this is.

use std::fs::File;
use std::io;
use std::path::Path;

use object::read::ReadCache;

use crate::cause::FileDamage;
use crate::elf::Image;

/// The GNU build id of an ELF file (`NT_GNU_BUILD_ID`); `None` when the file has none or is no ELF
/// file.
///
/// # Errors
/// When the path is not a regular file, can't be read, or is a damaged ELF file
/// ([`io::ErrorKind::InvalidData`]).
pub fn build_id(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let cache = ReadCache::new(open_regular(path)?);
    match Image::parse(&cache) {
        Ok(image) => Ok(image.build_id().map(<[u8]>::to_vec)),
        Err(FileDamage::NotElf) => Ok(None),
        Err(error) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{}: {error}", path.display()),
        )),
    }
}

/// Opens a file for reading if it is a regular one; opening a named pipe would wait for its writer.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ));
    }
    File::open(path)
}

/// Whether a file's build id is the recorded one. Recordings hold 20 bytes and pad a shorter id with
/// zeros.
pub(crate) fn same_build(recorded: &[u8], found: &[u8]) -> bool {
    let trim = |id: &[u8]| {
        id.iter()
            .rposition(|&byte| byte != 0)
            .map_or(0, |last| last + 1)
    };
    recorded == found
        || (found.len() < recorded.len()
            && recorded.len() == 20
            && recorded.starts_with(found)
            && trim(recorded) <= found.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padded_ids_are_the_same_build() {
        let mut padded = [0u8; 20];
        padded[..8].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(same_build(&padded, &[1, 2, 3, 4, 5, 6, 7, 8]));
        assert!(!same_build(&padded, &[1, 2, 3, 4, 5, 6, 7]));
        assert!(!same_build(&[1, 2], &[1, 2, 3]));
        assert!(!same_build(&[1, 2, 3], &[1, 2]));
    }

    #[test]
    fn directories_and_devices_are_refused() {
        assert!(build_id(Path::new("/")).is_err());
        assert!(build_id(Path::new("/dev/null")).is_err());
        assert_eq!(build_id(Path::new("/proc/self/maps")).ok(), Some(None));
    }
}
