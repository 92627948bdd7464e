//! Features about the machine's shape: cores, memory nodes, caches.

use super::parse::{text, text_list};
use dioptra_perfrecords::Cursor;

/// Cores, dies and sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuTopology {
    /// CPU lists such as `0-3`, one for each set of sibling cores.
    pub cores: Vec<String>,
    /// CPU lists, one for each set of sibling threads.
    pub threads: Vec<String>,
    /// CPU lists, one for each die.
    pub dies: Vec<String>,
    /// Core and socket of each CPU.
    pub cpus: Vec<(u32, u32)>,
}

/// A memory node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaNode {
    /// Number.
    pub node: u32,
    /// Memory in KiB.
    pub total: u64,
    /// Free memory in KiB.
    pub free: u64,
    /// Its CPUs, as a list such as `0-3`.
    pub cpus: String,
}

/// A cache of the CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheLevel {
    /// Level, from 1.
    pub level: u32,
    /// Bytes of a line.
    pub line_size: u32,
    /// Sets.
    pub sets: u32,
    /// Ways.
    pub ways: u32,
    /// `Data`, `Instruction` or `Unified`.
    pub kind: String,
    /// Size, such as `32K`.
    pub size: String,
    /// The CPUs that share it.
    pub cpus: String,
}

/// The memory blocks of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryNode {
    /// Number.
    pub node: u64,
    /// The number of its blocks.
    pub blocks: u64,
}

/// Reads CPU_TOPOLOGY of a machine with `cpus` CPUs; newer parts of it may be missing.
pub(super) fn cpu_topology(at: &mut Cursor<'_>, cpus: u32) -> Option<CpuTopology> {
    let mut topology = CpuTopology {
        cores: text_list(at)?,
        threads: text_list(at)?,
        ..CpuTopology::default()
    };
    for _ in 0..cpus {
        let (Some(core), Some(socket)) = (at.u32(), at.u32()) else {
            return Some(topology);
        };
        topology.cpus.push((core, socket));
    }
    topology.dies = text_list(at).unwrap_or_default();
    Some(topology)
}

pub(super) fn numa_topology(at: &mut Cursor<'_>) -> Option<Vec<NumaNode>> {
    let count = at.u32()?;
    let mut nodes = Vec::new();
    for _ in 0..count {
        nodes.push(NumaNode {
            node: at.u32()?,
            total: at.u64()?,
            free: at.u64()?,
            cpus: text(at)?,
        });
    }
    Some(nodes)
}

pub(super) fn caches(at: &mut Cursor<'_>) -> Option<Vec<CacheLevel>> {
    let _version = at.u32()?;
    let count = at.u32()?;
    let mut caches = Vec::new();
    for _ in 0..count {
        caches.push(CacheLevel {
            level: at.u32()?,
            line_size: at.u32()?,
            sets: at.u32()?,
            ways: at.u32()?,
            kind: text(at)?,
            size: text(at)?,
            cpus: text(at)?,
        });
    }
    Some(caches)
}

pub(super) fn memory_topology(at: &mut Cursor<'_>) -> Option<(u64, Vec<MemoryNode>)> {
    let _version = at.u64()?;
    let block_size = at.u64()?;
    let count = at.u64()?;
    let mut nodes = Vec::new();
    for _ in 0..count {
        let node = at.u64()?;
        // A bitmap: its length in bits, then whole words.
        let bits = at.u64()?;
        let words = at.u64s(bits.div_ceil(64))?;
        let blocks = words.iter().map(|word| u64::from(word.count_ones())).sum();
        nodes.push(MemoryNode { node, blocks });
    }
    Some((block_size, nodes))
}
