//! The kernel's symbols, from `/proc/kallsyms`.

use std::ops::Range;
use std::path::Path;

use object::endian::Endianness;
use rustc_hash::FxHashMap;

use crate::build_id::same_build;
use crate::elf::gnu_build_id;
use crate::kallsyms::{Line, Lines, end_of};
use crate::kallsyms_cache::{self, KallsymsCache};
use crate::module::ModuleSymbols;
use crate::note::Note;
use crate::options::{RecordedKernel, SymbolOptions};
use crate::table::{Binding, NewSymbol, TableBuilder};

/// Where the running kernel tells its symbols.
pub(crate) const PROC_KALLSYMS: &str = "/proc/kallsyms";

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
    let reference = options
        .recorded_kernel
        .as_ref()
        .and_then(|kernel| kernel.reference_symbol.as_ref())
        .map(|(name, address)| (name.as_str(), address.0))
        // A recorded address of zero means that the recorder wasn't allowed to know it.
        .filter(|(_, address)| *address != 0);
    let folder = options.kallsyms_cache.as_deref().filter(|_| live);
    let key = folder.and_then(|_| kallsyms_cache::current_key());
    if let (Some(folder), Some(key), Some(wanted)) = (folder, &key, wanted)
        && let Some(cache) = KallsymsCache::open(folder, key)
        && from_cache(&mut symbols, &cache, reference, wanted)
    {
        return symbols;
    }
    let text = match std::fs::read(&options.kallsyms) {
        Ok(text) => text,
        Err(error) => {
            symbols.notes.push(Note::NoFile {
                path: options.kallsyms.clone(),
                reason: error.into(),
            });
            return symbols;
        }
    };
    build(&mut symbols, &text, reference, &options.kallsyms, wanted);
    let is_restricted = |note: &Note| matches!(note, Note::KernelRestricted { .. });
    // A module that was loaded meanwhile may be in the text or not.
    if let (Some(folder), Some(key)) = (folder, key)
        && !symbols.notes.iter().any(is_restricted)
        && kallsyms_cache::current_key().as_ref() == Some(&key)
    {
        // Without a place for it, the next run reads the text again.
        let _ = kallsyms_cache::store(folder, &key, &text);
    }
    symbols
}

/// Fills `symbols` from what an earlier run stored, if that is the same as the text would give.
fn from_cache(
    symbols: &mut ModuleSymbols,
    cache: &KallsymsCache,
    reference: Option<(&str, u64)>,
    wanted: &[u64],
) -> bool {
    let lines = cache.lines();
    // A kernel that lies elsewhere now has another address for its reference.
    if let Some((name, recorded)) = reference {
        let at = lines.count_while(|at| at < recorded);
        let mut here = lines.group(at).filter_map(|index| lines.line(index));
        let is_there = lines.place(at).is_some_and(|(at, _)| at == recorded)
            && here.any(|line| line.name == name.as_bytes());
        if !is_there {
            return false;
        }
    }
    // Code that comes and goes without a module, such as BPF programs, is not stored.
    let is_covered = |address: &u64| {
        let last = lines.count_while(|at| at <= *address).checked_sub(1);
        last.is_some_and(|last| {
            let group = lines.group(last);
            let above = lines.above(&group);
            let mut each = group.filter_map(|index| lines.line(index));
            each.any(|line| end_of(&line, above) > *address)
        })
    };
    if !wanted.iter().all(is_covered) {
        return false;
    }
    add_wanted(symbols, &lines, Some(wanted));
    true
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
    reference: Option<(&str, u64)>,
    path: &Path,
    wanted: Option<&[u64]>,
) {
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
                symbol: name.to_owned(),
            });
            return;
        };
        symbols.shift = here.wrapping_sub(recorded);
        if symbols.shift != 0 {
            // Modules lie elsewhere after each start.
            lines.retain(|lines, start| {
                let line = lines.parse(start);
                line.is_some_and(|line| line.module.is_none())
            });
            symbols.notes.push(Note::KernelMoved {
                by: symbols.shift as i64,
            });
        }
    }
    add_wanted(symbols, &lines, wanted);
}

/// Adds the symbols around some addresses, or all of them.
fn add_wanted<'a>(symbols: &mut ModuleSymbols, lines: &Lines<'a>, wanted: Option<&[u64]>) {
    // Index 0 stands for the kernel itself.
    symbols.owners = vec![String::new()];
    let mut adding = Adding {
        builder: TableBuilder::new(lines.bytes().saturating_mul(3)),
        owners: &mut symbols.owners,
        known: FxHashMap::default(),
    };
    let mut groups = Vec::new();
    match wanted {
        // A symbol reaches no further than to the next one: those right before an address are all that matter.
        Some(wanted) => {
            for address in wanted {
                let address = address.wrapping_add(symbols.shift);
                let after = lines.count_while(|at| at <= address);
                if let Some(last) = after.checked_sub(1) {
                    groups.push(lines.group(last));
                }
            }
            groups.sort_unstable_by_key(|group| group.start);
            groups.dedup();
        }
        None => {
            let mut next = 0;
            while next < lines.len() {
                let group = lines.group(next);
                next = group.end;
                groups.push(group);
            }
        }
    }
    for group in groups {
        adding.add(lines, group);
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
        let above = lines.above(&group);
        for index in group {
            let Some(line) = lines.line(index).filter(Line::is_code) else {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::RelativeAddress;

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
                let address = RelativeAddress(address);
                assert_eq!(some.function(address), symbols.function(address));
            }
        }
        symbols
    }

    fn name(symbols: &ModuleSymbols, address: u64) -> Option<(&str, Option<&str>)> {
        symbols
            .function(RelativeAddress(address))
            .map(|function| (function.raw_name, function.module))
    }

    /// Stored symbols answer as the text does, or not at all.
    #[test]
    fn stored_symbols_are_those_of_the_text() {
        let folder = tempfile::tempdir().unwrap();
        kallsyms_cache::store(&folder.path().join("dioptra"), b"key", TEXT.as_bytes()).unwrap();
        let cache = KallsymsCache::open(&folder.path().join("dioptra"), b"key").unwrap();
        let answers = |wanted: &[u64], reference: Option<(&str, u64)>| {
            let mut symbols = ModuleSymbols::default();
            from_cache(&mut symbols, &cache, reference, wanted).then_some(symbols)
        };
        let whole = names(None);
        for address in (0xffff_ffff_8100_0000..0xffff_ffff_8100_0400)
            .chain(0xffff_ffff_c020_1000..0xffff_ffff_c020_1200)
            .step_by(16)
        {
            for reference in [None, Some(("_text", 0xffff_ffff_8100_0000))] {
                let symbols = answers(&[address], reference).unwrap();
                let address = RelativeAddress(address);
                assert_eq!(
                    symbols.function(address),
                    whole.function(address),
                    "{address:x}"
                );
                assert!(symbols.notes().is_empty() && !symbols.owners.is_empty());
            }
        }
        // Code of BPF programs, and what lies behind a module, is looked for in the text.
        for address in [0xffff_ffff_c090_0004, 0xffff_ffff_c020_4000, 0xf] {
            assert!(
                answers(&[0xffff_ffff_8100_0150, address], None).is_none(),
                "{address:x}"
            );
        }
        // So are names of a kernel that lay elsewhere, or had other names.
        for reference in [
            ("_text", 0xffff_ffff_8220_0000),
            ("work", 0xffff_ffff_8100_0000),
        ] {
            assert!(answers(&[0xffff_ffff_8100_0150], Some(reference)).is_none());
        }
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
            .function(RelativeAddress(0xffff_ffff_8220_0150))
            .map(|f| (f.raw_name, f.start.0, f.size));
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
