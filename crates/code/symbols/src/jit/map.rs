//! `/tmp/perf-PID.map`: one function a line, `START SIZE NAME`, the numbers in hexadecimal.

use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::versions::Versions;
use crate::build_id::open_regular;
use crate::cause::FileDamage;
use crate::note::Note;

/// Reads a map file; later lines replace earlier ones.
///
/// Anybody may have put it where the process would have: one that belongs neither to this user nor to root is refused.
pub(super) fn read(path: &Path, versions: &mut Versions) -> Option<Note> {
    let mut bytes = Vec::new();
    let failed = |error: std::io::Error| {
        let path = path.to_path_buf();
        Some(match error.kind() {
            ErrorKind::NotFound => Note::NoJitMap { path },
            _ => Note::NoFile {
                path,
                reason: error.into(),
            },
        })
    };
    let opened = open_regular(path).and_then(|file| Ok((file.metadata()?.uid(), file)));
    let mut file = match opened {
        Ok((owner, file)) if owner == 0 || owner == own_user() => file,
        Ok((owner, _)) => {
            return Some(Note::JitMapRefused {
                path: path.to_path_buf(),
                owner,
            });
        }
        Err(error) => return failed(error),
    };
    if let Err(error) = file.read_to_end(&mut bytes) {
        return failed(error);
    }
    let mut bad = 0;
    let lines = bytes.split(|&byte| byte == b'\n');
    for (order, line) in lines.filter(|line| !line.is_empty()).enumerate() {
        let line = String::from_utf8_lossy(line);
        match function(&line) {
            Some((start, size, name)) => versions.load(start, size, 0, order as u64, name),
            None => bad += 1,
        }
    }
    (bad > 0).then(|| Note::Damaged {
        path: path.to_path_buf(),
        what: FileDamage::JitMapLines { count: bad },
    })
}

fn function(line: &str) -> Option<(u64, u64, &str)> {
    let mut fields = line.trim_end_matches('\r').splitn(3, ' ');
    let mut number = || {
        let field = fields.next()?;
        u64::from_str_radix(field.strip_prefix("0x").unwrap_or(field), 16).ok()
    };
    let (start, size) = (number()?, number()?);
    Some((start, size, fields.next()?))
}

/// The user whom files that this process makes belong to.
fn own_user() -> u32 {
    // The process's own folder belongs to its effective user.
    std::fs::metadata("/proc/self").map_or(u32::MAX, |data| data.uid())
}
