//! The kernel's symbols, from `/proc/kallsyms`.

use std::ops::Range;
use std::path::Path;

use object::endian::Endianness;
use rustc_hash::FxHashMap;

use crate::build_id::same_build;
use crate::elf::gnu_build_id;
use crate::module::ModuleSymbols;
use crate::note::Note;
use crate::options::{RecordedKernel, SymbolOptions};
use crate::table::{Binding, NewSymbol, TableBuilder};

/// Where the running kernel tells its symbols.
pub(crate) const PROC_KALLSYMS: &str = "/proc/kallsyms";

const PAGE: u64 = 4096;

/// One line: `ffffffff81000000 T _text` or, for a module, `ffffffffc0201000 t name\t[ext4]`.
struct Line<'a> {
    address: u64,
    kind: u8,
    name: &'a [u8],
    module: Option<&'a [u8]>,
}

impl<'a> Line<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        let (address, rest) = address(line)?;
        let (kind, rest) = (*rest.first()?, &rest[1..]);
        let name = &rest[memchr::memchr(b' ', rest)? + 1..];
        let (name, module) = match memchr::memchr(b'\t', name) {
            Some(end) => {
                let module = name[end + 1..].trim_ascii();
                let module = module.strip_prefix(b"[")?.strip_suffix(b"]");
                (&name[..end], module)
            }
            None => (name, None),
        };
        Some(Self {
            address,
            kind,
            name,
            module,
        })
    }

    fn is_code(&self) -> bool {
        matches!(self.kind, b't' | b'T' | b'w' | b'W')
    }
}

/// The hexadecimal number before the first space, and what stands behind it.
fn address(line: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    for (index, &byte) in line.iter().enumerate() {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            b' ' if index > 0 => return Some((value, &line[index + 1..])),
            _ => return None,
        };
        if value >> 60 != 0 {
            return None;
        }
        value = value << 4 | u64::from(digit);
    }
    None
}

/// The lines of a kallsyms file by address.
struct Lines<'a> {
    text: &'a [u8],
    /// Of each line: its address and where it begins. Ordered by the address, equal ones as the file has them.
    places: Vec<(u64, u32)>,
}

impl<'a> Lines<'a> {
    /// Finds the lines; `each` sees them in the file's order.
    fn new(text: &'a [u8], mut each: impl FnMut(u64, &'a [u8])) -> Self {
        // The kernel's text has a few megabytes.
        let text = &text[..text.len().min(u32::MAX as usize)];
        let mut places = Vec::with_capacity(text.len() / 40);
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', text).chain([text.len()]) {
            let line = &text[start..end];
            if let Some((address, _)) = address(line) {
                each(address, line);
                places.push((address, start as u32));
            }
            start = end + 1;
        }
        // Nearly in order: the kernel's, then module by module.
        places.sort_by_key(|(address, _)| *address);
        Self { text, places }
    }

    /// The line at a place.
    fn parse(&self, start: u32) -> Option<Line<'a>> {
        let text = &self.text[start as usize..];
        let end = memchr::memchr(b'\n', text).unwrap_or(text.len());
        Line::parse(&text[..end])
    }

    /// The places at the address of the place `index`.
    fn group(&self, index: usize) -> Range<usize> {
        let address = self.places[index].0;
        let start = self.places.partition_point(|place| place.0 < address);
        let length = self.places[index..].partition_point(|place| place.0 == address);
        start..index + length
    }
}

/// Names of the kernel and its modules, if this is the recorded kernel.
/// `wanted`: the addresses that will be asked for, if not all.
pub(crate) fn load(
    options: &SymbolOptions,
    build_id: Option<&[u8]>,
    wanted: Option<&[u64]>,
) -> ModuleSymbols {
    let mut symbols = ModuleSymbols {
        demangle: options.demangle,
        ..ModuleSymbols::default()
    };
    // A copy that was given by name is meant for the recording.
    let live = options.kallsyms == Path::new(PROC_KALLSYMS);
    if live && let Some(note) = other_kernel(options.recorded_kernel.as_ref(), build_id) {
        symbols.notes.push(note);
        return symbols;
    }
    let text = match std::fs::read(&options.kallsyms) {
        Ok(text) => text,
        Err(error) => {
            symbols.notes.push(Note::NoFile {
                path: options.kallsyms.clone(),
                reason: error.to_string(),
            });
            return symbols;
        }
    };
    let reference = options
        .recorded_kernel
        .as_ref()
        .and_then(|kernel| kernel.reference_symbol.as_ref());
    build(&mut symbols, &text, reference, &options.kallsyms, wanted);
    symbols
}

/// A note if the running kernel is not the recorded one.
pub(crate) fn other_kernel(
    recorded: Option<&RecordedKernel>,
    build_id: Option<&[u8]>,
) -> Option<Note> {
    let recorded_release = recorded.and_then(|kernel| kernel.release.as_deref());
    if let Some(recorded) = recorded_release
        && let Ok(running) = std::fs::read_to_string("/proc/sys/kernel/osrelease")
        && running.trim() != recorded
    {
        return Some(Note::KernelReleaseDiffers {
            recorded: recorded.to_owned(),
            running: running.trim().to_owned(),
        });
    }
    let recorded = recorded
        .and_then(|kernel| kernel.build_id.as_deref())
        .or(build_id)?;
    let running = running_build_id()?;
    (!same_build(recorded, &running)).then(|| Note::KernelBuildIdDiffers {
        recorded: recorded.to_vec(),
        running,
    })
}

/// The build id of the running kernel.
pub(crate) fn running_build_id() -> Option<Vec<u8>> {
    let notes = std::fs::read("/sys/kernel/notes").ok()?;
    gnu_build_id(&notes, 4, native_endian()).map(<[u8]>::to_vec)
}

fn native_endian() -> Endianness {
    if cfg!(target_endian = "big") {
        Endianness::Big
    } else {
        Endianness::Little
    }
}

/// Fills `symbols` from the text of a kallsyms file.
fn build(
    symbols: &mut ModuleSymbols,
    text: &[u8],
    reference: Option<&(String, u64)>,
    path: &Path,
    wanted: Option<&[u64]>,
) {
    // A recorded address of zero means that the recorder wasn't allowed to know it.
    let reference = reference.filter(|(_, address)| *address != 0);
    let (mut restricted, mut here) = (true, None);
    let mut lines = Lines::new(text, |address, line| {
        restricted &= address == 0;
        if let Some((name, _)) = reference
            && here.is_none()
            && line.ends_with(name.as_bytes())
            && Line::parse(line).is_some_and(|line| line.name == name.as_bytes())
        {
            here = Some(address);
        }
    });
    if restricted {
        symbols.notes.push(Note::KernelRestricted {
            path: path.to_path_buf(),
        });
        return;
    }
    if let Some((name, recorded)) = reference {
        let Some(here) = here else {
            symbols.notes.push(Note::KernelReferenceMissing {
                symbol: name.clone(),
            });
            return;
        };
        symbols.shift = here.wrapping_sub(*recorded);
        if symbols.shift != 0 {
            // Modules lie elsewhere after each start.
            let of_kernel = |start| lines.parse(start).is_some_and(|line| line.module.is_none());
            let places: Vec<_> = lines
                .places
                .iter()
                .copied()
                .filter(|(_, start)| of_kernel(*start))
                .collect();
            lines.places = places;
            symbols.notes.push(Note::KernelMoved {
                by: symbols.shift as i64,
            });
        }
    }
    // Index 0 stands for the kernel itself.
    symbols.owners = vec![String::new()];
    let mut adding = Adding {
        builder: TableBuilder::new(text.len().saturating_mul(3)),
        owners: &mut symbols.owners,
        known: FxHashMap::default(),
    };
    let mut groups = Vec::new();
    match wanted {
        // A symbol reaches no further than to the next one: those right before an address are all that matter.
        Some(wanted) => {
            for address in wanted {
                let address = address.wrapping_add(symbols.shift);
                let after = lines.places.partition_point(|place| place.0 <= address);
                if let Some(last) = after.checked_sub(1) {
                    groups.push(lines.group(last));
                }
            }
            groups.sort_unstable_by_key(|group| group.start);
            groups.dedup();
        }
        None => {
            let mut next = 0;
            while next < lines.places.len() {
                let group = lines.group(next);
                next = group.end;
                groups.push(group);
            }
        }
    }
    for group in groups {
        adding.add(&lines, group);
    }
    symbols.table = adding.builder.finish();
}

/// Symbols on their way into a table.
struct Adding<'s, 'a> {
    builder: TableBuilder,
    owners: &'s mut Vec<String>,
    /// The index of each owner.
    known: FxHashMap<&'a [u8], u16>,
}

impl<'a> Adding<'_, 'a> {
    /// Adds the symbols of one address.
    fn add(&mut self, lines: &Lines<'a>, group: Range<usize>) {
        let above = lines.places.get(group.end).map(|&(address, _)| {
            let last = lines.places[lines.group(group.end)].last();
            let line = last.and_then(|(_, start)| lines.parse(*start));
            (address, line.and_then(|line| line.module))
        });
        for (_, start) in &lines.places[group] {
            let Some(line) = lines.parse(*start).filter(Line::is_code) else {
                continue;
            };
            let owner = line.module.map_or(0, |module| self.owner(module));
            self.builder.push(&NewSymbol {
                start: line.address,
                size: 0,
                limit: end_of(&line, above),
                binding: match line.kind {
                    b'T' => Binding::Global,
                    b't' => Binding::Local,
                    _ => Binding::Weak,
                },
                is_function: true,
                source: 0,
                owner,
                file: &[],
                name: line.name,
            });
        }
    }

    fn owner(&mut self, module: &'a [u8]) -> u16 {
        *self.known.entry(module).or_insert_with(|| {
            // More modules than 16 bits can count would be shown as the kernel's.
            let Ok(index) = u16::try_from(self.owners.len()) else {
                return 0;
            };
            let name = String::from_utf8_lossy(module).into_owned();
            self.owners.push(name);
            index
        })
    }
}

/// Where a symbol ends, given the next higher address and whose it is. Every symbol bounds the one
/// before it, also one that names data. Modules lie apart from each other and from the kernel, so
/// the last symbol of each reaches no further than the page after its own.
fn end_of(line: &Line<'_>, above: Option<(u64, Option<&[u8]>)>) -> u64 {
    let next_page = line
        .address
        .checked_next_multiple_of(PAGE)
        .map_or(u64::MAX, |page| page.saturating_add(PAGE));
    match above {
        Some((address, module)) if module == line.module => address,
        Some((address, _)) => address.min(next_page),
        None => next_page,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000100 t work
ffffffff81000200 T more
ffffffff81000300 D data_behind
0000000000000010 A percpu
ffffffffc0201000 t mod_f\t[ext4]
ffffffffc0201080 W mod_g\t[ext4]
ffffffffc0900000 t bpf_prog_1234\t[bpf]
";

    fn names(reference: Option<(&str, u64)>) -> ModuleSymbols {
        let reference = reference.map(|(name, address)| (name.to_owned(), address));
        let reference = reference.as_ref();
        let mut symbols = ModuleSymbols::default();
        let path = Path::new("kallsyms");
        build(&mut symbols, TEXT.as_bytes(), reference, path, None);
        // With some addresses named the answers are the same.
        let near = |line: &str| u64::from_str_radix(&line[..16], 16).unwrap();
        let starts = TEXT.lines().map(near);
        let wanted: Vec<u64> = starts
            .flat_map(|at| [at.wrapping_sub(1), at, at + 0x50, at + 0x1000])
            .collect();
        for wanted in wanted.chunks(3).chain([&wanted[..]]) {
            let mut some = ModuleSymbols::default();
            build(&mut some, TEXT.as_bytes(), reference, path, Some(wanted));
            assert_eq!(some.notes(), symbols.notes());
            for &address in wanted {
                assert_eq!(some.function(address), symbols.function(address));
            }
        }
        symbols
    }

    fn name(symbols: &ModuleSymbols, address: u64) -> Option<(&str, Option<&str>)> {
        symbols
            .function(address)
            .map(|function| (function.raw_name, function.module))
    }

    #[test]
    fn symbols_reach_to_the_next_one() {
        let symbols = names(None);
        assert_eq!(name(&symbols, 0xffff_ffff_8100_0150), Some(("work", None)));
        assert_eq!(name(&symbols, 0xffff_ffff_8100_02ff), Some(("more", None)));
        assert_eq!(name(&symbols, 0xffff_ffff_8100_0300), None);
        assert_eq!(name(&symbols, 0x10), None);
        assert_eq!(
            name(&symbols, 0xffff_ffff_c020_1081),
            Some(("mod_g", Some("ext4")))
        );
        assert_eq!(name(&symbols, 0xffff_ffff_c020_4000), None);
        assert_eq!(
            name(&symbols, 0xffff_ffff_c090_0004),
            Some(("bpf_prog_1234", Some("bpf")))
        );
        assert!(symbols.notes().is_empty());
    }

    #[test]
    fn a_moved_kernel_is_shifted_and_its_modules_left_out() {
        let symbols = names(Some(("_text", 0xffff_ffff_8220_0000)));
        let function = symbols
            .function(0xffff_ffff_8220_0150)
            .map(|f| (f.raw_name, f.start, f.size));
        assert_eq!(function, Some(("work", 0xffff_ffff_8220_0100, 0x100)));
        assert_eq!(name(&symbols, 0xffff_ffff_c020_1081), None);
        assert_eq!(symbols.notes(), [Note::KernelMoved { by: -0x120_0000 }]);
        assert!(
            names(Some(("_text", 0xffff_ffff_8100_0000)))
                .notes()
                .is_empty()
        );
        assert!(names(Some(("_text", 0))).notes().is_empty());
    }

    #[test]
    fn an_unknown_reference_gives_no_names() {
        let symbols = names(Some(("_elsewhere", 1)));
        assert!(symbols.is_empty());
        assert!(matches!(
            symbols.notes(),
            [Note::KernelReferenceMissing { .. }]
        ));
    }

    #[test]
    fn hidden_addresses_are_told() {
        for text in ["0000000000000000 T _text\n0000000000000000 t work\n", ""] {
            let mut symbols = ModuleSymbols::default();
            let path = Path::new("kallsyms");
            build(&mut symbols, text.as_bytes(), None, path, None);
            assert!(symbols.is_empty());
            assert!(matches!(symbols.notes(), [Note::KernelRestricted { .. }]));
        }
    }

    #[test]
    fn another_kernel_gives_no_names() {
        let recorded = RecordedKernel {
            release: Some("2.4.0-other".to_owned()),
            ..RecordedKernel::default()
        };
        let options = SymbolOptions {
            recorded_kernel: Some(recorded),
            ..SymbolOptions::default()
        };
        let symbols = load(&options, None, None);
        assert!(symbols.is_empty());
        assert!(matches!(
            symbols.notes(),
            [Note::KernelReleaseDiffers { .. }]
        ));
        if Path::new("/sys/kernel/notes").exists() {
            let symbols = load(&SymbolOptions::default(), Some(&[1; 20]), None);
            assert!(matches!(
                symbols.notes(),
                [Note::KernelBuildIdDiffers { .. }]
            ));
        }
    }
}
