//! One recording, loaded with all that the page may ask for.

use crate::api::MachineInfo;
use crate::keys::{FunctionKeys, Keys};
use crate::metrics::MetricNames;
use crate::profiles::FileState;
use dioptra_metrics::MetricSets;
use dioptra_perfdata::{Features, PerfData};
use dioptra_perfevents::SampleType;
use dioptra_profile::branches::BranchFilter;
use dioptra_profile::{
    DebugInfoWanted, EventProfile, FunctionId, KernelSamples, LoadOptions, LoadPlan, LoadProgress,
    Names, Profile,
};
use dioptra_report::{Blocks, Shapes, SourceFiles};
use dioptra_symbols::{SymbolOptions, Symbolizer};
use dioptra_windows::section::WindowsSection;
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Names of a profile's functions with their keys.
pub(crate) struct Named {
    pub names: Names,
    keys: FunctionKeys,
}

impl Named {
    pub(crate) fn of(names: Names) -> Named {
        Named {
            keys: FunctionKeys::of(&names),
            names,
        }
    }

    pub(crate) fn function_key(&self, keys: &Keys, function: FunctionId) -> String {
        self.keys.key(&self.names, keys, function)
    }

    pub(crate) fn find_function(
        &self,
        keys: &Keys,
        key: &str,
    ) -> Result<FunctionId, crate::failure::Failure> {
        self.keys.find(&self.names, keys, key)
    }
}

/// Which names a request needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum NamesWanted {
    /// Functions.
    #[default]
    Functions,
    /// Functions and source lines.
    Lines,
    /// Functions, those that were inlined too, and lines.
    Inlined,
}

/// The sources of names and source files, the same for all profiles of a server.
#[derive(Clone, Default)]
pub(crate) struct Finding {
    pub symbols: SymbolOptions,
    pub sources: SourceFiles,
    pub metrics: MetricNames,
}

/// A loaded recording.
pub(crate) struct Loaded {
    pub index: usize,
    pub generation: u64,
    pub label: String,
    pub path: String,
    pub size: u64,
    pub machine: MachineInfo,
    pub command_line: Vec<String>,
    pub recorder: Option<String>,
    pub profile: Arc<Profile>,
    pub keys: Keys,
    pub symbolizer: Symbolizer,
    pub sources: SourceFiles,
    /// Nanoseconds from the first sample to the last one.
    pub duration: Option<u64>,
    pub has_cpus: bool,
    /// The sets of metrics for the recorded CPU.
    pub metric_sets: MetricSets,
    /// The names of the metrics that tables show unless a request names others.
    pub default_metrics: Vec<String>,
    pub symbols: SymbolOptions,
    functions: Arc<Named>,
    lines: OnceLock<Arc<Named>>,
    inlined: OnceLock<Arc<Named>>,
    /// By [`NamesWanted`]: see [`Loaded::plain_names`].
    plain: [OnceLock<Arc<Named>>; 3],
    /// By [`NamesWanted`]: the shapes of functions without names.
    shapes: [OnceLock<Arc<Shapes>>; 3],
    /// By [`NamesWanted`]: the basic blocks of all addresses.
    blocks: [OnceLock<Arc<Blocks>>; 3],
    /// Recorded paths of source files, by the ids that answers named.
    known_sources: Mutex<HashMap<String, Arc<str>>>,
}

/// Receives the stages of loading.
pub(crate) trait Watching {
    fn reads(&self, size: u64, progress: Arc<LoadProgress>);
    fn names(&self);
}

/// Whether any sample can tell what `bit` says.
fn samples_tell(data: &PerfData, bit: SampleType) -> bool {
    let mut samplers = data.events().iter().filter(|event| event.attr.samples());
    samplers.any(|event| event.attr.sample_type.contains(bit))
}

/// Whether any sample holds the CPU's stack of open calls.
fn keeps_calls(data: &PerfData) -> bool {
    let mut samplers = data.events().iter().filter(|event| event.attr.samples());
    samplers.any(|event| {
        event.attr.sample_type.contains(SampleType::BRANCH_STACK)
            && BranchFilter(event.attr.branch_sample_type).is_call_stack()
    })
}

fn machine(features: &Features) -> MachineInfo {
    MachineInfo {
        hostname: features.hostname.clone(),
        os_release: features.os_release.clone(),
        arch: features.arch.clone(),
        cpu: features.cpu_description.clone(),
        cpus_online: features.cpus_online,
        memory_kib: features.total_memory,
    }
}

impl Loaded {
    /// Loads a recording; `-` is standard input.
    ///
    /// # Errors
    /// A sentence for the reader.
    pub(crate) fn load(
        file: &FileState,
        generation: u64,
        finding: &Finding,
        watching: &impl Watching,
    ) -> Result<Loaded, String> {
        let path: &Path = &file.path;
        let is_stdin = path == Path::new("-");
        let opened = match is_stdin {
            true => PerfData::from_reader(io::stdin().lock()),
            false => PerfData::open(path),
        };
        let mut data = opened.map_err(|error| error.to_string())?;
        let windows = WindowsSection::of(&mut data, (!is_stdin).then_some(path));
        let progress = Arc::new(LoadProgress::default());
        watching.reads(data.size(), Arc::clone(&progress));
        let has_chains = samples_tell(&data, SampleType::CALLCHAIN) || keeps_calls(&data);
        let has_cpus = samples_tell(&data, SampleType::CPU);
        let plan = LoadPlan {
            options: LoadOptions {
                call_chains: has_chains,
                threads: true,
            },
            cpus: has_cpus,
            log: samples_tell(&data, SampleType::TIME),
            errors: true,
            switches: true,
            branches: true,
            memory: true,
            set_aside: windows.map_or_else(Vec::new, |windows| windows.events(&data)),
            // As `dioptra report` counts them.
            kernel: KernelSamples::WithCallerOfSetAside,
            symbols: finding.symbols.clone(),
            progress: Some(progress),
            ..LoadPlan::default()
        };
        let profile = Profile::load_with(&data, &plan);
        watching.names();
        let mut symbols = finding.symbols.clone();
        symbols
            .recorded_kernel
            .get_or_insert_with(|| profile.recorded_kernel().clone());
        let mut names = Names::find(&profile, symbols.clone());
        if has_chains {
            // As `dioptra report --children` shows them.
            names.split_unknown(&profile);
        }
        let features = data.features();
        Ok(Loaded {
            index: file.index,
            generation,
            label: file.label.clone(),
            path: file.path.display().to_string(),
            size: data.size(),
            machine: machine(features),
            command_line: features.command_line.clone(),
            recorder: features.version.clone(),
            keys: Keys::of(&profile),
            symbolizer: Symbolizer::new(symbols.clone()),
            sources: finding.sources.clone(),
            duration: duration(&profile),
            has_cpus,
            symbols,
            functions: Arc::new(Named::of(names)),
            lines: OnceLock::new(),
            inlined: OnceLock::new(),
            plain: Default::default(),
            shapes: Default::default(),
            blocks: Default::default(),
            metric_sets: MetricSets::new(features.cpuid.clone(), finding.metrics.published.clone()),
            default_metrics: finding.metrics.names.clone(),
            known_sources: Mutex::default(),
            profile: Arc::new(profile),
        })
    }

    /// Whether there are call chains.
    pub(crate) fn has_chains(&self) -> bool {
        self.profile.options().call_chains
    }

    /// The names that a request needs; debug information is read when it is first needed.
    pub(crate) fn named(&self, wanted: NamesWanted) -> &Arc<Named> {
        let (slot, inlined) = match wanted {
            NamesWanted::Functions => return &self.functions,
            NamesWanted::Lines => (&self.lines, false),
            NamesWanted::Inlined => (&self.inlined, true),
        };
        slot.get_or_init(|| {
            let mut names = self.functions.names.clone();
            let wanted = DebugInfoWanted {
                lines: true,
                inlined,
            };
            names.find_debug_info(&self.profile, self.symbols.clone(), wanted);
            Arc::new(Named::of(names))
        })
    }

    /// Whether the recording was made for windows.
    pub(crate) fn has_windows(&self) -> bool {
        let mut events = self.profile.events().iter();
        events.any(EventProfile::is_set_aside)
    }

    /// The names that `dioptra diff` compares by: places without names are one function of their module, since their
    /// addresses differ between two builds.
    pub(crate) fn plain_names(&self, wanted: NamesWanted) -> Arc<Named> {
        if !self.has_chains() {
            return Arc::clone(self.named(wanted));
        }
        let made = self.plain[wanted as usize].get_or_init(|| {
            let mut names = Names::find(&self.profile, self.symbols.clone());
            let debug_info = DebugInfoWanted {
                lines: wanted != NamesWanted::Functions,
                inlined: wanted == NamesWanted::Inlined,
            };
            if debug_info != DebugInfoWanted::default() {
                names.find_debug_info(&self.profile, self.symbols.clone(), debug_info);
            }
            Arc::new(Named::of(names))
        });
        Arc::clone(made)
    }

    /// The shapes of functions without names, of [`Loaded::plain_names`].
    pub(crate) fn shapes(&self, wanted: NamesWanted) -> Arc<Shapes> {
        let made = self.shapes[wanted as usize].get_or_init(|| {
            let named = self.plain_names(wanted);
            let shapes = Shapes::find(&self.profile, &named.names, self.symbols.clone());
            Arc::new(shapes)
        });
        Arc::clone(made)
    }

    /// The basic blocks of all addresses, of functions with the names of [`Loaded::named`].
    pub(crate) fn blocks(&self, wanted: NamesWanted) -> Arc<Blocks> {
        let made = self.blocks[wanted as usize].get_or_init(|| {
            let names = &self.named(wanted).names;
            Arc::new(Blocks::find(&self.profile, names, self.symbols.clone()))
        });
        Arc::clone(made)
    }

    /// Remembers that an answer named a source file, and returns the file's id.
    pub(crate) fn name_source(&self, recorded: &Arc<str>) -> String {
        let id = format!("{:016x}", crate::keys::stable_hash(recorded.as_bytes()));
        let known = self.known_sources.lock();
        known
            .unwrap_or_else(PoisonError::into_inner)
            .entry(id.clone())
            .or_insert_with(|| Arc::clone(recorded));
        id
    }

    /// The recorded path of a source file that an answer named.
    pub(crate) fn source(&self, id: &str) -> Option<Arc<str>> {
        let known = self.known_sources.lock();
        let known = known.unwrap_or_else(PoisonError::into_inner);
        known.get(id).cloned()
    }
}

/// Nanoseconds from the first sample to the last one.
fn duration(profile: &Profile) -> Option<u64> {
    let slices = dioptra_profile::Slices::Number(std::num::NonZeroU32::MIN);
    let slices = profile.time_slices(slices)?;
    let (_, end) = slices.span(slices.number.saturating_sub(1));
    // The last nanosecond is within.
    Some(end.saturating_sub(1))
}
