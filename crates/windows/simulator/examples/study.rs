//! Asks simulated recordings the questions whose names contain a text and prints their outcomes, one JSON object a line.
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
        for outcome in scenario.study(&text, runs, 1) {
            serde_json::to_writer(&mut out, &outcome)?;
            writeln!(out)?;
        }
    }
    Ok(())
}
