//! Loading of profiles for commands: the samples that count, and the sources of names.

mod events;
mod recording;
mod rows;
mod spans;

pub use events::find_events;
use recording::Opened;
pub use recording::{Recording, check_stdin, is_stdin, open};
pub use rows::{By, WantedWindows, no_windows_here, window_rows};
pub use spans::{Span, cpu_list, cpus, time};

use super::nothing::Filters;
use crate::symbol_sources::ProfileSymbols;
use anyhow::bail;
use dioptra_export::Origin;
use dioptra_perfevents::SampleType;
use dioptra_profile::{
    DebugInfoWanted, FrameId, KernelSamples, LoadOptions, LoadPlan, Names, Profile, SampleFilter,
    WholeNeeded,
};
use dioptra_report::{Blocks, Input, Shapes, TableEvent};
use dioptra_symbols::SymbolOptions;
use dioptra_windows::collect::{CollectedWindows, WindowCollector};
use dioptra_windows::display::{WindowInput, has_recorded_windows};
use recording::samples_tell;
use recording::{check_cpus, check_times, groups_have_chains};
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

impl Selection {
    /// Returns the threads whose samples count; none means all.
    pub fn tids(&self) -> &[u32] {
        &self.tid
    }

    /// Returns the first option that was given to choose samples.
    pub fn given(&self) -> Option<&'static str> {
        let threads = (!self.tid.is_empty()).then_some("--tid");
        let time = self.time.is_some().then_some("--time");
        self.only_for_samples().or(threads).or(time)
    }

    /// Returns the first option given that chooses something of samples which calls do not have.
    pub fn only_for_samples(&self) -> Option<&'static str> {
        let given = [
            ("--comm", !self.comm.is_empty()),
            ("--dso", !self.dso.is_empty()),
            ("--symbol", !self.symbol.is_empty()),
            ("--cpu", !self.cpu.is_empty()),
            ("-e", !self.event.is_empty()),
        ];
        let mut given = given.into_iter().filter(|(_, given)| *given);
        given.next().map(|(option, _)| option)
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
    /// When threads were off the CPU.
    pub switches: bool,
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

/// Returns whether any profile was recorded for windows and loaded with them.
pub fn has_windows(loaded: &[Loaded]) -> bool {
    let mut each = loaded.iter();
    each.any(|loaded| loaded.has_recorded_windows())
}

/// Loads a recording, with its windows where they are wanted. Returns whether they are.
fn load_whole(
    recording: &Recording,
    plan: &mut LoadPlan,
    wanted: WantedWindows,
) -> (bool, (Profile, Option<CollectedWindows>)) {
    let data = &recording.data;
    let section = recording.windows.as_ref();
    let windows = match wanted {
        WantedWindows::None => false,
        WantedWindows::Recorded => section.is_some(),
        WantedWindows::All => true,
    };
    plan.options.call_chains |= windows && groups_have_chains(data);
    plan.set_aside = recording.set_aside();
    let collector = windows
        .then(|| WindowCollector::new(data, section))
        .flatten();
    let loaded = match collector {
        Some(mut collector) => {
            let profile = Profile::load_visited(data, plan, &mut collector);
            (profile, Some(collector.finish()))
        }
        None => (Profile::load_with(data, plan), None),
    };
    (windows, loaded)
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
        let opened = Opened::open(path)?;
        let data = opened.data();
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
        let mut plan = LoadPlan {
            options: LoadOptions {
                call_chains: wanted.call_chains,
                threads: wanted.by.iter().any(|by| by.is_of_task()),
            },
            cpus: by_cpu,
            log: by_time,
            mappings: optional.mappings,
            switches: optional.switches,
            errors: wanted.errors,
            branches: wanted.branches,
            filter: self.filter(),
            kernel: wanted.kernel,
            symbols: symbols.clone(),
            ..LoadPlan::default()
        };
        let (cpuid, origin) = (data.features().cpuid.clone(), Origin::of(data.features()));
        let (windows, (mut profile, mut collected)) = match opened {
            Opened::Piped(data, records) if WholeNeeded::of(&data, &plan).is_none() => {
                let mut stdin = io::stdin().lock();
                let profile = Profile::load_piped(&data, *records, &mut stdin, &plan)?;
                // Windows are made of groups, of which there are none.
                (wanted.windows == WantedWindows::All, (profile, None))
            }
            opened => {
                let recording = opened.into_whole()?;
                load_whole(&recording, &mut plan, wanted.windows)
            }
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
            cpuid,
            origin,
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
