//! The description of a recording and its machine: the feature sections of a file, or a pipe's records of them.

mod imported;
mod parse;
mod topology;
mod unsampled;

pub(crate) use imported::encode as encode_imported;
pub use imported::{ImportedFrame, ImportedFunction, ImportedModule, ImportedNames, ImportedRole};
pub use parse::read_build_id;
pub(crate) use parse::{DescribedEvent, SectionDamage, read_feature};
pub use topology::{CacheLevel, CpuTopology, MemoryNode, NumaNode};
pub(crate) use unsampled::encode as encode_unsampled;

use dioptra_perfrecords::Unsampled;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The number of a feature section.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Feature(pub u32);

macro_rules! features {
    ($($(#[$doc:meta])* $name:ident = $value:literal,)*) => {
        impl Feature {
            $($(#[$doc])* pub const $name: Feature = Feature($value);)*

            /// perf's name of the feature, or `None` for one that is not known.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

features! {
    /// Descriptions of tracepoints.
    TRACING_DATA = 1,
    /// Build ids of modules.
    BUILD_ID = 2,
    /// The machine's name.
    HOSTNAME = 3,
    /// The kernel's release.
    OSRELEASE = 4,
    /// The recorder's version.
    VERSION = 5,
    /// The machine's architecture, as `uname -m` prints it.
    ARCH = 6,
    /// The number of CPUs.
    NRCPUS = 7,
    /// The CPU's name.
    CPUDESC = 8,
    /// The CPU's vendor, family, model and stepping.
    CPUID = 9,
    /// Memory in KiB.
    TOTAL_MEM = 10,
    /// The recorder's command line.
    CMDLINE = 11,
    /// Attrs, names and ids of the events.
    EVENT_DESC = 12,
    /// Cores, dies and sockets.
    CPU_TOPOLOGY = 13,
    /// Memory nodes and their CPUs.
    NUMA_TOPOLOGY = 14,
    /// Branch stacks were sampled (no content).
    BRANCH_STACK = 15,
    /// Numbers and names of PMUs.
    PMU_MAPPINGS = 16,
    /// Groups of events.
    GROUP_DESC = 17,
    /// Places of AUX data in the file.
    AUXTRACE = 18,
    /// Written by `perf stat record` (no content).
    STAT = 19,
    /// Sizes of the CPU's caches.
    CACHE = 20,
    /// Times of the first and the last sample.
    SAMPLE_TIME = 21,
    /// Memory blocks of each node.
    MEM_TOPOLOGY = 22,
    /// The resolution of the clock that was chosen.
    CLOCKID = 23,
    /// The recording is a directory.
    DIR_FORMAT = 24,
    /// BPF programs.
    BPF_PROG_INFO = 25,
    /// BPF type information.
    BPF_BTF = 26,
    /// Parameters of the compression.
    COMPRESSED = 27,
    /// Capabilities of the CPU's PMU.
    CPU_PMU_CAPS = 28,
    /// Wall clock and event clock at one moment.
    CLOCK_DATA = 29,
    /// The PMUs of unlike cores and their CPUs.
    HYBRID_TOPOLOGY = 30,
    /// Capabilities of all PMUs.
    PMU_CAPS = 31,
    /// Bursts of windows: a section of dioptra's own, which this crate does not parse ([`Features::unparsed`]).
    WINDOWS = 200,
    /// Events counted in threads too short to be sampled: a section of dioptra's own ([`Unsampled`]).
    UNSAMPLED = 201,
    /// Names of the locations of an imported profile: a section of dioptra's own ([`ImportedNames`]).
    IMPORTED = 202,
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "feature {}", self.0),
        }
    }
}

impl fmt::Debug for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The content of all feature sections; what a recording lacks is `None` or empty.
///
/// Source: perf's document `perf.data-file-format.txt`. Text is UTF-8, with replacement characters where the file's
/// bytes are not; paths keep their bytes.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Features {
    /// The machine's name.
    pub hostname: Option<String>,
    /// The kernel's release.
    pub os_release: Option<String>,
    /// The recorder's version.
    pub version: Option<String>,
    /// The architecture, as `uname -m` prints it.
    pub arch: Option<String>,
    /// CPUs that were online.
    pub cpus_online: Option<u32>,
    /// CPUs that there are, online or not.
    pub cpus_available: Option<u32>,
    /// The CPU's name.
    pub cpu_description: Option<String>,
    /// The CPU's vendor, family, model and stepping.
    pub cpuid: Option<String>,
    /// Memory in KiB.
    pub total_memory: Option<u64>,
    /// The recorder's command line, a word each.
    pub command_line: Vec<String>,
    /// Build ids of the modules that were hit.
    pub build_ids: Vec<BuildId>,
    /// Times of the first and the last sample, in nanoseconds of the events' clock.
    pub sample_time: Option<(u64, u64)>,
    /// The resolution in nanoseconds of the clock that was chosen with `clockid`.
    pub clockid: Option<u64>,
    /// Wall clock and event clock at one moment.
    pub clock_data: Option<ClockData>,
    /// Groups of events.
    pub group_descriptions: Vec<GroupDescription>,
    /// Numbers and names of PMUs.
    pub pmu_mappings: Vec<PmuMapping>,
    /// Parameters of the compression.
    pub compressed: Option<Compression>,
    /// Cores, dies and sockets.
    pub cpu_topology: Option<CpuTopology>,
    /// Memory nodes.
    pub numa_topology: Vec<NumaNode>,
    /// Caches.
    pub caches: Vec<CacheLevel>,
    /// Memory blocks of each node, and the bytes of one block.
    pub memory_topology: Option<(u64, Vec<MemoryNode>)>,
    /// The PMUs of unlike cores: name and CPUs.
    pub hybrid_topology: Vec<(String, String)>,
    /// Capabilities of PMUs, by the PMU's name.
    pub pmu_capabilities: BTreeMap<String, Vec<(String, String)>>,
    /// The version of the directory format, of a recording that is a directory.
    pub directory_format: Option<u64>,
    /// Whether branch stacks were sampled.
    pub branch_stack: bool,
    /// Whether `perf stat record` wrote the recording.
    pub stat: bool,
    /// Bytes of the descriptions of tracepoints.
    pub tracing_data: Option<u64>,
    /// Bytes of the list of AUX data.
    pub auxtrace: Option<u64>,
    /// The number of BPF programs that are described.
    pub bpf_programs: Option<u32>,
    /// The number of BPF types that are described.
    pub bpf_types: Option<u32>,
    /// Events that were counted in threads too short to be sampled.
    pub unsampled: Vec<Unsampled>,
    /// The names of locations, of a recording that was made from another tool's profile.
    pub imported: Option<Arc<ImportedNames>>,
    /// The bytes of sections that this crate does not parse, such as [`Feature::WINDOWS`]. A pipe has such a section in
    /// pieces, which are joined here.
    pub unparsed: BTreeMap<Feature, Vec<u8>>,
    /// All sections that the recording has, with their sizes in bytes, also those that this crate does not know.
    pub sections: BTreeMap<Feature, u64>,
}

impl Features {
    /// Returns the number of sections whose kinds this crate does not know.
    pub fn unknown(&self) -> usize {
        self.sections
            .keys()
            .filter(|feature| feature.name().is_none())
            .count()
    }
}

/// The build id of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildId {
    /// The record's misc bits: kernel or user, and whether the size of the id is stated.
    pub misc: u16,
    /// Process, or -1 for the machine itself.
    pub pid: i32,
    /// The id, up to 20 bytes.
    pub build_id: Vec<u8>,
    /// The module's path or name.
    pub path: Vec<u8>,
}

/// A group of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDescription {
    /// Name, often empty.
    pub name: String,
    /// Index of the leader among the events.
    pub leader: u32,
    /// The number of the group's events, the leader among them.
    pub members: u32,
}

/// A PMU's number and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PmuMapping {
    /// The number, which attrs have as their kind.
    pub kind: u32,
    /// Name.
    pub name: String,
}

/// The compression of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compression {
    /// 1 is zstd.
    pub kind: u32,
    /// Level.
    pub level: u32,
    /// The size of the data relative to its compressed size, rounded.
    pub ratio: u32,
    /// Bytes that one compressed record holds at most.
    pub mmap_length: u32,
}

/// Two clocks read at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockData {
    /// The events' clock (`CLOCK_*`).
    pub clockid: u32,
    /// Nanoseconds since 1970.
    pub wall_clock: u64,
    /// Nanoseconds of the events' clock.
    pub clock: u64,
}
