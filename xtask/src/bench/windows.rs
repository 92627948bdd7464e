//! `cargo xtask bench windows`: is what the analysis of windows says about its own numbers true?
//!
//! Simulated programs, whose true rates are known, are recorded thousands of times. Counted is how often an interval
//! holds the truth, how far estimates lie beside it on average, and how often a row that must not be trusted says so.
//! Seeds are fixed: the outcome is the same on every machine.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};

use super::{build, save};

#[derive(Args)]
pub struct Arguments {
    /// Measure what windows cost the recorded program, and its file, instead
    #[arg(long)]
    cost: bool,
    #[command(flatten)]
    of_cost: super::windows_cost::CostArguments,
    /// Functions in turns against the same alone, on hardware counters, instead
    #[arg(long, conflicts_with = "cost")]
    hardware: bool,
    #[command(flatten)]
    of_hardware: super::windows_hardware::HardwareArguments,
    /// The number of recordings of each program
    #[arg(long, default_value_t = 2000)]
    runs: u32,
    /// Only scenarios whose name contains this
    #[arg(long, default_value = "")]
    scenario: String,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    if arguments.cost {
        return super::windows_cost::run(&arguments.of_cost);
    }
    if arguments.hardware {
        return super::windows_hardware::run(&arguments.of_hardware);
    }
    let study = build(&["--package", "dioptra-simulator", "--example", "study"])?;
    let mut child = Command::new(&study)
        .arg(arguments.runs.to_string())
        .arg(&arguments.scenario)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| study.display().to_string())?;
    let output = child.stdout.take().context("the study has no output")?;
    println!(
        "{:<76} {:>6} {:>7} {:>15} {:>8}  bar",
        "scenario", "runs", "yes", "bias", "± half"
    );
    let mut outcomes = Vec::new();
    for line in BufReader::new(output).lines() {
        let outcome: Value = serde_json::from_str(&line?).context("the study's output")?;
        println!("{}", row(&outcome));
        outcomes.push(outcome);
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("the study ended with {status}");
    }
    if outcomes.is_empty() {
        bail!("no scenario's name contains {:?}", arguments.scenario);
    }
    let missed = outcomes.iter().filter(|o| o["met"] != true).count();
    println!("\n{} scenarios, {missed} beside their bar", outcomes.len());
    if arguments.scenario.is_empty() {
        save(
            "windows",
            json!({ "runs": arguments.runs, "scenarios": outcomes }),
        )?;
    }
    if missed > 0 {
        bail!(
            "{missed} of {} scenarios are beside their bar",
            outcomes.len()
        );
    }
    Ok(())
}

/// An outcome as a line of text.
fn row(outcome: &Value) -> String {
    let percent = |value: &Value| value.as_f64().map(|v| format!("{:.2} %", 100.0 * v));
    let or_nothing = |text: Option<String>| text.unwrap_or_default();
    let bias = percent(&outcome["bias"])
        .zip(percent(&outcome["bias_error"]))
        .map(|(bias, error)| format!("{} ±{error}", bias.trim_end_matches(" %")));
    let bar = &outcome["bar"];
    let mut bars = Vec::new();
    if let [Some(low), Some(high)] = [&bar["yes"][0], &bar["yes"][1]].map(Value::as_f64) {
        bars.push(format!("{:.0}–{:.0} %", 100.0 * low, 100.0 * high));
    }
    if let Some(most) = bar["bias"].as_f64() {
        bars.push(format!("bias ≤ {:.0} %", 100.0 * most));
    }
    let met = match (bars.is_empty(), outcome["met"] == true) {
        (true, _) => "",
        (false, true) => "met",
        (false, false) => "MISSED",
    };
    format!(
        "{:<76} {:>6} {:>7} {:>15} {:>8}  {} {met}",
        outcome["name"].as_str().unwrap_or_default(),
        outcome["runs"].as_u64().unwrap_or_default(),
        or_nothing(percent(&outcome["yes"])),
        or_nothing(bias),
        or_nothing(percent(&outcome["half_width"])),
        bars.join(", "),
    )
}
