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
use std::sync::atomic::{AtomicUsize, Ordering};
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
    /// The number of writers that add at the same time; as many as there are CPUs unless given
    #[arg(long)]
    writers: Option<usize>,
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
    let writers = match arguments.writers {
        Some(writers) => writers.max(1),
        None => std::thread::available_parallelism()?.get(),
    };
    let scratch = tempfile::tempdir()?;
    let (mut recorded, mut stored, mut samples) = (0, 0, 0);
    let mut next = 0;
    let mean = (arguments.samples / profiles.max(1)).max(1);
    while next < profiles {
        // A sample takes about 200 bytes.
        let count = (arguments.batch * 1_000_000 / (200 * mean + 100_000)).max(1);
        let batch: Vec<(PathBuf, model::Profile)> = (next..profiles.min(next + count))
            .map(|number| {
                let path = scratch.path().join(format!("{number}.data"));
                (path, fleet.profile(number))
            })
            .collect();
        next += count;
        let sizes = writing.on(|| {
            on_all(writers, &batch, |(path, profile)| {
                let mut file = BufWriter::new(File::create(path)?);
                recording::write(&fleet, profile, &mut file)?;
                file.flush()?;
                Ok(fs::metadata(path)?.len())
            })
        })?;
        recorded += sizes.iter().sum::<u64>();
        let added = adding.on(|| {
            on_all(writers, &batch, |(path, profile)| {
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
                Ok((added.profile.bytes(), added.profile.samples()))
            })
        })?;
        for (bytes, number) in added {
            stored += bytes;
            samples += number;
        }
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
        "writers": writers,
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

/// Does a job for each item on several threads, and returns the results in any order.
fn on_all<I: Sync, T: Send>(
    threads: usize,
    items: &[I],
    job: impl Fn(&I) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let work = || -> Result<Vec<T>> {
        let mut done = Vec::new();
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            done.push(job(item)?);
        }
        Ok(done)
    };
    let parts: Vec<Result<Vec<T>>> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let joined = all.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| Err(anyhow::anyhow!("a writer panicked")))
        });
        joined.collect()
    });
    let mut done = Vec::new();
    for part in parts {
        done.extend(part?);
    }
    Ok(done)
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
