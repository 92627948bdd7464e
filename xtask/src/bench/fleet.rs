//! `cargo xtask bench fleet`: what many profiles of a synthetic fleet cost, and how long questions over them take, beside
//! DuckDB and Spark with the same SQL on the same files.
//!
//! A store up to `--ingest` samples is filled through `Store::add`, and then merged by `compact`. A larger one has the merged
//! files of the largest store below it, linked into the folders of more hosts.

mod engines;
mod stores;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::save;
use engines::{Engine, Engines};
use stores::{Makers, Sizes};

/// The longest time that a step of making a store may take.
const LIMIT: Duration = Duration::from_secs(1200);

/// The fleets to measure, and the engines.
#[derive(clap::Args)]
pub struct Arguments {
    /// The numbers of samples of the stores, ascending
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1000000,10000000,100000000"
    )]
    samples: Vec<u64>,
    /// The hosts of the largest store; smaller ones have fewer, in proportion
    #[arg(long, default_value_t = 1000)]
    hosts: u64,
    /// The profiles of each host
    #[arg(long, default_value_t = 100)]
    profiles: u64,
    /// Stores with more samples than this are made of the merged files of a smaller one
    #[arg(long, value_name = "SAMPLES", default_value_t = 10_000_000)]
    ingest: u64,
    /// The engines
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "dioptra,duckdb,spark"
    )]
    engines: Vec<Engine>,
    /// A Spark cluster, such as `spark://127.0.0.1:7077`; else a master and two workers are started on loopback
    #[arg(long, value_name = "URL")]
    spark_master: Option<String>,
    /// The number of runs of each question
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// The longest time that one question may take in dioptra and in DuckDB, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    limit: u64,
    /// Keep the stores in this folder, and take those that are there
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

/// A question: its name, and the arguments of `dioptra query`.
struct Question {
    name: &'static str,
    words: &'static [&'static str],
}

/// The named questions, and a search in stacks. The largest service has the slow function of later builds.
const QUESTIONS: [Question; 6] = [
    Question {
        name: "top-functions",
        words: &["top-functions"],
    },
    Question {
        name: "top, by service",
        words: &["top-functions", "--group-by", "service", "--limit", "5"],
    },
    Question {
        name: "top, one service",
        words: &["top-functions", "--service", "svc00"],
    },
    Question {
        name: "regressions",
        words: &[
            "regressions",
            "--from",
            "2026-11-01..2026-11-05,service=svc00",
            "--to",
            "2026-11-06..2026-11-10,service=svc00",
        ],
    },
    Question {
        name: "flame, one service",
        words: &["flame", "--service", "svc00"],
    },
    Question {
        name: "stack_contains",
        words: &[
            "SELECT sum(weight) AS weight FROM samples WHERE event = 'cpu-clock' AND array_contains(frames, 'SSL_fn_1')",
        ],
    },
];

/// Runs the bench.
pub fn run(arguments: &Arguments) -> Result<()> {
    ensure!(
        arguments.samples.is_sorted() && !arguments.samples.is_empty(),
        "--samples: give ascending numbers"
    );
    let makers = Makers::build()?;
    let engines = Engines::find(&arguments.engines, &makers.program, arguments)?;
    let temporary = tempfile::tempdir_in(super::scratch()?)?;
    let folder = match &arguments.keep {
        Some(folder) => folder.clone(),
        None => temporary.path().to_owned(),
    };
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let most = arguments.samples.last().copied().unwrap_or(1);
    let mut results = Vec::new();
    let mut base: Option<(PathBuf, u64)> = None;
    for &samples in &arguments.samples {
        let store = folder.join(format!("fleet-{samples}"));
        println!("\n{samples} samples: {}", store.display());
        let made = match &base {
            Some((base, of_base)) if samples > arguments.ingest => {
                ensure!(
                    samples % of_base == 0,
                    "{samples} is no multiple of {of_base}, the samples of the store below it"
                );
                stores::repeat(base, &store, samples / of_base)?
            }
            _ => {
                let hosts = (arguments.hosts * samples / most).max(1);
                let made = makers.fill(&store, samples, hosts, hosts * arguments.profiles)?;
                base = Some((store.clone(), samples));
                made
            }
        };
        let sizes = Sizes::of(&store)?;
        sizes.print("now", samples);
        let place = store.to_str().context("the folder's name is no text")?;
        let answers = engines.answers(place, &QUESTIONS, arguments.runs)?;
        results.push(json!({
            "samples": samples, "made": made, "sizes": sizes.json(), "questions": answers,
        }));
    }
    print_growth(&arguments.samples, &results);
    save("fleet", json!({ "stores": results }))
}

/// Prints the CPU microseconds of each question for a sample, from store to store.
fn print_growth(samples: &[u64], results: &[Value]) {
    println!("\nCPU microseconds a sample, from store to store:");
    let Some(first) = results.first().and_then(|one| one["questions"].as_array()) else {
        return;
    };
    for (number, question) in first.iter().enumerate() {
        for engine in ["dioptra", "duckdb", "spark"] {
            let figures: Vec<String> = samples
                .iter()
                .zip(results)
                .filter_map(|(samples, result)| {
                    let cpu = result["questions"][number][engine]["cpu_s"].as_f64()?;
                    Some(format!("{:>9.3}", 1e6 * cpu / *samples as f64))
                })
                .collect();
            if !figures.is_empty() {
                let name = question["question"].as_str().unwrap_or_default();
                println!("{name:<20} {engine:<8} {}", figures.join(" "));
            }
        }
    }
}
