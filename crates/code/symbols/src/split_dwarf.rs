//! Split debug information: what `-gsplit-dwarf` leaves in `.dwo` files or `dwp` packed together.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use addr2line::SplitDwarfLoad;
use object::read::ReadCache;
use rustc_hash::FxHashMap;

use crate::append_only::AppendOnly;
use crate::build_id::open_regular;
use crate::cause::FileDamage;
use crate::dwarf_sections::{DebugSections, Slice};
use crate::elf::Image;

/// The split files of one module. Each is read once, when an address first needs it.
#[derive(Debug, Default)]
pub(crate) struct SplitFiles {
    /// Where the module and its debug file lie: where split files are looked for besides the recorded
    /// directory.
    beside: Vec<PathBuf>,
    symfs: Option<PathBuf>,
    package: Option<DebugSections>,
    /// By id: the place in `read`, or none where no file was found.
    known: Mutex<FxHashMap<u64, Option<usize>>>,
    read: AppendOnly<DebugSections>,
}

impl SplitFiles {
    /// Looks for a package beside the files with the debug information.
    pub(crate) fn of(files: &[&Path], symfs: Option<&Path>) -> Self {
        let package = files
            .iter()
            .flat_map(|file| {
                let mut appended = file.as_os_str().to_owned();
                appended.push(".dwp");
                [PathBuf::from(appended), file.with_extension("dwp")]
            })
            .find_map(|path| read(&path, |_| true).ok().flatten());
        Self {
            beside: files
                .iter()
                .filter_map(|file| Some(file.parent()?.to_path_buf()))
                .collect(),
            symfs: symfs.map(Path::to_path_buf),
            package,
            ..Self::default()
        }
    }

    /// gimli's view of the package. A damaged one counts as none: its units are then missing.
    pub(crate) fn package(&self) -> Option<gimli::DwarfPackage<Slice<'_>>> {
        let sections = self.package.as_ref()?;
        let load = |id| Ok::<_, gimli::Error>(sections.slice(id));
        let empty = sections.slice(gimli::SectionId::DebugFrame);
        gimli::DwarfPackage::load(load, empty).ok()
    }

    /// Loads the part that addr2line asks for: one unit of the package, or one `.dwo` file.
    pub(crate) fn load<'a>(
        &'a self,
        wanted: &SplitDwarfLoad<Slice<'a>>,
        package: Option<&gimli::DwarfPackage<Slice<'a>>>,
    ) -> Option<Arc<gimli::Dwarf<Slice<'a>>>> {
        let packed =
            package.and_then(|package| package.find_cu(wanted.dwo_id, &wanted.parent).ok());
        if let Some(unit) = packed.flatten() {
            return Some(Arc::new(unit));
        }
        let mut dwarf = self.file(wanted)?.dwarf();
        dwarf.make_dwo(&wanted.parent);
        Some(Arc::new(dwarf))
    }

    fn file(&self, wanted: &SplitDwarfLoad<Slice<'_>>) -> Option<&DebugSections> {
        // The lock is held while the file is read, so that no two threads read the same one. A panic
        // elsewhere can't have left the map half changed.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let id = wanted.dwo_id.0;
        if let Some(place) = known.get(&id) {
            return self.read.get((*place)?);
        }
        let found = self
            .candidates(wanted)
            .into_iter()
            .find_map(|path| read(&path, |sections| has_id(sections, id)).ok().flatten());
        let place = found.is_some().then(|| known.values().flatten().count());
        known.insert(id, place);
        Some(self.read.set(place?, found?))
    }

    /// Where the file may lie, best first.
    fn candidates(&self, wanted: &SplitDwarfLoad<Slice<'_>>) -> Vec<PathBuf> {
        let path = |slice: Slice<'_>| PathBuf::from(OsStr::from_bytes(slice.slice()));
        let Some(name) = wanted.path.map(path) else {
            return Vec::new();
        };
        let recorded = match wanted.comp_dir.map(path) {
            Some(dir) => dir.join(&name),
            None => name.clone(),
        };
        let below_symfs = self
            .symfs
            .as_ref()
            .map(|root| root.join(recorded.strip_prefix("/").unwrap_or(&recorded)));
        let mut candidates: Vec<PathBuf> = below_symfs.into_iter().collect();
        candidates.push(recorded);
        if let Some(file_name) = name.file_name() {
            candidates.extend(self.beside.iter().map(|dir| dir.join(file_name)));
        }
        candidates
    }

    /// Returns the number of split files that were wanted and not found so far.
    pub(crate) fn missing(&self) -> usize {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.values().filter(|place| place.is_none()).count()
    }

    /// Heap memory held, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        let package = self.package.iter();
        package
            .chain(self.read.iter())
            .map(DebugSections::heap_bytes)
            .sum()
    }
}

/// Reads a file if it is there and accepted.
fn read(
    path: &Path,
    accept: impl Fn(&DebugSections) -> bool,
) -> Result<Option<DebugSections>, FileDamage> {
    let (Ok(file), Ok(headers)) = (open_regular(path), open_regular(path)) else {
        return Ok(None);
    };
    let cache = ReadCache::new(headers);
    let image = Image::parse(&cache)?;
    let sections = DebugSections::read_split(&file, &image)?;
    Ok(accept(&sections).then_some(sections))
}

/// Whether the first unit has the id: an older or newer build's file must not be used.
fn has_id(sections: &DebugSections, id: u64) -> bool {
    let mut dwarf = sections.dwarf();
    dwarf.file_type = gimli::DwarfFileType::Dwo;
    let Ok(Some(header)) = dwarf.units().next() else {
        return false;
    };
    dwarf
        .unit(header)
        .is_ok_and(|unit| unit.dwo_id.is_some_and(|found| found.0 == id))
}
