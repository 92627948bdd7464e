//! The step `page` of `cargo xtask test`: the page's bundle is what its sources give, and the page works in Chromium, on the
//! mock server, on real recordings of many kinds, and as a static report.
//!
//! The step needs npm, Chromium and the npm registry. Without one of them it is skipped, with the reason.

mod recordings;
#[path = "../../crates/sampling/profile/tests/support/mod.rs"]
mod records;
mod synthetic;

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use dioptra_testprograms::tool;

use crate::root;
use crate::test::cargo;

/// The oldest major version of Node that the page's tools run on. Debian 12 has 18.
const OLDEST_NODE: u32 = 20;

/// The version of Node that npm brings where the machine's is older.
const NODE: &str = "node@22.23.3";

/// The outcome of the step.
pub enum Page {
    /// All checks passed.
    Passed,
    /// A check failed, and has printed why.
    Failed(&'static str),
    /// The machine lacks something.
    Skipped(String),
}

/// Runs the checks as a command of their own.
pub fn run() -> Result<ExitCode> {
    Ok(match check()? {
        Page::Passed => ExitCode::SUCCESS,
        Page::Failed(command) => {
            println!("{command} failed in crates/web/ui");
            ExitCode::FAILURE
        }
        Page::Skipped(reason) => {
            println!("{reason}");
            ExitCode::FAILURE
        }
    })
}

/// Runs the checks.
pub fn check() -> Result<Page> {
    let folder = root().join("crates/web/ui");
    for needed in ["npm", "chromium"] {
        if tool(needed).is_none() {
            return Ok(Page::Skipped(format!("{needed} is not installed")));
        }
    }
    let Some(prepared) = Npm::prepare()? else {
        let registry = "the npm registry did not give the page's packages";
        return Ok(Page::Skipped(registry.into()));
    };
    let npm = |arguments: &[&str]| prepared.run(&folder, arguments);
    if !npm(&["run", "--silent", "fresh"])? {
        return Ok(Page::Failed("npm run fresh"));
    }
    let before = bundle(&folder)?;
    if !npm(&["run", "--silent", "build"])? {
        return Ok(Page::Failed("npm run build"));
    }
    if bundle(&folder)? != before {
        println!(
            "crates/web/ui/dist was not what its sources give: commit it as `npm run build` has made it now"
        );
        return Ok(Page::Failed("npm run build"));
    }
    // A browser on a busy machine may be slower than the tests wait, so each has a second try.
    let twice = |arguments: &[&str]| -> Result<bool> { Ok(npm(arguments)? || npm(arguments)?) };
    if !twice(&["run", "--silent", "test"])? {
        return Ok(Page::Failed("npm test"));
    }
    let folder = tempfile::tempdir()?;
    let dioptra = dioptra()?;
    let made = recordings::make(&dioptra, folder.path())?;
    for skipped in &made.skipped {
        println!("skipped: a recording of {skipped}");
    }
    let Some(first) = made.files.first() else {
        bail!("there is no recording");
    };
    let server = Server::start(&dioptra, &made.files, None)?;
    if !twice(&["run", "--silent", "test", "--", &server.address])? {
        return Ok(Page::Failed("npm test -- URL"));
    }
    if !twice(&["run", "--silent", "test:recordings", "--", &server.address])? {
        return Ok(Page::Failed("npm run test:recordings"));
    }
    let report = export(&dioptra, std::slice::from_ref(first), None)?;
    if !twice(&[
        "run",
        "--silent",
        "test:report",
        "--",
        &report,
        &server.address,
    ])? {
        return Ok(Page::Failed("npm run test:report"));
    }
    drop(server);
    match recordings::trace(&dioptra, folder.path())? {
        None => println!("skipped: a trace, since the program could not be compiled"),
        Some(trace) => {
            let files = [first.clone(), trace];
            let server = Server::start(&dioptra, &files, None)?;
            let report = format!("file://{}", export(&dioptra, &files, None)?);
            for address in [&server.address, &report] {
                if !twice(&["run", "--silent", "test:traces", "--", address])? {
                    return Ok(Page::Failed("npm run test:traces"));
                }
            }
        }
    }
    let synthetic = synthetic::write(folder.path())?;
    let symfs = Some(&*synthetic.symfs);
    let server = Server::start(&dioptra, std::slice::from_ref(&synthetic.file), symfs)?;
    if !twice(&["run", "--silent", "test:recordings", "--", &server.address])? {
        return Ok(Page::Failed("npm run test:recordings"));
    }
    let report = export(&dioptra, std::slice::from_ref(&synthetic.file), symfs)?;
    if !twice(&[
        "run",
        "--silent",
        "test:report",
        "--",
        &report,
        &server.address,
    ])? {
        return Ok(Page::Failed("npm run test:report"));
    }
    Ok(Page::Passed)
}

/// Writes a static report of recordings beside the last one, and returns the report's path.
fn export(dioptra: &Path, files: &[PathBuf], symfs: Option<&Path>) -> Result<String> {
    let last = files.last().context("no file to report on")?;
    let report = last.with_extension("html");
    let mut command = Command::new(dioptra);
    command.args(["web", "--export"]).arg(&report).args(files);
    if let Some(symfs) = symfs {
        command.arg("--symfs").arg(symfs);
    }
    let status = command.status().context("running dioptra web --export")?;
    if !status.success() {
        bail!("dioptra web --export failed");
    }
    let report = report.to_str().context("a path that is no UTF-8")?;
    Ok(report.to_owned())
}

/// npm with a Node that is new enough, and the page's packages.
pub struct Npm {
    path: OsString,
}

impl Npm {
    /// Installs the page's packages. `None` if the registry does not give them.
    pub fn prepare() -> Result<Option<Npm>> {
        let Some(path) = path_with_node()? else {
            return Ok(None);
        };
        let npm = Npm { path };
        let folder = root().join("crates/web/ui");
        let is_there = npm.run(&folder, &["ci", "--no-audit", "--no-fund"])?;
        Ok(is_there.then_some(npm))
    }

    /// Runs npm in a folder, and returns whether it succeeded.
    pub fn run(&self, folder: &Path, arguments: &[&str]) -> Result<bool> {
        npm(folder, &self.path, arguments)
    }

    /// A command that runs Node.
    pub fn node(&self) -> Command {
        let mut node = Command::new("node");
        node.env("PATH", &self.path);
        node
    }
}

/// Returns the path on which a Node is found that is new enough, from npm's registry where the machine's is too old. `None`
/// if the registry does not give it.
fn path_with_node() -> Result<Option<OsString>> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let version = Command::new("node").arg("--version").output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    // Such as v18.20.4.
    let major = |text: &str| {
        text.trim()
            .strip_prefix('v')?
            .split('.')
            .next()?
            .parse()
            .ok()
    };
    if version.is_ok_and(|text| major(&text) >= Some(OLDEST_NODE)) {
        return Ok(Some(path));
    }
    let folder = target().join("node");
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let install = [
        "install",
        "--no-save",
        "--no-audit",
        "--no-fund",
        "--prefix",
        ".",
    ];
    if !npm(&folder, &path, &[&install[..], &[NODE]].concat())? {
        return Ok(None);
    }
    let mut folders = vec![folder.join("node_modules/.bin")];
    folders.extend(std::env::split_paths(&path));
    Ok(Some(std::env::join_paths(folders)?))
}

fn npm(folder: &Path, path: &OsStr, arguments: &[&str]) -> Result<bool> {
    let status = Command::new("npm")
        .args(arguments)
        .env("PATH", path)
        .current_dir(folder)
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("running npm {}", arguments.join(" ")))?;
    Ok(status.success())
}

/// Returns the files of the bundle, by name.
fn bundle(folder: &Path) -> Result<Vec<(PathBuf, Vec<u8>)>> {
    let dist = folder.join("dist");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&dist).with_context(|| dist.display().to_string())? {
        let path = entry?.path();
        let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
        files.push((path, bytes));
    }
    files.sort();
    Ok(files)
}

/// `dioptra web` on recordings. Dropping it ends the server.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(dioptra: &Path, files: &[PathBuf], symfs: Option<&Path>) -> Result<Server> {
        let mut command = Command::new(dioptra);
        command.args(["web", "--no-open"]).args(files);
        if let Some(symfs) = symfs {
            command.arg("--symfs").arg(symfs);
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("running dioptra web")?;
        let mut address = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut address)?;
        }
        let server = Server {
            child,
            address: address.trim().to_owned(),
        };
        if !server.address.starts_with("http://127.0.0.1:") {
            bail!("dioptra web printed no address: {address:?}");
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process is a child of ours that nobody has waited for, so its number is still its own.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Builds the binary, and returns its path.
fn dioptra() -> Result<PathBuf> {
    let built = Command::new(cargo())
        .args(["build", "--quiet", "-p", "dioptra"])
        .current_dir(root())
        .status()
        .context("running cargo build")?;
    if !built.success() {
        bail!("cargo build failed");
    }
    Ok(target().join("debug/dioptra"))
}

fn target() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    root().join(target)
}
