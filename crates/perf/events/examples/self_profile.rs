//! Profiles a threaded program from within: where its threads spend their time.

use dioptra_perfevents::{EventSpec, SampleType, Session, SessionSpec, on_sample};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let event = EventSpec::cpu_clock()
        .with_frequency(1000)
        .with_sample(SampleType::IP)
        .user_only();
    let hits: Arc<Mutex<BTreeMap<u32, u64>>> = Arc::default();
    let counted = Arc::clone(&hits);
    let count = move |_: Option<&_>, sample: &dioptra_perfevents::record::Sample<'_>| {
        if let (Some(tid), Ok(mut hits)) = (sample.tid, counted.lock()) {
            *hits.entry(tid).or_default() += 1;
        }
    };
    let session = Session::spawn(SessionSpec::new().event(event), on_sample(count))?;
    let work = || {
        (0..50_000_000_u64).fold(1_u64, |sum, step| {
            std::hint::black_box(sum ^ step.rotate_left(7))
        })
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(work);
        }
    });
    let (_, summary) = session.stop()?;
    for (tid, samples) in hits.lock().map_err(|_| "a panic")?.iter() {
        println!("thread {tid}: {samples} samples");
    }
    println!("{} samples, {} lost", summary.samples, summary.lost);
    Ok(())
}
