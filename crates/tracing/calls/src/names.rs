//! The names of functions.

use dioptra_filters::{is_cpp, qualified_name, simple_name};
use dioptra_symbols::{
    LineReader, ModuleKind, ModuleLines, ModuleRequest, ModuleSymbols, Note, RelativeAddress,
    SymbolOptions, Symbolizer, place_name,
};
use dioptra_tracedata::{Trace, TracedModule};
use dioptra_tracelayout::{FunctionEntry, FunctionKind, LIBRARY_CALL_SIZE};
use object::read::ReadCache;
use object::{Object, ObjectSymbol};
use rustc_hash::{FxHashMap, FxHashSet};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The style in which C++ and Rust names are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Demangle {
    /// As the programmer wrote them, with parameters and template arguments.
    Full,
    /// Without parameters and template arguments; see [`simple_name`].
    #[default]
    Simple,
    /// As the symbol table has them.
    No,
}

impl Demangle {
    /// Returns a name in this style: `full` is the name as the programmer wrote it, `raw` as the symbol table has it.
    pub fn shown(self, full: &str, raw: &str) -> String {
        match self {
            Demangle::No => raw.to_owned(),
            Demangle::Simple if is_cpp(raw) => simple_name(full),
            Demangle::Simple | Demangle::Full => full.to_owned(),
        }
    }
}

/// A module's symbols, read when the first of its functions is asked for.
#[derive(Debug)]
struct LazyModule {
    symbols: OnceLock<ModuleSymbols>,
    lines: OnceLock<ModuleLines>,
    unnamed: AtomicBool,
}

/// The names of a trace's functions, by their ids.
///
/// A module is read when the first of its functions is asked for, and a name is made when it is. Threads may share
/// this.
#[derive(Debug)]
pub struct FunctionNames<'t> {
    trace: &'t Trace,
    symbolizer: Symbolizer,
    style: Demangle,
    modules: BTreeMap<u32, LazyModule>,
    names: Vec<OnceLock<Box<str>>>,
    /// The file of each function that is called as a library's, by name.
    libraries: OnceLock<FxHashMap<Box<str>, &'t str>>,
}

impl<'t> FunctionNames<'t> {
    /// Returns the names of `trace`, with symbols from the places that `options` state.
    pub fn new(trace: &'t Trace, options: SymbolOptions, style: Demangle) -> FunctionNames<'t> {
        let modules = trace.modules().map(|module| {
            let names = LazyModule {
                symbols: OnceLock::new(),
                lines: OnceLock::new(),
                unnamed: AtomicBool::new(false),
            };
            (module.module, names)
        });
        FunctionNames {
            trace,
            symbolizer: Symbolizer::new(SymbolOptions {
                demangle: true,
                ..options
            }),
            style,
            modules: modules.collect(),
            names: (0..trace.function_count())
                .map(|_| OnceLock::new())
                .collect(),
            libraries: OnceLock::new(),
        }
    }

    /// Returns the trace.
    pub fn trace(&self) -> &'t Trace {
        self.trace
    }

    /// Returns a function's displayed name: its name in the chosen style; without a name its location, such as
    /// `<libz.so.1+0x1234>`.
    pub fn get(&self, function: u32) -> &str {
        match self.names.get(function as usize) {
            Some(name) => name.get_or_init(|| self.make(function).into()),
            None => "<unknown>",
        }
    }

    fn make(&self, function: u32) -> String {
        let entry = self.trace.function(function);
        if let Some(event) = entry.as_event() {
            return event.name().to_owned();
        }
        if entry.kind == FunctionKind::LibraryCall {
            let raw = self.library_call(&entry);
            return self.styled(&dioptra_symbols::demangle(&raw), &raw);
        }
        if let Some((full, raw)) = self.symbol(function, &entry) {
            return self.styled(&full, raw);
        }
        if entry.kind == FunctionKind::None {
            return "<unknown>".to_owned();
        }
        let module = self.module_name(&entry);
        match self.modules.get(&entry.module) {
            Some(names) => {
                names.unnamed.store(true, Ordering::Relaxed);
                place_name(module, RelativeAddress(entry.place))
            }
            None => format!("<{:x}>", entry.place),
        }
    }

    fn styled(&self, full: &str, raw: &str) -> String {
        self.style.shown(full, raw)
    }

    /// Returns a function's name in more and more detail: as it is shown, with template arguments, and in full.
    pub fn detailed(&self, function: u32) -> [String; 3] {
        let shown = self.get(function).to_owned();
        let (full, linkage) = self.linkage(function);
        match linkage.as_deref().is_some_and(is_cpp) && self.style == Demangle::Simple {
            true => [shown, qualified_name(&full), full.into_owned()],
            false => [shown.clone(), shown.clone(), shown],
        }
    }

    /// Returns true if a function's displayed name ends with its parameters.
    pub fn has_parameters(&self, function: u32) -> bool {
        if self.style != Demangle::Full || !self.get(function).contains('(') {
            return false;
        }
        let entry = self.trace.function(function);
        match entry.kind {
            FunctionKind::LibraryCall => is_cpp(&self.library_call(&entry)),
            _ => self
                .symbol(function, &entry)
                .is_some_and(|(_, raw)| is_cpp(raw)),
        }
    }

    fn library_call(&self, entry: &FunctionEntry) -> Cow<'t, str> {
        let name = self.trace.library_call_name(entry);
        String::from_utf8_lossy(name.unwrap_or(b"<unknown>"))
    }

    /// Returns the demangled name and the name in the symbol table.
    fn symbol(&self, function: u32, entry: &FunctionEntry) -> Option<(Cow<'_, str>, &str)> {
        if entry.kind != FunctionKind::Function {
            return None;
        }
        if let Some(name) = self.trace.stated_name(function) {
            return Some((dioptra_symbols::demangle(name), name));
        }
        let function = self
            .symbols(entry.module)?
            .function(RelativeAddress(entry.place))?;
        Some((function.name, function.raw_name))
    }

    /// Returns the name that rules are matched with, and the name in the symbol table.
    pub(crate) fn linkage(&self, function: u32) -> (Cow<'_, str>, Option<Cow<'_, str>>) {
        let entry = self.trace.function(function);
        match entry.kind {
            FunctionKind::LibraryCall => {
                let raw = self.library_call(&entry);
                match dioptra_symbols::demangle(&raw).into_owned() {
                    full if full == raw => (raw, None),
                    full => (Cow::Owned(full), Some(raw)),
                }
            }
            _ => match self.symbol(function, &entry) {
                Some((full, raw)) if full == raw => (full, None),
                Some((full, raw)) => (full, Some(Cow::Borrowed(raw))),
                None => (Cow::Borrowed(self.get(function)), None),
            },
        }
    }

    fn symbols(&self, module: u32) -> Option<&ModuleSymbols> {
        let names = self.modules.get(&module)?;
        let module = self.trace.module(module)?;
        Some(names.symbols.get_or_init(|| {
            let places = self.places(module).into_iter().map(RelativeAddress);
            self.with_request(module, |request| self.symbolizer.load_for(request, places))
        }))
    }

    /// Returns the file offsets of the module's functions.
    fn places(&self, module: &TracedModule) -> Vec<u64> {
        let count = self.trace.function_count() as u64;
        let end = (u64::from(module.first) + u64::from(module.count)).min(count);
        (u64::from(module.first)..end)
            .map(|id| self.trace.function(id as u32))
            .filter(|entry| entry.kind == FunctionKind::Function)
            .map(|entry| entry.place)
            .collect()
    }

    fn with_request<T>(
        &self,
        module: &TracedModule,
        ask: impl FnOnce(&ModuleRequest<'_>) -> T,
    ) -> T {
        let path = Path::new(&module.path);
        let build_id = from_hexadecimal(&module.build_id);
        ask(&ModuleRequest {
            kind: ModuleKind::of_mapping(path),
            path,
            build_id: build_id.as_deref(),
        })
    }

    /// Returns the file name of the library that has the function of a library call; `None` if no mapped file has it.
    /// The first call reads the exported symbols of all mapped files.
    pub fn library(&self, function: u32) -> Option<&str> {
        self.library_path(function)?.rsplit('/').next()
    }

    /// Returns the path of the library that has the function of a library call, as [`FunctionNames::library`] does.
    pub fn library_path(&self, function: u32) -> Option<&'t str> {
        let entry = self.trace.function(function);
        let name = self.trace.library_call_name(&entry)?;
        let name = std::str::from_utf8(name).ok()?;
        let libraries = self.libraries.get_or_init(|| self.find_libraries());
        libraries.get(name).copied()
    }

    /// Finds the library of each function that is called as a library's. Files that were mapped first come first, as
    /// in the search of the dynamic linker.
    fn find_libraries(&self) -> FxHashMap<Box<str>, &'t str> {
        let mut wanted: FxHashSet<&[u8]> = FxHashSet::default();
        let entries: Vec<FunctionEntry> = (0..self.trace.function_count() as u32)
            .map(|id| self.trace.function(id))
            .collect();
        wanted.extend(
            entries
                .iter()
                .filter_map(|entry| self.trace.library_call_name(entry)),
        );
        let mut libraries: FxHashMap<Box<str>, &'t str> = FxHashMap::default();
        let mut seen = FxHashSet::default();
        for mapping in self.trace.mappings() {
            if !seen.insert(mapping.path.as_str()) {
                continue;
            }
            exported(Path::new(&mapping.path), |name| {
                if wanted.contains(name)
                    && let Ok(name) = std::str::from_utf8(name)
                {
                    libraries.entry(name.into()).or_insert(&mapping.path);
                }
            });
        }
        libraries
    }

    /// Returns the file name of a function's module, for a library call that of the caller; empty if it has none.
    pub fn module(&self, function: u32) -> &'t str {
        let entry = self.trace.function(function);
        self.module_name(&entry)
    }

    fn module_name(&self, entry: &FunctionEntry) -> &'t str {
        let path = self.module_path(entry);
        path.rsplit('/').next().unwrap_or(path)
    }

    pub(crate) fn module_path(&self, entry: &FunctionEntry) -> &'t str {
        if matches!(entry.kind, FunctionKind::Address | FunctionKind::Event) {
            return "";
        }
        let module = self.trace.module(entry.module);
        module.map_or("", |module| &module.path)
    }

    /// Returns a function's size in bytes, if known: for code from the table of functions, else from its symbol; for
    /// a library call the size of an entry of the procedure linkage table.
    pub fn size(&self, function: u32) -> Option<u64> {
        let entry = self.trace.function(function);
        match entry.kind {
            FunctionKind::Function if entry.size > 0 => Some(u64::from(entry.size)),
            FunctionKind::Function => {
                let symbol = self
                    .symbols(entry.module)?
                    .function(RelativeAddress(entry.place))?;
                Some(symbol.size).filter(|size| *size > 0)
            }
            FunctionKind::LibraryCall => Some(LIBRARY_CALL_SIZE),
            _ => None,
        }
    }

    /// Returns the source file and line of each of `functions`, by the debug information.
    pub fn sources(&self, functions: &[u32]) -> Vec<Option<(String, u32)>> {
        let mut sources = vec![None; functions.len()];
        let mut by_module: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (index, function) in functions.iter().enumerate() {
            let entry = self.trace.function(*function);
            if entry.kind == FunctionKind::Function {
                by_module.entry(entry.module).or_default().push(index);
            }
        }
        for (number, indexes) in by_module {
            let (Some(names), Some(module)) =
                (self.modules.get(&number), self.trace.module(number))
            else {
                continue;
            };
            let lines = names.lines.get_or_init(|| {
                self.with_request(module, |request| self.symbolizer.lines(request))
            });
            let reader = lines.reader();
            for index in indexes {
                let entry = self.trace.function(functions[index]);
                sources[index] = line_of(&reader, RelativeAddress(entry.place));
            }
        }
        sources
    }

    /// Returns the reasons why names are missing: notes about modules of which functions without a name, or source
    /// lines, were asked for.
    pub fn notes(&self) -> Vec<Note> {
        let mut notes = Vec::new();
        for names in self.modules.values() {
            if names.unnamed.load(Ordering::Relaxed)
                && let Some(symbols) = names.symbols.get()
            {
                notes.extend(symbols.notes().iter().filter(|n| n.is_problem()).cloned());
            }
            if let Some(lines) = names.lines.get() {
                notes.extend(lines.notes().into_iter().filter(Note::is_problem));
            }
        }
        notes.dedup();
        notes
    }
}

/// Calls `give` with the names of the functions that other files may call; with none if the file cannot be read.
fn exported(path: &Path, mut tell: impl FnMut(&[u8])) {
    let Ok(file) = std::fs::File::open(path) else {
        return;
    };
    let cache = ReadCache::new(file);
    let Ok(file) = object::File::parse(&cache) else {
        return;
    };
    for symbol in file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition())
    {
        if let Ok(name) = symbol.name_bytes() {
            tell(name);
        }
    }
}

/// Returns the line at which a function is declared, else the line of its first instruction.
fn line_of(reader: &LineReader<'_>, place: RelativeAddress) -> Option<(String, u32)> {
    if let Some((file, line)) = reader.declaration(place) {
        return Some((file.to_string(), line));
    }
    // The outermost frame, because a function that is inlined at the very start is not the function itself.
    let frame = reader.frames(place).pop()?;
    Some((frame.file?.to_string(), frame.line?))
}

fn from_hexadecimal(digits: &str) -> Option<Vec<u8>> {
    let (pairs, []) = digits.as_bytes().as_chunks::<2>() else {
        return None;
    };
    let bytes = pairs.iter().map(|pair| {
        let pair = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    });
    bytes
        .collect::<Option<Vec<u8>>>()
        .filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_file_exports_is_called_as_its() {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("mappings");
        let has = |part: &str, name: &[u8]| {
            let path = maps.lines().find_map(|line| {
                let path = line.split_whitespace().nth(5)?;
                path.rsplit('/').next()?.starts_with(part).then_some(path)
            });
            let mut found = false;
            exported(Path::new(path?), |exported| found |= exported == name);
            Some(found)
        };
        // The dynamic linker has a `getpid` of its own, for itself.
        assert_ne!(has("libc.so", b"getpid"), Some(false));
        assert_ne!(has("ld-linux", b"getpid"), Some(true));
        assert_ne!(has("ld-linux", b"__tls_get_addr"), Some(false));
    }

    #[test]
    fn build_ids_are_pairs_of_digits() {
        assert_eq!(from_hexadecimal("00ff"), Some(vec![0, 255]));
        assert_eq!(from_hexadecimal(""), None);
        assert_eq!(from_hexadecimal("0"), None);
        assert_eq!(from_hexadecimal("zz"), None);
    }
}
