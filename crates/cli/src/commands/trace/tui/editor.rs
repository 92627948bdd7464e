//! The user's editor at a source line.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the path of a source file on this machine: as the debug information has it, or in the folder in which the
/// program was traced.
///
/// # Errors
/// The file is not here; the error is a sentence.
pub fn find(file: &str, line: u32, folder: &str) -> Result<PathBuf, String> {
    let path = Path::new(file);
    let candidates = [path.to_owned(), Path::new(folder).join(path)];
    let found = candidates.into_iter().find(|path| path.is_file());
    found.ok_or_else(|| {
        let file = dioptra_tables::escape(file);
        format!("it is written at {file}:{line}, which is not on this machine")
    })
}

/// Runs `$EDITOR`, else `vi`, until it ends.
///
/// # Errors
/// The editor failed; the error is a sentence.
pub fn edit(path: &Path, line: u32) -> Result<(), String> {
    let editor = std::env::var("EDITOR").unwrap_or_default();
    let editor = match editor.trim() {
        "" => "vi",
        editor => editor,
    };
    // The variable may have arguments, as the shell understands them.
    let status = Command::new("sh")
        .arg("-c")
        .arg(format!("{editor} \"$@\""))
        .arg("sh")
        .arg(format!("+{line}"))
        .arg(path)
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("the editor `{editor}`: {status}; $EDITOR names it")),
        Err(error) => Err(format!("the editor `{editor}` does not start: {error}")),
    }
}
