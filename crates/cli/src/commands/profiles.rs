//! Loading of profiles for commands: the samples that count, and the sources of names.

use super::derived::Derived;
use super::nothing::Filters;
use crate::symbol_sources::ProfileSymbols;
use anyhow::{Context, bail};
use clap::ValueEnum;
use dioptra_export::Origin;
use dioptra_metrics::EventName;
use dioptra_perfdata::PerfData;
use dioptra_perfevents::{ReadFormat, SampleType};
use dioptra_profile::{
    DebugInfoWanted, Dimension, FrameId, KernelSamples, LoadOptions, LoadPlan, Names, Profile,
    SampleFilter,
};
use dioptra_report::{Blocks, Input, Shapes, TableEvent};
use dioptra_symbols::SymbolOptions;
use dioptra_windows::collect::{CollectedWindows, WindowCollector};
use dioptra_windows::display::{WindowInput, WindowRows, has_recorded_windows};
use dioptra_windows::section::WindowsSection;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// Arguments that choose the samples that count, and the sources of names.
#[derive(clap::Args)]
pub struct Selection {
    /// Count samples of threads with these names only
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    comm: Vec<String>,
    /// Count samples in these modules only, by name or path
    #[arg(long, value_name = "MODULE", value_delimiter = ',')]
    dso: Vec<String>,
    /// Count samples in this function only, with what was inlined into it; may be given several times
    #[arg(long, value_name = "FUNCTION")]
    symbol: Vec<String>,
    /// Count samples of these threads only
    #[arg(long, value_name = "TID", value_delimiter = ',')]
    tid: Vec<u32>,
    /// Count samples on these CPUs only, such as 0,2-5
    #[arg(long, value_name = "CPUS", value_delimiter = ',', value_parser = cpus)]
    cpu: Vec<RangeInclusive<u32>>,
    /// Count samples of this time only: seconds since the first sample, from A on, up to before B; either may be empty
    #[arg(long, value_name = "A..B", value_parser = time)]
    time: Option<Span>,
    /// Show this event only, by name or number from 1; may be given several times
    #[arg(long, short, value_name = "EVENT")]
    event: Vec<String>,
    #[command(flatten)]
    symbols: ProfileSymbols,
}

/// The kind of a table's rows.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// A program: all processes of one executable, each while it ran that
    Program,
    /// A process
    Process,
    /// A thread
    Thread,
    /// A name of threads, as it was when they were sampled
    Comm,
    /// A CPU
    Cpu,
    /// A socket
    Socket,
    /// A program, library, kernel or kernel module, over all processes
    Module,
    /// A function of a module, over all processes
    Function,
    /// A line of a source file; of inlined code its own
    Line,
    /// A line of a source file; of inlined code that of the call which it replaced
    OuterLine,
    /// A basic block of a function
    Block,
    /// An instruction, by its address relative to its module; `address` is the same
    #[value(name = "instruction", alias = "address")]
    Address,
    /// A slice of time
    Time,
}

impl From<By> for Dimension {
    fn from(by: By) -> Self {
        match by {
            By::Program => Dimension::Program,
            By::Process => Dimension::Process,
            By::Thread => Dimension::Thread,
            By::Comm => Dimension::Comm,
            By::Cpu => Dimension::Cpu,
            By::Socket => Dimension::Socket,
            By::Module => Dimension::Module,
            By::Function => Dimension::Function,
            By::Line => Dimension::Line,
            By::OuterLine => Dimension::OutermostLine,
            By::Block => Dimension::Block,
            By::Address => Dimension::Address,
            By::Time => Dimension::Time,
        }
    }
}

impl By {
    /// Returns whether rows say who ran a sample (process, thread, CPU, …) rather than where.
    fn is_of_part(self) -> bool {
        self.is_of_task() || matches!(self, By::Cpu | By::Socket)
    }

    fn is_of_task(self) -> bool {
        matches!(self, By::Program | By::Process | By::Thread | By::Comm)
    }

    /// Returns whether rows say where a sample was taken.
    pub fn is_place(self) -> bool {
        !self.is_of_part() && self != By::Time
    }
}

/// The windows that a command loads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WantedWindows {
    /// Loads no windows.
    #[default]
    None,
    /// Loads the windows of profiles that were recorded with `--windows`.
    Recorded,
    /// Loads all windows between samples that read groups of counters.
    All,
}

impl WantedWindows {
    /// Returns the windows that derived columns beside other columns need.
    pub fn for_metrics(derived: &Derived) -> WantedWindows {
        match derived.is_empty() {
            true => WantedWindows::None,
            false => WantedWindows::Recorded,
        }
    }
}

/// Returns whether any profile was recorded for windows and loaded with them.
pub fn has_windows(loaded: &[Loaded]) -> bool {
    let mut each = loaded.iter();
    each.any(|loaded| loaded.has_recorded_windows())
}

/// Returns the kind of rows for which windows have metrics, if `by` is one of them.
pub fn window_rows(by: &[By]) -> Option<WindowRows> {
    match by {
        [By::Function] => Some(WindowRows::Function),
        [By::Line] => Some(WindowRows::Line),
        [By::Module] => Some(WindowRows::Module),
        [By::Thread] => Some(WindowRows::Thread),
        [By::Process] => Some(WindowRows::Process),
        _ => None,
    }
}

/// Returns the reason why metrics of windows do not go with these rows.
pub fn no_windows_here(by: &[By], inlined: bool) -> Option<&'static str> {
    match window_rows(by) {
        None => Some(
            "--metric: this recording has windows, whose metrics go with one of --by function, line, module, thread and process",
        ),
        Some(_) if inlined => Some(
            "--metric: this recording has windows, which are of whole functions: leave --inline out, or use --by line",
        ),
        Some(_) => None,
    }
}

/// The data that a command needs from its profiles.
#[derive(Clone, Default)]
pub struct DataNeeds {
    /// The kind of rows at each level.
    pub by: Vec<By>,
    /// Whether call chains are needed.
    pub call_chains: bool,
    /// Whether inlined functions are shown as functions of their own.
    pub inlined: bool,
    /// Whether the sums for statistical errors are needed.
    pub errors: bool,
    /// Whether every sample's time is needed.
    pub times: bool,
    /// Whether the code of functions without names is needed.
    pub shapes: bool,
    /// The windows between samples that read groups of counters, with these samples' call chains.
    pub windows: WantedWindows,
    /// Whether branch records are needed.
    pub branches: bool,
    /// Whether locations without names are split by range of addresses.
    pub unknown_ranges: bool,
    /// The place where samples in the kernel count.
    pub kernel: KernelSamples,
    /// The data that is loaded where the samples have it.
    pub optional: OptionalData,
}

/// Data of samples that a command can do without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OptionalData {
    /// The CPU of each sample.
    pub cpus: bool,
    /// The time of each sample.
    pub times: bool,
    /// The modules that each process had mapped.
    pub mappings: bool,
}

/// A profile with the names of its locations.
pub struct Loaded {
    pub path: PathBuf,
    /// The profile's name in tables.
    label: String,
    pub profile: Profile,
    windows: Option<CollectedWindows>,
    pub names: Names,
    blocks: Option<Blocks>,
    shapes: Option<Shapes>,
    /// The id of the CPU on which the profile was recorded.
    pub cpuid: Option<String>,
    /// The machine and the command of the recording.
    pub origin: Origin,
}

impl Loaded {
    /// Returns the profile as a table's input.
    pub fn input(&self) -> Input<'_> {
        Input {
            profile: &self.profile,
            names: &self.names,
            blocks: self.blocks.as_ref(),
            shapes: self.shapes.as_ref(),
            label: &self.label,
        }
    }

    /// Returns the profile as the input of a table of windows.
    pub fn windowed(&self) -> WindowInput<'_> {
        WindowInput {
            report: self.input(),
            windows: self.windows.as_ref(),
        }
    }

    /// Returns whether the profile was recorded for windows, and loaded with them.
    pub fn has_recorded_windows(&self) -> bool {
        has_recorded_windows(self.windows.as_ref())
    }

    /// Fails if reading stopped before the end of the file.
    pub fn check_end(&self) -> anyhow::Result<()> {
        if let Some(offset) = self.profile.losses().summary.stopped_at {
            bail!(
                "{}: damaged at byte {offset}, where reading stopped; what lies before is shown. Copy or record it again",
                self.path.display()
            );
        }
        Ok(())
    }
}

impl Selection {
    /// Reads the profiles, and finds the names that the command needs.
    pub fn load(&self, paths: &[PathBuf], wanted: &DataNeeds) -> anyhow::Result<Vec<Loaded>> {
        let symbols = self.symbols()?;
        check_stdin(paths)?;
        let each = paths
            .iter()
            .map(|path| self.load_one(path, wanted, symbols.clone()));
        let loaded: Vec<Loaded> = each.collect::<anyhow::Result<_>>()?;
        let profiles: Vec<(&Path, &Profile)> = loaded
            .iter()
            .map(|loaded| (&*loaded.path, &loaded.profile))
            .collect();
        Filters {
            samples: &self.filter(),
            modules: &self.dso,
            functions: &self.symbol,
            symbols: &symbols,
        }
        .check(&profiles)?;
        Ok(loaded)
    }

    fn filter(&self) -> SampleFilter {
        SampleFilter {
            comms: self.comm.clone(),
            tids: self.tid.clone(),
            cpus: self.cpu.clone(),
            time: self.time.unwrap_or_default(),
        }
    }

    fn load_one(
        &self,
        path: &Path,
        wanted: &DataNeeds,
        symbols: SymbolOptions,
    ) -> anyhow::Result<Loaded> {
        let recording = open(path)?;
        let data = &recording.data;
        let has = |by| wanted.by.contains(&by);
        let optional = wanted.optional;
        let by_cpu = has(By::Cpu)
            || has(By::Socket)
            || (optional.cpus && samples_tell(data, SampleType::CPU));
        if by_cpu || !self.cpu.is_empty() {
            check_cpus(data)?;
        }
        let by_time = has(By::Time)
            || wanted.times
            || (optional.times && samples_tell(data, SampleType::TIME));
        if by_time {
            check_times(data)?;
        }
        let windows = match wanted.windows {
            WantedWindows::None => false,
            WantedWindows::Recorded => recording.windows.is_some(),
            WantedWindows::All => true,
        };
        let plan = LoadPlan {
            options: LoadOptions {
                call_chains: wanted.call_chains || (windows && groups_have_chains(data)),
                threads: wanted.by.iter().any(|by| by.is_of_task()),
            },
            cpus: by_cpu,
            log: by_time,
            mappings: optional.mappings,
            errors: wanted.errors,
            set_aside: recording.set_aside(),
            branches: wanted.branches,
            filter: self.filter(),
            kernel: wanted.kernel,
            symbols: symbols.clone(),
            ..LoadPlan::default()
        };
        let section = recording.windows.as_ref();
        let collector = windows
            .then(|| WindowCollector::new(data, section))
            .flatten();
        let (mut profile, mut collected) = match collector {
            Some(mut collector) => {
                let profile = Profile::load_visited(data, &plan, &mut collector);
                (profile, Some(collector.finish()))
            }
            None => (Profile::load_with(data, &plan), None),
        };
        let mut names = Names::default();
        let named = [By::Function, By::Address, By::Block];
        // A window counts for the functions at its two ends.
        if windows || wanted.by.iter().any(|by| named.contains(by)) || !self.symbol.is_empty() {
            names = Names::find(&profile, symbols.clone());
            if wanted.unknown_ranges {
                names.split_unknown(&profile);
            }
        }
        let debug_info = DebugInfoWanted {
            lines: has(By::Line) || has(By::OuterLine) || has(By::Block),
            inlined: wanted.inlined,
        };
        if debug_info != DebugInfoWanted::default() {
            names.find_debug_info(&profile, symbols.clone(), debug_info);
        }
        self.keep_places(&mut profile, collected.as_mut(), &names);
        let shapes = wanted.shapes && has(By::Function);
        let shapes = shapes.then(|| Shapes::find(&profile, &names, symbols.clone()));
        let blocks = has(By::Block).then(|| Blocks::find(&profile, &names, symbols));
        Ok(Loaded {
            path: path.to_owned(),
            label: path.display().to_string(),
            profile,
            windows: collected,
            names,
            blocks,
            shapes,
            cpuid: data.features().cpuid.clone(),
            origin: Origin::of(data.features()),
        })
    }

    /// Returns the options that say where names and code are looked for.
    pub fn symbols(&self) -> anyhow::Result<SymbolOptions> {
        self.symbols.options()
    }

    /// Drops samples outside of the wanted modules and functions.
    fn keep_places(
        &self,
        profile: &mut Profile,
        mut windows: Option<&mut CollectedWindows>,
        names: &Names,
    ) {
        let mut retain = |profile: &mut Profile, keep: &dyn Fn(FrameId) -> bool| {
            if let Some(windows) = &mut windows {
                windows.retain(|stack| keep(profile.innermost_frame(stack)));
            }
            profile.retain_samples(keep);
        };
        if !self.dso.is_empty() {
            let wanted: Vec<bool> = profile
                .modules()
                .iter()
                .map(|module| {
                    let path = String::from_utf8_lossy(&module.path);
                    self.dso
                        .iter()
                        .any(|name| *name == module.label || *name == path)
                })
                .collect();
            let frames: Vec<bool> = profile
                .frames()
                .iter()
                .map(|frame| wanted[frame.module as usize])
                .collect();
            retain(profile, &|frame| frames[frame as usize]);
        }
        if !self.symbol.is_empty() {
            let wanted: Vec<bool> = names
                .functions()
                .iter()
                .map(|function| self.symbol.contains(&function.name))
                .collect();
            retain(profile, &|frame| {
                let mut functions = names.chain_of(frame, None).iter();
                functions.any(|function| wanted[*function as usize])
            });
        }
    }

    /// Returns the events that have columns: the ones that the user named, else all that sampled.
    pub fn events(&self, loaded: &[Loaded]) -> anyhow::Result<Vec<TableEvent>> {
        if self.event.is_empty() {
            let profiles: Vec<&Profile> = loaded.iter().map(|loaded| &loaded.profile).collect();
            return Ok(TableEvent::all(&profiles));
        }
        if let [only] = loaded {
            let found = find_events(&only.profile, &self.event)?;
            let event = |index: usize| TableEvent {
                name: only.profile.events()[index].name().to_owned(),
                of: vec![Some(index)],
            };
            return Ok(found.into_iter().map(event).collect());
        }
        let wanted = self.event.iter();
        wanted.map(|wanted| Self::event(wanted, loaded)).collect()
    }

    /// Finds the event of this name or number, in every profile that has it.
    pub fn event(wanted: &str, loaded: &[Loaded]) -> anyhow::Result<TableEvent> {
        let found: Vec<anyhow::Result<usize>> = loaded
            .iter()
            .map(|loaded| Ok(find_events(&loaded.profile, &[wanted.to_owned()])?[0]))
            .collect();
        let mut names = found.iter().zip(loaded).filter_map(|(found, loaded)| {
            let index = *found.as_ref().ok()?;
            Some(loaded.profile.events()[index].name().to_owned())
        });
        if let Some(name) = names.next() {
            return Ok(TableEvent {
                name,
                of: found
                    .iter()
                    .map(|found| found.as_ref().ok().copied())
                    .collect(),
            });
        }
        let error = found.into_iter().find_map(Result::err);
        Err(error.unwrap_or_else(|| anyhow::anyhow!("there is no profile")))
    }

    /// Returns the event that the user named, if there is one.
    pub fn chosen_event(&self, loaded: &Loaded) -> anyhow::Result<Option<usize>> {
        Ok(find_events(&loaded.profile, &self.event)?.first().copied())
    }

    /// Returns whether the filters let every sample pass.
    pub fn is_everything(&self) -> bool {
        self.comm.is_empty()
            && self.dso.is_empty()
            && self.symbol.is_empty()
            && self.tid.is_empty()
            && self.cpu.is_empty()
            && self.time.is_none()
    }

    /// Returns the time to which samples are restricted.
    pub fn span(&self) -> Span {
        self.time.unwrap_or_default()
    }
}

pub fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

/// Checks that standard input is named once at most.
pub fn check_stdin(paths: &[PathBuf]) -> anyhow::Result<()> {
    if paths.iter().filter(|path| is_stdin(path)).count() > 1 {
        bail!("standard input (`-`) can be read once only; give files");
    }
    Ok(())
}

/// Opens a profile; `-` is standard input.
pub fn open(path: &Path) -> anyhow::Result<Recording> {
    let (mut data, file) = if is_stdin(path) {
        (PerfData::from_reader(io::stdin().lock())?, None)
    } else {
        (PerfData::open(path)?, Some(path))
    };
    let windows = WindowsSection::of(&mut data, file);
    Ok(Recording { data, windows })
}

/// A recording, and its section about windows.
pub struct Recording {
    pub data: PerfData,
    pub windows: Option<WindowsSection>,
}

impl Recording {
    /// Returns the events whose samples mark bursts of windows; these samples do not show where time went.
    pub fn set_aside(&self) -> Vec<usize> {
        let windows = self.windows.as_ref();
        windows.map_or_else(Vec::new, |windows| windows.events(&self.data))
    }
}

/// Returns whether any event records the sample field of `bit`.
fn samples_tell(data: &PerfData, bit: SampleType) -> bool {
    let mut samplers = data.events().iter().filter(|event| event.attr.samples());
    samplers.any(|event| event.attr.sample_type.contains(bit))
}

/// Returns whether samples that read groups of counters have call chains.
fn groups_have_chains(data: &PerfData) -> bool {
    let mut samplers = data.events().iter().filter(|event| event.attr.samples());
    samplers.any(|event| {
        event
            .attr
            .sample_type
            .contains(SampleType::READ | SampleType::CALLCHAIN)
            && event.attr.read_format.contains(ReadFormat::GROUP)
    })
}

/// Fails if no event records the CPU of its samples.
fn check_cpus(data: &PerfData) -> anyhow::Result<()> {
    if samples_tell(data, SampleType::CPU) {
        return Ok(());
    }
    bail!(
        "the profile's samples do not tell their CPU; record the whole machine (-a), or with perf's --sample-cpu"
    );
}

/// Fails if no event records the time of its samples.
fn check_times(data: &PerfData) -> anyhow::Result<()> {
    if samples_tell(data, SampleType::TIME) {
        return Ok(());
    }
    bail!("the profile's samples do not tell their time; record with perf's --timestamp");
}

/// The first and the last nanosecond of a range of time; either may be open.
pub type Span = (Option<u64>, Option<u64>);

/// Parses a range of CPUs such as `2` or `0-3`.
pub fn cpus(text: &str) -> Result<RangeInclusive<u32>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok(first..=last),
        _ => Err("give CPUs such as 0,2-5".to_owned()),
    }
}

/// Returns CPUs as `--cpu` takes them.
pub fn cpu_list(cpus: &[u32]) -> String {
    let mut cpus = cpus.to_vec();
    cpus.sort_unstable();
    cpus.dedup();
    let runs = cpus.chunk_by(|one, other| *other == one + 1);
    let runs: Vec<String> = runs
        .map(|run| match run {
            [first, .., last] => format!("{first}-{last}"),
            _ => run[0].to_string(),
        })
        .collect();
    runs.join(",")
}

/// Parses `A..B` in seconds; either may be empty.
pub fn time(text: &str) -> Result<Span, String> {
    let wrong = || "give seconds since the first sample, such as 1.5..2, 1.5.. or ..2".to_owned();
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let nanoseconds = |text: &str| match text {
        "" => Ok(None),
        text => match text.parse::<f64>() {
            // A number beyond the largest nanosecond means no limit.
            Ok(seconds) if seconds >= 0.0 => Ok(Some((seconds * 1e9).round() as u64)),
            _ => Err(wrong()),
        },
    };
    match (nanoseconds(from)?, nanoseconds(to)?) {
        (Some(from), Some(to)) if from >= to => Err("the end must come after the start".to_owned()),
        span => Ok(span),
    }
}

/// Finds the wanted events, each by its name, its name without modifiers or settings, or its number from 1.
pub fn find_events(profile: &Profile, wanted: &[String]) -> anyhow::Result<Vec<usize>> {
    let names = || profile.events().iter().map(|event| event.name());
    wanted
        .iter()
        .map(|wanted| {
            let number = || {
                let number: usize = wanted.parse().ok()?;
                (1..=profile.events().len())
                    .contains(&number)
                    .then(|| number - 1)
            };
            names()
                .position(|name| name == wanted)
                .or_else(|| names().position(|name| without_modifiers(name) == wanted))
                .or_else(|| names().position(|name| is_spelling(name, wanted)))
                .or_else(number)
                .with_context(|| {
                    let known: Vec<&str> = names().collect();
                    format!(
                        "the profile has no event `{wanted}`; it has {}",
                        known.join(", ")
                    )
                })
        })
        .collect()
}

/// Returns whether both name the same event, such as `cpu-cycles` and `cycles/period=1000/u`.
fn is_spelling(name: &str, wanted: &str) -> bool {
    let (name, wanted) = (EventName::parse(name), EventName::parse(wanted));
    let same_unit = wanted.pmu.is_empty() || wanted.pmu == name.pmu;
    same_unit && !wanted.key.is_empty() && wanted.key == name.key
}

/// Returns the name without its modifiers, such as `cycles` of `cycles:u`. A tracepoint's name keeps its colon.
fn without_modifiers(name: &str) -> &str {
    match name.rsplit_once(':') {
        Some((event, modifiers))
            if modifiers
                .chars()
                .all(|letter| "ukhGHpPSDIeWb".contains(letter)) =>
        {
            event
        }
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::{cpu_list, cpus, is_spelling, time, without_modifiers};

    #[test]
    fn ranges() {
        assert_eq!(
            time("1.5..2"),
            Ok((Some(1_500_000_000), Some(2_000_000_000)))
        );
        assert_eq!(time("..0.25"), Ok((None, Some(250_000_000))));
        assert_eq!(time("3.."), Ok((Some(3_000_000_000), None)));
        for wrong in ["", "1", "2..1", "1..1", "-1..", "a..b", "nan.."] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
        assert_eq!(cpus("2-5"), Ok(2..=5));
        assert_eq!(cpus("7"), Ok(7..=7));
        assert_eq!(cpu_list(&[5, 0, 1, 2, 2]), "0-2,5");
        assert!(cpus("5-2").is_err() && cpus("x").is_err());
    }

    #[test]
    fn modifiers_are_no_part_of_a_name() {
        assert!(is_spelling("page-faults/period=1/u", "page-faults"));
        assert!(!is_spelling("page-faults", "major-faults"));
        assert_eq!(without_modifiers("cycles:uk"), "cycles");
        assert_eq!(without_modifiers("cpu-clock"), "cpu-clock");
        assert_eq!(
            without_modifiers("sched:sched_switch"),
            "sched:sched_switch"
        );
    }
}
