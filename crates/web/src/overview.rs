//! `/api/profile`: what a recording holds.

use crate::api::{EventInfo, ProfileAnswer, ProfileCounts, ProfileHas};
use crate::loaded::{Loaded, NamesWanted};
use crate::{metrics, texts};
use dioptra_report::profile_facts;
use std::collections::BTreeSet;

/// Answers `/api/profile`.
pub(crate) fn answer(loaded: &Loaded) -> ProfileAnswer {
    let profile = &loaded.profile;
    let sampled = profile.sampled_events();
    let events = profile.events().iter().enumerate();
    let events = events.map(|(index, event)| EventInfo {
        key: loaded.keys.event(index),
        name: texts::name(event.name()),
        unit: texts::unit(event),
        samples: event.total().samples,
        weight: event.total().weight,
        has_chains: event.has_chains(),
        is_scaled: event.is_scaled(),
        sampled: sampled.contains(&index),
    });
    let names = &loaded.named(NamesWanted::Functions).names;
    let cpus: BTreeSet<u32> = profile
        .sample_keys()
        .iter()
        .filter_map(|key| key.cpu)
        .collect();
    let tasks = profile.tasks();
    let numbers = 0..profile.events().len();
    ProfileAnswer {
        profile: loaded.index,
        generation: loaded.generation,
        label: loaded.label.clone(),
        path: loaded.path.clone(),
        size_bytes: loaded.size,
        machine: loaded.machine.clone(),
        command_line: loaded
            .command_line
            .iter()
            .map(|word| texts::name(word))
            .collect(),
        recorder: loaded.recorder.clone(),
        duration_ns: loaded.duration,
        first_time_ns: profile.first_time(),
        events: events.collect(),
        default_events: sampled
            .iter()
            .map(|index| loaded.keys.event(*index))
            .collect(),
        has: ProfileHas {
            chains: loaded.has_chains(),
            times: loaded.duration.is_some(),
            cpus: loaded.has_cpus,
            branches: numbers
                .clone()
                .any(|event| profile.branches(event).is_some()),
            windows: loaded.has_windows(),
            memory: numbers.clone().any(|event| profile.memory(event).is_some()),
        },
        counts: ProfileCounts {
            processes: tasks.processes().len(),
            threads: tasks.threads().len(),
            modules: profile.modules().len(),
            functions: names.functions().len(),
            cpus: cpus.len(),
        },
        metrics: metrics::offered(loaded),
        default_metrics: loaded.default_metrics.clone(),
        facts: texts::facts(&profile_facts(profile, names, &sampled)),
    }
}
