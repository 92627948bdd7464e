//! Compiles a test program once for each combination of source, flags and compiler.
//!
//! Results lie under `<target>/testprograms/<name>-<hash>/<file>`. Several test processes may build the same
//! program at once: each compiles into a folder of its own and then links the result into place; the
//! first one wins and is never replaced, since it may be running already (a replaced file would show as
//! "(deleted)" in its mappings).

use std::collections::HashMap;
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::machine::{repository_root, tool};
use crate::skip::Skip;

/// The language of a program's source, which decides its file's ending, compiler and default flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Language {
    /// `NAME.c`, built by `gcc`.
    C,
    /// `NAME.cpp`, built by `g++`.
    Cpp,
    /// `NAME.rs`, built by the `rustc` of the environment (`RUSTC`, else the one on the path).
    Rust,
}

impl Language {
    fn ending(self) -> &'static str {
        match self {
            Self::C => "c",
            Self::Cpp => "cpp",
            Self::Rust => "rs",
        }
    }

    fn compiler(self) -> OsString {
        match self {
            Self::C => "gcc".into(),
            Self::Cpp => "g++".into(),
            Self::Rust => std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()),
        }
    }

    /// Frame pointers, debug information, a build id; optimised as far as functions stay what the source says.
    fn default_flags(self) -> &'static [&'static str] {
        match self {
            Self::C | Self::Cpp => &[
                "-O1",
                "-g",
                "-fno-omit-frame-pointer",
                "-fno-optimize-sibling-calls",
                "-pthread",
                "-Wl,--build-id=sha1",
            ],
            Self::Rust => &[
                "--edition=2024",
                "-g",
                "-Copt-level=1",
                "-Cforce-frame-pointers=yes",
                "-Clink-arg=-Wl,--build-id=sha1",
            ],
        }
    }
}

/// A program of `tests/programs` and how to build it.
#[derive(Debug, Clone)]
pub struct Program {
    source: PathBuf,
    language: Language,
    output: String,
    compiler: OsString,
    flags: Vec<OsString>,
}

impl Program {
    /// `tests/programs/NAME` with the language's ending, built with its default compiler and flags into an
    /// executable called `NAME`.
    pub fn new(language: Language, name: &str) -> Self {
        let source = repository_root()
            .join("tests/programs")
            .join(format!("{name}.{}", language.ending()));
        Self::from_source(language, source)
    }

    /// The same for a source file anywhere, for example one that a test has generated.
    pub fn from_source(language: Language, source: impl Into<PathBuf>) -> Self {
        let source = source.into();
        let output = source
            .file_stem()
            .map_or_else(|| "program".into(), |s| s.to_string_lossy().into_owned());
        Self {
            source,
            language,
            output,
            compiler: language.compiler(),
            flags: language
                .default_flags()
                .iter()
                .map(OsString::from)
                .collect(),
        }
    }

    /// Adds flags after the present ones, so that they can undo them (`-O0`, `-fomit-frame-pointer`).
    #[must_use]
    pub fn flags<S: Into<OsString>>(mut self, flags: impl IntoIterator<Item = S>) -> Self {
        self.flags.extend(flags.into_iter().map(Into::into));
        self
    }

    /// Drops all flags so far, the default ones too.
    #[must_use]
    pub fn no_flags(mut self) -> Self {
        self.flags.clear();
        self
    }

    /// Another compiler, a name on the path or a path: `clang`, `aarch64-linux-gnu-gcc`.
    #[must_use]
    pub fn compiler(mut self, compiler: impl Into<OsString>) -> Self {
        self.compiler = compiler.into();
        self
    }

    /// Makes it a shared library, called `libNAME.so`.
    #[must_use]
    pub fn shared_library(mut self) -> Self {
        self.output = format!("lib{}.so", self.output);
        match self.language {
            Language::C | Language::Cpp => self.flags(["-shared", "-fPIC"]),
            Language::Rust => self.flags(["--crate-type=cdylib"]),
        }
    }

    /// Another name for the built file (a file name, no path).
    #[must_use]
    pub fn output(mut self, file_name: &str) -> Self {
        self.output = file_name.into();
        self
    }

    /// The path of the built file, built now unless that happened before.
    ///
    /// # Errors
    /// [`Skip`] if the compiler is not installed.
    ///
    /// # Panics
    /// If the source cannot be read, does not compile, or the cache cannot be written: that is a defect of
    /// the test or the disk, and skipping would hide it.
    pub fn build(&self) -> Result<PathBuf, Skip> {
        let version = compiler_version(&self.compiler)?;
        let hash = match self.hash(&version) {
            Ok(hash) => hash,
            Err(error) => panic!("{}: {error}", self.source.display()),
        };
        let folder = cache().join(format!("{}-{hash:016x}", self.output));
        let file = folder.join(&self.output);
        if file.exists() {
            return Ok(file);
        }
        match self.compile_into(&folder, &file) {
            Ok(()) => Ok(file),
            Err(error) => panic!("building {}: {error}", file.display()),
        }
    }

    fn hash(&self, compiler_version: &str) -> io::Result<u64> {
        let mut hasher = DefaultHasher::new();
        // The path is part of the debug information.
        self.source.hash(&mut hasher);
        std::fs::read(&self.source)?.hash(&mut hasher);
        self.language.hash(&mut hasher);
        self.compiler.hash(&mut hasher);
        compiler_version.hash(&mut hasher);
        self.flags.hash(&mut hasher);
        Ok(hasher.finish())
    }

    fn compile_into(&self, folder: &Path, file: &Path) -> io::Result<()> {
        std::fs::create_dir_all(folder)?;
        let scratch = tempfile::Builder::new()
            .prefix(".build-")
            .tempdir_in(folder)?;
        let built = scratch.path().join(&self.output);
        let mut command = Command::new(&self.compiler);
        command.stdin(Stdio::null()).arg("-o").arg(&built);
        if self.language == Language::Rust {
            // A crate's name holds no dots or dashes.
            let name: String = self
                .output
                .chars()
                .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
                .collect();
            command
                .arg("--crate-name")
                .arg(name)
                .arg(&self.source)
                .args(&self.flags);
        } else {
            // Libraries among the flags (-lm) count only after the source.
            command.arg(&self.source).args(&self.flags);
        }
        let output = command.output()?;
        if !output.status.success() {
            let messages = String::from_utf8_lossy(&output.stderr);
            return Err(io::Error::other(format!(
                "{command:?}: {}\n{messages}",
                output.status
            )));
        }
        // Unlike a rename, a link fails where the file exists.
        match std::fs::hard_link(&built, file) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }
}

/// Builds `tests/programs/NAME.c` with the default flags and these after them; see [`Program::build`].
pub fn c(name: &str, flags: &[&str]) -> Result<PathBuf, Skip> {
    Program::new(Language::C, name).flags(flags).build()
}

/// Builds `tests/programs/NAME.cpp` with the default flags and these after them; see [`Program::build`].
pub fn cpp(name: &str, flags: &[&str]) -> Result<PathBuf, Skip> {
    Program::new(Language::Cpp, name).flags(flags).build()
}

/// Builds `tests/programs/NAME.rs` with the default flags and these after them; see [`Program::build`].
pub fn rust(name: &str, flags: &[&str]) -> Result<PathBuf, Skip> {
    Program::new(Language::Rust, name).flags(flags).build()
}

/// Builds the C source `tests/programs/NAME.c` into a shared library `libOUTPUT.so`; see [`Program::build`].
///
/// `shared_library("plugin", "first", &["-DPLUGIN_WORK=first_work"])` is a `libfirst.so` for `dlopen.c`.
pub fn shared_library(name: &str, output: &str, flags: &[&str]) -> Result<PathBuf, Skip> {
    Program::new(Language::C, name)
        .shared_library()
        .output(&format!("lib{output}.so"))
        .flags(flags)
        .build()
}

/// The address of `_text` for which [`kernel`] is linked.
pub const KERNEL_LINKED: u64 = 0xffff_ffff_8100_0000;

/// Builds `tests/programs/kernel.c` into a kernel's own file for x86-64, as its build leaves one, with these flags
/// more; see [`Program::build`].
pub fn kernel(flags: &[&str]) -> Result<PathBuf, Skip> {
    let address = |flag: &str| format!("-Wl,{flag}={KERNEL_LINKED:#x}");
    Program::new(Language::C, "kernel")
        .no_flags()
        .flags(["-O2", "-g", "-ffreestanding", "-nostdlib", "-static"])
        .flags(["-fno-pie", "-no-pie", "-mcmodel=kernel", "-Wl,--build-id"])
        .flags([address("-Ttext"), address("--defsym=_text")])
        .flags(flags)
        .output("vmlinux")
        .build()
}

/// Returns the output of `COMPILER --version`; the compiler runs once in a process.
fn compiler_version(compiler: &OsString) -> Result<String, Skip> {
    static VERSIONS: OnceLock<Mutex<HashMap<OsString, String>>> = OnceLock::new();
    // A panic elsewhere leaves the map whole.
    let mut versions = VERSIONS
        .get_or_init(Mutex::default)
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if let Some(version) = versions.get(compiler) {
        return Ok(version.clone());
    }
    let missing = || {
        Skip::new(format!(
            "the compiler {} is not installed",
            compiler.to_string_lossy()
        ))
    };
    if !Path::new(compiler).is_absolute() && tool(&compiler.to_string_lossy()).is_none() {
        return Err(missing());
    }
    let output = Command::new(compiler)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .map_err(|_| missing())?;
    if !output.status.success() {
        return Err(missing());
    }
    let version = String::from_utf8_lossy(&output.stdout).into_owned();
    versions.insert(compiler.clone(), version.clone());
    Ok(version)
}

/// Where built programs lie: below `CARGO_TARGET_DIR`, else the repository's `target`.
pub(crate) fn cache() -> PathBuf {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    // Cargo takes a relative one from its own working folder, which in tests is not ours.
    repository_root().join(target).join("testprograms")
}
