//! npm packages from the registry, which bring other tools' pages.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::Skip;
use crate::build::cache;
use crate::machine::need_tool;

/// Returns the folder of a package, which npm installs below the target folder at the first use, without running its scripts.
/// The package states its version, as in `speedscope@1.25.0`.
///
/// # Errors
/// [`Skip`] if there is no npm, or if npm fails, as without a registry.
///
/// # Panics
/// If the folder cannot be written, or if `package` states no version.
pub fn npm_package(package: &str) -> Result<PathBuf, Skip> {
    let npm = need_tool("npm")?;
    let (name, _) = package.rsplit_once('@').expect("a version");
    let folder = cache().join("npm");
    let place = folder.join(package.replace('/', "+"));
    if !place.exists() {
        std::fs::create_dir_all(&folder).expect("a folder for npm packages");
        let scratch = tempfile::Builder::new()
            .prefix(".install-")
            .tempdir_in(&folder)
            .expect("a folder for npm packages");
        let output = Command::new(npm)
            .args(["install", "--no-save", "--no-audit", "--no-fund"])
            .args(["--ignore-scripts", "--prefix", "."])
            .arg(package)
            .current_dir(scratch.path())
            .stdin(Stdio::null())
            .output();
        match output {
            Ok(output) if output.status.success() => {}
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                let first = said.lines().next().unwrap_or_default();
                return Err(Skip::new(format!(
                    "npm does not install {package}: {first}"
                )));
            }
            Err(error) => {
                return Err(Skip::new(format!(
                    "npm does not install {package}: {error}"
                )));
            }
        }
        // Another test may have been faster.
        let scratch = scratch.keep();
        if std::fs::rename(&scratch, &place).is_err() {
            std::fs::remove_dir_all(&scratch).ok();
            assert!(place.exists(), "{} cannot be written", place.display());
        }
    }
    Ok(place.join("node_modules").join(name))
}
