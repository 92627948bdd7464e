//! The loader's entry to the analysis of branch stacks.

use super::collect::{Collector, Owner, RecentEdges};
use super::{BranchFilter, BranchProfile, Counted};
use crate::profile::Profile;
use crate::stacks::frames::Frames;
use dioptra_perfdata::PerfData;
use dioptra_perfrecords::SampleType;
use dioptra_perfrecords::record::Sample;

/// The branches of all events while they are read.
#[derive(Debug)]
pub(crate) struct Branches {
    /// By event; `None` for those without branches.
    events: Vec<Option<Collector>>,
    recent: RecentEdges,
}

impl Branches {
    /// Makes the collectors; `None` where no event has branch stacks.
    pub(crate) fn new(data: &PerfData) -> Option<Self> {
        let cpuid = data.features().cpuid.as_deref().unwrap_or_default();
        let events: Vec<Option<Collector>> = data
            .events()
            .iter()
            .enumerate()
            .map(|(index, event)| {
                let filter = BranchFilter(event.attr.branch_sample_type);
                let has_branches = event.attr.sample_type.contains(SampleType::BRANCH_STACK)
                    && !filter.is_call_stack();
                let counted = Counted::of(&event.name, &event.attr, cpuid);
                has_branches.then(|| {
                    Collector::new(
                        index,
                        event.layout.order(),
                        BranchProfile::new(filter, counted),
                    )
                })
            })
            .collect();
        let any = events.iter().any(Option::is_some);
        any.then(|| Branches {
            events,
            recent: RecentEdges::default(),
        })
    }

    /// Returns whether an event's samples have branch stacks.
    #[inline]
    pub(crate) fn has(&self, event: usize) -> bool {
        self.events.get(event).is_some_and(Option::is_some)
    }

    /// Adds the branch stack of a sample that stands for `period` events.
    pub(crate) fn add(
        &mut self,
        event: usize,
        sample: &Sample<'_>,
        period: u64,
        owner: Owner,
        frames: &mut Frames,
        resolve: impl FnMut(u64, &mut Frames) -> u32,
    ) {
        if let (Some(Some(collector)), Some(stack)) = (self.events.get_mut(event), &sample.branches)
        {
            let recent = &mut self.recent;
            collector.add(stack, period, owner, recent, frames, resolve);
        }
    }

    /// Notes that records are missing.
    pub(crate) fn lost(&mut self) {
        for collector in self.events.iter_mut().flatten() {
            collector.forget_windows();
        }
    }

    /// Returns the branches that were read, by event.
    pub(crate) fn finish(self) -> Vec<Option<Box<BranchProfile>>> {
        let finished = |collector: Collector| {
            let mut profile = collector.profile;
            profile.freeze();
            Box::new(profile)
        };
        let events = self.events.into_iter();
        events.map(|event| event.map(finished)).collect()
    }
}

impl Profile {
    /// Returns the branches of an event's samples. `None` where they hold no branches (or a stack of open calls), or
    /// where [`crate::LoadPlan::branches`] did not ask for them. The branches come from the samples that pass the
    /// plan's filter. A profile that was narrowed afterwards ([`Profile::select`], [`Profile::retain_samples`]) has
    /// none; see [`Profile::dropped`].
    pub fn branches(&self, event: usize) -> Option<&BranchProfile> {
        self.details.branches.get(event)?.as_deref()
    }
}
