//! Prints how many records of each type a recording has: `cargo run --example counts -- FILE…`.

use dioptra_perfdata::{PerfData, record_name};
use std::ops::ControlFlow;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for path in std::env::args_os().skip(1) {
        let recording = PerfData::open(path.as_ref())?;
        let start = std::time::Instant::now();
        let mut last = 0;
        let summary = recording.read(|record| {
            last = record.time.unwrap_or(last);
            ControlFlow::Continue(())
        });
        println!(
            "{} {} {:?}",
            path.display(),
            recording.format(),
            start.elapsed()
        );
        for (event, samples) in recording.events().iter().zip(&summary.samples) {
            println!("  event {}: {samples} samples", event.name);
        }
        for (kind, count) in summary.records.iter() {
            println!("  {}: {count}", record_name(kind).unwrap_or("?"));
        }
        println!(
            "  lost {} late {} unknown ids {} skipped {} salvaged {} damaged {:?}",
            summary.lost,
            summary.out_of_order,
            summary.unknown_ids,
            summary.skipped,
            summary.salvaged,
            summary.damaged
        );
    }
    Ok(())
}
