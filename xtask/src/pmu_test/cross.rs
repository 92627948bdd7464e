//! dioptra for the guest: built here for 64-bit Arm, static, so that the guest needs no library.
//!
//! Rust's standard library for Arm comes from the toolchain where it has one. Else it is built from its source: the
//! toolchain's own, or Debian's package `rust-src` of the same version. No toolchain is ever installed or changed.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use dioptra_testprograms::tool;
use serde_json::Value;

use super::Unavailable;
use super::debian::Archive;
use crate::{root, test::cargo};

/// The guest as rustc names it.
pub const TARGET: &str = "aarch64-unknown-linux-gnu";
/// Debian's suites that may have rustc's version.
const SUITES: [&str; 2] = ["trixie-backports", "trixie"];

/// Where the standard library for Arm comes from.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum StandardLibrary {
    /// The toolchain, else built from source
    Auto,
    /// Built from source, even where the toolchain has one
    Source,
}

/// Builds dioptra and returns the executable's path.
///
/// # Errors
/// [`Unavailable`] if there is no standard library for Arm to be had.
pub fn build(library: StandardLibrary, cache: &Path) -> Result<PathBuf> {
    let host = rustc(&["-vV"])?;
    let version = field(&host, "release: ")?;
    let toolchain = if library == StandardLibrary::Auto && has_library(&own_sysroot()?) {
        None
    } else {
        Some(toolchain_with_library(&version, cache)?)
    };
    let mut command = cargo_for(toolchain.as_deref(), "build");
    command.args([
        "--package",
        "dioptra",
        "--bin",
        "dioptra",
        "--message-format=json-render-diagnostics",
    ]);
    let output = command
        .current_dir(root())
        .stderr(Stdio::inherit())
        .output()
        .context("running cargo build")?;
    if !output.status.success() {
        bail!("dioptra does not build for {TARGET}");
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
        .next_back()
        .context("cargo build named no executable")
}

/// The outcome of [`check`].
pub enum Checked {
    /// dioptra compiles.
    Passed,
    /// dioptra does not compile.
    Failed,
    /// The toolchain has no standard library for the target.
    NoStandardLibrary,
    /// The cross compiler is not installed, which links the runtime that the recorder's build script builds.
    NoLinker,
}

/// Runs `cargo check` of dioptra for the guest, with the toolchain as it is.
///
/// # Errors
/// If rustc or cargo do not run.
pub fn check() -> Result<Checked> {
    if !has_library(&own_sysroot()?) {
        return Ok(Checked::NoStandardLibrary);
    }
    if tool("aarch64-linux-gnu-gcc").is_none() {
        return Ok(Checked::NoLinker);
    }
    let status = cargo_for(None, "check")
        .args(["--package", "dioptra"])
        .current_dir(root())
        .status()
        .context("running cargo check")?;
    Ok(if status.success() {
        Checked::Passed
    } else {
        Checked::Failed
    })
}

/// Writes the executable without its symbols, which the guest does not need.
///
/// # Errors
/// If the cross tools fail.
pub fn strip(executable: &Path, to: &Path) -> Result<()> {
    let status = Command::new("aarch64-linux-gnu-strip")
        .arg("-o")
        .args([to, executable])
        .stdin(Stdio::null())
        .status()
        .context("running aarch64-linux-gnu-strip")?;
    if !status.success() {
        bail!("{} could not be stripped", executable.display());
    }
    Ok(())
}

/// `cargo build` or `cargo check` for the guest, with the toolchain of that folder.
fn cargo_for(toolchain: Option<&Path>, action: &str) -> Command {
    let own = toolchain.map_or_else(cargo, |folder| folder.join("bin/cargo").into_os_string());
    let mut command = Command::new(own);
    command
        .args([action, "--target", TARGET])
        .env(
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER",
            "aarch64-linux-gnu-gcc",
        )
        .env(
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS",
            "-Ctarget-feature=+crt-static",
        )
        .env("CC_aarch64_unknown_linux_gnu", "aarch64-linux-gnu-gcc")
        .env("AR_aarch64_unknown_linux_gnu", "aarch64-linux-gnu-ar")
        // Quick to build, and not too slow under emulation.
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        // Flags of who called us are for another machine.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .stdin(Stdio::null());
    if let Some(folder) = toolchain {
        // With the libraries of who called us rustc would take itself for the one that lies beside them.
        command
            .env("RUSTC", folder.join("bin/rustc"))
            .env_remove("LD_LIBRARY_PATH");
    }
    command
}

fn rustc(arguments: &[&str]) -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc"));
    let output = Command::new(rustc)
        .args(arguments)
        .current_dir(root())
        .stdin(Stdio::null())
        .output()
        .context("running rustc")?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn field(text: &str, name: &str) -> Result<String> {
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .map(str::to_string)
        .with_context(|| format!("rustc -vV shows no `{name}`"))
}

fn own_sysroot() -> Result<PathBuf> {
    Ok(PathBuf::from(rustc(&["--print", "sysroot"])?.trim()))
}

/// Whether a toolchain has the standard library for the guest.
fn has_library(sysroot: &Path) -> bool {
    let folder = sysroot.join("lib/rustlib").join(TARGET).join("lib");
    fs::read_dir(folder).is_ok_and(|entries| {
        entries
            .filter_map(Result::ok)
            .any(|entry| entry.file_name().as_encoded_bytes().starts_with(b"libstd-"))
    })
}

/// A copy of the toolchain, kept in the cache, that has the library for the guest too: built from source the first time.
fn toolchain_with_library(version: &str, cache: &Path) -> Result<PathBuf> {
    let copy = cache.join(format!("rust-{version}"));
    if has_library(&copy) {
        return Ok(copy);
    }
    println!("rustc {version} has no standard library for {TARGET}: building it from source");
    let original = own_sysroot()?;
    if original == Path::new("/usr") {
        return Err(Unavailable::because(format!(
            "there is no standard library for {TARGET}: rustc is the distribution's, which packages that library apart \
             (Debian: apt-get install libstd-rust-dev:arm64)"
        )));
    }
    let source = library_source(&original, version, cache)?;
    if !copy.join("bin/rustc").exists() {
        fs::create_dir_all(cache)?;
        let fresh = cache.join(format!("rust-{version}.{}", std::process::id()));
        copy_tree(&original, &fresh)?;
        // The toolchain's library is another one than the wanted one.
        let _ = fs::remove_dir_all(fresh.join("lib/rustlib").join(TARGET));
        let place = fresh.join("lib/rustlib/src/rust");
        if !place.exists() {
            fs::create_dir_all(place.parent().unwrap_or(&fresh))?;
            std::os::unix::fs::symlink(&source, &place)?;
        }
        fs::rename(&fresh, &copy).with_context(|| copy.display().to_string())?;
    }

    // cargo builds the library along with a program; any does.
    let hello = cache.join(format!("rust-{version}-hello"));
    fs::create_dir_all(hello.join("src"))?;
    fs::write(
        hello.join("Cargo.toml"),
        "[package]\nname = \"hello\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n",
    )?;
    fs::write(hello.join("src/main.rs"), "fn main() {}\n")?;
    let target = hello.join("target");
    let status = cargo_for(Some(&copy), "build")
        .args(["--release", "-Zbuild-std=std,panic_unwind"])
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_TARGET_DIR", &target)
        .current_dir(&hello)
        .status()
        .context("running cargo build")?;
    if !status.success() {
        return Err(Unavailable::because(format!(
            "the standard library of rustc {version} could not be built for {TARGET}"
        )));
    }
    let libraries = copy.join("lib/rustlib").join(TARGET).join("lib");
    fs::create_dir_all(&libraries)?;
    for entry in fs::read_dir(target.join(TARGET).join("release/deps"))? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "rlib")
        {
            fs::copy(&path, libraries.join(path.file_name().unwrap_or_default()))?;
        }
    }
    Ok(copy)
}

/// The folder that holds `library/`, the standard library's source.
fn library_source(sysroot: &Path, version: &str, cache: &Path) -> Result<PathBuf> {
    let own = sysroot.join("lib/rustlib/src/rust");
    if own.join("library/std").is_dir() {
        return Ok(own);
    }
    let mut reasons = Vec::new();
    for suite in SUITES {
        let package =
            Archive::new(suite, cache).package(&format!("rust-src-{version}"), false, |archive| {
                Ok(format!(
                    "rust-src={}",
                    archive.version("rust-src", &format!("{version}+"))?
                ))
            });
        match package {
            Ok(folder) => {
                let source = folder.join(format!("usr/src/rustc-{version}"));
                if source.join("library/std").is_dir() {
                    return Ok(source);
                }
                reasons.push(format!("{} has no library/std", source.display()));
            }
            Err(error) => reasons.push(format!("{error:#}")),
        }
    }
    Err(Unavailable::because(format!(
        "there is no standard library for {TARGET}: rustc {version} has none, and no source of it was found ({}). \
         `rustup target add {TARGET}` or `rustup component add rust-src` brings one",
        reasons.join("; ")
    )))
}

/// Copies a folder with hard links where it can: toolchains are large.
fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    for how in ["-rl", "-r"] {
        let status = Command::new("cp")
            .args([how, "--"])
            .args([from, to])
            .stderr(Stdio::null())
            .status()
            .context("running cp")?;
        if status.success() {
            return Ok(());
        }
        // Removes the remains of a link across file systems.
        let _ = fs::remove_dir_all(to);
    }
    bail!("{} could not be copied to {}", from.display(), to.display())
}
