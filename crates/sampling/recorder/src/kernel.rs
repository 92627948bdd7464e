//! The addresses of the kernel and its modules, and their build ids.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// The kernel's text in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelText {
    /// The symbol at its start, from which a reader computes how far the kernel has moved: `_text` or `_stext`.
    pub reference: &'static str,
    /// The first address.
    pub start: u64,
    /// The address behind the last one.
    pub end: u64,
}

/// A loaded kernel module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelModule {
    /// Its name, such as `ext4`.
    pub name: String,
    /// The first address.
    pub start: u64,
    /// The size in bytes.
    pub length: u64,
}

/// Finds the kernel's text; `None` where the kernel hides its addresses (`kptr_restrict`) or has no symbols.
pub fn text() -> Option<KernelText> {
    text_in(BufReader::new(File::open("/proc/kallsyms").ok()?))
}

fn text_in(mut kallsyms: impl BufRead) -> Option<KernelText> {
    let mut found: [Option<u64>; 3] = [None; 3];
    let mut line = Vec::new();
    loop {
        line.clear();
        if kallsyms.read_until(b'\n', &mut line).ok()? == 0 {
            break;
        }
        // Modules and BPF programs follow the kernel itself; all lines before them are `address type name`.
        let text = line.trim_ascii_end();
        let slot = if text.ends_with(b" _text") {
            0
        } else if text.ends_with(b" _stext") {
            1
        } else if text.ends_with(b" _etext") {
            2
        } else {
            continue;
        };
        let address = text.split(|byte| *byte == b' ').next()?;
        found[slot] = u64::from_str_radix(str::from_utf8(address).ok()?, 16).ok();
        if found.iter().all(Option::is_some) {
            break;
        }
    }
    let [text, stext, end] = found;
    let (reference, start) = match (text, stext) {
        (Some(start), _) => ("_text", start),
        (None, Some(start)) => ("_stext", start),
        (None, None) => return None,
    };
    let end = end?;
    (start != 0 && end > start).then_some(KernelText {
        reference,
        start,
        end,
    })
}

/// Returns the loaded modules; none where their addresses are hidden, or where the kernel knows no modules.
pub fn modules() -> Vec<KernelModule> {
    parse_modules(&fs::read_to_string("/proc/modules").unwrap_or_default())
}

/// Parses lines such as `ext4 1044480 1 mbcache,jbd2, Live 0xffffffffc0400000`.
fn parse_modules(text: &str) -> Vec<KernelModule> {
    let parse = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let name = words.next()?.to_owned();
        let length = words.next()?.parse().ok()?;
        let address = words.find(|word| word.starts_with("0x"))?;
        let start = u64::from_str_radix(address.strip_prefix("0x")?, 16).ok()?;
        (start != 0).then_some(KernelModule {
            name,
            start,
            length,
        })
    };
    text.lines().filter_map(parse).collect()
}

/// Returns the files of modules by name, from the `modules.dep` of a kernel release.
pub fn module_files(release: &str) -> HashMap<String, PathBuf> {
    let folder = Path::new("/lib/modules").join(release);
    let list = fs::read_to_string(folder.join("modules.dep")).unwrap_or_default();
    parse_module_files(&folder, &list)
}

/// Parses lines such as `kernel/fs/ext4/ext4.ko.xz: kernel/fs/jbd2/jbd2.ko.xz …`.
fn parse_module_files(folder: &Path, list: &str) -> HashMap<String, PathBuf> {
    let parse = |line: &str| {
        let (path, _) = line.split_once(':')?;
        let file = path.rsplit('/').next()?;
        let (name, _) = file.split_once(".ko")?;
        // Names in the kernel have underscores where file names may have dashes.
        Some((name.replace('-', "_"), folder.join(path)))
    };
    list.lines().filter_map(parse).collect()
}

/// Returns the kernel's build id, if the kernel has one.
pub fn build_id() -> Option<Vec<u8>> {
    build_id_in_notes(&fs::read("/sys/kernel/notes").ok()?)
}

/// Returns the GNU build id among ELF notes in native byte order.
pub(crate) fn build_id_in_notes(mut notes: &[u8]) -> Option<Vec<u8>> {
    const NT_GNU_BUILD_ID: u32 = 3;
    while !notes.is_empty() {
        let number = |at: usize| {
            let bytes = notes.get(at..)?.first_chunk()?;
            Some(u32::from_ne_bytes(*bytes))
        };
        let (name_size, size, kind) = (number(0)? as usize, number(4)? as usize, number(8)?);
        let name = notes.get(12..)?.get(..name_size)?;
        let rest = notes.get(12 + name_size.checked_next_multiple_of(4)?..)?;
        if kind == NT_GNU_BUILD_ID && name == b"GNU\0" {
            return rest.get(..size).map(<[u8]>::to_vec);
        }
        notes = rest.get(size.checked_next_multiple_of(4)?..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_kallsyms() {
        let list = "0000000000000000 A fixed\nffffffff81000000 T _stext\nffffffff81000000 T _text\n\
                    ffffffff82209988 T _etext\nffffffffc0000000 t _text\t[ext4]\n";
        let text = text_in(list.as_bytes()).unwrap();
        assert_eq!(
            (text.reference, text.start),
            ("_text", 0xffff_ffff_8100_0000)
        );
        assert_eq!(text.end, 0xffff_ffff_8220_9988);
        let hidden = "0000000000000000 T _text\n0000000000000000 T _etext\n";
        assert_eq!(text_in(hidden.as_bytes()), None);
        assert_eq!(text_in(&b"\xff\xff _text\n"[..]), None);
    }

    #[test]
    fn modules_and_their_files() {
        let modules = parse_modules(
            "ext4 1044480 1 - Live 0xffffffffc0400000\njbd2 200704 1 ext4, Live 0xffffffffc03c0000 (OE)\n\
             hidden 1 0 - Live 0x0000000000000000\n",
        );
        assert_eq!(modules.len(), 2);
        assert_eq!(
            (modules[1].name.as_str(), modules[1].start),
            ("jbd2", 0xffff_ffff_c03c_0000)
        );
        assert_eq!(modules[0].length, 1_044_480);
        let files = parse_module_files(
            Path::new("/lib/modules/6.1"),
            "kernel/net/nf-conntrack.ko.xz: kernel/net/x.ko\nkernel/net/x.ko:\n",
        );
        assert_eq!(
            files["nf_conntrack"],
            Path::new("/lib/modules/6.1/kernel/net/nf-conntrack.ko.xz")
        );
        assert_eq!(files["x"], Path::new("/lib/modules/6.1/kernel/net/x.ko"));
    }

    #[test]
    fn notes_are_read_to_their_end_and_no_further() {
        let note = |name: &[u8], kind: u32, desc: &[u8]| {
            let mut bytes = Vec::new();
            for number in [name.len() as u32, desc.len() as u32, kind] {
                bytes.extend(number.to_ne_bytes());
            }
            for part in [name, desc] {
                bytes.extend(part);
                bytes.resize(bytes.len().next_multiple_of(4), 0);
            }
            bytes
        };
        let mut notes = note(b"Linux\0", 0x100, &[1, 2, 3]);
        notes.extend(note(b"GNU\0", 3, &[7; 20]));
        assert_eq!(build_id_in_notes(&notes), Some(vec![7; 20]));
        for cut in 0..notes.len() {
            assert_eq!(build_id_in_notes(&notes[..cut]), None);
        }
        assert_eq!(build_id_in_notes(&[0xff; 64]), None);
    }

    #[test]
    fn this_kernels_build_id_is_the_one_that_readelf_would_show() {
        // The id is twenty bytes of SHA-1 on every distribution; a kernel without the file has none.
        if let Some(id) = build_id() {
            assert!(!id.is_empty() && id.len() <= 20, "{id:?}");
        }
    }
}
