//! The tools, libraries and modules that tests use: how each is found, and the packages that bring it.
//!
//! Every test skips without the thing it needs, so whatever a test can skip for belongs in [`TOOLS`]. `cargo xtask
//! fresh` shows an omission: in its clean Debian tree nothing is installed but what this table names.

use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};

use dioptra_testprograms::{is_root, tool};

/// A thing that tests need and the packages that bring it.
pub struct Tool {
    /// The way to find out whether the machine has it.
    pub found_as: FoundAs,
    /// The packages, of which apt installs the first that it knows. `{clang}` stands for clang's major version.
    pub packages: &'static [&'static str],
}

/// The way to find out whether the machine has a tool.
#[derive(Clone, Copy)]
pub enum FoundAs {
    /// A command on the path.
    Command(&'static str),
    /// A file at a fixed path.
    File(&'static str),
    /// A file in one of the folders that a compiler searches, which vary by version and architecture. `{arch}` stands
    /// for the machine's architecture.
    Library {
        /// The compiler, which is asked with `-print-file-name`.
        compiler: &'static str,
        /// The file's name.
        file: &'static str,
    },
}

/// Describes a tool that is found as a command.
pub const fn command(name: &'static str, packages: &'static [&'static str]) -> Tool {
    Tool {
        found_as: FoundAs::Command(name),
        packages,
    }
}

/// Describes a tool that is found as a file at a fixed path.
pub const fn file(path: &'static str, packages: &'static [&'static str]) -> Tool {
    Tool {
        found_as: FoundAs::File(path),
        packages,
    }
}

const fn library(
    compiler: &'static str,
    file: &'static str,
    packages: &'static [&'static str],
) -> Tool {
    Tool {
        found_as: FoundAs::Library { compiler, file },
        packages,
    }
}

/// The tools of `cargo xtask test`. A library stands below the compiler that finds it.
const TOOLS: &[Tool] = &[
    // Debian's name, then Ubuntu's.
    command("perf", &["linux-perf", "linux-tools-generic"]),
    command("gcc", &["gcc"]),
    // Compilers are installed without recommendations, and so without the C library's files for programs.
    library("gcc", "crt1.o", &["libc6-dev"]),
    command("g++", &["g++"]),
    command("objdump", &["binutils"]),
    // The lines of docs/json.md.
    command("jq", &["jq"]),
    command("clang", &["clang"]),
    // XRay and the sanitizers.
    library(
        "clang",
        "libclang_rt.xray-{arch}.a",
        &["libclang-rt-{clang}-dev"],
    ),
    library("clang", "libunwind.so", &["libunwind-{clang}-dev"]),
    command("llvm-objdump", &["llvm"]),
    command("llvm-profdata", &["llvm"]),
    command("ld.lld", &["lld"]),
    command("uftrace", &["uftrace"]),
    // uftrace loads it for scripts.
    file(
        "/usr/lib/x86_64-linux-gnu/libpython3.11.so",
        &["libpython3-dev"],
    ),
    command("gdb", &["gdb"]),
    command("strace", &["strace"]),
    command("valgrind", &["valgrind"]),
    // valgrind and gdb only recommend it, and addr2line is compared on it.
    file("/usr/lib/debug/.build-id", &["libc6-dbg"]),
    command("sqlite3", &["sqlite3"]),
    command("python3", &["python3"]),
    // Debian's own interpreter, beside any other that is first on the path.
    file("/usr/bin/python3", &["python3"]),
    // Packages from PyPI, which hold the definitions of other tools' formats.
    file(
        "/usr/lib/python3/dist-packages/pip/__init__.py",
        &["python3-pip"],
    ),
    file(
        "/usr/lib/python3/dist-packages/greenlet/__init__.py",
        &["python3-greenlet"],
    ),
    file(
        "/usr/lib/python3/dist-packages/gevent/__init__.py",
        &["python3-gevent"],
    ),
    command("node", &["nodejs"]),
    command("npm", &["npm"]),
    command("chromium", &["chromium"]),
    command("luajit", &["luajit"]),
    command("go", &["golang-go"]),
    command("musl-gcc", &["musl-tools"]),
    // The C library of 32-bit programs.
    file("/lib/ld-linux.so.2", &["libc6-i386"]),
    library("gcc", "libboost_context.a", &["libboost-context-dev"]),
    command("openssl", &["openssl"]),
    command("xz", &["xz-utils"]),
    command("script", &["bsdutils"]),
    command("unshare", &["util-linux"]),
    command("perl", &["perl-base"]),
    command("awk", &["mawk"]),
    command("aarch64-linux-gnu-gcc", &["gcc-aarch64-linux-gnu"]),
    library(
        "aarch64-linux-gnu-gcc",
        "crt1.o",
        &["libc6-dev-arm64-cross"],
    ),
    // Its linkage tables are read, and it comes with the C++ compiler only.
    file(
        "/usr/aarch64-linux-gnu/lib/libstdc++.so.6",
        &["libstdc++6-arm64-cross"],
    ),
];

/// Installs the tests' missing tools with apt-get, or lists them. Tests that need one skip without it, so failing here
/// is worth a warning and no more.
pub fn provide(install: bool) {
    provide_these(TOOLS, install);
}

/// Installs other tools than the tests', or lists them.
pub fn provide_these(tools: &[Tool], install: bool) {
    let missing: Vec<_> = tools.iter().filter(|tool| !tool.is_there()).collect();
    if missing.is_empty() {
        println!("all there");
        return;
    }
    let names: Vec<_> = missing
        .iter()
        .map(|tool| tool.found_as.to_string())
        .collect();
    let names = names.join(", ");
    if !install {
        println!("missing: {names}; the tests that need them are skipped");
        return;
    }
    let Some(prefix) = apt_prefix() else {
        let mut packages: Vec<_> = missing.iter().map(|tool| tool.first_package()).collect();
        packages.sort_unstable();
        packages.dedup();
        println!(
            "missing: {names}; the tests that need them are skipped. To install them:\n    sudo apt-get install --no-install-recommends {}",
            packages.join(" ")
        );
        return;
    };
    println!("installing {names}");
    // Lists that are out of date still serve.
    apt(prefix, &["update", "-qq"]);
    // One by one: a package that this release lacks must not keep the others out. In the table's order, so that a
    // compiler is there when its libraries are looked for.
    for tool in &missing {
        // An earlier package may have brought it.
        if tool.is_there() {
            continue;
        }
        let mut packages = tool.packages.iter().map(|name| versioned(name));
        if let Some(package) = packages.find(|package| known(package)) {
            apt(
                prefix,
                &["install", "-y", "-qq", "--no-install-recommends", &package],
            );
        }
    }
    for tool in missing.iter().filter(|tool| !tool.is_there()) {
        println!(
            "warning: {} is still missing; the tests that need it are skipped",
            tool.found_as
        );
    }
}

impl Tool {
    /// Returns whether the machine has the tool.
    pub fn is_there(&self) -> bool {
        match self.found_as {
            FoundAs::Command(name) => tool(name).is_some(),
            FoundAs::File(path) => Path::new(path).exists(),
            FoundAs::Library { compiler, file } => {
                let output = Command::new(compiler)
                    .arg(format!("-print-file-name={}", of_architecture(file)))
                    .stdin(Stdio::null())
                    .output();
                // A compiler that does not find the file prints its bare name.
                output.is_ok_and(|output| {
                    let path = String::from_utf8_lossy(&output.stdout).into_owned();
                    output.status.success() && Path::new(path.trim()).is_absolute()
                })
            }
        }
    }

    /// Returns the name of the package to install on Debian.
    pub fn first_package(&self) -> String {
        self.packages
            .first()
            .map(|name| versioned(name))
            .unwrap_or_default()
    }
}

impl fmt::Display for FoundAs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(name) => f.write_str(name),
            Self::File(path) => f.write_str(path),
            Self::Library { compiler, file } => {
                write!(f, "{compiler}'s {}", of_architecture(file))
            }
        }
    }
}

fn of_architecture(file: &str) -> String {
    file.replace("{arch}", std::env::consts::ARCH)
}

/// Replaces `{clang}` in a package's name by the major version of the clang that is installed or would be.
fn versioned(package: &str) -> String {
    const PLACE: &str = "{clang}";
    if !package.contains(PLACE) {
        return package.into();
    }
    let ask = |program: &str, arguments: &[&str]| {
        let output = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .ok()
            .filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let installed = || {
        let version = ask("clang", &["-dumpversion"])?;
        Some(version.trim().split('.').next()?.to_owned())
    };
    // Debian's package clang is empty and depends on clang-14, say.
    let offered = || {
        ask("apt-cache", &["depends", "clang"])?
            .lines()
            .find_map(|line| line.trim().strip_prefix("Depends: clang-"))
            .map(str::to_owned)
    };
    let version = installed().or_else(offered);
    package.replace(PLACE, &version.unwrap_or_default())
}

/// Returns the words to put before apt-get: none for root, sudo where it asks no password; `None` if there is no way.
fn apt_prefix() -> Option<&'static [&'static str]> {
    tool("apt-get")?;
    if is_root() {
        return Some(&[]);
    }
    let silent = Command::new("sudo")
        .args(["-n", "true"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status();
    silent
        .is_ok_and(|status| status.success())
        .then_some(&["sudo", "-n"])
}

fn apt(prefix: &[&str], arguments: &[&str]) {
    // The environment goes through sudo only as an argument of env. Another apt-get may hold the lock for a while.
    let words = prefix
        .iter()
        .chain(&[
            "env",
            "DEBIAN_FRONTEND=noninteractive",
            "apt-get",
            "-o",
            "DPkg::Lock::Timeout=300",
        ])
        .chain(arguments);
    let words: Vec<_> = words.collect();
    let output = Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .output();
    // The output of a successful installation is not shown: debconf complains of what a minimal system lacks.
    match output {
        Ok(output) if output.status.success() => {}
        Ok(output) => println!(
            "warning: apt-get {} failed: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        ),
        Err(error) => println!("warning: apt-get does not run: {error}"),
    }
}

/// Returns whether apt knows a package of this name that can be installed.
fn known(package: &str) -> bool {
    let output = Command::new("apt-cache")
        .args(["show", package])
        .stdin(Stdio::null())
        .output();
    output.is_ok_and(|output| output.status.success() && !output.stdout.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_found_by_command_file_or_compiler() {
        assert!(command("sh", &[]).is_there());
        assert!(!command("no-such-tool-anywhere", &[]).is_there());
        assert!(file("/proc/self/exe", &[]).is_there());
        assert!(!file("/proc/no-such-file", &[]).is_there());
        assert!(!library("no-such-compiler", "crt1.o", &[]).is_there());
        if tool("gcc").is_some() {
            assert!(library("gcc", "libgcc.a", &[]).is_there());
            assert!(!library("gcc", "no-such-library.a", &[]).is_there());
        }
    }

    #[test]
    fn packages_carry_the_version_of_the_compiler() {
        assert_eq!(versioned("libc6-dev"), "libc6-dev");
        if tool("clang").is_some() {
            let package = versioned("libclang-rt-{clang}-dev");
            let version = package
                .strip_prefix("libclang-rt-")
                .and_then(|rest| rest.strip_suffix("-dev"));
            assert!(
                version.is_some_and(|version| version.parse::<u32>().is_ok()),
                "{package}"
            );
        }
    }

    #[test]
    fn every_tool_has_a_package_and_stands_below_its_compiler() {
        let mut commands = Vec::new();
        for tool in TOOLS {
            assert!(!tool.packages.is_empty(), "{}", tool.found_as);
            match tool.found_as {
                FoundAs::Command(name) => commands.push(name),
                FoundAs::Library { compiler, .. } => {
                    assert!(commands.contains(&compiler), "{}", tool.found_as);
                }
                FoundAs::File(_) => {}
            }
        }
    }
}
