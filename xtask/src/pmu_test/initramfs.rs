//! The guest's first file system: a cpio archive in the format that the kernel unpacks at its start ("newc", as
//! `Documentation/driver-api/early-userspace/buffer-format.rst` of the kernel describes it).

/// An archive in memory.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

const FOLDER: u32 = 0o040_755;
const EXECUTABLE: u32 = 0o100_755;

impl Archive {
    /// Adds a folder; those above it come first.
    pub fn folder(&mut self, name: &str) {
        self.entry(name, FOLDER, &[]);
    }

    /// Adds an executable file.
    pub fn file(&mut self, name: &str, content: &[u8]) {
        self.entry(name, EXECUTABLE, content);
    }

    /// The whole archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let length = u32::try_from(content.len()).expect("a file of the guest is below 4 GiB");
        let name_length = u32::try_from(name.len() + 1).expect("a short name");
        // inode, mode, uid, gid, links, mtime, size, device (2), special device (2), name's length, checksum
        let fields = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            length,
            0,
            0,
            0,
            0,
            name_length,
            0,
        ];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08X}").bytes());
        }
        self.bytes.extend(name.bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend(content);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::Archive;

    #[test]
    fn entries_are_aligned_and_end_with_a_trailer() {
        let mut archive = Archive::default();
        archive.folder("bin");
        archive.file("bin/x", b"12345");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        // 110 bytes of header, the name with its zero, then the content, each padded to four bytes.
        assert_eq!(&bytes[110..114], b"bin\0");
        assert_eq!(&bytes[116..122], b"070701");
        assert_eq!(&bytes[116 + 54..116 + 62], b"00000005");
        assert_eq!(&bytes[116 + 110..116 + 116], b"bin/x\0");
        assert_eq!(&bytes[232..237], b"12345");
        assert!(bytes.ends_with(b"TRAILER!!!\0\0\0\0"));
    }
}
