//! The runtime, which is carried inside this program and written to a file that the dynamic linker can load.

use crate::TraceError;
use crate::serving::maps::page_size;
use dioptra_tracelayout::arena::LARGEST_PAGE;
use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::process::geteuid;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The shared object's bytes; empty where tracing is not supported.
pub static BYTES: &[u8] = include_bytes!(env!("DIOPTRA_TRACE_RUNTIME_FILE"));

/// The hash of the runtime's content, a part of the file's name.
const HASH: &str = env!("DIOPTRA_TRACE_RUNTIME_HASH");

/// Writes the runtime to a file named by its content, unless it is there already, and returns the path.
///
/// The folder is the user's cache folder, or one in the folder for temporary files; nobody else may write there, and it
/// is not on a file system that is mounted noexec.
///
/// # Errors
/// [`TraceError::Unsupported`], [`TraceError::Runtime`]
pub fn write() -> Result<PathBuf, TraceError> {
    if BYTES.is_empty() || page_size() > LARGEST_PAGE as u64 {
        return Err(TraceError::Unsupported);
    }
    let name = format!("trace-runtime-{HASH}.so");
    let mut last = None;
    for folder in folders() {
        match write_in(&folder, &name) {
            Ok(path) => return Ok(path),
            Err(source) => last = Some((folder, source)),
        }
    }
    let (path, source) = last.unwrap_or_else(|| (PathBuf::new(), io::ErrorKind::NotFound.into()));
    Err(TraceError::Runtime { path, source })
}

fn folders() -> Vec<PathBuf> {
    let user = geteuid();
    // A home folder that does not exist, such as that of a service's user, is not made.
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(home.filter(|home| home.is_dir())?.join(".cache")))
        .filter(|path| path.is_absolute())
        .map(|path| path.join("dioptra"));
    let temporary = std::env::temp_dir().join(format!("dioptra-{}", user.as_raw()));
    cache.into_iter().chain([temporary]).collect()
}

/// Returns whether a folder's file system is mounted noexec, so that no code may be loaded from it.
fn is_noexec(folder: &Path) -> bool {
    statvfs(folder).is_ok_and(|system| system.f_flag.contains(StatVfsMountFlags::NOEXEC))
}

fn write_in(folder: &Path, name: &str) -> io::Result<PathBuf> {
    if let Some(parent) = folder.parent() {
        fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let metadata = fs::symlink_metadata(folder)?;
    if !metadata.is_dir() || metadata.uid() != geteuid().as_raw() || metadata.mode() & 0o022 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "not a folder that only this user can write",
        ));
    }
    if is_noexec(folder) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "on a file system from which nothing may be executed (noexec)",
        ));
    }
    let path = folder.join(name);
    if fs::read(&path).is_ok_and(|bytes| bytes == BYTES) {
        return Ok(path);
    }
    let scratch = folder.join(format!(".{name}.{}", std::process::id()));
    let write = || {
        let mut file: File = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o700)
            .open(&scratch)?;
        file.write_all(BYTES)?;
        fs::rename(&scratch, &path)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&scratch);
    })?;
    Ok(path)
}
