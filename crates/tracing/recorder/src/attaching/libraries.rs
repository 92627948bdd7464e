//! The C library and the dynamic linker of a running process, and the functions in them.

use crate::analysis::prepare::open;
use crate::serving::maps::{MappedModule, Maps};
use object::read::elf::ElfFile64;
use object::{Object, ObjectSegment, ObjectSymbol};
use std::fs;
use std::path::Path;

/// A function that a file exports: first address, address behind the last, name.
#[derive(Clone, Debug)]
struct Export {
    start: u64,
    end: u64,
    name: String,
}

/// A library of a process, with the functions that its file exports.
#[derive(Clone, Debug)]
pub struct Library {
    /// The library's first address in memory, and the first one behind it.
    pub range: (u64, u64),
    bias: u64,
    exports: Vec<Export>,
}

impl Library {
    fn read(pid: u32, module: &MappedModule) -> Option<Library> {
        let (path, _) = open(pid, module)?;
        let bytes = fs::read(path).ok()?;
        let file = ElfFile64::<object::Endianness>::parse(&*bytes).ok()?;
        let segments = file.segments().map(|segment| {
            let (offset, _) = segment.file_range();
            (offset, segment.address())
        });
        let bias = module.bias(segments)?;
        let mut exports: Vec<Export> = file
            .dynamic_symbols()
            .filter(|symbol| symbol.kind() == object::SymbolKind::Text && symbol.size() > 0)
            .filter_map(|symbol| {
                Some(Export {
                    start: symbol.address(),
                    end: symbol.address() + symbol.size(),
                    name: symbol.name().ok()?.to_owned(),
                })
            })
            .collect();
        exports.sort_by_key(|export| export.start);
        Some(Library {
            range: module.range(),
            bias,
            exports,
        })
    }

    /// Returns whether an address in memory is the library's.
    pub fn holds(&self, address: u64) -> bool {
        (self.range.0..self.range.1).contains(&address)
    }

    /// Returns the address in memory of an exported function.
    pub fn function(&self, name: &str) -> Option<u64> {
        let export = self.exports.iter().find(|export| export.name == name)?;
        Some(export.start.wrapping_add(self.bias))
    }

    /// Returns the names of the exported function that an address in memory lies in: functions may have several.
    pub fn names_at(&self, address: u64) -> Vec<&str> {
        let address = address.wrapping_sub(self.bias);
        self.exports
            .iter()
            .filter(|export| (export.start..export.end).contains(&address))
            .map(|export| export.name.as_str())
            .collect()
    }

    /// Returns the addresses in memory of an exported function's first byte and of the one behind its last.
    pub fn extent(&self, name: &str) -> Option<(u64, u64)> {
        let export = self.exports.iter().find(|export| export.name == name)?;
        let at = |address: u64| address.wrapping_add(self.bias);
        Some((at(export.start), at(export.end)))
    }
}

/// The libraries of a process that lock what `dlopen` locks.
#[derive(Clone, Debug)]
pub struct Libraries {
    /// The C library.
    pub c: Library,
    /// The dynamic linker.
    pub linker: Library,
    /// The C library's other parts (`libpthread`, `libdl`), before glibc 2.34.
    pub others: Vec<Library>,
}

impl Libraries {
    /// Reads the libraries of a process. Returns `None` if it has no glibc, or its files can't be read.
    pub fn read(pid: u32, maps: &Maps) -> Option<Libraries> {
        let modules = maps.modules();
        let named = |prefixes: &[&str]| {
            modules
                .iter()
                .filter(|module| {
                    let name = file_name(&module.path);
                    prefixes.iter().any(|prefix| name.starts_with(prefix))
                })
                .filter_map(|module| Library::read(pid, module))
                .collect::<Vec<_>>()
        };
        let c = named(&["libc.so.6", "libc-2."])
            .into_iter()
            .find(|library| library.function("gnu_get_libc_version").is_some())?;
        let linker = named(&["ld-linux", "ld-2.", "ld.so"]).into_iter().next()?;
        let others = named(&["libpthread.so.0", "libpthread-2.", "libdl.so.2", "libdl-2."]);
        Some(Libraries { c, linker, others })
    }

    /// Returns the library of the C library's that an address lies in.
    pub fn part_at(&self, address: u64) -> Option<&Library> {
        let mut parts = std::iter::once(&self.c).chain(&self.others);
        parts.find(|library| library.holds(address))
    }

    /// Returns the address of `dlopen`, and the flags for a library whose symbols nobody else sees.
    pub fn dlopen(&self) -> Option<(u64, u64)> {
        /// The flag by which the C library's internal function knows calls of `dlopen`.
        const DLOPEN: u64 = 0x8000_0000;
        let flags = (libc::RTLD_NOW | libc::RTLD_LOCAL) as u64;
        let plain = |library: &Library| Some((library.function("dlopen")?, flags));
        plain(&self.c)
            .or_else(|| self.others.iter().find_map(plain))
            .or_else(|| Some((self.c.function("__libc_dlopen_mode")?, flags | DLOPEN)))
    }

    /// Returns the address of `dlerror`, which says why `dlopen` failed.
    pub fn dlerror(&self) -> Option<u64> {
        self.exported("dlerror")
    }

    /// Returns the address of `dlclose`.
    pub fn dlclose(&self) -> Option<u64> {
        self.exported("dlclose")
            .or_else(|| self.c.function("__libc_dlclose"))
    }

    /// Returns the address of a function that one of the C library's parts exports.
    fn exported(&self, name: &str) -> Option<u64> {
        let mut parts = std::iter::once(&self.c).chain(&self.others);
        parts.find_map(|library| library.function(name))
    }
}

fn file_name(path: &Path) -> std::borrow::Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}
