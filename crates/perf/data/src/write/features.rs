//! From what a recorder knows to the bytes of feature sections.

use crate::error::WriteError;
use crate::events::EventDescription;
use crate::features::{
    BuildId, CacheLevel, ClockData, Compression, CpuTopology, Feature, GroupDescription,
    ImportedNames, NumaNode, PmuMapping, encode_imported, encode_unsampled,
};
use crate::kind::file_type;
use dioptra_perfrecords::ATTR_SIZE_IN_FILES;
use dioptra_perfrecords::Unsampled;
use dioptra_perfrecords::record::HEADER_SIZE;

/// The features that [`crate::Writer::finish`] writes beside the records. Fields that are `None` or empty are left out.
///
/// The writer adds what it knows itself: the events, the times of samples, the compression. The fields have the
/// meaning and unit of those of the same name in [`crate::Features`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FeaturesToWrite {
    /// The machine's name.
    pub hostname: Option<String>,
    /// The kernel's release.
    pub os_release: Option<String>,
    /// The recorder's version.
    pub version: Option<String>,
    /// The architecture, as `uname -m` prints it.
    pub arch: Option<String>,
    /// CPUs that are online.
    pub cpus_online: Option<u32>,
    /// CPUs that there are.
    pub cpus_available: Option<u32>,
    /// The CPU's name.
    pub cpu_description: Option<String>,
    /// The CPU's vendor, family, model and stepping.
    pub cpuid: Option<String>,
    /// Memory in KiB.
    pub total_memory: Option<u64>,
    /// The recorder's command line.
    pub command_line: Vec<String>,
    /// Build ids of the kernel and of the modules that were hit. `misc` holds the CPU mode: 1 kernel, 2 user.
    pub build_ids: Vec<BuildId>,
    /// The resolution in nanoseconds of the clock that was chosen.
    pub clockid: Option<u64>,
    /// Wall clock and event clock at one moment.
    pub clock_data: Option<ClockData>,
    /// Groups of events.
    pub group_descriptions: Vec<GroupDescription>,
    /// Numbers and names of PMUs.
    pub pmu_mappings: Vec<PmuMapping>,
    /// Cores, dies and sockets.
    pub cpu_topology: Option<CpuTopology>,
    /// Memory nodes.
    pub numa_topology: Vec<NumaNode>,
    /// Caches.
    pub caches: Vec<CacheLevel>,
    /// Whether branch stacks were sampled.
    pub branch_stack: bool,
    /// Descriptions of the recording's tracepoints, as `trace-cmd.dat.v6(5)` lays them out. perf refuses a recording of
    /// tracepoints without them.
    pub tracing_data: Option<Vec<u8>>,
    /// Sections that this crate does not make, by number: readers find them in [`crate::Features::unparsed`]. A pipe has
    /// them in pieces of whole multiples of 8 bytes, so that zeros may follow the last byte.
    pub sections: Vec<(Feature, Vec<u8>)>,
    /// Events that were counted in threads too short to be sampled.
    pub unsampled: Vec<Unsampled>,
    /// Names of the locations of an imported profile. A pipe has no place for them.
    pub imported: Option<ImportedNames>,
}

/// Text is padded to a multiple of this, in bytes.
const TEXT_ALIGN: usize = 64;
/// Header bit of a build id whose size is stated.
const BUILD_ID_SIZE: u16 = 1 << 15;
/// The longest build id that the format holds, in bytes.
const BUILD_ID_MAX: usize = 20;

/// A section as it grows.
struct Section {
    name: &'static str,
    bytes: Vec<u8>,
}

impl Section {
    fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_ne_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_ne_bytes());
    }

    fn count(&mut self, count: usize) -> Result<(), WriteError> {
        let too_long = WriteError::TooLong {
            section: self.name,
            length: count,
        };
        self.u32(u32::try_from(count).map_err(|_| too_long)?);
        Ok(())
    }

    /// Text with its length before it and at least one NUL behind it.
    fn text(&mut self, text: &str) -> Result<(), WriteError> {
        let length = (text.len() + 1).next_multiple_of(TEXT_ALIGN);
        self.count(length)?;
        let end = self.bytes.len() + length;
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.resize(end, 0);
        Ok(())
    }

    fn texts(&mut self, texts: &[String]) -> Result<(), WriteError> {
        self.count(texts.len())?;
        texts.iter().try_for_each(|text| self.text(text))
    }
}

/// The sections, encoded, in the order of their bits.
struct Sections(Vec<(Feature, Vec<u8>)>);

impl Sections {
    fn add(
        &mut self,
        feature: Feature,
        fill: impl FnOnce(&mut Section) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        let mut section = Section {
            name: feature.name().unwrap_or("unknown"),
            bytes: Vec::new(),
        };
        fill(&mut section)?;
        self.0.push((feature, section.bytes));
        Ok(())
    }

    fn text(&mut self, feature: Feature, text: Option<&String>) -> Result<(), WriteError> {
        match text {
            Some(text) => self.add(feature, |section| section.text(text)),
            None => Ok(()),
        }
    }
}

/// Encodes all sections, lowest bit first.
pub(super) fn encode(
    features: &FeaturesToWrite,
    events: &[EventDescription],
    sample_time: Option<(u64, u64)>,
    compression: Option<Compression>,
) -> Result<Vec<(Feature, Vec<u8>)>, WriteError> {
    let mut all = Sections(Vec::new());
    encode_machine(&mut all, features)?;
    encode_recording(&mut all, features, events)?;
    if let Some((first, last)) = sample_time {
        all.add(Feature::SAMPLE_TIME, |section| {
            section.u64(first);
            section.u64(last);
            Ok(())
        })?;
    }
    if let Some(compression) = compression {
        all.add(Feature::COMPRESSED, |section| {
            section.u32(1);
            section.u32(compression.kind);
            section.u32(compression.level);
            section.u32(compression.ratio);
            section.u32(compression.mmap_length);
            Ok(())
        })?;
    }
    all.0.sort_by_key(|(feature, _)| *feature);
    Ok(all.0)
}

fn encode_machine(all: &mut Sections, features: &FeaturesToWrite) -> Result<(), WriteError> {
    all.text(Feature::HOSTNAME, features.hostname.as_ref())?;
    all.text(Feature::OSRELEASE, features.os_release.as_ref())?;
    all.text(Feature::VERSION, features.version.as_ref())?;
    all.text(Feature::ARCH, features.arch.as_ref())?;
    all.text(Feature::CPUDESC, features.cpu_description.as_ref())?;
    all.text(Feature::CPUID, features.cpuid.as_ref())?;
    if let Some(cpus) = features.cpus_available.or(features.cpus_online) {
        all.add(Feature::NRCPUS, |section| {
            section.u32(cpus);
            section.u32(features.cpus_online.unwrap_or(cpus));
            Ok(())
        })?;
    }
    if let Some(memory) = features.total_memory {
        all.add(Feature::TOTAL_MEM, |section| {
            section.u64(memory);
            Ok(())
        })?;
    }
    if let Some(topology) = &features.cpu_topology {
        all.add(Feature::CPU_TOPOLOGY, |section| {
            section.texts(&topology.cores)?;
            section.texts(&topology.threads)?;
            for (core, socket) in &topology.cpus {
                section.u32(*core);
                section.u32(*socket);
            }
            Ok(())
        })?;
    }
    if !features.numa_topology.is_empty() {
        all.add(Feature::NUMA_TOPOLOGY, |section| {
            section.count(features.numa_topology.len())?;
            for node in &features.numa_topology {
                section.u32(node.node);
                section.u64(node.total);
                section.u64(node.free);
                section.text(&node.cpus)?;
            }
            Ok(())
        })?;
    }
    if !features.caches.is_empty() {
        all.add(Feature::CACHE, |section| {
            section.u32(1);
            section.count(features.caches.len())?;
            for cache in &features.caches {
                section.u32(cache.level);
                section.u32(cache.line_size);
                section.u32(cache.sets);
                section.u32(cache.ways);
                section.text(&cache.kind)?;
                section.text(&cache.size)?;
                section.text(&cache.cpus)?;
            }
            Ok(())
        })?;
    }
    if !features.pmu_mappings.is_empty() {
        all.add(Feature::PMU_MAPPINGS, |section| {
            section.count(features.pmu_mappings.len())?;
            for pmu in &features.pmu_mappings {
                section.u32(pmu.kind);
                section.text(&pmu.name)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn encode_recording(
    all: &mut Sections,
    features: &FeaturesToWrite,
    events: &[EventDescription],
) -> Result<(), WriteError> {
    if let Some(bytes) = &features.tracing_data {
        all.0.push((Feature::TRACING_DATA, bytes.clone()));
    }
    if !features.build_ids.is_empty() {
        all.add(Feature::BUILD_ID, |section| {
            let mut ids = features.build_ids.iter();
            ids.try_for_each(|id| build_id(section, id))
        })?;
    }
    if !features.command_line.is_empty() {
        all.add(Feature::CMDLINE, |section| {
            section.texts(&features.command_line)
        })?;
    }
    if !events.is_empty() {
        all.add(Feature::EVENT_DESC, |section| {
            section.count(events.len())?;
            section.u32(ATTR_SIZE_IN_FILES);
            for event in events {
                let attr = event.attr.to_bytes(ATTR_SIZE_IN_FILES);
                section.bytes.extend_from_slice(&attr);
                section.count(event.ids.len())?;
                section.text(&event.name)?;
                event.ids.iter().for_each(|id| section.u64(*id));
            }
            Ok(())
        })?;
    }
    if features.branch_stack {
        all.0.push((Feature::BRANCH_STACK, Vec::new()));
    }
    if !features.group_descriptions.is_empty() {
        all.add(Feature::GROUP_DESC, |section| {
            section.count(features.group_descriptions.len())?;
            for group in &features.group_descriptions {
                section.text(&group.name)?;
                section.u32(group.leader);
                section.u32(group.members);
            }
            Ok(())
        })?;
    }
    if let Some(resolution) = features.clockid {
        all.add(Feature::CLOCKID, |section| {
            section.u64(resolution);
            Ok(())
        })?;
    }
    if let Some(clock) = features.clock_data {
        all.add(Feature::CLOCK_DATA, |section| {
            section.u32(1);
            section.u32(clock.clockid);
            section.u64(clock.wall_clock);
            section.u64(clock.clock);
            Ok(())
        })?;
    }
    all.0.extend_from_slice(&features.sections);
    if !features.unsampled.is_empty() {
        let bytes = encode_unsampled(&features.unsampled);
        all.0.push((Feature::UNSAMPLED, bytes));
    }
    if let Some(names) = &features.imported {
        all.0.push((Feature::IMPORTED, encode_imported(names)));
    }
    Ok(())
}

/// Build ids as a pipe has them: the records of the section.
pub(super) fn encode_build_ids(ids: &[BuildId]) -> Result<Vec<u8>, WriteError> {
    let mut section = Section {
        name: "BUILD_ID",
        bytes: Vec::new(),
    };
    ids.iter().try_for_each(|id| build_id(&mut section, id))?;
    Ok(section.bytes)
}

/// One module's build id: a record.
fn build_id(section: &mut Section, id: &BuildId) -> Result<(), WriteError> {
    let path = (id.path.len() + 1).next_multiple_of(TEXT_ALIGN);
    let size = HEADER_SIZE + 4 + 24 + path;
    let misc = id.misc | BUILD_ID_SIZE;
    let header = super::record_header(file_type::BUILD_ID, misc, size);
    let header = header.ok_or(WriteError::TooLong {
        section: section.name,
        length: size,
    })?;
    section.bytes.extend_from_slice(&header);
    section.bytes.extend_from_slice(&id.pid.to_ne_bytes());
    let mut field = [0; 24];
    let length = id.build_id.len().min(BUILD_ID_MAX);
    field[..length].copy_from_slice(&id.build_id[..length]);
    // At most 20: it fits a byte.
    field[BUILD_ID_MAX] = length as u8;
    section.bytes.extend_from_slice(&field);
    let end = section.bytes.len() + path;
    section.bytes.extend_from_slice(&id.path);
    section.bytes.resize(end, 0);
    Ok(())
}
