//! The speed of decoding a recording, beside the crate linux-perf-data: every field of every sample, the addresses of
//! every call chain added up; the median of the thread's CPU time. `cargo run --release --example decode -- FILE [RUNS [alone]]`.

use dioptra_perfdata::PerfData;
use dioptra_perfrecords::record::RecordType;
use linux_perf_data::linux_perf_event_reader::EventRecord;
use linux_perf_data::{PerfFileReader, PerfFileRecord};
use std::error::Error;
use std::fs::File;
use std::io::BufReader;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

/// Samples, and the sum of all addresses in their call chains.
type Sum = (u64, u64);

fn ours(path: &Path) -> Result<Sum, Box<dyn Error>> {
    let recording = PerfData::open(path)?;
    let mut sum = (0, 0_u64);
    recording.read(|record| {
        if record.raw.kind != RecordType::SAMPLE {
            return ControlFlow::Continue(());
        }
        let layout = recording.layout(record.event);
        if let Some(Ok(sample)) = layout.map(|layout| layout.sample(&record.raw)) {
            sum.0 += 1;
            let chain = sample.callchain.into_iter().flat_map(|chain| chain.iter());
            sum.1 = chain.fold(sum.1, u64::wrapping_add);
        }
        ControlFlow::Continue(())
    });
    Ok(sum)
}

fn theirs(path: &Path) -> Result<Sum, Box<dyn Error>> {
    let file = BufReader::new(File::open(path)?);
    let PerfFileReader {
        mut perf_file,
        mut record_iter,
    } = PerfFileReader::parse_file(file)?;
    let mut sum = (0, 0_u64);
    while let Some(record) = record_iter.next_record(&mut perf_file)? {
        let PerfFileRecord::EventRecord { record, .. } = record else {
            continue;
        };
        if let EventRecord::Sample(sample) = record.parse()? {
            sum.0 += 1;
            if let Some(chain) = sample.callchain {
                let addresses = (0..chain.len()).filter_map(|index| chain.get(index));
                sum.1 = addresses.fold(sum.1, u64::wrapping_add);
            }
        }
    }
    Ok(sum)
}

/// Returns this thread's CPU time, which other programs do not change.
fn used() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call fills the timespec that it is given.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(result, 0, "Linux has clocks of threads");
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let path = arguments
        .next()
        .ok_or("usage: decode FILE [RUNS [alone]]")?;
    let path = Path::new(&path);
    let runs = arguments.next().and_then(|runs| runs.into_string().ok());
    let runs: usize = runs.map_or(Ok(7), |runs| runs.parse())?;
    let alone = arguments.next().is_some();
    let bytes = std::fs::metadata(path)?.len();
    let mut times = [Vec::new(), Vec::new()];
    let mut sums = [(0, 0); 2];
    // In turn, so that both see the same machine.
    for _ in 0..runs {
        let start = used();
        sums[0] = ours(path)?;
        times[0].push(used() - start);
        if alone {
            continue;
        }
        let start = used();
        sums[1] = theirs(path)?;
        times[1].push(used() - start);
    }
    for ((name, mut times), (samples, sum)) in ["dioptra", "linux-perf-data"]
        .into_iter()
        .zip(times)
        .zip(sums)
    {
        times.sort();
        let Some(median) = times.get(times.len() / 2) else {
            continue;
        };
        let seconds = median.as_secs_f64();
        println!(
            "{name:16} {:8.1} ms {:6.2} GB/s {:6.2} million samples/s (sum {sum:x})",
            seconds * 1e3,
            bytes as f64 / seconds / 1e9,
            samples as f64 / seconds / 1e6,
        );
    }
    Ok(())
}
