//! Fills a store with the profiles of a synthetic fleet, through the same code as `dioptra store add`: each profile is
//! written as a recording, which [`Store::add`] reads. `cargo xtask bench fleet` runs this, and reads the figures.

mod model;
mod random;
mod recording;

use anyhow::{Context, Result};
use clap::Parser;
use dioptra_store::{ChosenLabels, ReadOptions, Store};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::Instant;

/// Fills a store with the profiles of a synthetic fleet.
#[derive(Parser)]
struct Arguments {
    /// The store
    #[arg(long)]
    store: String,
    /// The number of samples of all profiles
    #[arg(long)]
    samples: u64,
    /// The number of hosts
    #[arg(long, default_value_t = 1000)]
    hosts: usize,
    /// The number of profiles of all hosts
    #[arg(long)]
    profiles: u64,
    /// The seed of all random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The most bytes of recordings at a time, in MB
    #[arg(long, default_value_t = 200)]
    batch: u64,
    /// Keep the recordings in this folder, too
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

/// Time, and CPU time of the process.
#[derive(Clone, Copy, Default)]
struct Spent {
    wall: f64,
    cpu: f64,
}

impl Spent {
    /// Runs a job, and adds what it takes.
    fn on<T>(&mut self, job: impl FnOnce() -> Result<T>) -> Result<T> {
        let (start, before) = (Instant::now(), cpu_seconds()?);
        let result = job();
        self.wall += start.elapsed().as_secs_f64();
        self.cpu += cpu_seconds()? - before;
        result
    }

    fn json(self) -> serde_json::Value {
        serde_json::json!({ "wall_s": self.wall, "cpu_s": self.cpu })
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let store = Store::open_or_create(&arguments.store)?;
    let hosts = arguments.hosts.min(usize::try_from(arguments.profiles)?);
    let (mut making, mut writing, mut adding) =
        (Spent::default(), Spent::default(), Spent::default());
    let (seed, profiles) = (arguments.seed, arguments.profiles);
    let fleet = making.on(|| Ok(model::Fleet::new(seed, hosts, profiles, arguments.samples)))?;
    let scratch = tempfile::tempdir()?;
    let (mut recorded, mut stored, mut samples) = (0, 0, 0);
    let mut next = 0;
    while next < profiles {
        let mut batch = Vec::new();
        writing.on(|| {
            let mut bytes = 0;
            while next < profiles && bytes < arguments.batch * 1_000_000 {
                let profile = fleet.profile(next);
                next += 1;
                let path = scratch.path().join(format!("{}.data", profile.number));
                let mut file = BufWriter::new(File::create(&path)?);
                recording::write(&fleet, &profile, &mut file)?;
                file.flush()?;
                bytes += fs::metadata(&path)?.len();
                batch.push((path, profile));
            }
            recorded += bytes;
            Ok(())
        })?;
        adding.on(|| {
            for (path, profile) in &batch {
                let options = ReadOptions {
                    labels: ChosenLabels {
                        service: Some(fleet.service(profile.service).name.clone()),
                        ..ChosenLabels::default()
                    },
                    ..ReadOptions::default()
                };
                let added = store
                    .add(path, &options)
                    .with_context(|| path.display().to_string())?;
                stored += added.profile.bytes();
                samples += added.profile.samples();
            }
            Ok(())
        })?;
        for (path, _) in &batch {
            if let Some(folder) = &arguments.keep {
                let name = path.file_name().context("a file without a name")?;
                fs::copy(path, folder.join(name))?;
            }
            fs::remove_file(path)?;
        }
    }
    let peak = status_line("VmHWM:")?;
    let result = serde_json::json!({
        "hosts": hosts,
        "profiles": profiles,
        "samples": samples,
        "seed": seed,
        "model": making.json(),
        "recordings": writing.json(),
        "add": adding.json(),
        "recording_bytes": recorded,
        "store_bytes": stored,
        "peak_bytes": peak * 1024,
    });
    println!("{result}");
    Ok(())
}

/// Returns the user and system time of this process.
fn cpu_seconds() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let (_, rest) = stat.rsplit_once(')').context("/proc/self/stat")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    // Linux counts these in hundredths of a second on all machines that Rust knows.
    Ok(ticks as f64 / 100.0)
}

fn status_line(name: &str) -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.context("/proc/self/status")?.parse()?)
}
