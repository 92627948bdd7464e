//! Errors for filters that let no sample pass: the filter that matches nothing, and the names that it may have meant.

use super::profiles::{cpu_list, is_stdin, open};
use anyhow::bail;
use dioptra_profile::{
    Dimension, LoadOptions, LoadPlan, Names, Profile, SampleFilter, UNKNOWN, aggregate,
};
use dioptra_symbols::SymbolOptions;
use std::collections::BTreeMap;
use std::path::Path;

/// The number of names that an error lists.
const MOST_TOLD: usize = 5;

/// The filters of a command, with the options that find names.
pub struct Filters<'a> {
    pub samples: &'a SampleFilter,
    pub modules: &'a [String],
    pub functions: &'a [String],
    pub symbols: &'a SymbolOptions,
}

impl Filters<'_> {
    fn is_empty(&self) -> bool {
        self.samples.is_empty() && self.modules.is_empty() && self.functions.is_empty()
    }

    /// Fails if the profiles have samples and none of them passes.
    pub fn check(&self, profiles: &[(&Path, &Profile)]) -> anyhow::Result<()> {
        let events = || profiles.iter().flat_map(|(_, profile)| profile.events());
        let passes = events().any(|event| event.total().samples > 0);
        let has_samples = events().any(|event| event.unfiltered().samples > 0);
        if self.is_empty() || passes || !has_samples {
            return Ok(());
        }
        let mut known = Known::default();
        for (path, _) in profiles.iter().filter(|(path, _)| !is_stdin(path)) {
            known.add(path, self)?;
        }
        let SampleFilter {
            comms,
            tids,
            cpus,
            time,
        } = self.samples;
        let tids: Vec<String> = tids.iter().map(u32::to_string).collect();
        let names = [
            ("--comm", comms, &known.comms),
            ("--tid", &tids, &known.tids),
            ("--dso", &self.modules.to_vec(), &known.modules),
            ("--symbol", &self.functions.to_vec(), &known.functions),
        ];
        for (option, wanted, known) in names {
            let matches = wanted.iter().any(|name| known.contains_key(name));
            if !wanted.is_empty() && !matches && !known.is_empty() {
                bail!(
                    "{option} {}: no sample has it; {}",
                    wanted.join(","),
                    nearest(wanted, known)
                );
            }
        }
        if !cpus.is_empty() && !known.cpus.is_empty() {
            let matches = known
                .cpus
                .iter()
                .any(|cpu| cpus.iter().any(|range| range.contains(cpu)));
            if !matches {
                bail!(
                    "--cpu: no sample was taken there; there are samples on CPUs {}",
                    cpu_list(&known.cpus)
                );
            }
        }
        if let Some(length) = known.length
            && time.0.is_some_and(|from| from > length)
        {
            bail!(
                "--time: the last sample was taken {:.3} s after the first one",
                length as f64 / 1e9
            );
        }
        bail!("no sample passes the filters");
    }
}

/// All names that samples have, each with its number of samples.
#[derive(Default)]
struct Known {
    comms: BTreeMap<String, u64>,
    tids: BTreeMap<String, u64>,
    modules: BTreeMap<String, u64>,
    functions: BTreeMap<String, u64>,
    cpus: Vec<u32>,
    /// The nanoseconds between the first and the last sample.
    length: Option<u64>,
}

impl Known {
    /// Reads a profile again without the filters, and adds its names.
    fn add(&mut self, path: &Path, filters: &Filters<'_>) -> anyhow::Result<()> {
        let recording = open(path)?;
        let by_time = filters.samples.time != (None, None);
        let profile = Profile::load_with(
            &recording.data,
            &LoadPlan {
                set_aside: recording.set_aside(),
                options: LoadOptions {
                    call_chains: false,
                    threads: true,
                },
                cpus: !filters.samples.cpus.is_empty(),
                log: by_time,
                symbols: filters.symbols.clone(),
                ..LoadPlan::default()
            },
        );
        let names = match filters.functions {
            [] => Names::default(),
            _ => Names::find(&profile, filters.symbols.clone()),
        };
        let tasks = profile.tasks();
        let modules = profile.modules();
        let each = |dimension| {
            let events = profile.sampled_events();
            let rows = aggregate(&profile, &names, dimension, &events).into_iter();
            rows.map(|row| {
                let samples = row
                    .counts
                    .iter()
                    .map(|count| count.own.samples)
                    .sum::<u64>();
                (row.key, samples)
            })
            .filter(|(_, samples)| *samples > 0)
            .collect::<Vec<_>>()
        };
        for (key, samples) in each(Dimension::Comm) {
            if let Some(comm) = tasks.comms().get(key as usize) {
                *self.comms.entry(comm.clone()).or_default() += samples;
            }
        }
        for (key, samples) in each(Dimension::Thread) {
            if let Some(thread) = tasks.threads().get(key as usize) {
                *self.tids.entry(thread.tid.to_string()).or_default() += samples;
            }
        }
        for (key, samples) in each(Dimension::Module) {
            let module = modules.get(key);
            let path = String::from_utf8_lossy(&module.path).into_owned();
            for name in [module.label.clone(), path] {
                *self.modules.entry(name).or_default() += samples;
            }
        }
        if !names.functions().is_empty() {
            for (key, samples) in each(Dimension::Function) {
                let name = &names.functions()[key as usize].name;
                *self.functions.entry(name.clone()).or_default() += samples;
            }
        }
        if !filters.samples.cpus.is_empty() {
            let cpus = each(Dimension::Cpu).into_iter().map(|(key, _)| key);
            self.cpus.extend(cpus.filter(|cpu| *cpu != u32::MAX));
        }
        if by_time {
            let one = dioptra_profile::Slices::Number(std::num::NonZeroU32::MIN);
            let end = profile.time_slices(one).map(|slices| slices.span(0).1);
            self.length = self.length.max(end);
        }
        Ok(())
    }
}

/// Returns `did you mean …` with the known names nearest to a wanted one, or else the names with most samples.
fn nearest(wanted: &[String], known: &BTreeMap<String, u64>) -> String {
    let lower: Vec<String> = wanted.iter().map(|name| name.to_lowercase()).collect();
    let mut near: Vec<(usize, u64, usize, &str)> = Vec::new();
    let named = known
        .iter()
        .filter(|(name, _)| *name != UNKNOWN && !name.is_empty());
    for (name, samples) in named.clone() {
        let own = name.to_lowercase();
        let least = lower
            .iter()
            .filter_map(|wanted| likeness(wanted, &own))
            .min();
        near.extend(least.map(|least| (least, u64::MAX - samples, name.len(), &**name)));
    }
    near.sort_unstable();
    let shown = |names: Vec<&str>| {
        let names: Vec<String> = names.into_iter().map(dioptra_tables::escape).collect();
        names.join(", ")
    };
    if !near.is_empty() {
        let names = near.into_iter().map(|(.., name)| name).take(MOST_TOLD);
        return format!("did you mean {}?", shown(names.collect()));
    }
    let mut most: Vec<(u64, &str)> = named.map(|(name, samples)| (*samples, &**name)).collect();
    most.sort_unstable_by_key(|(samples, name)| (std::cmp::Reverse(*samples), *name));
    let names = most.into_iter().map(|(_, name)| name).take(MOST_TOLD);
    format!("most samples have {}", shown(names.collect()))
}

/// Returns the distance of two names: 0 if one contains the other, else the number of edits. `None` if more than a
/// third of `wanted` would have to change.
fn likeness(wanted: &str, known: &str) -> Option<usize> {
    if wanted.is_empty() {
        return None;
    }
    if known.contains(wanted) || wanted.contains(known) {
        return Some(0);
    }
    let distance = distance(wanted, known);
    (distance <= wanted.chars().count().div_ceil(3)).then_some(distance)
}

/// Returns the number of characters to insert, leave out or replace.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, own) in left.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for (at, other) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(own != *other);
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(row[at] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::{distance, likeness, nearest};
    use std::collections::BTreeMap;

    #[test]
    fn names_that_are_near() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(likeness("sixt", "sixty"), Some(0));
        assert_eq!(likeness("sixtz", "sixty"), Some(1));
        assert_eq!(likeness("xyz", "main"), None);
        let known = [("sixty", 60), ("ten", 10), ("sixteen", 1)];
        let known: BTreeMap<String, u64> = known
            .map(|(name, samples)| (name.to_owned(), samples))
            .into();
        let of = |wanted: &str| nearest(&[wanted.to_owned()], &known);
        assert_eq!(of("SIXTZ"), "did you mean sixty?");
        assert_eq!(of("sixt"), "did you mean sixty, sixteen?");
        assert_eq!(of("zzz"), "most samples have sixty, ten, sixteen");
    }
}
