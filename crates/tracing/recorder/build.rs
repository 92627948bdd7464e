//! Builds the shared object that is preloaded into traced programs, so that the recorder can carry it inside itself.
//!
//! The runtime is another build, of another crate of this workspace, with a target folder of its own: cargo has locked the outer one.
//! The build fails if the object could do more to a program than it may ([`preload_object`]).

#[path = "build/preload_object.rs"]
mod preload_object;

use std::env;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates that it is made of.
const CRATES: [&str; 3] = ["runtime", "layout", "filters"];

fn main() {
    let crates = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("..");
    for name in CRATES {
        println!("cargo::rerun-if-changed={}", crates.join(name).display());
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build");
    let out = PathBuf::from(variable("OUT_DIR"));
    let object = out.join("libdioptra_trace_runtime.so");
    let is_supported = variable("CARGO_CFG_TARGET_OS") == "linux"
        && ["x86_64", "aarch64"].contains(&variable("CARGO_CFG_TARGET_ARCH").as_str())
        && variable("CARGO_CFG_TARGET_ENV") == "gnu";
    if is_supported {
        build(&crates, &out, &object);
    } else {
        // An empty file: tracing says that it is not supported here.
        write(&object, &[]);
    }
    let bytes = read(&object);
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    println!(
        "cargo::rustc-env=DIOPTRA_TRACE_RUNTIME_HASH={:016x}",
        hasher.finish()
    );
    println!(
        "cargo::rustc-env=DIOPTRA_TRACE_RUNTIME_FILE={}",
        object.display()
    );
}

fn build(crates: &Path, out: &Path, object: &Path) {
    let target = out.join("runtime");
    let triple = variable("TARGET");
    let mut command = Command::new(variable("CARGO"));
    command
        .args(["rustc", "--quiet", "--lib", "--crate-type", "cdylib"])
        .args([
            "--profile",
            "preload",
            "--features",
            "preload",
            "--target",
            &triple,
        ])
        .arg("--manifest-path")
        .arg(crates.join("runtime/Cargo.toml"))
        .arg("--target-dir")
        .arg(&target);
    // cargo knows no linker for another machine by itself; Debian and others name them so.
    let upper = triple.to_uppercase().replace('-', "_");
    let linker = format!("CARGO_TARGET_{upper}_LINKER");
    if triple != variable("HOST") && env::var_os("RUSTC_LINKER").is_none() {
        command.env(
            &linker,
            format!("{}-linux-gnu-gcc", variable("CARGO_CFG_TARGET_ARCH")),
        );
    }
    // Its dependencies have been fetched for this crate already.
    command.arg("--offline");
    // Lints, coverage and the like are meant for the outer build; the shared object must hold nothing else.
    command.env_remove(format!("CARGO_TARGET_{upper}_RUSTFLAGS"));
    for name in [
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "CARGO_ENCODED_RUSTFLAGS",
        "RUSTFLAGS",
        "CARGO_BUILD_TARGET",
        "CARGO_TARGET_DIR",
        "CARGO_MAKEFLAGS",
        "MAKEFLAGS",
        "CARGO_PROFILE_RELEASE_LTO",
    ] {
        command.env_remove(name);
    }
    let status = command.status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("building the trace runtime failed: {status} ({command:?})"),
        Err(error) => panic!("building the trace runtime: {error} ({command:?})"),
    }
    let built = target
        .join(triple)
        .join("preload/libdioptra_trace_runtime.so");
    let bytes = read(&built);
    let list = read(&crates.join("runtime/undefined-symbols.txt"));
    let defects = preload_object::defects(&bytes, &String::from_utf8_lossy(&list));
    if !defects.is_empty() {
        for defect in defects {
            println!("cargo::error={defect}");
        }
        std::process::exit(1);
    }
    write(object, &bytes);
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("reading {}: {error}", path.display()))
}

/// Writes only what is new, so that what includes it is not built again for nothing.
fn write(path: &Path, bytes: &[u8]) {
    if std::fs::read(path).is_ok_and(|old| old == bytes) {
        return;
    }
    std::fs::write(path, bytes)
        .unwrap_or_else(|error| panic!("writing {}: {error}", path.display()));
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|error| panic!("{name}: {error}"))
}
