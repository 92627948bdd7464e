//! The requests of callers: the wanted module, and the sources of names.

use std::path::{Path, PathBuf};

use crate::address::MemoryAddress;
use crate::debuginfod::Debuginfod;

/// The kind of thing that a mapping's name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ModuleKind {
    /// An executable or shared object on disk.
    File,
    /// The kernel and its loadable modules, at absolute addresses.
    Kernel,
    /// The code page(s) the kernel maps into each process (`[vdso]`).
    Vdso,
    /// Memory without a file: `//anon`, `[heap]`, `[stack]`, `[vsyscall]`, memfds, …
    NotAFile,
}

impl ModuleKind {
    /// The kind that a user-space mapping's recorded name tells.
    ///
    /// ```
    /// use dioptra_symbols::ModuleKind;
    /// assert_eq!(ModuleKind::of_mapping("/usr/bin/python3".as_ref()), ModuleKind::File);
    /// assert_eq!(ModuleKind::of_mapping("[vdso]".as_ref()), ModuleKind::Vdso);
    /// assert_eq!(ModuleKind::of_mapping("//anon".as_ref()), ModuleKind::NotAFile);
    /// ```
    #[must_use]
    pub fn of_mapping(name: &Path) -> Self {
        let bytes = name.as_os_str().as_encoded_bytes();
        if bytes == b"[vdso]" {
            return Self::Vdso;
        }
        const NOT_FILES: [&[u8]; 8] = [
            b"//anon",
            b"[",
            b"/memfd:",
            b"anon_inode:",
            b"/anon_hugepage",
            b"/dev/zero",
            b"/SYSV",
            b"/i915",
        ];
        if bytes.is_empty() || NOT_FILES.iter().any(|prefix| bytes.starts_with(prefix)) {
            Self::NotAFile
        } else {
            Self::File
        }
    }
}

/// A module as it was recorded.
#[derive(Debug, Clone, Copy)]
pub struct ModuleRequest<'a> {
    /// The kind of module.
    pub kind: ModuleKind,
    /// The mapping's name, for a file its path on the recorded machine.
    pub path: &'a Path,
    /// The build id recorded for it. Zero padding to 20 bytes, as recordings hold it, is understood.
    pub build_id: Option<&'a [u8]>,
}

/// Where names come from and how they are shown.
#[derive(Debug, Clone)]
pub struct SymbolOptions {
    /// Show C++ and Rust names as the programmer wrote them. Default: true.
    pub demangle: bool,
    /// Look for the recorded paths below this directory instead of `/`.
    pub symfs: Option<PathBuf>,
    /// Directories with separate debug files. Default: `/usr/lib/debug`.
    pub debug_dirs: Vec<PathBuf>,
    /// Servers to ask for debug files that aren't in those directories. Default: none, even if the
    /// environment names some; see [`Debuginfod::from_env`].
    pub debuginfod: Option<Debuginfod>,
    /// The kernel a recording was made on; `None` when it is this one, now.
    pub recorded_kernel: Option<RecordedKernel>,
    /// The kernel's symbols. Default: `/proc/kallsyms`. A copy taken on the recorded machine may be
    /// given; then it is trusted to belong to the recorded kernel.
    pub kallsyms: PathBuf,
    /// A folder in which the symbols of the running kernel are kept until it is started anew or loads modules, because
    /// `/proc/kallsyms` takes the kernel tens of milliseconds to write. Nobody but the user may be able to write there.
    /// Default: none.
    pub kallsyms_cache: Option<PathBuf>,
    /// The recorded kernel's `vmlinux` with its debug information. Default: looked for by build id where
    /// distributions put it.
    pub vmlinux: Option<PathBuf>,
}

impl Default for SymbolOptions {
    fn default() -> Self {
        Self {
            demangle: true,
            symfs: None,
            debug_dirs: vec![PathBuf::from("/usr/lib/debug")],
            debuginfod: None,
            recorded_kernel: None,
            kallsyms: PathBuf::from(crate::kernel::PROC_KALLSYMS),
            kallsyms_cache: None,
            vmlinux: None,
        }
    }
}

/// The kernel that a recording ran on, as recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordedKernel {
    /// The release as `uname -r` prints it.
    pub release: Option<String>,
    /// The kernel's GNU build id.
    pub build_id: Option<Vec<u8>>,
    /// A symbol and the address it had, such as `("_text", MemoryAddress(0xffffffff81000000))` from the kernel
    /// mapping's name `[kernel.kallsyms]_text` and its `pgoff`. Tells how far the kernel's random
    /// base has moved since.
    pub reference_symbol: Option<(String, MemoryAddress)>,
}
