//! The file `info`: machine, command and end.

use super::super::info::{HEADER_SIZE, LITTLE_ENDIAN, seconds_of};
use super::{UftraceImportError, empty_info};
use dioptra_tracedata::{ClockPair, Host, RecordingEnd, ResourceUsage, TraceInfo, TraceWriter};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The facts about a recording: the values of its lines by their keys.
#[derive(Debug, Default)]
pub(super) struct About {
    values: BTreeMap<String, String>,
}

/// Reads the file.
pub(super) fn read(folder: &Path) -> Result<About, UftraceImportError> {
    let path = folder.join("info");
    let bytes = fs::read(&path).map_err(|source| UftraceImportError::Read { path, source })?;
    let unsupported = |what: String| UftraceImportError::Unsupported {
        folder: folder.to_owned(),
        what,
    };
    let Some(header) = bytes.first_chunk::<HEADER_SIZE>() else {
        return Err(unsupported("the header of `info` is cut off".to_owned()));
    };
    if header[14] != LITTLE_ENDIAN {
        return Err(unsupported(
            "a recording of a big-endian machine".to_owned(),
        ));
    }
    let version = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
    if !(3..=4).contains(&version) {
        return Err(unsupported(format!(
            "a directory of version {version}; versions 3 and 4 can be read"
        )));
    }
    let size = usize::from(u16::from_le_bytes([header[12], header[13]]));
    let text = bytes.get(size.max(HEADER_SIZE)..).unwrap_or_default();
    let mut about = About::default();
    for line in String::from_utf8_lossy(text).lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        // Groups of lines have keys of their own behind the colon.
        let inner = value.split_once('=').filter(|_| key.ends_with("info"));
        let (key, value) = match inner {
            Some((inner, value)) => (format!("{key}:{inner}"), value),
            None => (key.to_owned(), value),
        };
        about.values.entry(key).or_insert_with(|| value.to_owned());
    }
    Ok(about)
}

impl About {
    fn get(&self, key: &str) -> &str {
        self.values.get(key).map_or("", String::as_str)
    }

    /// Returns the numbers of a value such as `2 / 3 (one / other)`.
    fn numbers(&self, key: &str) -> Vec<f64> {
        let numbers = self
            .get(key)
            .split(|c: char| !c.is_ascii_digit() && c != '.');
        numbers.filter_map(|number| number.parse().ok()).collect()
    }

    fn count(&self, key: &str, place: usize) -> u64 {
        self.numbers(key)
            .get(place)
            .map_or(0, |count| *count as u64)
    }

    /// Returns the words of the traced command, which begin behind uftrace's own as far as these can be told.
    pub fn arguments(&self) -> Vec<String> {
        let words = self.get("cmdline").split_whitespace().map(str::to_owned);
        words.collect()
    }

    /// Returns the facts for the trace. `first` is the time of the first record.
    pub fn trace_info(&self, first: u64, importer: &str) -> TraceInfo {
        let mut info = empty_info(first);
        let version = self.get("uftrace_version").trim();
        info.recorder = match version.split(' ').next().unwrap_or_default() {
            "" => format!("{importer}, imported from uftrace"),
            "dioptra" => format!("{version}, imported from uftrace's format by {importer}"),
            version => format!("uftrace {version}, imported by {importer}"),
        };
        info.command = self.arguments();
        // The date is local, and its zone is not known.
        let date = seconds_of(self.get("record_date")).unwrap_or(0);
        info.started_realtime = date.saturating_mul(1_000_000_000);
        info.host = self.host();
        info
    }

    fn host(&self) -> Host {
        let gibibytes = |place| {
            let numbers = self.numbers("meminfo");
            let size: f64 = numbers.get(place).copied().unwrap_or(0.0);
            (size * f64::from(1 << 30)) as u64
        };
        let load = self.numbers("loadinfo");
        let load = |place: usize| load.get(place).copied().unwrap_or(0.0);
        let kernel = self.get("osinfo:kernel");
        Host {
            name: self.get("osinfo:hostname").to_owned(),
            kernel: kernel.strip_prefix("Linux ").unwrap_or(kernel).to_owned(),
            cpu: self.get("cpuinfo:desc").to_owned(),
            cpus: self.count("cpuinfo:nr_cpus", 0) as u32,
            possible_cpus: self.count("cpuinfo:nr_cpus", 1) as u32,
            memory: gibibytes(1),
            free_memory: gibibytes(0),
            load: [load(0), load(1), load(2)],
            distribution: self.get("osinfo:distro").trim_matches('"').to_owned(),
        }
    }

    /// Returns the end of the recording. `last` is the time of the last record.
    pub fn ending(&self, last: u64, writer: &TraceWriter) -> RecordingEnd {
        // As `wait` returns it: a signal in the lowest bits, or an exit status above.
        let status = self.get("exit_status").parse::<i32>().ok();
        let signal = status
            .map(|status| status & 0x7f)
            .filter(|signal| *signal != 0);
        let microseconds = |key| {
            let seconds: f64 = self.get(key).parse().unwrap_or(0.0);
            (seconds * 1e6).round() as u64
        };
        let has_usage = self.values.contains_key("usageinfo:maxrss");
        RecordingEnd {
            clock: ClockPair {
                ticks: last,
                monotonic: last,
            },
            status: match signal {
                Some(signal) => Some(128 + signal),
                None => status.map(|status| status >> 8 & 0xff),
            },
            signal,
            chunks: writer.chunks(),
            bytes: writer.records_size(),
            lost: 0,
            missed_in_handlers: Some(0),
            missed_no_memory: 0,
            discarded_chunks: 0,
            waits: 0,
            waited: 0,
            memory: 0,
            lost_switches: 0,
            uncounted_threads: 0,
            marked: 0,
            usage: has_usage.then(|| ResourceUsage {
                user: microseconds("usageinfo:usrtime"),
                system: microseconds("usageinfo:systime"),
                voluntary_switches: self.count("usageinfo:ctxsw", 0),
                involuntary_switches: self.count("usageinfo:ctxsw", 1),
                max_rss: self.count("usageinfo:maxrss", 0) << 10,
                major_faults: self.count("usageinfo:pagefault", 0),
                minor_faults: self.count("usageinfo:pagefault", 1),
                blocks_in: self.count("usageinfo:iops", 0),
                blocks_out: self.count("usageinfo:iops", 1),
            }),
        }
    }
}
