//! Memory samples: the accessed memory of each instruction, the source of the data, and the latency.
//!
//! Fields of `PERF_SAMPLE_ADDR`, `WEIGHT`, `WEIGHT_STRUCT`, `DATA_SRC`, `PHYS_ADDR`, `DATA_PAGE_SIZE` and
//! `CODE_PAGE_SIZE`, added up for each instruction.

mod distinct;
mod source;

pub use distinct::Distinct;
pub use source::{DataSource, SourceField};

use crate::hash::{FxBuildHasher, mix};
use crate::profile::Profile;
use crate::stacks::frames::FrameId;
use dioptra_perfdata::PerfData;
use dioptra_perfrecords::SampleType;
use dioptra_perfrecords::record::Sample;
use distinct::Sketch;
use hashbrown::HashMap;

/// Bytes of a cache line, where the recording does not state them.
const LINE: u64 = 64;
/// Bytes of a page, where the sample does not state them.
const PAGE: u64 = 4096;

/// The memory samples of one event, by instruction. Its size grows with distinct instructions and data sources.
#[derive(Clone, Debug)]
pub struct MemoryProfile {
    struct_weights: bool,
    line_size: u64,
    facts: MemoryFacts,
    places: HashMap<FrameId, Box<MemoryPlace>, FxBuildHasher>,
}

/// Counts of the fields that the samples held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryFacts {
    /// Samples.
    pub samples: u64,
    /// Samples with a data address.
    pub addresses: u64,
    /// Samples with a physical address.
    pub physical: u64,
    /// Samples with a weight, which is a latency.
    pub weights: u64,
    /// Samples with a data source that says anything.
    pub sources: u64,
    /// Samples with the size of the data's page.
    pub page_sizes: u64,
}

/// The memory accesses of one instruction.
#[derive(Clone, Debug, Default)]
pub struct MemoryPlace {
    samples: u64,
    addresses: u64,
    physical: u64,
    sources: HashMap<DataSource, Latency, FxBuildHasher>,
    /// Latencies of the instruction itself, from its issue to its retirement, as the CPU reports them.
    second: Latency,
    /// Latencies of the instruction's last stage (`p_stage_cyc`, retire latency).
    third: Latency,
    lines: Sketch,
    pages: Sketch,
    data_pages: Vec<(u64, u64)>,
    code_pages: Vec<(u64, u64)>,
}

/// Latencies in cycles (of the core or the clock that the CPU's manual names), added up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Samples, including those without a latency.
    pub samples: u64,
    /// Samples with a latency.
    pub count: u64,
    /// The sum of the latencies.
    pub sum: u64,
    /// The smallest latency; 0 where there is none.
    pub min: u64,
    /// The largest latency.
    pub max: u64,
    /// The number of latencies from `2^i` up to below `2^(i+1)`, by `i`, up to the largest latency.
    pub log2: Vec<u64>,
}

impl Latency {
    fn add(&mut self, cycles: u64) {
        self.samples += 1;
        let Some(bucket) = cycles.checked_ilog2() else {
            return;
        };
        let bucket = bucket as usize;
        self.min = if self.count == 0 {
            cycles
        } else {
            self.min.min(cycles)
        };
        self.count += 1;
        self.sum = self.sum.saturating_add(cycles);
        self.max = self.max.max(cycles);
        if bucket >= self.log2.len() {
            self.log2.resize(bucket + 1, 0);
        }
        self.log2[bucket] += 1;
    }

    /// Adds other latencies.
    pub fn merge(&mut self, other: &Latency) {
        self.min = match (self.count, other.count) {
            (0, _) => other.min,
            (_, 0) => self.min,
            _ => self.min.min(other.min),
        };
        self.samples += other.samples;
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
        if self.log2.len() < other.log2.len() {
            self.log2.resize(other.log2.len(), 0);
        }
        for (mine, theirs) in self.log2.iter_mut().zip(&other.log2) {
            *mine += theirs;
        }
    }

    /// Returns the mean; `None` where no sample has a latency.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }
}

impl MemoryPlace {
    /// Adds the accesses of another instruction.
    pub fn merge(&mut self, other: &MemoryPlace) {
        self.samples += other.samples;
        self.addresses += other.addresses;
        self.physical += other.physical;
        for (source, latency) in &other.sources {
            self.sources.entry(*source).or_default().merge(latency);
        }
        self.second.merge(&other.second);
        self.third.merge(&other.third);
        self.lines.merge(&other.lines);
        self.pages.merge(&other.pages);
        for (mine, theirs) in [
            (&mut self.data_pages, &other.data_pages),
            (&mut self.code_pages, &other.code_pages),
        ] {
            theirs
                .iter()
                .for_each(|(size, samples)| count(mine, *size, *samples));
        }
    }

    /// Returns the number of samples.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Returns the samples and their latencies by data source, the most frequent first.
    pub fn sources(&self) -> Vec<(DataSource, &Latency)> {
        let sources = self.sources.iter();
        let mut all: Vec<_> = sources
            .map(|(source, latency)| (*source, latency))
            .collect();
        all.sort_unstable_by_key(|(source, latency)| (std::cmp::Reverse(latency.samples), *source));
        all
    }

    /// Returns the latencies of all accesses.
    pub fn latency(&self) -> Latency {
        let mut all = Latency::default();
        for latency in self.sources.values() {
            all.merge(latency);
        }
        all
    }

    /// Returns the latencies of the whole instruction (`ins_lat`); only `WEIGHT_STRUCT` has them.
    pub fn instruction_latency(&self) -> &Latency {
        &self.second
    }

    /// Returns the latencies of the last stage (`p_stage_cyc`, `retire_lat`); only `WEIGHT_STRUCT` has them.
    pub fn stage_latency(&self) -> &Latency {
        &self.third
    }

    /// Returns the number of distinct cache lines accessed. Without physical addresses, equal addresses of two
    /// processes are two lines. The number is exact up to 127, then an estimate in bounded memory.
    pub fn lines(&self) -> Distinct {
        self.lines.distinct()
    }

    /// Returns the number of distinct pages, in the same way. Pages are of 4 KiB where the recording does not state
    /// their size.
    pub fn pages(&self) -> Distinct {
        self.pages.distinct()
    }

    /// Returns the samples by the size of the data's page in bytes.
    pub fn data_page_sizes(&self) -> &[(u64, u64)] {
        &self.data_pages
    }

    /// Returns the samples by the size of the code's page in bytes.
    pub fn code_page_sizes(&self) -> &[(u64, u64)] {
        &self.code_pages
    }
}

impl MemoryProfile {
    /// Returns the counts of the fields that the samples held.
    pub fn facts(&self) -> &MemoryFacts {
        &self.facts
    }

    /// Returns the bytes of a cache line: the recorded size, else 64.
    pub fn line_size(&self) -> u64 {
        self.line_size
    }

    /// Returns the memory accesses of the instruction at a place.
    pub fn at(&self, frame: FrameId) -> Option<&MemoryPlace> {
        self.places.get(&frame).map(Box::as_ref)
    }

    /// Returns all places in the order of their ids.
    pub fn places(&self) -> Vec<(FrameId, &MemoryPlace)> {
        let mut all: Vec<_> = self
            .places
            .iter()
            .map(|(frame, place)| (*frame, place.as_ref()))
            .collect();
        all.sort_unstable_by_key(|(frame, _)| *frame);
        all
    }

    /// Keeps only the samples at places that pass `keep`.
    pub(crate) fn retain(&mut self, keep: impl Fn(FrameId) -> bool) {
        self.places.retain(|frame, _| keep(*frame));
        self.sum_up();
    }

    /// Counts the fields that the samples held.
    fn sum_up(&mut self) {
        let mut facts = MemoryFacts::default();
        for place in self.places.values() {
            facts.samples += place.samples;
            facts.addresses += place.addresses;
            facts.physical += place.physical;
            for (source, latency) in &place.sources {
                facts.weights += latency.count;
                if source.level() != "N/A" || source.operation() != "N/A" {
                    facts.sources += latency.samples;
                }
            }
            let sizes = place.data_pages.iter().map(|(_, samples)| samples);
            facts.page_sizes += sizes.sum::<u64>();
        }
        self.facts = facts;
    }

    /// Adds a sample of a process at a place.
    fn add(&mut self, sample: &Sample<'_>, process: u32, frame: FrameId) {
        let place = self.places.entry(frame).or_default();
        place.samples += 1;
        let weight = sample.weight.unwrap_or(0);
        let latency = if self.struct_weights {
            place.second.add(weight >> 32 & 0xffff);
            place.third.add(weight >> 48);
            weight & 0xffff_ffff
        } else {
            weight
        };
        let source = DataSource(sample.data_src.unwrap_or(0));
        place.sources.entry(source).or_default().add(latency);
        let mut page_size = PAGE;
        if let Some(size) = sample.data_page_size.filter(|size| *size > 0) {
            page_size = size;
            count(&mut place.data_pages, size, 1);
        }
        if let Some(size) = sample.code_page_size.filter(|size| *size > 0) {
            count(&mut place.code_pages, size, 1);
        }
        place.addresses += u64::from(sample.addr.is_some_and(|address| address != 0));
        let physical = sample.phys_addr.filter(|address| *address != 0);
        place.physical += u64::from(physical.is_some());
        // All processes share the kernel's half of the addresses.
        let space = |address: u64| match address >> 63 {
            1 => u64::MAX,
            _ => u64::from(process),
        };
        let virtual_address = sample.addr.filter(|address| *address != 0);
        let address = match (physical, virtual_address) {
            (Some(address), _) => Some((u64::MAX - 1, address)),
            (None, Some(address)) => Some((space(address), address)),
            (None, None) => None,
        };
        if let Some((space, address)) = address {
            place.lines.add(space, address / self.line_size);
            place.pages.add(mix(space, page_size), address / page_size);
        }
    }
}

/// Adds samples with a value to a short list. Further values of a hostile file share the last entry, because real
/// machines have only a handful of page sizes.
fn count(list: &mut Vec<(u64, u64)>, value: u64, samples: u64) {
    const MOST: usize = 16;
    if let Some((_, count)) = list.iter_mut().find(|(known, _)| *known == value) {
        *count += samples;
    } else if list.len() < MOST {
        list.push((value, samples));
    } else {
        list[MOST - 1].1 += samples;
    }
}

/// The memory samples of all events while they are read.
#[derive(Debug)]
pub(crate) struct Accesses {
    events: Vec<Option<MemoryProfile>>,
}

impl Accesses {
    /// Makes the collector; `None` where no event has memory samples.
    pub(crate) fn new(data: &PerfData) -> Option<Self> {
        let lines = data.features().caches.iter().filter_map(|cache| {
            let size = u64::from(cache.line_size);
            (size.is_power_of_two() && cache.level == 1).then_some(size)
        });
        let line_size = lines.max().unwrap_or(LINE);
        let of_memory = SampleType::WEIGHT
            | SampleType::WEIGHT_STRUCT
            | SampleType::DATA_SRC
            | SampleType::PHYS_ADDR
            | SampleType::DATA_PAGE_SIZE;
        let events: Vec<Option<MemoryProfile>> = data
            .events()
            .iter()
            .map(|event| {
                let fields = event.attr.sample_type;
                let has = fields.intersects(of_memory) && event.attr.samples();
                has.then(|| MemoryProfile {
                    struct_weights: fields.contains(SampleType::WEIGHT_STRUCT),
                    line_size,
                    facts: MemoryFacts::default(),
                    places: HashMap::default(),
                })
            })
            .collect();
        let any = events.iter().any(Option::is_some);
        any.then_some(Accesses { events })
    }

    /// Returns whether an event's samples describe memory accesses.
    #[inline]
    pub(crate) fn has(&self, event: usize) -> bool {
        self.events.get(event).is_some_and(Option::is_some)
    }

    pub(crate) fn add(&mut self, event: usize, sample: &Sample<'_>, process: u32, frame: FrameId) {
        if let Some(Some(profile)) = self.events.get_mut(event) {
            profile.add(sample, process, frame);
        }
    }

    pub(crate) fn finish(mut self) -> Vec<Option<MemoryProfile>> {
        self.events
            .iter_mut()
            .flatten()
            .for_each(MemoryProfile::sum_up);
        self.events
    }
}

impl Profile {
    /// Returns the memory samples of an event. `None` where it has none, or where [`crate::LoadPlan::memory`] did not
    /// ask for them. They come from the samples that pass the plan's filter. They stay in step with the counts where
    /// [`Profile::retain_samples`] or [`Profile::select`] chooses samples by their places alone. Other selections drop
    /// them; see [`Profile::dropped`].
    pub fn memory(&self, event: usize) -> Option<&MemoryProfile> {
        self.details.memory.get(event)?.as_ref()
    }
}
