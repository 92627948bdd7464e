//! A scheduler and its executors as processes of their own, which end with this one.

use crate::ENDS_WITH_INPUT;
use crate::servers::EXECUTORS;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A cluster that runs until it is dropped.
pub struct Cluster {
    /// The scheduler's address.
    pub scheduler: SocketAddr,
    folder: TempDir,
    _servers: Vec<Server>,
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended by itself.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl Cluster {
    /// Starts a scheduler and its executors.
    ///
    /// # Errors
    /// A process does not start, or the scheduler ends before it listens.
    pub fn start() -> Result<Cluster> {
        let folder = tempfile::tempdir()?;
        let mut scheduler = server(&["scheduler"], folder.path())?;
        let output = scheduler
            .0
            .stdout
            .take()
            .context("the scheduler's output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let Ok(address) = line.trim().parse() else {
            bail!("the scheduler ended before it listened");
        };
        let mut servers = vec![scheduler];
        for number in 0..EXECUTORS {
            let own = folder.path().join(format!("executor-{number}"));
            std::fs::create_dir(&own)?;
            let own = own.to_str().context("the folder's name is no text")?;
            servers.push(server(&["executor", line.trim(), own], folder.path())?);
        }
        Ok(Cluster {
            scheduler: address,
            folder,
            _servers: servers,
        })
    }

    /// Returns the number of files that the tasks of each executor have written.
    ///
    /// # Errors
    /// A folder can't be read.
    pub fn files(&self) -> Result<Vec<(String, usize)>> {
        let names = (0..EXECUTORS).map(|number| format!("executor-{number}"));
        names
            .map(|name| {
                let count = files_below(self.folder.path().join(&name))?;
                Ok((name, count))
            })
            .collect()
    }
}

fn server(words: &[&str], folder: &Path) -> Result<Server> {
    let child = Command::new(std::env::current_exe()?)
        .args(words)
        .current_dir(folder)
        .env(ENDS_WITH_INPUT, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {words:?}"))?;
    Ok(Server(child))
}

fn files_below(folder: PathBuf) -> std::io::Result<usize> {
    let mut count = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        count += match entry.file_type()?.is_dir() {
            true => files_below(entry.path())?,
            false => 1,
        };
    }
    Ok(count)
}
