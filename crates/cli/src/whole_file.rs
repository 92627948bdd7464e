//! Files that appear under their names when they are complete.

use anyhow::Context;
use std::fs::{self, File, Permissions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Writes a file that appears under its name when it is complete. A special file, such as `/dev/null`, is written to as
/// it is.
pub fn write_whole<T>(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<&File>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let failed = || {
        format!(
            "{}: cannot be written; give another file with -o",
            path.display()
        )
    };
    // A link's target is written to, as by any other program.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if fs::metadata(&target).is_ok_and(|found| !found.is_file()) {
        let file = File::create(&target).with_context(failed)?;
        let mut out = BufWriter::new(&file);
        let result = write(&mut out)?;
        out.flush().with_context(failed)?;
        return Ok(result);
    }
    let folder = target
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let file = tempfile::Builder::new()
        .prefix(".dioptra-")
        // Less the bits of the umask, as any new file.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder.unwrap_or(Path::new(".")))
        .with_context(failed)?;
    let mut out = BufWriter::new(file.as_file());
    let result = write(&mut out)?;
    out.flush().with_context(failed)?;
    drop(out);
    file.persist(&target).with_context(failed)?;
    Ok(result)
}
