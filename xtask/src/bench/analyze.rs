//! `cargo xtask bench analyze`: what a whole analysis takes beside a plain report of the same file, how soon a second
//! question is answered, and what the code of the hottest functions takes beside `perf annotate`.

mod annotate;

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::compare::{Comparison, Contestant, Work, compare};
use super::input::{self, Input, Kind};
use super::{build, build_dioptra, find_perf, save, version};

/// CPU-seconds for a MB that Gooda takes on a flat profile of one process.
const GOODA: f64 = 0.036;
/// The number of the hottest functions that are disassembled.
const FUNCTIONS: usize = 500;

/// The profiles to measure, and the number of rounds.
#[derive(clap::Args)]
pub struct Arguments {
    /// The number of runs of each tool
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Small profiles and one run: whether all of it works, not how fast it is
    #[arg(long)]
    quick: bool,
    /// The kinds of profiles; the whole machine with and without call chains, and with ten events, unless given
    #[arg(long = "kind", value_enum, value_delimiter = ',')]
    kinds: Vec<Kind>,
    /// Size of the profiles to record, in MB, in place of each kind's own; they are kept for the next time
    #[arg(long)]
    size: Option<u64>,
    /// Take this profile instead
    #[arg(long, value_name = "FILE", conflicts_with_all = ["size", "kinds", "quick"])]
    input: Option<PathBuf>,
    /// Leave perf annotate out
    #[arg(long)]
    no_peers: bool,
}

/// Runs the bench.
pub fn run(arguments: &Arguments) -> Result<()> {
    let bench = AnalyzeBench {
        perf: find_perf()?,
        dioptra: build_dioptra()?,
        analyze: build(&["--package", "dioptra-profile", "--example", "analyze"])?,
        runs: if arguments.quick { 1 } else { arguments.runs },
        peers: !arguments.no_peers,
    };
    let mut inputs = Vec::new();
    if let Some(path) = &arguments.input {
        inputs.push(("given", input::given(path)?));
    } else {
        let kinds = match &arguments.kinds[..] {
            [] => &[Kind::SysFp, Kind::Flat, Kind::SysEvents][..],
            kinds => kinds,
        };
        for &kind in kinds {
            let size = match (arguments.size, arguments.quick) {
                (Some(size), _) => size,
                (None, true) => kind.megabytes() / 20,
                (None, false) => kind.megabytes(),
            };
            inputs.push((kind.name(), input::make(&bench.perf, kind, size)?));
        }
    }
    let mut results = Vec::new();
    for (name, input) in &inputs {
        results.push(bench.analyses(name, input)?);
    }
    save(
        "analyze",
        json!({
            "versions": {"dioptra": version(&bench.dioptra), "perf": version(&bench.perf)},
            "inputs": results,
        }),
    )
}

struct AnalyzeBench {
    perf: PathBuf,
    dioptra: PathBuf,
    analyze: PathBuf,
    runs: usize,
    peers: bool,
}

impl AnalyzeBench {
    fn analyses(&self, name: &str, input: &Input) -> Result<Value> {
        input::warm(&input.path)?;
        let file = &*input.path.to_string_lossy();
        let megabytes = input.bytes as f64 / 1e6;
        println!("\n{name}: {file}, {megabytes:.1} MB");
        Comparison::print_heading();
        let work = Work {
            bytes: input.bytes,
            samples: input.samples,
        };
        let report = || Contestant::new("report", &self.dioptra, &["report", "-i", file]);
        // The output is cut short, since the table is the expensive part.
        let levels = ["report", "-i", file, "--limit", "20", "--by"];
        let levels = [&levels[..], &["program,module,function,address"]].concat();
        let tree = Contestant::new("tree", &self.analyze, &["tree", file]);
        let table = Contestant::new("table", &self.dioptra, &levels);
        let mut comparisons = Vec::new();
        for (mode, contestant) in [("tree", tree), ("table", table)] {
            let comparison = compare(mode, vec![contestant, report()], self.runs)?;
            comparison.print(work);
            comparisons.push(comparison);
        }
        let of_megabyte = comparisons[0].first().map(|(cpu, _)| cpu / megabytes);
        if let Some(cpu) = of_megabyte {
            println!(
                "the whole tree: {:.2} CPU ms for a MB, {:.0} times as fast as Gooda on its best input",
                1e3 * cpu,
                GOODA / cpu
            );
        }
        let tree = self.ask(&["tree", file])?;
        let questions = self.questions("questions", file)?;
        let totals = self.questions("totals", file)?;
        let functions = FUNCTIONS.to_string();
        let code = self.ask(&["code", file, &functions, "2"])?;
        let one = self.code_cpu(file)?;
        println!(
            "code: {} functions in {} modules, {} instructions, {} with a line: {} ms on two threads",
            code["functions"], code["modules"], code["instructions"], code["with_line"], code["ms"]
        );
        let peer = match self.peers {
            true => annotate::peer(&self.perf, file, FUNCTIONS, one)?,
            false => Value::Null,
        };
        Ok(json!({
            "name": name,
            "path": input.path,
            "bytes": input.bytes,
            "samples": input.samples,
            "comparisons": comparisons.iter().map(Comparison::json).collect::<Vec<_>>(),
            "cpu_s_per_mb": of_megabyte,
            "tree": tree,
            "questions": questions,
            "totals": totals,
            "code": code,
            "code_cpu_s": one,
            "perf_annotate": peer,
        }))
    }

    /// The example's figures.
    fn ask(&self, arguments: &[&str]) -> Result<Value> {
        let output = Command::new(&self.analyze)
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| self.analyze.display().to_string())?;
        if !output.status.success() {
            bail!("analyze {}: {}", arguments.join(" "), output.status);
        }
        serde_json::from_slice(&output.stdout)
            .with_context(|| format!("analyze {}: no JSON", arguments.join(" ")))
    }

    /// CPU-seconds for the code of the hottest functions on one thread, reading the file left out.
    fn code_cpu(&self, file: &str) -> Result<Option<f64>> {
        let cpu = |functions: usize| -> Result<Option<f64>> {
            let functions = functions.to_string();
            let arguments = ["code", file, &functions, "1"];
            let contestant = Contestant::new("code", &self.analyze, &arguments);
            let comparison = compare("code", vec![contestant], self.runs)?;
            Ok(comparison.first().map(|(cpu, _)| cpu))
        };
        let (none, all) = (cpu(0)?, cpu(FUNCTIONS)?);
        Ok(all.zip(none).map(|(all, none)| all - none))
    }

    /// Second questions to a loaded profile: the best of several runs each, since another program may have the CPU.
    fn questions(&self, mode: &str, file: &str) -> Result<Value> {
        let mut best: Vec<Value> = Vec::new();
        for _ in 0..self.runs {
            let told = self.ask(&[mode, file])?;
            let answers = told["answers"].as_array().cloned().unwrap_or_default();
            if best.is_empty() {
                best = answers;
                continue;
            }
            for (best, answer) in best.iter_mut().zip(answers) {
                if answer["ms"].as_f64() < best["ms"].as_f64() {
                    *best = answer;
                }
            }
        }
        println!("{mode}, best of {} runs:", self.runs);
        for answer in &best {
            println!(
                "  {:<34} {:>8} rows {:>8} ms",
                answer["question"].as_str().unwrap_or_default(),
                answer["rows"],
                answer["ms"]
            );
        }
        Ok(best.into())
    }
}
