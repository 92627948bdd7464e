//! Ids: hexadecimal digits that derive from content, so that a thing has the same id on every machine.
//!
//! Profiles and imports have 32 digits. Functions, modules and stacks have 20, since their ids are most of a store's
//! bytes: among a hundred million functions two share an id with a probability of 4 in 10⁹.

use crate::error::StoreError;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

/// Hashes the parts of a thing into its id.
///
/// Each part goes in with its length, so that no two lists of parts look alike.
#[derive(Clone, Debug)]
pub(crate) struct Hasher(Sha256);

impl Hasher {
    /// Makes the hasher of a kind of thing. Things of different kinds never share an id.
    pub(crate) fn new(kind: &str) -> Hasher {
        let mut hasher = Hasher(Sha256::new());
        hasher.text(kind);
        hasher
    }

    /// Adds bytes.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    /// Adds a text.
    pub(crate) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// Adds a text that may be missing.
    pub(crate) fn optional(&mut self, text: Option<&str>) {
        self.0.update([u8::from(text.is_some())]);
        self.text(text.unwrap_or_default());
    }

    /// Adds a number.
    pub(crate) fn number(&mut self, number: i64) {
        self.0.update(number.to_le_bytes());
    }

    /// Adds a number that may be missing.
    pub(crate) fn optional_number(&mut self, number: Option<i64>) {
        self.0.update([u8::from(number.is_some())]);
        self.number(number.unwrap_or_default());
    }

    /// Returns the id of a profile or an import.
    pub(crate) fn id(self) -> String {
        hexadecimal(&self.0.finalize()[..16])
    }

    /// Returns the id of a function, a module or a stack.
    pub(crate) fn short_id(self) -> String {
        hexadecimal(&self.0.finalize()[..10])
    }
}

/// Returns the SHA-256 of bytes as 64 hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// Returns bytes as hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string never fails.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Returns the id of a file's content, the first half of its SHA-256, and its size in bytes.
///
/// # Errors
/// The file can't be read.
pub(crate) fn of_file(path: &Path) -> std::io::Result<(String, u64)> {
    let mut hash = Sha256::new();
    let size = add_file(path, &mut hash)?;
    Ok((hexadecimal(&hash.finalize()[..16]), size))
}

/// Returns the id of some files of a folder, and the sum of their sizes in bytes. Files that are missing count as such.
///
/// # Errors
/// A file can't be read.
pub(crate) fn of_files(folder: &Path, names: &[&str]) -> Result<(String, u64), StoreError> {
    let mut whole = Hasher::new("folder");
    let mut sum = 0;
    for name in names {
        let path = folder.join(name);
        whole.text(name);
        let mut hash = Sha256::new();
        match add_file(&path, &mut hash) {
            Ok(size) => {
                sum += size;
                whole.bytes(&hash.finalize());
            }
            Err(error) if error.kind() == ErrorKind::NotFound => whole.bytes(&[]),
            Err(error) => return Err(StoreError::file(path)(error)),
        }
    }
    Ok((whole.id(), sum))
}

/// Adds a file's bytes to a hash, and returns their number.
fn add_file(path: &Path, hash: &mut Sha256) -> std::io::Result<u64> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    let mut size = 0;
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(size);
        }
        hash.update(&buffer[..read]);
        size += read as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_run_into_each_other() {
        let id = |parts: &[&str]| {
            let mut hasher = Hasher::new("test");
            parts.iter().for_each(|part| hasher.text(part));
            hasher.id()
        };
        assert_ne!(id(&["ab", "c"]), id(&["a", "bc"]));
        assert_eq!(id(&["ab", "c"]), id(&["ab", "c"]));
        assert_eq!(id(&[]).len(), 32);
    }

    #[test]
    fn files_have_the_hash_that_sha256sum_prints() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("abc");
        std::fs::write(&path, "abc").unwrap();
        // From FIPS 180-2, appendix B.1.
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(of_file(&path).unwrap(), (known[..32].to_owned(), 3));
        assert_eq!(sha256(b"abc"), known);
    }
}
