//! From a section's bytes to [`Features`].

use super::topology;
use super::{BuildId, ClockData, Compression, Feature, Features, GroupDescription, PmuMapping};
use dioptra_perfrecords::record::RawRecord;
use dioptra_perfrecords::{Attr, ByteOrder, Cursor};
use std::sync::Arc;

/// Header bit of a build id whose size is stated.
const BUILD_ID_SIZE: u16 = 1 << 15;
/// Bytes that a build id has in its record.
const BUILD_ID_FIELD: usize = 24;
/// The longest build id that the format holds, in bytes.
const BUILD_ID_MAX: usize = 20;

/// An event as EVENT_DESC describes it.
#[derive(Clone, Debug)]
pub(crate) struct DescribedEvent {
    pub attr: Attr,
    pub name: String,
    pub ids: Vec<u64>,
}

/// A section's damage.
#[derive(Debug)]
pub(crate) struct SectionDamage {
    /// Where, in bytes from its start.
    pub at: u64,
    /// What.
    pub why: String,
}

/// Reads the section of `feature`. Where its bytes are not what they should be, what came before is kept.
pub(crate) fn read_feature(
    features: &mut Features,
    described: &mut Vec<DescribedEvent>,
    feature: Feature,
    bytes: &[u8],
    order: ByteOrder,
) -> Result<(), SectionDamage> {
    features.sections.insert(feature, bytes.len() as u64);
    if feature == Feature::UNSAMPLED {
        features.unsampled = super::unsampled::decode(bytes)?;
        return Ok(());
    }
    if feature == Feature::IMPORTED {
        features.imported = Some(Arc::new(super::imported::decode(bytes)?));
        return Ok(());
    }
    let mut at = Cursor::new(bytes, order);
    let read = read_known(features, described, feature, &mut at);
    read.ok_or_else(|| SectionDamage {
        at: 0,
        why: format!("the section {feature} is shorter than its content"),
    })
}

fn read_known(
    features: &mut Features,
    described: &mut Vec<DescribedEvent>,
    feature: Feature,
    at: &mut Cursor<'_>,
) -> Option<()> {
    let length = at.rest().len() as u64;
    match feature {
        Feature::TRACING_DATA => features.tracing_data = Some(length),
        Feature::BUILD_ID => build_ids(at, &mut features.build_ids)?,
        Feature::HOSTNAME => features.hostname = Some(text(at)?),
        Feature::OSRELEASE => features.os_release = Some(text(at)?),
        Feature::VERSION => features.version = Some(text(at)?),
        Feature::ARCH => features.arch = Some(text(at)?),
        Feature::NRCPUS => {
            features.cpus_available = Some(at.u32()?);
            features.cpus_online = Some(at.u32()?);
        }
        Feature::CPUDESC => features.cpu_description = Some(text(at)?),
        Feature::CPUID => features.cpuid = Some(text(at)?),
        Feature::TOTAL_MEM => features.total_memory = Some(at.u64()?),
        Feature::CMDLINE => features.command_line = text_list(at)?,
        Feature::EVENT_DESC => event_descriptions(at, described)?,
        Feature::CPU_TOPOLOGY => {
            let cpus = features.cpus_available.unwrap_or(0);
            features.cpu_topology = Some(topology::cpu_topology(at, cpus)?);
        }
        Feature::NUMA_TOPOLOGY => features.numa_topology = topology::numa_topology(at)?,
        Feature::BRANCH_STACK => features.branch_stack = true,
        Feature::PMU_MAPPINGS => {
            for _ in 0..at.u32()? {
                features.pmu_mappings.push(PmuMapping {
                    kind: at.u32()?,
                    name: text(at)?,
                });
            }
        }
        Feature::GROUP_DESC => {
            for _ in 0..at.u32()? {
                features.group_descriptions.push(GroupDescription {
                    name: text(at)?,
                    leader: at.u32()?,
                    members: at.u32()?,
                });
            }
        }
        Feature::AUXTRACE => features.auxtrace = Some(length),
        Feature::STAT => features.stat = true,
        Feature::CACHE => features.caches = topology::caches(at)?,
        Feature::SAMPLE_TIME => features.sample_time = Some((at.u64()?, at.u64()?)),
        Feature::MEM_TOPOLOGY => features.memory_topology = Some(topology::memory_topology(at)?),
        Feature::CLOCKID => features.clockid = Some(at.u64()?),
        Feature::DIR_FORMAT => features.directory_format = Some(at.u64()?),
        Feature::BPF_PROG_INFO => features.bpf_programs = Some(at.u32()?),
        Feature::BPF_BTF => features.bpf_types = Some(at.u32()?),
        Feature::COMPRESSED => {
            let _version = at.u32()?;
            features.compressed = Some(Compression {
                kind: at.u32()?,
                level: at.u32()?,
                ratio: at.u32()?,
                mmap_length: at.u32()?,
            });
        }
        Feature::CPU_PMU_CAPS => {
            let capabilities = capabilities(at)?;
            let name = "cpu".to_owned();
            features.pmu_capabilities.insert(name, capabilities);
        }
        Feature::PMU_CAPS => {
            for _ in 0..at.u32()? {
                let capabilities = capabilities(at)?;
                features.pmu_capabilities.insert(text(at)?, capabilities);
            }
        }
        Feature::CLOCK_DATA => {
            let _version = at.u32()?;
            features.clock_data = Some(ClockData {
                clockid: at.u32()?,
                wall_clock: at.u64()?,
                clock: at.u64()?,
            });
        }
        Feature::HYBRID_TOPOLOGY => {
            for _ in 0..at.u32()? {
                features.hybrid_topology.push((text(at)?, text(at)?));
            }
        }
        _ => {
            let bytes = features.unparsed.entry(feature).or_default();
            bytes.extend_from_slice(at.rest());
        }
    }
    Some(())
}

/// Text with its length before it, padded with NULs.
pub(super) fn text(at: &mut Cursor<'_>) -> Option<String> {
    let length = at.u32()? as usize;
    let bytes = at.take(length)?;
    let end = bytes.iter().position(|byte| *byte == 0);
    let bytes = &bytes[..end.unwrap_or(length)];
    Some(String::from_utf8_lossy(bytes).into_owned())
}

/// Several texts with their number before them.
pub(super) fn text_list(at: &mut Cursor<'_>) -> Option<Vec<String>> {
    let count = at.u32()?;
    let mut list = Vec::new();
    for _ in 0..count {
        list.push(text(at)?);
    }
    Some(list)
}

fn capabilities(at: &mut Cursor<'_>) -> Option<Vec<(String, String)>> {
    let count = at.u32()?;
    let mut list = Vec::new();
    for _ in 0..count {
        list.push((text(at)?, text(at)?));
    }
    Some(list)
}

fn event_descriptions(at: &mut Cursor<'_>, described: &mut Vec<DescribedEvent>) -> Option<()> {
    let count = at.u32()?;
    let attr_size = at.u32()? as usize;
    for _ in 0..count {
        let attr = Attr::from_bytes(at.take(attr_size)?, at.order())?;
        let ids = at.u32()?;
        let name = text(at)?;
        let ids = at.u64s(u64::from(ids))?.iter().collect();
        described.push(DescribedEvent { attr, name, ids });
    }
    Some(())
}

/// The records of the BUILD_ID section.
fn build_ids(at: &mut Cursor<'_>, list: &mut Vec<BuildId>) -> Option<()> {
    let mut rest = at.rest();
    while !rest.is_empty() {
        let (record, after) = RawRecord::split(rest, at.order()).ok()?;
        list.push(read_build_id(&record, at.order())?);
        rest = after;
    }
    Some(())
}

/// Reads a BUILD_ID record's body.
pub fn read_build_id(record: &RawRecord<'_>, order: ByteOrder) -> Option<BuildId> {
    let mut at = Cursor::new(record.body, order);
    let pid = at.u32()?.cast_signed();
    let field = at.take(BUILD_ID_FIELD)?;
    let size = if record.misc.0 & BUILD_ID_SIZE != 0 {
        usize::from(field[BUILD_ID_MAX]).min(BUILD_ID_MAX)
    } else {
        BUILD_ID_MAX
    };
    Some(BuildId {
        misc: record.misc.0,
        pid,
        build_id: field[..size].to_vec(),
        path: at.c_string().to_vec(),
    })
}
