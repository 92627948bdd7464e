//! `dioptra record --flight-recorder`: the last seconds in memory, written when something happens.
//!
//! The recorder writes into a pipe. A thread takes the bytes into a [`FlightMemory`], looks at the triggers, and writes
//! recordings.

use super::arguments::{ArgumentError, Arguments};
use crate::output::say;
use anyhow::{Context, anyhow};
use dioptra_recorder::RecordSpec;
use dioptra_recorder::flight::{FlightDump, FlightLimits, FlightMemory};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use signal_hook::consts::SIGUSR2;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, PipeReader, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The longest time between two looks at the triggers.
const LOOKS: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};
/// Bytes that are read at once.
const CHUNK: usize = 64 << 10;
/// The time over which the use of CPUs is measured.
const MEASURED: Duration = Duration::from_secs(1);

/// The settings of a flight recorder.
#[derive(Clone, Debug)]
pub struct FlightSettings {
    limits: FlightLimits,
    /// The file at the end; numbers behind its name make the files of triggers.
    output: PathBuf,
    /// The largest number of files that triggers write.
    most: u32,
    /// The event whose samples are a trigger, by name.
    event: Option<String>,
    /// The use of CPUs that is a trigger, in percent of one CPU.
    above: Option<f64>,
    /// The processes whose use of CPUs counts; none for the whole machine, our own children for a command.
    usage: Usage,
    is_quiet: bool,
}

/// The tasks whose use of CPUs is measured.
#[derive(Clone, Debug)]
enum Usage {
    Machine,
    Processes(Vec<u32>),
    Children,
}

impl Arguments {
    /// Returns the settings of the flight recorder, if one is asked for.
    pub(super) fn flight(&self) -> Result<Option<FlightSettings>, ArgumentError> {
        let Some(span) = self.flight_recorder else {
            return match self.dump_on.is_some() || self.dump_above.is_some() {
                true => Err(ArgumentError::Flight(
                    "--dump-on and --dump-above go with --flight-recorder",
                )),
                false => Ok(None),
            };
        };
        if self.windows.is_some() {
            return Err(ArgumentError::Flight(
                "--flight-recorder: windows are analysed over a whole recording; leave --windows out",
            ));
        }
        if self.compression_level.is_some() {
            return Err(ArgumentError::Flight(
                "--flight-recorder: what is compressed cannot be forgotten in parts; leave -z out",
            ));
        }
        if self.output.as_os_str() == "-" {
            return Err(ArgumentError::Flight(
                "--flight-recorder writes several recordings; give a file with -o",
            ));
        }
        let usage = match (self.all_cpus, self.pid.is_empty()) {
            (true, _) => Usage::Machine,
            (_, false) => Usage::Processes(self.pid.clone()),
            _ if self.tid.is_empty() && self.cgroup.is_none() && self.cpu.is_none() => {
                Usage::Children
            }
            _ if self.dump_above.is_some() => {
                return Err(ArgumentError::Flight(
                    "--dump-above goes with a command, -p or -a",
                ));
            }
            _ => Usage::Machine,
        };
        Ok(Some(FlightSettings {
            limits: FlightLimits {
                span,
                bytes: self.flight_memory << 20,
            },
            output: self.output.clone(),
            most: self.dumps,
            event: self.dump_on.clone(),
            above: self.dump_above,
            usage,
            is_quiet: self.quiet,
        }))
    }
}

/// The thread that holds the last seconds.
pub(super) struct Flight {
    thread: JoinHandle<anyhow::Result<()>>,
}

impl Flight {
    /// Starts the thread, and lets the recording go into its pipe.
    pub(super) fn start(settings: FlightSettings, spec: &mut RecordSpec) -> anyhow::Result<Flight> {
        let (reader, writer) = io::pipe().context("making a pipe")?;
        spec.pipe = Some(Arc::new(File::from(OwnedFd::from(writer))));
        let asked = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGUSR2, Arc::clone(&asked)).context("receiving SIGUSR2")?;
        let work = move || Keeper::new(settings, reader, asked).run();
        let thread = std::thread::Builder::new()
            .name("flight".to_owned())
            .spawn(work)
            .context("starting a thread")?;
        Ok(Flight { thread })
    }

    /// Waits for the thread, which ends once the recorder has closed its end of the pipe.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        match self.thread.join() {
            Ok(result) => result,
            Err(_) => Err(anyhow!("the thread that holds the recording panicked")),
        }
    }
}

struct Keeper {
    settings: FlightSettings,
    pipe: PipeReader,
    /// Set by SIGUSR2.
    asked: Arc<AtomicBool>,
    memory: FlightMemory,
    /// The index of the event that is a trigger; `None` before the events are known.
    trigger: Option<usize>,
    written: u32,
    /// The end of the time in which triggers are ignored, because the recording before has what they would write.
    quiet_until: Option<Instant>,
    load: Option<LoadMeter>,
}

impl Keeper {
    fn new(settings: FlightSettings, pipe: PipeReader, asked: Arc<AtomicBool>) -> Keeper {
        Keeper {
            memory: FlightMemory::new(settings.limits),
            load: settings
                .above
                .map(|_| LoadMeter::new(settings.usage.clone())),
            settings,
            pipe,
            asked,
            trigger: None,
            written: 0,
            quiet_until: None,
        }
    }

    /// Takes the recording to its end. Whatever fails, the pipe is read to its end, so that the recorder does not wait.
    fn run(mut self) -> anyhow::Result<()> {
        let result = self.keep();
        let rest = io::copy(&mut self.pipe, &mut io::sink());
        result.and(rest.map(|_| ()).context("reading the recorder's pipe"))
    }

    fn keep(&mut self) -> anyhow::Result<()> {
        let mut chunk = vec![0; CHUNK];
        loop {
            let mut waited = [PollFd::new(&self.pipe, PollFlags::IN)];
            match poll(&mut waited, Some(&LOOKS)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => {
                    let read = self.pipe.read(&mut chunk).context("reading the pipe")?;
                    if read == 0 {
                        break;
                    }
                    self.take(&chunk[..read])?;
                }
                Err(error) => return Err(error).context("waiting for the pipe"),
            }
            if self.asked.swap(false, Ordering::Relaxed) {
                self.dump("SIGUSR2")?;
            }
            let used = self.load.as_mut().and_then(LoadMeter::measure);
            if let (Some(used), Some(above)) = (used, self.settings.above)
                && used >= above
            {
                self.dump_now_and_then(&format!("{used:.0} % of a CPU"))?;
            }
        }
        self.end()
    }

    fn take(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let mut seen = Seen::default();
        self.memory
            .take(bytes, Instant::now(), |event| seen.add(event))?;
        if self.trigger.is_none() {
            self.find_trigger()?;
        }
        if self.trigger.is_some_and(|event| seen.has(event)) {
            let name = self.settings.event.clone().unwrap_or_default();
            self.dump_now_and_then(&name)?;
        }
        Ok(())
    }

    /// Finds the event whose samples are a trigger, once the events are known.
    fn find_trigger(&mut self) -> anyhow::Result<()> {
        let (Some(wanted), Some(data)) = (&self.settings.event, self.memory.described()) else {
            return Ok(());
        };
        let mut events = data.events().iter();
        self.trigger = events.position(|event| event.name == *wanted);
        if self.trigger.is_none() {
            let names: Vec<&str> = data.events().iter().map(|event| &*event.name).collect();
            let names = names.join(", ");
            return Err(anyhow!(
                "--dump-on: no event of the recording is called {wanted}; there are {names}"
            ));
        }
        Ok(())
    }

    /// Writes a recording unless the one before it holds the same samples.
    fn dump_now_and_then(&mut self, why: &str) -> anyhow::Result<()> {
        if self.quiet_until.is_some_and(|until| Instant::now() < until) {
            return Ok(());
        }
        self.quiet_until = Some(Instant::now() + self.settings.limits.span);
        self.dump(why)
    }

    /// Writes the next numbered recording.
    fn dump(&mut self, why: &str) -> anyhow::Result<()> {
        if self.written >= self.settings.most {
            if self.written == self.settings.most {
                say!("{why}: no further recording is written; --dumps allows more");
                self.written += 1;
            }
            return Ok(());
        }
        self.written += 1;
        let mut name = OsString::from(&self.settings.output);
        name.push(format!(".{}", self.written));
        self.write(Path::new(&name), why)
    }

    /// Writes the recording of the last seconds before the end.
    fn end(&mut self) -> anyhow::Result<()> {
        let output = self.settings.output.clone();
        if output.exists() {
            let mut old = OsString::from(&output);
            old.push(".old");
            std::fs::rename(&output, &old)
                .with_context(|| format!("keeping {}", output.display()))?;
        }
        self.write(&output, "the end")
    }

    fn write(&mut self, path: &Path, why: &str) -> anyhow::Result<()> {
        // A reader never sees a part of it.
        let mut unfinished = OsString::from(path);
        unfinished.push(".new");
        let failed = || format!("writing {}", path.display());
        let file = File::create(&unfinished).with_context(failed)?;
        let mut out = BufWriter::new(file);
        let dump = self
            .memory
            .write(&mut out, Instant::now())
            .with_context(failed)?;
        drop(out);
        std::fs::rename(&unfinished, path).with_context(failed)?;
        if !self.settings.is_quiet || dump.is_cut {
            say!("{}", describe(path, &dump, why));
        }
        Ok(())
    }
}

fn describe(path: &Path, dump: &FlightDump, why: &str) -> String {
    let cut = match dump.is_cut {
        true => "; older samples took too much memory, and --flight-memory allows more",
        false => "",
    };
    format!(
        "{}: {} samples of the last {:.1} s ({why}){cut}",
        path.display(),
        dump.samples,
        dump.span.as_secs_f64()
    )
}

/// The events that had samples.
#[derive(Default)]
struct Seen(Vec<bool>);

impl Seen {
    fn add(&mut self, event: usize) {
        if event >= self.0.len() {
            self.0.resize(event + 1, false);
        }
        self.0[event] = true;
    }

    fn has(&self, event: usize) -> bool {
        self.0.get(event).copied().unwrap_or(false)
    }
}

/// Measures the use of CPUs once a second.
struct LoadMeter {
    usage: Usage,
    /// The moment of the last measurement, and the CPU time up to it, in clock ticks.
    last: Option<(Instant, u64)>,
}

impl LoadMeter {
    fn new(usage: Usage) -> LoadMeter {
        LoadMeter { usage, last: None }
    }

    /// Returns the use of CPUs in the last second, in percent of one CPU; `None` until a second has passed.
    fn measure(&mut self) -> Option<f64> {
        let now = Instant::now();
        let passed = self.last.map(|(then, _)| now - then);
        if passed.is_some_and(|passed| passed < MEASURED) {
            return None;
        }
        let ticks = self.ticks();
        let before = self.last.replace((now, ticks));
        let (then, before) = before?;
        let used =
            ticks.saturating_sub(before) as f64 / rustix::param::clock_ticks_per_second() as f64;
        Some(100.0 * used / (now - then).as_secs_f64())
    }

    /// Returns the CPU time of the tasks so far, in clock ticks.
    fn ticks(&self) -> u64 {
        match &self.usage {
            Usage::Machine => machine_ticks().unwrap_or(0),
            Usage::Processes(pids) => pids.iter().filter_map(|pid| process_ticks(*pid)).sum(),
            Usage::Children => {
                let mut all = Vec::new();
                let mut waiting = children(std::process::id());
                while let Some(pid) = waiting.pop() {
                    waiting.extend(children(pid));
                    all.push(pid);
                }
                all.iter().filter_map(|pid| process_ticks(*pid)).sum()
            }
        }
    }
}

/// Returns the busy time of all CPUs (`proc_stat(5)`: all but idle and iowait).
fn machine_ticks() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let numbers: Vec<u64> = stat
        .lines()
        .next()?
        .split_whitespace()
        .skip(1)
        .filter_map(|number| number.parse().ok())
        .collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; guest times are in user's.
    let busy = [0, 1, 2, 5, 6];
    Some(busy.iter().filter_map(|at| numbers.get(*at)).sum())
}

/// Returns the user and system time of a process and of its children that it has waited for (`proc_pid_stat(5)`).
fn process_ticks(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold spaces and brackets.
    let (_, behind) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = behind.split_whitespace().collect();
    // The first of these is the third field, the state; 14 to 17 are the times.
    fields
        .get(11..15)?
        .iter()
        .map(|field| field.parse::<u64>().ok())
        .sum()
}

/// Returns the children of a process, of all its threads.
fn children(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let list = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        found.extend(
            list.split_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok()),
        );
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_child_is_measured() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .expect("sh runs");
        let pid = child.id();
        assert!(children(std::process::id()).contains(&pid));
        let until = Instant::now() + Duration::from_secs(60);
        while process_ticks(pid).unwrap_or(0) < 5 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        let (own, all) = (process_ticks(pid), machine_ticks());
        child.kill().expect("it ends");
        child.wait().expect("it ends");
        assert!(own >= Some(5) && all >= own, "{own:?} {all:?}");
    }
}
