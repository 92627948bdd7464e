//! Python packages from the registry, which bring the definitions of other tools' formats.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Skip;
use crate::build::cache;
use crate::machine::tool;

/// Returns a command that runs Python with some packages, which pip installs below the target folder at the first use.
/// Each package states its version, as in `perfetto==0.59.1`; packages that it depends on are listed, too.
///
/// # Errors
/// [`Skip`] if there is no Python with pip, or if pip fails, as without a registry.
///
/// # Panics
/// If the folder cannot be written.
pub fn python_with(packages: &[&str]) -> Result<Command, Skip> {
    let interpreters = ["python3", "/usr/bin/python3"];
    let mut found = interpreters.into_iter().filter_map(tool);
    let Some(python) = found.find(|python| version(python).is_some()) else {
        return Err(Skip::new("no python3 with pip is installed"));
    };
    let version = version(&python).unwrap_or_default();
    let folder = cache().join("python").join(version);
    let place = folder.join(packages.join("+"));
    if !place.exists() {
        install(&python, packages, &folder, &place)?;
    }
    let mut command = Command::new(python);
    command
        .env("PYTHONPATH", place)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    Ok(command)
}

/// Returns the version of a Python that has pip, in words that make a folder's name.
fn version(python: &Path) -> Option<String> {
    let program = "import pip, sys; print(sys.implementation.cache_tag)";
    let output = Command::new(python)
        .args(["-c", program])
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn install(python: &Path, packages: &[&str], folder: &Path, place: &Path) -> Result<(), Skip> {
    std::fs::create_dir_all(folder).expect("a folder for Python packages");
    let scratch = tempfile::Builder::new()
        .prefix(".install-")
        .tempdir_in(folder)
        .expect("a folder for Python packages");
    let output = Command::new(python)
        .args(["-m", "pip", "install", "--quiet", "--no-deps"])
        .args([OsStr::new("--target"), scratch.path().as_os_str()])
        .args(packages)
        .stdin(Stdio::null())
        .output();
    let names = packages.join(" ");
    match output {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let last = said.lines().last().unwrap_or_default().to_owned();
            return Err(Skip::new(format!("pip does not install {names}: {last}")));
        }
        Err(error) => return Err(Skip::new(format!("pip does not install {names}: {error}"))),
    }
    // Another test may have been faster.
    let scratch: PathBuf = scratch.keep();
    if std::fs::rename(&scratch, place).is_err() {
        std::fs::remove_dir_all(&scratch).ok();
        assert!(place.exists(), "{} cannot be written", place.display());
    }
    Ok(())
}
