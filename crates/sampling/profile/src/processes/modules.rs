//! Modules of mappings, interned, and their names in tables.

use crate::hash::FxBuildHasher;
use dioptra_symbols::ModuleKind;
use hashbrown::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The index of a [`Module`] in [`Modules`].
pub type ModuleId = u32;

/// The prefix of the names of mappings that hold a tracer's thunks.
const THUNKS: &[u8] = b"/memfd:dioptra ";

/// The name in tables of the module that holds a tracer's hooks and thunks.
const TRACER_LABEL: &str = "[dioptra trace]";

/// The name in tables of all code in the module that holds a tracer's hooks and thunks. The recording does not say which
/// piece of the code is which: the code exists in the traced process's memory only.
pub(crate) const HOOKS: &str = "[hooks and thunks]";

/// The name in tables of modules and functions that could not be found.
pub const UNKNOWN: &str = "[unknown]";

/// The prefix of the names in tables of modules that are a process's memory without a file. The process's number
/// follows.
pub(crate) const JIT_LABEL: &str = "[JIT] tid ";

/// The kernel's name in tables.
pub const KERNEL: &str = "[kernel.kallsyms]";

/// An executable file, shared object, kernel, kernel module, vdso or JIT region.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Module {
    /// The kind of the module, which decides the meaning of its relative addresses. They are file offsets for a file
    /// and the vdso, and absolute addresses for the kernel, its modules, and memory without a file.
    pub kind: ModuleKind,
    /// The mapping's recorded name, for a file its path; of any encoding.
    pub path: Vec<u8>,
    /// The build id, where the recording states one, without the zeros that pad it in recordings.
    pub build_id: Option<Vec<u8>>,
    /// The name in tables: a file's base name, `[ext4]` for a kernel module, else the bracketed name of the mapping.
    pub label: String,
}

impl Module {
    /// Returns the recorded path.
    pub fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.path))
    }

    /// Returns whether the module holds the thunks of a function tracer of this project. Each traced call has a thunk
    /// between caller and callee.
    pub fn holds_thunks(&self) -> bool {
        self.path.starts_with(THUNKS)
    }

    /// Returns whether the module is the one to which addresses without a mapping belong.
    pub fn is_unknown(&self) -> bool {
        self.path.is_empty()
    }
}

/// All modules of a recording. The first is always the unknown one, to which addresses without a mapping belong.
#[derive(Clone, Debug)]
pub struct Modules {
    list: Vec<Module>,
    /// The modules that hold a tracer's thunks.
    thunks: Vec<ModuleId>,
    ids: HashMap<Module, ModuleId, FxBuildHasher>,
}

impl Default for Modules {
    fn default() -> Self {
        let mut modules = Modules {
            list: Vec::new(),
            thunks: Vec::new(),
            ids: HashMap::default(),
        };
        modules.intern(Module {
            kind: ModuleKind::NotAFile,
            path: Vec::new(),
            build_id: None,
            label: UNKNOWN.to_owned(),
        });
        modules
    }
}

impl Modules {
    /// The module of addresses without a mapping.
    pub const UNKNOWN: ModuleId = 0;

    /// Returns the module with this id. An id of another recording, out of range here, gives the unknown module.
    pub fn get(&self, id: ModuleId) -> &Module {
        self.list.get(id as usize).unwrap_or(&self.list[0])
    }

    /// Returns the number of modules, the unknown module included.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns false: the unknown module is always there.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns all modules in the order of their ids.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Module> {
        self.list.iter()
    }

    /// Returns whether a module holds the thunks of a function tracer of this project ([`Module::holds_thunks`]).
    #[inline]
    pub(crate) fn holds_thunks(&self, id: ModuleId) -> bool {
        self.thunks.contains(&id)
    }

    pub(crate) fn intern(&mut self, module: Module) -> ModuleId {
        if let Some(id) = self.ids.get(&module) {
            return *id;
        }
        // Each module costs a record of the file. Files of 4 Gi records of at least 64 bytes cannot be mapped on any
        // machine today. In such a file the last modules would share the last id.
        let id = ModuleId::try_from(self.list.len()).unwrap_or(ModuleId::MAX);
        if module.holds_thunks() {
            self.thunks.push(id);
        }
        self.list.push(module.clone());
        self.ids.insert(module, id);
        id
    }
}

impl Modules {
    /// Gives a module that was interned without a build id the one that `identified` has. A module of both may be there by
    /// now; then they stay apart.
    pub(crate) fn identify(&mut self, identified: Module) {
        if identified.build_id.is_none() {
            return;
        }
        let anonymous = Module {
            build_id: None,
            ..identified.clone()
        };
        let Some(id) = self.ids.remove(&anonymous) else {
            return;
        };
        self.list[id as usize] = identified.clone();
        self.ids.entry(identified).or_insert(id);
    }
}

/// Returns the module that a user-space mapping of process `pid` stands for.
pub(crate) fn user_module(name: &[u8], build_id: Option<&[u8]>, pid: u32) -> Module {
    let kind = ModuleKind::of_mapping(Path::new(OsStr::from_bytes(name)));
    if name.starts_with(b"//anon")
        || name.starts_with(b"/dev/zero")
        || name.starts_with(b"/anon_hugepage")
    {
        // Code without a file comes from a just-in-time compiler, which may name it in a map file of the process.
        return Module {
            kind: ModuleKind::NotAFile,
            path: format!("/tmp/perf-{pid}.map").into_bytes(),
            build_id: None,
            label: format!("{JIT_LABEL}{pid}"),
        };
    }
    let base = if name.starts_with(b"[") {
        name
    } else if name.starts_with(THUNKS) {
        TRACER_LABEL.as_bytes()
    } else {
        name.rsplit(|byte| *byte == b'/').next().unwrap_or(name)
    };
    Module {
        kind,
        path: name.to_vec(),
        build_id: build_id.map(<[u8]>::to_vec),
        label: String::from_utf8_lossy(base).into_owned(),
    }
}

/// Returns the module that a kernel mapping stands for: the kernel itself or a loadable module.
pub(crate) fn kernel_module(name: &[u8], build_id: Option<&[u8]>) -> Module {
    let base = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
    let (path, label) = if is_kernel_image(name) {
        (KERNEL.as_bytes(), KERNEL.to_owned())
    } else if let Some(end) = find(base, b".ko") {
        let name = String::from_utf8_lossy(&base[..end]).replace('-', "_");
        (base, format!("[{name}]"))
    } else {
        (name, String::from_utf8_lossy(base).into_owned())
    };
    Module {
        kind: ModuleKind::Kernel,
        path: path.to_vec(),
        build_id: build_id.map(<[u8]>::to_vec),
        label,
    }
}

/// Returns whether a kernel mapping's name is that of the kernel image, such as `[kernel.kallsyms]_text`.
pub(crate) fn is_kernel_image(name: &[u8]) -> bool {
    name.starts_with(b"[kernel") || name.starts_with(b"[guest.kernel.kallsyms")
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_perfs() {
        let label = |name: &[u8]| user_module(name, None, 7).label;
        assert_eq!(label(b"/usr/lib/x86_64-linux-gnu/libc.so.6"), "libc.so.6");
        assert_eq!(label(b"[vdso]"), "[vdso]");
        assert_eq!(label(b"//anon"), "[JIT] tid 7");
        assert_eq!(label(b"[heap]"), "[heap]");
        assert_eq!(label(b"/memfd:jit (deleted)"), "memfd:jit (deleted)");
        assert_eq!(label(b"/memfd:dioptra (deleted)"), TRACER_LABEL);
        assert_eq!(
            label(b"/memfd:dioptra2 (deleted)"),
            "memfd:dioptra2 (deleted)"
        );
        assert_eq!(label(b"/tmp/x (deleted)"), "x (deleted)");
        let label = |name: &[u8]| kernel_module(name, None).label;
        assert_eq!(label(b"[kernel.kallsyms]_text"), KERNEL);
        assert_eq!(
            label(b"/lib/modules/6.1/kernel/net/nf-tables.ko.xz"),
            "[nf_tables]"
        );
        assert_eq!(label(b"[ext4]"), "[ext4]");
    }

    #[test]
    fn equal_modules_share_an_id_and_the_first_is_unknown() {
        let mut modules = Modules::default();
        let one = modules.intern(user_module(b"/bin/a", None, 1));
        assert_eq!(modules.intern(user_module(b"/bin/a", None, 2)), one);
        assert_ne!(modules.intern(user_module(b"/bin/a", Some(&[1]), 2)), one);
        assert!(modules.get(Modules::UNKNOWN).is_unknown());
        assert!(modules.get(99).is_unknown());
    }

    #[test]
    fn a_module_gets_its_build_id_later() {
        let mut modules = Modules::default();
        let one = modules.intern(user_module(b"/bin/a", None, 1));
        let other = modules.intern(user_module(b"/bin/b", None, 1));
        modules.identify(user_module(b"/bin/a", Some(&[1, 2]), 0));
        modules.identify(user_module(b"/bin/c", Some(&[3]), 0));
        assert_eq!(modules.get(one).build_id.as_deref(), Some(&[1, 2][..]));
        assert_eq!(modules.get(other).build_id, None);
        assert_eq!(
            modules.intern(user_module(b"/bin/a", Some(&[1, 2]), 7)),
            one
        );
        // The build id that a mapping itself states stays.
        modules.identify(user_module(b"/bin/a", Some(&[9]), 0));
        assert_eq!(modules.get(one).build_id.as_deref(), Some(&[1, 2][..]));
    }
}
