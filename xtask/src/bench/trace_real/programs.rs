//! Real programs to trace, some found on the machine and some built from the sources in crates.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{root, test::cargo};

/// A program and how it is traced.
#[derive(Debug, Clone)]
pub struct Real {
    /// The program's name, and the way in which it was built.
    pub name: String,
    /// The program that is traced, its arguments.
    pub command: Vec<String>,
    /// The same, not instrumented: what traced runs are compared with.
    pub plain: Vec<String>,
    /// The same with next to nothing to do: what remains is the start.
    pub idle: Vec<String>,
    /// Whether functions have to be patched that no compiler has prepared: `-P .`.
    pub patch: bool,
    /// Whether uftrace needs `-P .` where dioptra does not.
    pub peer_patches: bool,
}

/// Their sources: nothing of it is built for dioptra.
const MANIFEST: &str = r#"[package]
name = "trace-syntax"
version = "0.0.0"
edition = "2024"

[workspace]

[[bin]]
name = "trace-syntax"
path = "trace-syntax.rs"

[dependencies]
syn = { version = "2", features = ["full"] }
quote = "1"
libsqlite3-sys = { version = "0.35", optional = true }
zstd-sys = { version = "2", optional = true }

[profile.release]
debug = true
"#;

const SQLITE: [(&str, &[&str]); 5] = [
    ("plain", &[]),
    ("cygprof", &["-finstrument-functions"]),
    ("mcount", &["-pg"]),
    ("fentry", &["-pg", "-mfentry"]),
    ("patchable", &["-fpatchable-function-entry=5"]),
];

/// The programs that are there and can be built; why others can't is said.
pub fn find(folder: &Path, only: &str) -> Result<Vec<Real>> {
    let mut all = Vec::new();
    let mut add = |name: &str, made: &mut dyn FnMut() -> Result<Real>| {
        if !name.contains(only) {
            return;
        }
        match made() {
            Ok(real) => all.push(real),
            Err(error) => println!("{name} is left out: {error:#}"),
        }
    };
    add("python3 plain", &mut python);
    add("cc1 plain", &mut || compiler(folder));
    for (method, flags) in SQLITE {
        let name = format!("sqlite {method}");
        add(&name, &mut || database(folder, &name, flags));
    }
    for (method, flags) in [("plain", ""), ("mcount", "-Z instrument-mcount")] {
        let name = format!("rust {method}");
        add(&name, &mut || syntax(folder, &name, flags));
    }
    Ok(all)
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// A source of `tests/programs`.
fn source(name: &str) -> PathBuf {
    root().join("tests/programs").join(name)
}

/// The interpreter of the system: others are often scripts that start another, or a small program around a library.
fn python() -> Result<Real> {
    let python = "/usr/bin/python3";
    if !Path::new(python).exists() {
        bail!("there is no {python}");
    }
    let script = text(&source("trace-script.py"));
    let command = words(&[python, &script, "4000"]);
    Ok(Real {
        name: "python3 plain".to_owned(),
        plain: command.clone(),
        command,
        idle: words(&[python, "-S", "-c", "0"]),
        patch: true,
        peer_patches: true,
    })
}

/// gcc's compiler proper.
fn compiler(folder: &Path) -> Result<Real> {
    let cc1 = said(Command::new("gcc").arg("-print-prog-name=cc1"))?;
    let library = packages(folder)?.find("zstd-sys")?.join("zstd/lib");
    let input = folder.join("compress.i");
    let mut command = Command::new("gcc");
    command
        .args(["-E", "-P", "-I"])
        .arg(&library)
        .arg("-o")
        .arg(&input);
    said(command.arg(library.join("compress/huf_compress.c")))?;
    let nothing = folder.join("nothing.i");
    std::fs::write(&nothing, "int nothing;\n")?;
    let compile = |input: &Path| words(&[&cc1, "-quiet", "-O2", &text(input), "-o", "/dev/stdout"]);
    Ok(Real {
        name: "cc1 plain".to_owned(),
        command: compile(&input),
        plain: compile(&input),
        idle: compile(&nothing),
        patch: true,
        peer_patches: true,
    })
}

/// SQLite in one program.
fn database(folder: &Path, name: &str, flags: &[&str]) -> Result<Real> {
    let sources = packages(folder)?.find("libsqlite3-sys")?.join("sqlite3");
    let build = |name: &str, flags: &[&str]| -> Result<String> {
        let program = folder.join(name.replace(' ', "-"));
        if !program.exists() {
            println!("building {name} takes a while");
            let mut command = Command::new("gcc");
            command.args([
                "-O2",
                "-w",
                "-DSQLITE_THREADSAFE=0",
                "-DSQLITE_OMIT_LOAD_EXTENSION",
                "-I",
            ]);
            command
                .arg(&sources)
                .args(flags)
                .arg(source("trace-database.c"));
            command.arg(sources.join("sqlite3.c")).args(["-lm", "-o"]);
            said(command.arg(&program))?;
        }
        Ok(text(&program))
    };
    let program = build(name, flags)?;
    let plain = build("sqlite plain", &[])?;
    Ok(Real {
        name: name.to_owned(),
        command: words(&[&program, "20000"]),
        plain: words(&[&plain, "20000"]),
        idle: words(&[&program, "0"]),
        patch: flags.is_empty(),
        peer_patches: name.ends_with("patchable"),
    })
}

/// A parser of Rust, which reads a source of its own.
fn syntax(folder: &Path, name: &str, flags: &str) -> Result<Real> {
    let packages = packages(folder)?;
    let input = text(&packages.find("syn")?.join("src/expr.rs"));
    let build = |flags: &str| -> Result<String> {
        let target = folder.join(if flags.is_empty() {
            "rust-plain"
        } else {
            "rust-mcount"
        });
        let mut command = Command::new(cargo());
        command.args(["build", "--release", "--quiet", "--manifest-path"]);
        command
            .arg(folder.join("Cargo.toml"))
            .arg("--target-dir")
            .arg(&target);
        // Options that a stable compiler has but refuses.
        command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", flags);
        said(&mut command)?;
        Ok(text(&target.join("release/trace-syntax")))
    };
    let program = build(flags)?;
    let plain = build("")?;
    Ok(Real {
        name: name.to_owned(),
        command: words(&[&program, &input, "16"]),
        plain: words(&[&plain, &input, "16"]),
        idle: words(&[&program, &input, "0"]),
        patch: flags.is_empty(),
        peer_patches: false,
    })
}

/// Where crates' sources lie.
struct Packages(Value);

impl Packages {
    fn find(&self, name: &str) -> Result<PathBuf> {
        let packages = self.0["packages"].as_array();
        let found = packages
            .into_iter()
            .flatten()
            .find(|package| package["name"] == name);
        let manifest = found.and_then(|package| package["manifest_path"].as_str());
        let folder = manifest.and_then(|manifest| Path::new(manifest).parent());
        Ok(folder
            .with_context(|| format!("cargo knows no {name}"))?
            .to_owned())
    }
}

/// Fetches what is missing.
fn packages(folder: &Path) -> Result<Packages> {
    let program = folder.join("trace-syntax.rs");
    std::fs::copy(source("trace-syntax.rs"), &program).with_context(|| text(&program))?;
    let manifest = folder.join("Cargo.toml");
    std::fs::write(&manifest, MANIFEST).with_context(|| text(&manifest))?;
    let mut command = Command::new(cargo());
    command.args([
        "metadata",
        "--format-version=1",
        "--all-features",
        "--manifest-path",
    ]);
    let answer = said(command.arg(&manifest))?;
    Ok(Packages(serde_json::from_str(&answer)?))
}

/// Returns a command's output, trimmed.
fn said(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{:?} does not start", command.get_program()))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let first = errors
            .lines()
            .find(|line| line.contains("error"))
            .unwrap_or_default();
        bail!("{:?} failed: {first}", command.get_program());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
