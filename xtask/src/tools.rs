//! The tools that tests compare with: which are missing, and how to get them.

use std::process::{Command, Stdio};

use dioptra_testprograms::{is_root, tool};

/// A tool's name on the path and the packages that bring it, of which the first that apt knows is taken.
const TOOLS: &[(&str, &[&str])] = &[
    // Debian's name, then Ubuntu's.
    ("perf", &["linux-perf", "linux-tools-generic"]),
    ("gcc", &["gcc"]),
    ("g++", &["g++"]),
    ("objdump", &["binutils"]),
    ("clang", &["clang"]),
    ("uftrace", &["uftrace"]),
    ("sqlite3", &["sqlite3"]),
    ("python3", &["python3"]),
    ("valgrind", &["valgrind"]),
    // The C library of 32-bit programs.
    ("/lib/ld-linux.so.2", &["libc6-i386"]),
    ("aarch64-linux-gnu-gcc", &["gcc-aarch64-linux-gnu"]),
];

/// Installs the missing tools with apt-get, or lists them. Tests that need one skip without it, so failing here is
/// worth a warning and no more.
pub fn provide(install: bool) {
    provide_these(TOOLS, install);
}

/// The same for other tools than the tests'.
pub fn provide_these(tools: &[(&str, &[&str])], install: bool) {
    let missing: Vec<_> = tools
        .iter()
        .filter(|(name, _)| tool(name).is_none())
        .collect();
    if missing.is_empty() {
        println!("all there");
        return;
    }
    let names: Vec<_> = missing.iter().map(|(name, _)| *name).collect();
    if !install {
        println!(
            "missing: {}; the tests that need them are skipped",
            names.join(", ")
        );
        return;
    }
    let Some(prefix) = apt_prefix() else {
        let packages: Vec<_> = missing.iter().map(|(_, packages)| packages[0]).collect();
        println!(
            "missing: {}; the tests that need them are skipped. To install them:\n    sudo apt-get install {}",
            names.join(", "),
            packages.join(" ")
        );
        return;
    };
    println!("installing {}", names.join(", "));
    // Lists that are out of date still serve.
    apt(prefix, &["update", "-qq"]);
    let mut packages: Vec<_> = missing
        .iter()
        .filter_map(|(_, packages)| packages.iter().find(|p| known(p)))
        .collect();
    // A compiler installed without recommendations lacks the C library's headers.
    if names.contains(&"gcc") {
        packages.push(&"libc6-dev");
    }
    if names.contains(&"aarch64-linux-gnu-gcc") {
        packages.push(&"libc6-dev-arm64-cross");
    }
    // One by one: a package that this release lacks must not keep the others out.
    for package in packages {
        apt(
            prefix,
            &["install", "-y", "-qq", "--no-install-recommends", package],
        );
    }
    for name in names.iter().filter(|name| tool(name).is_none()) {
        println!("warning: {name} is still missing; the tests that need it are skipped");
    }
}

/// What to put before apt-get: nothing for root, sudo where it asks no password; `None` if there is no way.
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
    // The environment goes through sudo only as an argument of env.
    let words = prefix
        .iter()
        .chain(&["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"])
        .chain(arguments);
    let words: Vec<_> = words.collect();
    let status = Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    if !status.is_ok_and(|status| status.success()) {
        println!("warning: apt-get {} failed", arguments.join(" "));
    }
}

/// Whether apt knows a package of this name that can be installed.
fn known(package: &str) -> bool {
    let output = Command::new("apt-cache")
        .args(["show", package])
        .stdin(Stdio::null())
        .output();
    output.is_ok_and(|output| output.status.success() && !output.stdout.is_empty())
}
