//! not committed
use dioptra_perfevents::record::RawRecord;
use dioptra_perfevents::*;
use std::io::Write;
struct W(std::io::BufWriter<std::fs::File>);
impl RecordListener for W {
    fn raw(&mut self, _: u32, b: &[u8], _: &RawRecord<'_>) {
        self.0.write_all(b).unwrap();
    }
    fn wants_parsed(&self) -> bool {
        false
    }
}
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let pid: u32 = a[1].parse().unwrap();
    let hz: u64 = a[2].parse().unwrap();
    let ms: u64 = a[3].parse().unwrap();
    let spec = SessionSpec::new()
        .event(
            EventSpec::cpu_clock()
                .with_frequency(hz)
                .with_sample(SampleType::IP),
        )
        .target(Target::Processes(vec![pid]))
        .inherit(Inherit::ThreadsAndChildren);
    let mut s = Session::new(spec)
        .unwrap()
        .with_deadline(std::time::Instant::now() + std::time::Duration::from_millis(ms));
    let t = std::time::Instant::now();
    let sum = s.attach().unwrap();
    let at = t.elapsed();
    let mut w = W(std::io::BufWriter::with_capacity(
        1 << 20,
        std::fs::File::create("/tmp/h/pe-bench/out").unwrap(),
    ));
    s.run(&mut w).unwrap();
    let t = std::time::Instant::now();
    let su = s.summary().clone();
    s.detach();
    eprintln!(
        "attach {:?} threads {} fds {} samples {} lost {} detach {:?} notes {:?}",
        at,
        sum.threads,
        sum.descriptors,
        su.samples,
        su.lost,
        t.elapsed(),
        sum.notes
    );
}
