//! The program `dioptra-store`, which comes as a binary of its own.

use anyhow::bail;
use std::path::PathBuf;

/// The name of the program.
const NAME: &str = "dioptra-store";

/// Finds the program beside this one, or in the directories of `PATH`.
pub fn store_program() -> anyhow::Result<PathBuf> {
    let beside = std::env::current_exe()
        .ok()
        .and_then(|own| Some(own.parent()?.join(NAME)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|directory| directory.join(NAME));
    match beside
        .into_iter()
        .chain(on_path)
        .find(|program| program.is_file())
    {
        Some(program) => Ok(program),
        None => bail!(
            "{NAME} is not installed; build it from crates/store, and put it beside dioptra or on PATH"
        ),
    }
}
