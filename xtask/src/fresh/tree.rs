//! The Debian tree: made once, copied for every run, entered by `unshare` and `chroot`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use dioptra_testprograms::tool;

use super::Account;
use crate::root;

/// Debian 12, by debootstrap's name for it.
const SUITE: &str = "bookworm";
/// The mirror where apt's configuration names none of Debian's.
const MIRROR: &str = "http://deb.debian.org/debian";
/// The packages of a machine on which somebody has installed Rust and cloned the project: a linker and the C library's
/// files, without which rustc builds nothing; certificates for cargo's downloads; git; and the program that README's
/// first command profiles.
const PACKAGES: &str = "ca-certificates,gcc,git,libc6-dev,python3";
/// The toolchain's place in the tree.
const TOOLCHAIN: &str = "/opt/rust";
/// The names of the machine itself.
const HOSTS: &str = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n";
/// The certificates that every program of Debian trusts.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";
/// Refuses as sudo does where the user has no right to it.
const SUDO: &str = "#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n";
/// Variables that tell programs how to reach the network.
const PROXIES: [&str; 8] = [
    "http_proxy",
    "https_proxy",
    "ftp_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
];

/// Returns the folder of the clean tree, made now if the cache has none or `again` asks for a new one.
pub fn base(again: bool) -> Result<PathBuf> {
    let folder = super::cache()?.join(SUITE);
    if folder.is_dir() {
        if !again {
            println!("--- Debian {SUITE} is in {}", folder.display());
            return Ok(folder);
        }
        remove(&folder)?;
    }
    println!("--- debootstrap {SUITE}");
    let start = std::time::Instant::now();
    let making = folder.with_extension("making");
    remove(&making)?;
    let sources = sources();
    let mirror = sources
        .keys()
        .find(|(_, suite)| suite == SUITE)
        .map_or(MIRROR, |(mirror, _)| mirror);
    let log = super::cache()?.join("debootstrap.log");
    let output = fs::File::create(&log).with_context(|| log.display().to_string())?;
    let status = Command::new("debootstrap")
        .arg("--variant=minbase")
        .arg(format!("--include={PACKAGES}"))
        .args([SUITE.as_ref(), making.as_os_str(), mirror.as_ref()])
        .stdin(Stdio::null())
        .stdout(
            output
                .try_clone()
                .with_context(|| log.display().to_string())?,
        )
        .stderr(output)
        .status()
        .context("running debootstrap")?;
    if !status.success() {
        bail!("debootstrap: {status}; its output is in {}", log.display());
    }
    configure(&making, &sources)?;
    fs::rename(&making, &folder).with_context(|| folder.display().to_string())?;
    println!("--- made in {:.1} s", start.elapsed().as_secs_f64());
    Ok(folder)
}

/// Maps the mirror and suite of Debian's own archives, as apt knows them here, to their components.
fn sources() -> BTreeMap<(String, String), Vec<String>> {
    let output = Command::new("apt-get")
        .args(["indextargets", "--format"])
        .arg("$(ORIGIN) $(REPO_URI) $(RELEASE) $(COMPONENT)")
        .arg("Created-By: Packages")
        .stdin(Stdio::null())
        .output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    let mut sources = BTreeMap::<_, Vec<_>>::new();
    for line in String::from_utf8_lossy(&text).lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        if let ["Debian", mirror, suite, component] = words[..]
            && suite.starts_with(SUITE)
        {
            let components = sources
                .entry((mirror.to_owned(), suite.to_owned()))
                .or_default();
            if !components.iter().any(|known| known == component) {
                components.push(component.to_owned());
            }
        }
    }
    if sources.is_empty() {
        sources.insert((MIRROR.into(), SUITE.into()), vec!["main".into()]);
    }
    sources
}

/// Lets apt in the tree reach the mirror as it does here, and adds the ordinary user and a sudo that refuses.
fn configure(tree: &Path, sources: &BTreeMap<(String, String), Vec<String>>) -> Result<()> {
    let write = |path: &str, text: &str| {
        let path = tree.join(path);
        fs::write(&path, text).with_context(|| path.display().to_string())
    };
    let lines: Vec<_> = sources
        .iter()
        .map(|((mirror, suite), components)| {
            format!("deb {mirror} {suite} {}\n", components.join(" "))
        })
        .collect();
    write("etc/apt/sources.list", &lines.concat())?;

    // Copies only the transport's part of apt's configuration: hooks name programs that the tree lacks.
    let transport =
        ["http", "https", "Check-", "Retries", "ForceIPv"].map(|at| format!("Acquire::{at}"));
    let dump = output_of(Command::new("apt-config").arg("dump")).unwrap_or_default();
    let dump = dump
        .lines()
        .filter(|line| transport.iter().any(|start| line.starts_with(start)));
    let mut configuration = String::new();
    for line in dump {
        configuration.push_str(line);
        configuration.push('\n');
        // A certificate's file: `Acquire::https::CaInfo "/path";`
        if let Some(path) = line.split('"').nth(1).map(Path::new)
            && path.is_absolute()
            && path.is_file()
        {
            copy_file(path, tree)?;
        }
    }
    write("etc/apt/apt.conf.d/99machine", &configuration)?;
    if Path::new(CERTIFICATES).is_file() {
        copy_file(Path::new(CERTIFICATES), tree)?;
    }

    let sudo = tree.join("usr/local/bin/sudo");
    write("usr/local/bin/sudo", SUDO)?;
    fs::set_permissions(&sudo, fs::Permissions::from_mode(0o755))
        .with_context(|| sudo.display().to_string())?;
    let status = Command::new("chroot")
        .arg(tree)
        .args(["/usr/sbin/useradd", "--create-home", "--shell", "/bin/bash"])
        .arg(Account::User.name())
        .stdin(Stdio::null())
        .status()
        .context("running useradd")?;
    if !status.success() {
        bail!("useradd in the tree: {status}");
    }
    Ok(())
}

/// A copy of the clean tree with a clone of HEAD in it.
pub struct Tree {
    folder: PathBuf,
    account: Account,
    /// Cargo's toolchain on this machine.
    toolchain: PathBuf,
}

impl Tree {
    /// Copies the clean tree and adds what belongs to one account: the clone, cargo's registry and configuration.
    pub fn copy(base: &Path, account: Account, nextest: bool) -> Result<Self> {
        let toolchain = toolchain()?;
        let folder = super::cache()?.join(format!("{SUITE}-{}", account.name()));
        remove(&folder)?;
        copy_folder(base, &folder)?;
        let tree = Self {
            folder,
            account,
            toolchain,
        };
        // The toolchain is bound here when the tree is entered.
        create_folder(&tree.within(TOOLCHAIN))?;
        copy_file(Path::new("/etc/resolv.conf"), &tree.folder)?;
        // Debian's installer writes this file, debootstrap does not.
        let hosts = tree.within("/etc/hosts");
        fs::write(&hosts, HOSTS).with_context(|| hosts.display().to_string())?;
        if nextest {
            let found = tool("cargo-nextest").context("cargo-nextest is not on the path")?;
            let to = tree.within("/usr/local/bin/cargo-nextest");
            fs::copy(&found, &to).with_context(|| to.display().to_string())?;
        }

        let home = tree.within(account.home());
        let project = home.join("dioptra");
        let status = Command::new("git")
            .args(["clone", "--quiet", "--no-hardlinks"])
            .args([root().as_os_str(), project.as_os_str()])
            .stdin(Stdio::null())
            .status()
            .context("running git clone")?;
        if !status.success() {
            bail!("git clone: {status}");
        }
        tree.copy_cargo(&home.join(".cargo"))?;
        if account == Account::User {
            let status = Command::new("chroot")
                .arg(&tree.folder)
                .args(["chown", "-R", "user:user", account.home()])
                .status()
                .context("running chown")?;
            if !status.success() {
                bail!("chown in the tree: {status}");
            }
        }
        Ok(tree)
    }

    /// Copies cargo's downloads, its configuration and the sub-commands installed beside it.
    fn copy_cargo(&self, to: &Path) -> Result<()> {
        create_folder(&to.join("bin"))?;
        let home = std::env::var_os("CARGO_HOME")
            .map(PathBuf::from)
            .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))
            .context("neither CARGO_HOME nor HOME says where cargo's registry is")?;
        create_folder(&to.join("registry"))?;
        // Cargo unpacks the sources again.
        for part in ["registry/index", "registry/cache"] {
            if home.join(part).is_dir() {
                copy_folder(&home.join(part), &to.join(part))?;
            }
        }
        for part in ["config", "config.toml", "bin/cargo-nextest"] {
            if home.join(part).is_file() {
                let to = to.join(part);
                fs::copy(home.join(part), &to).with_context(|| to.display().to_string())?;
            }
        }
        Ok(())
    }

    /// Returns a command that types a line into a shell in the clone.
    ///
    /// All processes of the line end with the shell, and all mounts with them.
    pub fn command(&self, typed: &str) -> Command {
        // $1 the tree, $2 the toolchain, $3 its place, $4 the user, $5 the home, $6 the line
        const ENTER: &str = r#"
            set -eu
            mount --bind "$1" "$1"
            mount --rbind /sys "$1/sys"
            mount --rbind /dev "$1/dev"
            # Debian's systemd mounts it; containers often lack it.
            if [ ! -e "$1/sys/kernel/tracing/events" ]; then
                mount -t tracefs tracefs "$1/sys/kernel/tracing" 2>/dev/null || true
            fi
            mount -t proc proc "$1/proc"
            mount --bind "$2" "$1$3"
            mount -o remount,bind,ro "$1$3"
            tree=$1 user=$4 line=$6
            export HOME="$5" USER="$4" LOGNAME="$4" SHELL=/bin/bash
            export PATH="$5/.cargo/bin:$3/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
            cd /
            exec chroot --userspec="$user:$user" --groups= "$tree" \
                /bin/bash -c 'cd ~/dioptra && eval "$1"' bash "$line"
        "#;
        let mut command = enter(ENTER);
        command
            .args([self.folder.as_os_str(), self.toolchain.as_os_str()])
            .args([TOOLCHAIN, self.account.name(), self.account.home(), typed])
            .env("CARGO_TERM_COLOR", "never")
            .env("CARGO_TERM_PROGRESS_WHEN", "never")
            // Node trusts certificates of its own and does not read the system's.
            .env("NODE_EXTRA_CA_CERTS", CERTIFICATES);
        command
    }

    /// Returns the folder of the tree.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Removes the tree.
    ///
    /// # Errors
    /// If files cannot be removed.
    pub fn remove(self) -> Result<()> {
        remove(&self.folder)
    }

    fn within(&self, path: &str) -> PathBuf {
        self.folder.join(path.trim_start_matches('/'))
    }
}

/// A copy of the clean tree with nothing added: Debian as it is installed.
pub struct PlainTree {
    folder: PathBuf,
}

impl PlainTree {
    /// Copies the clean tree. `name` tells the copy from other ones.
    ///
    /// # Errors
    /// If files cannot be copied.
    pub fn copy(base: &Path, name: &str) -> Result<Self> {
        let folder = super::cache()?.join(format!("{SUITE}-{name}"));
        remove(&folder)?;
        copy_folder(base, &folder)?;
        copy_file(Path::new("/etc/resolv.conf"), &folder)?;
        Ok(Self { folder })
    }

    /// Returns the folder of the tree.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns a command that types a line into root's shell in the tree.
    ///
    /// All processes of the line end with the shell, and all mounts with them.
    pub fn command(&self, typed: &str) -> Command {
        // $1 the tree, $2 the line
        const ENTER: &str = r#"
            set -eu
            mount --bind "$1" "$1"
            mount --rbind /sys "$1/sys"
            mount --rbind /dev "$1/dev"
            mount -t proc proc "$1/proc"
            export HOME=/root USER=root LOGNAME=root SHELL=/bin/bash DEBIAN_FRONTEND=noninteractive
            export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
            cd /
            exec chroot "$1" /bin/bash -c 'eval "$1"' bash "$2"
        "#;
        let mut command = enter(ENTER);
        command.arg(&self.folder).arg(typed);
        command
    }

    /// Removes the tree.
    ///
    /// # Errors
    /// If files cannot be removed.
    pub fn remove(self) -> Result<()> {
        remove(&self.folder)
    }
}

/// Returns a command that runs a shell script in namespaces of its own. The script's arguments follow.
fn enter(script: &str) -> Command {
    // If this program is killed, unshare is killed with it, and takes its child along.
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "unshare"])
        .args(["--mount", "--pid", "--fork", "--kill-child", "--"])
        .args(["sh", "-c", script, "sh"])
        .stdin(Stdio::null())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("LANG", "C.UTF-8")
        .envs(
            PROXIES
                .iter()
                .filter_map(|&name| Some((name, std::env::var_os(name)?))),
        );
    command
}

/// Returns the folder of the toolchain that runs this program.
fn toolchain() -> Result<PathBuf> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc"));
    let sysroot = output_of(
        Command::new(rustc)
            .args(["--print", "sysroot"])
            .current_dir(root()),
    )
    .context("rustc --print sysroot does not work")?;
    let sysroot = PathBuf::from(sysroot.trim())
        .canonicalize()
        .with_context(|| sysroot.trim().to_owned())?;
    if !sysroot.join("bin/cargo").is_file() || sysroot == Path::new("/usr") {
        bail!(
            "{} is no toolchain that can be bound into the tree: take rustup's",
            sysroot.display()
        );
    }
    Ok(sysroot)
}

fn output_of(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn create_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())
}

/// Copies a file of this machine to the same path in the tree.
fn copy_file(path: &Path, tree: &Path) -> Result<()> {
    let to = tree.join(path.strip_prefix("/").unwrap_or(path));
    if let Some(folder) = to.parent() {
        create_folder(folder)?;
    }
    fs::copy(path, &to)
        .map(drop)
        .with_context(|| to.display().to_string())
}

/// Copies a folder with all that a file system keeps of it, to a path where nothing is yet.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    let status = Command::new("cp")
        .args(["-a", "--reflink=auto", "--no-target-directory"])
        .args([from, to])
        .stdin(Stdio::null())
        .status()
        .context("running cp")?;
    if !status.success() {
        bail!("copying {} failed", from.display());
    }
    Ok(())
}

/// Removes a tree, but nothing that is mounted in it.
fn remove(folder: &Path) -> Result<()> {
    let status = Command::new("rm")
        .args(["-rf", "--one-file-system", "--"])
        .arg(folder)
        .stdin(Stdio::null())
        .status()
        .context("running rm")?;
    if !status.success() {
        bail!("{} cannot be removed", folder.display());
    }
    Ok(())
}
