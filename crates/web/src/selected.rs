//! The samples that a request is about.

use crate::api::SelectionRequest;
use crate::cache::MemorySize;
use crate::failure::Failure;
use crate::loaded::{Loaded, Named, NamesWanted};
use crate::server::Shared;
use dioptra_profile::{Dimension, FunctionId, Profile, Selection};
use dioptra_report::{Blocks, Input, TableEvent};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Which samples are selected, whatever events are shown: the key of selections that are kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SelectionKey {
    pub profile: usize,
    pub generation: u64,
    request: SelectionRequest,
}

impl SelectionKey {
    /// The selection's conditions.
    pub(crate) fn request(&self) -> &SelectionRequest {
        &self.request
    }

    /// The start of the selected time, in nanoseconds since the first sample.
    pub(crate) fn start(&self) -> u64 {
        self.request.time.and_then(|(start, _)| start).unwrap_or(0)
    }
}

/// A profile with the selected samples only.
pub(crate) struct SelectedProfile {
    profile: Arc<Profile>,
    is_everything: bool,
}

impl MemorySize for SelectedProfile {
    fn bytes(&self) -> usize {
        // The whole profile is there anyway. A selection has counts of its own for each event: by place and part, of which
        // there are about as many as stacks and frames.
        // Sums by frame, and the counts sorted by frame, come on first use.
        let (stacks, frames) = (self.profile.stacks().len(), self.profile.frames().len());
        match self.is_everything {
            true => 1,
            false => 1 + (20 * stacks + 40 * frames) * self.profile.events().len(),
        }
    }
}

/// The selected samples of a request, their names, and the events to show.
pub(crate) struct Selected {
    pub key: SelectionKey,
    pub loaded: Arc<Loaded>,
    pub profile: Arc<Profile>,
    pub wanted: NamesWanted,
    pub events: Vec<usize>,
}

impl Selected {
    /// Selects samples, or finds them among the selections that are kept.
    pub(crate) fn of(
        shared: &Shared,
        request: &SelectionRequest,
        lines: bool,
    ) -> Result<Selected, Failure> {
        let loaded = shared.profiles.get(request.profile, request.generation)?;
        let wanted = match (request.inlined, lines) {
            (true, _) => NamesWanted::Inlined,
            (false, true) => NamesWanted::Lines,
            (false, false) => NamesWanted::Functions,
        };
        let events = events(&loaded, &request.event)?;
        let key = SelectionKey {
            profile: loaded.index,
            generation: loaded.generation,
            request: SelectionRequest {
                profile: None,
                generation: None,
                event: Vec::new(),
                ..request.clone()
            },
        };
        let selected = shared.selections.get(key.clone(), || {
            let selection = selection(&loaded, request, wanted)?;
            let is_everything = selection == Selection::default();
            Ok(SelectedProfile {
                profile: match is_everything {
                    true => Arc::clone(&loaded.profile),
                    false => Arc::new(loaded.profile.select(&selection)?),
                },
                is_everything,
            })
        })?;
        Ok(Selected {
            key,
            profile: Arc::clone(&selected.profile),
            wanted,
            events,
            loaded,
        })
    }

    /// Whether all samples are selected.
    pub(crate) fn is_everything(&self) -> bool {
        Arc::ptr_eq(&self.profile, &self.loaded.profile)
    }

    pub(crate) fn named(&self) -> &Arc<Named> {
        self.loaded.named(self.wanted)
    }

    /// The basic blocks, if levels need them.
    pub(crate) fn blocks(&self, by: &[Dimension]) -> Option<Arc<Blocks>> {
        let blocks = by
            .contains(&Dimension::Block)
            .then(|| self.loaded.blocks(self.wanted))?;
        Some(match self.is_everything() {
            true => blocks,
            false => Arc::new(blocks.of_selection(&self.profile, &self.named().names)),
        })
    }

    /// For tables.
    pub(crate) fn input(&self) -> Input<'_> {
        Input {
            profile: &self.profile,
            names: &self.named().names,
            blocks: None,
            shapes: None,
            label: &self.loaded.path,
        }
    }

    /// For tables.
    pub(crate) fn table_events(&self) -> Vec<TableEvent> {
        let events = self.events.iter();
        events
            .map(|index| TableEvent {
                name: self.profile.events()[*index].name().to_owned(),
                of: vec![Some(*index)],
            })
            .collect()
    }

    /// The first event that is shown.
    pub(crate) fn first_event(&self) -> Result<usize, Failure> {
        let first = self.events.first().copied();
        first.ok_or_else(|| Failure::NotRecorded {
            text: "the profile has no event that takes samples".to_owned(),
            remedy: "record one, such as dioptra record -e cpu-clock",
        })
    }
}

/// The events with these keys; without keys all that sampled.
fn events(loaded: &Loaded, wanted: &[String]) -> Result<Vec<usize>, Failure> {
    if wanted.is_empty() {
        return Ok(loaded.profile.sampled_events());
    }
    let each = wanted.iter().map(|key| loaded.keys.find_event(key));
    let events: Vec<usize> = each.collect::<Result<_, _>>()?;
    let is_repeated = |place: usize| events[..place].contains(&events[place]);
    match (0..events.len()).any(is_repeated) {
        true => Err(Failure::parameter("event", "names an event twice")),
        false => Ok(events),
    }
}

/// `2`, `0-3`, several with commas.
pub(crate) fn cpus(lists: &[String]) -> Result<Vec<RangeInclusive<u32>>, Failure> {
    let wrong = || Failure::parameter("cpu", "is a list of CPUs such as 0,2-5");
    let ranges = lists.iter().flat_map(|list| list.split(','));
    ranges
        .map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            match (first.parse(), last.parse()) {
                (Ok(first), Ok(last)) if first <= last => Ok(first..=last),
                _ => Err(wrong()),
            }
        })
        .collect()
}

/// By function: whether it is one of those with these keys.
fn functions(loaded: &Loaded, named: &Named, keys: &[String]) -> Result<Vec<bool>, Failure> {
    let mut wanted = vec![false; named.names.functions().len()];
    for key in keys {
        let id: FunctionId = named.find_function(&loaded.keys, key)?;
        wanted[id as usize] = true;
    }
    Ok(wanted)
}

fn selection(
    loaded: &Loaded,
    request: &SelectionRequest,
    wanted: NamesWanted,
) -> Result<Selection, Failure> {
    let keys = &loaded.keys;
    let profile = &loaded.profile;
    let named = || loaded.named(wanted);
    let threads = request.thread.iter().map(|key| keys.find_thread(key));
    let processes = request.process.iter().map(|key| keys.find_process(key));
    let programs = request.program.iter().map(|key| keys.find_program(key));
    let mut selection = Selection {
        time: request.time.unwrap_or_default(),
        threads: threads.collect::<Result<_, _>>()?,
        processes: processes.collect::<Result<_, _>>()?,
        programs: programs.collect::<Result<_, _>>()?,
        comms: request.comm.clone(),
        cpus: cpus(&request.cpu)?,
        ..Selection::default()
    };
    if !request.module.is_empty() {
        let mut modules = vec![false; profile.modules().len()];
        for key in &request.module {
            modules[keys.find_module(key)? as usize] = true;
        }
        let frames = profile.frames().iter();
        let inside = frames.map(|frame| modules.get(frame.module as usize).copied());
        selection.leaves = Some(inside.map(|inside| inside.unwrap_or(false)).collect());
    }
    if !request.function.is_empty() {
        let names = &named().names;
        let wanted = functions(loaded, named(), &request.function)?;
        let mut leaves = selection
            .leaves
            .take()
            .unwrap_or_else(|| vec![true; profile.frames().len()]);
        for (passes, frame) in leaves.iter_mut().zip(0_u32..) {
            let mut chain = names.chain_of(frame, None).iter();
            *passes &= chain.any(|function| wanted[*function as usize]);
        }
        selection.leaves = Some(leaves);
    }
    if !request.through.is_empty() {
        if !loaded.has_chains() {
            return Err(Failure::no_chains());
        }
        let wanted = functions(loaded, named(), &request.through)?;
        selection.stacks = Some(profile.stacks_through(&named().names, &wanted));
    }
    Ok(selection)
}
