//! The search for a separate debug file.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::read::ReadCache;

use crate::build_id::{open_regular, same_build};
use crate::cause::{DebugFileRefusal, IoCause};
use crate::elf::Image;
use crate::note::{Hex, Note};
use crate::options::SymbolOptions;

/// The description of a debug file in its stripped file.
pub(crate) struct DebugFileRequest<'a> {
    /// The stripped file as found on this machine.
    pub path: &'a Path,
    pub build_id: Option<&'a [u8]>,
    /// Name and CRC-32 of `.gnu_debuglink`.
    pub link: Option<(&'a [u8], u32)>,
}

/// Finds the debug file: by build id, else by name and checksum, else from the servers of the options. A
/// file that is there but belongs to another build leaves a note.
pub(crate) fn find(
    wanted: &DebugFileRequest<'_>,
    options: &SymbolOptions,
    notes: &mut Vec<Note>,
) -> Option<PathBuf> {
    find_here(wanted, options, notes).or_else(|| fetch(wanted, options, notes))
}

/// Asks the debuginfod servers, if the options have some.
fn fetch(
    wanted: &DebugFileRequest<'_>,
    options: &SymbolOptions,
    notes: &mut Vec<Note>,
) -> Option<PathBuf> {
    let servers = options.debuginfod.as_ref()?;
    let id = wanted.build_id.filter(|id| id.len() > 1)?;
    let path = servers.find(id, notes)?;
    accept(&path, wanted, false, notes).then_some(path)
}

fn find_here(
    wanted: &DebugFileRequest<'_>,
    options: &SymbolOptions,
    notes: &mut Vec<Note>,
) -> Option<PathBuf> {
    if let Some(id) = wanted.build_id.filter(|id| id.len() > 1) {
        let (first, rest) = id.split_at(1);
        let below = format!(".build-id/{}/{}.debug", Hex(first), Hex(rest));
        for path in directories(options).map(|dir| dir.join(&below)) {
            if accept(&path, wanted, false, notes) {
                return Some(path);
            }
        }
    }
    let (name, _) = wanted.link?;
    let name = Path::new(OsStr::from_bytes(name));
    // The link is a bare file name by definition; anything else would lead out of the directories.
    if name.file_name() != Some(name.as_os_str()) {
        return None;
    }
    let dir = wanted.path.parent()?;
    let recorded_dir = match &options.symfs {
        Some(root) => dir.strip_prefix(root).unwrap_or(dir),
        None => dir,
    };
    let inside = recorded_dir.strip_prefix("/").unwrap_or(recorded_dir);
    let beside = [dir.join(name), dir.join(".debug").join(name)];
    let elsewhere = directories(options).map(|debug| debug.join(inside).join(name));
    beside
        .into_iter()
        .chain(elsewhere)
        .find(|path| path != wanted.path && accept(path, wanted, true, notes))
}

/// Finds the file that holds what several debug files have in common, by `.gnu_debugaltlink` of the
/// file at `from`: its name and build id.
pub(crate) fn find_supplementary(
    from: &Path,
    (name, build_id): (&[u8], &[u8]),
    options: &SymbolOptions,
    notes: &mut Vec<Note>,
) -> Option<PathBuf> {
    let wanted = DebugFileRequest {
        path: from,
        build_id: Some(build_id),
        link: None,
    };
    let name = Path::new(OsStr::from_bytes(name));
    let mut candidates = Vec::new();
    if name.is_absolute() {
        if let Some(root) = &options.symfs {
            candidates.push(root.join(name.strip_prefix("/").unwrap_or(name)));
        }
        candidates.push(name.to_path_buf());
    } else {
        // Debug files are found through links by build id too; the name is meant from the real place.
        let real = from.canonicalize();
        let dirs = [from.parent(), real.as_deref().ok().and_then(Path::parent)];
        candidates.extend(dirs.into_iter().flatten().map(|dir| dir.join(name)));
    }
    if build_id.len() > 1 {
        let (first, rest) = build_id.split_at(1);
        let below = format!(".build-id/{}/{}.debug", Hex(first), Hex(rest));
        candidates.extend(directories(options).map(|dir| dir.join(&below)));
    }
    candidates
        .into_iter()
        .find(|path| accept(path, &wanted, false, notes))
        .or_else(|| fetch(&wanted, options, notes))
}

/// The debug directories, those below `symfs` first.
fn directories(options: &SymbolOptions) -> impl Iterator<Item = PathBuf> {
    let below_symfs = options.symfs.iter().flat_map(|root| {
        options
            .debug_dirs
            .iter()
            .map(|dir| root.join(dir.strip_prefix("/").unwrap_or(dir)))
    });
    below_symfs.chain(options.debug_dirs.iter().cloned())
}

/// Whether a candidate exists and is of the same build.
fn accept(
    path: &Path,
    wanted: &DebugFileRequest<'_>,
    by_link: bool,
    notes: &mut Vec<Note>,
) -> bool {
    let Ok(file) = open_regular(path) else {
        return false;
    };
    match check(file, wanted, by_link) {
        Ok(()) => true,
        Err(why) => {
            notes.push(Note::DebugFileRefused {
                path: path.to_path_buf(),
                why,
            });
            false
        }
    }
}

/// Checks that a debug file belongs to the wanted build.
fn check(file: File, wanted: &DebugFileRequest<'_>, by_link: bool) -> Result<(), DebugFileRefusal> {
    let cache = ReadCache::new(file);
    let image = Image::parse(&cache)?;
    match (wanted.build_id, image.build_id()) {
        (Some(wanted), Some(found)) if same_build(wanted, found) => return Ok(()),
        (Some(wanted), Some(found)) => {
            return Err(DebugFileRefusal::OtherBuild {
                found: found.to_vec(),
                wanted: wanted.to_vec(),
            });
        }
        (Some(wanted), None) if !by_link => {
            return Err(DebugFileRefusal::NoBuildId {
                wanted: wanted.to_vec(),
            });
        }
        _ => {}
    }
    let Some((_, wanted)) = wanted.link else {
        return Err(DebugFileRefusal::Unproven);
    };
    drop(image);
    let found = checksum(cache.into_inner()).map_err(IoCause::from)?;
    if found == wanted {
        Ok(())
    } else {
        Err(DebugFileRefusal::OtherChecksum { found, wanted })
    }
}

/// CRC-32 over a whole file.
fn checksum(mut file: File) -> std::io::Result<u32> {
    use std::io::Seek;
    file.rewind()?;
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; 256 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finalize()),
            read => hasher.update(&buffer[..read]),
        }
    }
}
