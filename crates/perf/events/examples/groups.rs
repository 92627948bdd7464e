//! Compares two ways to fill memory by the ratio of counters: page faults for each millisecond of CPU time.
//!
//! The events of a group count at the same times, so their ratio holds. On a machine with hardware counters give others:
//! `cargo run --example groups -- cycles:u,instructions:u`.

use dioptra_perfevents::{EventSpec, Group, parse_events};
use std::hint::black_box;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let text = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "task-clock:u,page-faults:u".to_owned());
    let events: Vec<EventSpec> = parse_events(&text)?
        .into_iter()
        .flat_map(|group| group.events)
        .collect();
    let group = Group::start(&events)?;
    for (name, work) in [("fresh memory", fresh as fn()), ("memory in use", reused)] {
        group.reset()?;
        work();
        let counts = group.read()?;
        println!("{name}:");
        for (event, count) in group.events().iter().zip(&counts) {
            let scaled = count.scaled().ok_or("the counters were in use elsewhere")?;
            println!("{scaled:>15} {}", event.name());
        }
    }
    Ok(())
}

/// Writes to 16 MiB that the kernel has yet to hand out.
fn fresh() {
    black_box(vec![1_u8; 16 << 20]);
}

/// Writes to the same 64 KiB 256 times.
fn reused() {
    let mut memory = vec![0_u8; 64 << 10];
    for value in 0..=255 {
        black_box(&mut memory).fill(value);
    }
}
