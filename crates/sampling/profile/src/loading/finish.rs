//! The profile of what was read: at the end of a recording, or while it goes on.

use super::load::Loader;
use crate::counts::sample_keys::SampleKeys;
use crate::loading::counters::FrozenCounts;
use crate::loading::details::Details;
use crate::loading::losses::Losses;
use crate::processes::mappings::MappingLog;
use crate::processes::modules::Modules;
use crate::processes::tasks::Tasks;
use crate::profile::{EventProfile, Profile};
use crate::stacks::call_stacks::Stacks;
use crate::stacks::frames::Frames;
use crate::switches::SwitchLog;
use dioptra_perfdata::Features;
use std::sync::Arc;

/// The tables of a profile, which a loader gives away at its end and copies while it goes on.
struct Tables {
    frames: Frames,
    stacks: Stacks,
    modules: Modules,
    tasks: Tasks,
    keys: SampleKeys,
    /// By event.
    counts: Vec<FrozenCounts>,
    mapping_log: MappingLog,
    details: Details,
    switches: SwitchLog,
}

impl Loader<'_> {
    /// Returns the profile of all records that were read.
    pub(super) fn finish(mut self) -> Profile {
        self.count_waiting();
        if let Some(mut waits) = self.waits.take() {
            for wait in waits.finish(&self.system.tasks) {
                self.count_wait(wait);
            }
            self.losses.off_cpu = waits.counts;
        }
        let losses = self.losses_so_far();
        let details = self.collectors.take().map(|all| all.finish());
        let counters = std::mem::take(&mut self.counting.counters);
        let mut tables = Tables {
            frames: std::mem::take(&mut self.stacking.frames),
            stacks: std::mem::take(&mut self.stacking.stacks),
            keys: std::mem::take(&mut self.identifier.keys),
            mapping_log: self.system.take_mapping_log(),
            modules: std::mem::take(&mut self.system.modules),
            tasks: std::mem::take(&mut self.system.tasks),
            counts: counters.finish(),
            details: details.unwrap_or_default(),
            switches: std::mem::take(&mut self.switches),
        };
        tables.frames.freeze();
        tables.stacks.freeze();
        tables.keys.freeze();
        self.assemble(tables, losses)
    }

    /// Returns the profile of the records so far. Branches, memory samples, switches and mappings are left out: they are
    /// kept as sums that only the end completes.
    pub(super) fn snapshot(&mut self) -> Profile {
        self.settle_all();
        self.count_waiting();
        let losses = self.losses_so_far();
        let tables = Tables {
            frames: self.stacking.frames.frozen(),
            stacks: self.stacking.stacks.frozen(),
            keys: self.identifier.keys.frozen(),
            modules: self.system.modules.clone(),
            tasks: self.system.tasks.clone(),
            counts: self.counting.counters.frozen(),
            mapping_log: MappingLog::default(),
            details: Details::default(),
            switches: SwitchLog::default(),
        };
        self.assemble(tables, losses)
    }

    fn losses_so_far(&self) -> Losses {
        let mut losses = self.losses.clone();
        if let Some(waits) = &self.waits {
            losses.off_cpu = waits.counts;
        }
        if let Some(unwinding) = &self.unwinding {
            losses.unwinding = unwinding.counts;
            losses.unwinding_notes = unwinding.notes();
        }
        losses.unsampled.clone_from(&self.features().unsampled);
        losses.spaces_not_copied = self.system.budget.refused();
        losses.jit_dumps_without_times = self.system.jit.untimed;
        losses.jit_dumps_refused = self.system.jit.refused;
        losses
    }

    fn assemble(&self, mut tables: Tables, losses: Losses) -> Profile {
        tables.tasks.freeze(&tables.modules);
        let described = self.events.iter().zip(self.data.events());
        let counted = tables.counts.into_iter().zip(&self.counting.events);
        let events = described
            .zip(counted)
            .enumerate()
            .map(|(index, (read, counted))| {
                let ((reader, description), (counts, sums)) = (read, counted);
                let kernel_entry = reader.kernel_entry.as_ref().filter(|_| !reader.waits);
                EventProfile {
                    name: description.name.clone(),
                    attr: description.attr.clone(),
                    all: sums.all,
                    total: sums.total,
                    has_chains: reader.has_chains,
                    weighs_events: reader.shape.weighs_events(&description.attr),
                    is_set_aside: self.plan.set_aside.contains(&index),
                    is_off_cpu: reader.waits,
                    running: self.counting.running.of_event(index),
                    counts: counts.all,
                    in_kernel: kernel_entry.map(|_| counts.in_kernel),
                }
            })
            .collect();
        let release = self.features().os_release.clone();
        Profile {
            options: self.plan.options,
            by_cpu: self.plan.cpus,
            events,
            frames: Arc::new(tables.frames),
            stacks: Arc::new(tables.stacks),
            sample_keys: Arc::new(tables.keys),
            sockets: sockets(self.features()),
            start: self.identifier.first_time,
            stack_order: Arc::default(),
            ends_at_thunk: Arc::default(),
            mapping_log: Arc::new(tables.mapping_log),
            recorded_kernel: self.system.recorded_kernel(release),
            imported: self.features().imported.clone(),
            modules: Arc::new(tables.modules),
            tasks: Arc::new(tables.tasks),
            details: Arc::new(tables.details),
            switch_log: Arc::new(tables.switches),
            losses,
        }
    }
}

/// Returns the socket of each CPU, where the recording states it.
fn sockets(features: &Features) -> Arc<[u32]> {
    let topology = features.cpu_topology.as_ref();
    let cpus = topology.map_or(&[][..], |topology| &topology.cpus);
    cpus.iter().map(|(_, socket)| *socket).collect()
}
