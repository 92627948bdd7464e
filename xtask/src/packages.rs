//! `cargo xtask man`, `deb` and `publish-check`: dioptra as people install it.
//!
//! Man pages and completions come from the binary itself, which knows its options, so they can't differ from `--help`.

mod clean_debian;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use dioptra_testprograms::tool;

use crate::root;
use crate::test::cargo;

/// The crates that a registry may have, each behind the ones that it needs.
const PUBLISHABLE: &[&str] = &[
    "dioptra-perfrecords",
    "dioptra-mapped",
    "dioptra-perfevents",
    "dioptra-perfdata",
    "dioptra-symbols",
];

/// The shells whose completions a package holds, with the names that the shells look for.
const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "dioptra.bash"),
    ("zsh", "_dioptra"),
    ("fish", "dioptra.fish"),
];

/// The options of `cargo xtask man`.
#[derive(clap::Args)]
pub struct ManArguments {
    /// The profile with which dioptra is built
    #[arg(long, default_value = "release")]
    profile: String,
}

/// The options of `cargo xtask deb`.
#[derive(clap::Args)]
pub struct DebArguments {
    /// The profile with which dioptra is built
    #[arg(long, default_value = "release")]
    profile: String,
    /// Install the package in a clean Debian tree, use it there and remove it again (as root)
    #[arg(long)]
    check: bool,
}

/// Writes the man pages and completions below `target/package-files`.
pub fn man(arguments: &ManArguments) -> Result<ExitCode> {
    let folder = write_files(&arguments.profile)?;
    println!("{}", folder.display());
    Ok(ExitCode::SUCCESS)
}

/// Builds the Debian package; with `--check` the exit code is 1 if a clean Debian tree can't use it.
pub fn deb(arguments: &DebArguments) -> Result<ExitCode> {
    write_files(&arguments.profile)?;
    if tool("cargo-deb").is_none() {
        println!("--- cargo install cargo-deb");
        succeed(Command::new(cargo()).args(["install", "--locked", "cargo-deb"]))?;
    }
    println!("--- cargo deb");
    let output = Command::new(cargo())
        .args(["deb", "--package", "dioptra", "--no-build", "--locked"])
        .args(["--profile", &arguments.profile])
        .current_dir(root())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("running cargo deb")?;
    if !output.status.success() {
        bail!("cargo deb: {}", output.status);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let package = text.lines().last().map(Path::new);
    let package = package.context("cargo deb did not say where the package is")?;
    println!("{}", package.display());
    if arguments.check {
        return clean_debian::check(package);
    }
    Ok(ExitCode::SUCCESS)
}

/// Lets cargo package and build the publishable crates as a registry would get them, without uploading them.
pub fn publish_check() -> Result<ExitCode> {
    let packages = PUBLISHABLE.iter().flat_map(|name| ["--package", name]);
    let status = Command::new(cargo())
        .args(["publish", "--dry-run", "--allow-dirty"])
        .args(packages)
        .current_dir(root())
        .stdin(Stdio::null())
        .status()
        .context("running cargo publish")?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Builds dioptra and lets it write its man pages and completions. Returns their folder.
fn write_files(profile: &str) -> Result<PathBuf> {
    println!("--- cargo build --profile {profile}");
    let build = ["build", "--package", "dioptra", "--profile", profile];
    succeed(Command::new(cargo()).args(build))?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    // The profile for development has a folder of another name.
    let folder = if profile == "dev" { "debug" } else { profile };
    let dioptra = root().join(target).join(folder).join("dioptra");
    // The package's description in crates/cli/Cargo.toml names this folder.
    let files = root().join("target/package-files");
    if files.exists() {
        fs::remove_dir_all(&files).with_context(|| files.display().to_string())?;
    }
    let completions = files.join("completions");
    fs::create_dir_all(&completions).with_context(|| completions.display().to_string())?;
    succeed(
        Command::new(&dioptra)
            .arg("man-pages")
            .arg(files.join("man")),
    )?;
    for (shell, name) in COMPLETIONS {
        let output = Command::new(&dioptra)
            .args(["completions", shell])
            .output()
            .with_context(|| dioptra.display().to_string())?;
        if !output.status.success() || output.stdout.is_empty() {
            bail!("dioptra completions {shell}: {}", output.status);
        }
        let path = completions.join(name);
        fs::write(&path, &output.stdout).with_context(|| path.display().to_string())?;
    }
    Ok(files)
}

/// Runs a command in the repository's root.
fn succeed(command: &mut Command) -> Result<()> {
    let status = command
        .current_dir(root())
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("running {command:?}"))?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}
