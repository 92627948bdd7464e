//! Counts the page faults of one closure: no ring, no session, one event.

use dioptra_perfevents::{Event, EventSpec, EventTarget};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let spec = EventSpec::page_faults().user_only();
    let event = Event::open(&spec, EventTarget::CALLER)?;
    let before = event.read()?.value;
    let touched: Vec<u8> = std::hint::black_box(vec![1; 1 << 20]);
    let faults = event.read()?.value - before;
    println!("{} bytes touched, {faults} page faults", touched.len());
    Ok(())
}
