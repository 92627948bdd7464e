//! The engines that answer the questions, and the table of their figures.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde_json::{Value, json};

use crate::root;

use super::super::compare::{median, run_json};
use super::super::measure::{self, Run};
use super::{Arguments, Question};

/// An engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// `dioptra-store query`
    Dioptra,
    /// DuckDB, a Python package
    Duckdb,
    /// Spark, a Python package, with two workers
    Spark,
}

/// The engines that are there.
pub struct Engines {
    program: PathBuf,
    python: PathBuf,
    duckdb: bool,
    spark: bool,
    spark_master: Option<String>,
    /// The longest time that one question may take.
    limit: Duration,
    /// Files for the engines' scripts.
    folder: tempfile::TempDir,
    /// By question: the statements that it asks.
    known: RefCell<BTreeMap<&'static str, Vec<String>>>,
}

/// The number of rows of an answer, and the sum of one column.
type Check = (u64, f64);

/// A question with the statements that `dioptra query` asks for it.
struct Asked {
    name: &'static str,
    words: &'static [&'static str],
    statements: Vec<String>,
    /// The column to sum.
    value: &'static str,
}

impl Engines {
    /// Finds the engines that are wanted, and says which are missing.
    pub fn find(wanted: &[Engine], program: &Path, arguments: &Arguments) -> Result<Engines> {
        let python =
            std::env::var_os("DIOPTRA_PYTHON").map_or_else(|| "python3".into(), PathBuf::from);
        let has = |engine: Engine, module: &str| -> bool {
            if !wanted.contains(&engine) {
                return false;
            }
            let import = format!("import {module}; print({module}.__version__)");
            let output = Command::new(&python).args(["-c", &import]).output();
            match output {
                Ok(output) if output.status.success() => {
                    let version = String::from_utf8_lossy(&output.stdout);
                    println!("{module} {}", version.trim());
                    true
                }
                _ => {
                    println!(
                        "{module} is missing (pip install {module}; DIOPTRA_PYTHON names another Python)"
                    );
                    false
                }
            }
        };
        let (duckdb, spark) = (has(Engine::Duckdb, "duckdb"), has(Engine::Spark, "pyspark"));
        let folder = tempfile::tempdir()?;
        let views = Command::new(program)
            .args(["query", "--show-views"])
            .output()?;
        fs::write(folder.path().join("views.sql"), views.stdout)?;
        Ok(Engines {
            program: program.to_owned(),
            duckdb,
            spark,
            python,
            spark_master: arguments.spark_master.clone(),
            known: RefCell::default(),
            limit: Duration::from_secs(arguments.limit),
            folder,
        })
    }

    /// Lets all engines answer all questions over a store.
    pub fn answers(
        &self,
        store: &str,
        questions: &'static [Question],
        runs: usize,
    ) -> Result<Vec<Value>> {
        println!(
            "{:<20} {:<8} {:>9} {:>17} {:>8} {:>8} {:>10} {:>10}",
            "question",
            "engine",
            "CPU s",
            "min..max",
            "wall s",
            "peak MB",
            "CPU ratio",
            "peak ratio"
        );
        let mut all = Vec::new();
        let mut results = Vec::new();
        for question in questions {
            let (result, asked) = self.answer(store, question, runs)?;
            results.push(result);
            all.push(asked);
        }
        if self.spark {
            self.spark(store, &all, runs, &mut results)?;
        }
        Ok(results)
    }

    /// Lets dioptra and DuckDB answer a question in turns.
    fn answer(
        &self,
        store: &str,
        question: &'static Question,
        runs: usize,
    ) -> Result<(Value, Asked)> {
        let mut words = vec!["query", "--store", store];
        words.extend(question.words);
        let dioptra = || {
            let mut command = Command::new(&self.program);
            command.args(&words);
            command
        };
        let statements = match self.statements(question.name, dioptra())? {
            Ok(statements) => statements,
            Err(messages) => {
                // A question that fails is a result, too; other engines have no SQL of it.
                println!("{:<20} dioptra  failed: {}", question.name, messages.trim());
                let result = json!({
                    "question": question.name,
                    "dioptra": { "did_not_finish": messages },
                });
                let asked = Asked {
                    name: question.name,
                    words: question.words,
                    statements: Vec::new(),
                    value: "weight",
                };
                return Ok((result, asked));
            }
        };
        let last = statements.last().context("the question showed no SQL")?;
        let value = match last.contains(" AS value") {
            true => "value",
            false => "weight",
        };
        let asked = Asked {
            name: question.name,
            words: question.words,
            value,
            statements,
        };
        let file = self.folder.path().join("question.json");
        fs::write(&file, asked.json().to_string())?;
        let script = script("duckdb_answers.py");
        let duckdb = || {
            let mut command = Command::new(&self.python);
            command.arg(&script).arg(store);
            command.arg(self.folder.path().join("views.sql")).arg(&file);
            command
        };
        let (mut own, mut of_duckdb, mut check) = (Vec::new(), Vec::new(), None);
        for turn in 0..runs {
            for engine in [turn % 2, 1 - turn % 2] {
                let is_done = |runs: &[Run]| runs.last().is_some_and(|run| run.failure.is_some());
                if engine == 0 && !is_done(&own) {
                    own.push(measure::start(&mut dioptra())?.finish_within(self.limit, &[])?);
                }
                if engine == 1 && self.duckdb && !is_done(&of_duckdb) {
                    let mut printed = tempfile::tempfile()?;
                    let out = Stdio::from(printed.try_clone()?);
                    let started = measure::start_into(&mut duckdb(), out)?;
                    of_duckdb.push(started.finish_within(self.limit, &[])?);
                    let mut text = String::new();
                    printed.rewind()?;
                    printed.read_to_string(&mut text)?;
                    check = serde_json::from_str::<Check>(&text).ok().or(check);
                }
            }
        }
        let mut result = json!({ "question": asked.name, "dioptra": figures(&own) });
        print_line(asked.name, "dioptra", &own, &of_duckdb);
        let expected = self.check(store, &asked)?;
        result["rows"] = json!(expected.0);
        if self.duckdb {
            print_line("", "duckdb", &of_duckdb, &[]);
            result["duckdb"] = figures(&of_duckdb);
            if let Some(found) = check {
                same(&asked, "DuckDB", expected, found)?;
            }
        }
        Ok((result, asked))
    }

    /// Returns the statements that a question asks, which are the same in all stores. The inner error has the program's
    /// messages.
    fn statements(
        &self,
        name: &'static str,
        mut command: Command,
    ) -> Result<Result<Vec<String>, String>> {
        if let Some(known) = self.known.borrow().get(name) {
            return Ok(Ok(known.clone()));
        }
        let output = command.arg("--show-sql").output()?;
        let messages = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            return Ok(Err(messages));
        }
        let lines = messages
            .lines()
            .filter_map(|line| line.strip_prefix("# SQL: "));
        let mut statements: Vec<String> = lines.map(str::to_owned).collect();
        // The answer's statement comes last, behind those that look up events and units.
        statements.sort_by_key(|sql| !sql.contains("totals FROM profiles"));
        self.known.borrow_mut().insert(name, statements.clone());
        Ok(Ok(statements))
    }

    /// Returns the rows and the sum of the last statement's answer, as dioptra's engine gives them.
    fn check(&self, store: &str, asked: &Asked) -> Result<Check> {
        let last = asked.statements.last().context("no statement")?;
        let sql = format!(
            "SELECT count(*) AS n, CAST(sum({}) AS DOUBLE) AS v FROM ({last}) t",
            asked.value
        );
        let output = Command::new(&self.program)
            .args(["query", "--store", store, "--format", "json", &sql])
            .output()?;
        let rows: Value = serde_json::from_slice(&output.stdout)
            .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
        let rows_of_answer = rows[0]["n"].as_u64().context("no number of rows")?;
        Ok((rows_of_answer, rows[0]["v"].as_f64().unwrap_or(0.0)))
    }

    /// Lets Spark answer all questions in one session.
    fn spark(&self, store: &str, all: &[Asked], runs: usize, results: &mut [Value]) -> Result<()> {
        let file = self.folder.path().join("questions.json");
        let questions: Vec<Value> = all.iter().map(Asked::json).collect();
        fs::write(&file, Value::from(questions).to_string())?;
        let mut command = Command::new(&self.python);
        command.arg(script("spark_answers.py")).arg(store);
        command.arg(self.folder.path().join("views.sql"));
        command.arg(&file).arg(runs.to_string());
        command.args(&self.spark_master);
        let output = command.stderr(Stdio::null()).output()?;
        if !output.status.success() {
            bail!("Spark: {}", output.status);
        }
        let answer: Value = serde_json::from_slice(&output.stdout).context("Spark's answer")?;
        for (number, asked) in all.iter().enumerate() {
            let of_spark = &answer["answers"][number];
            if let Some(failure) = of_spark["did_not_finish"].as_str() {
                let first = failure.lines().next().unwrap_or_default();
                println!("{:<20} spark    did not finish: {first}", asked.name);
                results[number]["spark"] = of_spark.clone();
                continue;
            }
            let of_runs = |what: &str| -> Vec<f64> {
                let runs = of_spark["runs"].as_array().into_iter().flatten();
                runs.filter_map(|run| run[what].as_f64()).collect()
            };
            let figures = json!({
                "cpu_s": median(of_runs("cpu_s")),
                "wall_s": median(of_runs("wall_s")),
                "runs": of_spark["runs"],
                "peak_bytes": of_spark["peak_bytes"],
            });
            let number_of = |what: &str| figures[what].as_f64().unwrap_or(f64::NAN);
            let own = results[number]["dioptra"]["cpu_s"].as_f64();
            println!(
                "{:<20} {:<8} {:>9.2} {:>17} {:>8.2} {:>8.0} {:>10.3}",
                asked.name,
                "spark",
                number_of("cpu_s"),
                spread(&of_runs("cpu_s")),
                number_of("wall_s"),
                number_of("peak_bytes") / 1e6,
                own.unwrap_or(f64::NAN) / number_of("cpu_s"),
            );
            results[number]["spark"] = figures;
            let found = (
                of_spark["rows"].as_u64().unwrap_or(0),
                of_spark["sum"].as_f64().unwrap_or(0.0),
            );
            let expected = self.check(store, asked)?;
            same(asked, "Spark", expected, found)?;
        }
        Ok(())
    }
}

impl Asked {
    fn json(&self) -> Value {
        json!({ "question": self.words, "statements": self.statements, "value": self.value })
    }
}

/// Refuses answers that differ: the bench would compare different work.
fn same(asked: &Asked, engine: &str, expected: Check, found: Check) -> Result<()> {
    let is_near = (expected.1 - found.1).abs() <= 1e-9 * expected.1.abs();
    if expected.0 != found.0 || !is_near {
        bail!(
            "{}: dioptra has {} rows with a sum of {}, {engine} {} with {}",
            asked.name,
            expected.0,
            expected.1,
            found.0,
            found.1
        );
    }
    Ok(())
}

fn script(name: &str) -> PathBuf {
    root().join("xtask/src/bench/fleet").join(name)
}

fn finished(runs: &[Run], figure: impl Fn(&Run) -> f64) -> Vec<f64> {
    let finished = runs.iter().filter(|run| run.failure.is_none());
    finished.map(figure).collect()
}

fn figures(runs: &[Run]) -> Value {
    json!({
        "cpu_s": median(finished(runs, |run| run.cpu)),
        "wall_s": median(finished(runs, |run| run.wall)),
        "peak_bytes": median(finished(runs, |run| run.peak as f64)),
        "runs": runs.iter().map(run_json).collect::<Vec<_>>(),
    })
}

fn spread(values: &[f64]) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    format!("{least:.2}..{most:.2}")
}

/// Prints the figures of an engine, and the ratios to another one's.
fn print_line(name: &str, engine: &str, runs: &[Run], other: &[Run]) {
    if let Some(failure) = runs.iter().find_map(|run| run.failure.as_ref()) {
        println!("{name:<20} {engine:<8} did not finish: {failure}");
        return;
    }
    let typical = |runs: &[Run], figure: fn(&Run) -> f64| median(finished(runs, figure));
    let (cpu, peak) = (|run: &Run| run.cpu, |run: &Run| run.peak as f64);
    let ratio = |figure: fn(&Run) -> f64| match (typical(runs, figure), typical(other, figure)) {
        (Some(own), Some(other)) => format!("{:.3}", own / other),
        _ => String::new(),
    };
    println!(
        "{name:<20} {engine:<8} {:>9.2} {:>17} {:>8.2} {:>8.0} {:>10} {:>10}",
        typical(runs, cpu).unwrap_or(f64::NAN),
        spread(&finished(runs, cpu)),
        typical(runs, |run| run.wall).unwrap_or(f64::NAN),
        typical(runs, peak).unwrap_or(f64::NAN) / 1e6,
        ratio(cpu),
        ratio(peak),
    );
}
