//! The programs of `tests/pmu`, built for the guest.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::listing::Listing;
use crate::root;

/// A built program.
pub struct Program {
    /// The executable.
    pub path: PathBuf,
    /// Its instructions.
    pub listing: Listing,
}

/// Builds `sources` of `tests/pmu` as `folder/name` with further flags of the compiler.
///
/// # Errors
/// If the cross compiler or objdump fails.
pub fn build(folder: &Path, name: &str, sources: &[&str], flags: &[&str]) -> Result<Program> {
    let home = root().join("tests/pmu");
    let path = folder.join(name);
    let mut command = Command::new("aarch64-linux-gnu-gcc");
    command
        .args(["-g", "-static", "-Wall", "-Werror", "-Wl,--build-id"])
        .arg(format!("-Wa,-I{}", home.display()))
        .args(flags)
        .arg("-o")
        .arg(&path)
        .args(sources.iter().map(|source| home.join(source)));
    run(&mut command)?;
    let listing = run(Command::new("aarch64-linux-gnu-objdump")
        .args(["-d", "--no-show-raw-insn"])
        .arg(&path))?;
    Ok(Program {
        path,
        listing: Listing::parse(&listing),
    })
}

/// Builds an assembler source without a C library, with constants for its numbers of turns.
///
/// # Errors
/// As [`build`].
pub fn assemble(folder: &Path, name: &str, source: &str, turns: &[(&str, u64)]) -> Result<Program> {
    let constants: Vec<_> = turns
        .iter()
        .map(|(name, value)| format!("-Wa,--defsym,{name}={value}"))
        .collect();
    let flags: Vec<_> = std::iter::once("-nostdlib")
        .chain(constants.iter().map(String::as_str))
        .collect();
    build(folder, name, &[source], &flags)
}

fn run(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("running {}", command.get_program().to_string_lossy()))?;
    if !output.status.success() {
        bail!(
            "{command:?} failed:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
