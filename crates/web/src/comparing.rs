//! Tables of `dioptra diff`: the changes from one profile to another.

use crate::api::TableRequest;
use crate::failure::Failure;
use crate::jobs::Ticket;
use crate::loaded::Loaded;
use crate::metrics;
use crate::other::{Other, both};
use crate::selected::Selected;
use crate::server::Shared;
use crate::tables::{KeyedTable, TableKey, TableKind, key_of, levels};
use dioptra_profile::{Dimension, Slices};
use dioptra_report::{DiffOptions, Input, Normalize, TableEvent, diff_with_keys};
use std::num::NonZeroU32;
use std::sync::Arc;

/// The table of changes of a request, and the selection of the first profile.
pub(crate) fn table(
    shared: &Shared,
    request: &TableRequest,
    ticket: &Ticket,
) -> Result<(Selected, TableKey, Arc<KeyedTable>), Failure> {
    let with = request
        .with
        .ok_or_else(|| Failure::parameter("with", "is missing"))?;
    if request.children || request.kernel_apart || request.percent.is_some() {
        return Err(Failure::parameter(
            "of",
            "diff goes without children, percent and kernel_apart",
        ));
    }
    let by = levels(request.by.as_deref())?;
    let has_lines = by.contains(&Dimension::Line);
    let first = Selected::of(shared, &request.selection, has_lines)?;
    ticket.check()?;
    let other = Other::of(shared, &first, &request.selection, with, has_lines)?;
    for selected in [&first, &other.selected] {
        crate::tables::check_levels(selected, &by)?;
    }
    let normalize = request.normalize.clone().unwrap_or_default();
    let kind = TableKind::Diff {
        with: Box::new(other.selected.key.clone()),
        normalize: normalize.clone(),
    };
    let key = key_of(&first, request, by, kind)?;
    let table = shared.tables.get(key.clone(), || {
        ticket.check()?;
        let sides = [&first, &other.selected];
        let named = sides.map(|side| side.loaded.plain_names(side.wanted));
        let shapes = [0, 1].map(|side| sides[side].loaded.shapes(sides[side].wanted));
        let input = |side: usize| Input {
            profile: &sides[side].profile,
            names: &named[side].names,
            blocks: None,
            shapes: Some(&shapes[side]),
            label: &sides[side].loaded.path,
        };
        let inputs = [input(0), input(1)];
        ticket.check()?;
        let (mut events, shown) = events(&first, &other.selected);
        let normalize = normalization(&normalize, sides, &mut events)?;
        let chosen = metrics::chosen(&first.loaded, &key.metric, key.few)?;
        let columns = chosen.columns();
        let options = DiffOptions {
            by: &key.by,
            events: &events,
            shown,
            normalize,
            few: key.few,
            metrics: &columns,
            slices: Slices::Number(key.slices),
        };
        let (mut table, keys) = diff_with_keys(&inputs, &options)?;
        table.facts.append(other.facts.clone());
        Ok(KeyedTable {
            table,
            keys,
            by: key.by.clone(),
            named: Some(Arc::clone(&named[0])),
            made: None,
        })
    })?;
    Ok((first, key, table))
}

/// The events of both profiles in the order of the request, and the number of them that have columns. Where all events of
/// the first profile are shown, those that only the other one has are, too.
fn events(first: &Selected, other: &Selected) -> (Vec<TableEvent>, usize) {
    let all = both(&first.profile, &other.profile);
    let wanted = first.events.iter();
    let of_first = |index: &usize| {
        all.iter()
            .find(|event| event.of[0] == Some(*index))
            .cloned()
    };
    let mut events: Vec<TableEvent> = wanted
        .map(|index| {
            // An event that took no samples is no event of the tables unless it was asked for.
            of_first(index).unwrap_or_else(|| TableEvent {
                name: first.profile.events()[*index].name().to_owned(),
                of: vec![Some(*index), None],
            })
        })
        .collect();
    let sampled = first.profile.sampled_events();
    if sampled.iter().all(|index| first.events.contains(index)) {
        events.extend(all.iter().filter(|event| event.of[0].is_none()).cloned());
    }
    let shown = events.len();
    (events, shown)
}

/// The seconds of a profile between its first and last sample, or within the selected time.
fn seconds(loaded: &Loaded, selected: &Selected, start: u64) -> Result<f64, Failure> {
    let slices = selected
        .profile
        .time_slices(Slices::Number(NonZeroU32::MIN));
    let slices = slices.ok_or_else(|| Failure::NotRecorded {
        text: format!("{} has no sample with a time", loaded.path),
        remedy: "normalize by an event instead, or not at all",
    })?;
    let (_, end) = slices.span(0);
    Ok(end.saturating_sub(start) as f64 / 1e9)
}

fn normalization(
    text: &str,
    sides: [&Selected; 2],
    events: &mut Vec<TableEvent>,
) -> Result<Normalize, Failure> {
    match text {
        "" | "none" => Ok(Normalize::None),
        "time" => {
            let each = sides.map(|side| seconds(&side.loaded, side, side.key.start()));
            let each: Result<Vec<f64>, Failure> = each.into_iter().collect();
            Ok(Normalize::Time(each?))
        }
        key => {
            let index = sides[0].loaded.keys.find_event(key)?;
            let all = both(&sides[0].profile, &sides[1].profile);
            let event = all.into_iter().find(|event| event.of[0] == Some(index));
            let event = event.filter(|event| event.of.iter().all(Option::is_some));
            let event = event.ok_or_else(|| Failure::NotRecorded {
                text: format!(
                    "{} has no samples of {}",
                    sides[1].loaded.path,
                    crate::texts::name(sides[0].profile.events()[index].name())
                ),
                remedy: "normalize by an event that both profiles sampled",
            })?;
            let known = events.iter().position(|known| known.of == event.of);
            Ok(Normalize::Event(known.unwrap_or_else(|| {
                events.push(event);
                events.len() - 1
            })))
        }
    }
}
