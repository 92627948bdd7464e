//! The running kernel's symbols as an earlier run has read them, in a file.
//!
//! The file holds the lines of `/proc/kallsyms` and their places by address, so that a few addresses are found without
//! a look at the other hundred thousand lines. It is used only if it is the user's own, readable by nobody else, whole, and
//! of this start of this kernel with these modules:
//!
//! | bytes | content |
//! |---|---|
//! | 8 | magic, with the version of this form |
//! | 4 | CRC-32 of everything behind it |
//! | 4 | length of the key |
//! | 4 | number of lines |
//! | 4 | length of the text |
//! | … | the key: boot id, build id, modules |
//! | 8 each | addresses, rising |
//! | 4 each | where the lines begin in the text |
//! | … | the text |

use crate::kallsyms::{Line, Lines};
use dioptra_mapped::MappedFile;
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

const MAGIC: &[u8; 8] = b"DIOksym1";
const HEADER: usize = 24;
/// The file's name in the cache's folder.
const NAME: &str = "kallsyms";

/// A file that has been checked.
pub(crate) struct KallsymsCache {
    file: MappedFile,
    addresses: Range<usize>,
    starts: Range<usize>,
    text: Range<usize>,
}

/// The state of the running kernel on which its symbols depend: what it was started with, its build and its modules.
/// `None` where the kernel does not tell.
pub(crate) fn current_key() -> Option<Vec<u8>> {
    let boot = fs::read("/proc/sys/kernel/random/boot_id").ok()?;
    let build = crate::kernel::running_build_id()?;
    // Kernels without modules have no such file.
    let modules = fs::read_to_string("/proc/modules").unwrap_or_default();
    Some(key(&boot, &build, &modules))
}

fn key(boot: &[u8], build: &[u8], modules: &str) -> Vec<u8> {
    let mut key = boot.to_vec();
    key.extend(build);
    for module in modules.lines() {
        // Name, size, state and address: how often a module is used, and by whom, changes all the time.
        let fields: Vec<&str> = module.split_ascii_whitespace().collect();
        for index in [0, 1, 4, 5] {
            key.push(b' ');
            key.extend(fields.get(index).unwrap_or(&"").as_bytes());
        }
    }
    key
}

impl KallsymsCache {
    /// Opens the file of this folder, if it has this key and can be trusted.
    pub fn open(folder: &Path, key: &[u8]) -> Option<Self> {
        let file = open_own(&folder.join(NAME)).ok()?;
        let file = MappedFile::new(&file).ok()?;
        let header = file.get(..HEADER)?;
        let number = |at: usize| {
            header[at..]
                .first_chunk()
                .map(|bytes| u32::from_le_bytes(*bytes))
        };
        let length = |at: usize| number(at).map(|number| number as usize);
        let (key_length, lines, text_length) = (length(12)?, length(16)?, length(20)?);
        let addresses = HEADER.checked_add(key_length)?;
        let starts = addresses.checked_add(lines.checked_mul(8)?)?;
        let text = starts.checked_add(lines.checked_mul(4)?)?;
        let end = text.checked_add(text_length)?;
        let is_whole = header.starts_with(MAGIC)
            && file.len() == end
            && file.get(HEADER..addresses)? == key
            && crc32fast::hash(&file[12..]) == number(8)?
            && !file.has_faulted();
        is_whole.then_some(KallsymsCache {
            file,
            addresses: addresses..starts,
            starts: starts..text,
            text: text..end,
        })
    }

    /// The lines of the kernel and its modules.
    pub fn lines(&self) -> Lines<'_> {
        let part = |range: &Range<usize>| &self.file[range.clone()];
        Lines::stored(part(&self.text), part(&self.addresses), part(&self.starts))
    }
}

/// Whether a line's code comes and goes while the modules stay the same: BPF programs, trampolines, probes.
fn is_fleeting(line: &[u8]) -> bool {
    let module = Line::parse(line).and_then(|line| line.module);
    module.is_some_and(|module| module == b"bpf" || module.starts_with(b"__builtin__"))
}

/// Stores the lines of a kallsyms file.
pub(crate) fn store(folder: &Path, key: &[u8], text: &[u8]) -> io::Result<()> {
    let mut kept = Vec::with_capacity(text.len());
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if !is_fleeting(line.trim_ascii_end()) {
            kept.extend_from_slice(line);
        }
    }
    let lines = Lines::new(&kept, |_, _| {});
    let places = || (0..lines.len()).filter_map(|index| lines.place(index));
    let number = |number: usize| {
        let number = u32::try_from(number).map_err(|_| io::ErrorKind::InvalidData);
        number.map(u32::to_le_bytes)
    };
    let mut bytes = MAGIC.to_vec();
    bytes.extend([0; 4]);
    for length in [key.len(), lines.len(), kept.len()] {
        bytes.extend(number(length)?);
    }
    bytes.extend(key);
    places().for_each(|(address, _)| bytes.extend(address.to_le_bytes()));
    places().for_each(|(_, start)| bytes.extend(start.to_le_bytes()));
    bytes.extend(&kept);
    let checksum = crc32fast::hash(&bytes[12..]);
    bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
    write_own(folder, &bytes)
}

fn refused(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

/// The user as whom this process acts.
fn user() -> io::Result<u32> {
    Ok(fs::metadata("/proc/self")?.uid())
}

/// Opens a file that is the user's own and that nobody else can read or write.
fn open_own(path: &Path) -> io::Result<File> {
    // Neither a link nor a pipe is a file of ours; the file that was opened is the one that is checked again.
    if !fs::symlink_metadata(path)?.is_file() {
        return Err(refused("no file"));
    }
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    match metadata.is_file() && metadata.uid() == user()? && metadata.mode() & 0o7777 == 0o600 {
        true => Ok(file),
        false => Err(refused("not a file of this user alone")),
    }
}

/// Replaces the file in a folder that only the user can write; the folder is made if there is none.
fn write_own(folder: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(parent) = folder.parent() {
        fs::create_dir_all(parent)?;
    }
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let metadata = fs::symlink_metadata(folder)?;
    if !metadata.is_dir() || metadata.uid() != user()? || metadata.mode() & 0o022 != 0 {
        return Err(refused("not a folder that only this user can write"));
    }
    let scratch = folder.join(format!(".{NAME}.{}", std::process::id()));
    let _ = fs::remove_file(&scratch);
    let write = || {
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&scratch)?;
        file.write_all(bytes)?;
        fs::rename(&scratch, folder.join(NAME))
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&scratch);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use tempfile::TempDir;

    const TEXT: &[u8] = b"\
ffffffff81000000 T _text
ffffffff81000100 t work
ffffffff81000000 T _stext
ffffffffc0201000 t mod_f\t[ext4]
ffffffffc0300000 t ftrace_trampoline\t[__builtin__ftrace]
ffffffffc0900000 t bpf_prog_1234\t[bpf]
";

    fn stored() -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        store(&folder.path().join("dioptra"), b"key", TEXT).unwrap();
        folder
    }

    fn open(folder: &TempDir, key: &[u8]) -> Option<KallsymsCache> {
        KallsymsCache::open(&folder.path().join("dioptra"), key)
    }

    #[test]
    fn lines_come_back_without_those_that_come_and_go() {
        let folder = stored();
        let cache = open(&folder, b"key").unwrap();
        let lines = cache.lines();
        let lines: Vec<(u64, &[u8])> = (0..lines.len())
            .map(|index| lines.line(index).unwrap())
            .map(|line| (line.address, line.name))
            .collect();
        assert_eq!(
            lines,
            [
                (0xffff_ffff_8100_0000, &b"_text"[..]),
                (0xffff_ffff_8100_0000, b"_stext"),
                (0xffff_ffff_8100_0100, b"work"),
                (0xffff_ffff_c020_1000, b"mod_f"),
            ]
        );
    }

    #[test]
    fn other_keys_and_strange_files_are_refused() {
        let folder = stored();
        let path = folder.path().join("dioptra").join(NAME);
        assert!(open(&folder, b"other").is_none());
        let whole = fs::read(&path).unwrap();
        let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        for wrong in [0o644, 0o660, 0o400, 0o700] {
            mode(wrong);
            assert!(open(&folder, b"key").is_none(), "{wrong:o}");
        }
        mode(0o600);
        assert!(open(&folder, b"key").is_some());
        // Each byte matters, and so does the length.
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x11;
            fs::write(&path, &damaged).unwrap();
            assert!(open(&folder, b"key").is_none(), "{at}");
        }
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            assert!(open(&folder, b"key").is_none(), "{length}");
        }
        fs::write(&path, [&whole[..], b"x"].concat()).unwrap();
        assert!(open(&folder, b"key").is_none());
        // A link is not the file.
        let elsewhere = folder.path().join("elsewhere");
        fs::write(&elsewhere, &whole).unwrap();
        fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o600)).unwrap();
        fs::remove_file(&path).unwrap();
        symlink(&elsewhere, &path).unwrap();
        assert!(open(&folder, b"key").is_none());
        // Storing replaces the link, not what it leads to.
        store(&folder.path().join("dioptra"), b"new", TEXT).unwrap();
        assert!(open(&folder, b"new").is_some());
        assert_eq!(fs::read(&elsewhere).unwrap(), whole);
        // Nothing is written where others can write.
        let open_to_all = folder.path().join("open");
        fs::create_dir(&open_to_all).unwrap();
        fs::set_permissions(&open_to_all, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(store(&open_to_all, b"key", TEXT).is_err());
        assert_eq!(fs::read_dir(&open_to_all).unwrap().count(), 0);
    }

    #[test]
    fn modules_and_starts_make_keys() {
        let modules =
            "ext4 741376 1 - Live 0xffffffffc0201000\ncrc 16384 2 ext4, Live 0xffffffffc0100000\n";
        let same = key(b"boot", b"build", modules);
        // The number of a module's users does not matter.
        let used = modules.replace(" 1 - ", " 3 fuse, ");
        assert_eq!(key(b"boot", b"build", &used), same);
        for other in [
            key(b"other", b"build", modules),
            key(b"boot", b"other", modules),
            key(b"boot", b"build", ""),
            key(b"boot", b"build", &modules.replace("c0201", "c0202")),
            key(b"boot", b"build", &modules.replacen("Live", "Loading", 1)),
            key(b"boot", b"build", &format!("{modules}new 1 0 - Live 0x0\n")),
        ] {
            assert_ne!(other, same);
        }
    }
}
