//! The groups of events of `dioptra record`: some are sampled, some are counted over windows.

use super::arguments::{ArgumentError, Arguments};
use super::metrics::events_for;
use super::windows;
use crate::metric_sets::{ChosenColumns, MetricSets};
use dioptra_perfevents::{Attr, EventGroup, parse_events};
use dioptra_recorder::counters::{
    MachineCounters, Turns, Watched, WhyUntold, takes_a_counter, tell_turns,
};
use dioptra_recorder::sample_options::{CallGraph, Rate, SampleOptions};
use dioptra_recorder::spec::RecordTarget;
use dioptra_windows::record::WindowSettings;

/// The events to record unless the user names others.
const DEFAULT_EVENTS: &str = "cycles";

/// Leaves out groups that count what an earlier one counts. Their samples would be the same moments again, in columns of the
/// same name.
fn each_once(groups: Vec<EventGroup>, say: &mut dyn FnMut(&str)) -> Vec<EventGroup> {
    let attrs = |group: &EventGroup| -> Vec<Attr> {
        let events = group.events.iter();
        events.map(|event| event.attr.clone()).collect()
    };
    let mut kept: Vec<EventGroup> = Vec::new();
    for group in groups {
        let is_same = |known: &EventGroup| {
            known.sample_group == group.sample_group && attrs(known) == attrs(&group)
        };
        if kept.iter().any(is_same) {
            let names: Vec<&str> = group.events.iter().map(|event| &*event.name).collect();
            let names = names.join(",");
            say(&format!("{names} is given twice, and recorded once"));
        } else {
            kept.push(group);
        }
    }
    kept
}

impl Arguments {
    pub(super) fn groups(
        &self,
        say: &mut dyn FnMut(&str),
    ) -> Result<Vec<EventGroup>, ArgumentError> {
        if self.event.is_empty() && self.metrics.is_empty() {
            return default_events();
        }
        let mut groups = Vec::new();
        for text in &self.event {
            groups.extend(parse(text)?);
        }
        let mut groups = each_once(groups, say);
        if !self.metrics.is_empty() && self.windows.is_none() {
            self.add_metrics(&mut groups, say)?;
        }
        Ok(groups)
    }

    /// Returns the settings of the windows, and moves the groups that they count out of the groups to sample. Sets the
    /// sampling rate in `samples`, unless the user gave a period.
    pub(super) fn windows(
        &self,
        groups: &mut Vec<EventGroup>,
        samples: &mut SampleOptions,
        say: &mut dyn FnMut(&str),
    ) -> Result<Option<WindowSettings>, ArgumentError> {
        let Some(text) = &self.windows else {
            return Ok(None);
        };
        let (request, source) = windows::request(text)?;
        if matches!(
            samples.call_graph,
            Some(CallGraph::Dwarf { .. } | CallGraph::Lbr)
        ) {
            say("windows have no call paths, which take frame pointers: --call-graph fp");
        }
        let mut counted = windows::take_groups(groups);
        let (mut counters, _) = self.counters()?;
        if !self.metrics.is_empty() {
            let found = self.metric_events(&mut counters, say)?;
            counted.extend(windows::led(found, &mut counters));
        }
        if groups.is_empty() {
            // The ranking of functions needs an event to sample.
            groups.extend(default_events()?);
        }
        let mut options = windows::options(&request, source, counted, &mut counters, say)?;
        // A window that ends in the kernel belongs to the function that entered it.
        samples.kernel_entry = true;
        let cost = windows::cost(&options, samples.of_group_reads());
        let rate = windows::fit(&mut options, &request, self.frequency, cost, say);
        if self.count.is_none() {
            samples.rate = Rate::Frequency(rate);
        }
        Ok(Some(options))
    }

    /// Returns the counters for the target's events, and whether they count for whole CPUs.
    fn counters(&self) -> Result<(MachineCounters, bool), ArgumentError> {
        let wide = matches!(
            self.target()?,
            RecordTarget::Machine(_) | RecordTarget::Cgroup { .. }
        );
        let counters = if wide {
            let first = self.cpu.as_ref().and_then(|cpus| cpus.iter().next());
            MachineCounters::of_cpu(first.unwrap_or(0))
        } else {
            MachineCounters::of_threads()
        };
        Ok((counters, wide))
    }

    /// Returns the groups of events that the metrics need.
    fn metric_events(
        &self,
        counters: &mut MachineCounters,
        say: &mut dyn FnMut(&str),
    ) -> Result<Vec<EventGroup>, ArgumentError> {
        let sets = MetricSets::for_this_machine(self.pmu_data.as_deref());
        let sets = sets.map_err(ArgumentError::Metrics)?;
        if let Some(published) = sets.published() {
            for skipped in published.skipped() {
                say(skipped);
            }
        }
        let chosen: anyhow::Result<Vec<ChosenColumns>> =
            self.metrics.iter().map(|name| sets.choose(name)).collect();
        let found = events_for(&chosen.map_err(ArgumentError::Metrics)?, counters)
            .map_err(ArgumentError::NothingToCount)?;
        for note in &found.notes {
            say(note);
        }
        Ok(found.groups)
    }

    /// Adds the groups of events that the metrics need.
    fn add_metrics(
        &self,
        groups: &mut Vec<EventGroup>,
        say: &mut dyn FnMut(&str),
    ) -> Result<(), ArgumentError> {
        let (mut counters, wide) = self.counters()?;
        groups.extend(self.metric_events(&mut counters, say)?);
        let takes_turns = |group: &&EventGroup| {
            group
                .events
                .iter()
                .any(|event| takes_a_counter(&event.attr))
        };
        let turns = groups.iter().filter(takes_turns).count();
        let watched = if wide {
            Watched::Cpus
        } else {
            Watched::Threads {
                inherit: !self.no_inherit,
            }
        };
        let then = match tell_turns(groups, watched) {
            Turns::None => return Ok(()),
            Turns::Told => "and its counts are scaled",
            Turns::Untold(WhyUntold::Kernel) => {
                "and its counts are not scaled, since this kernel (before Linux 6.12) cannot tell for how long it \
                 counted in threads that inherit it; ask for fewer metrics, or record with -a"
            }
            Turns::Untold(WhyUntold::NotInherited) => {
                "and its counts are not scaled, since that needs events that threads inherit; leave --no-inherit out, \
                 or record with -a"
            }
        };
        say(&format!(
            "{turns} groups of events take turns on the counters: each is counted for about 1/{turns} of the time, \
             {then}"
        ));
        Ok(())
    }
}

fn parse(text: &str) -> Result<Vec<EventGroup>, ArgumentError> {
    parse_events(text).map_err(|error| ArgumentError::Events {
        text: text.to_owned(),
        error,
    })
}

fn default_events() -> Result<Vec<EventGroup>, ArgumentError> {
    parse(DEFAULT_EVENTS)
}
