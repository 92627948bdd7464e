//! Watches this process's context switches, which needs no privilege: switch records instead of the switch counter.

use dioptra_perfevents::record::{SampleId, Switch};
use dioptra_perfevents::{EventSpec, RecordListener, Session, SessionSpec, SideBand};
use std::time::Duration;

#[derive(Default)]
struct Switches {
    out: u64,
    preempted: u64,
}

impl RecordListener for Switches {
    fn switch(&mut self, switch: &Switch, _: &SampleId) {
        self.out += u64::from(switch.out);
        self.preempted += u64::from(switch.out && switch.preempted);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A dummy event counts nothing: it only carries the records.
    let dummy = EventSpec::software(dioptra_perfevents::names::software::DUMMY).user_only();
    let spec = SessionSpec::new().event(dummy).side_band(SideBand::SWITCH);
    let session = Session::spawn(spec, Switches::default())?;
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let (seen, _) = session.stop()?;
    println!(
        "{} switches away, {} of them preempted",
        seen.out, seen.preempted
    );
    Ok(())
}
