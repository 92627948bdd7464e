//! Counts the page faults of a piece of code: one event, no ring, no session.

use dioptra_perfevents::{Counter, EventSpec};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let faults = Counter::start(&EventSpec::page_faults().user_only())?;
    let touched: Vec<u8> = std::hint::black_box(vec![1; 1 << 20]);
    let count = faults.value()?;
    println!("{} bytes touched, {count} page faults", touched.len());
    Ok(())
}
