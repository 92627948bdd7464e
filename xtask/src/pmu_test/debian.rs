//! Packages of another architecture from the machine's own Debian mirror, unpacked into a cache, without touching the
//! system: apt-get with an apt tree of its own, which verifies what it downloads as it always does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::Unavailable;

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A suite of Debian's archive, and where its packages are kept.
pub struct Archive {
    suite: &'static str,
    cache: PathBuf,
    /// Whether the list of packages is there and current.
    listed: std::cell::Cell<bool>,
}

impl Archive {
    /// The suite `suite`; nothing is downloaded before it is needed.
    pub fn new(suite: &'static str, cache: &Path) -> Archive {
        Archive {
            suite,
            cache: cache.to_path_buf(),
            listed: std::cell::Cell::new(false),
        }
    }

    /// The folder of an unpacked package. `name` is resolved by `resolve` once the list of packages is there; `key`
    /// names the package in the cache, where the version that was downloaded first stays until `refresh`.
    ///
    /// # Errors
    /// [`Unavailable`] where there is no apt-get, no network or no such package.
    pub fn package(
        &self,
        key: &str,
        refresh: bool,
        resolve: impl FnOnce(&Archive) -> Result<String>,
    ) -> Result<PathBuf> {
        let shelf = self
            .cache
            .join(format!("{}-{}", self.suite, key.replace(':', "-")));
        if !refresh && let Some(folder) = unpacked(&shelf) {
            return Ok(folder);
        }
        self.list_packages()?;
        let package = resolve(self)?;
        fs::create_dir_all(&shelf).with_context(|| shelf.display().to_string())?;
        let loading = tempfile::tempdir_in(&shelf).with_context(|| shelf.display().to_string())?;
        println!("downloading {package} from Debian {}", self.suite);
        let status = self
            .apt("apt-get")
            .args(["-q", "download", &package])
            .current_dir(loading.path())
            .status();
        if !status.is_ok_and(|status| status.success()) {
            return Err(Unavailable::because(format!(
                "apt-get could not download {package}; look at its message above, then try again"
            )));
        }
        let file = fs::read_dir(loading.path())?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
            .context("apt-get downloaded nothing")?;
        // The file's name carries the version.
        let folder = shelf.join(file.file_stem().unwrap_or_default());
        if !folder.is_dir() {
            let unpacking = loading.path().join("unpacked");
            let status = Command::new("dpkg-deb")
                .arg("-x")
                .arg(&file)
                .arg(&unpacking)
                .status();
            if !status.is_ok_and(|status| status.success()) {
                return Err(Unavailable::because(format!(
                    "dpkg-deb could not unpack {}",
                    file.display()
                )));
            }
            fs::rename(&unpacking, &folder).with_context(|| folder.display().to_string())?;
        }
        fs::write(
            shelf.join("current"),
            folder.file_name().unwrap_or_default().as_encoded_bytes(),
        )?;
        Ok(folder)
    }

    /// The package that a package without content stands for, such as the newest kernel.
    pub fn depends(&self, package: &str) -> Result<String> {
        let text = self.ask(&["depends", package])?;
        text.lines()
            .find_map(|line| line.trim().strip_prefix("Depends: "))
            .map(str::to_string)
            .ok_or_else(|| self.lacks(package))
    }

    /// The version of a package that begins with `prefix`.
    pub fn version(&self, package: &str, prefix: &str) -> Result<String> {
        let text = self.ask(&["madison", package])?;
        text.lines()
            .filter_map(|line| line.split('|').nth(1))
            .map(str::trim)
            .find(|version| version.starts_with(prefix))
            .map(str::to_string)
            .ok_or_else(|| self.lacks(&format!("{package} {prefix}")))
    }

    fn lacks(&self, package: &str) -> anyhow::Error {
        Unavailable::because(format!("Debian {} has no {package}", self.suite))
    }

    fn ask(&self, arguments: &[&str]) -> Result<String> {
        self.list_packages()?;
        let output = self.apt("apt-cache").args(arguments).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn list_packages(&self) -> Result<()> {
        if self.listed.get() {
            return Ok(());
        }
        if dioptra_testprograms::tool("apt-get").is_none()
            || dioptra_testprograms::tool("dpkg-deb").is_none()
        {
            return Err(Unavailable::because(
                "there is no apt-get here to fetch the guest's kernel from Debian",
            ));
        }
        if !Path::new(KEYRING).exists() {
            return Err(Unavailable::because(format!(
                "{KEYRING} is missing: apt-get install debian-archive-keyring"
            )));
        }
        let tree = self.tree();
        for folder in [
            "etc/apt.conf.d",
            "etc/preferences.d",
            "etc/trusted.gpg.d",
            "state/lists/partial",
            "cache/archives/partial",
        ] {
            let folder = tree.join(folder);
            fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        }
        let shown = tree.display();
        // No package counts as installed: what is asked for is downloaded, whatever the system has.
        fs::write(tree.join("state/status"), "")?;
        fs::write(
            tree.join("etc/sources.list"),
            format!(
                "deb [arch=amd64,arm64 signed-by={KEYRING}] {} {} main\n",
                mirror(),
                self.suite
            ),
        )?;
        fs::write(
            tree.join("apt.conf"),
            format!(
                "Dir::Etc \"{shown}/etc\";\nDir::State \"{shown}/state\";\nDir::State::status \"{shown}/state/status\";\n\
                 Dir::Cache \"{shown}/cache\";\nAPT::Architectures {{ \"amd64\"; \"arm64\"; }};\nAPT::Sandbox::User \"\";\n\
                 Acquire::Languages \"none\";\nAcquire::Retries \"2\";\nAcquire::http::Timeout \"30\";\n"
            ),
        )?;
        println!(
            "reading the list of packages of Debian {} from {}",
            self.suite,
            mirror()
        );
        let status = self
            .apt("apt-get")
            .args(["-qq", "--error-on=any", "update"])
            .status();
        if !status.is_ok_and(|status| status.success()) {
            return Err(Unavailable::because(format!(
                "apt-get could not read the list of packages of Debian {} from {}; is there a network?",
                self.suite,
                mirror()
            )));
        }
        self.listed.set(true);
        Ok(())
    }

    fn tree(&self) -> PathBuf {
        self.cache.join(format!("apt-{}", self.suite))
    }

    fn apt(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("APT_CONFIG", self.tree().join("apt.conf"))
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        command
    }
}

fn unpacked(shelf: &Path) -> Option<PathBuf> {
    let name = fs::read_to_string(shelf.join("current")).ok()?;
    let folder = shelf.join(name);
    folder.is_dir().then_some(folder)
}

/// The mirror that the machine takes Debian from, else Debian's own address.
fn mirror() -> String {
    let output = Command::new("apt-get")
        .args(["indextargets", "--format", "$(ORIGIN) $(SUITE) $(SITE)"])
        .stdin(Stdio::null())
        .output();
    output
        .ok()
        .and_then(|output| {
            String::from_utf8_lossy(&output.stdout)
                .lines()
                .find_map(|line| {
                    let mut words = line.split(' ');
                    let debian =
                        words.next() == Some("Debian") && !words.next()?.contains("security");
                    debian.then(|| words.next().map(str::to_string)).flatten()
                })
        })
        .unwrap_or_else(|| "http://deb.debian.org/debian".to_string())
}
