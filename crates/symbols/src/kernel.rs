//! The kernel's symbols, from `/proc/kallsyms`.

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
    name: &'a str,
    module: Option<&'a str>,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (address, rest) = line.split_once(' ')?;
        let (kind, rest) = rest.split_once(' ')?;
        let (name, module) = match rest.split_once('\t') {
            Some((name, module)) => (name, module.trim().strip_prefix('[')?.strip_suffix(']')),
            None => (rest, None),
        };
        Some(Self {
            address: u64::from_str_radix(address, 16).ok()?,
            kind: *kind.as_bytes().first()?,
            name,
            module,
        })
    }

    fn is_code(&self) -> bool {
        matches!(self.kind, b't' | b'T' | b'w' | b'W')
    }
}

/// Names of the kernel and its modules, if this is the recorded kernel.
pub(crate) fn load(options: &SymbolOptions, build_id: Option<&[u8]>) -> ModuleSymbols {
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
    build(
        &mut symbols,
        &String::from_utf8_lossy(&text),
        reference,
        &options.kallsyms,
    );
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
fn build(symbols: &mut ModuleSymbols, text: &str, reference: Option<&(String, u64)>, path: &Path) {
    let mut lines: Vec<Line<'_>> = text.lines().filter_map(Line::parse).collect();
    if lines.iter().all(|line| line.address == 0) {
        symbols.notes.push(Note::KernelRestricted {
            path: path.to_path_buf(),
        });
        return;
    }
    // A recorded address of zero means that the recorder wasn't allowed to know it.
    if let Some((name, recorded)) = reference.filter(|(_, address)| *address != 0) {
        let Some(here) = lines
            .iter()
            .find(|line| line.module.is_none() && line.name == name)
        else {
            symbols.notes.push(Note::KernelReferenceMissing {
                symbol: name.clone(),
            });
            return;
        };
        symbols.shift = here.address.wrapping_sub(*recorded);
        if symbols.shift != 0 {
            lines.retain(|line| line.module.is_none());
            symbols.notes.push(Note::KernelMoved {
                by: symbols.shift as i64,
            });
        }
    }
    lines.sort_by_key(|line| line.address);
    // Index 0 stands for the kernel itself.
    symbols.owners = vec![String::new()];
    let mut known: FxHashMap<&str, u16> = FxHashMap::default();
    let mut builder = TableBuilder::new(text.len());
    // Backwards, so that the next higher address is known.
    let mut above: Option<(u64, Option<&str>)> = None;
    let mut here: Option<(u64, Option<&str>)> = None;
    for line in lines.iter().rev() {
        if here.is_none_or(|(address, _)| address != line.address) {
            above = here;
            here = Some((line.address, line.module));
        }
        if !line.is_code() {
            continue;
        }
        let owner = match line.module {
            None => 0,
            Some(module) => *known.entry(module).or_insert_with(|| {
                // More modules than 16 bits can count would be shown as the kernel's.
                let Ok(index) = u16::try_from(symbols.owners.len()) else {
                    return 0;
                };
                symbols.owners.push(module.to_owned());
                index
            }),
        };
        builder.push(&NewSymbol {
            start: line.address,
            size: 0,
            limit: end_of(line, above),
            binding: match line.kind {
                b'T' => Binding::Global,
                b't' => Binding::Local,
                _ => Binding::Weak,
            },
            is_function: true,
            source: 0,
            owner,
            name: line.name.as_bytes(),
        });
    }
    symbols.table = builder.finish();
}

/// Where a symbol ends, given the next higher address and whose it is. Every symbol bounds the one
/// before it, also one that names data. Modules lie apart from each other and from the kernel, so
/// the last symbol of each reaches no further than the page after its own.
fn end_of(line: &Line<'_>, above: Option<(u64, Option<&str>)>) -> u64 {
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
        let mut symbols = ModuleSymbols::default();
        build(
            &mut symbols,
            TEXT,
            reference.as_ref(),
            Path::new("kallsyms"),
        );
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
            build(&mut symbols, text, None, Path::new("kallsyms"));
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
        let symbols = load(&options, None);
        assert!(symbols.is_empty());
        assert!(matches!(
            symbols.notes(),
            [Note::KernelReleaseDiffers { .. }]
        ));
        if Path::new("/sys/kernel/notes").exists() {
            let symbols = load(&SymbolOptions::default(), Some(&[1; 20]));
            assert!(matches!(
                symbols.notes(),
                [Note::KernelBuildIdDiffers { .. }]
            ));
        }
    }
}
