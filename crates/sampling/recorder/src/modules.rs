//! The modules that a recording mapped, and their build ids.
//!
//! Mappings are seen as records. At the end each distinct file is opened once for its build id. A build id is only
//! given where the file is still the one that was mapped: a wrong one would give wrong names.

use crate::kernel;
use dioptra_perfevents::record::{
    CpuMode, MappedFile, RawRecord, Record, RecordLayout, RecordType,
};
use dioptra_processes::procfs;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// A module's build id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleBuildId {
    /// Its path, or a name such as `[kernel.kallsyms]`.
    pub path: Vec<u8>,
    /// Whether it is the kernel or a module of it.
    pub is_kernel: bool,
    /// The build id's bytes.
    pub build_id: Vec<u8>,
}

/// The modules of all mappings seen so far.
#[derive(Debug)]
pub struct Modules {
    layout: RecordLayout,
    /// The start of the recording, in seconds of the wall clock. Files that changed since are not trusted.
    since: i64,
    files: HashMap<Vec<u8>, Vec<File>>,
    kernel: Vec<Vec<u8>>,
    /// The path of the module that was seen last, if that was the first time.
    new: Option<Vec<u8>>,
}

/// A file that was mapped.
#[derive(Debug, PartialEq, Eq)]
struct File {
    inode: u64,
    /// A process that mapped it, under whose root folder the path may be found.
    pid: u32,
    build_id: Option<Vec<u8>>,
}

impl Modules {
    /// Makes an empty collection. `layout` is the layout of any of the recording's events: the side-band records of
    /// all events look alike.
    pub fn new(layout: RecordLayout) -> Modules {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Modules {
            layout,
            since: i64::try_from(now.as_secs()).unwrap_or(i64::MAX),
            files: HashMap::new(),
            kernel: Vec::new(),
            new: None,
        }
    }

    /// Adds the module of a record, if that is a mapping.
    #[inline]
    pub fn see(&mut self, record: &RawRecord<'_>) {
        if matches!(record.kind, RecordType::MMAP | RecordType::MMAP2) {
            self.see_mapping(record);
        }
    }

    fn see_mapping(&mut self, record: &RawRecord<'_>) {
        let Ok(Record::Mmap(mmap, _)) = self.layout.parse(record) else {
            return;
        };
        if mmap.misc.cpu_mode() == CpuMode::Kernel {
            if !self.kernel.iter().any(|known| known == mmap.name) {
                self.kernel.push(mmap.name.to_vec());
                self.new = Some(mmap.name.to_vec());
            }
            return;
        }
        // Anonymous memory and names in brackets are not files.
        if !mmap.name.starts_with(b"/") || mmap.name.starts_with(b"//") {
            return;
        }
        let (inode, build_id) = match mmap.file {
            MappedFile::Inode { inode, .. } => (inode, None),
            MappedFile::BuildId(id) => (0, Some(id.to_vec())),
            MappedFile::Unknown => (0, None),
        };
        // The name is looked up before it is copied, because the same libraries are mapped again and again.
        let file = File {
            inode,
            pid: mmap.pid,
            build_id,
        };
        match self.files.get_mut(mmap.name) {
            Some(files) => {
                if !files
                    .iter()
                    .any(|known| (known.inode, &known.build_id) == (file.inode, &file.build_id))
                {
                    files.push(file);
                }
            }
            None => {
                self.files.insert(mmap.name.to_vec(), vec![file]);
                self.new = Some(mmap.name.to_vec());
            }
        }
    }

    /// Returns the build id of the module that was seen last, if that was the first time. It is read now, so that a reader
    /// of a pipe knows it before the module's first sample.
    pub fn new_build_id(&mut self) -> Option<ModuleBuildId> {
        let path = self.new.take()?;
        let Some(files) = self.files.get(&path) else {
            return kernel_build_id(&path);
        };
        let file = files.first()?;
        // A mapping that states its file's build id needs no other.
        let build_id = match &file.build_id {
            Some(_) => None,
            None => self.file_build_id(&path, file),
        };
        Some(ModuleBuildId {
            is_kernel: false,
            build_id: build_id?,
            path,
        })
    }

    /// Returns the build ids of the kernel, its modules and all files that are still as they were mapped, sorted by
    /// path.
    ///
    /// A path that meant two files during the recording gets none: a reader could not tell which one is meant.
    pub fn build_ids(&self) -> Vec<ModuleBuildId> {
        let mut all: Vec<ModuleBuildId> = self
            .kernel
            .iter()
            .filter_map(|name| kernel_build_id(name))
            .collect();
        for (path, files) in &self.files {
            let [file] = files.as_slice() else { continue };
            let build_id = match &file.build_id {
                Some(id) => Some(id.clone()),
                None => self.file_build_id(path, file),
            };
            if let Some(build_id) = build_id {
                all.push(ModuleBuildId {
                    path: path.clone(),
                    is_kernel: false,
                    build_id,
                });
            }
        }
        all.sort_by(|a, b| (!a.is_kernel, &a.path).cmp(&(!b.is_kernel, &b.path)));
        all
    }

    fn file_build_id(&self, path: &[u8], file: &File) -> Option<Vec<u8>> {
        procfs::path_for(file.pid, path).iter().find_map(|path| {
            let metadata = fs::metadata(path).ok()?;
            // On some file systems (overlayfs, btrfs) a mapping's inode is not the path's. Then the file must at
            // least be older than the recording, and a file that replaced another one is not.
            let unchanged = metadata.ino() == file.inode || metadata.ctime() < self.since;
            if !unchanged {
                return None;
            }
            dioptra_symbols::build_id(path).ok().flatten()
        })
    }
}

fn kernel_build_id(name: &[u8]) -> Option<ModuleBuildId> {
    const KERNEL: &[u8] = b"[kernel.kallsyms]";
    if name.starts_with(KERNEL) {
        let build_id = kernel::build_id()?;
        return Some(ModuleBuildId {
            path: KERNEL.to_vec(),
            is_kernel: true,
            build_id,
        });
    }
    let path = PathBuf::from(OsStr::from_bytes(name));
    let file = path.file_name()?.to_str()?.trim_matches(['[', ']']);
    let module = file
        .split_once(".ko")
        .map_or(file, |(module, _)| module)
        .replace('-', "_");
    let notes = Path::new("/sys/module")
        .join(&module)
        .join("notes/.note.gnu.build-id");
    let build_id = kernel::build_id_in_notes(&fs::read(notes).ok()?)?;
    Some(ModuleBuildId {
        path: name.to_vec(),
        is_kernel: true,
        build_id,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::existing::Synthesizer;
    use dioptra_perfevents::{Attr, ByteOrder};
    use std::process::Command;

    fn modules_of(pid: u32) -> Modules {
        let attr = Attr::default();
        let mut modules = Modules::new(RecordLayout::new(&attr, ByteOrder::NATIVE));
        let mut synthesizer = Synthesizer::new(&attr, 0, |bytes: &[u8]| {
            let (record, _) = RawRecord::split(bytes, ByteOrder::NATIVE).unwrap();
            modules.see(&record);
            Ok::<(), std::io::Error>(())
        });
        synthesizer.kernel("no-such-release").unwrap();
        synthesizer.process(pid).unwrap();
        modules
    }

    #[test]
    fn build_ids_are_those_that_readelf_shows() {
        let Ok(output) = Command::new("readelf")
            .arg("-n")
            .arg("/proc/self/exe")
            .output()
        else {
            return dioptra_testprograms::skip("readelf is not installed");
        };
        // readelf showed its own build id.
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let Some(expected) = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("Build ID: "))
        else {
            return dioptra_testprograms::skip("readelf itself has no build id");
        };
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        // A spawned child has executed its program by now.
        let found = modules_of(child.id()).build_ids();
        child.kill().unwrap();
        child.wait().unwrap();
        let libc = found
            .iter()
            .find(|module| module.path.windows(5).any(|part| part == b"libc."));
        let libc = libc.expect("sleep maps the C library");
        let path = OsStr::from_bytes(&libc.path);
        let output = Command::new("readelf")
            .arg("-n")
            .arg(path)
            .output()
            .unwrap();
        let hex: String = libc
            .build_id
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert!(
            String::from_utf8_lossy(&output.stdout).contains(&hex),
            "{hex} is not {path:?}'s"
        );
        assert_eq!(expected.len(), hex.len());
    }

    #[test]
    fn a_file_that_was_replaced_gets_no_build_id() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("sleeper");
        fs::copy("/bin/sleep", &program).unwrap();
        let mut child = Command::new(&program).arg("60").spawn().unwrap();
        let modules = modules_of(child.id());
        let has = |modules: &Modules| {
            modules
                .build_ids()
                .iter()
                .any(|module| module.path == program.as_os_str().as_bytes())
        };
        let before = has(&modules);
        let other = folder.path().join("other");
        fs::copy("/bin/true", &other).unwrap();
        fs::rename(&other, &program).unwrap();
        // While the process lives, its own root folder leads to the new file, too.
        let after = has(&modules);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(
            before
                || dioptra_symbols::build_id(Path::new("/bin/sleep"))
                    .unwrap()
                    .is_none()
        );
        assert!(!after);
    }
}
