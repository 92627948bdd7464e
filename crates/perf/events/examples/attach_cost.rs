//! Measures the cost of attaching: `attach_cost PID [HZ] [MILLISECONDS] [FILE]` prints one line of JSON.
//!
//! Records are written to FILE as they come, so that the cost can be compared with another recorder's.

use dioptra_perfevents::record::RawRecord;
use dioptra_perfevents::{
    EventSpec, Inherit, RecordListener, SampleType, Session, SessionSpec, Target,
};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::time::{Duration, Instant};

struct Recorder {
    file: BufWriter<File>,
    failed: Option<std::io::Error>,
}

impl RecordListener for Recorder {
    fn raw(&mut self, _: u32, bytes: &[u8], _: &RawRecord<'_>) {
        if let Err(error) = self.file.write_all(bytes) {
            self.failed.get_or_insert(error);
        }
    }

    fn wants_parsed(&self) -> bool {
        false
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: u64| {
        arguments
            .get(index)
            .map_or(Ok(default), |text| text.parse())
    };
    let Some(pid) = arguments.first() else {
        return Err("usage: attach_cost PID [HZ] [MILLISECONDS] [FILE]".into());
    };
    let event = EventSpec::cpu_clock()
        .with_frequency(number(1, 1000)?)
        .with_sample(SampleType::IP);
    let spec = SessionSpec::new()
        .event(event)
        .target(Target::Processes(vec![pid.parse()?]))
        .inherit(Inherit::ThreadsAndChildren);
    let deadline = Instant::now() + Duration::from_millis(number(2, 1000)?);
    let session = Session::new(spec)?.with_deadline(deadline);
    let start = Instant::now();
    let mut session = session.attach()?;
    let attach = start.elapsed();
    let attached = session.attach_summary().clone();
    let file = arguments.get(3).map_or("/dev/null", String::as_str);
    let mut recorder = Recorder {
        file: BufWriter::with_capacity(1 << 20, File::create(file)?),
        failed: None,
    };
    session.run(&mut recorder)?;
    recorder.file.flush()?;
    if let Some(error) = recorder.failed {
        return Err(error.into());
    }
    let summary = session.summary();
    println!(
        "{{\"attach_us\":{},\"threads\":{},\"descriptors\":{},\"samples\":{},\"lost\":{},\"throttled\":{}}}",
        attach.as_micros(),
        attached.threads,
        attached.descriptors,
        summary.samples,
        summary.lost,
        summary.throttled
    );
    Ok(())
}
