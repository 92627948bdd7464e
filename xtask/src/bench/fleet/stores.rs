//! Stores of synthetic fleets: filled, merged, and repeated.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::root;
use crate::test::cargo;

use super::super::measure;
use super::LIMIT;

/// The tables whose rows grow with the samples.
const REPEATED: [&str; 2] = ["samples", "stacks"];

/// The programs that make stores.
pub struct Makers {
    /// `dioptra-store`.
    pub program: PathBuf,
    /// The generator.
    fleet: PathBuf,
}

/// By table: the number of files, and the sum of their sizes in bytes.
pub struct Sizes(BTreeMap<String, (u64, u64)>);

impl Makers {
    /// Builds both in release mode. The first time takes many minutes.
    pub fn build() -> Result<Makers> {
        let output = Command::new(cargo())
            .args(["build", "--release", "--bins", "--examples"])
            .arg("--message-format=json-render-diagnostics")
            .current_dir(root().join("crates/store"))
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .context("running cargo build")?;
        if !output.status.success() {
            bail!("crates/store does not build");
        }
        let messages: Vec<Value> = String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        let find = |name: &str| {
            let of_name = |message: &&Value| message["target"]["name"] == name;
            let found = messages.iter().filter(of_name);
            let mut paths = found.filter_map(|message| message["executable"].as_str());
            let path = paths.next().map(PathBuf::from);
            path.with_context(|| format!("cargo build named no {name}"))
        };
        Ok(Makers {
            program: find("dioptra-store")?,
            fleet: find("fleet")?,
        })
    }

    /// Fills a store unless it is there, merges its files, and returns what both took.
    pub fn fill(&self, store: &Path, samples: u64, hosts: u64, profiles: u64) -> Result<Value> {
        let notes = store.with_extension("json");
        if let Ok(text) = fs::read_to_string(&notes) {
            println!("  it is there");
            return serde_json::from_str(&text).with_context(|| notes.display().to_string());
        }
        let place = store.to_str().context("the folder's name is no text")?;
        let numbers = [samples, hosts, profiles].map(|number| number.to_string());
        let output = Command::new(&self.fleet)
            .args(["--store", place, "--samples", &numbers[0]])
            .args(["--hosts", &numbers[1], "--profiles", &numbers[2]])
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| self.fleet.display().to_string())?;
        if !output.status.success() {
            bail!("the generator of the fleet failed");
        }
        let filled: Value = serde_json::from_slice(&output.stdout).context("the generator")?;
        let before = Sizes::of(store)?;
        let add = |what: &str| filled["add"][what].as_f64().unwrap_or(f64::NAN);
        println!(
            "  {hosts} hosts, {profiles} profiles, {} writers: added in {:.1} s, {:.1} CPU s: {:.0} samples and {:.1} \
             profiles a second, {:.2} CPU ms a profile; recordings made in {:.1} CPU s; peak {:.0} MB",
            filled["writers"],
            add("wall_s"),
            add("cpu_s"),
            samples as f64 / add("wall_s"),
            profiles as f64 / add("wall_s"),
            1e3 * add("cpu_s") / profiles as f64,
            filled["recordings"]["cpu_s"].as_f64().unwrap_or(f64::NAN),
            filled["peak_bytes"].as_f64().unwrap_or(f64::NAN) / 1e6,
        );
        before.print("added", samples);
        let mut steps = Vec::new();
        for words in [["compact", "--settle", "0s"], ["gc", "--older-than", "0s"]] {
            let mut command = Command::new(&self.program);
            command.args(words).args(["--store", place]);
            let run = measure::start(&mut command)?.finish_within(LIMIT, &[])?;
            println!(
                "  {}: {:.1} s, {:.1} CPU s, {:.0} MB",
                words[0],
                run.wall,
                run.cpu,
                run.peak as f64 / 1e6
            );
            if let Some(failure) = run.failure {
                bail!("{}: {failure}", words[0]);
            }
            steps.push(json!({
                "step": words[0], "wall_s": run.wall, "cpu_s": run.cpu, "peak_bytes": run.peak,
            }));
        }
        let made = json!({ "filled": filled, "before": before.json(), "steps": steps });
        fs::write(&notes, made.to_string()).with_context(|| notes.display().to_string())?;
        Ok(made)
    }
}

/// Makes a store whose samples and stacks are those of another one, repeated for more hosts: each file is linked into the
/// folders of as many hosts. The profiles stay those of the other store, so each import's rows count repeatedly.
pub fn repeat(base: &Path, store: &Path, times: u64) -> Result<Value> {
    let made = json!({ "repeated": times, "base": base });
    println!(
        "  the files of {} for {times} times as many hosts",
        base.display()
    );
    if store.exists() {
        println!("  it is there");
        return Ok(made);
    }
    for file in files_below(base)? {
        let name = file.strip_prefix(base)?.to_str().context("a file's name")?;
        let is_repeated = REPEATED.iter().any(|table| {
            name.strip_prefix(table)
                .is_some_and(|rest| rest.starts_with('/'))
        });
        // The file without rows has its place once.
        let times = match is_repeated && !name.contains("host=none/") {
            true => times,
            false => 1,
        };
        for copy in 0..times {
            let name = match copy {
                0 => name.to_owned(),
                _ => with_other_host(name, copy)?,
            };
            let target = store.join(name);
            if let Some(parent) = target.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::hard_link(&file, &target).with_context(|| target.display().to_string())?;
        }
    }
    Ok(made)
}

/// Returns the name of an object in the folder of another host.
fn with_other_host(name: &str, copy: u64) -> Result<String> {
    let (folder, file) = name
        .rsplit_once('/')
        .context("an object without a folder")?;
    Ok(format!("{folder}.{copy}/{file}"))
}

impl Sizes {
    /// Measures the files of a store.
    pub fn of(store: &Path) -> Result<Sizes> {
        let mut tables: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for file in files_below(store)? {
            let name = file.strip_prefix(store)?;
            let table = name.components().next().context("a file's name")?;
            let table = table.as_os_str().to_string_lossy().into_owned();
            let (files, bytes) = tables.entry(table).or_default();
            *files += 1;
            *bytes += fs::metadata(&file)?.len();
        }
        tables.retain(|table, _| !table.starts_with('_'));
        Ok(Sizes(tables))
    }

    /// Prints the bytes a sample and the files of each table.
    pub fn print(&self, state: &str, samples: u64) {
        let (files, bytes) = self
            .0
            .values()
            .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        println!(
            "  {state}: {files} files, {:.1} MB, {:.1} bytes a sample",
            bytes as f64 / 1e6,
            bytes as f64 / samples as f64
        );
        for (table, (files, bytes)) in &self.0 {
            if *files > 1 {
                let each = *bytes as f64 / samples as f64;
                println!("    {table:<10} {files:>7} files {each:>8.2} bytes a sample");
            }
        }
    }

    /// Returns the figures as JSON.
    pub fn json(&self) -> Value {
        let tables = self.0.iter();
        let tables = tables.map(|(table, (files, bytes))| {
            let figures = json!({ "files": files, "bytes": bytes });
            (table.clone(), figures)
        });
        Value::Object(tables.collect())
    }
}

fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
        for entry in entries {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true => folders.push(entry.path()),
                false => files.push(entry.path()),
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_repeated_for_more_hosts() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().join("base");
        for name in [
            "samples/date=2026-11-01/service=a/host=b/one.parquet",
            "samples/date=1970-01-01/service=none/host=none/no-rows.parquet",
            "profiles/one.parquet",
        ] {
            let file = base.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "ten bytes.").unwrap();
        }
        let store = folder.path().join("store");
        repeat(&base, &store, 3).unwrap();
        let sizes = Sizes::of(&store).unwrap();
        assert_eq!(sizes.0["samples"], (4, 40));
        assert_eq!(sizes.0["profiles"], (1, 10));
        let other = "samples/date=2026-11-01/service=a/host=b.2/one.parquet";
        assert!(store.join(other).exists());
    }
}
