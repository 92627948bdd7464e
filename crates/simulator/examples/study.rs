//! Runs the scenarios whose name holds a text and prints their outcomes, one JSON object a line.
//! `cargo run --release -p dioptra-simulator --example study -- RUNS [TEXT]`

use std::io::Write;

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let runs = arguments
        .next()
        .and_then(|runs| runs.parse().ok())
        .unwrap_or(2000);
    let text = arguments.next().unwrap_or_default();
    let mut out = std::io::stdout().lock();
    for scenario in dioptra_simulator::study::scenarios() {
        if scenario.name.contains(&text) {
            serde_json::to_writer(&mut out, &scenario.study(runs, 1))?;
            writeln!(out)?;
        }
    }
    Ok(())
}
