//! Tables of two profiles: those of `dioptra diff`, and reports with another profile's counts beside them.

use crate::api::TableRequest;
use crate::failure::Failure;
use crate::jobs::Ticket;
use crate::loaded::Loaded;
use crate::metrics;
use crate::other::{Other, both};
use crate::selected::Selected;
use crate::server::Shared;
use crate::tables::{KeyedTable, TableKey, TableKind, key_of, levels, need_lines};
use crate::window_columns;
use dioptra_profile::{Dimension, Slices};
use dioptra_report::{
    DiffOptions, Input, Normalize, RowKey, TableEvent, diff_with_keys, report_beside_with_keys,
};
use dioptra_tables::Table;
use std::num::NonZeroU32;
use std::sync::Arc;

/// Two selections of which a table shows both.
struct Pair {
    first: Selected,
    other: Other,
    by: Vec<Dimension>,
}

impl Pair {
    fn of(shared: &Shared, request: &TableRequest, ticket: &Ticket) -> Result<Pair, Failure> {
        let with = request
            .with
            .ok_or_else(|| Failure::parameter("with", "is missing"))?;
        let by = levels(request.by.as_deref())?;
        let has_lines = need_lines(&by);
        let first = Selected::of(shared, &request.selection, has_lines)?;
        ticket.check()?;
        let other = Other::of(shared, &first, &request.selection, with, has_lines)?;
        for selected in [&first, &other.selected] {
            crate::tables::check_levels(selected, &by)?;
        }
        Ok(Pair { first, other, by })
    }

    fn sides(&self) -> [&Selected; 2] {
        [&self.first, &self.other.selected]
    }

    /// Makes a table of both profiles, whose functions have the names by which `dioptra diff` compares.
    fn table(
        &self,
        ticket: &Ticket,
        make: impl FnOnce(&[Input<'_>; 2]) -> Result<(Table, Vec<RowKey>), Failure>,
    ) -> Result<KeyedTable, Failure> {
        ticket.check()?;
        let sides = self.sides();
        // Blocks are of functions with the names of all other tables.
        let has_blocks = self.by.contains(&Dimension::Block);
        let named = sides.map(|side| match has_blocks {
            true => Arc::clone(side.named()),
            false => side.loaded.plain_names(side.wanted),
        });
        let shapes = sides.map(|side| (!has_blocks).then(|| side.loaded.shapes(side.wanted)));
        let blocks = sides.map(|side| side.blocks(&self.by));
        let input = |side: usize| Input {
            profile: &sides[side].profile,
            names: &named[side].names,
            blocks: blocks[side].as_deref(),
            shapes: shapes[side].as_deref(),
            label: &sides[side].loaded.path,
        };
        let inputs = [input(0), input(1)];
        ticket.check()?;
        let (mut table, keys) = make(&inputs)?;
        table.facts.append(self.other.facts.clone());
        Ok(KeyedTable {
            table,
            keys,
            by: self.by.clone(),
            blocks: blocks[0].clone(),
            named: Some(Arc::clone(&named[0])),
            made: None,
        })
    }
}

/// The table of changes of a request, and the selection of the first profile.
pub(crate) fn table(
    shared: &Shared,
    request: &TableRequest,
    ticket: &Ticket,
) -> Result<(Selected, TableKey, Arc<KeyedTable>), Failure> {
    if request.children || request.kernel_apart || request.percent.is_some() {
        return Err(Failure::parameter(
            "of",
            "diff goes without children, percent and kernel_apart",
        ));
    }
    let pair = Pair::of(shared, request, ticket)?;
    let normalize = request.normalize.clone().unwrap_or_default();
    let kind = TableKind::Diff {
        with: Box::new(pair.other.selected.key.clone()),
        normalize: normalize.clone(),
    };
    let key = key_of(&pair.first, request, pair.by.clone(), kind)?;
    let table = shared.tables.get(key.clone(), || {
        let (mut events, shown) = events(&pair.first, &pair.other.selected);
        let normalize = normalization(&normalize, pair.sides(), &mut events)?;
        let chosen = metrics::chosen(&pair.first.loaded, &key.metric, key.few)?;
        let columns = chosen.columns();
        let sides = pair.sides();
        let has_windows = sides.iter().any(|side| side.loaded.has_windows());
        let of_windows = has_windows && !columns.is_empty();
        let options = DiffOptions {
            by: &key.by,
            events: &events,
            shown,
            normalize,
            few: key.few,
            metrics: if of_windows { &[] } else { &columns },
            slices: Slices::Number(key.slices),
        };
        pair.table(ticket, |inputs| {
            let (mut table, keys) = diff_with_keys(inputs, &options)?;
            if of_windows {
                let added = (&key.by[..], &columns[..]);
                window_columns::add(shared, &sides, added, &mut table, ticket)?;
            }
            Ok((table, keys))
        })
    })?;
    Ok((pair.first, key, table))
}

/// The table of a report with another profile's counts beside each column, and the selection of the first profile.
pub(crate) fn beside(
    shared: &Shared,
    request: &TableRequest,
    ticket: &Ticket,
) -> Result<(Selected, TableKey, Arc<KeyedTable>), Failure> {
    let pair = Pair::of(shared, request, ticket)?;
    let has_chains = |side: &Selected| side.loaded.has_chains() || request.selection.inlined;
    if request.children && !pair.sides().into_iter().all(has_chains) {
        return Err(Failure::no_chains());
    }
    let kind = TableKind::Beside {
        with: Box::new(pair.other.selected.key.clone()),
    };
    let key = key_of(&pair.first, request, pair.by.clone(), kind)?;
    let table = shared.tables.get(key.clone(), || {
        let all = both(&pair.first.profile, &pair.other.selected.profile);
        let events: Vec<TableEvent> = pair
            .first
            .events
            .iter()
            .map(|index| of_first(&all, &pair.first, *index))
            .collect();
        let chosen = metrics::of_samples(&pair.first.loaded, &key.metric, key.few)?;
        let columns = chosen.columns();
        let options = key.report_options(&events, &columns);
        pair.table(ticket, |inputs| {
            Ok(report_beside_with_keys(inputs, &options)?)
        })
    })?;
    Ok((pair.first, key, table))
}

/// The event of both profiles that is this one of the first. An event that took no samples is no event of the tables
/// unless it was asked for.
fn of_first(all: &[TableEvent], first: &Selected, index: usize) -> TableEvent {
    let found = all.iter().find(|event| event.of[0] == Some(index));
    found.cloned().unwrap_or_else(|| TableEvent {
        name: first.profile.events()[index].name().to_owned(),
        of: vec![Some(index), None],
    })
}

/// The events of both profiles in the order of the request, and the number of them that have columns. Where all events of
/// the first profile are shown, those that only the other one has are, too.
fn events(first: &Selected, other: &Selected) -> (Vec<TableEvent>, usize) {
    let all = both(&first.profile, &other.profile);
    let wanted = first.events.iter();
    let mut events: Vec<TableEvent> = wanted.map(|index| of_first(&all, first, *index)).collect();
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
