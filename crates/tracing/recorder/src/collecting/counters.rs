//! Counters of sampled functions, from the recorder's side: the recorder sets how executions are chosen, and reads the
//! counts.

use super::arena_memory::ArenaMemory;
use super::overhead::Totals;
use crate::analysis::prepare::{Passing, SampledFunction};
use crate::recording::notes::TraceNote;
use dioptra_filters::{Pace, SampleKind, Sampler, Sampling};
use dioptra_tracedata::{FunctionCounts, JournalEntry};
use dioptra_tracelayout::sampling::{
    AREA_SIZE, AREAS, AreaHeader, BUSY, CHOICES, ENDED, FIRST_AREA, FREE, SLOTS, SampledSlot, cost,
    sampler, word,
};
use std::collections::{BTreeMap, HashMap};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

/// The interval of chosen executions of functions with `sample=auto` at first, when nothing is known of them: one of so
/// many.
const FIRST_INTERVAL: f64 = 64.0;

/// The number of executions that were counted, and of those that were chosen.
pub type Counts = (u64, u64);

/// The sampled functions and their counts.
#[derive(Debug, Default)]
pub struct Counters {
    /// The functions, by slot.
    functions: HashMap<u32, SampledFunction>,
    /// The counts that were taken in, by stream and function id.
    ended: BTreeMap<u32, BTreeMap<u32, Counts>>,
    /// The sums that were taken in for functions with `sample=auto`, by slot.
    totals: BTreeMap<u32, Totals>,
}

/// An area in which a thread counts.
#[derive(Clone, Copy, Debug)]
pub struct Area {
    /// Its number.
    pub index: usize,
    /// Whether its thread has ended.
    pub has_ended: bool,
    /// The stream whose calls are counted.
    pub stream: u32,
    /// The thread's process id and thread id.
    pub thread: (u32, u32),
}

impl Counters {
    /// Begins to sample functions. `ticks` converts nanoseconds to ticks of the clock.
    pub fn add(
        &mut self,
        functions: &[SampledFunction],
        arena: &ArenaMemory,
        ticks: impl Fn(u64) -> u64,
    ) {
        for function in functions {
            let sampling = function.sampling;
            self.functions.insert(sampling.slot, *function);
            let parameter = match sampling.kind {
                SampleKind::Rate => ticks(sampling.parameter),
                SampleKind::Auto => Pace::from_interval(FIRST_INTERVAL).0,
                SampleKind::Tail => sampling.parameter | u64::from(sampling.tail) << 32,
                _ => sampling.parameter,
            };
            if let Some(choice) = choice(arena, sampling.slot) {
                choice.parameter.store(parameter, Ordering::Relaxed);
                choice.kind.store(sampling.kind as u64, Ordering::Release);
            }
        }
    }

    /// Adds the counts of an area. With `frees`, the area is zeroed, and another thread may take it.
    pub fn take(&mut self, arena: &ArenaMemory, area: Area, frees: bool) {
        let Some(start) = place(arena, area.index) else {
            return;
        };
        let counts = self.ended.entry(area.stream).or_default();
        for (slot, function) in &self.functions {
            let totals = read(start, *slot);
            let (seen, shown) = (totals.seen, totals.shown);
            if seen > 0 {
                if function.sampling.kind == SampleKind::Auto {
                    self.totals.entry(*slot).or_default().add(&totals);
                }
                let sum = counts.entry(function.function).or_default();
                *sum = (sum.0.saturating_add(seen), sum.1.saturating_add(shown));
            }
        }
        if frees {
            // SAFETY: the area lies in the mapping, and nobody counts there any more. The mapping is a file's memory
            // and no other kind.
            unsafe { libc::madvise(start.cast(), AREA_SIZE, libc::MADV_REMOVE) };
            if let Some(state) = states(arena).get(area.index) {
                state.store(FREE, Ordering::Release);
            }
        }
    }

    /// Returns the functions with `sample=auto`: their slots, the code for executions that are not chosen, and the sums
    /// so far.
    pub fn adapting(&self, arena: &ArenaMemory) -> Vec<(u32, Passing, Totals)> {
        let adapts =
            |(_, function): &(&u32, &SampledFunction)| function.sampling.kind == SampleKind::Auto;
        let mut functions: Vec<(u32, Passing)> = self
            .functions
            .iter()
            .filter(adapts)
            .map(|(slot, function)| (*slot, function.passing))
            .collect();
        functions.sort_unstable_by_key(|(slot, _)| *slot);
        let places: Vec<*mut u8> = match functions.is_empty() {
            true => Vec::new(),
            false => areas(arena)
                .iter()
                .filter_map(|area| place(arena, area.index))
                .collect(),
        };
        let totals = |(slot, passing): (u32, Passing)| {
            let mut totals = self.totals.get(&slot).copied().unwrap_or_default();
            for area in &places {
                totals.add(&read(*area, slot));
            }
            (slot, passing, totals)
        };
        functions.into_iter().map(totals).collect()
    }

    /// Sets how densely executions of a slot's function are chosen from now on.
    pub fn set_pace(&self, arena: &ArenaMemory, slot: u32, pace: Pace) {
        if let Some(choice) = choice(arena, slot) {
            choice.parameter.store(pace.0, Ordering::Relaxed);
        }
    }

    /// Returns the note for the end about functions that were called and of which no execution was chosen.
    pub fn note(&self) -> Option<TraceNote> {
        let is_counted = |function: &&SampledFunction| {
            function.tree && function.sampling.kind == SampleKind::Every
        };
        let mut unchosen = (0_u64, 0_u64);
        for function in self.functions.values().filter(is_counted) {
            let counts = self
                .ended
                .values()
                .filter_map(|c| c.get(&function.function));
            let (seen, shown) = counts.fold((0, 0), |sum: Counts, (seen, shown)| {
                (sum.0.saturating_add(*seen), sum.1.saturating_add(*shown))
            });
            if seen > 0 && shown == 0 {
                unchosen = (unchosen.0 + 1, unchosen.1.saturating_add(seen));
            }
        }
        let (functions, executions) = unchosen;
        (functions > 0).then_some(TraceNote::NothingChosen {
            functions,
            executions,
        })
    }

    /// Returns the journal entries with the counts of all streams, for the end.
    pub fn journal(&self) -> impl Iterator<Item = JournalEntry> + '_ {
        self.ended
            .iter()
            .map(|(stream, counts)| JournalEntry::Counted {
                stream: *stream,
                functions: counts
                    .iter()
                    .map(|(function, (seen, shown))| FunctionCounts {
                        function: *function,
                        seen: *seen,
                        shown: *shown,
                    })
                    .collect(),
            })
    }
}

/// Returns the areas in which threads count, or counted before they ended.
pub fn areas(arena: &ArenaMemory) -> Vec<Area> {
    let area = |(index, state): (usize, &AtomicU32)| {
        let state = state.load(Ordering::Acquire);
        if !matches!(state, BUSY | ENDED) {
            return None;
        }
        let header = header(place(arena, index)?);
        Some(Area {
            index,
            has_ended: state == ENDED,
            stream: header.stream.load(Ordering::Relaxed),
            thread: (
                header.pid.load(Ordering::Relaxed),
                header.tid.load(Ordering::Relaxed),
            ),
        })
    };
    states(arena).iter().enumerate().filter_map(area).collect()
}

fn states(arena: &ArenaMemory) -> &[AtomicU32] {
    match arena.counters() {
        // SAFETY: the areas' states begin there, in the mapping.
        Some(start) => unsafe { std::slice::from_raw_parts(start.cast(), AREAS) },
        None => &[],
    }
}

/// Returns the way in which executions are chosen, as the user writes it behind `sample=`. Its times are in
/// nanoseconds.
pub fn how(sampling: &Sampling) -> String {
    let parameter = sampling.parameter;
    match sampling.kind {
        SampleKind::Every => parameter.to_string(),
        SampleKind::Random => format!("1/{}", rounded(Pace(parameter).interval())),
        SampleKind::Rate => format!("{}/s", rounded(1e9 / parameter.max(1) as f64)),
        SampleKind::Auto => "auto".to_owned(),
        SampleKind::Tail => format!("p{}", parameter as f64 / 100.0),
        SampleKind::All => String::new(),
    }
}

/// Rounds a number to six digits.
fn rounded(number: f64) -> f64 {
    let scale = 10_f64.powi(5 - number.abs().max(1e-9).log10().floor() as i32);
    (number * scale).round() / scale
}

fn place(arena: &ArenaMemory, index: usize) -> Option<*mut u8> {
    let start = arena.counters()?;
    (index < AREAS).then(|| start.wrapping_add(FIRST_AREA + index * AREA_SIZE))
}

fn header<'a>(area: *mut u8) -> &'a AreaHeader {
    // SAFETY: an area of the mapping, as `place` returns them; its header is atomics.
    unsafe { &*area.cast() }
}

fn choice(arena: &ArenaMemory, slot: u32) -> Option<&SampledSlot> {
    let start = arena.counters()?;
    // SAFETY: the table of choices begins there, and holds atomics.
    (slot as usize)
        .lt(&SLOTS)
        .then(|| unsafe { &*start.add(CHOICES).cast::<SampledSlot>().add(slot as usize) })
}

/// Reads a slot's counts from an area. The counts of a thread that runs may be a few off.
fn read(area: *mut u8, slot: u32) -> Totals {
    if slot as usize >= SLOTS {
        return Totals::default();
    }
    // SAFETY: all three lie in the area, and any bytes are a sampler. A thread that runs may be writing: a torn value
    // is only a wrong number.
    let (left, mut sampler, cost) = unsafe {
        (
            ptr::read_volatile(area.add(word(slot)).cast::<u64>()),
            ptr::read_volatile(area.add(sampler(slot)).cast::<Sampler>()),
            ptr::read_volatile(area.add(cost(slot)).cast::<u64>()),
        )
    };
    sampler.left = left;
    Totals {
        seen: sampler.seen(),
        shown: sampler.shown(),
        bytes: cost,
    }
}
